"""Messages of change streams as bodies: a line each, of many tables grouped by the table they name (R3).

A line is the message's key, a tab and its value; some deletes have a key alone. Debezium names the table in
`source`, and in flattened rows in `__table` or `__source_table` (setting `add.fields`). Canal and
Maxwell name it in `table`. Messages that are no rows belong to no table and are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.changes.change_rows import Messages
from seqstore.loaders.changes.reader import DIALECTS, NO_OBJECT, ONLY_TOMBSTONE, split_keys
from seqstore.loaders.error_log import ROWS_MAX
from seqstore.loaders.headers import ChangeOptions
from seqstore.loaders.json.fields import extract, mask_of
from seqstore.loaders.json.line_blocks import BLOCK_BYTES, cut_lines, read_blocks
from seqstore.loaders.routine.messages import lines_of
from seqstore.loaders.routine.source import Body
from seqstore.loaders.source import BadRow, Place, shown, why_unreadable
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
    bad = {int(objects[row]): reason for row, reason in found.bad.items()}
    is_empty = pc.is_in(pc.utf8_trim_whitespace(pc.fill_null(values, "")), pa.array(["", "null"]))
    tombstones = mask_of(is_empty) & mask_of(values.is_valid())
    is_wrong = ~mask_of(pc.equal(kinds, "OBJECT")) & ~tombstones
    bad |= {
        row: why_unreadable(values[row].as_py() or "", NO_OBJECT) for row in np.flatnonzero(is_wrong).tolist()
    }
    if found.lacks_deletes:
        bad |= dict.fromkeys(np.flatnonzero(tombstones).tolist(), ONLY_TOMBSTONE)
    placed = np.unique(found.origins)
    tables = extract(messages.values.take(pa.array(placed)), [_TABLES[file_format]])[0]
    bad |= dict.fromkeys(objects[placed[~mask_of(tables.is_valid())]].tolist(), _NAMELESS)
    for table in pc.unique(tables.drop_null()).to_pylist():
        chosen = objects[placed[mask_of(pc.equal(tables, table))]]
        yield _body(table, lines.take(pa.array(chosen)))
    passed = len(lines) - len(bad) - int(mask_of(tables.is_valid()).sum())
    listed = [BadRow(Place(0, shown(lines[row].as_py())), bad[row]) for row in sorted(bad)[:ROWS_MAX]]
    yield Body(BytesIO, bad_count=len(bad), bad=listed, passed=passed)


def change_bodies_of_lines(file: BinaryIO, file_format: str) -> Iterator[Body]:
    """Yields the bodies of a file whose lines are messages of many tables.

    Raises:
        InvalidInputError: a line is too long.
    """
    for block in read_blocks(file, b"\n", lambda: BLOCK_BYTES):
        lines, _ = cut_lines(block.data, b"\n")
        yield from change_bodies(lines, file_format, is_multi=True)


def _body(table: str, lines: pa.Array) -> Body:
    data, _ = lines_of(lines, is_json=True)
    return Body(lambda: BytesIO(data), table, size=len(data))
