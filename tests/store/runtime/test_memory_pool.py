"""Memory that requests wait for: that of all, and half of it for the requests of one owner."""

from __future__ import annotations

import pytest

from seqstore.store.errors import UnavailableError
from seqstore.store.runtime import memory_pool
from seqstore.store.runtime.memory_pool import MemoryPool

MOST = 100


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> MemoryPool:
    """One that waits for nothing."""
    monkeypatch.setattr(memory_pool, "limit_bytes", lambda: MOST)
    monkeypatch.setattr(memory_pool, "_WAIT_SECONDS_MAX", -1.0)
    return MemoryPool("a test", 1.0, 0)


def test_requests_of_one_owner_leave_half_to_others(pool: MemoryPool) -> None:
    pool.take(30, "ann")
    with pytest.raises(UnavailableError, match="try again later"):
        pool.take(30, "ann")
    pool.take(20, "ann")
    pool.take(50, "bob")


def test_blocks_of_one_owner_leave_half_to_others(pool: MemoryPool) -> None:
    with pool.reserved(60, "ann"), pool.reserved(40, "bob"):
        pass
    with pool.reserved(30, "ann"), pytest.raises(UnavailableError), pool.reserved(30, "ann"):
        pass
    pool.take(MOST)


def test_one_request_alone_may_have_all(pool: MemoryPool) -> None:
    pool.take(40, "ann")
    pool.take(60, "ann", own=40)  # a later part of the same request
    with pytest.raises(UnavailableError):
        pool.take(1, "bob")
    pool.give_back(100, "ann")
    pool.take(100, "ann")


def test_what_is_given_back_is_no_more_that_of_its_owner(pool: MemoryPool) -> None:
    pool.take(50, "ann")
    pool.give_back(50, "ann")
    pool.take(50, "ann")
