"""Errors of the disk as errors of the store."""

from __future__ import annotations

from pathlib import Path

from seqstore.store.errors import UnavailableError


def disk_error(path: Path, error: OSError) -> UnavailableError:
    """Returns the store's error for one of the disk, with the name of the file."""
    return UnavailableError(f"{path}: cannot be read or written: {error}", kind="disk", path=str(path))
