"""Golden stores: data directories that earlier versions wrote are opened, read, loaded into and compacted."""

from __future__ import annotations

import contextlib
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import ConflictError, InvalidInputError, LabelExistsError, Store, Table, VersionExpiredError
from seqstore.store.schema.column import SEQUENCE_COL
from seqstore.store.sql import Session
from tests.golden import make_golden, stores
from tests.golden.contents import plain, version_rows
from tests.golden.package import job_session

HERE = Path(__file__).parent
ARCHIVES = sorted(HERE.glob("format*/*.tar.gz"))
FIRST = HERE / "format1"
TABLES = json.loads((FIRST / "tables.json").read_text())["tables"]
# The hidden sequence that a load names, by table.
SEQUENCES = {"db.seq_type": [SEQUENCE_COL]}


def expected(archive: Path) -> Any:
    return json.loads(archive.with_name(archive.name.replace(".tar.gz", ".json")).read_text())


def name_of(archive: Path) -> str:
    return archive.name.removesuffix(".tar.gz")


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: f"{path.parent.name}-{name_of(path)}")
def test_it_reads_as_the_version_that_wrote_it_read_it(archive: Path, tmp_path: Path) -> None:
    found = stores.contents(name_of(archive), make_golden.unpack(archive, tmp_path / "data"))
    assert found == expected(archive)


@pytest.mark.family(2)
@pytest.mark.parametrize("name", stores.MAKERS)
def test_todays_version_makes_the_same_stores(name: str, tmp_path: Path) -> None:
    """The script still runs, and the newest archives hold all that it makes."""
    make_golden.make(name, tmp_path / name)
    make_golden.pack(tmp_path / name, tmp_path / "archive.tar.gz")
    path = make_golden.unpack(tmp_path / "archive.tar.gz", tmp_path / "unpacked")
    assert stores.contents(name, path) == expected(next(each for each in ARCHIVES if name_of(each) == name))


def test_every_kind_of_file_of_the_format_is_there() -> None:
    suffixes = set()
    for archive in FIRST.glob("*.tar.gz"):
        with tarfile.open(archive) as tar:
            suffixes |= {Path(name).suffix for name in tar.getnames()}
    assert suffixes >= {".mdb", ".arrow", ".parquet", ".keys", ".delta"}


# tables


