"""Flips bits of files of every kind, each in a copy of a store and in a process of its own.

Started as a program: directory of a store of `every_kind`, then `name offset bit` for each flip on the
standard input. It prints a line for each: the flip, and `right`, `corruption`, `refused` or the fault. Every
flip is looked at by a fork of this process, which has opened nothing. The fork reads everything, commits what
is pre-committed, updates, vacuums and reads the tables again.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from seqstore import CorruptionError, Session, Settings, Store, StoreError
from seqstore.store.catalog.update_lock import lock_directory, update_lock
from tests.support.every_kind import every_kind, rows
from tests.support.faults.dying_child import run_until_dead
from tests.support.faults.flipped_catalog import contents
from tests.support.faults.flips import flip, in_a_fork
from tests.support.forks.fork_server import preload
from tests.support.rows import rows_of

SETTINGS: Final = Settings(auto_compaction=0, catalog_bytes_max=2**26, update_lock_seconds=2)
_OPENED: Final = (
    "CREATE TABLE opened (k INT NOT NULL, v VARCHAR(20), n INT) UNIQUE KEY (k) PROPERTIES "
    "('delta.universalFormat.enabledFormats' = 'delta,iceberg', 'open_every_seconds' = '0')"
)
RIGHT, CORRUPTION, REFUSED = "right", "corruption", "refused"
_LABELS: Final = ("small", "large", "overwrite", "transaction")
# Killed while it holds the lock of UPDATE, so that its request stays in the queue.
_UPDATE: Final = """
import sys, time
from seqstore import Store
from seqstore.store.catalog.update_lock import lock_directory, update_lock
store = Store.open(sys.argv[1])
with update_lock(lock_directory(store.catalog), store.table("db.plain").id, 1, about="db.plain"):
    print("ready", flush=True)
    time.sleep(600)
"""


@contextmanager
def open_store_of_every_kind(folder: Path) -> Iterator[Path]:
    """Makes a store with files of every kind below an empty folder, and yields a copy of its directory.

    This process has the store open as long as the block lasts: leases and locks are those of a live process.
    """
    with every_kind(folder) as made:
        with Session(made.store, "db") as session:
            list(session.execute("REORG TABLE counted APPLY (UPGRADE UNIFORM(ICEBERG_COMPAT_VERSION=2))"))
            list(session.execute(_OPENED))
            made.store.table("db.opened").upsert(rows())
            list(session.execute("DELETE FROM opened WHERE k < 9"))
            made.store.opener.wait()
        run_until_dead(_UPDATE, made.store.path, 0)
        typed = made.store.table("db.typed")
        with update_lock(lock_directory(made.store.catalog), typed.id, 1, about="db.typed"):
            copy = shutil.copytree(made.store.path, folder / "copy")
        log = next(copy.glob("tables/*/_delta_log"))
        others = (
            copy / "trash" / "99" / next(copy.glob("tables/*/*.arrow")).name,
            log / "_foreign" / "00000000000000000009.json.1",
            log.parent / "metadata" / "_foreign" / "v9.metadata.json",
        )
        for file in others:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"{} " * 100)
        yield copy


def acts(path: Path) -> dict[str, Any]:
    """Works on a store and returns what came of it."""
    found: dict[str, Any] = {}
    with Store.open(path, settings=SETTINGS) as store, Session(store, "db") as session:
        for label in _LABELS:
            found[label] = _tried(partial(store.commit_transaction, "db", label=label))
        found["update"] = _tried(lambda: list(session.execute("UPDATE plain SET n = 5 WHERE k = 8")))
        found["opened"] = _tried(partial(store.table("db.opened").upsert, rows(300, 5)))
        store.opener.wait()
        for name in store.tables("db"):
            table = store.table(f"db.{name}")
            found[f"vacuum {name}"] = _tried(partial(table.vacuum, retention_seconds=0))
            found[name] = sorted(rows_of(table), key=str)
            found[f"check {name}"] = table.check()
    return found


def _tried(work: Callable[[], object]) -> str:
    try:
        work()
    except CorruptionError:
        raise
    except StoreError as error:
        return type(error).__name__
    return "done"


def _as_stored(path: Path) -> dict[str, Any]:
    """Returns everything, as JSON has it."""
    found = {str(name): value for name, value in {**contents(path), **acts(path)}.items()}
    return json.loads(json.dumps(found, default=str))  # type: ignore[no-any-return]


def _outcome(copy: Path, expected: dict[str, Any]) -> str:
    try:
        found = _as_stored(copy)
    except CorruptionError:
        return CORRUPTION
    except StoreError as error:
        return f"{REFUSED} {error.kind}"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    wrong = [name for name in expected if found.get(name) != expected[name]]
    if not wrong:
        return RIGHT
    if all(name.startswith("check ") or name.endswith(" check") for name in wrong):
        return CORRUPTION
    return f"wrong: {wrong}, {str(found.get(wrong[0]))[:200]}"


def main(path: Path) -> None:
    """Runs the program."""
    logging.disable()
    preload()
    copy = path.parent / f"flipped-{os.getpid()}"
    shutil.copytree(path, copy)
    plain = path.parent / f"expected-{os.getpid()}"

    def tell_expected() -> str:
        plain.write_text(json.dumps(_as_stored(copy)))
        return ""

    assert in_a_fork(tell_expected) == ""
    expected = json.loads(plain.read_text())

    def outcome() -> str:
        return _outcome(copy, expected)

    for line in sys.stdin:
        name, offset, bit = line.rsplit(maxsplit=2)
        flip(path, copy, name, int(offset), int(bit))
        print(line.strip(), in_a_fork(outcome), sep="\t", flush=True)
    shutil.rmtree(copy)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
