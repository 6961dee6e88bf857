"""The replies to changes: they are dropped for newer ones, and their requests do not run again."""

from __future__ import annotations

import pytest

from seqstore.cli.remote import replies as module
from seqstore.cli.remote.replies import Replies

LARGE = b"x" * (17 << 20)


@pytest.fixture
def replies() -> Replies:
    """The reply of request 5 is forgotten, for the large one of request 6."""
    made = Replies()
    made.once("5-a", lambda: b"first")
    made.once("6-b", lambda: LARGE)
    return made


def refuse() -> bytes:
    raise AssertionError("the request ran again")


def test_a_reply_is_found(replies: Replies) -> None:
    assert replies.find("6-b", 0) == LARGE


def test_a_request_whose_reply_is_forgotten_does_not_run_again(replies: Replies) -> None:
    assert replies.once("5-a", refuse) is None


def test_a_request_whose_reply_is_forgotten_is_told_from_one_that_never_arrived(replies: Replies) -> None:
    asked = ("5-a", "4-c", "7-d", "no number")
    assert [replies.find(each, 0) for each in asked] == [None] * 4
    assert [replies.is_forgotten(each) for each in asked] == [True, False, False, False]


def test_a_request_as_old_as_one_whose_id_is_forgotten_may_have_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids of 3 and 9 are dropped: requests of several threads do not arrive in their order."""
    monkeypatch.setattr(module, "_IDS_MAX", 2)
    replies = Replies()
    for number in (3, 9, 5, 7, 10):
        replies.once(f"{number}-x", lambda: LARGE)
    asked = [each for each in range(1, 13) if replies.find(f"{each}-x", 0) is None]
    assert [each for each in asked if replies.is_forgotten(f"{each}-x")] == list(range(1, 10))
