"""Key indexes: from key codes to row positions.

A `KeyIndex` belongs to one segment: its codes in ascending order, and for each code the row's position in the
segment and its sequence. Segments hold a key once, so equal codes within one are hash collisions (rare, and
flagged). Stored as an uncompressed Arrow IPC file that is mapped, never parsed:

    code uint64 | position uint32 (absent: row i has position i) | sequence, sequence_2, sequence_3 int64
    (as needed)

A `Run` is the unit of probing: the indexes of one or several segments in one sorted array. A probe costs a
short search per probe key and run (segment.radix_index). Small runs are therefore merged in memory as their
number grows (`merge_runs`), without their dead rows. The few large runs are the mapped indexes themselves,
whose code ranges are disjoint after a bulk load or a compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc as ipc

from seqstore.store.runtime.lazy import cached_property
from seqstore.store.runtime.workers import map_all
from seqstore.store.segment.disk import release_pages
from seqstore.store.segment.key_codes import Codes
from seqstore.store.segment.radix_index import RadixIndex, pays
from seqstore.store.segment.sequence import SequenceVector

Positions = npt.NDArray[np.uint32]
Rows = npt.NDArray[np.intp]

# Four runs of a size class become one of the next, unless there are few runs anyway. Runs above the limit
# stay: a merged copy would cost more memory than the mapped index of the segment.
_MERGE_FAN_IN: Final = 4
_RUNS_MIN: Final = 8
_MERGE_ROWS_MAX: Final = 2_000_000
_PARALLEL_PROBE_KEYS: Final = 20_000
_SWEEP_PROBE_KEYS: Final = 100_000  # so many probe keys touch nearly every page of an index
_SEQUENCE_FIELDS: Final = ("sequence", "sequence_2", "sequence_3")


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

    def row_positions(self, entries: Rows | slice) -> npt.NDArray[np.uint32]:
        """Returns the positions in the segment of some entries of the index."""
        if self.positions is not None:
            return self.positions[entries]
        return np.arange(len(self.codes), dtype=np.uint32)[entries]

    def to_arrow(self) -> pa.RecordBatch:
        """Returns the content of the `.keys` file; `from_arrow` reads it."""
        arrays, names = [pa.array(self.codes)], ["code"]
        if self.positions is not None:
            arrays.append(pa.array(self.positions))
            names.append("position")
        for column, name in zip(
            self.sequence.columns if self.sequence is not None else (), _SEQUENCE_FIELDS, strict=False
        ):
            arrays.append(pa.array(column))
            names.append(name)
        batch = pa.record_batch(arrays, names=names)
        return batch.replace_schema_metadata({"equal_codes": "1"}) if self.has_equal_codes else batch

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch) -> KeyIndex:
        names = batch.schema.names
        columns = {name: np.asarray(batch.column(name)) for name in names}
        parts = tuple(columns[name] for name in _SEQUENCE_FIELDS if name in columns)
        return cls(
            columns["code"],
            columns.get("position"),
            SequenceVector(parts) if parts else None,
            b"equal_codes" in (batch.schema.metadata or {}),
        )

    @classmethod
    def read(cls, buffer: pa.Buffer) -> KeyIndex:
        """Reads the mapped bytes of a `.keys` file, in place."""
        return replace(cls.from_arrow(ipc.open_file(pa.BufferReader(buffer)).get_batch(0)), file=buffer)

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
        slots: segment slot of each row.
        positions: row position in that segment.
        sequence: sequence of each row, None without one.
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
        index: codes, positions and sequences.
        slots: segment slot of each entry, or the one slot of all.
        merged: the slots of a merged run.
    """

    index: KeyIndex
    slots: npt.NDArray[np.uint32] | int
    merged: tuple[int, ...] = ()

    @property
    def members(self) -> tuple[int, ...]:
        """The slots of which the run may have entries."""
        return (self.slots,) if isinstance(self.slots, int) else self.merged

    def __len__(self) -> int:
        return len(self.index)

    def probe(self, probe_keys: Codes) -> Matches | None:
        """Returns the entries whose code is among the probe keys, None when there are none.

        Args:
            probe_keys: ascending codes, repeats allowed.
        """
        codes = self.index.codes
        if not len(codes) or not len(probe_keys):
            return None
        first, last = self._bounds
        if int(probe_keys[-1]) < first or int(probe_keys[0]) > last:
            return None
        low, wanted = 0, probe_keys
        if int(probe_keys[0]) < first or int(probe_keys[-1]) > last:
            low = int(probe_keys.searchsorted(np.uint64(first)))
            wanted = probe_keys[low : int(probe_keys.searchsorted(np.uint64(last), side="right"))]
        at = self.index.radix_index.find(wanted) if pays(codes, wanted) else codes.searchsorted(wanted)
        hits = (codes[at] == wanted).nonzero()[0]  # `at` is in range: no probe key exceeds the last code
        found = self._found(wanted, low, hits, at[hits]) if len(hits) else None
        if len(wanted) >= _SWEEP_PROBE_KEYS:
            self.index.release_pages()
        return found

    def _found(self, wanted: Codes, low: int, hits: Rows, entries: Rows) -> Matches:
        if self.index.has_equal_codes:
            hits, entries = self._all_equal(wanted, hits, entries)
        slots = self.slots
        return Matches(
            hits + low,
            np.full(len(hits), slots, dtype=np.uint32) if isinstance(slots, int) else slots[entries],
            self.index.positions[entries] if self.index.positions is not None else entries.astype(np.uint32),
            self.index.sequence.take(entries) if self.index.sequence is not None else None,
        )

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        return int(self.index.codes[0]), int(self.index.codes[-1])

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
    large = len(probe_keys) >= _PARALLEL_PROBE_KEYS
    probed = map_all(lambda run: run.probe(probe_keys), runs, worth_it=large)
    found = [matches for matches in probed if matches is not None]
    return Matches.concatenate(found) if found else Matches.none(with_sequence)


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
        merged = _merge([kept[i] for i in chosen], is_live)
        at = chosen[0]
        kept = [run for i, run in enumerate(kept) if i not in set(chosen)]
        kept.insert(at, merged)
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
    merged = tuple(dict.fromkeys(slot for run in runs for slot in run.members))
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
    return Run(KeyIndex(codes, positions[chosen], sequence, repeats), slots[chosen], merged)
