"""`maxwell_json`: the messages of Maxwell's daemon. One message is one row.

`type` is insert, update, delete or bootstrap-insert, a row of a snapshot. `data` is the row, of a delete the
old one, and `old` has the columns that an update changed, with their old values. Other bootstrap messages and
definitions are passed over. The position is `position` and `xoffset` where the producer adds them, else `ts`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.changes import positions
from seqstore.loaders.changes.canal import of_table
from seqstore.loaders.changes.change_rows import ChangeRows, Mask, Messages, no_text
from seqstore.loaders.changes.positions import SNAPSHOT, PositionKind
from seqstore.loaders.headers import ChangeOptions
from seqstore.loaders.json.exact_numbers import with_exact_numbers
from seqstore.loaders.json.fields import extract, mask_of

_SNAPSHOT: Final = "bootstrap-insert"
_ROW_TYPES: Final = pa.array(["insert", "update", "delete", _SNAPSHOT])
_PASSED_OVER: Final = "^(bootstrap|table|database)-"
_DEPTH: Final = 2  # of the fields of `data`
_LAST: Final = str(2**32 - 1)  # the place of the last row of a transaction, which has `commit` instead of one


def maxwell_rows(messages: Messages, options: ChangeOptions) -> ChangeRows:
    """Returns the rows of the messages; a `Dialect`."""
    values = with_exact_numbers(messages.values.cast(pa.binary()), _DEPTH).cast(pa.string())
    names = ("type", "ts", "position", "xoffset", "commit", "gtid", "database", "table", "data", "old")
    head = dict(zip(names, extract(values, [[f"$.{name}"] for name in names]), strict=True))
    kind = head["type"]
    bad: dict[int, str] = {}
    is_ours = of_table(head["database"], head["table"], options.table)
    is_row = mask_of(pc.is_in(kind, _ROW_TYPES)) & is_ours
    is_known = is_row | mask_of(pc.match_substring_regex(kind, _PASSED_OVER)) | ~is_ours
    for row in np.flatnonzero(~is_known).tolist():
        bad[row] = f"type {kind[row].as_py()!r} is none of Maxwell's"
    is_row &= is_known
    for row in np.flatnonzero(is_row & ~mask_of(head["data"].is_valid())).tolist():
        bad[row] = "the message has no data"
    rows = np.flatnonzero(is_row & mask_of(head["data"].is_valid()))
    taken = pa.array(rows)
    head = {name: column.take(taken) for name, column in head.items()}
    is_snapshot = mask_of(pc.equal(head["type"], _SNAPSHOT))
    sequence, kinds = _positions(head, options, ~is_snapshot)
    return ChangeRows(
        head["data"],
        head["old"],
        rows,
        mask_of(pc.equal(head["type"], "delete")),
        pc.if_else(pa.array(is_snapshot), SNAPSHOT, sequence),
        kinds,
        bad=bad,
    )


def _positions(
    head: dict[str, pa.Array], options: ChangeOptions, streamed: Mask
) -> tuple[pa.Array, frozenset[PositionKind]]:
    place = pc.if_else(pc.equal(head["commit"], "true"), _LAST, head["xoffset"])
    place = pc.coalesce(head["xoffset"], place)
    if options.position == "gtid":
        kind, found = PositionKind.GTID, positions.gtid(head["gtid"], no_text(len(place)), place)
    elif options.position == "ts_ms" or not mask_of(head["position"].is_valid())[streamed].any():
        seconds = pc.binary_join_element_wise(head["ts"], "000", "")
        kind, found = PositionKind.TS_MS, positions.ts_ms(seconds)
    else:
        parts = pc.extract_regex(head["position"], r"^(?P<file>.*):(?P<pos>[0-9]+)$")
        file, at = pc.struct_field(parts, "file"), pc.struct_field(parts, "pos")
        kind, found = PositionKind.BINLOG, positions.binlog(file, at, place)
    return found, frozenset([kind]) if streamed.any() else frozenset()
