"""`canal_json`: the flat messages of Canal. One message has the rows of one statement.

`type` is INSERT, UPDATE or DELETE; `data` has the rows, of a delete the old ones, and `old` the columns that
an update changed, with their old values. Definitions of tables and queries are passed over; TRUNCATE is a bad
message. The position is `es`, the moment of the change, or by request `gtid`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.changes import positions
from seqstore.loaders.changes.change_rows import ChangeRows, Mask, Messages, no_text
from seqstore.loaders.changes.positions import PositionKind
from seqstore.loaders.headers import ChangeOptions
from seqstore.loaders.json.fields import extract, mask_of
from seqstore.store.types.cast import evaluate

_ROW_TYPES: Final = pa.array(["INSERT", "UPDATE", "DELETE"])


def canal_rows(messages: Messages, options: ChangeOptions) -> ChangeRows:
    """Returns the rows of the messages; a `Dialect`."""
    names = ("type", "isDdl", "es", "gtid", "database", "table")
    found = extract(messages.values, [[f"$.{name}"] for name in names])
    head = dict(zip(names, found, strict=True))
    kind = head["type"]
    is_ours = of_table(head["database"], head["table"], options.table)
    bad: dict[int, str] = {}
    is_row = mask_of(pc.is_in(kind, _ROW_TYPES)) & is_ours
    for row in np.flatnonzero(is_ours & mask_of(pc.equal(kind, "TRUNCATE"))).tolist():
        bad[row] = (
            f"the table was truncated at its source (es {head['es'][row].as_py()}); truncate events are not "
            "applied: delete the rows with a smaller sequence"
        )
    for row in np.flatnonzero(~mask_of(kind.is_valid())).tolist():
        bad[row] = "the message has no type; expected a flat message of Canal"
    if options.position == "gtid":
        sequence = positions.gtid(head["gtid"], no_text(len(kind)), no_text(len(kind)))
        used = PositionKind.GTID
    else:
        sequence, used = positions.ts_ms(head["es"]), PositionKind.TS_MS
    rows = np.flatnonzero(is_row)
    texts = messages.values.take(pa.array(rows))
    data = evaluate(texts, "json_extract(c, '$.data[*]')::VARCHAR[]")
    for row in rows[
        ~(pc.fill_null(pc.list_value_length(data), 0).to_numpy(zero_copy_only=False) > 0)
    ].tolist():
        bad[row] = "the message has no data"
    origins = rows[pc.list_parent_indices(data).to_numpy(zero_copy_only=False)]
    taken = pa.array(origins)
    return ChangeRows(
        pc.list_flatten(data),
        _old_images(texts, data),
        origins,
        mask_of(pc.equal(kind, "DELETE"))[origins],
        sequence.take(taken),
        frozenset([used]) if len(origins) else frozenset(),
        bad=bad,
    )


def of_table(database: pa.Array, table: pa.Array, wanted: str) -> Mask:
    """Marks the messages of the wanted table, which is named alone or with its database."""
    if not wanted:
        return np.ones(len(table), np.bool_)
    name = pc.binary_join_element_wise(database, table, ".")
    return mask_of(pc.or_kleene(pc.equal(table, wanted), pc.equal(name, wanted)))


def _old_images(texts: pa.Array, data: pa.ListArray) -> pa.Array:
    """Returns the changed columns of each row; a message without one for each row has none."""
    old = evaluate(texts, "json_extract(c, '$.old[*]')::VARCHAR[]")
    lengths = pc.fill_null(pc.list_value_length(data), 0)
    is_whole = pc.fill_null(pc.equal(pc.list_value_length(old), lengths), False)
    flat = pc.list_flatten(old.filter(is_whole))
    parents = pc.list_parent_indices(data)
    is_old = is_whole.take(parents)
    images = no_text(len(parents))
    if not len(flat):
        return images
    found = pc.replace_with_mask(images, is_old, flat)
    return pc.if_else(pc.equal(found, "null"), pa.scalar(None, pa.string()), found)
