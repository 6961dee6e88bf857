"""What the sessions of a worker share with those of the others, by way of the hub (`cli.clients.shared`)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final

from seqstore.cli.clients.admission import Admission, ConnectionLimits
from seqstore.cli.clients.login_guard import LoginGuard
from seqstore.cli.clients.shared import Families, Shared
from seqstore.cli.workers.desk import NUMBERS
from seqstore.cli.workers.hub_client import HubClient
from seqstore.store.catalog.workload_groups import CONCURRENCY_MAX, WorkloadGroup
from seqstore.store.runtime import cancellation
from seqstore.store.sql.session.server_context import Process, Processes
from seqstore.store.sql.session.workload import WorkloadQueues, queue_full, queue_timeout

_LOOK_SECONDS: Final = 0.1
_TEXT_CHARACTERS_MAX: Final = 16_384  # of a statement that another worker runs
_WAITING_MAX: Final = 1 << 31


def shared_by(hub: HubClient, place: int, workers: int, told: dict[str, Any]) -> Shared:
    """Returns the shared parts of a worker.

    Args:
        place: of the worker, from 0.
        workers: how many there are.
        told: what workers told each other before this one began.
    """
    replicas = _Replicas(hub, told)
    hub.answer("learn", replicas.learn)
    return Shared(
        guard=SharedGuard(hub),
        processes=SharedProcesses(hub),
        global_variables=SharedVariables(replicas),
        queues=SharedQueues(hub),
        new_number=_Numbers(hub).next,
        admission=partial(SharedAdmission, hub),
        user_loads=partial(SharedUserLoads, hub, workers),
        tokens=_Told(replicas, "tokens"),
        cookies=_Told(replicas, "cookies"),
        worker=place,
        metrics=partial(_metrics_of_others, hub),
    )


class _Numbers:
    """Numbers of connections, which the hub gives out in blocks."""

    def __init__(self, hub: HubClient) -> None:
        self._hub = hub
        self._lock = threading.Lock()
        self._next = self._end = 0

    def next(self) -> int:
        with self._lock:
            if self._next == self._end:
                self._next = self._hub.call("numbers")
                self._end = self._next + NUMBERS
            self._next += 1
            return self._next - 1


class _Replicas:
    """What workers told each other, by kind."""

    def __init__(self, hub: HubClient, told: dict[str, Any]) -> None:
        self._hub = hub
        self._told = told
        self._lock = threading.Lock()
        self._followers: dict[str, Callable[[Any, Any], None]] = {}

    def tell(self, kind: str, key: Any, value: Any) -> None:
        self._hub.call("tell", kind, key, value)

    def follow(self, kind: str, learn: Callable[[Any, Any], None]) -> None:
        with self._lock:
            for key, value in self._told.pop(kind, {}).items():
                learn(key, value)
            self._followers[kind] = learn

    def learn(self, kind: str, key: Any, value: Any) -> bool:
        with self._lock:
            follower = self._followers.get(kind)
            if follower is None:
                self._told.setdefault(kind, {})[key] = value
            else:
                follower(key, value)
        return True


class _Told:
    """The values of one kind."""

    def __init__(self, replicas: _Replicas, kind: str) -> None:
        self._replicas = replicas
        self._kind = kind

    def tell(self, key: bytes, value: Any) -> None:
        self._replicas.tell(self._kind, key, value)

    def follow(self, learn: Callable[[bytes, Any], None]) -> None:
        self._replicas.follow(self._kind, learn)


class SharedVariables(dict[str, str]):
    """The values of SET GLOBAL: read here, written everywhere before the statement ends."""

    def __init__(self, replicas: _Replicas) -> None:
        super().__init__()
        self._replicas = replicas
        replicas.follow("variables", self._learn)

    def __setitem__(self, name: str, value: str) -> None:
        super().__setitem__(name, value)
        self._replicas.tell("variables", name, value)

    def pop(self, name: str, *default: Any) -> Any:
        """Removes a value."""
        found = super().pop(name, *default)
        self._replicas.tell("variables", name, None)
        return found

    def _learn(self, name: str, value: str | None) -> None:
        if value is None:
            super().pop(name, None)
        else:
            super().__setitem__(name, value)


class SharedProcesses(Processes):
    """The sessions of all workers. Those of other workers are read for each SHOW PROCESSLIST and KILL."""

    def __init__(self, hub: HubClient) -> None:
        super().__init__()
        self._hub = hub
        hub.answer("processes", self._listed)
        hub.answer("end_process", self._ended)

    def all(self) -> list[Process]:
        """Returns every session of the server, by number."""
        found = self.own()
        for _, listed in self._hub.ask_others("processes"):
            found += [self._elsewhere(*fields) for fields in listed]
        return sorted(found, key=lambda process: process.number)

    def find(self, number: int) -> Process | None:
        """Returns the session of a number, None when there is none."""
        own = super().find(number)
        if own is not None:
            return own
        return next((each for each in self.all() if each.number == number), None)

    def _listed(self) -> list[tuple[int, str, str, str, float]]:
        return [
            (each.number, each.user, each.database, each.shown_text[:_TEXT_CHARACTERS_MAX], each.since)
            for each in self.own()
        ]

    def _ended(self, number: int, is_statement: bool) -> bool:
        own = super().find(number)
        if own is not None:
            (own.interrupt if is_statement else own.stop)()
        return own is not None

    def _elsewhere(self, number: int, user: str, database: str, text: str, since: float) -> Process:
        def end(*, is_statement: bool) -> None:
            self._hub.ask_others("end_process", number, is_statement)

        stop, interrupt = partial(end, is_statement=False), partial(end, is_statement=True)
        return Process(number, stop, interrupt, user, database, text, since)


class SharedGuard(LoginGuard):
    """Failed logins of all workers."""

    def __init__(self, hub: HubClient) -> None:
        super().__init__()
        self._hub = hub

    def check(self, address: str, user: str) -> None:
        """Refuses a login of an address that has failed too often; waits while others may use that up."""
        self._hub.call("check", address, user)

    def failed(self, address: str, user: str) -> None:
        self._hub.say("checked", address, user, False)
        self.end_quick(address, user)

    def succeeded(self, address: str, user: str) -> None:
        self._hub.say("checked", address, user, True)
        self.begin_quick(address, user)


class SharedAdmission(Admission):
    """Places of users over all workers. Logins in progress are counted by worker."""

    def __init__(self, hub: HubClient, limits: ConnectionLimits) -> None:
        super().__init__(limits)
        self._hub = hub
        self._admitted: set[int] = set()

    def admit(self, number: int, user: str, *, is_administrator: bool) -> None:
        """Gives a place to a user that has logged in; UnavailableError when all are taken."""
        self.forget_login(number)
        self._hub.call("admit", number, user, is_administrator)
        self._admitted.add(number)

    def end(self, number: int) -> None:
        """Frees the place of a connection."""
        super().end(number)
        if number in self._admitted:
            self._admitted.discard(number)
            self._hub.say("end_connection", number)


class SharedQueues(WorkloadQueues):
    """Statements of workload groups over all workers. Groups without a limit need no question."""

    def __init__(self, hub: HubClient) -> None:
        super().__init__()
        self._hub = hub
        hub.answer("queue", lambda name: list(WorkloadQueues.counts(self, name)))

    def counts(self, name: str) -> tuple[int, int]:
        """Returns how many statements of a group run and wait."""
        found = [super().counts(name), tuple(self._hub.call("seats", _group(name)))]
        found += [answer for _, answer in self._hub.ask_others("queue", name)]
        return sum(each[0] for each in found), sum(each[1] for each in found)

    @contextmanager
    def admitted(self, group: WorkloadGroup, find: Callable[[], WorkloadGroup]) -> Iterator[None]:
        """Runs a statement of a group as soon as fewer than `max_concurrency` of them run."""
        if group.max_concurrency >= CONCURRENCY_MAX:
            with super().admitted(group, find):
                yield
            return
        request, reply = self._hub.ask(
            "take", _group(group.name), group.max_concurrency, group.max_queue_size
        )
        try:
            if not self._seat(reply, group, find):
                raise queue_full(group)
            yield
        finally:
            self._hub.say("leave", request)

    def _seat(self, reply: Future[Any], group: WorkloadGroup, find: Callable[[], WorkloadGroup]) -> bool:
        since = time.monotonic()
        limit = group.max_concurrency
        while True:
            try:
                return bool(reply.result(_LOOK_SECONDS))
            except TimeoutError:
                group = find()
            if group.max_concurrency != limit:
                limit = group.max_concurrency
                self._hub.say("limit", _group(group.name), limit)
            if (time.monotonic() - since) * 1000 > group.queue_timeout:
                raise queue_timeout(group)
            cancellation.check()


class SharedUserLoads:
    """Loads of each user over all workers.

    Half of the places are divided among the workers, which use them without a question. The hub gives out the
    others. So a worker that one user's clients reached alone runs most of what the user may.
    """

    def __init__(self, hub: HubClient, workers: int, limit: int) -> None:
        self._hub = hub
        self._own_max = limit // (2 * workers)
        self._others_max = limit - self._own_max * workers
        self._own: dict[str, int] = {}

    def one(self, user: str) -> AbstractAsyncContextManager[object]:
        """Returns a context that holds one place of a user; on the event loop only."""
        return self._own_place(user) if self._own.get(user, 0) < self._own_max else self._seat(user)

    @asynccontextmanager
    async def _own_place(self, user: str) -> AsyncIterator[None]:
        self._own[user] = self._own.get(user, 0) + 1
        try:
            yield
        finally:
            self._own[user] -= 1
            if not self._own[user]:
                del self._own[user]

    @asynccontextmanager
    async def _seat(self, user: str) -> AsyncIterator[None]:
        request, reply = self._hub.ask("take", f"loads {user}", self._others_max, _WAITING_MAX)
        try:
            await asyncio.wrap_future(reply)
            yield
        finally:
            self._hub.say("leave", request)


def _group(name: str) -> str:
    return f"group {name}"


def _metrics_of_others(
    hub: HubClient, own: Callable[[], Families]
) -> Callable[[], Iterable[tuple[int, Families]]]:
    hub.answer("metrics", own)
    return lambda: hub.ask_others("metrics")
