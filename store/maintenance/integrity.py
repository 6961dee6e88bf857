"""The full check of a table: reads all parts of the newest version and lists its faults.

For each live segment: every batch and the key index match their checksums; the index is ascending, has one
entry per row, and its codes and sequences are those of the rows; the counted tombstones exist. Over all
segments: no key has two live rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from seqstore.store.errors import StoreError
from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.column import DELETE_SIGN
from seqstore.store.segment.dedupe import equal_keys
from seqstore.store.segment.key_codes import encode_keys, prove_keys
from seqstore.store.segment.key_index import KeyIndex, Matches
from seqstore.store.segment.segment import INLINE, Segment
from seqstore.store.segment.sequence import SequenceVector


def check_table(state: TableState) -> list[str]:
    """Returns the findings, one sentence each; empty when the state is sound.

    Parts that the state's segments have cached are not read again: pass a state that was just loaded.
    """
    findings: list[str] = []
    for live in state.segments.values():
        try:
            findings += _check_segment(live)
        except StoreError as error:
            findings.append(error.message)
    if not findings:
        findings += _check_unique(state)
    return findings


def _check_segment(live: LiveSegment) -> Iterator[str]:
    segment = live.segment
    name = segment.meta.id
    rows = pa.Table.from_batches([segment.batch(i) for i in range(segment.batches)], segment.stored_schema)
    if len(rows) != segment.rows:
        yield f"segment {name}: expected {segment.rows} rows, found {len(rows)}"
        return
    tombstones = 0
    if DELETE_SIGN in segment.meta.hidden:
        tombstones = int(np.count_nonzero(np.asarray(rows.column(DELETE_SIGN))))
    if tombstones != segment.meta.tombstones:
        yield f"segment {name}: expected {segment.meta.tombstones} tombstones, found {tombstones}"
    if live.deletes.rows != segment.rows:
        yield f"segment {name}: delete vector of {live.deletes.rows} rows for {segment.rows}"
    # From the file, not the copy that a writer may have left in memory.
    index = segment.index if segment.meta.home == INLINE else segment.read_index()
    yield from check_index(segment, index, rows)


def check_index(segment: Segment, index: KeyIndex, rows: pa.Table) -> Iterator[str]:
    """Yields the faults of a segment's key index against its rows."""
    name = segment.meta.id
    schema = segment.schema
    if len(index) != len(rows):
        yield f"segment {name}: key index of {len(index)} entries for {len(rows)} rows"
        return
    keys = [rows.column(c.name).combine_chunks() for c in schema.key_columns]
    positions = index.row_positions(slice(None))
    if not np.array_equal(np.sort(positions), np.arange(len(rows), dtype=np.uint32)):
        yield f"segment {name}: the key index does not name every row once"
        return
    codes = encode_keys(keys, exact=schema.has_exact_key)[positions]
    if not np.array_equal(codes, index.codes):
        yield f"segment {name}: the key index has other codes than the rows"
    if bool((index.codes[1:] < index.codes[:-1]).any()):
        yield f"segment {name}: the key index is not ascending"
    sequence = SequenceVector.of_rows(rows, schema)
    if index.sequence is not None and sequence is not None:
        stored = sequence.take(positions)
        if stored.less(index.sequence).any() or index.sequence.less(stored).any():
            yield f"segment {name}: the key index has other sequences than the rows"


def _check_unique(state: TableState) -> Iterator[str]:
    """Finds keys with two live rows; readers would see both."""
    codes, found = [], []
    for slot, live in state.segments.items():
        positions = live.segment.index.row_positions(slice(None))
        mask = live.deletes.is_live(positions)
        codes.append(live.segment.index.codes[mask])
        entries = np.flatnonzero(mask)
        found.append(Matches(entries, np.full(len(entries), slot, np.uint32), positions[mask], None))
    if not codes:
        return
    all_codes, rows = np.concatenate(codes), Matches.concatenate(found)
    order = np.argsort(all_codes, kind="stable")
    twice = np.flatnonzero(all_codes[order][1:] == all_codes[order][:-1])
    if not len(twice):
        return
    first, second = (state.take(rows.take(order[each]), state.schema.key) for each in (twice, twice + 1))
    same = np.ones(len(twice), dtype=np.bool_)
    if not prove_keys(all_codes[order[twice]], state.schema.key_columns):
        same = equal_keys(first.columns, None, second.columns, None)
    if same.any():
        example = first.slice(int(np.flatnonzero(same)[0]), 1).to_pylist()[0]
        yield f"{int(same.sum())} keys have two live rows, first {example}"
