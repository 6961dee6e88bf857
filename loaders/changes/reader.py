"""Reads change streams: each line is a message, or the message's key, a tab and its value.

1. Lines without a value are tombstones of Kafka and passed over: the delete stands before them.
2. The format's dialect makes rows of the messages, with their operation and position.
3. Fields are looked up in the rows by name, case aside, and decoded by their declared types, else by the
   types of their columns.
4. An update whose old image has another key also deletes the old key, just before.
5. A cell with Debezium's mark for an unavailable value is absent, which a flexible partial update keeps.

The operation is the field of the delete sign, the position that of the hidden sequence. If the sequence
mirrors a column, the position is the value of that column where a row has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.changes.canal import canal_rows
from seqstore.loaders.changes.change_rows import ChangeRows, Dialect, Messages
from seqstore.loaders.changes.debezium import debezium_rows
from seqstore.loaders.changes.field_table import FieldTable, found_fields
from seqstore.loaders.changes.maxwell import maxwell_rows
from seqstore.loaders.changes.positions import check_sequence_type
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.json.fields import mask_of
from seqstore.loaders.json.line_blocks import BLOCK_BYTES, Block, cut_lines, place_of, read_blocks
from seqstore.loaders.source import BadRow, Place, SourceBatch, described_max, why_unreadable
from seqstore.store.schema.column import DELETE_SIGN, SEQUENCE_COL
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.types.cast import evaluate, try_cast
from seqstore.store.types.column_types import ColumnType

DIALECTS: Final[Mapping[str, Dialect]] = {
    "debezium_json": debezium_rows,
    "canal_json": canal_rows,
    "maxwell_json": maxwell_rows,
}
_STRING: Final = ColumnType("STRING")
NO_OBJECT: Final = "the message is no JSON object"
ONLY_TOMBSTONE: Final = (
    "the tombstone is the only trace of a delete and has no position; set delete.tombstone.handling.mode of "
    "the connector to rewrite"
)

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


class ChangeReader:
    """Reads messages; fields are text columns.

    Args:
        body: plain bytes.
        fields: names of the fields, the delete sign and a hidden sequence among them.
        options: of the headers.
        schema: of the table.
        table: its name, for messages.
    """

    def __init__(
        self,
        body: BinaryIO,
        fields: Sequence[str],
        options: StreamLoadOptions,
        schema: TableSchema,
        table: str,
    ) -> None:
        self._body = body
        self._fields = list(fields)
        self._options = options
        self._schema = schema
        self._table = table
        self._dialect = DIALECTS[options.format]
        self._keys = {column.name for column in schema.key_columns}
        self._lacks_deletes = False
        self._columns = {column.name.lower(): column for column in schema.columns}

    def batches(self) -> Iterator[SourceBatch]:
        """Reads to the end.

        Raises:
            InvalidInputError: a line is too long, a schema is none of Kafka Connect, or the table's sequence
                cannot hold the positions.
        """
        for block in read_blocks(self._body, b"\n", lambda: BLOCK_BYTES):
            parsed = [self._parse(block)]
            del block
            if len(parsed[0].rows) or parsed[0].bad_count or parsed[0].passed:
                yield parsed.pop()  # a local name would hold the batch until the next block

    def close(self) -> None:
        """Holds nothing but memory."""

    def _parse(self, block: Block) -> SourceBatch:
        lines, numbers = cut_lines(block.data, b"\n")
        texts = try_cast(lines, _STRING).values
        keys, values = split_keys(texts)
        bad: dict[int, str] = {}
        is_empty = mask_of(
            pc.is_in(pc.utf8_trim_whitespace(pc.fill_null(values, "")), pa.array(["", "null"]))
        )
        is_object = mask_of(
            pc.equal(evaluate(values, "CASE WHEN json_valid(c) THEN json_type(c) END"), "OBJECT")
        )
        wrong = ~is_object & (~is_empty | ~mask_of(texts.is_valid()))
        for row in np.flatnonzero(wrong).tolist():
            bad[row] = why_unreadable(texts[row].as_py() or "", NO_OBJECT)
        messages = np.flatnonzero(is_object)
        rows = pa.array(messages)
        found = self._dialect(
            Messages(values.take(rows), keys.take(rows), frozenset(self._columns)), self._options.changes
        )
        self._lacks_deletes |= found.lacks_deletes
        bad |= {int(messages[row]): reason for row, reason in found.bad.items()}
        tombstones = is_empty & ~wrong
        if self._lacks_deletes:
            bad |= dict.fromkeys(np.flatnonzero(tombstones).tolist(), ONLY_TOMBSTONE)
        found = replace(found, origins=messages[found.origins])
        table = self._with_hidden(found, self._table_of(found))
        return self._batch(table, bad, lines, numbers + block.line, block)

    def _table_of(self, rows: ChangeRows) -> FieldTable:
        names = [name for name in self._fields if name not in (DELETE_SIGN, SEQUENCE_COL)]
        types = {name: self._columns[name.lower()].type for name in names if name.lower() in self._columns}
        keys = [name for name in names if self._is_key(name)]
        return found_fields(rows, names, types, keys, self._options.changes.time_unit, self._mapped)

    @property
    def _mapped(self) -> str | None:
        """The field that the sequence mirrors, None without one."""
        mapped = self._schema.sequence_column
        return next((name for name in self._fields if mapped and name.lower() == mapped.lower()), None)

    def _is_key(self, name: str) -> bool:
        column = self._columns.get(name.lower())
        return column is not None and column.name in self._keys

    def _with_hidden(self, rows: ChangeRows, table: FieldTable) -> FieldTable:
        """Adds the operation and the position of each row."""
        columns = {**table.columns, DELETE_SIGN: pa.array(table.deleted.astype(np.int8)).cast(pa.string())}
        absent = dict(table.absent)
        bad = dict(table.bad)
        sequence = self._schema.sequence_type
        is_hidden = SEQUENCE_COL in self._fields
        target = SEQUENCE_COL if is_hidden else self._mapped
        if sequence is not None and target is not None:
            lacking = np.ones(len(table), np.bool_) if is_hidden else absent[target]
            if lacking.any():
                check_sequence_type(self._table, sequence, rows.kinds)
            columns[target] = pc.if_else(
                pa.array(lacking), table.positions, columns.get(target, table.positions)
            )
            absent[target] = np.zeros(len(table), np.bool_)
            for row in np.flatnonzero(~mask_of(columns[target].is_valid())).tolist():
                bad.setdefault(row, self._no_sequence(bool(lacking[row])))
        return replace(table, columns=columns, absent=absent, bad=bad)

    def _no_sequence(self, is_position: bool) -> str:
        if is_position:
            return (
                "the message has no position for the sequence of the table; of flattened messages the "
                "setting add.fields of the connector adds it"
            )
        return (
            f"the row has no value of {self._schema.sequence_column}, the sequence of the table; use a table "
            "with function_column.sequence_type, or let the source log whole old images"
        )

    def _batch(
        self, table: FieldTable, bad: dict[int, str], lines: pa.Array, numbers: Positions, block: Block
    ) -> SourceBatch:
        refused = self._refused(table)
        kept = np.ones(len(table), np.bool_)
        kept[list(refused)] = False
        rows = pa.array(np.flatnonzero(kept))
        origins = table.origins[kept]
        place = partial(place_of, lines, numbers)
        with_rows = set(table.origins.tolist())
        reasons = [(message, reason) for message, reason in bad.items() if message not in with_rows]
        reasons += [(int(table.origins[row]), reason) for row, reason in sorted(refused.items())]
        described = sorted(reasons, key=lambda each: each[0])[: described_max()]
        passed = len(lines) - len(with_rows | set(bad))

        def places(chosen: Sequence[int]) -> list[Place]:
            return [place(int(origins[row])) for row in chosen]

        return SourceBatch(
            pa.table([table.columns[name] for name in self._fields], names=self._fields).take(rows),
            places,
            len(reasons),
            [BadRow(place(message), reason) for message, reason in described],
            {name: pa.array(mask[kept]) for name, mask in table.absent.items() if mask.any()},
            len(block.data),
            passed,
        )

    def _refused(self, table: FieldTable) -> dict[int, str]:
        """Returns the rows that cannot be loaded, with their reasons."""
        refused = dict(table.bad)
        for name in self._fields:
            if self._is_key(name) and not self._columns[name.lower()].can_be_omitted:
                for row in np.flatnonzero(table.absent[name]).tolist():
                    refused.setdefault(row, f"the row has no field {name!r}, a key column")
        if not self._options.is_flexible:
            for name, mask in table.unavailable.items():
                for row in np.flatnonzero(mask).tolist():
                    refused.setdefault(
                        row,
                        f"the value of {name!r} is not in the message (__debezium_unavailable_value); load "
                        "with unique_key_update_mode: UPDATE_FLEXIBLE_COLUMNS to keep the stored one",
                    )
        return refused


def split_keys(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns the key of each message, NULL without one, and its value."""
    has_tab = mask_of(pc.match_substring(texts, "\t"))
    none = pa.nulls(len(texts), pa.string())
    if not has_tab.any():
        return none, texts
    parts = pc.extract_regex(texts, r"(?s)^(?P<key>[^\t]*)\t(?P<value>.*)$")
    key, value = pc.struct_field(parts, "key"), pc.struct_field(parts, "value")
    is_json = mask_of(evaluate(key, "json_valid(c)").cast(pa.bool_()))
    is_cut = is_json | mask_of(pc.equal(key, ""))
    return pc.if_else(pa.array(is_json), key, none), pc.if_else(pa.array(is_cut), value, texts)
