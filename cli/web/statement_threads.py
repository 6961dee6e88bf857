"""Statements of HTTP requests: each has a thread, of which a user has not all, and a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from weakref import WeakValueDictionary

from aiohttp import web

from seqstore.cli.clients.audit_log import Client, Event
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.store import UnavailableError
from seqstore.store.runtime.memory_limit import count_stack
from seqstore.store.sql import Session

# Statements that run at a time: a user leaves some threads to others.
_THREADS: Final = 64
_USER_THREADS: Final = 48

Work = Callable[[Session, Event], Any]


class StatementThreads:
    """The threads of one HTTP service."""

    def __init__(self, sessions: ServerSessions) -> None:
        self._sessions = sessions
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="connector", initializer=count_stack)
        self._of_users: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def stop(self) -> None:
        """Ends running statements, and refuses others."""
        self._sessions.stop()
        self._threads.shutdown(wait=False)

    async def run(
        self, request: web.BaseRequest, user: str, work: Work, text: str = "", database: str = ""
    ) -> Any:
        """Runs a statement; it ends when its client leaves.

        Args:
            text: of the statement; empty for that of the request.

        Raises:
            StoreError: of the statement, or the server is stopping.
        """
        client = Client("http", str(request.remote), user, database=database)
        loop, transport = asyncio.get_running_loop(), request.transport
        shown = text or f"{request.method} {request.rel_url.raw_path_qs}"

        def stop() -> None:
            if transport is not None:
                loop.call_soon_threadsafe(transport.close)

        def has_client(_is_cancelled: bool) -> bool:
            return not getattr(request.protocol, "is_ended", False)

        def run() -> Any:
            statement = self._sessions.statement(client, shown, has_client=has_client, stop=stop)
            with statement as (session, event):
                return work(session, event)

        async with self._of_users.setdefault(user, asyncio.Semaphore(_USER_THREADS)):
            try:
                running = loop.run_in_executor(self._threads, run)
            except RuntimeError as error:  # the threads have ended
                raise UnavailableError("the server is stopping", kind="stopping") from error
            return await running
