"""Several processes load, compact, vacuum and read one table for a while: readers see whole loads, disk and
memory stay bounded, nobody fails, and the table is sound at the end.

Each writer owns a range of keys and every load of it writes all of them with the load's number, so a reader
must find one number per writer in any version.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from seqstore import Column, Settings, Store, TableSchema, parse_type
from tests.support.children import MODULES
from tests.weight import by_form, torture_minutes

KEYS = 2_000
WRITERS = 2
ROLES = [*(f"write-{number}" for number in range(WRITERS)), "compact", "vacuum", "read", "read-long"]
RETENTION_SECONDS = 1

CHILD = """
import sys, json
from tests_mixed_run import work
print(json.dumps(work(sys.argv[1], sys.argv[2], float(sys.argv[3]))), flush=True)
"""


def work(path: str, role: str, seconds: float) -> dict[str, Any]:
    """One process's part; what it did."""
    from seqstore.store.errors import VersionExpiredError

    end = time.monotonic() + seconds
    store = Store.open(path, settings=Settings(inline_bytes_max=20_000))
    table = store.table("db.t")
    kind, _, number = role.partition("-")
    rounds, looks, most = 0, 0, 0
    is_reader = kind == "read"
    while time.monotonic() < end or (is_reader and not looks):  # a slow machine gets the time for one look
        rounds += 1
        most = max(most, psutil.Process().memory_info().rss)
        if kind == "write":
            load(table, int(number), rounds)
        elif kind == "compact":
            table.optimize(full=rounds % 5 == 0)
            table.purge()
        elif kind == "vacuum":
            table.vacuum(retention_seconds=RETENTION_SECONDS)
        else:
            try:
                looks += any(look(table, pause=1.5 if number == "long" else 0.0).values())
            except VersionExpiredError:
                continue
    store.close()
    return {"rounds": rounds, "looks": looks, "mib": most / 2**20, "failure": store.maintainer.last_failure}


def load(table: Any, writer: int, number: int) -> None:
    import pyarrow as pa

    first = writer * KEYS
    keys = range(first, first + (KEYS if number % 3 else KEYS // 2))
    data = {"k": list(keys), "v": [number] * len(keys)}
    if len(keys) == KEYS:
        table.upsert(pa.table(data))
        return
    with table.begin_load() as opened:  # the same in two writes, which make two segments
        opened.write(pa.table(data))
        rest = range(first + KEYS // 2, first + KEYS)
        opened.write(pa.table({"k": list(rest), "v": [number] * len(rest)}))
        opened.commit()


def look(table: Any, pause: float) -> dict[int, int]:
    """Whole loads only, now and when the version has been open for a while; the load seen of each writer."""
    with table.snapshot(table.oldest_version if pause else None) as snapshot:
        first = seen(snapshot)
        if pause:
            time.sleep(pause)  # a long reader: what it waits for is time itself
            assert seen(snapshot) == first
    return first


def seen(snapshot: Any) -> dict[int, int]:
    import numpy as np

    rows = snapshot.scan().read_all()
    keys, values = np.asarray(rows.column("k")), np.asarray(rows.column("v"))
    assert len(np.unique(keys)) == len(keys)
    found = {}
    for writer in range(WRITERS):
        numbers = values[keys // KEYS == writer]
        assert len(numbers) in (0, KEYS), len(numbers)
        assert len(np.unique(numbers)) <= 1, np.unique(numbers)
        found[writer] = int(numbers[0]) if len(numbers) else 0
    return found


def run(tmp_path: Path, seconds: float) -> None:
    path = tmp_path / "data"
    with Store.open(path) as store:
        store.create_database("db")
        columns = [Column("k", parse_type("bigint"), False), Column("v", parse_type("int"))]
        properties = {"version_retention_seconds": str(RETENTION_SECONDS)}
        table = store.create_table("db.t", TableSchema.create(columns, ["k"], properties=properties))
        for writer in range(WRITERS):
            load(table, writer, 1)
        table.vacuum(retention_seconds=0)  # so that a reader sees rows, however late it begins
    # The children import this module's functions under a plain name.
    (tmp_path / "tests_mixed_run.py").write_text(Path(__file__).read_text())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([MODULES, str(tmp_path)])}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), role, str(seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for role in ROLES
    ]
    try:
        answers = [child.communicate(timeout=seconds + 240) for child in children]
    finally:
        for child in children:
            child.kill()
    for role, child, (out, errors) in zip(ROLES, children, answers, strict=True):
        assert child.returncode == 0, (role, errors)
        told = json.loads(out)
        assert told["rounds"] > 0
        assert told["looks"] > 0 or not role.startswith("read"), "it has read rows"
        assert told["mib"] < 700, role
        assert told["failure"] == ""
    with Store.open(path) as store:
        table = store.table("db.t")
        assert table.check() == []
        assert all(look(table, 0.0).values())
        table.optimize(full=True)
        table.vacuum(retention_seconds=0)
        assert table.check() == []
        used = sum(file.stat().st_size for file in path.glob("tables/*/*"))
        assert used < 4 * 2**20, "what nobody reads is gone"
        assert (path / "catalog" / "data.mdb").stat().st_size < 256 * 2**20


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_a_few_seconds_of_everything_at_once(tmp_path: Path) -> None:
    run(tmp_path, by_form(1, 6))


@pytest.mark.torture
def test_ten_minutes_of_everything_at_once(tmp_path: Path) -> None:
    run(tmp_path, 60 * min(torture_minutes(10), 10))