@pytest.fixture(scope="module")
def all_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The store of every table kind. A test writes its own table only."""
    path = make_golden.unpack(FIRST / "tables.tar.gz", tmp_path_factory.mktemp("tables") / "data")
    with stores.open_store(path) as store:
        yield store


@pytest.fixture(params=TABLES)
def table(all_tables: Store, request: pytest.FixtureRequest) -> Table:
    return all_tables.table(request.param)


def as_texts(table: Table) -> list[str]:
    columns = [*table.schema.names, *SEQUENCES.get(table.name, ())]
    return sorted(map(str, table.scan(columns).read_all().to_pylist()))


def rows_again(table: Table) -> pa.Table:
    """The rows of the table once more, with their hidden sequence `q` where loads name one."""
    rows = table.scan([*table.schema.names, *SEQUENCES.get(table.name, ())]).read_all()
    rows = rows.rename_columns([name.replace(SEQUENCE_COL, "q") for name in rows.column_names])
    if table.schema.is_append_only:
        return rows.slice(0, 0)
    return rows


def test_it_is_loaded_into_compacted_and_checked(table: Table) -> None:
    before, first = as_texts(table), table.version
    versions = {version: version_rows(table, version) for version in range(table.oldest_version, first + 1)}
    assert table.check() == []
    rows = rows_again(table)
    loaded = table.upsert(rows, sequence="q" if table.name in SEQUENCES else None)
    assert (loaded.version, loaded.rows_loaded) == (first + bool(rows.num_rows), rows.num_rows)
    table.optimize(full=True)
    assert as_texts(table) == before
    assert {version: version_rows(table, version) for version in versions} == versions
    assert table.check() == []
    table.vacuum(retention_seconds=0)
    assert as_texts(table) == before
    assert table.check() == []
    if table.version > 1:
        with pytest.raises(VersionExpiredError):
            table.snapshot(1)


def test_an_older_version_is_restored(tmp_path: Path) -> None:
    path = make_golden.unpack(FIRST / "tables.tar.gz", tmp_path / "data")
    with stores.open_store(path) as store:
        table = store.table("db.parquet_zstd")
        old = table.scan(version=2).read_all().sort_by("k")
        table.restore(2)
        assert table.scan().read_all().sort_by("k") == old


# Types that keep the texts of all values.
_TEXT_OF = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT"), "VARCHAR(60)"),
    "DECIMAL": "VARCHAR(80)",
    "CHAR": "STRING",
    "DATE": "DATETIME",
}


def test_columns_of_its_tables_change_their_types(tmp_path: Path) -> None:
    """Keys too: rows stay, earlier versions and RESTORE have the earlier types, the feed reads them all."""
    path = make_golden.unpack(FIRST / "tables.tar.gz", tmp_path / "data")
    changed = 0
    with stores.open_store(path) as store, Session(store, "db") as session:
        for table in map(store.table, TABLES):
            before, rows, schema = table.version, version_rows(table, table.version), table.schema
            for column in schema.columns:
                new = _TEXT_OF.get(column.type.name)
                key = "KEY" * (column.name in schema.key)
                null = "NULL" if column.nullable else "NOT NULL"
                with contextlib.suppress(InvalidInputError):  # what others depend on keeps its type
                    statement = f"ALTER TABLE {table.name} MODIFY COLUMN {column.name} {new} {key} {null}"
                    list(session.execute(statement) if new is not None else ())
                    store.schema_changes.wait()
            assert [job.message for job in store.schema_changes.jobs("db").values() if job.message] == []
            assert len(version_rows(table, table.version)) == len(rows)
            assert version_rows(table, before) == rows
            assert table.check() == []
            table.changes(table.oldest_version + 1).read_all()
            changed += table.version - before
            table.restore(before)
            assert table.schema.columns == schema.columns
            assert sorted(as_texts(table)) == sorted(map(str, _as_read(table, before)))
    assert changed > 20


def _as_read(table: Table, version: int) -> list[dict[str, Any]]:
    columns = [*table.schema.names, *SEQUENCES.get(table.name, ())]
    found: list[dict[str, Any]] = table.scan(columns, version=version).read_all().to_pylist()
    return found


def test_rules_of_its_tables_hold_on(all_tables: Store) -> None:
    """Constraints, features, generated values and sequences decide on new rows as they did before."""
    with Session(all_tables, "db") as session:
        with pytest.raises(InvalidInputError, match=r"CHECK constraint low \(n < 100 AND k > 0\) is broken"):
            list(session.execute("INSERT INTO checked VALUES (7, 100, 1)"))
        with pytest.raises(InvalidInputError):
            list(session.execute("INSERT INTO ranged VALUES ('2024-01-15', 1, 1)"))
        with pytest.raises(InvalidInputError, match="appendOnly"):
            list(session.execute("DELETE FROM appended WHERE k = 1"))
        list(session.execute("INSERT INTO generated (k, v) VALUES (9, 9)"))
        (made,) = session.execute("SELECT id FROM generated WHERE k IN (1, 9) ORDER BY k")
        assert made.rows is not None
        first, second = made.rows.column(0).to_pylist()
        assert (first, second > first) == (100, True)
        list(session.execute("INSERT INTO seq_col VALUES (1, 'older', '2000-01-01 00:00:00')"))
        (seen,) = session.execute("SELECT v FROM seq_col WHERE k = 1")
        assert seen.rows is not None
        assert seen.rows.column(0).to_pylist() == ["new"]
    table = all_tables.table("db.seq_type")
    table.upsert(pa.table({"k": [3, 1], "v": ["late", "newest"], "q": [8, 7]}), sequence="q")
    assert table.get(pa.table({"k": [1, 3]}), ["k", "v"]).to_pylist() == [{"k": 1, "v": "newest"}]


def format_of(store: Store) -> int:
    with store.catalog.read() as tx:
        return int(tx.get("meta", b"format"))


def test_a_store_of_format_1_keeps_it_until_the_first_write(tmp_path: Path) -> None:
    path = make_golden.unpack(FIRST / "tables.tar.gz", tmp_path / "data")
    with stores.open_store(path) as store:
        assert format_of(store) == 1
        table = store.table("db.parquet_zstd")
        assert table.check() == []
        assert format_of(store) == 1
        table.optimize(full=True)
        assert format_of(store) == 2
        assert table.check() == []


# transactions


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Store]:
    """The store with pre-committed transactions."""
    path = make_golden.unpack(FIRST / "transactions.tar.gz", tmp_path / "data")
    with stores.open_store(path) as store:
        yield store


def rows_of(store: Store, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in store.table(name).scan().read_all().to_pylist())


def test_pre_committed_transactions_are_committed(waiting: Store) -> None:
    for label in ("load-whole", "load-partial", "load-group", "load-inline", "both"):
        assert waiting.commit_transaction("db", label=label).status == "VISIBLE"
    assert rows_of(waiting, "db.a") == [(1, 11, 101), (2, 21, 1), (3, 31, 0), (8, 80, None), (9, 90, 1)]
    assert rows_of(waiting, "db.b") == [(1, 100, 0), (2, 205, 0), (3, 300, 3), (5, 50, 5)]
    assert rows_of(waiting, "db.g") == [(1, 1, 5), (2, 4, 4)]
    for name in ("db.a", "db.b", "db.g"):
        waiting.table(name).optimize(full=True)
        assert waiting.table(name).check() == []


def test_one_whose_rows_have_changed_is_refused(waiting: Store) -> None:
    with pytest.raises(ConflictError):
        waiting.commit_transaction("db", label="conflicting")
    waiting.abort_transaction("db", label="conflicting")
    assert rows_of(waiting, "db.b") == [(1, 100, 0), (2, 205, 0)]


def test_an_aborted_one_leaves_no_files_and_its_label_is_free(waiting: Store) -> None:
    before = set(waiting.path.rglob("*.arrow"))
    waiting.abort_transaction("db", label="load-aborted")
    assert len(before - set(waiting.path.rglob("*.arrow"))) == 1
    row = pa.table({"k": [7], "v": [70], "w": [0]})
    waiting.table("db.a").upsert(row, label="load-aborted")
    assert (7, 70, 0) in rows_of(waiting, "db.a")


def test_files_of_a_process_that_ended_in_a_load_are_removed(tmp_path: Path) -> None:
    path = make_golden.unpack(FIRST / "transactions.tar.gz", tmp_path / "data")
    before = set(path.rglob("*.arrow"))
    with stores.open_store(path):
        assert len(before - set(path.rglob("*.arrow"))) == 1


def test_labels_and_application_ids_stay_taken(waiting: Store) -> None:
    table, row = waiting.table("db.a"), pa.table({"k": [1], "v": [0], "w": [0]})
    for label in ("first", "load-whole"):
        with pytest.raises(LabelExistsError):
            table.upsert(row, label=label)
    assert table.upsert(row, txn_app_id="app", txn_version=7).status == "DUPLICATE"
    assert rows_of(waiting, "db.a")[0] == (1, 11, 1)
    table.upsert(row, txn_app_id="app", txn_version=8)
    assert rows_of(waiting, "db.a")[0] == (1, 0, 0)


# jobs and accounts


def test_users_log_in_and_jobs_go_on(tmp_path: Path) -> None:
    path = make_golden.unpack(FIRST / "jobs.tar.gz", tmp_path / "data")
    with stores.open_store(path) as store:
        assert store.accounts.log_in("reader", "secret").may("SELECT", "db")
        assert store.accounts.log_in("writer", "").may("LOAD")
        session = job_session(store, "db")
        with pytest.raises(InvalidInputError, match="PAUSED"):
            list(session.execute("PAUSE ROUTINE LOAD FOR feed"))
        list(session.execute("STOP ROUTINE LOAD FOR feed"))
        (job,) = session.execute("SHOW ALL ROUTINE LOAD FOR feed")
        assert job.rows is not None
        assert plain(job.rows.column("State").to_pylist()) == ["STOPPED"]
        with pytest.raises(LabelExistsError):
            store.table("db.t").upsert(pa.table({"k": [1], "v": ["x"], "s": [9]}), label="broker")
