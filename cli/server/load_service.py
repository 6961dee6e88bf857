"""The broker loads of a store as a service: `serve` goes on with the jobs whose processes were ended."""

from __future__ import annotations

import asyncio

from seqstore.loaders.broker.worker import resume
from seqstore.store import Store


class LoadService:
    """Starts jobs again; each runs in a process of its own, which the end of the server does not touch."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def address(self) -> str:
        """Nobody connects to it."""
        return ""

    async def start(self) -> None:
        """Before clients can look: whoever looks first finds an abandoned job cancelled."""
        await asyncio.to_thread(resume, self._store)

    async def stop(self) -> None:
        """Nothing of it runs here."""
