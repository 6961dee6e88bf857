"""Partitions: named ranges or lists of values of key columns. A row belongs to at most one.

Partitions are part of a table's schema, not of its files. Loads check rows against them. A partition's filter
finds its rows, and zone maps prune by that filter. Bounds are stored as the user's text and parsed in the
column's own type.

- RANGE: `low <= columns < high`, compared column by column; a missing bound is open, and NULL is smaller than
  every value.
- LIST: the columns are one of some tuples; NULL may be among them.
- AUTO: rows need no declared partition. The other partitions follow from the data: one per value (LIST), or
  per value of `date_trunc` (RANGE).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs

from seqstore.store.errors import AlreadyExistsError, InvalidInputError
from seqstore.store.schema.column import Column
from seqstore.store.schema.partitioning import (
    LIST,
    RANGE,
    Bound,
    Partition,
    PartitionedSchema,
    Partitioning,
    tuple_sql,
)
from seqstore.store.types.cast import try_cast


def partition_filter(schema: PartitionedSchema, partition: Partition) -> pc.Expression:
    """Returns the filter of one partition's rows."""
    assert schema.partitioning is not None
    columns = [schema.column(name) for name in schema.partitioning.columns]
    if partition.values:
        return _in_values(columns, partition.values)
    parts = []
    if partition.high is not None:
        parts.append(_less(columns, partition.high))
    if partition.low is not None:
        parts.append(~_less(columns, partition.low))
    return _all(parts)


def any_partition_filter(schema: PartitionedSchema, partitions: Iterable[Partition]) -> pc.Expression:
    """Returns the filter of some partitions' rows.

    Adjacent ranges are joined first, so that many partitions cost as little as one.
    """
    assert schema.partitioning is not None
    found = list(partitions)
    if schema.partitioning.method == LIST:
        columns = [schema.column(name) for name in schema.partitioning.columns]
        return _in_values(columns, [value for partition in found for value in partition.values])
    joined: list[Partition] = []
    for partition in _ordered(schema, found):
        if joined and joined[-1].high is not None and joined[-1].high == partition.low:
            joined[-1] = Partition(joined[-1].name, joined[-1].low, partition.high)
        else:
            joined.append(partition)
    return functools.reduce(operator.or_, [partition_filter(schema, part) for part in joined])


def _less(columns: Sequence[Column], bound: Bound) -> pc.Expression:
    column, value = columns[0], bound[0]
    if value is None:
        return pc.scalar(True)
    field, scalar = pc.field(column.name), _scalar(column, value)
    below = field.is_null() | (field < scalar) if column.nullable else field < scalar
    if len(bound) == 1:
        return below
    return below | ((field == scalar) & _less(columns[1:], bound[1:]))


def _in_values(columns: Sequence[Column], values: Sequence[Bound]) -> pc.Expression:
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
    return cast.combine_chunks()[0] if isinstance(cast, pa.ChunkedArray) else cast[0]


def _order(schema: PartitionedSchema, bound: Bound | None, *, is_low: bool) -> list[tuple[int, Any]]:
    """Returns a bound as a value that Python can order."""
    assert schema.partitioning is not None
    if bound is None:
        return [(-1 if is_low else 1, 0)]
    columns = [schema.column(name) for name in schema.partitioning.columns]
    return [
        (1, 0) if value is None else (0, _scalar(column, value).as_py())
        for column, value in zip(columns, bound, strict=False)
    ]


def _ordered(schema: PartitionedSchema, partitions: Iterable[Partition]) -> list[Partition]:
    return sorted(partitions, key=lambda partition: _order(schema, partition.low, is_low=True))


def checked(schema: PartitionedSchema, partitioning: Partitioning) -> Partitioning:
    """Checks partitions and returns them in order; LESS THAN starts at the end of the partition before.

    Raises:
        InvalidInputError: a column that is no key column, a bound of another type, an empty or overlapping
            partition.
        AlreadyExistsError: a name is used twice.
    """
    for name in partitioning.columns:
        if schema.column(name).name not in schema.key:
            raise InvalidInputError(
                f"partition column {name!r} must be a key column; the key is {', '.join(schema.key)}",
                kind="bad_partition",
            )
    names = [partition.name.lower() for partition in partitioning.partitions]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise AlreadyExistsError(f"partition {name!r} exists already", kind="partition_exists")
    trial = schema.with_partitioning(partitioning)
    found = (
        _checked_ranges(trial, partitioning.partitions)
        if partitioning.method == RANGE
        else _checked_lists(trial, partitioning.partitions)
    )
    return Partitioning(
        partitioning.method, partitioning.columns, tuple(found), partitioning.is_auto, partitioning.unit
    )


def partitioned(schema: PartitionedSchema, name: str) -> Partitioning:
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


def check_names(table: str, schema: PartitionedSchema, names: Iterable[str]) -> None:
    """Checks that a table has partitions of some names.

    Raises:
        InvalidInputError: it has no partitions.
        NotFoundError: it has none of that name.
    """
    for name in names:
        if schema.partitioning is None:
            raise InvalidInputError(f"{table} is not partitioned", kind="not_partitioned")
        partition_named(schema, name)


