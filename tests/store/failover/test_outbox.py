"""How far a process knows a catalog to be shipped, and what its next commit stores of that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seqstore import Settings, Store
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.ship_log import shipper
from seqstore.store.catalog.ship_log.outbox import OUTBOX, Shipped, read_shipped, store_journal


class _UndoneError(Exception):
    """Rolls a transaction back."""


@pytest.fixture
def tx(tmp_path: Path) -> Iterator[CatalogTransaction]:
    """A transaction of a store with one commit that is not shipped; nothing of it stays."""
    later = Settings(ship_seconds=3600)
    with Store.open(tmp_path / "data", settings=later, segments=f"file://{tmp_path}/segments") as store:
        store.shipping.begin(str(tmp_path / "shipped"))
        store.create_database("waiting")
        with suppress(_UndoneError), store.catalog.write() as opened:
            yield opened
            raise _UndoneError


def shipped(tx: CatalogTransaction) -> Shipped:
    """How far the catalog says it was shipped."""
    found = read_shipped(tx)
    assert found is not None
    return found


def test_a_commit_stores_how_far_its_process_has_shipped(tx: CatalogTransaction) -> None:
    before = shipped(tx)
    known = replace(before, position=before.position + 1, commit=before.commit + 1, base=0)
    store_journal(tx, known)
    assert shipped(tx) == replace(known, base=before.base)
    assert not list(tx.items(OUTBOX))


def test_a_new_base_copy_is_stored_without_a_new_log_object(tx: CatalogTransaction) -> None:
    known = replace(shipped(tx), base=shipped(tx).base + 1)
    store_journal(tx, known)
    assert shipped(tx) == known


@pytest.mark.parametrize("change", [{"epoch": 2, "position": 99}, {"position": 0}, {"base": 0}, {}])
def test_what_a_process_knows_of_another_epoch_or_of_before_changes_nothing(
    tx: CatalogTransaction, change: dict[str, Any]
) -> None:
    before = shipped(tx)
    store_journal(tx, replace(before, **change, commit=before.commit + 1))
    assert shipped(tx) == before
    assert len(list(tx.items(OUTBOX))) == 1


def test_a_process_that_has_not_shipped_changes_nothing(tx: CatalogTransaction) -> None:
    before = shipped(tx)
    store_journal(tx, None)
    assert shipped(tx) == before


MIB = 2**20


@pytest.mark.parametrize(
    ("base", "base_mib", "log_mib", "is_due"),
    [
        (0, 0, 0, True),
        (0, 0, 100, True),
        (3, 1, 64, False),
        (3, 1, 65, True),
        (3, 100, 65, False),
        (3, 100, 100, False),
        (3, 100, 101, True),
    ],
)
def test_a_base_copy_is_due_without_one_and_when_the_log_is_larger(
    base: int, base_mib: int, log_mib: int, is_due: bool
) -> None:
    state = Shipped(1, "", 9, b"", 9, base, base_mib * MIB, log_mib * MIB)
    assert state.wants_base is is_due


def test_a_process_knows_the_newest_state_of_its_lease() -> None:
    known = Shipped(2, "", 9, b"", 9)
    for found, expected in (
        (replace(known, position=8), known),
        (replace(known, position=9, digest=b"x"), known),
        (newer := replace(known, position=10), newer),
        (other := replace(known, epoch=3, position=1), other),
        (fenced := replace(known, position=8, fenced="another host took over"), fenced),
    ):
        assert shipper._newer(found, known) == expected
        assert shipper._newer(found, None) == found


def test_each_shipped_object_is_one_position_further() -> None:
    state = Shipped(2, "t", 9, b"old", 40, base=3, base_bytes=5, log_bytes=100)
    assert shipper._after(state, b"new", 44, 7) == Shipped(2, "t", 10, b"new", 44, 3, 5, 107)


@pytest.mark.parametrize(
    ("epoch", "base", "lacks"), [(1, 0, True), (1, 3, False), (2, 0, False), (2, 3, False)]
)
def test_nothing_can_be_restored_before_the_first_base_copy(epoch: int, base: int, lacks: bool) -> None:
    """A host that took over was restored from one, and makes its own in time."""
    assert Shipped(epoch, "", 9, b"", 9, base).lacks_base is lacks
