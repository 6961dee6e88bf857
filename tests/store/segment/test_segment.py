"""Segments: what is read is what was written, or it is `CorruptionError`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from seqstore import CorruptionError, Settings, Store, StoreError, Table
from tests.support.children import MODULES
from tests.support.rows import rows_of, schema_of

SIZES = Settings(inline_bytes_max=1, batch_rows_max=40, clustered_rows_min=10)
LAYOUTS = {
    "arrow plain": {"compression": "none"},
    "arrow lz4": {"compression": "lz4"},
    "arrow zstd": {"compression": "zstd"},
    "parquet": {"storage_format": "parquet"},
}


def make_store(path: Path, layout: str) -> Table:
    store = Store.open(path, settings=SIZES)
    store.create_database("db")
    schema = schema_of("k VARCHAR(20) NOT NULL", "v BIGINT", sequence_col="v", **LAYOUTS[layout])
    table = store.create_table("db.t", schema)
    table.upsert(pa.table({"k": [f"key {i}" for i in range(100)], "v": list(range(100))}))
    return table


def reopened(path: Path) -> Table:
    return Store.open(path, create=False, settings=SIZES).table("db.t")


def files(path: Path, suffix: str) -> Path:
    [found] = path.glob(f"tables/*/*.{suffix}")
    return found


def overwrite(path: Path, data: bytes) -> None:
    """Another file under the name: a mapping of the old one must not be cut under its reader."""
    fresh = path.with_suffix(".fresh")
    fresh.write_bytes(data)
    fresh.replace(path)


def read_everything(table: Table) -> list[object]:
    """All that readers and writers ask of a segment: rows, look-ups, count."""
    keys = pa.table({"k": [f"key {i}" for i in range(100)]})
    return [rows_of(table), table.get(keys).to_pylist(), table.count()]


def read_or_error(table: Table) -> list[object] | str:
    """Everything, or the path that `CorruptionError` names."""
    try:
        return read_everything(table)
    except CorruptionError as error:
        return str(error.path)


@pytest.mark.family(1)
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("kind", ["data", "keys"])
def test_no_flipped_byte_makes_wrong_rows(tmp_path: Path, layout: str, kind: str) -> None:
    """A byte anywhere in a file: reading says so or is right; `check` always says so."""
    made = make_store(tmp_path / "data", layout)
    right = read_everything(made)
    suffix = "keys" if kind == "keys" else layout.split()[0]
    whole = files(tmp_path / "data", suffix).read_bytes()
    seed = 20240501
    print("seed", seed)
    places = np.random.default_rng(seed).choice(len(whole), min(len(whole), 120), replace=False)
    for place in sorted({0, len(whole) - 1, *map(int, places)}):
        changed = bytearray(whole)
        changed[place] ^= 1 << (place % 8)
        overwrite(files(tmp_path / "data", suffix), bytes(changed))
        seen = read_or_error(reopened(tmp_path / "data"))
        assert seen == right or suffix in str(seen), f"byte {place}"
        findings = reopened(tmp_path / "data").check()
        assert any("checksum" in finding for finding in findings), f"byte {place}"
    overwrite(files(tmp_path / "data", suffix), whole)
    assert read_everything(reopened(tmp_path / "data")) == right
    assert reopened(tmp_path / "data").check() == []


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("kind", ["data", "keys"])
@pytest.mark.parametrize("length", [0, 1, 0.5, -1])
def test_a_cut_file_is_corruption(tmp_path: Path, layout: str, kind: str, length: float) -> None:
    make_store(tmp_path / "data", layout)
    path = files(tmp_path / "data", "keys" if kind == "keys" else layout.split()[0])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * length) if 0 < length < 1 else int(length)])
    with pytest.raises(CorruptionError):
        read_everything(reopened(tmp_path / "data"))
    assert reopened(tmp_path / "data").check() != []


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("kind", ["data", "keys"])
def test_a_missing_file_is_corruption(tmp_path: Path, layout: str, kind: str) -> None:
    make_store(tmp_path / "data", layout)
    files(tmp_path / "data", "keys" if kind == "keys" else layout.split()[0]).unlink()
    with pytest.raises(CorruptionError, match="missing"):
        read_everything(reopened(tmp_path / "data"))
    assert any("missing" in finding for finding in reopened(tmp_path / "data").check())


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_corruption_is_told_by_a_filtered_scan_and_by_a_load_too(tmp_path: Path, layout: str) -> None:
    make_store(tmp_path / "data", layout)
    for suffix in ("keys", layout.split()[0]):
        path = files(tmp_path / "data", suffix)
        whole = path.read_bytes()
        overwrite(path, whole[:-20] + bytes(20))
        table = reopened(tmp_path / "data")
        with pytest.raises(CorruptionError):
            # Reads keys and, for hashed ones, the key columns.
            table.upsert(pa.table({"k": ["key 5"], "v": [1000]}), label="a")
        assert table.version == 2
        if suffix != "keys":
            with pytest.raises(CorruptionError):
                table.scan(filter=pc.field("v") > 3).read_all()
        overwrite(path, whole)
    assert reopened(tmp_path / "data").upsert(pa.table({"k": ["key 5"], "v": [1000]}), label="a").version == 3


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_check_reads_the_disk_again(tmp_path: Path, layout: str) -> None:
    """Bytes that went bad after this process read them are found all the same."""
    table = make_store(tmp_path / "data", layout)
    read_everything(table)
    assert table.check() == []
    path = files(tmp_path / "data", layout.split()[0])
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    assert table.check() != []


def test_two_files_that_were_swapped_are_corruption(tmp_path: Path) -> None:
    """Each is sound by itself."""
    table = make_store(tmp_path / "data", "arrow plain")
    table.upsert(pa.table({"k": [f"key {i}" for i in range(100)], "v": list(range(100, 200))}))
    first, second = sorted(tmp_path.glob("data/tables/*/*.arrow"))
    shutil.copy(first, tmp_path / "kept")
    shutil.copy(second, first)
    shutil.copy(tmp_path / "kept", second)
    with pytest.raises(CorruptionError):
        rows_of(reopened(tmp_path / "data"))


def test_a_parquet_segment_is_a_parquet_file(tmp_path: Path) -> None:
    """Other engines read it natively."""
    make_store(tmp_path / "data", "parquet")
    file = pq.ParquetFile(files(tmp_path / "data", "parquet"))
    assert file.num_row_groups == 3
    rows = file.read()
    assert rows.schema.names == ["k", "v"]
    assert rows.column("k").to_pylist() == sorted(f"key {i}" for i in range(100)), "sorted by key"


def test_an_arrow_segment_is_an_arrow_file(tmp_path: Path) -> None:
    make_store(tmp_path / "data", "arrow lz4")
    with pa.ipc.open_file(files(tmp_path / "data", "arrow")) as reader:
        assert [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)] == [40, 40, 20]


def test_a_small_load_makes_no_file(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "data")
    store.create_database("db")
    table = store.create_table("db.t", schema_of("k INT NOT NULL"))
    result = table.upsert(pa.table({"k": [1, 2]}))
    assert list(tmp_path.glob("data/tables/*/*")) == []
    assert result.bytes_written > 0


def test_every_error_of_reading_is_one_of_ours(tmp_path: Path) -> None:
    """A directory in the place of a file, and a file that may not be read."""
    make_store(tmp_path / "data", "arrow plain")
    path = files(tmp_path / "data", "arrow")
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError):
        rows_of(reopened(tmp_path / "data"))


CUT = """
import sys
import pyarrow as pa
from pathlib import Path
from seqstore import Settings, Store, StoreError
from tests.support.rows import rows_of
settings = Settings(inline_bytes_max=1, batch_rows_max=40, mapped_reads=False)
table = Store.open(sys.argv[1], settings=settings).table("db.t")
rows = table.get(pa.table({"k": ["key 5"]})).to_pylist()
for path in Path(sys.argv[1]).glob("tables/*/*"):
    path.open("r+b").truncate(4096)
print(rows == [{"k": "key 5", "v": 5}], len(rows_of(table)))
"""


@pytest.mark.family(2)
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_files_that_are_cut_under_a_reader_end_no_process_without_mapped_reads(
    tmp_path: Path, layout: str
) -> None:
    """A mapping of a file that is cut off ends its process (SIGBUS)."""
    make_store(tmp_path / "data", layout)
    done = subprocess.run(
        [sys.executable, "-c", CUT, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": MODULES},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True 100\n"), done.stderr
