"""Flips bits of a catalog, each in a copy of the store and in a process of its own, and says what came of it.

Started as a program: directory of the store, then `offset:bit` for each flip on the standard input. It
prints a line for each: the flip, and `right`, `corruption` or the fault. LMDB may end the process that opens
a damaged file, so every flip is looked at by a fork of this one, which has opened nothing.
"""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import struct
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from seqstore import CorruptionError, Settings, Store
from tests.support.faults.flips import flip, in_a_fork
from tests.support.forks.fork_server import preload
from tests.support.rows import rows_of, schema_of

PAGE_BYTES: Final = 4096
_SETTINGS: Final = Settings(inline_bytes_max=300, auto_compaction=0, catalog_bytes_max=2**26)
Contents = dict[str, Any]


def make_store(path: Path) -> None:
    """Makes a small store: several tables, versions and labels, inline segments, files, bitmaps and trash."""
    with Store.open(path, settings=_SETTINGS) as store:
        for database in ("db", "other"):
            store.create_database(database)
            for name in ("t", "u"):
                table = store.create_table(f"{database}.{name}", schema_of("k BIGINT NOT NULL", "v STRING"))
                for number in range(12):
                    rows = 5 if number % 3 else 60
                    keys = [(number * 7 + i) % 90 for i in range(rows)]
                    table.upsert(
                        pa.table({"k": keys, "v": [f"{number}:{key}" for key in keys]}),
                        label=f"{name}-{number}",
                    )
                table.optimize()
                table.vacuum()
        store.table("db.t").vacuum(retention_seconds=0)
        store.accounts.create("ann", "secret")
        store.drop_table("other.u")
        # Free pages and large values, which trees and lists of free pages refer to.
        table = store.table("other.t")
        table.upsert(pa.table({"k": [1], "v": ["x" * 200]}))


def contents(path: Path) -> Contents:
    """Returns everything that readers of the store see."""
    found: Contents = {}
    with Store.open(path, settings=_SETTINGS) as store:
        found["databases"] = store.databases()
        found["users"] = store.accounts.names()
        for database in store.databases():
            found[database] = store.tables(database)
            for name in store.tables(database):
                table = store.table(f"{database}.{name}")
                versions = range(table.oldest_version, table.version + 1)
                found[table.name] = {version: rows_of(table, version=version) for version in versions}
                found[f"{table.name} history"] = [(i.version, i.label, i.operation) for i in table.history()]
                found[f"{table.name} check"] = table.check()
            for number in range(12):
                for label in (f"t-{number}", f"u-{number}"):
                    record = store.find_transaction(database, label)
                    found[f"{database} {label}"] = record and (record.status, record.version)
    return found


def files(path: Path) -> set[str]:
    """Returns the names of the segment files, those that were moved to the trash as well."""
    return {file.name for file in path.rglob("*") if file.suffix in (".arrow", ".keys")}


def places(path: Path, seed_offset: int, step: int) -> Iterator[tuple[int, int]]:
    """Yields flips at a step, among the bytes of heads, page headers, pointers, node headers and keys."""
    data = (path / "catalog" / "data.mdb").read_bytes()
    number = seed_offset
    for page in range(0, len(data), PAGE_BYTES):
        for within in sorted(_used_bytes(data, page)):
            number += 1
            if number % step == 0:
                yield page + within, (number // step) % 8


def _used_bytes(data: bytes, page: int) -> set[int]:
    flags, lower, upper = struct.unpack_from("<HHH", data, page + 10)
    if page < 2 * PAGE_BYTES:
        return set(range(170))
    header = set(range(16))
    if flags & 3 and 16 <= lower <= upper <= PAGE_BYTES:
        places = struct.unpack_from(f"<{(lower - 16) // 2}H", data, page + 16)
        header |= set(range(16, lower))
        for place in places:
            if place + 8 <= PAGE_BYTES:
                key = struct.unpack_from("<H", data, page + place + 6)[0]
                header |= set(range(place, min(place + 8 + key + 16, PAGE_BYTES)))
    return header


def _outcome(copy: Path, expected: Contents) -> str:
    try:
        found = contents(copy)
    except CorruptionError:
        return "corruption"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    wrong = [name for name in expected if found.get(name) != expected[name]]
    checks = [name for name in wrong if name.endswith(" check") and found.get(name)]
    return "right" if not wrong else "corruption" if wrong == checks else f"wrong: {wrong}"


def main(path: Path) -> None:
    """Runs the program."""
    logging.disable()
    preload(("numpy.ma", "seqstore.store.store"))
    copy = path.parent / f"flipped-{os.getpid()}"
    shutil.copytree(path, copy)
    whole = path.parent / f"expected-{os.getpid()}"

    def keep_expected() -> str:
        whole.write_bytes(pickle.dumps(contents(copy)))
        return ""

    assert in_a_fork(keep_expected) == ""  # this process must open nothing
    expected: Contents = pickle.loads(whole.read_bytes())
    before = files(path)
    for line in sys.stdin:
        offset, _, bit = line.strip().partition(":")
        flip(path, copy, "catalog/data.mdb", int(offset), int(bit))
        outcome = in_a_fork(partial(_outcome, copy, expected))
        if missing := before - files(copy):
            outcome = f"deleted {len(missing)} files, {outcome}"
        print(line.strip(), outcome, flush=True)
    shutil.rmtree(copy)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
