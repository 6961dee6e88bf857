"""Rows for tests: short ways to make tables, batches and to read them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from seqstore import Column, Default, Snapshot, Table, TableSchema, parse_type


class MakeTable(Protocol):
    """The fixture `make_table`."""

    def __call__(
        self, *columns: str, name: str = "db.t", key: Sequence[str] = ("k",), **properties: str
    ) -> Table: ...


def column(text: str) -> Column:
    """A column from `name TYPE [NOT NULL] [DEFAULT constant]`; without NOT NULL it may be NULL."""
    name, _, rest = text.partition(" ")
    rest, _, default = rest.partition(" DEFAULT ")
    nullable = not rest.endswith(" NOT NULL")
    kind = rest.removesuffix(" NOT NULL")
    made = {"CURRENT_TIMESTAMP": Default("current_timestamp"), "": None}
    return Column(name, parse_type(kind), nullable, made.get(default, Default("constant", default)))


def schema_of(*columns: str, key: Sequence[str] = ("k",), **properties: str) -> TableSchema:
    """A schema; property names may be written `sequence_col` and `sequence_type`."""
    full = {
        f"function_column.{name}" if name.startswith("sequence_") else name: value
        for name, value in properties.items()
    }
    return TableSchema.create([column(text) for text in columns], key, properties=full)


def rows_of(table: Table | Snapshot, **options: Any) -> list[tuple[Any, ...]]:
    """Scanned rows as sorted tuples."""
    rows = table.scan(**options).read_all().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def batch(values: Mapping[str, Sequence[Any]], **types: str) -> pa.Table:
    """A batch of the named Arrow types, guessed where none is named."""
    return pa.table(
        {
            name: pa.array(cells, parse_type(types[name]).arrow if name in types else None)
            for name, cells in values.items()
        }
    )
