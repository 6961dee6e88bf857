"""The catalog: directories that are not ours, newer formats, damage, a full map, forks, and two handles."""

from __future__ import annotations

import logging
import mmap
import os
import shutil
from pathlib import Path

import lmdb
import pyarrow as pa
import pytest
import xxhash

from seqstore import (
    CorruptionError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    Settings,
    Store,
    UnavailableError,
)
from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.catalog import pack, unpack
from seqstore.store.catalog.environment import data_file
from seqstore.store.catalog.environment.deferred_changes import DeferredChanges
from seqstore.store.catalog.environment.page_check import read_head
from seqstore.store.catalog.table_records import tables_with
from seqstore.store.schema.properties import OPEN_FORMATS
from tests.support.forks.forked import run_forked
from tests.support.rows import rows_of, schema_of

SCHEMA = schema_of("k BIGINT NOT NULL", "v STRING")


def filled(path: Path, rows: int = 50) -> None:
    """A store written by a process of its own, so that none of it is open here."""
    run(
        path,
        f"""
store.create_database("db")
table = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING"))
for i in range({rows}):
    table.upsert(pa.table({{"k": [i], "v": ["x" * 2000]}}))
""",
    )


def run(path: Path, code: str) -> str:
    """Runs code with an open `store` in a fresh process; returns what it printed, or how it died."""
    lines = [
        "import sys",
        "import pyarrow as pa",
        "from seqstore import Settings, Store, StoreError",
        "from tests.support.rows import rows_of, schema_of",
        "try:",
        "    store = Store.open(sys.argv[1])",
        *("    " + line for line in code.strip().splitlines()),
        "except StoreError as error:",
        "    print(type(error).__name__)",
    ]
    done = run_forked("-c", "\n".join(lines), str(path))
    return done.stdout.strip() if done.returncode == 0 else f"exit {done.returncode}: {done.stderr[-600:]}"


def test_a_directory_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FormatError, match=r"it holds 'notes.txt' and no catalog"):
        Store.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_directory_with_a_foreign_folder_called_catalog_is_refused(tmp_path: Path) -> None:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "shoes.csv").write_text("size\n43\n")
    with pytest.raises(FormatError):
        Store.open(tmp_path)
    assert [path.name for path in (tmp_path / "catalog").iterdir()] == ["shoes.csv"]


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FormatError, match="expected a directory, found a file"):
        Store.open(tmp_path / "file")


def test_a_catalog_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "data.mdb").write_bytes(b"not a catalog" * 1000)
    with pytest.raises(FormatError):
        Store.open(tmp_path)


def test_no_store_is_made_unless_asked_for(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no store here"):
        Store.open(tmp_path / "data", create=False)
    assert not (tmp_path / "data").exists()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "data", 1)
    with lmdb.open(str(tmp_path / "data" / "catalog"), max_dbs=32) as env, env.begin(write=True) as txn:
        txn.put(b"format", pack("meta", b"format", 4), db=env.open_db(b"meta", txn))
    with pytest.raises(FormatError, match="the store has format 4, this program reads up to 3; upgrade it"):
        Store.open(tmp_path / "data")


def test_a_record_of_a_newer_format_and_a_changed_one_are_told_apart() -> None:
    data = pack("heads", b"k", {"a": [1, b"x", None]})
    assert unpack("heads", b"k", data) == {"a": [1, b"x", None]}
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 4
        with pytest.raises(CorruptionError, match="heads/k does not match its checksum"):
            unpack("heads", b"k", bytes(changed))
    with pytest.raises(CorruptionError):
        unpack("heads", b"k", b"")
    newer = b"\x03" + data[9:]
    seed = xxhash.xxh3_64_intdigest(b"k", xxhash.xxh3_64_intdigest(b"heads"))
    with pytest.raises(FormatError):
        unpack("heads", b"k", xxhash.xxh3_64_digest(newer, seed) + newer)


def test_a_record_counts_under_its_own_key_only() -> None:
    """A checksum over the value alone did not notice a flipped bit of the key."""
    data = pack("heads", b"k", [1, 1])
    for database, key in (("heads", b"l"), ("names", b"k"), ("heads", b"")):
        with pytest.raises(CorruptionError):
            unpack(database, key, data)


def test_a_record_of_format_1_is_read() -> None:
    body = b"\x01\x92\x01\x02"
    assert unpack("heads", b"k", xxhash.xxh3_64_digest(body) + body) == [1, 2]


