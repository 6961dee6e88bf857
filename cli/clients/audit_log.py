"""The audit log of a server: logins, statements and loads as JSON lines, without passwords and secrets.

1. A session or a request hands over an event and goes on. A bounded queue holds the events.
2. A thread masks and writes them. It never holds a statement up: when the queue is full, or the file cannot
   be written, events are counted as lost. `/metrics` has both counts.
3. `audit.log` is closed at a size, and at the end of a period of time. It gets the time as its name, and the
   oldest files beyond a number are deleted.

Error messages quote statements and rows. So an event has the code and the kind of an error only.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from seqstore.cli.logs.current_ids import logged_as
from seqstore.store.catalog.access.user_hosts import plain_user
from seqstore.store.errors import StoreError
from seqstore.store.runtime.secrets.statements import masked_statement

FILE: Final = "audit.log"
_LOCK: Final = ".lock"
STATEMENT_CHARACTERS_MAX: Final = 4096
_NAME_CHARACTERS_MAX: Final = 256
_WAITING_MAX: Final = 4096
_BATCH_MAX: Final = 512
_STOP_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0
_log: Final = logging.getLogger("seqstore.audit")
_processes: Final[dict[int, str]] = {}  # by process id: a forked process has an id of its own
_numbers: Final = itertools.count(1)


def new_query_id() -> str:
    """Returns an id that no other event of any server has."""
    process = _processes.get(os.getpid()) or _processes.setdefault(os.getpid(), secrets.token_hex(8))
    return f"{process}-{next(_numbers):x}"


@dataclass(frozen=True)
class Client:
    """The origin of events.

    Attributes:
        protocol: `mysql`, `http`, `thrift` or `flight`.
        connection: number in SHOW PROCESSLIST, 0 for what it does not list.
    """

    protocol: str
    address: str
    user: str = ""
    connection: int = 0
    database: str = ""


@dataclass
class Event:
    """One login, statement or load; its attributes are the fields of the line, in order.

    Attributes:
        event: `login`, `statement`, `load` or `request`.
        outcome: OK, or the class of the error, or the status of a load.
        error: kind of the error; `code` is its MySQL number.
        rows_read: sent to the client.
        is_parsed: the statement has a known grammar; see `masked_statement`.
    """

    event: str
    client: Client
    statement: str = ""
    query_id: str = field(default_factory=new_query_id)
    label: str = ""
    outcome: str = "OK"
    error: str = ""
    code: int = 0
    rows_read: int = 0
    rows_written: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    ms: int = 0
    at: float = field(default_factory=time.time)
    is_parsed: bool = True

    def fail(self, error: BaseException, code: int = 0) -> None:
        """Sets the outcome of an error."""
        self.outcome = type(error).__name__
        self.error = error.kind if isinstance(error, StoreError) else "internal"
        self.code = code

    def log_ids(self) -> dict[str, str]:
        """Returns what log lines of its thread say of it, without what is empty."""
        client = self.client
        found = {
            "query_id": self.query_id,
            "label": _short(self.label),
            "protocol": client.protocol,
            "address": client.address,
            "user": _short(plain_user(client.user)),
            "connection": str(client.connection or ""),
        }
        return {name: value for name, value in found.items() if value}

    def line(self) -> str:
        """Formats the event."""
        found: dict[str, Any] = asdict(replace(self, client=Client("", "")))
        del found["client"], found["is_parsed"], found["at"]
        origin = asdict(self.client) | {"user": plain_user(self.client.user)}
        origin = {name: _short(value) for name, value in origin.items()}
        found["label"] = _short(self.label)
        found["statement"] = masked_statement(
            self.statement, length=STATEMENT_CHARACTERS_MAX, is_parsed=self.is_parsed
        )
        moment = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"time": moment.replace("+00:00", "Z"), **origin, **found})


def _short(value: Any) -> Any:
    """Returns a value that a client may have made too long."""
    return value[:_NAME_CHARACTERS_MAX] if isinstance(value, str) else value


@dataclass(frozen=True)
class AuditLimits:
    """When a file ends, and how many there are.

    Attributes:
        bytes_max: of one file.
        period_seconds: a file holds events of one such period of Unix time.
        files_max: closed files that are kept.
    """

    bytes_max: int = 64 << 20
    period_seconds: int = 86_400
    files_max: int = 30


class AuditLog:
    """Safe to share between threads.

    Args:
        is_shared: other processes write to the folder too. A batch then holds a lock between them.

    Attributes:
        written, lost: events since the start.
    """

    def __init__(self, folder: Path, limits: AuditLimits | None = None, *, is_shared: bool = False) -> None:
        self._is_shared = is_shared
        self.written = 0
        self.lost = 0
        self._folder = folder
        self._limits = limits if limits is not None else AuditLimits()
        self._waiting: queue.Queue[Event | None] = queue.Queue(_WAITING_MAX)
        self._lock = threading.Lock()
        self._file: int | None = None
        self._size = 0
        self._period = 0
        self._retry_at = 0.0
        self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)

    def start(self) -> None:
        """Begins to write. A folder that cannot be written loses events, and stops nothing."""
        self._thread.start()

    def stop(self) -> None:
        """Writes what waits, and closes the file."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=_STOP_SECONDS)
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def record(self, event: Event) -> None:
        """Hands an event over; returns at once and raises nothing."""
        event.statement = event.statement[: STATEMENT_CHARACTERS_MAX + 1]  # one more tells that it is cut
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._lose(1)

    @contextmanager
    def timed(self, event: Event) -> Iterator[Event]:
        """Records an event when the block ends, with its time and its error."""
        begun = time.monotonic()
        try:
            with logged_as(event):
                yield event
        except BaseException as error:
            if event.outcome == "OK":
                event.fail(error)
            raise
        finally:
            event.ms = round((time.monotonic() - begun) * 1000)
            self.record(event)

    def _lose(self, count: int) -> None:
        with self._lock:
            self.lost += count

    def _run(self) -> None:
        is_ending = False
        while not is_ending:
            batch = [self._waiting.get()]
            with suppress(queue.Empty):
                while len(batch) < _BATCH_MAX:
                    batch.append(self._waiting.get_nowait())
            is_ending = None in batch
            events = [event for event in batch if event is not None]
            try:
                self._write(events)
            except Exception as error:  # a full disk, most likely; events that come later may be written
                self._lose(len(events))
                self._close()
                self._retry_at = time.monotonic() + _RETRY_SECONDS
                _log.warning("audit log %s: %d events are lost: %s", self._folder, len(events), error)
        self._close()

    def _write(self, events: list[Event]) -> None:
        if not events:
            return
        if time.monotonic() < self._retry_at:
            self._lose(len(events))
            return
        data = "".join(f"{event.line()}\n" for event in events).encode("utf-8", "backslashreplace")
        with self._alone():
            file = self._open_for(len(data))
            try:
                _write_all(file, data)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file, self._size)  # a line is whole or is not there
                raise
        self._size += len(data)
        self.written += len(events)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keeps other processes out, and follows them to another file or to its end."""
        if not self._is_shared:
            yield
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._follow()
            yield
        finally:
            os.close(lock)

    def _follow(self) -> None:
        if self._file is None:
            return
        own = os.fstat(self._file)
        try:
            current = os.stat(self._folder / FILE)
        except FileNotFoundError:
            self._close()
            return
        if (own.st_dev, own.st_ino) != (current.st_dev, current.st_ino):
            self._close()
        else:
            self._size = own.st_size

    def _open_for(self, count: int) -> int:
        """Returns the file for more bytes: the current one, or a new one when that is full or old."""
        period = int(time.time()) // self._limits.period_seconds
        if self._file is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = self._open()
        if self._size and (self._size + count > self._limits.bytes_max or self._period != period):
            self._close()
            moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
            (self._folder / FILE).rename(self._folder / f"audit-{moment}.log")
            self._delete_old()
            self._file = self._open()
        self._period = period
        return self._file

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self._folder / FILE, flags, 0o600)
        os.fchmod(file, 0o600)
        found = os.fstat(file)
        self._size, self._period = found.st_size, int(found.st_mtime) // self._limits.period_seconds
        return file

    def _delete_old(self) -> None:
        found = sorted(self._folder.glob("audit-*.log"))
        for path in found[: max(len(found) - self._limits.files_max, 0)]:
            path.unlink(missing_ok=True)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                os.close(file)


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
