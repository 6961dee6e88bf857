"""The first rows of a version by its key: what `ORDER BY key LIMIT n` returns, without a scan.

A large segment is stored in the order of its keys, so a version is a set of sorted batches that overlap:

1. Zone maps rule out batches, and rank the others by the first value that they may hold.
2. In a sorted batch, bisection finds the rows that the conditions on the key's leading columns allow. They
   are tested from its near end, a few at a time, until there are enough.
3. Small segments are stored by key code. Their order by key is computed once and kept with the segment. A
   batch of a large segment that is not sorted, as OPTIMIZE .. ZORDER BY leaves it, is tested whole.
4. As soon as there are enough rows, batches whose first possible value lies behind the last of them end the
   search. The found rows are merged, and only the first of them are read.

The order of a batch is verified at its first use and not assumed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.expressions.condition import Condition
from seqstore.store.read.live_segment import (
    LiveSegment,
    Projection,
    chosen_rows,
    project,
    tested_columns,
)
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime.arrow_versions import sort_order
from seqstore.store.runtime.cancellation import check
from seqstore.store.runtime.workers import THREADS, pool
from seqstore.store.schema.column import DELETE_SIGN
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.key_codes import fixed_values
from seqstore.store.segment.key_index import Matches, Positions, Rows
from seqstore.store.segment.segment import KeyRows

FIRST_ROWS_MAX: Final = 10_000  # more rows are sorted sooner by a scan
_KEPT_ROWS: Final = 2**18  # a segment of so many rows keeps its order in memory
_TESTED_ROWS: Final = 64
_ALONE: Final = (
    32  # so many batches are tested one by one; if they did not suffice, conditions leave few rows
)
_TOGETHER: Final = 2 * THREADS
_MORE_ROWS: Final = 4  # times as many rows are tested each time that too few of them count
_RANGES: Final = frozenset(["<", "<=", ">", ">=", "is null", "is not null"])


@dataclass(frozen=True)
class KeyOrder:
    """An order of rows by some columns of the key, all ascending with NULL first, or the reverse.

    Attributes:
        columns: neighbours in the key. The key's columns before them have one value each, by conditions.
    """

    columns: tuple[str, ...]
    is_descending: bool = False


def key_order(
    schema: TableSchema, columns: Sequence[tuple[str, bool]], conditions: Sequence[Condition]
) -> KeyOrder | None:
    """Returns the order by some columns, None if rows are not stored in it under these conditions.

    Args:
        columns: each with whether it descends.
    """
    fixed = {condition.column for condition in conditions if condition.operator == "="}
    left = {name: descends for name, descends in reversed(columns) if name not in fixed}
    names = list(dict.fromkeys(name for name, _ in columns if name in left))
    key = [name for name in schema.declared_key if name not in fixed]
    if schema.cluster_columns or names != key[: len(names)] or len(set(left.values())) > 1:
        return None
    if any(pa.types.is_floating(field.type) for field in schema.arrow_of(schema.declared_key)):
        return None
    if not names:  # one value each: any order will do, and the key's is at hand
        return KeyOrder(schema.declared_key)
    first, last = (schema.declared_key.index(names[i]) for i in (0, -1))
    return KeyOrder(schema.declared_key[first : last + 1], left[names[0]])


def first_rows(
    state: TableState,
    projection: Projection,
    order: KeyOrder,
    conditions: Sequence[Condition],
    rows: range,
    *,
    deleted: bool = False,
) -> pa.Table:
    """Returns rows of an order, those with the numbers in `rows`, among rows that satisfy all conditions.

    Args:
        deleted: tombstones that are their key's winner count too (T8).
    """
    search = _Search(state, order, conditions, rows.stop, deleted)
    found = search.run()
    slots, positions = _places(found)
    chosen = search.ordered(found)[rows.start :]
    matches = Matches(np.arange(len(chosen)), slots[chosen], positions[chosen], None)
    return state.rows(matches, projection)


class _Found(NamedTuple):
    """Rows in an order: their segments' slots, their positions in these, and their values."""

    slots: npt.NDArray[np.uint32]
    positions: Positions
    values: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.positions)


def _places(found: Sequence[_Found]) -> tuple[npt.NDArray[np.uint32], Positions]:
    """Returns the slots and positions of all rows found."""
    nothing = np.empty(0, dtype=np.uint32)
    slots = np.concatenate([nothing, *(each.slots for each in found)])
    return slots, np.concatenate([nothing, *(each.positions for each in found)])


class _Ranked(NamedTuple):
    """A batch with the first value of the order's first column that it may hold."""

    first: tuple[Any, ...]
    live: LiveSegment
    number: int


