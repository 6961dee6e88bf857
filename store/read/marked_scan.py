"""Batches in place with a mark on the rows that count, for DuckDB, which filters in any case.

A copy of the counting rows of every batch costs more than all rows with one bit each, unless few are wanted:

1. Batches that zone maps rule out are skipped first.
2. Columns are delivered as they are stored, hidden rows included. Texts by which a query groups are delivered
   as codes, if each value occurs in many rows.
3. One more column marks the rows that count and satisfy the scan's conditions.
4. If conditions leave few rows of a batch, those rows are copied instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import pyarrow as pa

from seqstore.store.expressions.condition import Condition
from seqstore.store.read.live_segment import (
    LiveSegment,
    Projection,
    chosen_rows,
    column_source,
    project,
    tested_columns,
)
from seqstore.store.read.read_ahead import read_ahead
from seqstore.store.read.row_filter import rows_where
from seqstore.store.read.scan import FEW_ROWS, LiveBatch
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.dictionaries import ENCODED, encoded, is_encoded, is_worth_it, widened

# If at most one row in so many is wanted, a marked scan copies the rows: numbers and codes sooner than texts.
_COPIED_FROM: Final = 4
_NUMBERS_COPIED_FROM: Final = 2
_CODE_BYTES: Final = ENCODED.index_type.bit_width // 8
LIVE: Final = "*live*"  # no name that a column may have


class MarkedScan:
    """Batches in place, with a column that marks the rows that count and satisfy some conditions.

    Args:
        grouped: columns by which the reader groups. Texts among them are delivered as codes, if that pays.

    Attributes:
        schema: of the batches: the projection, and `LIVE` where some row may not count.
    """

    def __init__(
        self,
        batches: Sequence[LiveBatch],
        projection: Projection,
        conditions: Sequence[Condition],
        *,
        deleted: bool,
        grouped: Collection[str] = (),
    ) -> None:
        self._batches = batches
        self._projection = projection
        self._conditions = conditions
        self._tested = tested_columns(projection.schema, conditions)
        self._deleted = deleted
        self._owned: list[int] = []  # threads append to it
        self.is_marked = bool(conditions) or any(
            live.deletes.hidden or (live.segment.meta.tombstones and not deleted) for live, _ in batches
        )
        self._encoded = [
            name
            for name in dict.fromkeys(grouped)
            if name in projection.names and _is_worth_encoding(batches, projection.schema, name)
        ]
        kinds = dict.fromkeys(self._encoded, ENCODED)
        self.schema = pa.schema([f.with_type(kinds.get(f.name, f.type)) for f in projection.arrow])
        self._plain = projection
        if self._encoded:
            plain = tuple([name for name in projection.names if name not in kinds])
            self._plain = Projection(projection.schema, plain)
        numbers = all(_is_number(field.type) for field in self.schema)
        self._copied_from = _NUMBERS_COPIED_FROM if numbers else _COPIED_FROM
        if self.is_marked:
            self.schema = self.schema.append(pa.field(LIVE, pa.bool_()))

    def open(self) -> pa.RecordBatchReader:
        """Reads from the start; may be called repeatedly."""
        self._owned = []
        rows = read_ahead(self._batches, self._read, self._takes_work)
        return pa.RecordBatchReader.from_batches(self.schema, rows)

    def owned_bytes(self) -> int:
        """Returns the memory of the batches read so far, without what they share with stored batches."""
        return sum(self._owned)

    def _takes_work(self, asked: LiveBatch) -> bool:
        live, number = asked
        if live.segment.meta.rows <= FEW_ROWS or live.batch_rows(number) <= FEW_ROWS:
            return False
        if self._conditions or not live.segment.is_at_hand(number):
            return True
        sources = [column_source(self._projection.schema, live.segment, name) for name in self._encoded]
        return not all(source is None or is_encoded(live.segment, number, source) for source in sources)

    def _columns(self, live: LiveSegment, number: int) -> pa.RecordBatch:
        """Returns a batch as it is stored, hidden rows included."""
        if not self._encoded:
            return project(live, number, self._projection)
        found = {name: _encoded_column(self._projection.schema, live, number, name) for name in self._encoded}
        if self._plain.names:
            plain = project(live, number, self._plain)
            found |= dict(zip(self._plain.names, plain.columns, strict=True))
        names = self._projection.names
        return pa.RecordBatch.from_arrays([found[name] for name in names], names=list(names))

    def _read(self, asked: LiveBatch) -> pa.RecordBatch:
        batch, is_copy = self._marked(*asked)
        if is_copy or not asked[0].segment.is_at_hand(asked[1]):
            self._owned.append(batch.nbytes)
        elif self._encoded:
            self._owned.append(batch.num_rows * _CODE_BYTES * len(self._encoded))
        return batch

    def _marked(self, live: LiveSegment, number: int) -> tuple[pa.RecordBatch, bool]:
        """Returns a batch with its marks, and whether its rows are copies."""
        batch, is_copy = self._columns(live, number), False
        if not self.is_marked:
            return self._of_one_type(batch.columns) if self._encoded else batch, is_copy
        mask = chosen_rows(live, number, self._tested, self._conditions, deleted=self._deleted)
        if mask is not None and self._conditions and mask.true_count * self._copied_from <= batch.num_rows:
            batch, mask, is_copy = rows_where(batch, mask), None, True
        marks = pa.repeat(pa.scalar(True), batch.num_rows) if mask is None else mask
        return self._of_one_type([*batch.columns, marks]), is_copy

    def _of_one_type(self, columns: list[pa.Array]) -> pa.RecordBatch:
        """Widens codes to the scan's type; until here they are as narrow as their batch allows, for cheaper
        copies.
        """
        if self._encoded:
            columns = [widened(c) if isinstance(c, pa.DictionaryArray) else c for c in columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def is_in_place(
    batches: Iterable[LiveBatch], schema: TableSchema, columns: Iterable[str], grouped: Collection[str]
) -> bool:
    """Returns whether DuckDB reads columns as `MarkedScan` delivers them: numbers, or texts as codes.

    Args:
        grouped: columns by which the reader groups, in lower case.
    """
    return all(
        _is_number(schema.fields[name].type)
        or (name.lower() in grouped and _is_worth_encoding(batches, schema, name))
        for name in columns
    )


def _is_worth_encoding(batches: Iterable[LiveBatch], schema: TableSchema, name: str) -> bool:
    """Returns whether a column holds texts whose codes pay off, judged by the first larger batch."""
    if schema.fields[name].type != pa.string():
        return False
    for live, number in batches:
        if live.segment.meta.rows > FEW_ROWS and live.batch_rows(number) > FEW_ROWS:
            return is_worth_it(_encoded_column(schema, live, number, name))
    return False


def _encoded_column(schema: TableSchema, live: LiveSegment, number: int, name: str) -> pa.DictionaryArray:
    source = column_source(schema, live.segment, name)
    if source is not None:
        return encoded(live.segment, number, source)
    return project(live, number, Projection(schema, (name,))).column(0).dictionary_encode()


def _is_number(kind: pa.DataType) -> bool:
    """Returns whether values have a fixed width and DuckDB reads them in place; codes of texts do too."""
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal128(kind) or pa.types.is_dictionary(kind))
