"""ALTER TABLE a REPLACE WITH TABLE b: two tables exchange their names at one commit point."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import ConflictError, InvalidInputError, NotFoundError, Session, Store, StoreError
from tests.support.statements import dicts, run

pytestmark = pytest.mark.sql(
    "CREATE TABLE a (k INT NOT NULL, v INT NULL) UNIQUE KEY (k);"
    "CREATE TABLE b (k INT NOT NULL, w VARCHAR(9) NULL) UNIQUE KEY (k) COMMENT 'the other';"
    "INSERT INTO a VALUES (1, 10); INSERT INTO b VALUES (2, 'x'); INSERT INTO b VALUES (3, 'y')"
)
REPLACE = "ALTER TABLE a REPLACE WITH TABLE b"


@pytest.mark.parametrize("properties", ["", " PROPERTIES ('swap' = 'true')", ' PROPERTIES("swap"="TRUE")'])
def test_two_tables_exchange_rows_schema_and_history(session: Session, store: Store, properties: str) -> None:
    before = {name: [info.version for info in store.table(name).history()] for name in ("db.a", "db.b")}
    run(session, REPLACE + properties)
    assert run(session, "SELECT * FROM a") == [(2, "x"), (3, "y")]
    assert run(session, "SELECT * FROM b") == [(1, 10)]
    assert 'COMMENT "the other"' in dicts(session, "SHOW CREATE TABLE a")[0]["Create Table"]
    assert [info.version for info in store.table("db.a").history()] == before["db.b"]
    assert (store.table("db.a").name, store.table("db.b").name) == ("db.a", "db.b")
    run(session, "INSERT INTO a VALUES (4, 'z'); UPDATE b SET v = 11 WHERE k = 1")
    assert run(session, "SELECT k FROM a FOR VERSION AS OF 2") == [(2,)]
    assert run(session, "SELECT * FROM b") == [(1, 11)]
    run(session, REPLACE)
    assert run(session, "SELECT * FROM a") == [(1, 11)]


def test_without_swap_the_rows_of_before_are_removed(session: Session, store: Store, tmp_path: Path) -> None:
    store.table("db.a").upsert(pa.table({"k": range(50_000), "v": range(50_000)}))
    gone = tmp_path / "data" / "tables" / str(store.table("db.a").id)
    assert list(gone.iterdir())
    run(session, REPLACE + " PROPERTIES ('swap' = 'false')")
    assert run(session, "SELECT * FROM a") == [(2, "x"), (3, "y")]
    assert run(session, "SHOW TABLES") == [("a",)]
    assert not gone.exists() or not list(gone.iterdir())
    run(session, "CREATE TABLE b (k INT NOT NULL) UNIQUE KEY (k); INSERT INTO b VALUES (9)")
    assert run(session, "SELECT * FROM b") == [(9,)]


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("ALTER TABLE a REPLACE WITH TABLE nope", NotFoundError, r"Unknown table 'db\.nope'"),
        ("ALTER TABLE nope REPLACE WITH TABLE a", NotFoundError, r"Unknown table 'db\.nope'"),
        ("ALTER TABLE a REPLACE WITH TABLE a", InvalidInputError, "two tables of one database"),
        ("ALTER TABLE a REPLACE WITH TABLE v", InvalidInputError, "it is a view"),
        ("ALTER TABLE v REPLACE WITH TABLE a", InvalidInputError, "it is a view"),
        (f"{REPLACE} PROPERTIES ('swap' = 'no')", InvalidInputError, "found 'no'"),
        (f"{REPLACE} PROPERTIES ('swop' = 'true')", InvalidInputError, "found 'swop'"),
        ("ALTER TABLE a REPLACE PARTITION (p) WITH TEMPORARY PARTITION (q)", InvalidInputError,
         "INSERT OVERWRITE"),
    ],
)  # fmt: skip
def test_what_cannot_be_replaced(
    session: Session, statement: str, error: type[StoreError], message: str
) -> None:
    run(session, "CREATE VIEW v AS SELECT k FROM a")
    with pytest.raises(error, match=message):
        run(session, statement)
    assert run(session, "SELECT * FROM a") == [(1, 10)]


def test_a_load_that_has_begun_stays_with_its_rows(session: Session, store: Store) -> None:
    with store.table("db.a").begin_load() as load:
        load.write(pa.table({"k": [7], "v": [70]}))
        run(session, REPLACE)
        load.commit()
    assert run(session, "SELECT * FROM b") == [(1, 10), (7, 70)]
    assert run(session, "SELECT k FROM a") == [(2,), (3,)]


def test_a_load_of_removed_rows_fails(session: Session, store: Store) -> None:
    with store.table("db.a").begin_load() as load:
        load.write(pa.table({"k": [7], "v": [70]}))
        run(session, REPLACE + " PROPERTIES ('swap' = 'false')")
        with pytest.raises(StoreError):
            load.commit()
    assert run(session, "SELECT k FROM a") == [(2,), (3,)]


def test_readers_see_one_table_or_the_other(session: Session, store: Store) -> None:
    """A reader meanwhile finds either table whole, never none."""
    ended, faults = threading.Event(), []
    counted = 0

    def read() -> None:
        nonlocal counted
        while not ended.is_set():
            try:
                rows = store.table("db.a").scan(["k"]).read_all().column("k").to_pylist()
            except Exception as error:
                faults.append(repr(error))
                return
            if rows not in ([1], [2, 3]):
                faults.append(repr(rows))
            counted += 1

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for _ in range(30):
            run(session, REPLACE)
    finally:
        ended.set()
        thread.join()
    assert faults == []
    assert counted


def test_another_handle_sees_the_names(session: Session, store: Store) -> None:
    with Store.open(store.path) as other, Session(other, "db") as reader:
        assert run(reader, "SELECT * FROM a") == [(1, 10)]
        run(session, REPLACE)
        assert run(reader, "SELECT * FROM a") == [(2, "x"), (3, "y")]
        assert other.table("db.a").name == "db.a"
        run(reader, "DELETE FROM a WHERE k = 2")
    assert run(session, "SELECT k FROM a") == [(3,)]


def test_a_transaction_meets_no_table_under_two_names(session: Session, store: Store) -> None:
    with store.transaction() as transaction:
        assert transaction.table("db.a").get(pa.table({"k": [1]})).num_rows == 1
        run(session, REPLACE)
        assert transaction.table("db.a").get(pa.table({"k": [1]})).num_rows == 1
        with pytest.raises(ConflictError, match="has exchanged it"):
            transaction.table("db.b")
