"""The data file of a catalog: whose directory it is in, and whether LMDB may use it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import lmdb

from seqstore.store.catalog.catalog import DATABASES, verify
from seqstore.store.catalog.environment.page_check import check_heads, check_pages
from seqstore.store.errors import CorruptionError, FormatError, StoreError, UnavailableError

DATA_FILE: Final = "data.mdb"
LOCK_FILE: Final = "lock.mdb"


def damaged(path: Path, error: Exception) -> CorruptionError:
    return CorruptionError(
        f"{path}: the catalog is damaged: {error}; run repair, or restore it from a copy", path=str(path)
    )


def refuse_foreign(path: Path) -> None:
    """Refuses a directory that has files but no catalog: it is not a store, or has lost its catalog."""
    parent = path.parent
    if parent.exists() and not parent.is_dir():
        raise FormatError(f"{parent}: expected a directory, found a file", path=str(parent))
    foreign = [name for name in _names(parent) if name != path.name]
    foreign += [f"{path.name}/{name}" for name in _names(path) if name not in (DATA_FILE, LOCK_FILE)]
    # Read last: another process that creates this store writes its catalog first.
    if not foreign or size_of(path / DATA_FILE):
        return
    raise FormatError(
        f"{parent}: not a store: it holds {foreign[0]!r} and no catalog; name an empty or a new directory, "
        "or run repair, or restore the catalog from a copy",
        path=str(parent),
    )


def _names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir()) if directory.is_dir() else []


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def identity_of(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


def check_file(env: lmdb.Environment, file: Path) -> None:
    """Runs step 2 of opening."""
    try:
        needed = check_pages(env, file, verify)
        if size_of(file) < needed:
            _lengthen(file, needed)
    except FormatError:
        raise
    except (ValueError, StoreError) as error:
        raise damaged(file, error) from error
    except OSError as error:
        raise UnavailableError(f"{file}: cannot be read: {error}", kind="catalog") from error


def fault_in(file: Path) -> str:
    """Returns the fault for which a data file cannot be opened, empty for a sound one; changes nothing.

    Raises:
        FormatError: a newer program wrote it.
        UnavailableError: it cannot be read.
    """
    if not size_of(file):
        return f"{file}: the catalog is missing"
    env = None
    try:
        check_heads(file)
        env = lmdb.open(str(file.parent), readonly=True, lock=False, max_dbs=len(DATABASES) + 8)
        check_pages(env, file, verify)
    except FormatError:
        raise
    except (ValueError, StoreError, lmdb.Error) as error:
        return f"{file}: {error}"
    except OSError as error:
        raise UnavailableError(f"{file}: cannot be read: {error}", kind="catalog") from error
    finally:
        if env is not None:
            env.close()
    return ""


def _lengthen(file: Path, needed: int) -> None:
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.posix_fallocate(descriptor, 0, needed)  # never shortens the file of a concurrent writer
    finally:
        os.close(descriptor)
