"""The full check of a table finds what the checksums of its parts do not show."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from seqstore.store.maintenance.integrity import check_table
from seqstore.store.segment.delete_bitmap import DeleteVector
from tests.support.rows import MakeTable


def test_a_key_with_two_live_rows_is_found(make_table: MakeTable) -> None:
    """As after the loss of a delete vector; readers see both rows."""
    table = make_table("k INT NOT NULL", "v INT")
    for keys in ([1, 2, 3], [2, 3, 4]):
        table.upsert(pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(keys, pa.int32())}))
    state = table.state()
    assert check_table(state) == []
    whole = {
        slot: replace(live, deletes=DeleteVector(live.segment.rows)) for slot, live in state.segments.items()
    }
    [finding] = check_table(replace(state, segments=whole))
    assert finding.startswith("2 keys have two live rows, first {'k': ")
