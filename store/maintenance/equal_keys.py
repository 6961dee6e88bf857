"""Equal keys among segments whose keys were converted: at most one row of a key may count.

Two rows with one key are an error. A tombstone with the key of a row, or of another tombstone, is hidden.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from seqstore.store.errors import InvalidInputError
from seqstore.store.maintenance.reshaping import Reshaping, key_text
from seqstore.store.schema.column import DELETE_SIGN
from seqstore.store.segment.key_index import Positions
from seqstore.store.segment.segment import Segment

_PART_ROWS: Final = 2**22  # codes that are compared at a time

Place = tuple[int, int]  # the number of a segment, and a position in it


def hide_equal_keys(
    table: str, reshaping: Reshaping, segments: Sequence[Segment], hidden: Mapping[str, Positions]
) -> dict[str, Positions]:
    """Returns the hidden rows of the segments, and the tombstones that lose their key.

    Args:
        hidden: positions of rows that do not count, by segment id.

    Raises:
        InvalidInputError: two rows have one key.
    """
    found = [np.zeros(segment.rows, dtype=np.bool_) for segment in segments]
    for segment, mask in zip(segments, found, strict=True):
        if segment.meta.id in hidden:
            mask[hidden[segment.meta.id]] = True
    names = reshaping.target.key
    for places in _equal_codes(segments, found):
        owners: dict[tuple[Any, ...], tuple[Place, bool]] = {}
        for place in places:
            number, position = place
            row = _row(segments[number], position, names)
            is_deleted = bool(row.pop(DELETE_SIGN))
            key = tuple(row.values())
            known = owners.get(key)
            if known is None:
                owners[key] = place, is_deleted
                continue
            other, other_is_deleted = known
            if not is_deleted and not other_is_deleted:
                raise _error(table, reshaping, segments[number], position)
            lost = place if is_deleted else other
            found[lost[0]][lost[1]] = True
            owners[key] = (other, other_is_deleted) if is_deleted else (place, is_deleted)
    return {
        segment.meta.id: np.flatnonzero(mask).astype(np.uint32)
        for segment, mask in zip(segments, found, strict=True)
        if mask.any()
    }


def _row(segment: Segment, position: int, names: Sequence[str]) -> dict[str, Any]:
    stored = [*names, *([DELETE_SIGN] if segment.meta.tombstones else [])]
    row: dict[str, Any] = segment.take(np.array([position], dtype=np.uint32), stored).to_pylist()[0]
    return {**row, DELETE_SIGN: row.get(DELETE_SIGN, 0)}


def _equal_codes(
    segments: Sequence[Segment], hidden: Sequence[npt.NDArray[np.bool_]]
) -> Iterator[list[Place]]:
    """Yields the places of rows that have one key code, where there are several."""
    parts = max(sum(segment.rows for segment in segments) // _PART_ROWS, 1)
    bounds = [(-(-(number << 32) // parts)) << 32 for number in range(parts)]
    for low, high in itertools.pairwise([*bounds, 1 << 64]):
        codes, numbers, positions = [], [], []
        for number, segment in enumerate(segments):
            index = segment.index
            first = int(index.codes.searchsorted(np.uint64(low)))
            last = len(index) if high > 2**64 - 1 else int(index.codes.searchsorted(np.uint64(high)))
            at = index.row_positions(slice(first, last))
            counts = ~hidden[number][at]
            codes.append(index.codes[first:last][counts])
            positions.append(at[counts])
            numbers.append(np.full(len(positions[-1]), number, dtype=np.int64))
            segment.forget_index()
        if not codes:
            continue
        every, of, at = np.concatenate(codes), np.concatenate(numbers), np.concatenate(positions)
        order = np.argsort(every, kind="stable")
        same = np.flatnonzero(every[order][1:] == every[order][:-1])
        groups = np.split(same, np.flatnonzero(np.diff(same) != 1) + 1) if len(same) else []
        for group in groups:
            rows = order[int(group[0]) : int(group[-1]) + 2]
            yield [(int(of[row]), int(at[row])) for row in rows]


def _error(table: str, reshaping: Reshaping, segment: Segment, position: int) -> InvalidInputError:
    names = reshaping.target.key
    row = segment.take(np.array([position], dtype=np.uint32), names)
    return InvalidInputError(
        f"{table!r}: two rows would have the key ({key_text(names, row, 0)}) once the key columns have their "
        "new types; delete one of them, and alter the table again",
        kind="duplicate_key",
    )
