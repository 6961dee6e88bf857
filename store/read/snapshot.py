"""A version of a table held open for reading. Later versions do not change its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.catalog.leases import Lease
from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.condition import Condition
from seqstore.store.read.aggregate import count_rows, extreme, has_bounds
from seqstore.store.read.first_rows import KeyOrder, first_rows
from seqstore.store.read.live_segment import Projection
from seqstore.store.read.lookup import lookup
from seqstore.store.read.marked_scan import MarkedScan, is_in_place
from seqstore.store.read.numbered_scan import HeldRows, RowChanges, added_rows, changes_since
from seqstore.store.read.scan import ScanMetrics, scan_batches, scan_metrics, unpruned
from seqstore.store.read.table_state import StateIdentity, TableState
from seqstore.store.read.tablets import Tablets, of_tablets, tablet_ids
from seqstore.store.runtime.internal import internal
from seqstore.store.schema.table_schema import TableSchema

_LARGEINT_DIGITS: Final = 39


class Snapshot:
    """Reads one version; made by `Table.snapshot`.

    Attributes:
        schema: the schema of that version.
        is_published: its rows are those of the version; not of some tablets, and without a transaction's own.
    """

    @internal
    def __init__(self, state: TableState, lease: Lease | None = None, *, is_published: bool = True) -> None:
        self._state = state
        self.is_published = is_published
        self.schema: TableSchema = state.schema
        self._lease = lease  # readers of rows hold it too: the version stays until the last of them ends

    @property
    def version(self) -> int:
        """Its table version."""
        return self._state.version

    @property
    @internal
    def identity(self) -> StateIdentity:
        """What tells these rows from all others in this process."""
        return self._state.identity

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        *,
        conditions: Sequence[Condition] = (),
        hidden: bool = False,
        deleted: bool = False,
    ) -> pa.RecordBatchReader:
        """Returns rows as record batches, in no promised order.

        Args:
            columns: names in any case, hidden ones in either spelling; None means all visible columns.
            filter: a `pyarrow.compute` expression over visible and hidden columns; zone maps prune by it.
            conditions: equivalent to `filter`, if it consists of conditions; that is faster.
            hidden: with `columns=None`, add the hidden columns in the order of T4.
            deleted: return tombstones too (T8).

        Raises:
            InvalidInputError: unknown column, or a filter that does not fit the columns' types.
            CorruptionError: stored bytes are wrong (raised while reading).
        """
        projection = Projection.of(self.schema, columns, hidden=hidden)
        batches = unpruned(self._state, filter)
        rows = scan_batches(batches, projection, filter, conditions, deleted=deleted)
        return pa.RecordBatchReader.from_batches(rows.schema, _held(rows, self._lease))

    @internal
    def marked(
        self,
        columns: Sequence[str],
        conditions: Sequence[Condition] = (),
        filter: pc.Expression | None = None,
        *,
        deleted: bool = False,
        grouped: Collection[str] = (),
    ) -> MarkedScan:
        """Returns batches in place with a mark on the rows that count and satisfy all conditions.

        `filter` only rules out whole batches; texts of `grouped` columns may be delivered as codes.

        Raises:
            InvalidInputError: unknown column.
        """
        projection = Projection.of(self.schema, columns, hidden=False)
        return MarkedScan(
            unpruned(self._state, filter), projection, conditions, deleted=deleted, grouped=grouped
        )

    @internal
    def changes_since(self, held: HeldRows) -> RowChanges:
        """Returns what comes and goes for a holder of the rows of another version."""
        return changes_since(held, self._state)

    @internal
    def added(self, changes: RowChanges, columns: Sequence[str]) -> pa.RecordBatchReader:
        """Reads the rows that come by some changes, with their numbers in the last column.

        Raises:
            InvalidInputError: unknown column.
        """
        rows = added_rows(changes, Projection.of(self.schema, columns, hidden=False))
        return pa.RecordBatchReader.from_batches(rows.schema, _held(rows, self._lease))

    @internal
    def first(
        self,
        columns: Sequence[str],
        order: KeyOrder,
        conditions: Sequence[Condition],
        rows: range,
        *,
        deleted: bool = False,
    ) -> pa.Table:
        """Returns rows of an order, those with the numbers in `rows`, among rows that satisfy all conditions.

        Raises:
            InvalidInputError: unknown column.
        """
        projection = Projection.of(self.schema, columns, hidden=False)
        return first_rows(self._state, projection, order, conditions, rows, deleted=deleted)

    @internal
    def is_in_place(self, columns: Sequence[str], grouped: Collection[str]) -> bool:
        """Returns whether `marked` delivers no texts, other than as codes; `grouped` is in lower case."""
        batches = [(live, 0) for live in self._state.segments.values() if live.deletes.live_count]
        return is_in_place(batches, self.schema, columns, grouped)

    def metrics(self, filter: pc.Expression | None = None) -> ScanMetrics:
        """Predicts the amount of data that a scan with a filter will read."""
        return scan_metrics(self._state, filter)

    def get(
        self, keys: Any, columns: Sequence[str] | None = None, *, hidden: bool = False, deleted: bool = False
    ) -> pa.Table:
        """Returns the rows of some keys.

        Args:
            keys: an Arrow table or batch, or an object with the Arrow PyCapsule interface, holding the key
                columns; n rows, duplicates allowed.

        Returns:
            At most n rows, in the order of `keys`; keys without a live row are omitted.

        Raises:
            InvalidInputError: a key column is missing or cannot be cast.
        """
        rows = as_table(keys)
        return lookup(self._state, rows, Projection.of(self.schema, columns, hidden=hidden), deleted=deleted)

    def count(self, conditions: Sequence[Condition] = (), *, deleted: bool = False) -> int:
        """Counts the rows of a scan, or those of them that satisfy all of some conditions."""
        return count_rows(self._state, conditions, deleted=deleted)

    def has_bounds(self, column: str) -> bool:
        """Returns whether zone maps know the smallest and largest value of a column for each batch."""
        return has_bounds(self._state, column)

    def extreme(
        self, column: str, conditions: Sequence[Condition] = (), *, largest: bool, deleted: bool = False
    ) -> pa.Scalar:
        """Returns the smallest or largest value of a column that has bounds, among rows that satisfy all of
        some conditions.

        The result is NULL without such rows.
        """
        return extreme(self._state, column, conditions, largest=largest, deleted=deleted)

    @internal
    def tablet_ids(self) -> list[int]:
        """Returns the tablets that together have the rows of this version (read.tablets)."""
        return tablet_ids(self._state)

    @internal
    def of_tablets(self, tablets: Tablets) -> Snapshot:
        """Returns this version with only the rows of some tablets; holds the version as this one does.

        Raises:
            NotFoundError: the version has no such tablet.
        """
        return Snapshot(of_tablets(self._state, tablets), self._lease, is_published=False)

    @internal
    def held(self) -> Snapshot:
        """Returns the same rows, which stay when this one is closed."""
        return Snapshot(self._state, self._lease, is_published=self.is_published)

    def close(self) -> None:
        """Releases the version; open readers of the snapshot keep it until they are read or dropped."""
        self._lease = None

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _held(rows: pa.RecordBatchReader, _lease: Lease | None) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a reader and holds the version until the last of them."""
    yield from rows


def as_table(data: Any) -> pa.Table:
    """Returns rows of a caller as one Arrow table."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        if isinstance(data, Mapping):
            return pa.table({name: _column(values) for name, values in data.items()})
        return pa.table(data)
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise InvalidInputError(
            f"keys come as an Arrow table or batch, a dictionary of columns, or an object with the Arrow "
            f"PyCapsule interface; found {type(data).__name__}",
            kind="bad_data",
        ) from error


def _column(values: Any) -> Any:
    """Converts a column of a dictionary; Arrow infers no type for integers beyond 64 bits, such as LARGEINT
    keys.
    """
    try:
        return pa.array(values) if isinstance(values, list) else values
    except OverflowError:
        return pa.array(values, pa.decimal256(_LARGEINT_DIGITS, 0))
