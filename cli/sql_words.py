"""Words that complete what a user types: those that statements begin with, and names of functions."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from seqstore.store.sql.session.statement_kind import all_kinds
from seqstore.store.sql.translate.functions import function_names

_WORDS: Final = re.findall(
    r"\w+",
    "AND AS ASC BETWEEN BY CASE CAST DESC DISTINCT ELSE END EXISTS FROM GROUP HAVING IN INNER INTERVAL"
    " INTO IS JOIN KEY LEFT LIKE LIMIT NOT NULL OFFSET ON OR ORDER PARTITION RIGHT SELECT SET THEN UNION"
    " UNIQUE VALUES WHEN WHERE",
)
# Functions with a grammar of their own, which the engine has no table of.
_STANDARD: Final = re.findall(
    r"\w+",
    "abs avg ceil coalesce concat count dense_rank first_value floor greatest if ifnull lag last_value lead"
    " least lower ltrim max min nullif power rank replace round row_number rtrim sum trim upper",
)
_OF_TABLES: Final = ("key_history", "table_changes")


@cache
def sql_words() -> tuple[str, ...]:
    """Returns the words of queries and of all statements, sorted."""
    starts = {word for kind in all_kinds() for start in kind.starts for word in start.split()}
    return tuple(sorted({*_WORDS, *(word for word in starts if word.isalpha())}))


@cache
def functions() -> tuple[str, ...]:
    """Returns the names of functions, sorted."""
    return tuple(sorted({*_STANDARD, *_OF_TABLES, *function_names()}))
