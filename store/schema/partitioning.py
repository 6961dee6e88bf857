"""Partitions as values: named ranges or lists of values of key columns, and the clause that declares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

import pyarrow as pa

from seqstore.store.errors import NotFoundError
from seqstore.store.schema.column import Column

RANGE: Final = "RANGE"
LIST: Final = "LIST"
UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")

Bound = tuple[str | None, ...]  # a None component is open (RANGE) or NULL (LIST)


@dataclass(frozen=True)
class Partition:
    """One partition; `low` and `high` of RANGE (None: open), `values` of LIST."""

    name: str
    low: Bound | None = None
    high: Bound | None = None
    values: tuple[Bound, ...] = ()

    @property
    def sql(self) -> str:
        """The partition as CREATE TABLE declares it."""
        if self.values:
            return f"PARTITION `{self.name}` VALUES IN ({', '.join(map(tuple_sql, self.values))})"
        if self.low is None:
            return f"PARTITION `{self.name}` VALUES LESS THAN {_bound_sql(self.high)}"
        return f"PARTITION `{self.name}` VALUES [{_bound_sql(self.low)}, {_bound_sql(self.high)})"


def _bound_sql(bound: Bound | None) -> str:
    if bound is None:
        return "(MAXVALUE)"
    return "(" + ", ".join("MAXVALUE" if v is None else f'"{v}"' for v in bound) + ")"


def tuple_sql(values: Bound) -> str:
    """Returns one LIST value as CREATE TABLE declares it."""
    texts = ["NULL" if value is None else f'"{value}"' for value in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


@dataclass(frozen=True)
class Partitioning:
    """The partitioning of a table.

    Attributes:
        method: RANGE or LIST.
        columns: key columns.
        partitions: the declared partitions.
        is_auto: rows outside of the declared partitions are accepted.
        unit: of date_trunc, where AUTO RANGE has one.
    """

    method: str
    columns: tuple[str, ...]
    partitions: tuple[Partition, ...] = ()
    is_auto: bool = False
    unit: str = ""

    @property
    def sql(self) -> str:
        """The clause behind PARTITION BY, without the partitions."""
        columns = ", ".join(f"`{name}`" for name in self.columns)
        if self.unit:
            columns = f"date_trunc({columns}, '{self.unit}')"
        return f"{'AUTO ' if self.is_auto else ''}PARTITION BY {self.method} ({columns})"

    def find(self, name: str) -> Partition:
        """Returns a declared partition.

        Raises:
            NotFoundError: there is none of that name.
        """
        for partition in self.partitions:
            if partition.name.lower() == name.lower():
                return partition
        raise NotFoundError(
            f"partition {name!r} does not exist; the table has {', '.join(p.name for p in self.partitions)}",
            kind="unknown_partition",
        )

    def to_record(self) -> dict[str, Any]:
        """Returns the catalog record."""
        return {
            "method": self.method,
            "columns": list(self.columns),
            "auto": self.is_auto,
            "unit": self.unit,
            "partitions": [[p.name, p.low, p.high, list(p.values)] for p in self.partitions],
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> Partitioning | None:
        """Reads a record of `to_record`; None of None."""
        if record is None:
            return None
        partitions = tuple(
            Partition(name, _bound(low), _bound(high), tuple(tuple(value) for value in values))
            for name, low, high, values in record["partitions"]
        )
        return cls(record["method"], tuple(record["columns"]), partitions, record["auto"], record["unit"])


def _bound(stored: Sequence[str | None] | None) -> Bound | None:
    return None if stored is None else tuple(stored)


class PartitionedSchema(Protocol):
    """The part of a `TableSchema` that partitions depend on."""

    @property
    def key(self) -> tuple[str, ...]:
        """Returns the names of the key columns."""

    @property
    def partitioning(self) -> Partitioning | None:
        """Returns the table's partitioning, None if it has none."""

    @property
    def arrow(self) -> pa.Schema:
        """Returns the visible columns."""

    def column(self, name: str) -> Column:
        """Returns a column by its name."""

    def with_partitioning(self, partitioning: Partitioning) -> Self:
        """Returns the schema with another partitioning, unchecked."""
