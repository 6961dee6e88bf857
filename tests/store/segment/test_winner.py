"""The winner of several rows of one key, against the rule applied row by row."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from seqstore.store.segment.dedupe import argsort_codes
from seqstore.store.segment.sequence import SequenceVector
from seqstore.store.segment.winner import (
    NO_RANK,
    last_of,
    loses,
    order_winner_first,
    order_winner_last,
    ranked,
    reaching,
    running_largest,
)
from seqstore.store.types.column_types import parse_type
from tests.seeds import new_seed

BIGINT = parse_type("BIGINT")
VALUES = [None, -(2**63), -1, 0, 7]  # NULL is below the smallest value, and ties with NULL
Rows = list[tuple[int, int | None]]  # key and sequence, in order of key and arrival


def encoded(values: list[int | None]) -> SequenceVector:
    return SequenceVector.encode(pa.array(values, pa.int64()), BIGINT)


def comparable(value: int | None) -> tuple[bool, int]:
    return value is not None, value or 0


@pytest.fixture(params=range(20))
def rows(request: pytest.FixtureRequest) -> Rows:
    choose = random.Random(request.param)
    return [(key, choose.choice(VALUES)) for key in range(5) for _ in range(choose.randint(1, 4))]


def winner_of(rows: Rows, key: int) -> int:
    """The position of the row with the largest sequence of a key, of equal ones the last."""
    mine = [place for place, row in enumerate(rows) if row[0] == key]
    return max(mine, key=lambda place: (comparable(rows[place][1]), place))


def test_a_later_row_loses_only_to_a_larger_sequence() -> None:
    pairs = [(later, earlier) for later in VALUES for earlier in VALUES]
    found = loses(encoded([later for later, _ in pairs]), encoded([earlier for _, earlier in pairs]))
    assert found.tolist() == [comparable(later) < comparable(earlier) for later, earlier in pairs]


def test_the_winner_is_last_or_first_of_its_key(rows: Rows) -> None:
    keys, sequences = [key for key, _ in rows], [value for _, value in rows]
    arrival = np.arange(len(rows))
    last = order_winner_last(arrival, np.array(keys), encoded(sequences))
    table = pa.table({"k": keys, "s": pa.array(sequences, pa.int64()), "arrival": arrival})
    first = order_winner_first(table, ["k"], ["s", "arrival"]).to_pylist()
    for key in set(keys):
        assert [int(place) for place in last if keys[place] == key][-1] == winner_of(rows, key)
        assert next(place for place in first if keys[place] == key) == winner_of(rows, key)


@pytest.mark.parametrize("stored", VALUES)
def test_rows_on_top_of_a_stored_row_win_unless_they_are_smaller(rows: Rows, stored: int | None) -> None:
    """Keys 0 and 1 have no stored row and start from NULL; some rows do not compete."""
    keys = np.array([key for key, _ in rows])
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    history = np.array([-1, -1, 0, 0, 0])
    competes = np.array([place % 3 != 0 for place in range(len(rows))])
    ranks, start, null = ranked(
        encoded([value for _, value in rows]), encoded([stored]), encoded([None]), history
    )
    assert (start[:2] == null).all()
    ranks = np.where(competes, ranks, NO_RANK)
    running = running_largest(ranks, start, keys)
    reaches, final = reaching(ranks, start, starts, keys)
    winners = last_of(reaches, starts)
    for key in range(5):
        largest, winner = comparable(stored if history[key] == 0 else None), -1
        for place, (own, value) in enumerate(rows):
            if own != key:
                continue
            if competes[place]:
                assert (ranks[place] < running[place]) == (comparable(value) < largest)
                if comparable(value) >= largest:
                    largest, winner = comparable(value), place
        assert winners[key] == winner
        assert (final[key] == null) == (largest == comparable(None))


@pytest.mark.parametrize("bits", [2, 8, 40, 64])
@pytest.mark.parametrize("is_high", [False, True], ids=["low bits", "leading bits"])
def test_codes_are_sorted_as_by_a_stable_sort(bits: int, is_high: bool) -> None:
    """Codes that differ only in the bits that the row number replaces are sorted, too."""
    seed = new_seed()
    rng = np.random.default_rng(seed)
    for rows in (1, 2, 3, 50, 5_000):
        codes = rng.integers(0, 2**bits - 1, rows, dtype=np.uint64, endpoint=True)
        codes <<= np.uint64(64 - bits if is_high else 0)
        expected = np.argsort(codes, kind="stable")
        assert argsort_codes(codes).tolist() == expected.tolist(), f"seed {seed}, {rows} rows"
