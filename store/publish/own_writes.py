"""The writes of a transaction on one table, laid on the state that it reads, for its next statement.

Statement after statement, as publishing would do it on that state:

1. A delta is filled on the state so far, and staged.
2. Each segment is tested against the state so far, by the winner test: a row with a smaller sequence than the
   stored one loses, and a reader does not see it.
3. The state with the segments and without the rows that they hide is the state of the next statement.

The segments stand in no catalog record. If the state is still the newest one when the transaction commits,
the preparation is done already; otherwise everything is prepared anew on the newest one.
"""

from __future__ import annotations

from seqstore.store.publish.prepare_write import Filling, stage_part
from seqstore.store.publish.winner_test import Planner
from seqstore.store.publish.write_states import FilledWrite, PendingWrite, PreparedWrite
from seqstore.store.read.table_state import TableState
from seqstore.store.segment.segment import Segment
from seqstore.store.segment.stager import Stager


class OwnWrites:
    """Use from one thread.

    Attributes:
        base: the state without the writes.
        filled: the segments that deltas became.
    """

    def __init__(self, base: TableState, stager: Stager) -> None:
        self.base = base
        self.filled: list[Segment] = []
        self._filling = Filling(stager)
        self._planner = Planner(base)
        self._published: list[Segment] = []
        self._late = self._superseded = 0

    @property
    def state(self) -> TableState:
        """The table with all writes so far. Its version is that of the base."""
        return self._planner.state

    def add(self, write: PendingWrite) -> None:
        """Lays the write of one statement on the others; nothing of it stays when it fails.

        Raises:
            InvalidInputError: a delta cannot be filled, or a filled row breaks a CHECK.
        """
        for part in write.parts:
            staged = stage_part(part, self._planner, self._filling)
            self.filled += staged.filled
            self._late += staged.late
            self._superseded += staged.superseded
            self._published += staged.segments

    def prepared(self, pending: PendingWrite) -> PreparedWrite:
        """Returns the prepared form of everything that was added, for the base; called once."""
        counted = self._filling.finish(pending, self._published)
        published = tuple(self._published)
        done = FilledWrite(counted, tuple(self.filled), published, {}, self._late, self._superseded)
        return PreparedWrite(done, self.base, self._planner.finish())
