"""The clauses of LOAD LABEL and CREATE ROUTINE LOAD, in any order (B1, R1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from seqstore.store.sql.parse.load_jobs import LabelFilter, LoadClauses
from seqstore.store.sql.parse.tokens import TokenStream

_Clause = Callable[[TokenStream, LoadClauses], LoadClauses]
MERGE_TYPES: Final = ("MERGE", "APPEND", "DELETE")
# What ends an expression. Alone most of these words name columns: `WHERE comment = 'x' FORMAT AS "csv"`.
_STOPS: Final = ("WHERE", "FROM", "WITH", "PRECEDING FILTER", "DELETE ON", "ORDER BY", "PROPERTIES (",
                 "SET (", "PARTITION (", "PARTITIONS (", "COLUMNS (", "COLUMNS TERMINATED", "COLUMNS FROM",
                 "COMMENT ''", "LINES TERMINATED", "FORMAT AS", "COMPRESS_TYPE AS")  # fmt: skip


def parse_clauses(stream: TokenStream, merge_type: str = "APPEND", *, commas: bool) -> LoadClauses:
    """Clauses up to the first word that starts none; `commas`: they may stand between them."""
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
    """`( item, .. )` as texts."""
    stream.need("(")
    found = [_text(stream)]
    while stream.take(","):
        found.append(_text(stream))
    if not stream.take(")"):
        stream.fail("',' or ')'")
    return tuple(item.strip("`") if "=" not in item else item for item in found)


def _text(stream: TokenStream, *stops: str) -> str:
    start, end = stream.slice_to(*stops)
    return stream.text[start:end]


def _expression(stream: TokenStream) -> str:
    return _text(stream, *_STOPS)


def _set(stream: TokenStream, clauses: LoadClauses) -> LoadClauses:
    pairs: list[tuple[str, str]] = []
    stream.need("(")
    while True:
        name = stream.name("a column name")
        stream.need("=")
        pairs.append((name, _text(stream)))
        if not stream.take(","):
            break
    if not stream.take(")"):
        stream.fail("',' or ')'")
    return replace(clauses, set_columns=tuple(pairs))


def _field(name: str, parse: Callable[[TokenStream], Any]) -> _Clause:
    """A clause that sets one field."""

    def clause(stream: TokenStream, clauses: LoadClauses) -> LoadClauses:
        value: dict[str, Any] = {name: parse(stream)}
        return replace(clauses, **value)

    return clause


def _separator(stream: TokenStream) -> str:
    return stream.string("a separator")


def _name(stream: TokenStream) -> str:
    return stream.word_or_string("a name")


def _names(stream: TokenStream) -> tuple[str, ...]:
    return tuple(stream.names("a name"))


_CLAUSES: Final[tuple[tuple[tuple[str, ...], _Clause], ...]] = (
    (("COLUMNS", "TERMINATED", "BY"), _field("column_separator", _separator)),
    (("COLUMNS", "FROM", "PATH", "AS"), _field("columns_from_path", _names)),
    (("LINES", "TERMINATED", "BY"), _field("line_delimiter", _separator)),
    (("FORMAT", "AS"), _field("format", _name)),
    (("COMPRESS_TYPE", "AS"), _field("compress_type", _name)),
    (("COLUMNS",), _field("columns", _items)),
    (("PARTITION",), _field("partitions", _names)),
    (("PARTITIONS",), _field("partitions", _names)),
    (("SET",), _set),
    (("PRECEDING", "FILTER"), _field("preceding_filter", _expression)),
    (("WHERE",), _field("where", _expression)),
    (("DELETE", "ON"), _field("delete_on", _expression)),
    (("ORDER", "BY"), _field("order_by", _name)),
)


def parse_label_filter(stream: TokenStream) -> LabelFilter:
    """`[WHERE LABEL = '..' | LABEL LIKE '..' [AND STATE = '..']]`, in either order."""
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
