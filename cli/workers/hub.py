"""The hub: the parent of the workers of a server. It has no store, opens the ports, and watches.

start      the first worker (place 0) opens the store and takes up jobs; the others begin when it is ready
watch      a worker that ends is replaced in its place, after a pause if it did not live long
SIGTERM    the hub closes the ports and passes the signal on to all; a late worker is killed
SIGHUP     is passed on
its end    ends all workers at once, as a crash does (PR_SET_PDEATHSIG, and the end of the channel)

The hub has one thread and forks, with all modules imported; the child leaves `Hub.run` with its seat. What
workers share is in `desk`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack

from seqstore.cli.clients.admission import ConnectionLimits
from seqstore.cli.clients.entrance import Entrance
from seqstore.cli.workers.balance import Balance
from seqstore.cli.workers.desk import Desk
from seqstore.cli.workers.frames import FrameReader, packed

_log: Final = logging.getLogger("seqstore.workers")
_OUT_BYTES_MAX: Final = 64 << 20  # that a worker may leave unread
_PR_SET_PDEATHSIG: Final = 1
_LONG_LIFE_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 5.0
_AFTER_SECONDS: Final = 10.0  # behind `stop_seconds`: a worker ends itself after half of it
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


@dataclass(frozen=True)
class Seat:
    """What a worker gets from the hub.

    Attributes:
        place: from 0; 0 runs what a server has once.
        workers: places in all.
        channel: to the hub.
        entrances: by protocol.
        told: what workers told each other before.
        ports: of the services of place 0, by name; empty for the first worker.
        is_first_start: no worker of another place has begun yet, so nothing in the data directory is theirs.
    """

    place: int
    workers: int
    channel: socket.socket
    entrances: dict[str, Entrance]
    told: dict[str, Any]
    ports: dict[str, int]
    is_first_start: bool


@dataclass
class _Worker:
    """A child of the hub."""

    number: int
    place: int
    pid: int
    channel: socket.socket
    reader: FrameReader
    begun: float = field(default_factory=time.monotonic)
    is_ready: bool = False
    out: bytearray = field(default_factory=bytearray)


class Hub:
    """One server.

    Args:
        workers: how many, at least 2.
        listeners: sockets of the protocols, by name.
        limits: of MySQL connections, over all workers.
        stop_seconds: that workers have to end.
        started: called with the addresses of the services when all workers are ready.

    Attributes:
        exit_code: of the server, after `run`.
    """

    def __init__(
        self,
        workers: int,
        listeners: dict[str, socket.socket],
        limits: ConnectionLimits,
        stop_seconds: float,
        started: Callable[[list[str]], None],
    ) -> None:
        self.exit_code = 0
        self._count = workers
        self._listeners = listeners
        self._balances = {name: Balance(workers) for name in listeners}
        self._stop_seconds = stop_seconds
        self._started = started
        self._desk = Desk(limits, self._send, self._known)
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        self._numbers = itertools.count(1)
        self._workers: dict[int, _Worker] = {}
        self._begin_at: dict[int, float] = {0: 0.0}  # by place
        self._pauses: dict[int, float] = {}
        self._ports: dict[str, int] = {}
        self._addresses: list[str] = []
        self._has_started = self._have_others_begun = False
        self._stopping_since: float | None = None
        self._selector = selectors.DefaultSelector()
        self._waker, self._wakes = socket.socketpair()

    def run(self) -> Seat | None:
        """Runs the server; returns the seat in a worker, and None in the hub when all have ended."""
        gc.collect()
        gc.freeze()  # so that workers share the pages of what is imported
        self._waker.setblocking(False)
        self._wakes.setblocking(False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._wakes, selectors.EVENT_READ)
        while self._workers or self._stopping_since is None:
            seat = self._begin_due()
            if seat is not None:
                return seat
            for key, events in self._selector.select(self._wait_seconds()):
                self._serve(key.data, events)
            self._desk.look()
            self._reap()
            self._kill_late()
        signal.set_wakeup_fd(-1)
        return None

    # ------------------------------------------------------------------------------------------ begin

    def _begin_due(self) -> Seat | None:
        now = time.monotonic()
        for place in [place for place, at in self._begin_at.items() if at <= now]:
            del self._begin_at[place]
            seat = self._begin(place)
            if seat is not None:
                return seat
        return None

    def _begin(self, place: int) -> Seat | None:
        """Starts a worker; returns its seat in the worker, None in the hub."""
        ours, theirs = socket.socketpair()
        hub = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._become_worker(hub)
            entrances = {
                name: Entrance(listener, self._balances[name], place)
                for name, listener in self._listeners.items()
            }
            told = {kind: dict(values) for kind, values in self._desk.told.items()}
            is_first_start = place == 0 and not self._have_others_begun
            return Seat(place, self._count, theirs, entrances, told, dict(self._ports), is_first_start)
        self._have_others_begun |= place != 0
        theirs.close()
        ours.setblocking(False)
        worker = _Worker(next(self._numbers), place, pid, ours, FrameReader(ours))
        self._workers[worker.number] = worker
        self._selector.register(ours, selectors.EVENT_READ, worker)
        return None

    def _become_worker(self, hub: int) -> None:
        """Leaves behind in a forked child what belongs to the hub."""
        os.setpgid(0, 0)  # signals of the terminal are for the hub
        if self._libc is not None:
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != hub:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there are certificates to read again
        self._selector.close()
        for each in (self._waker, self._wakes, *(worker.channel for worker in self._workers.values())):
            each.close()

    # ------------------------------------------------------------------------------------------ channels

    def _known(self) -> list[tuple[int, int, bool]]:
        return [(each.number, each.place, each.is_ready) for each in self._workers.values()]

    def _send(self, number: int, frame: list[Any]) -> None:
        worker = self._workers.get(number)
        if worker is None:
            return
        worker.out += packed(frame)
        if len(worker.out) > _OUT_BYTES_MAX:
            _log.warning("worker %d (process %d) reads nothing; it is ended", worker.place, worker.pid)
            os.kill(worker.pid, signal.SIGKILL)
            worker.out.clear()
        self._flush(worker)

    def _flush(self, worker: _Worker) -> None:
        with contextlib.suppress(OSError):
            while worker.out:
                del worker.out[: worker.channel.send(worker.out)]
        if worker.channel.fileno() >= 0:
            writes = selectors.EVENT_WRITE if worker.out else 0
            self._selector.modify(worker.channel, selectors.EVENT_READ | writes, worker)

    def _serve(self, worker: _Worker | None, events: int) -> None:
        if worker is None:
            self._take_signals()
            return
        if worker.number not in self._workers:
            return
        if events & selectors.EVENT_WRITE:
            self._flush(worker)
        if not events & selectors.EVENT_READ:
            return
        try:
            frames = worker.reader.read()
            if frames is None:
                self._forget(worker)
                return
            for frame in frames:
                if frame[1] == "ready":
                    self._ready(worker, *frame[2:])
                else:
                    self._desk.handle(worker.number, frame)
        except BlockingIOError:
            return
        except (msgpack.UnpackException, ValueError, TypeError, AttributeError):
            _log.exception("worker %d (process %d) sent what is no frame", worker.place, worker.pid)
            os.kill(worker.pid, signal.SIGKILL)

    def _ready(self, worker: _Worker, addresses: list[str], ports: dict[str, int]) -> None:
        worker.is_ready = True
        if worker.place == 0 and not self._ports:
            self._addresses, self._ports = addresses, ports
        if self._has_started:
            _log.warning("worker %d is process %d now", worker.place, worker.pid)
            return
        if worker.place == 0 and self._stopping_since is None:  # others run if it is not the first worker 0
            known = {each.place for each in self._workers.values()} | self._begin_at.keys()
            self._begin_at.update({place: 0.0 for place in range(1, self._count) if place not in known})
        if sum(each.is_ready for each in self._workers.values()) == self._count:
            self._has_started = True
            self._started(self._addresses)

    def _forget(self, worker: _Worker) -> None:
        """Frees what a worker holds whose channel has ended; it ends too."""
        self._selector.unregister(worker.channel)
        worker.channel.close()
        if self._stopping_since is None and worker.number in self._workers:
            os.kill(worker.pid, signal.SIGKILL)
        try:
            self._desk.forget(worker.number)
        except Exception:  # a defect there must not end the hub, and with it all other workers
            _log.exception("worker %d (process %d) ended, and may still be counted", worker.place, worker.pid)

    # ------------------------------------------------------------------------------------------ ends

    def _take_signals(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in self._wakes.recv(4096):
                if number in (signal.SIGTERM, signal.SIGINT):
                    self._stop()
                elif number == signal.SIGHUP:
                    self._pass_on(signal.SIGHUP)

    def _stop(self) -> None:
        """Passes the signal on; a second one makes workers abandon what they wait for."""
        if self._stopping_since is not None:
            self._pass_on(signal.SIGINT)
            return
        self._stopping_since = time.monotonic()
        self._begin_at.clear()
        for listener in self._listeners.values():
            listener.close()
        self._pass_on(signal.SIGTERM)

    def _pass_on(self, number: int) -> None:
        for worker in self._workers.values():
            os.kill(worker.pid, number)  # it is not reaped, so its id is no other's

    def _reap(self) -> None:
        for worker in list(self._workers.values()):
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if not pid:
                continue
            del self._workers[worker.number]
            if worker.channel.fileno() >= 0:
                self._forget(worker)
            for balance in self._balances.values():
                balance.leave(worker.place)
            self._ended(worker, os.waitstatus_to_exitcode(status))

    def _ended(self, worker: _Worker, code: int) -> None:
        if self._stopping_since is not None:
            self.exit_code = self.exit_code or (0 if code in (0, -signal.SIGTERM, -signal.SIGINT) else 1)
            return
        if not self._has_started and code > 0:  # it has said why
            self.exit_code = code
            self._stop()
            return
        lived = time.monotonic() - worker.begun
        before = self._pauses.get(worker.place, 0.0)
        pause = (
            0.0 if lived > _LONG_LIFE_SECONDS else min(max(2 * before, _PAUSE_SECONDS), _PAUSE_SECONDS_MAX)
        )
        self._pauses[worker.place] = pause
        self._begin_at[worker.place] = time.monotonic() + pause
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        _log.warning("worker %d (process %d) ended %s; another one begins", worker.place, worker.pid, how)

    def _kill_late(self) -> None:
        since = self._stopping_since
        if since is None or time.monotonic() < since + self._stop_seconds + _AFTER_SECONDS:
            return
        self._pass_on(signal.SIGKILL)

    def _wait_seconds(self) -> float | None:
        now = time.monotonic()
        ends = [at - now for at in self._begin_at.values()]
        if (look := self._desk.look()) is not None:
            ends.append(look)
        if self._stopping_since is not None:
            ends.append(max(self._stopping_since + self._stop_seconds + _AFTER_SECONDS - now, 0.1))
        return max(min(ends), 0.0) if ends else None
