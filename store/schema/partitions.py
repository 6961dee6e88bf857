"""Partitions: named ranges or lists of values of key columns. A row belongs to at most one.

Partitions are part of a table's schema, not of its files. Loads check rows against them. A partition's filter
finds its rows, and zone maps prune by that filter.

AUTO: rows need no declared partition. The other partitions follow from the data: one per value (LIST), or per
value of `date_trunc` (RANGE).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs

from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import Column
from seqstore.store.schema.partitioning import (
    LIST,
    Bound,
    Partition,
    Partitioning,
    bounds_filter,
    ordered,
    values_filter,
)
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.types.cast import try_cast


def partition_filter(schema: TableSchema, partition: Partition) -> pc.Expression:
    """Returns the filter of one partition's rows."""
    return bounds_filter(_declared(schema)[1], partition)


def any_partition_filter(schema: TableSchema, partitions: Iterable[Partition]) -> pc.Expression:
    """Returns the filter of some partitions' rows.

    Adjacent ranges are joined first, so that many partitions cost as little as one.
    """
    partitioning, columns = _declared(schema)
    if partitioning.method == LIST:
        return values_filter(columns, [value for partition in partitions for value in partition.values])
    joined: list[Partition] = []
    for partition in ordered(columns, partitions):
        if joined and joined[-1].high is not None and joined[-1].high == partition.low:
            joined[-1] = replace(joined[-1], high=partition.high)
        else:
            joined.append(partition)
    return functools.reduce(operator.or_, [bounds_filter(columns, part) for part in joined])


def _declared(schema: TableSchema) -> tuple[Partitioning, list[Column]]:
    """Returns the partitioning of a partitioned table, and its columns."""
    assert schema.partitioning is not None
    return schema.partitioning, [schema.column(name) for name in schema.partitioning.columns]


def partitioned(schema: TableSchema, name: str) -> Partitioning:
    """Returns the partitioning of a table.

    Args:
        name: of the table, for the message.

    Raises:
        InvalidInputError: the table is not partitioned.
    """
    if schema.partitioning is None:
        raise InvalidInputError(
            f"{name} is not partitioned; partitions are declared by CREATE TABLE ... PARTITION BY",
            kind="not_partitioned",
        )
    return schema.partitioning


def check_names(table: str, schema: TableSchema, names: Iterable[str]) -> None:
    """Checks that a table has partitions of some names.

    Raises:
        InvalidInputError: it has no partitions.
        NotFoundError: it has none of that name.
    """
    for name in names:
        if schema.partitioning is None:
            raise InvalidInputError(f"{table} is not partitioned", kind="not_partitioned")
        partition_named(schema, name)


def matching(schema: TableSchema, predicate: pc.Expression | None) -> list[Partition]:
    """Returns the declared partitions that may hold a row satisfying a predicate."""
    partitioning, columns = _declared(schema)
    partitions = partitioning.partitions
    if predicate is None:
        return list(partitions)
    file_format, filesystem = ds.IpcFileFormat(), fs.LocalFileSystem()
    fragments = [
        file_format.make_fragment(str(i), filesystem, partition_expression=known)
        for i, partition in enumerate(partitions)
        for known in _guarantees(columns, partition)
    ]
    dataset = ds.FileSystemDataset(fragments, schema.arrow, file_format, filesystem)
    found = {int(fragment.path) for fragment in dataset.get_fragments(filter=predicate)}
    return [partitions[place] for place in sorted(found)]


def _guarantees(columns: Sequence[Column], partition: Partition) -> Iterator[pc.Expression]:
    """Yields what is true of all rows without NULL, and of the rows with NULL in each column.

    Arrow draws no conclusion from the one expression "NULL or less than the bound".
    """
    yield bounds_filter([replace(column, nullable=False) for column in columns], partition)
    for column in columns:
        if column.nullable:
            yield bounds_filter(columns, partition) & pc.field(column.name).is_null()


