"""The services of a server: their start, stop and addresses.

start               in order; one that cannot start stops those before it, and its error is raised
SIGTERM, SIGINT     services stop in reverse order, running work has time to end
a second signal     work that still runs is abandoned
after stop_seconds  waits for other processes fail, and five seconds later the process ends
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from seqstore.cli.server.notify import READY, STOPPING, notify
from seqstore.store import InvalidInputError, Store
from seqstore.store.catalog.accounts import ROOT
from seqstore.store.runtime.addresses import is_loopback

# Loads hand turns to each other while others parse. Each time Python lets the one that parses go on for this
# long; with its usual 5 ms 64 clients that share commits were three times as slow.
_SWITCH_SECONDS: Final = 0.0005
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_AFTER_SECONDS: Final = 5.0  # for work that no longer waits, to end and to say so
_LOG: Final = logging.getLogger(__name__)


class Service(Protocol):
    """One protocol on one port. `start` returns when clients can connect, `stop` when none is served any
    more."""

    @property
    def address(self) -> str:
        """Returns the clients' address, such as `http://127.0.0.1:8030`, after `start`; empty without one."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class BackgroundService:
    """Runs two blocking calls, at the start and at the stop of the server."""

    def __init__(self, start: Callable[[], object], stop: Callable[[], object] = lambda: None) -> None:
        self._start = start
        self._stop = stop

    @property
    def address(self) -> str:
        """No client connects."""
        return ""

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    async def stop(self) -> None:
        await asyncio.to_thread(self._stop)


async def run_services(
    services: Sequence[Service],
    started: Callable[[Sequence[Service]], None],
    *,
    stop_seconds: float,
    stop_waiting: Callable[[], None],
    abandoning: Collection[int] = STOP_SIGNALS,
) -> None:
    """Starts all, calls `started`, waits for a signal, stops all.

    Args:
        stop_seconds: how long services may take to stop; then `stop_waiting` is called, and the process ends
            soon after, whatever its threads wait for.
        stop_waiting: makes waits for other processes fail.
        abandoning: signals that abandon running work when they come second. A worker may get SIGTERM twice:
            from its hub, and from what stops all processes of a service.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, ending.set)
    running: list[Service] = []
    try:
        for service in services:
            await service.start()
            running.append(service)
        started(services)
        notify(READY)
        await ending.wait()
        notify(STOPPING)
    finally:
        ending.clear()
        for number in set(STOP_SIGNALS) - set(abandoning):
            loop.add_signal_handler(number, lambda: None)
        _end_after(stop_seconds, stop_waiting)
        await _stop(running, ending)


def _end_after(seconds: float, stop_waiting: Callable[[], None]) -> None:
    """Ends the process some seconds from now, unless it has ended by then."""

    def end() -> None:
        stop_waiting()
        time.sleep(_AFTER_SECONDS)
        _LOG.warning("work did not end within %g seconds of the signal; it is abandoned", seconds)
        os._exit(1)  # threads that wait in a system call cannot be ended otherwise; a crash loses nothing

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


async def _stop(running: Sequence[Service], given_up: asyncio.Event) -> None:
    async def stop_all() -> None:
        for service in reversed(running):
            await service.stop()

    stopping = asyncio.create_task(stop_all())
    impatient = asyncio.create_task(given_up.wait())
    await asyncio.wait({stopping, impatient}, return_when=asyncio.FIRST_COMPLETED)
    impatient.cancel()
    if not stopping.done():
        stopping.cancel()
    await asyncio.gather(stopping, impatient, return_exceptions=True)


def warn_of_empty_password(store: Store) -> None:
    """Logs, at every start, that root has no password."""
    root = store.accounts.find(ROOT)
    if root is None or not root.has_password:
        _LOG.warning(
            "user root has an empty password: every user of this machine has all privileges; set one by "
            "SET PASSWORD FOR root = PASSWORD('...')"
        )


def check_exposure(store: Store, host: str) -> None:
    """Refuses to listen beyond this machine while root has no password.

    Raises:
        InvalidInputError: with the way out.
    """
    root = store.accounts.find(ROOT)
    if is_loopback(host) or (root is not None and root.has_password):
        return
    raise InvalidInputError(
        f"refusing to listen on {host}: user root has an empty password; set one first "
        "(SET PASSWORD FOR root = PASSWORD('...')) or listen on 127.0.0.1",
        kind="exposed",
    )
