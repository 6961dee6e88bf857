"""What the sessions of a server share, whichever of its processes they are in.

The values here serve a server of one process. `cli.workers.worker_shared` has those of a server with several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol
from weakref import WeakValueDictionary

from seqstore.cli.clients.admission import Admission, ConnectionLimits
from seqstore.cli.clients.login_guard import LoginGuard
from seqstore.store.sql.session.server_context import Processes
from seqstore.store.sql.session.workload import WorkloadQueues


class UserLoads(Protocol):
    """The places of loads of each user."""

    def one(self, user: str) -> AbstractAsyncContextManager[object]:
        """Returns a context that holds one place of a user."""


class OwnUserLoads:
    """The places of loads of each user in this process."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._of_users: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def one(self, user: str) -> asyncio.Semaphore:
        """Returns a context that holds one place of a user."""
        return self._of_users.setdefault(user, asyncio.Semaphore(self._limit))


class Replicas(Protocol):
    """Values by key that every process of the server has."""

    def tell(self, key: bytes, value: Any) -> None:
        """Gives the other processes a value; returns when they have it."""

    def follow(self, learn: Callable[[bytes, Any], None]) -> None:
        """Calls `learn` with what other processes told, and will tell."""


class NoReplicas:
    """There are no other processes."""

    def tell(self, key: bytes, value: Any) -> None:
        """Tells no other process."""

    def follow(self, learn: Callable[[bytes, Any], None]) -> None:
        """Learns nothing."""


# Families of metrics: kind, name, text, and samples of (name, labels, value).
Families = list[tuple[str, str, str, list[tuple[str, dict[str, str], float]]]]


@dataclass(frozen=True)
class Shared:
    """The shared parts of one server.

    Attributes:
        guard: counts failed logins.
        processes: for SHOW PROCESSLIST and KILL.
        global_variables: the values of SET GLOBAL.
        queues: of the workload groups.
        new_number: returns the number of a new connection or request, which KILL names.
        admission: makes the places of MySQL connections.
        user_loads: makes the places of loads.
        tokens: bearer tokens of the HTTP service.
        cookies: logins of the console.
        worker: number of this process among its siblings, None when there are none.
        metrics: called once with what returns the metrics of this process; returns a function for those of
            the other processes, by worker.
    """

    guard: LoginGuard = field(default_factory=LoginGuard)
    processes: Processes = field(default_factory=Processes)
    global_variables: dict[str, str] = field(default_factory=dict)
    queues: WorkloadQueues = field(default_factory=WorkloadQueues)
    new_number: Callable[[], int] = field(default_factory=lambda: count(1).__next__)
    admission: Callable[[ConnectionLimits], Admission] = Admission
    user_loads: Callable[[int], UserLoads] = OwnUserLoads
    tokens: Replicas = field(default_factory=NoReplicas)
    cookies: Replicas = field(default_factory=NoReplicas)
    worker: int | None = None
    metrics: Callable[[Callable[[], Families]], Callable[[], Iterable[tuple[int, Families]]]] = lambda own: (
        lambda: ()
    )