def rows_outside(
    schema: TableSchema, columns: Mapping[str, pa.Array], only: Sequence[str] = ()
) -> pa.BooleanArray | None:
    """Returns which rows belong to no partition, or to none of those named; None if there is nothing to
    check.
    """
    partitioning = schema.partitioning
    if partitioning is None or (partitioning.is_auto and not only):
        return None
    wanted = [partition_named(schema, name) for name in only] if only else partitioning.partitions
    rows = pa.table({name: columns[name] for name in partitioning.columns})
    if not wanted:
        return pa.repeat(pa.scalar(True), len(rows))
    numbered = rows.append_column("__ROW__", pa.array(np.arange(len(rows))))
    inside = numbered.filter(any_partition_filter(schema, wanted)).column("__ROW__")
    return pc.invert(pc.is_in(numbered.column("__ROW__"), inside.combine_chunks())).combine_chunks()


def automatic_partitions(schema: TableSchema, rows: pa.Table) -> list[Partition]:
    """Returns the partitions of an AUTO table's rows beside the declared ones; `rows` has its partition
    columns.
    """
    partitioning, columns = _declared(schema)
    names = list(partitioning.columns)
    if partitioning.partitions:
        declared = schema.with_partitioning(replace(partitioning, is_auto=False))
        rows = rows.filter(rows_outside(declared, {name: rows.column(name) for name in names}))
    if partitioning.method == LIST:
        distinct = rows.group_by(names).aggregate([]).to_pylist()
        texts = [tuple(None if row[n] is None else str(row[n]) for n in names) for row in distinct]
        return [Partition(_auto_name(value), values=(value,)) for value in sorted(texts, key=str)]
    unit = partitioning.unit or "day"
    start = pc.floor_temporal(rows.column(names[0]).cast(pa.timestamp("us")), unit=unit)
    starts = pc.unique(start).drop_null().sort()
    ends = pc.floor_temporal(pc.add(starts, pa.scalar(_DURATIONS[unit], pa.duration("us"))), unit=unit)
    bound = "%Y-%m-%d" if columns[0].type.name == "DATE" else "%Y-%m-%d %H:%M:%S"
    return [
        Partition(f"p{low:%Y%m%d%H%M%S}", (format(low, bound),), (format(high, bound),))
        for low, high in zip(starts.to_pylist(), ends.to_pylist(), strict=True)
    ]


def partition_named(schema: TableSchema, name: str) -> Partition:
    """Returns a declared partition or an AUTO table's partition of that name, whether or not it has rows.

    Raises:
        NotFoundError: there is none of that name.
    """
    partitioning, columns = _declared(schema)
    is_declared = any(known.name.lower() == name.lower() for known in partitioning.partitions)
    if partitioning.is_auto and not is_declared:
        for texts in _values_named(partitioning, name):
            values = [
                try_cast(pa.array([text], pa.string()), column.type).values
                for column, text in zip(columns, texts, strict=True)
            ]
            row = pa.table(values, names=list(partitioning.columns))
            for found in automatic_partitions(schema, row):
                if found.name.lower() == name.lower():
                    return found
    return partitioning.find(name)


def _values_named(partitioning: Partitioning, name: str) -> Iterator[Bound]:
    """Yields candidate values for an automatic partition of that name; the caller compares their names."""
    digits = name[1:]
    if partitioning.method == LIST:
        yield from _values_joined(digits, len(partitioning.columns))
    elif len(digits) == 14 and digits.isdigit():
        date, time = (digits[:4], digits[4:6], digits[6:8]), (digits[8:10], digits[10:12], digits[12:])
        yield (f"{'-'.join(date)} {':'.join(time)}",)


def _values_joined(text: str, count: int) -> Iterator[Bound]:
    """Yields the values that `_auto_name` may have joined: each with its length behind it, X for NULL."""
    if not count:
        if not text:
            yield ()
        return
    if text[:1].upper() == "X":
        yield from ((None, *rest) for rest in _values_joined(text[1:], count - 1))
    for length in range(len(text)):
        behind = str(length)
        if text.startswith(behind, length):
            rest_of = text[length + len(behind) :]
            yield from ((text[:length], *rest) for rest in _values_joined(rest_of, count - 1))


def _auto_name(value: Bound) -> str:
    return "p" + "".join("X" if v is None else f"{v}{len(v)}" for v in value)


_DAY: Final = 86_400_000_000
# At least as long as the longest unit of its name, and shorter than two of the shortest.
_DURATIONS: Final = {
    "year": 370 * _DAY,
    "quarter": 93 * _DAY,
    "month": 32 * _DAY,
    "week": 7 * _DAY,
    "day": _DAY,
    "hour": _DAY // 24,
    "minute": _DAY // 1440,
    "second": 1_000_000,
}