def test_a_cut_catalog_is_told(tmp_path: Path) -> None:
    """LMDB maps the file: unless its size is looked at, the process dies of SIGBUS."""
    filled(tmp_path / "data")
    path = tmp_path / "data" / "catalog" / "data.mdb"
    whole = path.read_bytes()
    page = mmap.PAGESIZE
    heads = [read_head(number, whole[number * page : (number + 1) * page]) for number in range(2)]
    pages = max(heads, key=lambda head: head.transaction).last_page + 1  # the file may be longer
    damaged, right = "CorruptionError", "['db'] 50"
    for left, expected in (
        (pages // 3, {damaged}),
        (pages - 1, {damaged, right}),  # nothing is lost where the last page is free
        (pages, {right}),
        (len(whole), {right}),
    ):
        path.write_bytes(whole[: left * page])
        told = run(tmp_path / "data", "print(store.databases(), len(rows_of(store.table('db.t'))))")
        assert told in expected, (left, pages)


def test_a_catalog_cut_behind_any_page_ends_no_process(tmp_path: Path) -> None:
    """LMDB ends the process at a page of zeros that should be part of a tree."""
    filled(tmp_path / "data")
    whole = (tmp_path / "data" / "catalog" / "data.mdb").read_bytes()
    pages = len(whole) // 4096
    for number in range(2, pages):
        (tmp_path / f"cut{number}" / "catalog").mkdir(parents=True)
        (tmp_path / f"cut{number}" / "catalog" / "data.mdb").write_bytes(whole[: number * 4096])
        (tmp_path / f"cut{number}" / "tables").symlink_to(tmp_path / "data" / "tables")
    outcomes = run(
        tmp_path / "data",
        f"""
outcomes = []
for number in range(2, {pages}):
    try:
        with Store.open(sys.argv[1] + f"/../cut{{number}}", settings=Settings(auto_compaction=0)) as cut:
            outcomes.append(str(len(rows_of(cut.table("db.t")))))
    except StoreError as error:
        outcomes.append(type(error).__name__)
print(*outcomes)
""",
    ).split()
    assert len(outcomes) == pages - 2
    assert set(outcomes) <= {"CorruptionError", "50"}
    assert "CorruptionError" in outcomes


def test_an_emptied_catalog_is_not_a_new_store(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "data", settings=Settings(inline_bytes_max=1))
    store.create_database("db")
    store.create_table("db.t", SCHEMA).upsert(pa.table({"k": [1]}))
    (tmp_path / "copy" / "catalog").mkdir(parents=True)
    (tmp_path / "copy" / "catalog" / "data.mdb").touch()
    shutil.copytree(tmp_path / "data" / "tables", tmp_path / "copy" / "tables")
    assert run(tmp_path / "copy", "print(store.databases())") in ("CorruptionError", "FormatError")


def test_changed_bytes_of_the_catalog_are_never_wrong_rows(tmp_path: Path) -> None:
    """Inline rows live in it: each record has a checksum."""
    filled(tmp_path / "data", 3)
    path = tmp_path / "data" / "catalog" / "data.mdb"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"x" * 1000, b"y" + b"x" * 999))  # free pages hold copies
    code = "table = store.table('db.t')\nprint({row[1] for row in rows_of(table)}, table.check())"
    assert run(tmp_path / "data", code) == "CorruptionError"


def test_a_full_map_refuses_the_load_and_nothing_else(tmp_path: Path) -> None:
    """The label is free, what was there is there, and more room helps, also within this process."""
    small = Settings(catalog_bytes_max=2**20, auto_compaction=0)
    store = Store.open(tmp_path / "data", settings=small)
    store.create_database("db")
    table = store.create_table("db.t", SCHEMA)
    done = 0

    def fill() -> None:
        nonlocal done
        for number in range(1000):
            table.upsert(pa.table({"k": [number], "v": ["x" * 20_000]}), label=f"load-{number}")
            done += 1

    with pytest.raises(UnavailableError, match="catalog_bytes_max") as caught:
        fill()
    assert caught.value.kind == "map_full"
    assert len(rows_of(table)) == done > 3
    assert table.check() == []
    store.close()
    roomy = Store.open(
        tmp_path / "data", settings=Settings(catalog_bytes_max=2**26, auto_compaction=0)
    ).table("db.t")
    label = f"load-{done}"
    assert roomy.upsert(pa.table({"k": [done], "v": ["x" * 20_000]}), label=label).version == done + 2
    assert len(rows_of(roomy)) == done + 1


