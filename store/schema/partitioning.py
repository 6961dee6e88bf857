"""Partitions as values: named ranges or lists of values of key columns, their filters, and the clause that
declares them.

Bounds are stored as the user's text and parsed in the column's own type.

- RANGE: `low <= columns < high`, compared column by column; a missing bound is open, and NULL is smaller than
  every value.
- LIST: the columns are one of some tuples; NULL may be among them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from seqstore.store.schema.column import Column
from seqstore.store.types.cast import try_cast

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
            Partition(name, low and tuple(low), high and tuple(high), tuple(map(tuple, values)))
            for name, low, high, values in record["partitions"]
        )
        return cls(record["method"], tuple(record["columns"]), partitions, record["auto"], record["unit"])


def bounds_filter(columns: Sequence[Column], partition: Partition) -> pc.Expression:
    """Returns the filter of one partition's rows; `columns` are those of the partitioning."""
    if partition.values:
        return values_filter(columns, partition.values)
    parts = []
    if partition.high is not None:
        parts.append(_less(columns, partition.high))
    if partition.low is not None:
        parts.append(~_less(columns, partition.low))
    return _all(parts)


def _less(columns: Sequence[Column], bound: Bound) -> pc.Expression:
    column, value = columns[0], bound[0]
    if value is None:
        return pc.scalar(True)
    field, scalar = pc.field(column.name), _scalar(column, value)
    below = field.is_null() | (field < scalar) if column.nullable else field < scalar
    if len(bound) == 1:
        return below
    return below | ((field == scalar) & _less(columns[1:], bound[1:]))


def values_filter(columns: Sequence[Column], values: Sequence[Bound]) -> pc.Expression:
    """Returns the filter of rows whose columns are one of some tuples."""
    if len(columns) == 1:
        column = columns[0]
        known = [_scalar(column, value) for (value,) in values if value is not None]
        array = pa.array([scalar.as_py() for scalar in known], column.type.arrow)
        found = pc.field(column.name).isin(array)
        return found | pc.field(column.name).is_null() if (None,) in values else found
    rows = [
        _all(
            pc.field(c.name).is_null() if v is None else pc.field(c.name) == _scalar(c, v)
            for c, v in zip(columns, value, strict=True)
        )
        for value in values
    ]
    return functools.reduce(operator.or_, rows)


def _all(parts: Iterable[pc.Expression]) -> pc.Expression:
    found = list(parts)
    return functools.reduce(operator.and_, found) if found else pc.scalar(True)


def _scalar(column: Column, value: str) -> pa.Scalar:
    cast = try_cast(pa.array([value]), column.type).values
    if not cast[0].is_valid:
        raise InvalidInputError(
            f"partition bound {value!r} is no {column.type} of column {column.name!r}", kind="bad_partition"
        )
    return cast[0]


def ordered(columns: Sequence[Column], partitions: Iterable[Partition]) -> list[Partition]:
    """Returns ranges in the order of their lower bounds."""
    return sorted(partitions, key=lambda partition: _order(columns, partition.low, is_low=True))


def _order(columns: Sequence[Column], bound: Bound | None, *, is_low: bool) -> list[tuple[int, Any]]:
    """Returns a bound as a value that Python can order."""
    if bound is None:
        return [(-1 if is_low else 1, 0)]
    return [
        (1, 0) if value is None else (0, _scalar(column, value).as_py())
        for column, value in zip(columns, bound, strict=False)
    ]


def check_bounds(find: Callable[[str], Column], partitioning: Partitioning) -> Partitioning:
    """Checks partitions and returns them in order; LESS THAN starts at the end of the partition before.

    Args:
        find: returns a column of the table by its name.

    Raises:
        InvalidInputError: a bound of another type, an empty or overlapping partition.
        AlreadyExistsError: a name is used twice.
    """
    names = [partition.name.lower() for partition in partitioning.partitions]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise AlreadyExistsError(f"partition {name!r} exists already", kind="partition_exists")
    check = _checked_ranges if partitioning.method == RANGE else _checked_lists
    columns = [find(name) for name in partitioning.columns]
    return replace(partitioning, partitions=tuple(check(columns, partitioning.partitions)))


def _checked_ranges(columns: Sequence[Column], partitions: Iterable[Partition]) -> list[Partition]:
    def end(partition: Partition) -> list[tuple[int, Any]]:
        return _order(columns, partition.high, is_low=False)

    found: list[Partition] = []
    for partition in sorted(partitions, key=end):
        if partition.low is None and found:
            partition = Partition(partition.name, found[-1].high, partition.high)
        if _order(columns, partition.low, is_low=True) >= end(partition):
            raise InvalidInputError(f"partition {partition.name!r} holds nothing", kind="bad_partition")
        if found and _order(columns, partition.low, is_low=True) < end(found[-1]):
            raise InvalidInputError(
                f"partition {partition.name!r} overlaps partition {found[-1].name!r}", kind="bad_partition"
            )
        found.append(partition)
    return found


def _checked_lists(columns: Sequence[Column], partitions: Iterable[Partition]) -> list[Partition]:
    found = list(partitions)
    owners: dict[Any, str] = {}
    for partition in found:
        bounds_filter(columns, partition)  # parses every value in its column's type
        for value in partition.values:
            if value in owners:
                raise InvalidInputError(
                    f"value {tuple_sql(value)} is in partition {owners[value]!r} and {partition.name!r}",
                    kind="bad_partition",
                )
            owners[value] = partition.name
    return found