class _Search:
    def __init__(
        self,
        state: TableState,
        order: KeyOrder,
        conditions: Sequence[Condition],
        wanted: int,
        deleted: bool,
    ) -> None:
        self.state = state
        self.schema = state.schema
        self.order = order
        self.wanted = wanted
        self.conditions = conditions
        self._deleted = deleted
        self._key = Projection(self.schema, self.schema.declared_key)
        self._fixed, self._ranges = _key_bounds(self.schema, conditions)
        used = [*self._fixed, *self._ranges]
        self._rest = [each for each in conditions if not any(each is known for known in used)]

    def run(self) -> list[_Found]:
        """Returns the first rows of some batches; the wanted rows are among them."""
        found: list[_Found] = []
        last: tuple[Any, ...] | None = None
        since = 0  # rows found since the last of the wanted rows was determined
        ranked = sorted(self._ranked(), key=lambda each: each.first, reverse=self.order.is_descending)
        for few in _growing(ranked):
            check()
            if last is not None and self._is_behind(few[0].first, last):
                break
            for rows in self._first_of_each(few):
                found.append(rows)
                since += len(rows)
                if len(rows) >= self.wanted:  # no wanted row is behind its last one
                    end = _sortable(rows.values.column(0)[-1].as_py())
                    last = end if last is None or self._is_behind(last, end) else last
                elif since >= self.wanted:
                    found, since = self._merged(found), 0
                    last = _sortable(found[-1].values.column(0)[-1].as_py())
        return found

    def _first_of_each(self, ranked: Sequence[_Ranked]) -> Iterator[_Found]:
        run = map if len(ranked) == 1 else pool().map
        for rows in run(self._first_of, ranked):
            if len(rows):
                yield rows

    def ordered(self, found: Sequence[_Found]) -> Rows:
        """Returns the numbers of the wanted rows, in their order, among all rows found."""
        if not found:
            return np.empty(0, dtype=np.intp)
        values = pa.Table.from_batches([each.values for each in found])
        order = sort_order(values, self.order.columns, is_descending=self.order.is_descending)
        return np.asarray(order)[: self.wanted].astype(np.intp)

    def _merged(self, found: Sequence[_Found]) -> list[_Found]:
        """Returns the wanted rows alone, in their order."""
        order = self.ordered(found)
        values = pa.Table.from_batches([each.values for each in found]).take(pa.array(order))
        slots, positions = _places(found)
        rows = values.combine_chunks().to_batches()[0]
        return [_Found(slots[order], positions[order], rows)]

    def _is_behind(self, first: tuple[Any, ...], last: tuple[Any, ...]) -> bool:
        return first < last if self.order.is_descending else first > last

    def _ranked(self) -> Iterable[_Ranked]:
        """Yields the batches that may hold a row, with their bounds."""
        leading, place = self._key.names[0], int(self.order.is_descending)
        ordered = self.order.columns[0]
        bounds = [each for each in (*self._fixed, *self._ranges) if each.column == leading]
        for live in self.state.segments.values():
            if not live.deletes.live_count:
                continue
            zones = live.segment.pruner(self.schema)
            limits = zones.limits(ordered)
            kept = limits if ordered == leading else zones.limits(leading)
            for number in range(live.segment.batches):
                if all(_may_hold(each, *kept[number]) for each in bounds):
                    yield _Ranked(_first_value(*limits[number])[place], live, number)

    def _first_of(self, ranked: _Ranked) -> _Found:
        """Returns the first rows of a batch, at most as many as are wanted."""
        _, live, number = ranked
        keys = project(live, number, self._key)
        order = _order_within(live, number, keys, self.schema)
        if isinstance(order, bool):
            positions = self._first_unsorted(live, number, keys)
        else:
            batch = _SortedBatch(keys, order)
            low, high = self._range_of(batch)
            positions = self._walked(live, number, batch, low, high)
        values = [keys.column(name).take(pa.array(positions)) for name in self.order.columns]
        start = np.uint32(number * live.segment.meta.batch_rows)
        rows = pa.RecordBatch.from_arrays(values, names=list(self.order.columns))
        return _Found(np.full(len(positions), live.slot, np.uint32), positions + start, rows)

    def _range_of(self, batch: _SortedBatch) -> tuple[int, int]:
        """Returns the range of places in a sorted batch that the conditions on the key's columns allow."""
        low, high = 0, len(batch)
        for condition in self._fixed:
            value = condition.values[0].as_py()
            low, high = (
                batch.first(condition.column, test(value), low, high) for test in (_reaches, _exceeds)
            )
        for condition in self._ranges:
            low, high = batch.within(condition, low, high)
        return low, high

    def _walked(self, live: LiveSegment, number: int, batch: _SortedBatch, low: int, high: int) -> Positions:
        """Tests the rows of a range from its near end; returns the positions of those that are wanted."""
        found: list[Positions] = [np.empty(0, dtype=np.uint32)]
        left, step = self.wanted, max(_TESTED_ROWS, 2 * self.wanted)
        test = _RowTest(live, number, self.schema, self._rest, deleted=self._deleted)
        while low < high and left > 0:
            if self.order.is_descending:
                counting = test.counting(batch, max(low, high - step), high)[::-1][:left]
                high -= step
            else:
                counting = test.counting(batch, low, min(high, low + step))[:left]
                low += step
            found.append(counting)
            left -= len(counting)
            step *= _MORE_ROWS
        return np.concatenate(found)

    def _first_unsorted(self, live: LiveSegment, number: int, keys: pa.RecordBatch) -> Positions:
        tested = tested_columns(self.schema, self.conditions)
        mask = chosen_rows(live, number, tested, self.conditions, deleted=self._deleted)
        chosen = np.arange(keys.num_rows) if mask is None else np.flatnonzero(np.asarray(mask))
        values = pa.Table.from_batches([keys.select(list(self.order.columns)).take(pa.array(chosen))])
        order = sort_order(values, self.order.columns, is_descending=self.order.is_descending)
        first: Positions = chosen[np.asarray(order)[: self.wanted]].astype(np.uint32)
        return first


