"""Leases: the versions that live processes hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqstore import UnavailableError
from seqstore.store.catalog import leases
from seqstore.store.catalog.leases import Leases


def test_a_version_is_held_until_its_last_holder_releases_it(tmp_path: Path) -> None:
    """A vacuum would remove the files of the other holder."""
    found = Leases(tmp_path)
    first, second, other = (found.acquire(1, version) for version in (5, 5, 6))
    first.release()
    assert (found.held(1), found.holds(1, 5)) == ({5, 6}, True)
    second.release()
    assert (found.held(1), found.holds(1, 5)) == ({6}, False)
    other.release()
    assert found.held(1) == set()


def test_a_released_place_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process has a fixed number of places, and would hold no version once each was used."""
    monkeypatch.setattr(leases, "_SLOTS", 2)
    found = Leases(tmp_path)
    for version in range(1, 6):
        found.acquire(1, version).release()
    kept = [found.acquire(1, version) for version in (7, 8)]
    with pytest.raises(UnavailableError, match="holds 2 versions open"):
        found.acquire(1, 9)
    kept.pop().release()
    found.acquire(1, 9).release()
    assert found.held(1) == {7}
