"""Directories whose names survive a power failure."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def make_directory(path: Path) -> None:
    """Creates a directory and its parents; the names of new ones are durable afterwards.

    Raises:
        OSError: a directory can be neither created nor synced.
    """
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    try:
        sync_path(path.parent)
    except OSError:
        with suppress(OSError):
            path.rmdir()  # so that the next call syncs its name
        raise


def sync_path(path: Path) -> None:
    """Makes a file's bytes, or the names in a directory, durable.

    Raises:
        OSError: it cannot be synced.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
