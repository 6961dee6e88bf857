"""Casts of arrays, maps and structs to text, in the form in which Doris prints them.

["a", "b", null]        {"k":1, "l":null}        {1, "a"}
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.calls import call
from seqstore.store.sql.translate.conversions import as_text
from seqstore.store.sql.translate.value_types import column_value_type, note
from seqstore.store.types.column_types import ColumnType

_QUOTED = ("CHAR", "VARCHAR", "STRING", "JSON", "DATE", "DATETIME")


def nested_text(value: exp.Expr, kind: ColumnType) -> exp.Expr:
    """Builds the text of a value of a nested type; NULL for NULL."""
    names = (
        f"__part_{number}__" for number in count()
    )  # no name of a column or of another lambda's parameter

    def each(values: exp.Expr, build: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
        """Joins the texts of a list's elements."""
        parameter = exp.to_identifier(next(names), quoted=True)
        body = build(exp.column(parameter.copy()))
        function = exp.Lambda(this=body, expressions=[parameter], colon=True)
        return call("d_joined", call("list_transform", values, function), exp.Literal.string(", "))

    def shown(part: exp.Expr, kind: ColumnType) -> exp.Expr:
        text = text_of(part, kind)
        return exp.Coalesce(this=text, expressions=[exp.Literal.string("null")])

    def text_of(part: exp.Expr, kind: ColumnType) -> exp.Expr:
        if kind.name == "ARRAY":
            (child,) = kind.children
            return _between("[", each(part, lambda item: shown(item, child)), "]")
        if kind.name == "MAP":
            key, item = kind.children
            pairs = each(
                call("map_entries", part),
                lambda entry: _concatenated(
                    shown(_field(entry, "key"), key),
                    exp.Literal.string(":"),
                    shown(_field(entry, "value"), item),
                ),
            )
            return _between("{", pairs, "}")
        if kind.name == "STRUCT":
            fields = [
                shown(_field(part, name), child)
                for name, child in zip(kind.names, kind.children, strict=True)
            ]
            commas = [exp.Literal.string(", ") for _ in fields[1:]]
            joined = [fields[0], *(piece for pair in zip(commas, fields[1:], strict=True) for piece in pair)]
            is_there = exp.not_(exp.Is(this=part.copy(), expression=exp.null()))
            return exp.Case().when(is_there, _between("{", _concatenated(*joined), "}"))
        plain = as_text(note(part, column_value_type(kind)))
        return _between('"', plain, '"') if kind.name in _QUOTED else plain

    return note(text_of(value, kind), "STRING")


def _field(value: exp.Expr, name: str) -> exp.Expr:
    return call("struct_extract", value.copy(), exp.Literal.string(name))


def _between(first: str, middle: exp.Expr, last: str) -> exp.Expr:
    return _concatenated(exp.Literal.string(first), middle, exp.Literal.string(last))


def _concatenated(*parts: exp.Expr) -> exp.Expr:
    """Joins texts; NULL as soon as one is."""
    found = parts[0]
    for part in parts[1:]:
        found = exp.DPipe(this=found, expression=part)
    return exp.paren(found)
