"""The program of the process that compacts for others; maintenance.compaction_process describes it.

Its one argument is the id of the process that started it. Standard input has the data directory and the
settings.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from seqstore.store.errors import StoreError
from seqstore.store.maintenance.compaction_process import MAINTAIN, NAME, short_path
from seqstore.store.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from seqstore.store.settings import Settings

_LOOK_SECONDS: Final = 0.5
_MESSAGE_BYTES: Final = 4096


class Compactor:
    """Does what writers ask for.

    Args:
        store: of its own, with threads that compact after loads.
        ending: set when the process is told to stop.
    """

    def __init__(self, store: Store, ending: threading.Event) -> None:
        self._store = store
        self._ending = ending
        self._waiting: set[str] = set()  # tables to maintain

    def serve(self, place: Path) -> None:
        """Receives messages at a socket until the process is told to stop; removes the socket."""
        place.unlink(missing_ok=True)  # of a process that was killed
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
            ThreadPoolExecutor(1) as maintaining,
        ):
            with short_path(place.parent) as path:
                listener.bind(path)
            listener.settimeout(_LOOK_SECONDS)
            try:
                while not self._ending.is_set():
                    with suppress(TimeoutError):
                        what, _, table = listener.recv(_MESSAGE_BYTES).decode().partition(" ")
                        if what != MAINTAIN:
                            self._look_at(table)
                        elif table not in self._waiting:
                            self._waiting.add(table)
                            maintaining.submit(self._maintain, table)
            finally:
                place.unlink(missing_ok=True)

    def _look_at(self, name: str) -> None:
        with suppress(StoreError):  # the next load asks again
            table = self._store.table(name)
            self._store.maintainer.after_load(table, table.state())

    def _maintain(self, name: str) -> None:
        self._waiting.discard(name)
        with suppress(StoreError):
            self._store.maintainer.maintain_all([name], self._store.table, self._ending.is_set)


def main(parent: int) -> None:
    """Runs the process until its parent ends or it is told to stop."""
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent ends in its own way
    data_dir: Path
    settings: Settings
    data_dir, settings = pickle.load(sys.stdin.buffer)
    os.nice(settings.compaction_nice)  # Linux lowers the priority of reads and writes with it
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    settings = replace(settings, compaction_process=False)
    with Store.open(data_dir, create=False, settings=settings) as store:
        Compactor(store, ending).serve(data_dir / "locks" / NAME)


def _watch(parent: int) -> None:
    """Ends the process as a crash would once its parent is gone; compactions lose nothing by that."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
