"""What a table must hold, worked out with NumPy alone: per key the largest sequence wins, then the last row.

Keys are small whole numbers here, so the oracle needs neither sorting nor hashing: it keeps, indexed by key,
the largest sequence so far and which row of which load has it. It shares no code and no idea with the engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.inputs.orders import KEY, SCHEMA, SEQUENCE, fingerprints

_NOTHING: Final = -1


class Load(Protocol):
    """Rows given to a table in one load."""

    @property
    def rows(self) -> pa.Table: ...

    @property
    def is_delete(self) -> bool: ...


@dataclass(frozen=True)
class LoadedRows:
    """Rows given to a table in one load."""

    rows: pa.Table
    is_delete: bool = False


class Oracle:
    """The state after some loads.

    Args:
        keys: keys are 0 to this, exclusive.
        loads: in the order they were made.
    """

    def __init__(self, keys: int, loads: Iterable[Load] = ()) -> None:
        self._loads: list[Load] = []
        self._largest = np.full(keys, np.iinfo(np.int64).min)
        self._load = np.full(keys, _NOTHING, dtype=np.int32)
        self._row = np.full(keys, _NOTHING, dtype=np.int64)
        for load in loads:
            self.apply(load)

    def apply(self, load: Load) -> None:
        """Takes one more load into account."""
        rows = load.rows
        keys, sequence = _numbers(rows, KEY), _numbers(rows, SEQUENCE)
        np.maximum.at(self._largest, keys, sequence)
        winners = np.flatnonzero(sequence == self._largest[keys])
        touched = keys[winners]
        self._row[touched] = _NOTHING
        np.maximum.at(self._row, touched, winners)
        self._load[touched] = len(self._loads)
        self._loads.append(load)

    @property
    def load_count(self) -> int:
        """How many loads it has taken into account."""
        return len(self._loads)

    @property
    def live(self) -> npt.NDArray[np.bool_]:
        """By key: is there a row?"""
        # A last entry of False answers for keys that no load named: their load is number -1.
        is_row = np.array([*(not load.is_delete for load in self._loads), False])
        result: npt.NDArray[np.bool_] = is_row[self._load]
        return result

    def live_tables(self) -> list[pa.Table]:
        """The live rows, a table per load that has some."""
        tables = []
        for number, load in enumerate(self._loads):
            places = np.sort(self._row[self._load == number])
            if len(places) and not load.is_delete:
                rows = load.rows
                mask = np.zeros(len(rows), dtype=np.bool_)
                mask[places] = True
                tables.append(rows.filter(pa.array(mask)))
        return tables

    def differences(
        self, found: Iterable[pa.RecordBatch], *, among: npt.NDArray[np.int64] | None = None
    ) -> list[str]:
        """Compares rows with this state, every value of them; empty means equal.

        Args:
            found: what a reader returned, in any order.
            among: the keys that were asked for; None means all.
        """
        live = self.live
        if among is not None:
            asked = np.zeros(len(live), dtype=np.bool_)
            asked[among] = True
            live &= asked
        expected = self._fingerprints(live)
        seen = np.zeros(len(live), dtype=np.uint8)
        different = 0
        for batch in found:
            rows = _conformed(batch)
            keys = np.asarray(rows.column(KEY))
            if len(keys) and (int(keys.min()) < 0 or int(keys.max()) >= len(live)):
                return ["rows of keys that were never loaded"]
            np.add.at(seen, keys, 1)
            different += int((fingerprints(rows) != expected[keys]).sum())
        counts = {
            "missing rows": int((live & (seen == 0)).sum()),
            "rows that should not be there": int((~live & (seen > 0)).sum()),
            "keys with several rows": int((seen > 1).sum()),
            "rows with other values": different,
        }
        return [f"{count} {what}" for what, count in counts.items() if count]

    def _fingerprints(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
        """By key, of the wanted keys; 0 for the others."""
        result = np.zeros(len(self._load), dtype=np.uint64)
        for number, load in enumerate(self._loads):
            keys = np.flatnonzero(wanted & (self._load == number))
            if len(keys) and not load.is_delete:
                keys = keys[np.argsort(self._row[keys])]
                result[keys] = _fingerprints_of(load.rows, self._row[keys])
        return result


def _fingerprints_of(rows: pa.Table, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Of the rows at some positions, which ascend."""
    parts = [np.empty(0, dtype=np.uint64)]
    low = 0
    for batch in rows.to_batches():
        first, last = np.searchsorted(positions, (low, low + len(batch)))
        inside = positions[first:last] - low
        low += len(batch)
        if len(inside) == len(batch):
            parts.append(fingerprints(batch))
        elif len(inside):
            parts.append(fingerprints(batch.take(pa.array(inside))))
    return np.concatenate(parts)


def _numbers(rows: pa.Table, name: str) -> npt.NDArray[np.int64]:
    return np.asarray(rows.column(name)).astype(np.int64, copy=False)


def _conformed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the columns and types of `rows.SCHEMA`."""
    columns = [batch.column(field.name).cast(field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, names=SCHEMA.names)
