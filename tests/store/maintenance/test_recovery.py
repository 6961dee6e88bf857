"""What opening repairs: files nobody names and labels of processes that are gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import CorruptionError, LabelExistsError, Settings, Store, Table
from seqstore.store.catalog import catalog
from seqstore.store.dropped_files import DroppedFiles
from seqstore.store.maintenance.recovery import sweep_table
from tests.support.children import MODULES
from tests.support.forks.forked import ForkedPython
from tests.support.rows import rows_of, schema_of

SIZES = Settings(inline_bytes_max=1)
pytestmark = pytest.mark.settings(SIZES)

STAGE = """
import sys
import pyarrow as pa
from seqstore import Settings, Store
table = Store.open(sys.argv[1], settings=Settings(inline_bytes_max=1)).table("db.t")
load = table.begin_load(label="day-1")
load.write(pa.table({"k": [1, 2]}))
print("staged", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def table(store: Store) -> Table:
    made = store.create_table("db.t", schema_of("k BIGINT NOT NULL"))
    made.upsert(pa.table({"k": [9]}))
    return made


def stage(path: Path) -> ForkedPython:
    """A process that has staged a load under label `day-1` and waits."""
    environment = {**os.environ, "PYTHONPATH": MODULES}
    child = ForkedPython(["-c", STAGE, str(path)], environment=environment, has_input=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "staged\n"
    return child


def end(child: ForkedPython) -> None:
    child.kill()
    child.communicate()


def names(path: Path) -> set[str]:
    return {file.name for file in path.glob("tables/*/*")}


def test_files_and_label_of_a_living_process_are_left_alone(tmp_path: Path, table: Table) -> None:
    own = names(tmp_path / "data")
    child = stage(tmp_path / "data")
    try:
        Store.open(tmp_path / "data")
        assert len(names(tmp_path / "data")) == len(own) + 2
        with pytest.raises(LabelExistsError) as caught:
            table.begin_load(label="day-1")
        assert caught.value.status == "PREPARE"
    finally:
        end(child)


def test_files_and_label_of_a_dead_process_are_freed(tmp_path: Path, table: Table) -> None:
    own = names(tmp_path / "data")
    end(stage(tmp_path / "data"))
    Store.open(tmp_path / "data")
    assert names(tmp_path / "data") == own
    assert table.upsert(pa.table({"k": [1]}), label="day-1").version == 3
    assert rows_of(table) == [(1,), (9,)]


def test_a_dead_process_nobody_has_waited_for_is_dead(tmp_path: Path, table: Table) -> None:
    """Its entry in /proc stays, start time and all, until its parent asks: perhaps for ever."""
    own = names(tmp_path / "data")
    with subprocess.Popen(
        [sys.executable, "-c", STAGE, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": MODULES},
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"staged\n"
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is dead, and still not waited for
        Store.open(tmp_path / "data")
        assert names(tmp_path / "data") == own
        assert table.upsert(pa.table({"k": [1]}), label="day-1").version == 3


def test_files_of_others_are_never_touched(tmp_path: Path, table: Table) -> None:
    directory = next((tmp_path / "data").glob("tables/*"))
    foreign = ["README.txt", "a-b-c-d.arrow", "x.keys", "1-2-3.parquet", "zz-zz-zz-zz.keys", "-1--2-3.arrow"]
    for name in foreign:
        (directory / name).write_text("mine")
    Store.open(tmp_path / "data")
    assert set(foreign) <= names(tmp_path / "data")
    assert table.check() == []


@pytest.mark.parametrize("end", ["maintain", "drop", "close", "open"])
def test_a_dropped_table_keeps_its_files_while_it_is_read(tmp_path: Path, table: Table, end: str) -> None:
    """A reader met a missing file, and called it corruption."""
    with Store.open(tmp_path / "data", settings=SIZES) as store:
        other = store.create_table("db.other", table.schema)
        expected, left = rows_of(table), names(tmp_path / "data")
        assert left
        snapshot = store.table("db.t").snapshot()
        store.drop_table("db.t")
        Store.open(tmp_path / "data").close()  # it sweeps
        assert names(tmp_path / "data") == left
        assert sorted(tuple(row.values()) for row in snapshot.scan().read_all().to_pylist()) == expected
        if end == "open":
            store._dropped = DroppedFiles(store.path, store.catalog, store.disk)  # the process was killed
        snapshot.close()
        del snapshot
        if end == "maintain":
            store.maintain()
        elif end == "drop":
            store.drop_table(other.name)
        if end in ("maintain", "drop"):
            assert names(tmp_path / "data") == set()
    if end == "open":
        Store.open(tmp_path / "data").close()
    assert names(tmp_path / "data") == set()


def test_files_of_a_table_that_was_dropped_are_swept(tmp_path: Path, table: Table) -> None:
    """A crash between the drop and the removal of its files must not keep them for ever."""
    store = Store.open(tmp_path / "data", settings=SIZES)
    kept = store.create_table("db.kept", table.schema)
    kept.upsert(pa.table({"k": [1]}))
    left = names(tmp_path / "data")
    store._remove_files = lambda directory: None  # type: ignore[method-assign]
    store.drop_table("db.t")
    assert names(tmp_path / "data") == left
    Store.open(tmp_path / "data")
    assert len(names(tmp_path / "data")) == len(left) - 2
    assert rows_of(kept) == [(1,)]
    assert kept.check() == []


def test_nothing_is_swept_where_a_record_of_the_table_is_lost(tmp_path: Path, table: Table) -> None:
    """The record may have named the file, and a repair needs it."""
    table.upsert(pa.table({"k": [10]}))
    end(stage(tmp_path / "data"))
    left = names(tmp_path / "data")
    with table.catalog.write() as tx:
        tx.delete("versions", catalog.version_key(table.id, 2))
    with pytest.raises(CorruptionError, match="records of versions"):
        sweep_table(table.catalog, table.loader.disk, table.id, table.loader.directory)
    assert names(tmp_path / "data") == left
