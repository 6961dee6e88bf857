"""Tablets: shares of the rows of one version, which several readers read at the same time.

Doris's connectors plan a read by tablets and read each in a task of its own, `SELECT .. FROM t TABLET(id)`.
Here a tablet is some segments of one version:

1. The segments that have a live row are taken in the order of their ids, which never change as slots do. As
   many neighbours share a tablet as have `TABLET_ROWS` rows together; a larger segment is one of its own.
2. The id holds the version and the place of the tablet: all tasks of a read see one version, and the server
   remembers nothing. The segments of a version never change, for compaction makes a version of its own.

A table without rows has one tablet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from seqstore.store.errors import InvalidInputError, NotFoundError
from seqstore.store.read.table_state import TableState

TABLET_ROWS: Final = 1 << 20
_PLACE_BITS: Final = 20
_ID_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True)
class Tablets:
    """Some tablets of one version, as TABLET(..) names them.

    Attributes:
        places: of the tablets, in the order of the version's tablets.
    """

    version: int
    places: tuple[int, ...]

    @classmethod
    def of(cls, ids: Sequence[int]) -> Tablets:
        """Reads the ids of one or more tablets.

        Raises:
            InvalidInputError: no ids, or those of several versions.
        """
        versions = {number >> _PLACE_BITS for number in ids}
        if len(versions) != 1 or not all(0 <= number <= _ID_MAX for number in ids):
            raise InvalidInputError(
                f"TABLET({', '.join(map(str, ids))}): expected the ids of one version of the table, as "
                "_query_plan returns them; plan the read again",
                kind="bad_tablet",
            )
        return cls(versions.pop(), tuple(number & ((1 << _PLACE_BITS) - 1) for number in ids))


def tablet_ids(state: TableState) -> list[int]:
    """Returns the ids of all tablets of a version."""
    return [state.version << _PLACE_BITS | place for place in range(len(_shares(state)))]


def of_tablets(state: TableState, tablets: Tablets) -> TableState:
    """Returns a version with only the segments of some of its tablets.

    Raises:
        NotFoundError: the version has no such tablet.
    """
    shares = _shares(state)
    unknown = [place for place in tablets.places if place >= len(shares)]
    if unknown:
        raise NotFoundError(
            f"version {state.version} has {len(shares)} tablets, there is no tablet "
            f"{state.version << _PLACE_BITS | unknown[0]}; plan the read again",
            kind="unknown_tablet",
        )
    return state.with_only([slot for place in sorted(set(tablets.places)) for slot in shares[place]])


def _shares(state: TableState) -> list[list[int]]:
    shares: list[list[int]] = [[]]
    rows = 0
    for slot in sorted(state.segments, key=lambda slot: state.segments[slot].segment.meta.id):
        live = state.segments[slot]
        if not live.deletes.live_count:
            continue
        if shares[-1] and rows + live.segment.rows > TABLET_ROWS:
            shares.append([])
            rows = 0
        shares[-1].append(slot)
        rows += live.segment.rows
    return shares
