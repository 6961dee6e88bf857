"""The clauses of LOAD LABEL and CREATE ROUTINE LOAD, in any order (B1, R1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from store.sql.load_jobs import LabelFilter, LoadClauses
from store.sql.tokens import TokenStream

MERGE_TYPES: Final = ("MERGE", "APPEND", "DELETE")
_STOPS: Final = ("PRECEDING", "WHERE", "DELETE", "ORDER", "PROPERTIES", "SET", "FROM", "PARTITION", "PARTITIONS",
                 "COLUMNS", "WITH", "COMMENT", "LINES", "FORMAT", "COMPRESS_TYPE")  # fmt: skip


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


def _terminated(field: str) -> Callable[[TokenStream, LoadClauses], LoadClauses]:
    def parse(stream: TokenStream, clauses: LoadClauses) -> LoadClauses:
        return replace(clauses, **{field: stream.string("a separator")})

    return parse


def _named(field: str) -> Callable[[TokenStream, LoadClauses], LoadClauses]:
    def parse(stream: TokenStream, clauses: LoadClauses) -> LoadClauses:
        return replace(clauses, **{field: stream.word_or_string("a name")})

    return parse


def _condition(field: str) -> Callable[[TokenStream, LoadClauses], LoadClauses]:
    def parse(stream: TokenStream, clauses: LoadClauses) -> LoadClauses:
        return replace(clauses, **{field: _expression(stream)})

    return parse


def _listed(field: str) -> Callable[[TokenStream, LoadClauses], LoadClauses]:
    def parse(stream: TokenStream, clauses: LoadClauses) -> LoadClauses:
        return replace(clauses, **{field: tuple(stream.names("a name"))})

    return parse


def _columns(stream: TokenStream, clauses: LoadClauses) -> LoadClauses:
    return replace(clauses, columns=_items(stream))


_CLAUSES: Final[tuple[tuple[tuple[str, ...], Callable[[TokenStream, LoadClauses], LoadClauses]], ...]] = (
    (("COLUMNS", "TERMINATED", "BY"), _terminated("column_separator")),
    (("COLUMNS", "FROM", "PATH", "AS"), _listed("columns_from_path")),
    (("LINES", "TERMINATED", "BY"), _terminated("line_delimiter")),
    (("FORMAT", "AS"), _named("format")),
    (("COMPRESS_TYPE", "AS"), _named("compress_type")),
    (("COLUMNS",), _columns),
    (("PARTITION",), _listed("partitions")),
    (("PARTITIONS",), _listed("partitions")),
    (("SET",), _set),
    (("PRECEDING", "FILTER"), _condition("preceding_filter")),
    (("WHERE",), _condition("where")),
    (("DELETE", "ON"), _condition("delete_on")),
    (("ORDER", "BY"), _named("order_by")),
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
