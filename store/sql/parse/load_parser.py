"""The clauses of LOAD LABEL and CREATE ROUTINE LOAD, in any order (B1, R1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import methodcaller
from typing import Any, Final

from seqstore.store.sql.parse.load_jobs import LabelFilter, LoadClauses
from seqstore.store.sql.parse.tokens import TokenStream

_Clause = Callable[[TokenStream, LoadClauses], LoadClauses]
MERGE_TYPES: Final = ("MERGE", "APPEND", "DELETE")
# Words that end an expression. Most of them alone may name columns: `WHERE comment = 'x' FORMAT AS "csv"`.
_STOPS: Final = ("WHERE", "FROM", "WITH", "PRECEDING FILTER", "DELETE ON", "ORDER BY", "PROPERTIES (",
                 "SET (", "PARTITION (", "PARTITIONS (", "COLUMNS (", "COLUMNS TERMINATED", "COLUMNS FROM",
                 "COMMENT ''", "LINES TERMINATED", "FORMAT AS", "COMPRESS_TYPE AS")  # fmt: skip


def parse_clauses(stream: TokenStream, merge_type: str = "APPEND", *, commas: bool) -> LoadClauses:
    """Reads clauses up to the first word that starts none; `commas` may separate them."""
    clauses = LoadClauses(merge_type)
    while True:
        changed = _clause(stream, clauses)
        if changed is None:
            return clauses
        clauses = changed
        if commas:
            stream.take(",")


def _clause(stream: TokenStream, clauses: LoadClauses) -> LoadClauses | None:
    for words, parse in _CLAUSES:
        at = stream.at
        if stream.take(*words):
            if words == ("COLUMNS",) and stream.word() != "(":
                stream.at = at
                return None
            return parse(stream, clauses)
    if stream.word() == "(" and not clauses.columns:
        return replace(clauses, columns=_items(stream))
    return None


def _items(stream: TokenStream) -> tuple[str, ...]:
    """Parses `( item, .. )` as texts."""
    return tuple(item.strip("`") if "=" not in item else item for item in stream.enclosed(_text))


def _text(stream: TokenStream, *stops: str) -> str:
    start, end = stream.slice_to(*stops)
    return stream.text[start:end]


def _expression(stream: TokenStream) -> str:
    return _text(stream, *_STOPS)


def _set_items(stream: TokenStream) -> tuple[tuple[str, str], ...]:
    return tuple(stream.enclosed(_set_item))


def _set_item(stream: TokenStream) -> tuple[str, str]:
    name = stream.name("a column name")
    stream.need("=")
    return name, _text(stream)


def _field(name: str, parse: Callable[[TokenStream], Any]) -> _Clause:
    """Builds a clause that sets one field."""

    def clause(stream: TokenStream, clauses: LoadClauses) -> LoadClauses:
        value: dict[str, Any] = {name: parse(stream)}
        return replace(clauses, **value)

    return clause


def _names(stream: TokenStream) -> tuple[str, ...]:
    return tuple(stream.names("a name"))


_separator: Final = methodcaller("string", "a separator")
_name: Final = methodcaller("word_or_string", "a name")
_CLAUSES: Final[tuple[tuple[tuple[str, ...], _Clause], ...]] = (
    (("COLUMNS", "TERMINATED", "BY"), _field("column_separator", _separator)),
    (("COLUMNS", "FROM", "PATH", "AS"), _field("columns_from_path", _names)),
    (("LINES", "TERMINATED", "BY"), _field("line_delimiter", _separator)),
    (("FORMAT", "AS"), _field("format", _name)),
    (("COMPRESS_TYPE", "AS"), _field("compress_type", _name)),
    (("COLUMNS",), _field("columns", _items)),
    (("PARTITION",), _field("partitions", _names)),
    (("PARTITIONS",), _field("partitions", _names)),
    (("SET",), _field("set_columns", _set_items)),
    (("PRECEDING", "FILTER"), _field("preceding_filter", _expression)),
    (("WHERE",), _field("where", _expression)),
    (("DELETE", "ON"), _field("delete_on", _expression)),
    (("ORDER", "BY"), _field("order_by", _name)),
)


def parse_label_filter(stream: TokenStream) -> LabelFilter:
    """Parses `[WHERE LABEL = '..' | LABEL LIKE '..' [AND STATE = '..']]`, in either order."""
    found = LabelFilter()
    if not stream.take("WHERE"):
        return found
    while True:
        word = stream.take_one_of("LABEL", "STATE") or stream.fail("LABEL or STATE")
        sign = stream.take_one_of("=", "LIKE") or stream.fail("'=' or LIKE")
        value = stream.string("a value")
        if word == "LABEL":
            found = replace(found, label=value, is_pattern=sign == "LIKE")
        else:
            found = replace(found, state=value.upper())
        if not stream.take("AND"):
            return found
