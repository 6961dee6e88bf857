"""Directories of tables that a RESTORE SNAPSHOT is about to make."""

from __future__ import annotations

import pytest

from seqstore import Store
from seqstore.store.catalog.reserved_tables import FINAL_STATES, RESTORE_KIND, reserved_directories

RUNNING = ("PENDING", "DOWNLOADING", "COMMIT")


def reserved(store: Store, kind: str, *jobs: tuple[str, dict[str, int]]) -> set[str]:
    """The directories with jobs of one kind, each a state and the ids of its tables by name."""
    with store.catalog.write() as tx:
        for number, (state, ids) in enumerate(jobs):
            tx.put("jobs", f"{kind}{number}".encode(), {"kind": kind, "job": {"state": state, "ids": ids}})
        found = reserved_directories(tx)
        for number in range(len(jobs)):
            tx.delete("jobs", f"{kind}{number}".encode())
    return found


@pytest.mark.parametrize("state", RUNNING)
def test_a_restoration_that_runs_has_the_directories_of_its_tables(store: Store, state: str) -> None:
    assert reserved(store, RESTORE_KIND, (state, {"a": 7, "b": 9})) == {"tables/7", "tables/9"}


@pytest.mark.parametrize("state", FINAL_STATES)
def test_a_restoration_that_has_ended_has_none(store: Store, state: str) -> None:
    assert reserved(store, RESTORE_KIND, (state, {"a": 7})) == set()
    assert reserved(store, RESTORE_KIND, (state, {"a": 7}), ("PENDING", {"c": 8})) == {"tables/8"}


@pytest.mark.parametrize("kind", ["backup", "broker"])
def test_jobs_of_other_kinds_have_none(store: Store, kind: str) -> None:
    assert reserved(store, kind, ("PENDING", {"a": 7})) == set()
