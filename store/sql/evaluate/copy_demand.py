"""What queries read of the versions of a table, and when that is worth a copy of columns.

A version is worth a copy after `READS_MIN` queries that together took a share of the time that the copy will
take, and the changes of a copy that there is after queries that took this share of their time. The share
doubles with each version whose copy was hardly used, up to `SHARE_MAX`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from seqstore.store.read.snapshot import Snapshot
from seqstore.store.read.table_state import StateIdentity

READS_MIN: Final = 3
SHARE_MIN, SHARE_MAX = 0.25, 16.0  # of the time of a copy
SECONDS_MIN: Final = 0.01
SECONDS_A_VALUE: Final = 40e-9
SECONDS_A_ROW: Final = 20e-9  # of a copy that follows
REST_SECONDS: Final = 600.0


@dataclass(eq=False)
class Demand:
    """What queries read of the newest version of a table that they read.

    Attributes:
        share: of the time of a copy that queries must have taken.
        columns: that they read, as the keys, in the order of their first use.
        reads: queries since the last copy was made or changed.
        seconds: what these queries took.
        rests_until: no copy is made before this moment, as one failed or had no room.
    """

    version: int
    identity: StateIdentity
    share: float = field(default_factory=lambda: SHARE_MIN)
    columns: dict[str, None] = field(default_factory=dict)
    reads: int = 0
    seconds: float = 0.0
    rests_until: float = 0.0

    def at(self, snapshot: Snapshot, *, was_used: bool | None) -> Demand:
        """Returns that of a later version.

        Args:
            was_used: the copy of this version saved more time than it took; None without one.
        """
        share = self.share
        if was_used is not None:
            share = SHARE_MIN if was_used else min(share * 2, SHARE_MAX)
        return Demand(snapshot.version, snapshot.identity, share)

    def is_due(self, *, follows: bool) -> bool:
        """Returns whether the version is worth a copy, by changes of one that there is or by a new one."""
        if time.monotonic() < self.rests_until:
            return False
        a_row = SECONDS_A_ROW if follows else len(self.columns) * SECONDS_A_VALUE
        wanted = (SECONDS_MIN + self.identity.live_rows * a_row) * self.share
        return self.seconds >= wanted and (follows or self.reads >= READS_MIN)

    def begin_again(self) -> None:
        """Forgets the queries so far: they have brought about a copy."""
        self.reads, self.seconds = 0, 0.0

    def rest(self) -> None:
        """Wants no copy for a while, and the next one dearer."""
        self.begin_again()
        self.share = min(self.share * 2, SHARE_MAX)
        self.rests_until = time.monotonic() + REST_SECONDS