class _RowTest:
    """Tests whether rows of one batch count and satisfy the conditions that bisection did not decide."""

    def __init__(
        self,
        live: LiveSegment,
        number: int,
        schema: TableSchema,
        conditions: Sequence[Condition],
        *,
        deleted: bool,
    ) -> None:
        self._live = live
        self._number = number
        self._schema = schema
        self._conditions = conditions
        self._start = number * live.segment.meta.batch_rows
        self._has_signs = bool(live.segment.meta.tombstones) and not deleted

    @cached_property
    def _values(self) -> pa.RecordBatch:
        names = tuple(dict.fromkeys([condition.column for condition in self._conditions]))
        return project(self._live, self._number, Projection(self._schema, names))

    @cached_property
    def _signs(self) -> pa.Array:
        return self._live.segment.batch(self._number, [DELETE_SIGN]).column(0)

    def counting(self, batch: _SortedBatch, low: int, high: int) -> Positions:
        """Returns the rows of some places that count and satisfy the conditions, in the order of places."""
        if batch.order is None:
            mask = self._mask(low, high - low)
            if mask is None:
                return np.arange(low, high, dtype=np.uint32)
            return (np.flatnonzero(_bits(mask)) + low).astype(np.uint32)
        positions = batch.order[low:high]
        if self._live.deletes.hidden:
            positions = positions[self._live.deletes.is_live(positions + np.uint32(self._start))]
        if self._has_signs:
            positions = positions[np.asarray(self._signs.take(pa.array(positions))) == 0]
        for condition in self._conditions:
            holds = condition.holds(self._values.column(condition.column).take(pa.array(positions)))
            positions = positions[_bits(holds)]
        return positions

    def _mask(self, first: int, rows: int) -> pa.BooleanArray | None:
        """Returns which of some neighbouring rows count and satisfy the conditions, None when all do."""
        mask = self._live.deletes.live_mask(self._start + first, rows)
        if self._has_signs:
            alive = pc.equal(self._signs.slice(first, rows), 0)
            mask = alive if mask is None else pc.and_(mask, alive)
        for condition in self._conditions:
            holds = condition.holds(self._values.column(condition.column).slice(first, rows))
            mask = holds if mask is None else pc.and_(mask, holds)
        return mask