def test_another_process_with_a_larger_map_does_not_stop_this_one(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "data", settings=Settings(catalog_bytes_max=2**20))
    store.create_database("db")
    table = store.create_table("db.t", SCHEMA)
    code = """
table = store.table("db.t")
for i in range(100):
    table.upsert(pa.table({"k": [i], "v": ["x" * 20_000]}))
print(table.count())
"""
    assert run(tmp_path / "data", code) == "100"
    assert len(rows_of(table)) == 100
    table.upsert(pa.table({"k": [1], "v": ["y"]}))
    assert dict(rows_of(table))[1] == "y"


def test_two_handles_of_one_process_see_each_other(tmp_path: Path) -> None:
    first, second = Store.open(tmp_path / "data"), Store.open(tmp_path / "data" / ".." / "data")
    first.create_database("db")
    first.create_table("db.t", SCHEMA).upsert(pa.table({"k": [1]}))
    assert second.table("db.t").count() == 1
    second.drop_database("db")
    assert first.databases() == []


@pytest.mark.parametrize("name", ["", "x" * 600, "é" * 300, "a\0b"])
def test_names_that_cannot_be_are_not_found(tmp_path: Path, name: str) -> None:
    """LMDB takes no empty key and none over 511 bytes: the caller is told of the name, not of that."""
    store = Store.open(tmp_path / "data")
    store.create_database("db")
    with pytest.raises((NotFoundError, InvalidInputError)):
        store.tables(name)
    with pytest.raises((NotFoundError, InvalidInputError)):
        store.drop_database(name)
    with pytest.raises((NotFoundError, InvalidInputError)):
        store.table(f"db.{name}")
    with pytest.raises((NotFoundError, InvalidInputError)):
        store.drop_table(f"{name}.t")
    with pytest.raises(InvalidInputError):
        store.create_database(name)


def test_the_longest_names_are_taken(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "data")
    name = "ü" * 64
    store.create_database(name)
    assert store.create_table(f"{name}.{name}", SCHEMA).name == f"{name}.{name}"
    assert (store.databases(), store.tables(name)) == ([name], [name])


def test_dropping_leaves_no_record_and_no_file(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "data", settings=Settings(inline_bytes_max=1))
    for database in ("a", "b"):
        store.create_database(database)
        for name in ("t", "u"):
            table = store.create_table(f"{database}.{name}", SCHEMA)
            table.upsert(pa.table({"k": [1]}), label=f"l-{name}")
            table.upsert(pa.table({"k": [1]}))
    store.drop_table("a.t")
    store.drop_database("a")
    assert (store.databases(), store.tables("b")) == (["b"], ["t", "u"])
    assert len(list(tmp_path.glob("data/tables/*/*"))) == 8
    with store.catalog.read() as tx:
        counts = {
            name: sum(1 for _ in tx.items(name))
            for name in ("tables", "names", "heads", "schemas", "versions", "segments", "bitmaps", "labels")
        }
    assert counts == {
        "tables": 2,
        "names": 2,
        "heads": 2,
        "schemas": 2,
        "versions": 6,
        "segments": 4,
        "bitmaps": 2,
        "labels": 4,
    }
    store.create_database("a")
    assert store.create_table("a.t", SCHEMA).upsert(pa.table({"k": [1]}), label="l-t").version == 2
    assert records.version_key(1, 2) < records.version_key(1, 256) < records.version_key(2, 1)


def test_the_creation_of_a_table_is_of_no_transaction(store: Store) -> None:
    table = store.create_table("db.t", SCHEMA)
    assert [(info.operation, info.txn_id) for info in table.history()] == [("CREATE TABLE", 0)]


def test_tables_are_found_by_a_property_that_is_not_empty(store: Store) -> None:
    """A store that is opened shows the versions of tables with an open format, though none was shown yet."""
    store.create_table("db.plain", SCHEMA)
    shown = store.create_table("db.shown", schema_of("k BIGINT NOT NULL", **{OPEN_FORMATS: "delta"}))
    with store.catalog.read() as tx:
        assert tables_with(tx, OPEN_FORMATS) == [shown.id]


def test_a_file_is_lengthened_without_a_descriptor_that_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "data.mdb"
    path.write_bytes(b"x" * 4096)
    before = sorted(os.listdir("/proc/self/fd"))
    data_file._lengthen(path, 8192)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert path.read_bytes() == b"x" * 4096 + bytes(4096)


def test_a_deferred_change_that_is_given_up_is_told(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def fail(tx: records.CatalogTransaction) -> None:
        raise UnavailableError("the disk is full", kind="disk")

    changes = DeferredChanges()
    changes.add(fail)
    with caplog.at_level(logging.WARNING), store.catalog.read() as tx:
        assert changes.run(tx) == []
    assert "deferred is given up: the disk is full" in caplog.text
