"""A compaction of more rows than fit in memory: it holds one part at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from seqstore import Column, Settings, Store, TableSchema, parse_type
from tests.support.children import MODULES

SEGMENTS, ROWS = 10, 1_000_000

# Mapped files count as memory of a process, though the system may take them away; ours is what is left.
CHILD = """
import json, sys, threading
from pathlib import Path
from seqstore import Store

peak, done = {"VmRSS": 0, "RssAnon": 0}, threading.Event()

def watch():
    while not done.wait(0.01):
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in peak:
                peak[name] = max(peak[name], int(value.split()[0]) * 1024)

watching = threading.Thread(target=watch)
watching.start()
with Store.open(sys.argv[1]) as store:
    result = store.table("db.t").optimize(full=True)
done.set()
watching.join()
print(json.dumps({**peak, "rows": result.rows}))
"""


@pytest.mark.torture
def test_ten_million_rows_merge_within_2_gb(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", settings=Settings(auto_compaction=0)) as store:
        store.create_database("db")
        columns = [Column("k", parse_type("bigint"), False), Column("t", parse_type("varchar(40)"))]
        columns += [Column(f"v{number}", parse_type("bigint")) for number in range(6)]
        table = store.create_table("db.t", TableSchema.create(columns, ["k"]))
        keys = np.random.default_rng(1).permutation(SEGMENTS * ROWS)
        for part in np.split(keys, SEGMENTS):
            text = pa.array(np.char.add("text-of-some-length-", (part % 100_000).astype(str)))
            table.upsert(pa.table({"k": part, "t": text, **{f"v{number}": part for number in range(6)}}))
        used = sum(live.segment.meta.data_bytes for live in table.state().segments.values())
    told = json.loads(
        subprocess.run(
            [sys.executable, "-c", CHILD, str(tmp_path / "data")],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": MODULES},
            check=True,
        ).stdout
    )
    assert told["rows"] == SEGMENTS * ROWS
    assert told["VmRSS"] < 2_000_000_000
    assert told["RssAnon"] < used
