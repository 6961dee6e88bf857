"""Key indexes: from key codes to row positions.

A `KeyIndex` belongs to one segment: its codes in ascending order, and for each code the row's position in the
segment and its sequence. Segments hold a key once, so equal codes within one are hash collisions (rare, and
flagged). Stored as an uncompressed Arrow IPC file that is mapped, never parsed:

    code uint64 | position uint32 (absent: row i has position i) | sequence, sequence_2, sequence_3 int64
    (as needed)

A `Run` is the unit of probing: the indexes of one or several segments in one sorted array. A probe costs a
short search per probe key and run (`RadixIndex`). Small runs are therefore merged in memory as their
number grows (`merge_runs`), without their dead rows. The few large runs are the mapped indexes themselves,
whose code ranges are disjoint after a bulk load or a compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc as ipc

from seqstore.store.runtime.lazy import cached_property
from seqstore.store.runtime.workers import pool
from seqstore.store.segment.disk import release_pages
from seqstore.store.segment.key_codes import Codes
from seqstore.store.segment.sequence import SequenceVector

Positions = npt.NDArray[np.uint32]
Rows = npt.NDArray[np.intp]

# Four runs of a size class become one of the next, unless there are few runs anyway. Runs above the limit
# stay: a merged copy would cost more memory than the mapped index of the segment.
_MERGE_FAN_IN: Final = 4
_RUNS_MIN: Final = 8
_MERGE_ROWS_MAX: Final = 2_000_000
_PARALLEL_PROBE_KEYS: Final = 20_000
_FEW_RUNS: Final = 3  # are probed one after the other in less time than together
_SWEEP_PROBE_KEYS: Final = 100_000  # so many probe keys touch nearly every page of an index
# Of a radix index; below the two limits a plain binary search is as fast.
_SLICE_CODES: Final = 64
_CODES_MIN: Final = 4_096
_PROBE_KEYS_MIN: Final = 32
_LARGEST_CODE: Final = 2**64 - 1
_SEQUENCE_FIELDS: Final = ("sequence", "sequence_2", "sequence_3")


class RadixIndex:
    """Finds probe keys in ascending codes: a look-up starts next to its result.

    Codes are spread evenly, so the leading bits of a code predict its place:

    1. Cut the range of n codes into n / 64 slices of equal width (a power of two), and store the first entry
       of each.
    2. A subtraction and a shift yield the slice of a probe key. Within the slices, halve the distance for all
       probe keys at once.

    A binary search over the whole array waits for memory at nearly every step, one probe key at a time. With
    the radix index, 100k probe keys need 0.4 of the time in ten arrays of a million codes, and 10k need 0.2.
    Uneven codes (which only tests have) make step 2 longer.

    Args:
        codes: ascending, at least one.
    """

    def __init__(self, codes: Codes) -> None:
        self._codes = codes
        self._first = codes[0]
        width = int(codes[-1]) - int(codes[0]) + 1
        slices = max(len(codes) // _SLICE_CODES, 1)
        self._shift = np.uint64(min(max(width.bit_length() - slices.bit_length(), 0), 63))
        last = int((codes[-1] - self._first) >> self._shift)
        edges = self._first + (np.arange(last + 1, dtype=np.uint64) << self._shift)
        self._starts = codes.searchsorted(edges)
        longest = int(np.diff(self._starts, append=len(codes)).max())
        self._first_step = (1 << longest.bit_length()) >> 1

    def find(self, probe_keys: Codes) -> Rows:
        """Returns for each probe key the first entry that is not below it.

        Args:
            probe_keys: none of them outside the range of the codes.
        """
        at: Rows = self._starts[((probe_keys - self._first) >> self._shift).astype(np.intp)]
        step = self._first_step
        while step:
            at += (self._codes.take(at + (step - 1), mode="clip") < probe_keys) * step
            step >>= 1
        return at


@dataclass(frozen=True)
class KeyIndex:
    """The index of one segment.

    Attributes:
        codes: ascending, one per row.
        positions: row position of each code; None when they are 0, 1, 2, ...
        sequence: sequence of each row, None in tables without one.
        has_equal_codes: some code occurs twice (a hash collision).
        file: the mapped file that holds all of these, None when they are in memory.
    """

    codes: Codes
    positions: Positions | None
    sequence: SequenceVector | None
    has_equal_codes: bool = False
    file: pa.Buffer | None = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def radix_index(self) -> RadixIndex:
        """The radix index for many probe keys; the index must not be empty."""
        return RadixIndex(self.codes)

    @cached_property
    def ends(self) -> tuple[int, int]:
        """The first and the last code; the index must not be empty."""
        return int(self.codes[0]), int(self.codes[-1])

    def lower_bounds(self, wanted: Codes) -> Rows:
        """Returns for each code the first entry that is not below it.

        Args:
            wanted: ascending, none of them outside the range of the codes.
        """
        if len(self.codes) >= _CODES_MIN and len(wanted) >= _PROBE_KEYS_MIN:
            return self.radix_index.find(wanted)
        return self.codes.searchsorted(wanted)

    def row_positions(self, entries: Rows | slice) -> npt.NDArray[np.uint32]:
        """Returns the positions in the segment of some entries of the index."""
        if self.positions is not None:
            return self.positions[entries]
        return np.arange(len(self.codes), dtype=np.uint32)[entries]

    def within(self, low: int, high: int) -> KeyIndex:
        """Returns the entries whose code is at least `low` and less than `high`, in place.

        Args:
            low, high: from 0 to 2**64.
        """
        ends = [
            len(self.codes) if end > _LARGEST_CODE else int(self.codes.searchsorted(np.uint64(end)))
            for end in (low, high)
        ]
        cut = slice(*ends)
        positions = np.arange(*ends, dtype=np.uint32) if self.positions is None else self.positions[cut]
        sequence = self.sequence.take(cut) if self.sequence is not None else None
        return KeyIndex(self.codes[cut], positions, sequence, self.has_equal_codes, self.file)

    def to_arrow(self, metadata: Mapping[bytes, bytes] | None = None) -> pa.RecordBatch:
        """Returns the content of the `.keys` file, with more schema metadata; `read` reads it."""
        columns: dict[str, Any] = {"code": self.codes}
        if self.positions is not None:
            columns["position"] = self.positions
        if self.sequence is not None:
            columns |= zip(_SEQUENCE_FIELDS, self.sequence.columns, strict=False)
        batch = pa.record_batch([pa.array(column) for column in columns.values()], names=list(columns))
        noted = {**(metadata or {}), **({b"equal_codes": b"1"} if self.has_equal_codes else {})}
        return batch.replace_schema_metadata(noted) if noted else batch

    @classmethod
    def read(cls, buffer: pa.Buffer) -> KeyIndex:
        """Reads the mapped bytes of a `.keys` file, in place."""
        batch = ipc.open_file(pa.BufferReader(buffer)).get_batch(0)
        columns = {name: np.asarray(batch.column(name)) for name in batch.schema.names}
        parts = tuple([columns[name] for name in _SEQUENCE_FIELDS if name in columns])
        sequence = SequenceVector(parts) if parts else None
        has_equal_codes = b"equal_codes" in (batch.schema.metadata or {})
        return cls(columns["code"], columns.get("position"), sequence, has_equal_codes, buffer)

    def release_pages(self) -> None:
        """Releases the pages of a mapped file after a read of the whole index.

        Pages of a mapped file count as memory of the process from their first access on.
        """
        if self.file is not None:
            release_pages(self.file)


@dataclass(frozen=True)
class Matches:
    """Pairs of a probe key and a stored row with equal codes, and the places of the rows.

    Attributes:
        probe_keys: index into the probed codes, ascending within one run.
        slots, positions: segment slot of each row, and its position in that segment.
        sequence: of each row, None without one.
    """

    probe_keys: Rows
    slots: npt.NDArray[np.uint32]
    positions: Positions
    sequence: SequenceVector | None

    def __len__(self) -> int:
        return len(self.probe_keys)

    def take(self, chosen: npt.NDArray[np.bool_] | Rows) -> Matches:
        sequence = self.sequence.take(chosen) if self.sequence is not None else None
        return Matches(self.probe_keys[chosen], self.slots[chosen], self.positions[chosen], sequence)

    @staticmethod
    def concatenate(parts: list[Matches]) -> Matches:
        if len(parts) == 1:
            return parts[0]
        sequences = [part.sequence for part in parts if part.sequence is not None]
        return Matches(
            np.concatenate([part.probe_keys for part in parts]),
            np.concatenate([part.slots for part in parts]),
            np.concatenate([part.positions for part in parts]),
            SequenceVector.concatenate(sequences) if sequences else None,
        )

    @staticmethod
    def none(with_sequence: bool) -> Matches:
        empty = np.empty(0, dtype=np.uint32)
        sequence = SequenceVector.nulls(0) if with_sequence else None
        return Matches(np.empty(0, dtype=np.intp), empty, empty, sequence)


@dataclass(frozen=True)
class Run:
    """One sorted array of codes over one or several segments.

    Attributes:
        slots: segment slot of each entry, or the one slot of all.
        members: the slots of which the run may have entries.
    """

    index: KeyIndex
    slots: npt.NDArray[np.uint32] | int
    members: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.index)

    def __post_init__(self) -> None:
        if isinstance(self.slots, int):
            object.__setattr__(self, "members", (self.slots,))

    def may_have(self, code: int) -> bool:
        """Returns whether a code is within the range of the run."""
        if not len(self.index.codes):
            return False
        first, last = self.index.ends
        return first <= code <= last

    def probe(self, probe_keys: Codes, *, with_sequence: bool = True) -> Matches | None:
        """Returns the entries whose code is among the probe keys, None when there are none.

        Args:
            probe_keys: ascending codes, repeats allowed.
            with_sequence: the matches have the entries' sequences, in tables with one.
        """
        index = self.index
        codes = index.codes
        if not len(codes) or not len(probe_keys) or probe_keys[-1] < codes[0] or probe_keys[0] > codes[-1]:
            return None
        low, wanted = 0, probe_keys
        if probe_keys[0] < codes[0] or probe_keys[-1] > codes[-1]:
            low = int(probe_keys.searchsorted(codes[0]))
            wanted = probe_keys[low : int(probe_keys.searchsorted(codes[-1], side="right"))]
        at = index.lower_bounds(wanted)
        hits = (codes[at] == wanted).nonzero()[0]  # `at` is in range: no probe key exceeds the last code
        found = None
        if len(hits):
            entries = at[hits]
            if index.has_equal_codes:
                hits, entries = self._all_equal(wanted, hits, entries)
            slots = self.slots
            found = Matches(
                hits + low,
                np.full(len(hits), slots, dtype=np.uint32) if isinstance(slots, int) else slots[entries],
                index.positions[entries] if index.positions is not None else entries.astype(np.uint32),
                index.sequence.take(entries) if with_sequence and index.sequence is not None else None,
            )
        if len(wanted) >= _SWEEP_PROBE_KEYS:
            index.release_pages()
        return found

    def _all_equal(self, wanted: Codes, hits: Rows, entries: Rows) -> tuple[Rows, Rows]:
        """Returns every entry of an equal range, not only its first."""
        ends = np.searchsorted(self.index.codes, wanted[hits], side="right")
        counts = ends - entries
        starts = np.repeat(entries - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        return np.repeat(hits, counts), starts + np.arange(int(counts.sum()))


def places_in(order: Rows) -> Positions:
    """Returns the place of each row in an order of rows: the inverse permutation."""
    places = np.empty(len(order), dtype=np.uint32)
    places[order] = np.arange(len(order), dtype=np.uint32)
    return places


def probe_runs(runs: Sequence[Run], probe_keys: Codes, *, with_sequence: bool) -> Matches:
    """Returns all stored rows whose code is among the ascending probe keys."""

    def probe(run: Run) -> Matches | None:
        return run.probe(probe_keys, with_sequence=with_sequence)

    if len(probe_keys) == 1:
        code = int(probe_keys[0])
        probed = [probe(run) for run in runs if run.may_have(code)]
    elif len(probe_keys) >= _PARALLEL_PROBE_KEYS and len(runs) > 1:
        probed = list(pool().map(probe, runs))
    elif len(runs) > _FEW_RUNS and len(probe_keys):
        whole = [run for run in runs if len(run) and not run.index.has_equal_codes]
        probed = [_probe_together(whole, probe_keys, with_sequence)]
        probed += map(probe, [run for run in runs if run.index.has_equal_codes])
    else:
        probed = list(map(probe, runs))
    found = [matches for matches in probed if matches is not None]
    return Matches.concatenate(found) if found else Matches.none(with_sequence)


def _probe_together(runs: Sequence[Run], probe_keys: Codes, with_sequence: bool) -> Matches | None:
    """Probes runs without equal codes, none of them empty, with a few calls for each.

    1. Two searches find the probe keys within the range of each run.
    2. Each run finds the entries of its probe keys; one comparison finds the hits of all runs.
    3. Runs with a hit read positions and sequences of these entries alone: the others would cost a page each.
    """
    firsts, lasts = np.array([run.index.ends for run in runs], dtype=np.uint64).reshape(-1, 2).T
    starts = probe_keys.searchsorted(firsts)
    stops = probe_keys.searchsorted(lasts, side="right")
    tried = (starts < stops).nonzero()[0].tolist()
    if not tried:
        return None
    wanted = list(map(slice, starts[tried].tolist(), stops[tried].tolist()))
    entries = [runs[i].index.lower_bounds(probe_keys[part]) for i, part in zip(tried, wanted, strict=True)]
    stored = [runs[i].index.codes.take(at) for i, at in zip(tried, entries, strict=True)]
    asked = np.concatenate([np.arange(part.start, part.stop) for part in wanted])
    hits = (np.concatenate(stored) == probe_keys[asked]).nonzero()[0]
    if not len(hits):
        return None
    bounds = np.cumsum([0, *map(len, entries)])
    cuts = hits.searchsorted(bounds).tolist()
    at = np.concatenate(entries)[hits]
    slots = np.empty(len(hits), dtype=np.uint32)
    positions = at.astype(np.uint32)
    sequences: list[SequenceVector] = []
    for i, first, end in zip(tried, cuts, cuts[1:], strict=False):
        if first == end:
            continue
        run, own = runs[i], at[first:end]
        slots[first:end] = run.slots if isinstance(run.slots, int) else run.slots[own]
        if run.index.positions is not None:
            positions[first:end] = run.index.positions[own]
        if with_sequence and run.index.sequence is not None:
            sequences.append(run.index.sequence.take(own))
    return Matches(
        asked[hits], slots, positions, SequenceVector.concatenate(sequences) if sequences else None
    )


def merge_runs(
    runs: Sequence[Run], is_live: Callable[[npt.NDArray[np.uint32], Positions], npt.NDArray[np.bool_]]
) -> tuple[Run, ...]:
    """Merges small runs of like size until fewer than four of each size class, or few in total, remain.

    Args:
        runs: oldest first.
        is_live: (slots, positions) -> mask; a merged run omits dead rows.
    """
    kept = list(runs)
    while len(kept) > _RUNS_MIN and (chosen := _mergeable(kept)) is not None:
        kept[chosen[0]] = _merge([kept[i] for i in chosen], is_live)
        for i in reversed(chosen[1:]):
            del kept[i]
    return tuple(kept)


def _mergeable(runs: Sequence[Run]) -> list[int] | None:
    classes: dict[int, list[int]] = {}
    for i, run in enumerate(runs):
        if len(run) <= _MERGE_ROWS_MAX // _MERGE_FAN_IN:
            members = classes.setdefault(max(len(run), 64).bit_length() // 2, [])
            members.append(i)
            if len(members) == _MERGE_FAN_IN:
                return members
    return None


def _merge(
    runs: Sequence[Run], is_live: Callable[[npt.NDArray[np.uint32], Positions], npt.NDArray[np.bool_]]
) -> Run:
    members = tuple(dict.fromkeys([slot for run in runs for slot in run.members]))
    slots = np.concatenate(
        [np.full(len(r), r.slots, np.uint32) if isinstance(r.slots, int) else r.slots for r in runs]
    )
    positions = np.concatenate([r.index.row_positions(slice(None)) for r in runs])
    live = np.flatnonzero(is_live(slots, positions))
    codes = np.concatenate([r.index.codes for r in runs])[live]
    order = np.argsort(codes, kind="stable")  # the parts are sorted, and a stable sort only merges them
    codes, chosen = codes[order], live[order]
    sequences = [r.index.sequence for r in runs if r.index.sequence is not None]
    sequence = SequenceVector.concatenate(sequences).take(chosen) if sequences else None
    repeats = bool((codes[1:] == codes[:-1]).any())
    return Run(KeyIndex(codes, positions[chosen], sequence, repeats), slots[chosen], members)
