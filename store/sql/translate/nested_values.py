"""Casts to and from arrays, maps and structs, whose parts are cast as plain values are.

A text becomes a nested value by its JSON; other forms are left to DuckDB. Doris prints nested values as

    ["a", "b", null]        {"k":1, "l":null}        {1, "a"}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.calls import call
from seqstore.store.sql.translate.conversions import as_text
from seqstore.store.sql.translate.value_types import TEXTS, column_value_type, note, type_of
from seqstore.store.types.column_types import ColumnType, parse_type

_QUOTED: Final = ("CHAR", "VARCHAR", "STRING", "JSON", "DATE", "DATETIME")
_NESTED: Final = ("ARRAY", "MAP", "STRUCT")
# Casts a plain value: the value, and Doris's name of the type.
_Cast = Callable[[exp.Expr, str], exp.Expr]


def is_nested(kind: str | None) -> bool:
    """Returns whether a noted type is an array, a map or a struct."""
    return kind is not None and "<" in kind


def nested_text(value: exp.Expr, kind: ColumnType) -> exp.Expr:
    """Builds the text of a nested value; NULL for NULL."""
    return note(_Texts().text_of(value, kind), "STRING")


def nested_cast(value: exp.Expr, to: ColumnType, cast: _Cast) -> exp.Expr:
    """Builds a nested value of a text or of another nested value; NULL for what cannot be one."""
    return _Casts(cast).cast(value, to)


class _Parts:
    """Expressions over the elements of lists; each lambda has a parameter of its own."""

    def __init__(self) -> None:
        self._names: Iterator[str] = (f"__part_{number}__" for number in count())

    def each(
        self, values: exp.Expr, build: Callable[[exp.Expr], exp.Expr], kind: str | None = None
    ) -> exp.Expr:
        """Builds a list of what is made of each element, whose type may be known."""
        parameter = exp.to_identifier(next(self._names), quoted=True)
        body = build(note(exp.column(parameter.copy()), kind))
        return call("list_transform", values, exp.Lambda(this=body, expressions=[parameter], colon=True))


class _Texts(_Parts):
    def text_of(self, value: exp.Expr, kind: ColumnType) -> exp.Expr:
        if kind.name == "ARRAY":
            (child,) = kind.children
            return _between("[", self._joined(value, lambda item: self._shown(item, child)), "]")
        if kind.name == "MAP":
            return _between("{", self._joined(call("map_entries", value), lambda e: self._pair(e, kind)), "}")
        if kind.name == "STRUCT":
            named = zip(kind.names, kind.children, strict=True)
            fields = [self._shown(_field(value, name), child) for name, child in named]
            commas = [exp.Literal.string(", ") for _ in fields[1:]]
            rest = [piece for pair in zip(commas, fields[1:], strict=True) for piece in pair]
            return exp.Case().when(_is_there(value), _between("{", _concatenated(fields[0], *rest), "}"))
        plain = as_text(note(value, column_value_type(kind)))
        return _between('"', plain, '"') if kind.name in _QUOTED else plain

    def _joined(self, values: exp.Expr, build: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
        return call("d_joined", self.each(values, build), exp.Literal.string(", "))

    def _shown(self, part: exp.Expr, kind: ColumnType) -> exp.Expr:
        return exp.Coalesce(this=self.text_of(part, kind), expressions=[exp.Literal.string("null")])

    def _pair(self, entry: exp.Expr, kind: ColumnType) -> exp.Expr:
        key, item = kind.children
        shown = self._shown(_field(entry, "key"), key), self._shown(_field(entry, "value"), item)
        return _concatenated(shown[0], exp.Literal.string(":"), shown[1])


class _Casts(_Parts):
    def __init__(self, cast: _Cast) -> None:
        super().__init__()
        self._plain = cast

    def cast(self, value: exp.Expr, to: ColumnType) -> exp.Expr:
        if to.name not in _NESTED:
            return self._plain(value, to.sql)
        given = type_of(value)
        if given in TEXTS:
            found = self._of_text(value, to)
            is_json = call("json_valid", value.copy())
            return exp.Case().when(is_json, found).else_(_by_duckdb(value.copy(), to))
        kinds: list[str | None] = [None, None]
        if is_nested(given):
            source = parse_type(str(given))
            name, kinds = source.name, [column_value_type(child) for child in source.children]
        else:
            name = _written_type(value)
        if to.name == "STRUCT" or name != to.name:
            return _by_duckdb(value, to)
        if to.name == "ARRAY":
            (child,) = to.children
            if isinstance(value, exp.Array) and value.expressions:
                return call("list_value", *(self.cast(item, child) for item in value.expressions))
            return self.each(value, lambda item: self.cast(item, child), kinds[0])
        key, item = to.children
        keys = self.each(call("map_keys", value), lambda part: self.cast(part, key), kinds[0])
        items = self.each(call("map_values", value.copy()), lambda part: self.cast(part, item), kinds[1])
        return exp.Case().when(_is_there(value), call("d_map_of", keys, items))

    def _of_text(self, value: exp.Expr, to: ColumnType) -> exp.Expr:
        if to.name == "ARRAY":
            (child,) = to.children
            return self.each(call("d_json_items", value), lambda part: self.cast(part, child), "STRING")
        if to.name == "MAP":
            key, item = to.children
            keys = self.each(call("d_json_names", value), lambda part: self.cast(part, key), "STRING")
            items = self.each(
                call("d_json_values", value.copy()), lambda part: self.cast(part, item), "STRING"
            )
            return call("d_map_of", keys, items)
        return _by_duckdb(value, to)


def _written_type(value: exp.Expr) -> str:
    """Returns the type of an array or map that is written out, empty for other values of no known type."""
    if isinstance(value, exp.Array):
        return "ARRAY"
    return "MAP" if isinstance(value, exp.Anonymous) and value.this == "d_map_of" else ""


def _by_duckdb(value: exp.Expr, to: ColumnType) -> exp.Expr:
    return exp.TryCast(this=value, to=exp.DataType.build(to.sql, dialect="doris"))


def _field(value: exp.Expr, name: str) -> exp.Expr:
    return call("struct_extract", value.copy(), exp.Literal.string(name))


def _is_there(value: exp.Expr) -> exp.Expr:
    return exp.not_(exp.Is(this=value.copy(), expression=exp.null()))


def _between(first: str, middle: exp.Expr, last: str) -> exp.Expr:
    return _concatenated(exp.Literal.string(first), middle, exp.Literal.string(last))


def _concatenated(*parts: exp.Expr) -> exp.Expr:
    """Joins texts; NULL as soon as one is."""
    found = parts[0]
    for part in parts[1:]:
        found = exp.DPipe(this=found, expression=part)
    return exp.paren(found)
