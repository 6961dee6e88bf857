"""Folders of sockets in the temporary directory, of which those of killed processes are removed.

A process holds a lock on a file in its folder, which the system releases when the process ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "seqstore-flight-"
_LOCK: Final = "lock"


class SocketFolder:
    """A folder of mode 0700, until `remove`. Those that killed processes of this user left are removed.

    Attributes:
        path: of the folder.
    """

    def __init__(self) -> None:
        _sweep(Path(tempfile.gettempdir()))
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            with suppress(FileNotFoundError):  # another process took it for one that was left
                self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                if (self.path / _LOCK).exists():
                    return
                os.close(self._lock)

    def remove(self) -> None:
        """Removes the folder; more than once does no harm."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _sweep(temporary: Path) -> None:
    for folder in temporary.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # of another user, or gone
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
