"""Zone maps: smallest and largest value of each column in each record batch of a segment; pruning by them.

Every fixed-width column and every string key column has one. To prune a batch, Arrow's own expression
simplifier receives the batch's guarantee (`min <= c <= max`, or null where the batch has NULLs). A batch is
skipped if the simplifier proves the filter unsatisfiable. Any expression is legal; one that the simplifier
cannot analyse prunes no batch. Float batches with NaN and batches of NULLs alone have no guarantee; a filter
that names NaN prunes no batch.

Stored as msgpack-ready values: {column: [[min, max, has_nulls] or None per batch]}; dates and times as their
integers, decimals as text, strings cut to 64 bytes (a cut maximum is left open).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs

from seqstore.store.expressions.predicate import columns_of, may_name_nan

ZoneMap = dict[str, list[Any]]
_STRING_BYTES: Final = 64
_FILTERS_KEPT: Final = 8  # sets of columns whose guarantees are kept for the next filter
_STORED_AS: Final = {"date32[day]": pa.int32(), "timestamp[us]": pa.int64()}


class ZoneMapBuilder:
    """Collects the zone maps of the covered columns from batches that pass through.

    Args:
        key: names of the key columns, whose strings are covered too.
    """

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self.zones: ZoneMap = {
            field.name: [] for field in schema if _is_covered(field.type, is_key=field.name in key)
        }

    def seen(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the same batches and records their zones."""
        for batch in batches:
            for name, zones in self.zones.items():
                zones.append(_zone(batch.column(name)))
            yield batch


def _is_covered(arrow: pa.DataType, *, is_key: bool) -> bool:
    if pa.types.is_string(arrow):
        return is_key
    return not (pa.types.is_nested(arrow) or pa.types.is_boolean(arrow))


def _zone(array: pa.Array) -> list[Any] | None:
    has_nulls = array.null_count > 0
    if array.null_count == len(array):
        return [None, None, True]
    if pa.types.is_floating(array.type):
        values = array.drop_null().to_numpy()
        smallest = values.min().item()  # NaN if there is one; Arrow would ignore it
        return None if math.isnan(smallest) else [smallest, values.max().item(), has_nulls]
    extremes = pc.min_max(array)
    low, high = extremes["min"], extremes["max"]
    stored = _STORED_AS.get(str(array.type))
    if stored is not None:
        return [low.cast(stored).as_py(), high.cast(stored).as_py(), has_nulls]
    if pa.types.is_decimal(array.type):
        return [str(low.as_py()), str(high.as_py()), has_nulls]
    if pa.types.is_string(array.type):
        first, last = low.as_py().encode(), high.as_py().encode()
        # The cut is at a character, so that the stored value is text and still a lower bound.
        cut = first[:_STRING_BYTES].decode(errors="ignore")
        return [cut, last.decode() if len(last) <= _STRING_BYTES else None, has_nulls]
    return [low.as_py(), high.as_py(), has_nulls]


class Pruner:
    """The zone maps of one segment for the readers of one schema revision.

    Args:
        zones: as `ZoneMapBuilder` collected them.
        names: name in the segment -> name in the reader's schema.
        schema: the reader's columns.
        batches: the number of batches of the segment.
    """

    def __init__(self, zones: ZoneMap, names: dict[str, str], schema: pa.Schema, batches: int) -> None:
        self._zones = {names[stored]: per_batch for stored, per_batch in zones.items() if stored in names}
        self._schema = schema
        self._batches = batches
        self._bounds: dict[str, tuple[pa.Array, pa.Array, pa.BooleanArray]] = {}
        self._limits: dict[str, list[tuple[Any, Any, bool]]] = {}
        self._guaranteed: dict[tuple[str, ...], ds.FileSystemDataset] = {}

    def bounds(self, column: str) -> tuple[pa.Array, pa.Array, pa.BooleanArray]:
        """Returns smallest and largest value by batch, and whether there are NULLs; NULL where not known.

        Batches of NULLs alone have no bounds, and NULLs. A smallest text may be cut; a cut largest text is
        not known.
        """
        found = self._bounds.get(column)
        if found is None:
            zones = [zone or (None, None, None) for zone in self._zones.get(column, [None] * self._batches)]
            arrow = self._schema.field(column).type
            low, high = (_scalars([zone[i] for zone in zones], arrow) for i in (0, 1))
            found = self._bounds[column] = low, high, pa.array([zone[2] for zone in zones], pa.bool_())
        return found

    def limits(self, column: str) -> list[tuple[Any, Any, bool]]:
        """Returns what `bounds` returns as Python's values, by batch; a batch may have NULLs if not known."""
        found = self._limits.get(column)
        if found is None:
            low, high, has_nulls = (values.to_pylist() for values in self.bounds(column))
            nulls = [known is not False for known in has_nulls]
            found = self._limits[column] = list(zip(low, high, nulls, strict=True))
        return found

    def matching(self, predicate: pc.Expression) -> list[int]:
        """Returns the batches that may hold a matching row, ascending."""
        if may_name_nan(predicate):  # the simplifier compares NaN like a number
            return list(range(self._batches))
        named = columns_of(predicate, list(self._zones))
        fragments = self._fragments(tuple(self._zones if named is None else named))
        return sorted(int(fragment.path) for fragment in fragments.get_fragments(filter=predicate))

    def _fragments(self, columns: tuple[str, ...]) -> ds.FileSystemDataset:
        """Makes a fragment per batch with its guarantee, for Arrow's simplifier; no file is opened.

        The simplifier reads the whole guarantee of each batch, so each holds the columns of the filter alone.
        The guarantees of a few filters are kept.
        """
        found = self._guaranteed.get(columns)
        if found is None:
            file_format, filesystem = ds.IpcFileFormat(), fs.LocalFileSystem()
            fragments = [
                file_format.make_fragment(str(i), filesystem, partition_expression=guarantee)
                for i, guarantee in enumerate(self._guarantees(columns))
            ]
            found = ds.FileSystemDataset(fragments, self._schema, file_format, filesystem)
            kept = self._guaranteed if len(self._guaranteed) < _FILTERS_KEPT else {}
            self._guaranteed = {**kept, columns: found}  # as a whole: other threads read it
        return found

    def _guarantees(self, columns: tuple[str, ...]) -> list[pc.Expression]:
        """Returns what is known of some columns in each batch."""
        known = [pc.scalar(True)] * self._batches
        for name in columns:
            field = pc.field(name)
            for batch, (low, high, has_nulls) in enumerate(zip(*self.bounds(name), strict=True)):
                if not low.is_valid:
                    # Given "c is null", the simplifier would evaluate NULL AND false to NULL, and prune
                    # its NOT.
                    continue
                part = field >= low
                if high.is_valid:
                    part = part & (field <= high)
                known[batch] = known[batch] & (part | field.is_null() if has_nulls.as_py() else part)
        return known


def _scalars(values: list[Any], arrow: pa.DataType) -> pa.Array:
    """Converts stored values to a column's type."""
    stored = _STORED_AS.get(str(arrow), pa.string() if pa.types.is_decimal(arrow) else arrow)
    return pa.array(values, stored).cast(arrow)