def _bits(mask: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """Returns a mask as NumPy's booleans; NULL is false."""
    found: npt.NDArray[np.bool_] = (mask.fill_null(False) if mask.null_count else mask).to_numpy(
        zero_copy_only=False
    )
    return found


class _SortedBatch:
    """The key columns of a batch in key order; `order` has the row of each place, None for the place."""

    def __init__(self, keys: pa.RecordBatch, order: Positions | None) -> None:
        self._keys = keys
        self.order = order

    def __len__(self) -> int:
        return int(self._keys.num_rows)

    def first(self, column: str, test: Callable[[Any], bool], low: int, high: int) -> int:
        """Returns the first place of a range whose value passes a test, as all later ones do."""
        values, order = self._keys.column(column), self.order

        def passes(place: int) -> bool:
            return test(values[place if order is None else int(order[place])].as_py())

        return low + bisect_left(range(low, high), True, key=passes)

    def within(self, condition: Condition, low: int, high: int) -> tuple[int, int]:
        """Returns the part of a range that satisfies a condition on the column that orders the range."""
        name, sign = condition.column, condition.operator
        if self._keys.column(name).null_count:
            valid = self.first(name, _is_valid, low, high)
            if sign == "is null":
                return low, valid
            low = valid
        elif sign == "is null":
            return low, low
        if sign == "is not null":
            return low, high
        value = condition.values[0].as_py()
        place = self.first(name, (_reaches if sign in ("<", ">=") else _exceeds)(value), low, high)
        return (place, high) if sign in (">", ">=") else (low, place)


def _is_valid(value: Any) -> bool:
    return value is not None


def _reaches(bound: Any) -> Callable[[Any], bool]:
    return lambda value: value is not None and value >= bound


def _exceeds(bound: Any) -> Callable[[Any], bool]:
    return lambda value: value is not None and value > bound


def _key_bounds(
    schema: TableSchema, conditions: Sequence[Condition]
) -> tuple[list[Condition], list[Condition]]:
    """Returns one equality for each leading column of the key that has one, and the ranges of the next."""
    fixed: list[Condition] = []
    for name in schema.declared_key:
        own = [condition for condition in conditions if condition.column == name]
        equal = next((condition for condition in own if condition.operator == "="), None)
        if equal is None:
            return fixed, [condition for condition in own if condition.operator in _RANGES]
        fixed.append(equal)
    return fixed, []


def _may_hold(condition: Condition, low: Any, high: Any, has_nulls: bool) -> bool:
    """Returns whether a batch with these bounds, None for one that is not known, may satisfy a condition."""
    sign = condition.operator
    if sign == "is null":
        return has_nulls
    if sign == "is not null":
        return True
    value = condition.values[0].as_py()
    if low is not None and (value < low or (sign == "<" and value == low)):
        return sign not in ("=", "<", "<=")
    if high is not None and (value > high or (sign == ">" and value == high)):
        return sign not in ("=", ">", ">=")
    return True


def _first_value(low: Any, high: Any, has_nulls: bool) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Returns bounds of a batch that sort: below every value, and above every one, where not known."""
    return _sortable(None if has_nulls else low), (2,) if high is None else (1, high)


def _sortable(value: Any) -> tuple[Any, ...]:
    return (0,) if value is None else (1, value)


def _growing(ranked: Sequence[_Ranked]) -> Iterator[Sequence[_Ranked]]:
    """Yields one batch at a time, and after many of them several, which threads then share."""
    for batch in ranked[:_ALONE]:
        yield [batch]
    for start in range(_ALONE, len(ranked), _TOGETHER):
        yield ranked[start : start + _TOGETHER]


def _order_within(live: LiveSegment, number: int, keys: pa.RecordBatch, schema: TableSchema) -> KeyRows:
    """Returns the rows of a batch in key order, None when they are stored in it, False when not known."""
    known = live.segment.key_orders
    found = known.get((schema.revision, number))
    if found is None and (schema.revision, number) not in known:
        found = _computed_order(keys, live.segment.rows)
        known[schema.revision, number] = found
    return found


def _computed_order(keys: pa.RecordBatch, segment_rows: int) -> KeyRows:
    if _is_sorted(keys.columns):
        return None
    if segment_rows > _KEPT_ROWS:
        return False
    if keys.num_columns == 1 and pa.types.is_integer(keys.column(0).type):
        return np.argsort(fixed_values(keys.column(0))).astype(np.uint32)
    names = [str(i) for i in range(keys.num_columns)]
    order = sort_order(pa.table(keys.columns, names=names), names)
    return np.asarray(order).astype(np.uint32)


def _is_sorted(columns: Sequence[pa.Array]) -> bool:
    """Returns whether rows ascend by some columns, NULL first."""
    ties: Any = None
    for column in columns:
        before, after = column[:-1], column[1:]
        if not column.null_count:
            falls, same = pc.greater(before, after), pc.equal(before, after)
        else:
            falls = pc.or_(
                pc.greater(before, after).fill_null(False), pc.and_(before.is_valid(), after.is_null())
            )
            same = pc.or_(
                pc.equal(before, after).fill_null(False), pc.and_(before.is_null(), after.is_null())
            )
        if (falls if ties is None else pc.and_(ties, falls)).true_count:
            return False
        ties = same if ties is None else pc.and_(ties, same)
        if not ties.true_count:
            break
    return True
