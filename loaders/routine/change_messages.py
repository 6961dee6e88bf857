"""Messages of change streams as bodies: a line each, of many tables grouped by the table they name (R3).

A line is the message's key, a tab and its value; some deletes have a key alone. Debezium names the table in
`source`, and in flattened rows in `__table` or `__source_table` (setting `add.fields`). Canal and
Maxwell name it in `table`. Messages that are neither rows nor faults belong to no table and are passed over.
Bad messages that name a table have a body of their own, so that they can be kept beside that table (DL3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.changes.change_rows import Messages
from seqstore.loaders.changes.reader import DIALECTS, NO_OBJECT, ONLY_TOMBSTONE, split_keys
from seqstore.loaders.headers import ChangeOptions
from seqstore.loaders.json.fields import extract, mask_of
from seqstore.loaders.json.line_blocks import BLOCK_BYTES, cut_lines, read_blocks
from seqstore.loaders.routine.messages import lines_of
from seqstore.loaders.routine.source import Body
from seqstore.loaders.source import BadRow, Place, described_max, shown, why_unreadable
from seqstore.store.types.cast import evaluate, try_cast
from seqstore.store.types.column_types import ColumnType

_NAMELESS: Final = (
    "the message names no table; of flattened messages the setting add.fields of the connector adds it"
)
_STRING: Final = ColumnType("STRING")
_TABLES: Final = {
    "debezium_json": [
        "$.payload.source.table",
        "$.payload.source.collection",
        "$.source.table",
        "$.source.collection",
        '$.payload."__source_table"',
        '$.payload."__table"',
        '$."__source_table"',
        '$."__table"',
    ],
    "canal_json": ["$.table"],
    "maxwell_json": ["$.table"],
}


def change_bodies(lines: pa.Array, file_format: str, *, is_multi: bool) -> Iterator[Body]:
    """Yields the bodies of messages that are lines.

    Args:
        is_multi: the messages name their tables.
    """
    if not is_multi:
        yield _body("", lines)
        return
    keys, values = split_keys(try_cast(lines.cast(pa.binary()), _STRING).values)
    kinds = evaluate(values, "CASE WHEN json_valid(c) THEN json_type(c) END")
    objects = np.flatnonzero(mask_of(pc.equal(kinds, "OBJECT")))
    rows = pa.array(objects)
    messages = Messages(values.take(rows), keys.take(rows), frozenset())
    found = DIALECTS[file_format](messages, ChangeOptions())
    bad = _no_objects(values, kinds, lacks_deletes=found.lacks_deletes)
    bad |= {int(objects[row]): reason for row, reason in found.bad.items()}
    placed = np.unique(found.origins)
    told = np.union1d(placed, np.array(list(found.bad), np.int64))
    tables = extract(messages.values.take(pa.array(told)), [_TABLES[file_format]])[0]
    is_row = np.isin(told, placed)
    nameless = objects[told[is_row & ~mask_of(tables.is_valid())]].tolist()
    bad |= dict.fromkeys(nameless, _NAMELESS)
    passed = len(lines) - len(bad) - int(is_row.sum()) + len(nameless)
    for table in pc.unique(tables.drop_null()).to_pylist():
        is_its = mask_of(pc.equal(tables, table))
        if (is_its & is_row).any():
            yield _body(table, lines.take(pa.array(objects[told[is_its & is_row]])))
        own = {row: bad.pop(row) for row in objects[told[is_its & ~is_row]].tolist()}
        if own:
            yield _bad_body(lines, own, table)
    yield _bad_body(lines, bad, passed=passed)


def _no_objects(values: pa.Array, kinds: pa.Array, *, lacks_deletes: bool) -> dict[int, str]:
    """Returns the messages that are neither objects nor tombstones, with the reason; they name no table."""
    is_empty = pc.is_in(pc.utf8_trim_whitespace(pc.fill_null(values, "")), pa.array(["", "null"]))
    tombstones = mask_of(is_empty) & mask_of(values.is_valid())
    is_wrong = ~mask_of(pc.equal(kinds, "OBJECT")) & ~tombstones
    bad = {
        row: why_unreadable(values[row].as_py() or "", NO_OBJECT) for row in np.flatnonzero(is_wrong).tolist()
    }
    return bad | dict.fromkeys(np.flatnonzero(tombstones).tolist() if lacks_deletes else (), ONLY_TOMBSTONE)


def change_bodies_of_lines(file: BinaryIO, file_format: str) -> Iterator[Body]:
    """Yields the bodies of a file whose lines are messages of many tables.

    Raises:
        InvalidInputError: a line is too long.
    """
    for block in read_blocks(file, b"\n", lambda: BLOCK_BYTES):
        lines, _ = cut_lines(block.data, b"\n")
        yield from change_bodies(lines, file_format, is_multi=True)


def _bad_body(lines: pa.Array, bad: Mapping[int, str], table: str = "", passed: int = 0) -> Body:
    """Returns the body of messages none of which is a row: the reasons by the numbers of their lines."""
    listed = [
        BadRow(Place(0, shown(lines[row].as_py().rstrip(b"\r\n"))), bad[row])
        for row in sorted(bad)[: described_max()]
    ]
    return Body(BytesIO, table, bad_count=len(bad), bad=listed, passed=passed, has_rows=False)


def _body(table: str, lines: pa.Array) -> Body:
    data, _ = lines_of(lines, is_json=True)
    return Body(lambda: BytesIO(data), table, size=len(data))
