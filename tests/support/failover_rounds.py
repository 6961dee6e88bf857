"""Rounds of failovers: a leader loads, its host is lost or stopped, another one takes over.

Each load has a label and adds one row, so a table of version 1 + n has n loads, and a load that was applied
twice would show as a version without a row.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from pathlib import Path
from typing import IO, Final

import pyarrow as pa

from seqstore import Settings, Store
from seqstore.store.failover.restore import restore_store
from tests.support.children import MODULES, ROOT
from tests.support.faults.dying_child import end_at_the_latest
from tests.support.forks.forked import ForkedPython
from tests.support.rows import rows_of, schema_of

SETTINGS: Final = Settings(ship_seconds=0, auto_compaction=0, inline_bytes_max=200)
PROGRESS: Final = ROOT / ".failovers.json"
LEADER: Final = """
import sys
import pyarrow as pa
from seqstore import LabelExistsError, Settings, Store, UnavailableError
store = Store.open(sys.argv[1], settings=Settings(ship_seconds=0, auto_compaction=0, inline_bytes_max=200))
table = store.table("db.t")
print("ready", flush=True)
number = int(sys.argv[2])
while True:
    text = "x" * (number % 3 * 300)  # some rows are stored in segments
    try:
        table.upsert(pa.table({"k": [number], "v": [text]}), label=f"load{number}")
    except LabelExistsError:
        pass
    except UnavailableError as error:
        print(error.kind, number, error.message.replace("\\n", " "), flush=True)
        if error.kind == "fenced":
            break
        continue  # a request that a stop of the process has broken; the label meets what became of it
    print("loaded", number, flush=True)
    number += 1
"""


def rounds_so_far(commit: str, kind: str) -> int:
    """Returns how many rounds of a kind earlier runs at a commit have done without a fault."""
    found: dict[str, dict[str, int]] = json.loads(PROGRESS.read_text()) if PROGRESS.exists() else {}
    return found.get(commit, {}).get(kind, 0)


def add_rounds(commit: str, kind: str, count: int) -> None:
    """Adds rounds to those of a commit; one process at a time does."""
    found: dict[str, dict[str, int]] = json.loads(PROGRESS.read_text()) if PROGRESS.exists() else {}
    done = found.setdefault(commit, {})
    done[kind] = done.get(kind, 0) + count
    written = PROGRESS.with_suffix(".new")
    written.write_text(json.dumps(found, indent=2) + "\n")
    written.replace(PROGRESS)


def run_rounds(root: Path, target: str, segments: str, rounds: int, seed: int) -> None:
    """Runs rounds of two kinds, at random: kill -9 and loss of the disk, or a stop and a later awakening."""
    chance = random.Random(seed)
    host, acknowledged = root / "host0", 0
    with Store.open(host, settings=SETTINGS, segments=segments) as store:
        store.create_database("db")
        store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING"))
        store.shipping.begin(target)
    for number in range(1, rounds + 1):
        new = root / f"host{number}"
        is_stopped, loads = number % 2 == 0, chance.randint(1, 12)
        arguments = ["-c", LEADER, str(host), str(acknowledged)]
        child = ForkedPython(arguments, environment={**os.environ, "PYTHONPATH": MODULES})
        with child, end_at_the_latest(child):
            output = child.stdout
            assert output is not None
            assert output.readline() == "ready\n"
            told = [output.readline() for _ in range(loads)]
            if is_stopped:
                child.send_signal(signal.SIGSTOP)
                acknowledged = _take_over(target, new, [])
                child.send_signal(signal.SIGCONT)
                acknowledged = _checked_zombie(output, new, told, acknowledged)
            else:
                child.send_signal(signal.SIGKILL)
                told += output.readlines()
                shutil.rmtree(host)
                acknowledged = _take_over(target, new, told)
        shutil.rmtree(host, ignore_errors=True)
        host = new


def _take_over(target: str, new: Path, told: list[str]) -> int:
    """Restores the store; returns the number of loads that it has, which are all that were acknowledged."""
    restore_store(target, new, SETTINGS)
    with Store.open(new, settings=SETTINGS) as store:
        return _checked(store, told)


def _checked(store: Store, told: list[str]) -> int:
    table = store.table("db.t")
    found = sorted(key for key, _ in rows_of(table))
    assert found == list(range(len(found)))
    assert table.version == 1 + len(found)
    assert table.check() == []
    loaded = [int(line.split()[1]) for line in told if line.startswith("loaded") and line.endswith("\n")]
    assert max(loaded, default=-1) < len(found)
    return len(found)


def _checked_zombie(output: IO[str], new: Path, told: list[str], there: int) -> int:
    """Loads at the new leader while the old one awakes; all that it still acknowledges is older."""
    with Store.open(new, settings=SETTINGS) as store:
        store.table("db.t").upsert(pa.table({"k": [there], "v": ["new"]}), label=f"load{there}")
        told += output.readlines()  # until it has learnt that it is fenced
        assert told[-1].startswith("fenced"), told
        assert _checked(store, told[:-1]) == there + 1
        loaded = [int(line.split()[1]) for line in told if line.startswith("loaded")]
        assert max(loaded, default=-1) < there
    return there + 1
