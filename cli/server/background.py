"""Work beside the servers: a service without a port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


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
