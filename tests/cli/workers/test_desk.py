"""The hub's answers: seats in order, places of connections, failures of logins, rounds of questions."""

from __future__ import annotations

from typing import Any

import pytest

from seqstore.cli.clients.admission import ConnectionLimits
from seqstore.cli.clients.login_guard import FAILURES_AT_ONCE_MAX
from seqstore.cli.workers import desk as desk_module
from seqstore.cli.workers.balance import Balance
from seqstore.cli.workers.desk import NUMBERS, Desk
from seqstore.cli.workers.seats import Seats


class Hub:
    """A desk, and what it has sent to each worker."""

    def __init__(self, *ready: int, **limits: int) -> None:
        self.sent: list[tuple[int, list[Any]]] = []
        self.ready = dict.fromkeys(ready, True)
        self.desk = Desk(ConnectionLimits(**limits), lambda *sent: self.sent.append(sent), self.workers)

    def workers(self) -> list[tuple[int, int, bool]]:
        return [(number, number - 1, is_ready) for number, is_ready in self.ready.items()]

    def ask(self, worker: int, number: int, *request: Any) -> list[Any] | None:
        """Sends a request; returns the reply, None when there is none yet."""
        self.sent.clear()
        self.desk.handle(worker, [number, *request])
        return next((frame for to, frame in self.sent if to == worker and frame[0] == number), None)


def test_numbers_of_workers_never_meet() -> None:
    hub = Hub(1, 2)
    first, second = hub.ask(1, 1, "numbers"), hub.ask(2, 1, "numbers")
    assert (first, second) == ([1, "reply", 1], [1, "reply", 1 + NUMBERS])


def test_seats_are_given_in_the_order_of_requests() -> None:
    hub = Hub(1, 2)
    assert hub.ask(1, 1, "take", "loads ann", 1, 9) == [1, "reply", True]
    assert hub.ask(2, 1, "take", "loads ann", 1, 9) is None
    assert hub.ask(1, 2, "take", "loads ann", 1, 9) is None
    assert hub.ask(1, 3, "take", "loads bob", 1, 9) == [3, "reply", True]
    hub.ask(1, 0, "leave", 1)
    assert hub.sent == [(2, [1, "reply", True])]


def test_a_queue_that_is_full_refuses() -> None:
    hub = Hub(1)
    hub.ask(1, 1, "take", "group g", 1, 1)
    hub.ask(1, 2, "take", "group g", 1, 1)
    assert hub.ask(1, 3, "take", "group g", 1, 1) == [3, "reply", False]
    assert hub.ask(1, 4, "seats", "group g") == [4, "reply", (1, 1)]


def test_more_seats_are_given_to_those_that_wait() -> None:
    hub = Hub(1)
    hub.ask(1, 1, "take", "group g", 1, 9)
    hub.ask(1, 2, "take", "group g", 1, 9)
    hub.ask(1, 0, "limit", "group g", 2)
    assert hub.sent == [(1, [2, "reply", True])]


def test_a_dead_worker_frees_its_seats_for_others_and_none_for_itself() -> None:
    hub = Hub(1, 2)
    hub.ask(1, 1, "take", "group g", 1, 9)
    hub.ask(1, 2, "take", "group g", 1, 9)
    hub.ask(2, 7, "take", "group g", 1, 9)
    hub.sent.clear()
    hub.desk.forget(1)
    assert hub.sent == [(2, [7, "reply", True])]


def test_a_dead_worker_frees_its_connections() -> None:
    hub = Hub(1, 2, connections_max=9, user_connections_max=1)
    assert hub.ask(1, 1, "admit", 5, "ann", False) == [1, "reply", None]
    refused = hub.ask(2, 1, "admit", 70, "ann", False)
    assert refused is not None
    assert refused[1:3] == ["refused", "UnavailableError"]
    hub.desk.forget(1)
    assert hub.ask(2, 2, "admit", 70, "ann", False) == [2, "reply", None]


