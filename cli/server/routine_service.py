"""The routine loads of a store as a service: `serve` runs the jobs that were running."""

from __future__ import annotations

import asyncio

from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.store import Store


class RoutineService:
    """Runs jobs beside the servers; it listens nowhere."""

    def __init__(self, store: Store) -> None:
        self._runner = RoutineRunner(store)

    @property
    def address(self) -> str:
        """Nobody connects to it."""
        return ""

    async def start(self) -> None:
        """Begins with the jobs there are; those made later follow."""
        self._runner.start()

    async def stop(self) -> None:
        """Running tasks get their time."""
        await asyncio.to_thread(self._runner.stop)
