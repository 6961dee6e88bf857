"""What idle sessions keep: the bytes of each user, and of all together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seqstore.store.errors import UnavailableError
from seqstore.store.runtime import held_memory
from seqstore.store.runtime.held_memory import HeldMemory

LIMIT = 64 << 20
USER_MAX = LIMIT // 16


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_memory, "limit_bytes", lambda: LIMIT)


@pytest.fixture
def ann() -> Iterator[HeldMemory]:
    held = HeldMemory("ann")
    yield held
    held.close()


def test_a_user_keeps_no_more_than_its_part_over_all_sessions(ann: HeldMemory) -> None:
    ann.set("x", USER_MAX - 1)
    second = HeldMemory("ann")
    with pytest.raises(UnavailableError, match=r"4095 KiB .* 0 KiB more .* 4096 KiB") as refused:
        second.set("y", 2)
    assert refused.value.kind == "out_of_memory"
    ann.close()
    second.set("y", USER_MAX)
    second.close()


def test_the_new_size_of_a_thing_takes_the_place_of_the_old_one(ann: HeldMemory) -> None:
    ann.set("x", USER_MAX)
    ann.set("x", USER_MAX)
    ann.set("x", 0)
    ann.set("y", USER_MAX)


def test_all_users_together_keep_no_more_than_twice_the_part_of_one(ann: HeldMemory) -> None:
    others = [HeldMemory(name) for name in ("bob", "eve")]
    ann.set("x", USER_MAX)
    others[0].set("x", USER_MAX)
    with pytest.raises(UnavailableError, match="of all users"):
        others[1].set("x", USER_MAX)
    others[1].set("x", 1 << 20)  # so much a user may always keep
    for each in others:
        each.close()


def test_a_block_that_fails_leaves_the_size_as_it_was(ann: HeldMemory) -> None:
    ann.set("x", 1)
    with pytest.raises(ValueError, match="bad"), ann.changed("x", USER_MAX):
        raise ValueError("bad")
    ann.set("y", USER_MAX - 1)


def test_a_session_that_has_ended_is_not_counted(ann: HeldMemory) -> None:
    """A statement that ran on while its session was closed would count for ever."""
    ended = HeldMemory("ann")
    ended.close()
    ended.set("x", USER_MAX)
    ann.set("x", USER_MAX)


def test_a_session_without_a_user_is_not_counted() -> None:
    HeldMemory(None).set("x", 2 * LIMIT)