def test_no_more_passwords_are_compared_at_once_than_may_be_wrong() -> None:
    hub = Hub(1, 2)
    for number in range(1, FAILURES_AT_ONCE_MAX + 1):
        assert hub.ask(number % 2 + 1, number, "check", "1.2.3.4", "ann") == [number, "reply", None]
    assert hub.ask(1, 99, "check", "1.2.3.4", "ann") is None, "it waits for the others"
    assert hub.ask(1, 100, "check", "1.2.3.5", "ann") == [100, "reply", None], "another address does not"
    for _ in range(FAILURES_AT_ONCE_MAX):
        hub.ask(1, 0, "checked", "1.2.3.4", "ann", False)
    assert hub.sent[0][1][:3] == [99, "refused", "AccessDeniedError"]


def test_a_right_password_lets_the_next_one_be_compared() -> None:
    hub = Hub(1)
    for number in range(1, FAILURES_AT_ONCE_MAX + 2):
        reply = hub.ask(1, number, "check", "1.2.3.4", "ann")
    assert reply is None
    hub.ask(1, 0, "checked", "1.2.3.4", "ann", True)
    assert hub.sent == [(1, [FAILURES_AT_ONCE_MAX + 1, "reply", None])]


def test_a_dead_worker_compares_no_passwords_any_more() -> None:
    """Its comparisons counted for 30 seconds, and those that waited waited on."""
    hub = Hub(1, 2)
    for number in range(1, FAILURES_AT_ONCE_MAX + 1):
        hub.ask(1, number, "check", "1.2.3.4", "ann")
    assert hub.ask(2, 99, "check", "1.2.3.4", "ann") is None
    assert hub.ask(1, 98, "check", "1.2.3.4", "ann") is None
    hub.sent.clear()
    hub.desk.forget(1)
    assert hub.sent == [(2, [99, "reply", None])]


def test_the_end_of_a_worker_leaves_the_comparisons_of_others() -> None:
    hub = Hub(1, 2)
    for number in range(1, FAILURES_AT_ONCE_MAX + 1):
        hub.ask(1, number, "check", "1.2.3.4", "ann")
    hub.desk.forget(2)
    assert hub.ask(2, 99, "check", "1.2.3.4", "ann") is None


def test_a_defect_in_an_answer_refuses_its_request_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A KeyError ended the hub, and all workers with it."""
    hub = Hub(1)

    def fails(*_: object) -> None:
        raise KeyError("group g")

    with monkeypatch.context() as patch:
        patch.setattr(Seats, "take", fails)
        refused = hub.ask(1, 7, "take", "group g", 1, 9)
    assert refused is not None
    assert refused[1:4] == ["refused", "StoreError", "internal error of the hub: KeyError: 'group g'"]
    assert hub.ask(1, 8, "take", "group g", 1, 9) == [8, "reply", True]


def test_a_question_to_all_has_the_answers_of_those_that_live() -> None:
    hub = Hub(1, 2, 3)
    assert hub.ask(1, 5, "all", "processes") is None
    asked = dict(hub.sent)
    assert asked.keys() == {2, 3}
    hub.desk.handle(2, [asked[2][0], "did", ["a session"]])
    hub.sent.clear()
    hub.desk.forget(3)
    assert hub.sent == [(1, [5, "reply", [(1, ["a session"])]])]


def test_a_question_does_not_wait_for_a_worker_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "ROUND_SECONDS_MAX", 0.0)
    hub = Hub(1, 2)
    assert hub.ask(1, 5, "all", "processes") is None
    assert hub.desk.look() is None
    assert hub.sent[-1] == (1, [5, "reply", []])


def test_a_value_is_told_to_a_worker_that_begins_and_waits_for_the_others_only() -> None:
    hub = Hub(1, 2)
    hub.ready[3] = False
    assert hub.ask(1, 5, "tell", "variables", "query_timeout", "7") is None
    assert {to for to, _ in hub.sent} == {2, 3}
    hub.desk.handle(2, [hub.sent[0][1][0], "did", True])
    assert hub.sent[-1][1][:2] == [5, "reply"]
    assert hub.desk.told == {"variables": {"query_timeout": "7"}}


def test_the_worker_with_the_fewest_clients_is_the_next() -> None:
    balance = Balance(3)
    balance.set(0, 2)
    balance.set(1, 1)
    assert [balance.is_turn_of(place) for place in range(3)] == [False, True, False]
    balance.leave(1)
    assert [balance.is_turn_of(place) for place in range(3)] == [True, False, False]
