"""The order in which threads and processes get the locks of a store: first come, first served.

One file, `DATA_DIR/locks/queue`, lists the requests that hold a lock or wait for one, in the order of
arrival. It is read and written in place while it is locked itself, which is for a moment only.

1. A request stands behind all earlier ones of the same lock. The first one has the lock.
2. A waiter sleeps on a pipe of its own. The owner before it wakes it when it leaves, so no waiter polls; now
   and then it looks by itself, for its predecessor may have died.
3. Entries of processes that have ended are removed by the next look into the file.
4. A request that would have to wait looks for a circle of owners that wait for each other. The youngest owner
   of the circle gives up: at once if it is the one that asks, else it is woken with that verdict.

The queue is only an order. Whether a lock is free is for its file to say (catalog.update_lock): a queue that
was lost by a crash, or half written by a process that was killed, costs the order, nothing else.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import logging
import os
import select
import struct
import threading
import time
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from seqstore.store.errors import ConflictError, UnavailableError
from seqstore.store.runtime import cancellation
from seqstore.store.runtime.disk_errors import disk_error
from seqstore.store.runtime.forks import new_lock
from seqstore.store.runtime.process_identity import is_alive, this_process

BUSY: Final = "update_in_progress"  # kind of the error of a request whose turn did not come in time
_LOOK_SECONDS: Final = 0.5  # a waiter looks at least so often whether its predecessors are alive
_POLL_SECONDS: Final = 0.005  # where the file system has no pipes
_MUTEX_POLL_SECONDS: Final = 0.0001
_HEADER: Final = struct.Struct("<II")  # length and CRC-32 of the list behind it
_YOUR_TURN: Final = b"t"  # words in a pipe
_LOOK: Final = b"l"
_of_process: Final = new_lock()  # threads wait for each other here, in turn, and one of them for the file
_pipes: Final = itertools.count(1)
_LEAVE_AGAIN_SECONDS: Final = 0.5
_LOG: Final = logging.getLogger(__name__)
_left: Final[set[tuple[int, str]]] = set()  # requests of this process that it could not remove


@dataclass(frozen=True)
class LockOwner:
    """Asks for locks: a transaction, or a statement that is one.

    Attributes:
        label: for messages.
        since: Unix time of its begin; of a circle the youngest gives up.
        id: of the owner, which may hold several locks.
    """

    label: str = "a statement"
    since: float = field(default_factory=time.time)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass
class Request:
    """One line of the queue.

    Attributes:
        lock: its name, one for each file.
        about: the lock in words, for messages.
        process: id and start time.
        pipe: name of the pipe that wakes it, empty without one.
        verdict: why it must give up, empty while it need not.
    """

    lock: str
    about: str
    owner: str
    label: str
    since: float
    process: tuple[int, int]
    pipe: str = ""
    verdict: str = ""
    number: int = 0


class LockQueue:
    """The queue of one directory of locks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "queue"
        self._process = this_process()

    @contextmanager
    def place(self, lock: str, about: str, owner: LockOwner | None, seconds: float) -> Iterator[None]:
        """Waits for the turn of a lock, and holds it for the block.

        Args:
            owner: that may hold several locks; None for one that holds only this.

        Raises:
            UnavailableError: its turn did not come in time.
            ConflictError: a deadlock, and the owner is the youngest in it.
        """
        owner = owner or LockOwner()
        request = Request(lock, about, owner.id, owner.label, owner.since, self._process)
        deadline = time.monotonic() + seconds
        pid, handle = os.getpid(), -1
        try:
            is_turn, handle = self._join(request, deadline, may_wait=seconds > 0)
            while not is_turn:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise UnavailableError("its turn did not come in time", kind=BUSY)
                cancellation.check()
                is_turn = _sleep(handle, left) == _YOUR_TURN or self._is_turn(request)
            yield
        finally:
            if os.getpid() == pid:  # a forked child leaves its parent's request alone
                try:
                    self._leave(request, handle)
                except UnavailableError as error:  # the block is done, and its outcome stands
                    _LOG.warning("a request is left in the queue of locks, to be removed later: %s", error)
                    _left.add((request.number, request.owner))
                    threading.Thread(target=self._leave_later, args=(request,), daemon=True).start()

    def waiting(self, lock: str) -> int:
        """Returns how many requests of a lock wait behind the first."""
        with self._opened() as requests:
            return max(sum(each.lock == lock for each in requests) - 1, 0)

    def _join(self, request: Request, deadline: float, *, may_wait: bool) -> tuple[bool, int]:
        """Puts a request behind the others.

        Returns:
            Whether it is the first of its lock, and the handle of its pipe, -1 for none.
        """
        handle, verdicts = -1, []
        with self._opened(deadline) as requests:
            request.number = max((each.number for each in requests), default=0) + 1
            is_first = all(each.lock != request.lock for each in requests)
            if not is_first and not may_wait:
                raise UnavailableError("another one has its turn", kind=BUSY)
            requests.append(request)
            if not is_first:
                verdicts = _settle_deadlocks(requests, request)
                request.pipe, handle = self._new_pipe()
        for pipe in verdicts:
            self._wake(pipe, _LOOK)
        return is_first, handle

    def _is_turn(self, request: Request) -> bool:
        with self._opened() as requests:
            mine = next((each for each in requests if each.number == request.number), None)
            if mine is None or mine.owner != request.owner:  # the file was lost
                requests.append(request)
                mine = request
            if mine.verdict:
                raise ConflictError(mine.verdict, kind="deadlock")
            return next(each for each in requests if each.lock == request.lock) is mine

    def _leave(self, request: Request, handle: int) -> None:
        """Removes a request, and wakes the next one of its lock."""
        if handle >= 0:
            os.close(handle)
        if request.pipe:
            with suppress(OSError):
                (self._directory / request.pipe).unlink(missing_ok=True)
        if not request.number:
            return
        with self._opened() as requests:
            requests[:] = [r for r in requests if (r.number, r.owner) != (request.number, request.owner)]
            following = next((each.pipe for each in requests if each.lock == request.lock), "")
        self._wake(following, _YOUR_TURN)

    def _leave_later(self, request: Request) -> None:
        """Removes a request once the disk allows it; other processes would wait for it."""
        pid = os.getpid()
        while os.getpid() == pid:
            time.sleep(_LEAVE_AGAIN_SECONDS)
            if not self._directory.is_dir():
                return
            with suppress(UnavailableError):
                self._leave(request, -1)
                _left.discard((request.number, request.owner))
                return

    def _new_pipe(self) -> tuple[str, int]:
        name = f"wake-{os.getpid()}-{next(_pipes)}"
        path = self._directory / name
        try:
            path.unlink(missing_ok=True)  # of an earlier process with this id
            os.mkfifo(path)
            return name, os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return "", -1

    def _wake(self, pipe: str, word: bytes) -> None:
        if not pipe:
            return
        with suppress(OSError):  # its process has gone, or left the queue
            handle = os.open(self._directory / pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(handle, word)
            finally:
                os.close(handle)

    @contextmanager
    def _opened(self, deadline: float | None = None) -> Iterator[list[Request]]:
        """Yields the requests of live processes, in their order; changes are stored at the end of the block.

        Args:
            deadline: until when to try; None waits, which is for a moment unless a process is stopped in it.
        """
        with _of_process:
            try:
                handle = open_lock_file(self._path)
                try:
                    _lock(handle, deadline)
                    stored = _read(handle)
                    requests = [each for each in _requests(stored) if self._is_alive(each)]
                    yield requests
                    _write(handle, requests, stored)
                finally:
                    fcntl.flock(handle, fcntl.LOCK_UN)  # a child forked meanwhile has the file open too
                    os.close(handle)
            except OSError as error:
                raise disk_error(self._path, error) from error

    def _is_alive(self, request: Request) -> bool:
        if request.process == self._process:
            return (request.number, request.owner) not in _left
        if is_alive(request.process):
            return True
        if request.pipe:
            (self._directory / request.pipe).unlink(missing_ok=True)
        return False


def open_lock_file(path: Path) -> int:
    """Opens a file of the directory of locks, and makes both where they are not there yet.

    Raises:
        OSError: the disk cannot be written.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(exist_ok=True)
        return os.open(path, flags, 0o644)


def _read(handle: int) -> bytes:
    """Returns the list in the file, empty where it is not whole."""
    content = os.pread(handle, os.fstat(handle).st_size, 0)
    if len(content) < _HEADER.size:
        return b""
    length, checksum = _HEADER.unpack_from(content)
    stored = content[_HEADER.size : _HEADER.size + length]
    return stored if len(stored) == length and zlib.crc32(stored) == checksum else b""


def _write(handle: int, requests: list[Request], stored: bytes) -> None:
    """Writes the list if it changes; a longer one before is left behind it."""
    content = json.dumps([asdict(each) for each in requests]).encode() if requests else b""
    if content != stored:
        os.pwrite(handle, _HEADER.pack(len(content), zlib.crc32(content)) + content, 0)


def _requests(stored: bytes) -> list[Request]:
    """Returns the requests of a list; none when it was lost by a crash."""
    if not stored:
        return []
    try:
        return [Request(**{**line, "process": tuple(line["process"])}) for line in json.loads(stored)]
    except (ValueError, TypeError, KeyError):
        return []


def _sleep(handle: int, seconds: float) -> bytes:
    """Waits until the pipe is written to, or for a while; returns the last word in it."""
    if handle < 0:
        time.sleep(min(_POLL_SECONDS, seconds))
        return b""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.poll(min(_LOOK_SECONDS, seconds) * 1000)
    with suppress(BlockingIOError):
        return os.read(handle, 64)[-1:]
    return b""


def _lock(handle: int, deadline: float | None) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (fcntl.LOCK_NB if deadline is not None else 0))
        except BlockingIOError:
            assert deadline is not None
            if time.monotonic() >= max(deadline, 0):
                raise UnavailableError("the queue is locked", kind=BUSY) from None
            time.sleep(_MUTEX_POLL_SECONDS)
        except OSError as error:
            if error.errno != errno.EINTR:
                raise
        else:
            return


def _settle_deadlocks(requests: list[Request], asking: Request) -> list[str]:
    """Gives verdicts until the asking request is in no circle; returns the pipes of the requests to wake.

    Raises:
        ConflictError: the verdict is that the asking owner gives up; its request was removed.
    """
    pipes = []
    while circle := _circle(requests, asking):
        loser = max(circle, key=lambda each: (each.since, each.number))
        loser.verdict = _told(circle, loser)
        if loser is asking:
            requests.remove(asking)
            asking.number = 0
            raise ConflictError(asking.verdict, kind="deadlock")
        pipes.append(loser.pipe)
    return pipes


def _circle(requests: list[Request], asking: Request) -> list[Request]:
    """Returns waiting requests, from the asking one on, each of which waits for the owner of the next; the
    last waits for the owner of the first. Empty for none.

    1. An owner without another request has nothing that others wait for: it closes no circle.
    2. Otherwise a search goes from request to request, and meets each once.
    """
    if all(each is asking or each.owner != asking.owner for each in requests):
        return []
    of_owner: dict[str, list[Request]] = {}
    for each in requests:
        if not each.verdict:
            of_owner.setdefault(each.owner, []).append(each)
    path_to = {id(asking): [asking]}
    left = [asking]
    while left:
        waiting = left.pop()
        path = path_to[id(waiting)]
        for owner in _blockers(requests, waiting):
            if owner == asking.owner:
                return path
            for each in of_owner.get(owner, ()):
                if id(each) not in path_to:
                    path_to[id(each)] = [*path, each]
                    left.append(each)
    return []


def _blockers(requests: list[Request], request: Request) -> list[str]:
    """Returns the owners of the requests that stand before one of the same lock, each once."""
    before = itertools.takewhile(lambda each: each is not request, requests)
    owners = (each.owner for each in before if each.lock == request.lock and each.owner != request.owner)
    return list(dict.fromkeys(owners))


def _told(circle: list[Request], loser: Request) -> str:
    steps = [
        f"{each.label!r} (process {each.process[0]}) waits for the update lock of {each.about}, which "
        f"{following.label!r} has or gets before it"
        for each, following in zip(circle, [*circle[1:], circle[0]], strict=True)
    ]
    return (
        f"Deadlock found when trying to get lock; try restarting transaction: {'; '.join(steps)}; "
        f"{loser.label!r} is the younger one and was rolled back"
    )
