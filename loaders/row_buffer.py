"""The mapped batches of one write, and the sources of the rows that it rejects.

One write makes at least one segment, so batches are buffered. More than `ROWS` or `BYTES` would only cost
memory, as would source texts of more than `SOURCE_BYTES`. A load with a low `exec_mem_limit` buffers half of
it (LH24).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.loaders.mapping import MappedBatch
from seqstore.loaders.source import BadRow, Places
from seqstore.store.check.row_checker import RejectedRow

ROWS: Final = 1_000_000
BYTES: Final = 16 << 20
SOURCE_BYTES: Final = 20 << 20


class RowBuffer:
    """Batches in their order, without the source rows."""

    def __init__(self) -> None:
        self._parts: list[tuple[Places, MappedBatch]] = []
        self._rows = 0
        self._bytes = 0
        self._source_bytes = 0
        self._bytes_max = BYTES + SOURCE_BYTES

    def add(self, places: Places, mapped: MappedBatch, held_bytes: int = 0) -> None:
        """Adds a batch; `places` holds `held_bytes` of the body."""
        if len(mapped.rows):
            self._source_bytes += held_bytes
            self._parts.append((places, mapped))
            self._rows += len(mapped.rows)
            self._bytes += mapped.rows.nbytes
            if mapped.memory_bytes:
                self._bytes_max = min(self._bytes_max, mapped.memory_bytes // 2 or 1)

    def __len__(self) -> int:
        """Returns the number of rows."""
        return self._rows

    @property
    def fullness(self) -> float:
        """Returns the used share of the buffer; from 1 on it is full."""
        held = (self._bytes + self._source_bytes) / self._bytes_max
        return max(self._rows / ROWS, self._bytes / BYTES, self._source_bytes / SOURCE_BYTES, held)

    @property
    def is_enough(self) -> bool:
        return self.fullness >= 1

    def rows(self) -> pa.Table:
        """Returns all rows, one after the other."""
        return pa.concat_tables([mapped.rows for _, mapped in self._parts])

    def supplied(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Returns masks of the rows for each column that some of them lack (F9)."""
        batches = [mapped for _, mapped in self._parts]
        names = {name for mapped in batches for name in mapped.supplied}
        return {
            name: np.concatenate(
                [b.supplied.get(name, np.ones(len(b.rows), dtype=np.bool_)) for b in batches]
            )
            for name in sorted(names)
        }

    def sources_of(self, rejected: Sequence[RejectedRow]) -> list[BadRow]:
        """Returns the sources of rejected rows, which are in ascending order."""
        starts = np.cumsum([0, *(len(mapped.rows) for _, mapped in self._parts)])
        found = []
        for row in rejected:
            part = int(np.searchsorted(starts, row.row, side="right")) - 1
            places, mapped = self._parts[part]
            position = int(mapped.positions[row.row - starts[part]])
            lost = mapped.lost.get((position, row.column))
            reason = f"{row.reason}: {lost}" if lost is not None else row.reason
            found.append(BadRow.at(places([position])[0], reason))
        return found
