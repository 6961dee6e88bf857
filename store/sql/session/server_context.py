"""The parts of a server that its sessions share, such as the list of them for SHOW PROCESSLIST and KILL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from seqstore.store.runtime.secrets.statements import masked_statement
from seqstore.store.sql.parse.load_jobs import LoadJobs
from seqstore.store.sql.session.workload import WorkloadQueues


@dataclass(frozen=True)
class Process:
    """One session.

    Attributes:
        stop: ends it from another thread.
        interrupt: ends its running statement only.
        text: of the running statement, empty between statements.
        since: `time.monotonic()` of the last change.
    """

    number: int
    stop: Callable[[], None]
    interrupt: Callable[[], None]
    user: str = ""
    database: str = ""
    text: str = ""
    since: float = 0.0

    @property
    def shown_text(self) -> str:
        """The text without passwords and secret properties."""
        return masked_statement(self.text)

    @property
    def seconds(self) -> int:
        """Seconds since the last change of its state."""
        return int(time.monotonic() - self.since)


class Processes:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[int, Process] = {}

    def add(self, number: int, *, stop: Callable[[], None], interrupt: Callable[[], None]) -> None:
        with self._lock:
            self._found[number] = Process(number, stop, interrupt, since=time.monotonic())

    def remove(self, number: int) -> None:
        with self._lock:
            self._found.pop(number, None)

    def change(self, number: int, *, user: str, database: str, text: str) -> None:
        """Sets the state of a session."""
        with self._lock:
            process = self._found.get(number)
            if process is not None:
                self._found[number] = replace(
                    process, user=user, database=database, text=text, since=time.monotonic()
                )

    def all(self) -> list[Process]:
        """Returns every session of the server, by number."""
        return self.own()

    def own(self) -> list[Process]:
        """Returns the sessions of this process, by number."""
        with self._lock:
            return sorted(self._found.values(), key=lambda process: process.number)

    def find(self, number: int) -> Process | None:
        """Returns the session of a number, None when there is none."""
        with self._lock:
            return self._found.get(number)


def _is_always_there(_is_cancelled: bool) -> bool:
    """Returns that a client waits: a session in a program has no connection to lose."""
    return True


@dataclass(frozen=True)
class Ports:
    """The ports of a server's services, 0 for one that does not run."""

    http: int = 0
    mysql: int = 0
    thrift: int = 0
    flight: int = 0


@dataclass(frozen=True)
class ServerContext:
    """A server as one of its sessions knows it; without arguments, of a session that stands alone.

    Attributes:
        global_variables: the values of SET GLOBAL; all sessions of a server share one dict.
        processes: for SHOW PROCESSLIST and KILL.
        load_jobs: runs broker and routine loads; without it their statements are refused.
        connection_id: the session's number among the processes.
        has_client: called while a statement runs, with whether it was cancelled; returns whether a client
            waits for it.
        queues: of the workload groups; all sessions of a server share them.
        ports: returns the ports of the server's services.
    """

    global_variables: dict[str, str] = field(default_factory=dict)
    processes: Processes = field(default_factory=Processes)
    load_jobs: LoadJobs | None = None
    connection_id: int = 0
    has_client: Callable[[bool], bool] = _is_always_there
    queues: WorkloadQueues = field(default_factory=WorkloadQueues)
    ports: Callable[[], Ports] = Ports
