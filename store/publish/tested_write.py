"""Preparing a write by a winner test that runs elsewhere (publish.range_test).

    held = begin_test(writer, ranges)        # the newest version is held from now on
    shares = ...                             # held.test.run(i) for each range, in any processes
    end_test(writer, held, shares)           # the write is prepared for that version

What is published in between costs what any lost race does: `align_write` brings the plan up to date.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqstore.store.catalog.leases import Lease
from seqstore.store.errors import InvalidInputError
from seqstore.store.publish.prepare_write import Filling
from seqstore.store.publish.range_test import PlanShare, RangeTest, joined
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.publish.write_states import FilledWrite, PendingWrite, PreparedWrite
from seqstore.store.read.table_state import TableState


@dataclass(frozen=True)
class HeldTest:
    """A winner test that other processes run, and the version that it reads.

    Attributes:
        pending: the write that is tested.
        lease: keeps vacuum away from the files of the version; of those of the load, its marker does.
    """

    test: RangeTest
    pending: PendingWrite
    state: TableState
    lease: Lease


def begin_test(writer: TableWriter, ranges: int) -> HeldTest | None:
    """Returns the winner test of a write against the newest version; None where preparing needs more than
    it: partial updates, overwrites, a write without rows, and one that is prepared already.

    Raises:
        ConflictError: rows that were read have changed, or the table's schema.
    """
    pending = writer.write
    if not isinstance(pending, PendingWrite) or not pending.can_be_tested_elsewhere:
        return None
    state, lease = writer.hold_checked()
    stager = writer.target.stager
    test = RangeTest.of(state, pending.row_segments, stager.disk, stager.directory, ranges)
    return HeldTest(test, pending, state, lease)


def end_test(writer: TableWriter, held: HeldTest, shares: Sequence[PlanShare]) -> None:
    """Prepares the write by the shares of all ranges, in any order; a range may be there more than once.

    Raises:
        InvalidInputError: the write was changed since, or the shares are not those of the test.
    """
    by_number = {share.number: share for share in shares if share.version == held.state.version}
    if writer.write is not held.pending or by_number.keys() != set(range(held.test.ranges)):
        raise InvalidInputError(
            f"{writer.table.name}: expected the {held.test.ranges} shares of the winner test of the rows "
            f"written, found {len(by_number)}; begin another test",
            kind="other_test",
        )
    published = held.pending.row_segments
    with Filling(writer.target.stager) as filling:
        filled = FilledWrite(filling.finish(held.pending, published), (), tuple(published))
    plan = joined([by_number[number] for number in sorted(by_number)])
    writer.write = PreparedWrite(filled, held.state, plan, held.lease)
