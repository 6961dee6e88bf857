"""Files of dropped tables: they are removed once no process reads the table.

1. A reader holds its version by a lease, whatever process it is in (catalog.leases).
2. The files of a table that is read when it is dropped stay for the next drop, for maintenance, or for the
   end of the store's handle.
3. What is left then, or cannot be removed, is swept at the next opening (maintenance.recovery).
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Final

from seqstore.store.catalog.environment import Catalog
from seqstore.store.errors import UnavailableError
from seqstore.store.iceberg.uniform import iceberg_directory
from seqstore.store.maintenance.recovery import is_read
from seqstore.store.open_table.open_table import remove_open_files
from seqstore.store.segment.disk import Disk

_LOG: Final = logging.getLogger(__name__)


class DroppedFiles:
    """The directories of the tables that one handle of a store has dropped."""

    def __init__(self, path: Path, catalog: Catalog, disk: Disk) -> None:
        self._path = path
        self._catalog = catalog
        self._disk = disk
        self._left: set[str] = set()

    def remove(self, directory: str) -> None:
        """Removes the files of a dropped table, and what is left of others, unless they are read."""
        self._left.add(directory)
        self.remove_unread()

    def remove_unread(self) -> None:
        """Removes what is left of dropped tables that no process reads any more."""
        for directory in sorted(self._left):
            try:
                if is_read(self._catalog, directory):
                    continue
                self._catalog.make_durable()
                remove_open_files(self._disk, directory)
                for name in self._disk.list(directory):
                    self._disk.discard(f"{directory}/{name}")
            except UnavailableError as error:
                _LOG.warning("%s: files of a dropped table are left to the next sweep: %s", self._path, error)
            self._left.discard(directory)
            shutil.rmtree(self._path / iceberg_directory(directory), ignore_errors=True)
