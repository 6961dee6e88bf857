"""Files of a local disk that are written now and made durable together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from seqstore.store.segment.disk import Disk, NewFile


class DeferredDisk(Disk):
    """The same files as another local disk; new ones are durable after `settle`."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk.root, mapped_reads=disk.mapped_reads)
        self._written_names: list[str] = []

    @contextmanager
    def create(self, name: str) -> Iterator[NewFile]:
        """Creates a file whose bytes are durable after `settle`; see `Disk.create_unsynced`."""
        with self.create_unsynced(name) as file:
            yield file
        self._written_names.append(name)

    def settle(self) -> None:
        """Makes the bytes of the files durable, not their names.

        Raises:
            UnavailableError: the disk fails.
        """
        names, self._written_names = self._written_names, []
        self.sync_files(names)