def _checked_ranges(schema: PartitionedSchema, partitions: Iterable[Partition]) -> list[Partition]:
    def end(partition: Partition) -> list[tuple[int, Any]]:
        return _order(schema, partition.high, is_low=False)

    found: list[Partition] = []
    for partition in sorted(partitions, key=end):
        if partition.low is None and found:
            partition = Partition(partition.name, found[-1].high, partition.high)
        if _order(schema, partition.low, is_low=True) >= end(partition):
            raise InvalidInputError(f"partition {partition.name!r} holds nothing", kind="bad_partition")
        if found and _order(schema, partition.low, is_low=True) < end(found[-1]):
            raise InvalidInputError(
                f"partition {partition.name!r} overlaps partition {found[-1].name!r}", kind="bad_partition"
            )
        found.append(partition)
    return found


def _checked_lists(schema: PartitionedSchema, partitions: Iterable[Partition]) -> list[Partition]:
    found = list(partitions)
    owners: dict[Any, str] = {}
    for partition in found:
        partition_filter(schema, partition)  # parses every value in its column's type
        for value in partition.values:
            if value in owners:
                raise InvalidInputError(
                    f"value {tuple_sql(value)} is in partition {owners[value]!r} and {partition.name!r}",
                    kind="bad_partition",
                )
            owners[value] = partition.name
    return found


def matching(schema: PartitionedSchema, predicate: pc.Expression | None) -> list[Partition]:
    """Returns the declared partitions that may hold a row satisfying a predicate."""
    assert schema.partitioning is not None
    partitions = schema.partitioning.partitions
    if predicate is None:
        return list(partitions)
    file_format, filesystem = ds.IpcFileFormat(), fs.LocalFileSystem()
    fragments = [
        file_format.make_fragment(
            str(i), filesystem, partition_expression=partition_filter(schema, partition)
        )
        for i, partition in enumerate(partitions)
    ]
    dataset = ds.FileSystemDataset(fragments, schema.arrow, file_format, filesystem)
    return [partitions[int(fragment.path)] for fragment in dataset.get_fragments(filter=predicate)]


def rows_outside(
    schema: PartitionedSchema, columns: Mapping[str, pa.Array], only: Sequence[str] = ()
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


def automatic_partitions(schema: PartitionedSchema, rows: pa.Table) -> list[Partition]:
    """Returns the partitions of an AUTO table's rows beside the declared ones; `rows` has its partition
    columns.
    """
    partitioning = schema.partitioning
    assert partitioning is not None
    names = list(partitioning.columns)
    if partitioning.partitions:
        mask = rows_outside(_declared_only(schema), {name: rows.column(name) for name in names})
        rows = rows.filter(mask)
    if partitioning.method == LIST:
        distinct = rows.group_by(names).aggregate([]).to_pylist()
        texts = [tuple(_value_text(row[name]) for name in names) for row in distinct]
        return [Partition(_auto_name(value), values=(value,)) for value in sorted(texts, key=str)]
    start = pc.floor_temporal(rows.column(names[0]).cast(pa.timestamp("us")), unit=partitioning.unit or "day")
    starts = pc.unique(start).drop_null().sort()
    ends = pc.floor_temporal(
        pc.add(starts, pa.scalar(_DURATIONS[partitioning.unit or "day"], pa.duration("us"))),
        unit=partitioning.unit or "day",
    )
    kind = schema.column(names[0]).type.name
    return [
        Partition(f"p{low:%Y%m%d%H%M%S}", (_moment(low, kind),), (_moment(high, kind),))
        for low, high in zip(starts.to_pylist(), ends.to_pylist(), strict=True)
    ]


def partition_named(schema: PartitionedSchema, name: str) -> Partition:
    """Returns a declared partition or an AUTO table's partition of that name, whether or not it has rows.

    Raises:
        NotFoundError: there is none of that name.
    """
    partitioning = schema.partitioning
    assert partitioning is not None
    is_declared = any(known.name.lower() == name.lower() for known in partitioning.partitions)
    if partitioning.is_auto and not is_declared:
        for texts in _values_named(partitioning, name):
            casts = [
                try_cast(pa.array([text], pa.string()), schema.column(column).type)
                for column, text in zip(partitioning.columns, texts, strict=True)
            ]
            row = pa.table([cast.values for cast in casts], names=list(partitioning.columns))
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


def _declared_only(schema: PartitionedSchema) -> PartitionedSchema:
    partitioning = schema.partitioning
    assert partitioning is not None
    declared = Partitioning(partitioning.method, partitioning.columns, partitioning.partitions)
    return schema.with_partitioning(declared)


def _value_text(value: Any) -> str | None:
    return None if value is None else str(value)


def _auto_name(value: Bound) -> str:
    return "p" + "".join("X" if v is None else f"{v}{len(v)}" for v in value)


def _moment(moment: Any, kind: str) -> str:
    return f"{moment:%Y-%m-%d}" if kind == "DATE" else f"{moment:%Y-%m-%d %H:%M:%S}"


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
