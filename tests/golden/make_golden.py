"""Makes the golden stores of a format: an archive of each data directory, and beside it what a reader sees.

Run with the code of the version whose format is to be kept, here of one without the package `seqstore`. The
stores are made in a directory whose name their job records keep; it is removed afterwards.

    PYTHONPATH=CHECKOUT_OF_THAT_VERSION:. python -m tests.golden.make_golden tests/golden/format1 /srv/golden
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import sys
import tarfile
from multiprocessing import get_context
from pathlib import Path

import lmdb

from tests.golden.stores import MAKERS, contents

# Of processes that live; the stores are opened by others.
_LEFT_OUT = ("readers", "locks")


def make(name: str, path: Path) -> None:
    """Makes a store in a process of its own, which ends without closing anything."""
    child = get_context("spawn").Process(target=_make_and_die, args=(name, path))
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"{name}: the process that made it ended with {child.exitcode}")


def _make_and_die(name: str, path: Path) -> None:
    try:
        MAKERS[name](path)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def pack(path: Path, archive: Path) -> None:
    """Packs a data directory that no process has open; equal directories make equal archives."""
    compact = path.with_name(f"{path.name}-compact")
    compact.mkdir()
    with lmdb.open(str(path / "catalog"), max_dbs=64, readonly=True, lock=False) as environment:
        environment.copy(str(compact), compact=True)  # the file itself is sparse, and keeps freed pages
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        _add(tar, "catalog/data.mdb", (compact / "data.mdb").read_bytes())
        for file in sorted(path.rglob("*")):
            name = file.relative_to(path).as_posix()
            if file.is_file() and name.split("/")[0] not in ("catalog", *_LEFT_OUT):
                _add(tar, name, file.read_bytes())
    shutil.rmtree(compact)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def unpack(archive: Path, path: Path) -> Path:
    """Unpacks an archive; returns the data directory."""
    with tarfile.open(archive) as tar:
        tar.extractall(path, filter="data")
    return path


def main(target: Path, directory: Path) -> None:
    directory.mkdir(parents=True)
    target.mkdir(parents=True, exist_ok=True)
    for name in MAKERS:
        make(name, directory / name)
        pack(directory / name, target / f"{name}.tar.gz")
        expected = contents(name, unpack(target / f"{name}.tar.gz", directory / "unpacked" / name))
        text = json.dumps(expected, indent=1, sort_keys=True, ensure_ascii=False)
        (target / f"{name}.json").write_text(text + "\n")
    shutil.rmtree(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
