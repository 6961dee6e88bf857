"""Changes of columns that write every row anew, and their jobs: MODIFY COLUMN, ADD COLUMN .. KEY."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    CommitUnknownError,
    ConflictError,
    InvalidInputError,
    MetadataChangedException,
    Settings,
    Store,
    Table,
    UnavailableError,
)
from seqstore.store.ddl import schema_changes
from seqstore.store.ddl.alter import alter as alter_table
from seqstore.store.maintenance.schema_change_job import ATTEMPTS_MAX, SchemaChangeJob, SchemaChangeJobs
from seqstore.store.runtime import failpoint
from seqstore.store.sql import Session
from seqstore.store.types.column_types import parse_type
from tests.support.statements import dicts, last_result, run

TABLE = """
CREATE TABLE t (k INT NOT NULL, v INT NULL, s VARCHAR(20) NULL, n INT NOT NULL DEFAULT "7") UNIQUE KEY(k);
INSERT INTO t VALUES (1, 10, '100', 1), (2, NULL, ' 2 ', 2), (3, 30, NULL, 3);
DELETE FROM t WHERE k = 3;
"""
TEXT_KEYS = "CREATE TABLE u (k VARCHAR(9), v INT) UNIQUE KEY(k)"
pytestmark = pytest.mark.sql(TABLE)

INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT")
FLOATS = ("FLOAT", "DOUBLE")
TEXTS = ("VARCHAR(64)", "STRING")
# Of each type: two texts of values, and for each type that Doris lets it become the values there.
ALLOWED: dict[str, tuple[tuple[str, str], dict[str, tuple[Any, Any]]]] = {
    "TINYINT": (("1", "-2"), {**dict.fromkeys(INTEGERS[1:], (1, -2)), **dict.fromkeys(FLOATS, (1.0, -2.0)),
                              **dict.fromkeys(TEXTS, ("1", "-2"))}),
    "SMALLINT": (("300", "-2"), {
        **dict.fromkeys(INTEGERS[2:], (300, -2)), **dict.fromkeys(FLOATS, (300.0, -2.0)),
        **dict.fromkeys(TEXTS, ("300", "-2"))}),
    "INT": (("20240131", "20240201"), {
        **dict.fromkeys(INTEGERS[3:], (20240131, 20240201)), "DOUBLE": (20240131.0, 20240201.0),
        "FLOAT": (20240132.0, 20240200.0), "DATE": (date(2024, 1, 31), date(2024, 2, 1)),
        **dict.fromkeys(TEXTS, ("20240131", "20240201"))}),
    "BIGINT": (("9223372036854775807", "-1"), {
        "LARGEINT": (2**63 - 1, -1), "FLOAT": (2.0**63, -1.0), "DOUBLE": (2.0**63, -1.0),
        **dict.fromkeys(TEXTS, ("9223372036854775807", "-1"))}),
    "LARGEINT": (("170141183460469231731687303715884105727", "0"), {
        "FLOAT": (2.0**127, 0.0), "DOUBLE": (2.0**127, 0.0),
        **dict.fromkeys(TEXTS, ("170141183460469231731687303715884105727", "0"))}),
    "FLOAT": (("1.5", "0.25"), {"DOUBLE": (1.5, 0.25), **dict.fromkeys(TEXTS, ("1.5", "0.25"))}),
    "DOUBLE": (("0.1", "1e300"), dict.fromkeys(TEXTS, ("0.1", "1e+300"))),
    "DECIMAL(20,10)": (("1.2345678901", "0.0000000001"), {
        "DECIMAL(30,12)": (Decimal("1.234567890100"), Decimal("0.000000000100")),
        "DECIMAL(3,2)": (Decimal("1.23"), Decimal("0.00")),
        **dict.fromkeys(TEXTS, ("1.2345678901", "0.0000000001"))}),
    "DATE": (("2024-01-31", "0001-01-01"), {
        "DATETIME": (datetime(2024, 1, 31), datetime(1, 1, 1)),
        "DATETIME(3)": (datetime(2024, 1, 31), datetime(1, 1, 1))}),
    "DATETIME(6)": (("2024-01-31 23:59:59.500000", "2024-01-01 00:00:00.123456"), {
        "DATE": (date(2024, 1, 31), date(2024, 1, 1)),
        "DATETIME(3)": (datetime(2024, 1, 31, 23, 59, 59, 500_000), datetime(2024, 1, 1, 0, 0, 0, 123_000)),
        "DATETIME": (datetime(2024, 2, 1), datetime(2024, 1, 1))}),
    "CHAR(20)": (("7", "12"), {
        **dict.fromkeys(INTEGERS, (7, 12)), **dict.fromkeys(FLOATS, (7.0, 12.0)), "CHAR(30)": ("7", "12"),
        **dict.fromkeys(TEXTS, ("7", "12"))}),
    "VARCHAR(20)": (("7", " 12.5 "), {
        **dict.fromkeys(INTEGERS, (7, 12)), **dict.fromkeys(FLOATS, (7.0, 12.5)),
        **dict.fromkeys(TEXTS, ("7", " 12.5 ")), "JSON": ("7", " 12.5 ")}),
    "STRING": (('{"a": 1}', "[2]"), {"JSON": ('{"a": 1}', "[2]")}),
    "JSON": (('{"a": 1}', "[2]"), dict.fromkeys(TEXTS, ('{"a": 1}', "[2]"))),
    "BOOLEAN": (("true", "false"), {}),
}  # fmt: skip
EVERY_TYPE = sorted({*ALLOWED, *(kind for _, found in ALLOWED.values() for kind in found)})


def table(session: Session) -> Table:
    return session.store.table("db.t")


def alter(session: Session, changes: str, name: str = "t") -> SchemaChangeJob:
    """Alters a table and waits for the job; returns the newest one."""
    run(session, f"ALTER TABLE {name} {changes}")
    session.store.schema_changes.wait()
    return list(session.store.schema_changes.jobs("db").values())[-1]


def files(store: Store) -> set[str]:
    return {path.name for path in (store.path / "tables").rglob("*") if path.is_file()}


def named_files(store: Store, *names: str) -> set[str]:
    """The files that the records of tables name."""
    with store.catalog.read() as tx:
        metas = [record["meta"] for _, record in tx.records("segments")]
    filed = [meta for meta in metas if meta["home"] != "inline"]
    return {f"{meta['file'] or meta['id']}.{end}" for meta in filed for end in (meta["home"], "keys")}


def at_point(monkeypatch: pytest.MonkeyPatch, name: str, work: Callable[[], Any]) -> None:
    """Runs some work once, in the thread of the job, when it passes a point."""
    passes = itertools.count()

    def hit(point: str) -> None:
        if point == name and next(passes) == 0:
            work()

    monkeypatch.setattr(failpoint, "hit", hit)


# ------------------------------------------------------------------------------------------------- all types


@pytest.mark.parametrize("old", list(ALLOWED))
def test_every_type_becomes_those_that_doris_allows(session: Session, old: str) -> None:
    (first, second), wanted = ALLOWED[old]
    names = [f"c{i}" for i in range(len(wanted))]
    columns = ", ".join(f"{name} {old} NULL" for name in names)
    run(session, f"CREATE TABLE types (k INT NOT NULL{', ' * bool(names)}{columns}) UNIQUE KEY(k)")
    lists = [(k, *[f"'{text}'"] * len(names)) for k, text in enumerate((first, second))]
    values = ", ".join(f"({', '.join(map(str, row))})" for row in [*lists, (9, *["NULL"] * len(names))])
    run(session, f"INSERT INTO types VALUES {values}")
    changes = ", ".join(f"MODIFY COLUMN {n} {kind} NULL" for n, kind in zip(names, wanted, strict=True))
    if wanted:
        assert alter(session, changes, "types").state == "FINISHED"
    schema = session.store.table("db.types").schema
    assert [str(schema.column(n).type) for n in names] == [str(parse_type(kind)) for kind in wanted]
    found = session.store.table("db.types").scan().read_all().sort_by("k").to_pylist()
    expected = [tuple(pair[i] for pair in wanted.values()) for i in (0, 1)]
    assert [tuple(row.values())[1:] for row in found] == [*expected, (None,) * len(names)]


@pytest.mark.parametrize("old", list(ALLOWED))
def test_every_other_type_is_refused(session: Session, old: str) -> None:
    run(session, f"CREATE TABLE types (k INT NOT NULL, c {old} NULL) UNIQUE KEY(k)")
    base = old.partition("(")[0]
    allowed = {kind.partition("(")[0] for kind in ALLOWED[old][1]} | {base}
    allowed |= {"DATE"} if base in ("CHAR", "VARCHAR") else set()
    refused = [kind for kind in EVERY_TYPE if kind.partition("(")[0] not in allowed]
    assert len(refused) > 5
    for kind in refused:
        with pytest.raises(InvalidInputError, match=r"Can not change .* to "):
            run(session, f"ALTER TABLE types MODIFY COLUMN c {kind} NULL")
    assert session.store.table("db.types").version == 1


@pytest.mark.parametrize("old", ["CHAR(20)", "VARCHAR(20)"])
def test_texts_become_dates(session: Session, old: str) -> None:
    run(session, f"CREATE TABLE types (k INT, c {old}) UNIQUE KEY(k)")
    run(
        session,
        "INSERT INTO types VALUES (1, '2024-01-31'), (2, '20240131'), (3, '2024/1/31'), (4, '24-01-31')",
    )
    assert alter(session, "MODIFY COLUMN c DATE", "types").state == "FINISHED"
    assert {row[1] for row in run(session, "SELECT * FROM types")} == {date(2024, 1, 31)}


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("INT", "VARCHAR(10)", "Can not change from wider type INT to narrower type VARCHAR\\(10\\)"),
        ("BIGINT", "VARCHAR(19)", "needs VARCHAR\\(20\\)"),
        ("DECIMAL(9,2)", "VARCHAR(10)", "needs VARCHAR\\(11\\)"),
        ("VARCHAR(9)", "VARCHAR(8)", "Shorten type length is prohibited"),
        ("CHAR(9)", "VARCHAR(8)", "Shorten type length is prohibited"),
    ],
)
def test_a_type_with_shorter_texts_is_refused(session: Session, old: str, new: str, text: str) -> None:
    run(session, f"CREATE TABLE types (k INT, c {old}) UNIQUE KEY(k)")
    with pytest.raises(InvalidInputError, match=text):
        run(session, f"ALTER TABLE types MODIFY COLUMN c {new}")


# ------------------------------------------------------------------------------------------- values and keys


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("VARCHAR(20)", "INT", "x"),
        ("VARCHAR(20)", "TINYINT", "128"),
        ("VARCHAR(20)", "DATE", "2024-02-30"),
        ("VARCHAR(20)", "JSON", "{"),
        ("INT", "DATE", "99"),
        ("DECIMAL(9,2)", "DECIMAL(4,2)", "100.00"),
    ],
)
def test_a_value_that_does_not_fit_cancels_the_job_and_is_named(
    session: Session, old: str, new: str, value: str
) -> None:
    run(session, f"CREATE TABLE types (k INT, b VARCHAR(3), c {old}) UNIQUE KEY(k, b)")
    run(session, f"INSERT INTO types VALUES (1, 'x', NULL), (2, 'y', '{value}')")
    before = files(session.store)
    job = alter(session, f"MODIFY COLUMN c {new}", "types")
    assert job.state == "CANCELLED"
    assert f"column 'c' of 'db.types': the value {value!r}".replace("'100.00'", "Decimal('100.00')") in (
        job.message.replace("value 99 ", "value '99' ")
    )
    assert "key (k=2, b=y) is no" in job.message
    assert str(session.store.table("db.types").schema.column("c").type) == str(parse_type(old))
    assert files(session.store) == before
    run(session, "DELETE FROM types WHERE k = 2")
    assert alter(session, f"MODIFY COLUMN c {new}", "types").state == "FINISHED"


def test_a_key_of_another_type_is_found_by_it(session: Session) -> None:
    assert alter(session, "MODIFY COLUMN k VARCHAR(11) KEY NOT NULL").state == "FINISHED"
    run(session, "INSERT INTO t VALUES ('1', 11, 'again', 1), ('a', 1, 'new', 1)")
    assert table(session).get({"k": ["1", "2", "a", "3"]}, ["k", "s"]).to_pylist() == [
        {"k": "1", "s": "again"},
        {"k": "2", "s": " 2 "},
        {"k": "a", "s": "new"},
    ]
    assert run(session, "SELECT k FROM t") == [("1",), ("2",), ("a",)]


def test_keys_that_would_become_equal_cancel_the_job(session: Session) -> None:
    run(
        session,
        "CREATE TABLE u (k VARCHAR(9), v INT) UNIQUE KEY(k); INSERT INTO u VALUES ('1', 1), ('01', 2)",
    )
    job = alter(session, "MODIFY COLUMN k INT KEY", "u")
    assert (job.state, "two rows would have the key (k=1)" in job.message) == ("CANCELLED", True)
    run(session, "DELETE FROM u WHERE k = '01'")
    assert alter(session, "MODIFY COLUMN k INT KEY", "u").state == "FINISHED"
    assert run(session, "SELECT * FROM u") == [(1, 1)]
    run(session, "INSERT INTO u VALUES (1, 3)")
    assert run(session, "SELECT * FROM u") == [(1, 3)]


def test_a_deleted_key_hides_no_two_rows_whose_keys_would_become_equal(session: Session) -> None:
    """Each row was compared with the tombstone before them, and none with the other row."""
    run(session, "CREATE TABLE u (k VARCHAR(9), v INT) UNIQUE KEY(k)")
    run(session, "INSERT INTO u VALUES ('1', 1); DELETE FROM u WHERE k = '1'")
    run(session, "INSERT INTO u VALUES ('01', 2), ('001', 3)")
    job = alter(session, "MODIFY COLUMN k INT KEY", "u")
    assert (job.state, "two rows would have the key (k=1)" in job.message) == ("CANCELLED", True)


def test_a_key_of_an_empty_table_gets_another_type(session: Session) -> None:
    run(session, "CREATE TABLE u (k VARCHAR(9), v INT) UNIQUE KEY(k)")
    assert alter(session, "MODIFY COLUMN k INT KEY", "u").state == "FINISHED"
    run(session, "INSERT INTO u VALUES (1, 1), (1, 2)")
    assert run(session, "SELECT * FROM u") == [(1, 2)]


def test_a_deleted_key_without_a_form_in_the_new_type_is_forgotten(session: Session) -> None:
    run(session, "CREATE TABLE u (k VARCHAR(9) NOT NULL, v VARCHAR(9) NOT NULL) UNIQUE KEY(k)")
    run(session, "INSERT INTO u VALUES ('x', 'y'), ('1', '1'); DELETE FROM u WHERE k = 'x'")
    job = alter(session, "MODIFY COLUMN k INT KEY NOT NULL, MODIFY COLUMN v INT NOT NULL", "u")
    assert job.message == ""
    assert run(session, "SELECT * FROM u") == [(1, 1)]


def test_a_deleted_key_is_forgotten_if_any_part_of_it_has_no_form(session: Session) -> None:
    """A tombstone stayed unless every part failed, under a key that was never deleted."""
    run(session, "CREATE TABLE u (a VARCHAR(9) NOT NULL, b VARCHAR(9) NOT NULL) UNIQUE KEY(a, b)")
    run(
        session,
        "INSERT INTO u VALUES ('x', '1'), ('1', 'y'), ('1', '1'); DELETE FROM u WHERE a = 'x' OR b = 'y'",
    )
    job = alter(session, "MODIFY COLUMN a INT KEY NOT NULL, MODIFY COLUMN b INT KEY NOT NULL", "u")
    assert job.message == ""
    segments = session.store.table("db.u").state().segments.values()
    assert sum(live.segment.rows for live in segments) == 1
    assert run(session, "SELECT * FROM u") == [(1, 1)]


def test_a_nullable_key_keeps_its_null(session: Session) -> None:
    run(session, "CREATE TABLE u (k INT NULL, v INT) UNIQUE KEY(k); INSERT INTO u VALUES (NULL, 1), (1, 2)")
    assert alter(session, "MODIFY COLUMN k BIGINT KEY NULL", "u").state == "FINISHED"
    run(session, "INSERT INTO u VALUES (NULL, 3), (9223372036854775807, 4)")
    assert sorted(run(session, "SELECT v, k IS NULL FROM u")) == [(2, False), (3, True), (4, False)]


def test_a_key_column_may_be_null_from_now_on(session: Session) -> None:
    assert alter(session, "MODIFY COLUMN k BIGINT KEY NULL").state == "FINISHED"
    run(session, "INSERT INTO t (k, v) VALUES (NULL, 1), (1, 2); INSERT INTO t (k, v) VALUES (NULL, 3)")
    assert sorted(run(session, "SELECT v FROM t WHERE v > 0")) == [(2,), (3,)]


def test_the_default_of_a_column_follows_its_type(session: Session) -> None:
    assert alter(session, "MODIFY COLUMN n VARCHAR(11) NOT NULL").state == "FINISHED"
    run(session, "INSERT INTO t (k) VALUES (5)")
    assert run(session, "SELECT n FROM t WHERE k IN (1, 5)") == [("1",), ("7",)]


def test_a_default_that_does_not_fit_the_new_type_is_refused(session: Session) -> None:
    run(session, "ALTER TABLE t ADD COLUMN w VARCHAR(9) NULL DEFAULT 'x'")
    with pytest.raises(InvalidInputError, match='default "x" is no INT'):
        run(session, "ALTER TABLE t MODIFY COLUMN w INT NULL")


@pytest.mark.parametrize(
    ("statement", "kind", "text"),
    [
        ("CREATE TABLE u (k INT, v BIGINT AUTO_INCREMENT) UNIQUE KEY(k)", "STRING",
         "Can not change AUTO_INCREMENT"),
        ("CREATE TABLE u (k INT, v INT) UNIQUE KEY(k) PROPERTIES ('function_column.sequence_col' = 'v')",
         "BIGINT", "Can not alter sequence column"),
        ("CREATE TABLE u (v INT) UNIQUE KEY(v) PARTITION BY RANGE(v) (PARTITION p VALUES LESS THAN ('9'))",
         "BIGINT", "Can not modify partition column"),
        ("CREATE TABLE u (k INT, v INT) UNIQUE KEY(k); ALTER TABLE u ADD CONSTRAINT c CHECK (v > 0)",
         "DOUBLE", "part of the CHECK constraint c"),
        ("CREATE TABLE u (k INT, v DATETIME DEFAULT CURRENT_TIMESTAMP) UNIQUE KEY(k)", "DATE",
         "default CURRENT_TIMESTAMP does not fit DATE"),
        ("CREATE TABLE u (k INT, v VARCHAR(9)) UNIQUE KEY(k) CLUSTER BY (v)", "JSON",
         "CLUSTER BY column 'v' is JSON"),
    ],
)  # fmt: skip
def test_a_column_that_others_depend_on_keeps_its_type(
    session: Session, statement: str, kind: str, text: str
) -> None:
    run(session, statement)
    with pytest.raises(InvalidInputError, match=text):
        run(session, f"ALTER TABLE u MODIFY COLUMN v {kind}")


# ----------------------------------------------------------------------------------------- ADD COLUMN .. KEY


@pytest.mark.parametrize(("place", "key"), [("", ["k", "d"]), ("AFTER k", ["k", "d"]), ("FIRST", ["d", "k"])])
def test_a_key_column_is_added(session: Session, place: str, key: list[str]) -> None:
    assert alter(session, f"ADD COLUMN d DATE KEY NOT NULL DEFAULT '2024-01-01' {place}").state == "FINISHED"
    assert list(table(session).schema.key) == key
    run(session, "INSERT INTO t (k, d, v) VALUES (1, '2024-01-02', 11), (1, '2024-01-01', 12)")
    assert run(session, "SELECT k, d, v FROM t") == [
        (1, date(2024, 1, 1), 12),
        (1, date(2024, 1, 2), 11),
        (2, date(2024, 1, 1), None),
    ]
    assert run(session, "SELECT v FROM t WHERE k = 1 AND d = '2024-01-02'") == [(11,)]


def test_key_columns_are_added_as_a_list(session: Session) -> None:
    added = "(d INT KEY NOT NULL DEFAULT '1', w INT NULL DEFAULT '2', e DATE KEY NULL)"
    assert alter(session, f"ADD COLUMN {added}").state == "FINISHED"
    assert table(session).schema.names == ["k", "d", "e", "v", "s", "n", "w"]
    assert list(table(session).schema.key) == ["k", "d", "e"]
    run(session, "INSERT INTO t (k, d, e, v) VALUES (1, 1, NULL, 11), (1, 1, '2024-01-01', 12)")
    assert sorted(run(session, "SELECT k, d, v, w FROM t")) == [(1, 1, 11, 2), (1, 1, 12, 2), (2, 1, None, 2)]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("d DOUBLE KEY DEFAULT '1'", "DOUBLE cannot be the type of a key column"),
        ("d INT KEY NOT NULL", "has no default"),
        ("d INT KEY AFTER v", "value should be after key"),
        ("d INT FIRST", "use AFTER"),
    ],
)
def test_a_key_column_that_cannot_be_one_is_refused(session: Session, column: str, text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        run(session, f"ALTER TABLE t ADD COLUMN {column}")


def test_a_value_column_becomes_no_key(session: Session) -> None:
    with pytest.raises(InvalidInputError, match="Can not change a value column to a key column"):
        run(session, "ALTER TABLE t MODIFY COLUMN v BIGINT KEY")


# --------------------------------------------------------------------------------------- jobs and statements


def test_show_alter_table_column_lists_every_change_of_columns(session: Session) -> None:
    alter(session, "ADD COLUMN w INT")
    alter(session, "MODIFY COLUMN v DOUBLE")
    alter(session, "MODIFY COLUMN s DATE")
    newest = dicts(session, "SHOW ALTER TABLE COLUMN WHERE TableName = 't' ORDER BY CreateTime DESC LIMIT 1")
    assert [(row["State"], row["Progress"]) for row in newest] == [("CANCELLED", None)]
    assert newest[0]["Msg"].startswith("column 's' of 'db.t'")
    listed = dicts(session, "SHOW ALTER TABLE COLUMN FROM db ORDER BY JobId")
    assert [(row["JobId"], row["State"]) for row in listed] == [
        ("1", "FINISHED"),
        ("2", "FINISHED"),
        ("3", "CANCELLED"),
    ]
    assert dicts(session, "SHOW ALTER TABLE COLUMN WHERE State = 'FINISHED' ORDER BY JobId LIMIT 1, 1") == [
        listed[1]
    ]
    with pytest.raises(InvalidInputError, match="expected one of JobId"):
        run(session, "SHOW ALTER TABLE COLUMN ORDER BY zz")


def test_the_version_of_a_job_changes_no_data(session: Session) -> None:
    before = table(session).version
    job = alter(session, "MODIFY COLUMN v DOUBLE")
    info = table(session).history()[-1]
    assert (job.version, info.version, info.operation) == (before + 1, before + 1, "SCHEMA CHANGE")
    assert not info.has_data_change
    assert table(session).changes(before + 1).read_all().num_rows == 0


def test_a_job_waits_for_transactions_that_began_before_it(session: Session) -> None:
    store = session.store
    transaction = store.transaction(label="open")
    transaction.table("db.t").upsert(pa.table({"k": [9], "v": [90]}), mode="UPDATE_FIXED_COLUMNS")
    run(session, "ALTER TABLE t MODIFY COLUMN v DOUBLE")
    wait_for(lambda: dicts(session, "SHOW ALTER TABLE COLUMN")[0]["State"] == "WAITING_TXN")
    assert str(table(session).schema.column("v").type) == "INT"
    transaction.commit()
    store.schema_changes.wait()
    assert run(session, "SELECT v FROM t WHERE k = 9") == [(90.0,)]


def wait_for(is_reached: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(2_000):
        if is_reached():
            return
        pause.wait(0.01)
    raise AssertionError("not reached")


def test_a_precommitted_load_is_waited_for(session: Session) -> None:
    load = table(session).begin_load(label="two", mode="UPDATE_FIXED_COLUMNS")
    load.write(pa.table({"k": [9], "v": [90]}))
    load.precommit()
    run(session, "ALTER TABLE t MODIFY COLUMN v VARCHAR(11)")
    wait_for(lambda: dicts(session, "SHOW ALTER TABLE COLUMN")[0]["State"] == "WAITING_TXN")
    session.store.commit_transaction("db", label="two")
    session.store.schema_changes.wait()
    assert run(session, "SELECT v FROM t WHERE k = 9") == [("90",)]


def test_a_waiting_job_is_cancelled(session: Session) -> None:
    transaction = session.store.transaction(label="open")
    transaction.table("db.t").upsert(pa.table({"k": [9], "v": [90]}), mode="UPDATE_FIXED_COLUMNS")
    run(session, "ALTER TABLE t MODIFY COLUMN v DOUBLE; CANCEL ALTER TABLE COLUMN FROM t")
    session.store.schema_changes.wait()
    row = dicts(session, "SHOW ALTER TABLE COLUMN")[0]
    assert (row["State"], row["Msg"]) == ("CANCELLED", "user cancelled")
    transaction.commit()
    assert alter(session, "MODIFY COLUMN v DOUBLE").state == "FINISHED"
    with pytest.raises(InvalidInputError, match=r"Table\[t\] is not under SCHEMA_CHANGE"):
        run(session, "CANCEL ALTER TABLE COLUMN FROM t")


def test_a_running_job_is_cancelled_and_leaves_no_file(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(session.store)
    cancel = partial(run, session, "CANCEL ALTER TABLE COLUMN FROM t")
    at_point(monkeypatch, "rewrite.merged", cancel)
    job = alter(session, "MODIFY COLUMN v DOUBLE")
    assert (job.state, job.message) == ("CANCELLED", "user cancelled")
    assert files(session.store) == before
    assert str(table(session).schema.column("v").type) == "INT"


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD COLUMN z INT",
        "ALTER TABLE t MODIFY COLUMN s STRING",
        "ALTER TABLE t RENAME COLUMN v TO w",
        "ALTER TABLE t SET ('delta.appendOnly' = 'true')",
        "ALTER TABLE t ADD CONSTRAINT c CHECK (k > 0)",
        "RESTORE TABLE t TO VERSION AS OF 2",
    ],
)
def test_a_table_admits_no_other_change_during_a_job(session: Session, statement: str) -> None:
    with session.store.transaction(label="open") as transaction:
        transaction.table("db.t").upsert(pa.table({"k": [9], "v": [90]}), mode="UPDATE_FIXED_COLUMNS")
        run(session, "ALTER TABLE t MODIFY COLUMN v DOUBLE")
        with pytest.raises(InvalidInputError, match=r"Table\[t\]'s state\(SCHEMA_CHANGE\) is not NORMAL"):
            run(session, statement)
        transaction.commit()
    session.store.schema_changes.wait()
    assert str(table(session).schema.column("v").type) == "DOUBLE"


def test_a_dropped_table_ends_its_job(session: Session) -> None:
    transaction = session.store.transaction(label="open")
    transaction.table("db.t").upsert(pa.table({"k": [9], "v": [90]}), mode="UPDATE_FIXED_COLUMNS")
    run(session, "ALTER TABLE t MODIFY COLUMN v DOUBLE; DROP TABLE t")
    transaction.rollback()
    session.store.schema_changes.wait()
    row = dicts(session, "SHOW ALTER TABLE COLUMN")[0]
    assert (row["State"], row["Msg"]) == ("CANCELLED", "table 'db.t' was dropped")


# ---------------------------------------------------------------------------------------- while the job runs


def test_what_others_write_during_the_job_is_kept(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upserts, deletes, partial updates, a compaction and a removal of all rows, between two steps."""

    def work() -> None:
        with Session(session.store, "db") as other:
            run(other, "INSERT INTO t VALUES (1, 11, '5', 5), (7, 70, '6', 6); DELETE FROM t WHERE k = 2")
            run(other, "UPDATE t SET v = 71 WHERE k = 7; OPTIMIZE t FULL")
            assert run(other, "SELECT k, v FROM t") == [(1, 11), (7, 71)]
            run(other, "INSERT INTO t VALUES (8, 80, '8', 8)")

    at_point(monkeypatch, "rewrite.merged", work)
    assert (
        alter(session, "MODIFY COLUMN v DOUBLE, MODIFY COLUMN k VARCHAR(11) KEY NOT NULL").state == "FINISHED"
    )
    assert run(session, "SELECT k, v, s FROM t") == [("1", 11.0, "5"), ("7", 71.0, "6"), ("8", 80.0, "8")]
    assert table(session).get({"k": ["7", "2"]}, ["v"]).to_pylist() == [{"v": 71.0}]


def test_a_truncated_table_stays_empty(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        with Session(session.store, "db") as other:
            run(other, "TRUNCATE TABLE t")

    at_point(monkeypatch, "rewrite.merged", work)
    assert alter(session, "MODIFY COLUMN v DOUBLE").state == "FINISHED"
    assert run(session, "SELECT * FROM t") == []


def test_a_value_that_arrives_during_the_job_cancels_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> None:
        with Session(session.store, "db") as other:
            run(other, "INSERT INTO t VALUES (4, 4, 'late', 4)")

    at_point(monkeypatch, "rewrite.merged", work)
    job = alter(session, "MODIFY COLUMN s INT")
    assert (job.state, "the value 'late' of the row with the key (k=4)" in job.message) == ("CANCELLED", True)
    session.store.table("db.t").vacuum()
    assert files(session.store) <= named_files(session.store)


def test_a_transaction_that_overlaps_with_the_commit_fails(session: Session) -> None:
    store = session.store
    held = store.transaction(label="held")
    held.table("db.t").upsert(pa.table({"k": [8], "v": [80]}), mode="UPDATE_FIXED_COLUMNS")
    run(session, "ALTER TABLE t MODIFY COLUMN v DOUBLE")
    wait_for(lambda: dicts(session, "SHOW ALTER TABLE COLUMN")[0]["State"] == "WAITING_TXN")
    later = store.transaction(label="later")
    later.table("db.t").upsert(pa.table({"k": [9], "v": [90]}), mode="UPDATE_FIXED_COLUMNS")
    held.commit()
    store.schema_changes.wait()
    with pytest.raises(MetadataChangedException, match=r"column v \(now DOUBLE\)"):
        later.commit()
    assert run(session, "SELECT k FROM t") == [(1,), (2,), (8,)]


def begun_load(store: Store, **options: Any) -> Callable[[], Any]:
    load = store.table("db.t").begin_load(label="later", **options)
    load.write(pa.table({"k": [1, 9], "v": [80, 90]}))
    return load.commit


def begun_transaction(store: Store, work: Callable[[Any], Any], **options: Any) -> Callable[[], Any]:
    transaction = store.transaction(label="later", **options)
    work(transaction.table("db.t"))
    return transaction.commit


def begun_precommit(store: Store) -> Callable[[], Any]:
    load = store.table("db.t").begin_load(label="later")
    load.write(pa.table({"k": [1, 9], "v": [80, 90]}))
    load.precommit()
    return lambda: store.commit_transaction("db", label="later")


NEW_VALUE = "MODIFY COLUMN v DOUBLE"
NEW_KEY = "MODIFY COLUMN k VARCHAR(11) KEY NOT NULL"
MORE_KEY = "ADD COLUMN d INT KEY NOT NULL DEFAULT '1'"


@pytest.mark.parametrize(
    ("changes", "begin"),
    [
        (NEW_VALUE, begun_load),
        (NEW_KEY, begun_load),
        (MORE_KEY, begun_load),
        (MORE_KEY, partial(begun_load, mode="UPDATE_FIXED_COLUMNS")),
        (NEW_KEY, begun_precommit),
        (NEW_KEY, lambda s: begun_transaction(s, lambda t: t.update({"v": 5}, pc.field("k") == 1))),
        (
            NEW_KEY,
            lambda s: begun_transaction(
                s, lambda t: t.update({"v": 5}, pc.field("k") == 1), concurrency="optimistic"
            ),
        ),
        (MORE_KEY, lambda s: begun_transaction(s, lambda t: t.delete(pa.table({"k": [1]})))),
        (NEW_VALUE, lambda s: begun_transaction(s, lambda t: t.delete_where(pc.field("v") > 1))),
    ],
    ids=["value", "key", "more", "partial", "precommit", "update", "optimistic", "delete", "delete_where"],
)
def test_every_kind_of_write_that_overlaps_with_the_commit_fails(
    session: Session, changes: str, begin: Callable[[Store], Callable[[], Any]]
) -> None:
    store = session.store
    held = store.transaction(label="held")
    held.table("db.t").upsert(pa.table({"k": [8], "v": [80]}), mode="UPDATE_FIXED_COLUMNS")
    run(session, f"ALTER TABLE t {changes}")
    wait_for(lambda: dicts(session, "SHOW ALTER TABLE COLUMN")[0]["State"] == "WAITING_TXN")
    commit = begin(store)
    held.commit()
    store.schema_changes.wait()
    before = table(session).version
    with pytest.raises(MetadataChangedException, match="SCHEMA CHANGE"):
        commit()
    assert table(session).version == before
    assert table(session).check() == []


def test_an_open_snapshot_reads_the_old_type_on(session: Session) -> None:
    with table(session).snapshot() as snapshot:
        assert alter(session, "MODIFY COLUMN v VARCHAR(11)").state == "FINISHED"
        assert snapshot.scan(["k", "v"]).read_all().sort_by("k").to_pylist() == [
            {"k": 1, "v": 10},
            {"k": 2, "v": None},
        ]


@pytest.mark.settings(segment_rows=50, inline_bytes_max=100, batch_rows_max=20)
def test_loads_go_on_beside_jobs(session: Session) -> None:
    """Two threads load their own keys while the type of a column changes three times."""
    store = session.store
    run(session, "CREATE TABLE u (k INT NOT NULL, v INT NULL, c BIGINT NULL) UNIQUE KEY(k)")
    failures: list[BaseException] = []

    def load(writer: int) -> None:
        try:
            for number in range(6):
                rows = pa.table({"k": [writer * 100 + i for i in range(10)], "c": [number] * 10})
                for _ in range(50):
                    try:
                        store.table("db.u").upsert(rows, mode="UPDATE_FIXED_COLUMNS")
                        break
                    except ConflictError:
                        continue
                else:
                    raise AssertionError("fifty conflicts in a row")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=load, args=(writer,)) for writer in range(2)]
    for thread in threads:
        thread.start()
    jobs = [alter(session, f"MODIFY COLUMN v {kind}", "u") for kind in ("BIGINT", "DOUBLE", "VARCHAR(40)")]
    for thread in threads:
        thread.join()
    assert failures == []
    assert [(job.state, job.message) for job in jobs] == [("FINISHED", "")] * 3
    assert run(session, "SELECT k, c FROM u") == [(w * 100 + i, 5) for w in range(2) for i in range(10)]


# ------------------------------------------------------------------------------------- the past of the table


def test_versions_before_keep_their_types(session: Session) -> None:
    before = table(session).version
    alter(session, "MODIFY COLUMN v VARCHAR(11), MODIFY COLUMN k BIGINT KEY NOT NULL")
    run(session, "INSERT INTO t VALUES (9, 'x', 'y', 1)")
    assert run(session, f"SELECT k, v FROM t FOR VERSION AS OF {before}") == [(1, 10), (2, None)]
    assert run(session, "SELECT k, v FROM t") == [(1, "10"), (2, None), (9, "x")]


@pytest.mark.parametrize(
    ("kind", "keys", "lost"),
    [("BIGINT", "(4, 1, 'x', 1), (1099511627776, 1, 'x', 1)", 2), ("VARCHAR(11)", "('a', 1, 'x', 1)", 1)],
)
def test_a_key_that_the_old_type_cannot_hold_is_one_that_a_restore_would_lose(
    session: Session, kind: str, keys: str, lost: int
) -> None:
    """47: the message named the types, not the rows."""
    before = table(session).version
    assert alter(session, f"MODIFY COLUMN k {kind} KEY NOT NULL").state == "FINISHED"
    changed = table(session).version
    run(session, f"INSERT INTO t VALUES {keys}")
    run(session, "ALTER TABLE t SET ('delta.appendOnly' = 'true')")
    for version in (before, changed):
        with pytest.raises(InvalidInputError, match=f"RESTORE would change or delete {lost} rows"):
            run(session, f"RESTORE TABLE t TO VERSION AS OF {version}")


def test_restore_to_before_brings_the_old_types_back(session: Session) -> None:
    before = table(session).version
    alter(session, "MODIFY COLUMN v DOUBLE, MODIFY COLUMN k VARCHAR(11) KEY NOT NULL")
    run(session, "INSERT INTO t VALUES ('x', 0.5, 'y', 1)")
    changed = table(session).version
    run(session, f"RESTORE TABLE t TO VERSION AS OF {before}")
    assert run(session, "SELECT k, v FROM t WHERE k = 1") == [(1, 10)]
    run(session, "INSERT INTO t (k, v) VALUES (1, 12), (4, 40)")
    assert run(session, "SELECT k, v FROM t") == [(1, 12), (2, None), (4, 40)]
    run(session, f"RESTORE TABLE t TO VERSION AS OF {changed}")
    assert run(session, "SELECT k, v FROM t") == [("1", 10.0), ("2", None), ("x", 0.5)]


def test_the_change_feed_goes_over_the_change_of_a_type(session: Session) -> None:
    alter(session, "MODIFY COLUMN v VARCHAR(11), ADD COLUMN d INT KEY NOT NULL DEFAULT '0'")
    run(session, "INSERT INTO t (k, d, v) VALUES (1, 0, 'x')")
    feed = table(session).changes(2).read_all()
    assert feed.schema.field("v").type == pa.string()
    found = [(r["_commit_version"], r["_change_type"], r["k"], r["d"], r["v"]) for r in feed.to_pylist()]
    assert sorted(found[:3]) == [(2, "+I", 1, 0, "10"), (2, "+I", 2, 0, None), (2, "+I", 3, 0, "30")]
    assert found[3:] == [(3, "-D", 3, 0, "30"), (5, "-U", 1, 0, "10"), (5, "+U", 1, 0, "x")]


def test_the_change_feed_names_an_earlier_value_without_a_form_in_the_new_type(session: Session) -> None:
    run(session, "INSERT INTO t VALUES (4, 4, 'x', 4); DELETE FROM t WHERE k = 4")
    switch = alter(session, "MODIFY COLUMN s INT").version
    with pytest.raises(InvalidInputError, match=r"'s' was VARCHAR\(20\) in some versions, and its value 'x'"):
        table(session).changes(2).read_all()
    assert table(session).changes(2, switch - 1).read_all().num_rows == 6
    assert table(session).changes(switch).read_all().num_rows == 0


def test_the_change_feed_matches_rows_by_the_key_of_their_version(session: Session) -> None:
    run(
        session,
        "CREATE TABLE u (k VARCHAR(9), v INT) UNIQUE KEY(k); INSERT INTO u VALUES ('1', 1), ('01', 2)",
    )
    run(session, "DELETE FROM u WHERE k = '01'")
    assert alter(session, "MODIFY COLUMN k INT KEY", "u").state == "FINISHED"
    feed = session.store.table("db.u").changes(2).read_all().to_pylist()
    assert sorted((r["_commit_version"], r["_change_type"], r["k"], r["v"]) for r in feed) == [
        (2, "+I", 1, 1),
        (2, "+I", 1, 2),
        (3, "-D", 1, 2),
    ]


def test_the_history_of_a_key_goes_over_the_change_of_its_type(session: Session) -> None:
    run(session, "UPDATE t SET v = 11 WHERE k = 1")
    alter(session, "MODIFY COLUMN k VARCHAR(11) KEY NOT NULL")
    run(session, "UPDATE t SET v = 12 WHERE k = '1'")
    found = [
        (event.version, event.outcome, event.row["v"]) for event in table(session).key_history({"k": "1"})
    ]
    assert found == [(2, "replaced", 10), (4, "replaced", 11), (6, "live", 12)]


def test_the_history_of_a_key_begins_before_a_part_of_it_was_added(session: Session) -> None:
    alter(session, "ADD COLUMN d INT KEY NOT NULL DEFAULT '0'")
    run(session, "INSERT INTO t (k, d, v) VALUES (1, 0, 11), (1, 1, 12)")
    events = table(session).key_history({"k": 1, "d": 0})
    assert [(event.outcome, event.row["v"]) for event in events] == [("replaced", 10), ("live", 11)]
    assert len(table(session).key_history({"k": 1, "d": 1})) == 1
    assert [event.outcome for event in table(session).key_history({"k": 3, "d": 0})] == [
        "deleted",
        "tombstone",
    ]


def test_a_sequence_decides_as_before(session: Session) -> None:
    run(
        session,
        "CREATE TABLE u (k INT, q INT, v INT) UNIQUE KEY(k) "
        "PROPERTIES ('function_column.sequence_col' = 'q');"
        "INSERT INTO u VALUES (1, 5, 1), (2, 5, 1); DELETE FROM u WHERE k = 2",
    )
    assert (
        alter(session, "MODIFY COLUMN k VARCHAR(11) KEY, MODIFY COLUMN v VARCHAR(11)", "u").state
        == "FINISHED"
    )
    run(session, "INSERT INTO u VALUES ('1', 4, 'late'), ('2', 4, 'late'), ('3', 1, 'new')")
    assert run(session, "SELECT k, v FROM u") == [("1", "1"), ("3", "new")]


# ----------------------------------------------------------------------------------------- ends of processes


def test_a_closed_store_stops_its_job_and_the_next_one_runs_it(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data") as store, Session(store) as session:
        run(session, f"CREATE DATABASE db; USE db; {TABLE}")
        transaction = store.transaction(label="open", timeout_seconds=3600)
        transaction.table("db.t").upsert(pa.table({"k": [9], "v": [90]}), mode="UPDATE_FIXED_COLUMNS")
        run(session, "ALTER TABLE t MODIFY COLUMN v DOUBLE")
    assert [job.state for job in SchemaChangeJobs(store.catalog).all().values()] == ["PENDING"]
    transaction.rollback()
    with Store.open(tmp_path / "data") as store:
        store.schema_changes.wait()
        assert [job.state for job in store.schema_changes.jobs("db").values()] == ["FINISHED"]
        assert str(store.table("db.t").schema.column("v").type) == "DOUBLE"


def test_the_job_of_a_table_is_none_of_another(session: Session) -> None:
    """Every change of any schema was refused while one job ran."""
    run(session, "CREATE TABLE u (k INT, v INT) UNIQUE KEY(k)")
    jobs = SchemaChangeJobs(session.store.catalog)
    transaction = session.store.transaction(label="open", timeout_seconds=3600)
    transaction.table("db.t").upsert(pa.table({"k": [9], "v": [90]}), mode="UPDATE_FIXED_COLUMNS")
    run(session, "ALTER TABLE t MODIFY COLUMN v DOUBLE")  # waits for the transaction
    run(session, "ALTER TABLE u ADD COLUMN w INT NULL")
    assert [job.table for job in jobs.living().values()] == ["db.t"]
    assert [job.table for job in jobs.all("db", "u").values()] == ["db.u"]
    assert (len(jobs.all("db")), jobs.all("other", "u")) == (2, {})
    transaction.rollback()


def test_a_job_that_ends_every_process_is_cancelled(session: Session) -> None:
    job = alter(session, "MODIFY COLUMN v DOUBLE")
    for _ in range(ATTEMPTS_MAX):
        job = job.taken_over((1, 1))
    assert (job.state, job.message) == ("CANCELLED", f"every process that ran it ended, {ATTEMPTS_MAX} times")


def test_a_statement_without_a_job_is_no_result(session: Session) -> None:
    assert last_result(session, "ALTER TABLE t MODIFY COLUMN v DOUBLE").rows is None


@pytest.mark.settings(Settings(columns_not_null_by_default=True))
def test_mixed_changes_are_one_job(session: Session) -> None:
    job = alter(session, "MODIFY COLUMN v DOUBLE, DROP COLUMN s, ADD COLUMN w INT NULL DEFAULT '3'")
    assert (job.state, table(session).schema.names) == ("FINISHED", ["k", "v", "n", "w"])
    assert run(session, "SELECT k, v, w FROM t") == [(1, 10.0, 3), (2, None, 3)]


def test_a_job_is_tried_again_when_the_disk_was_full(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise UnavailableError("the disk is full", kind="disk")

    monkeypatch.setattr("seqstore.store.ddl.schema_changes._RETRY_SECONDS", 0.0)
    before = files(session.store)
    at_point(monkeypatch, "rewrite.merged", fail)
    assert alter(session, "MODIFY COLUMN v DOUBLE").state == "FINISHED"
    session.store.table("db.t").vacuum(retention_seconds=0)
    assert files(session.store) <= before | named_files(session.store)


GROUPS = """
CREATE TABLE g (k INT NOT NULL, a INT NULL, b INT NULL, qa INT NULL, qb INT NULL) UNIQUE KEY(k)
PROPERTIES ('sequence_mapping.qa' = 'a', 'sequence_mapping.qb' = 'b');
"""


@pytest.mark.sql(GROUPS)
def test_cells_of_column_groups_change_their_type(session: Session) -> None:
    run(session, "INSERT INTO g (k, a, qa) VALUES (1, 10, 5), (2, 20, 5); DELETE FROM g WHERE k = 2")
    run(session, "INSERT INTO g (k, b, qb) VALUES (1, 11, 3)")
    job = alter(session, "MODIFY COLUMN a VARCHAR(11), MODIFY COLUMN k VARCHAR(11) KEY NOT NULL", "g")
    assert (job.state, job.message) == ("FINISHED", "")
    run(
        session,
        "INSERT INTO g (k, a, qa) VALUES ('1', 'late', 4); INSERT INTO g (k, b, qb) VALUES ('1', 12, 4)",
    )
    assert run(session, "SELECT k, a, b FROM g") == [("1", "10", 12)]
    assert alter(session, "ADD COLUMN d INT KEY NULL", "g").state == "FINISHED"
    run(session, "INSERT INTO g (k, d, a, qa) VALUES ('1', NULL, 'newer', 6)")
    assert run(session, "SELECT k, a, b FROM g") == [("1", "newer", 12)]
    with pytest.raises(InvalidInputError, match="sequence mapping column"):
        run(session, "ALTER TABLE g MODIFY COLUMN qa VARCHAR(11)")


@pytest.mark.parametrize("properties", ["'storage_format' = 'parquet'", "'compression' = 'zstd'"])
@pytest.mark.settings(segment_rows=40, inline_bytes_max=100, batch_rows_max=7)
def test_large_tables_of_every_format_are_written_anew(session: Session, properties: str) -> None:
    run(session, f"CREATE TABLE u (k INT, v INT) UNIQUE KEY(k) CLUSTER BY (v) PROPERTIES ({properties})")
    opened = session.store.table("db.u")
    for first in (0, 100, 150):
        opened.upsert(pa.table({"k": range(first, first + 100), "v": range(100, 0, -1)}))
    job = alter(session, "MODIFY COLUMN v VARCHAR(11), MODIFY COLUMN k BIGINT KEY", "u")
    assert (job.state, job.rows_done, job.rows_total) == ("FINISHED", 250, 250)
    assert opened.count() == 250
    assert opened.get({"k": [0, 149, 150, 249]}, ["v"]).to_pydict() == {"v": ["100", "51", "100", "1"]}
    assert opened.check() == []


@pytest.mark.settings(inline_bytes_max=100)
def test_a_progress_note_that_may_not_be_synced_does_not_stop_a_job(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ended there, and the files that it had written stayed until the process ended."""
    change, before = SchemaChangeJobs.change, files(store)

    def changed(jobs: SchemaChangeJobs, job_id: int, by: Callable[..., SchemaChangeJob]) -> SchemaChangeJob:
        job = change(jobs, job_id, by)
        if job.rows_total and not job.has_ended:
            raise CommitUnknownError("the disk failed to sync it")
        return job

    monkeypatch.setattr(SchemaChangeJobs, "change", changed)
    job = alter(session, "MODIFY COLUMN v DOUBLE")
    assert (job.state, job.rows_done) == ("FINISHED", job.rows_total)
    session.store.table("db.t").vacuum(retention_seconds=0)
    assert files(store) <= before | named_files(store)


def test_a_job_whose_record_may_not_be_synced_runs(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread ran it, and no other change of the table was admitted while the process lived."""

    def altered(*arguments: Any, **options: Any) -> int:
        alter_table(*arguments, **options)
        raise CommitUnknownError("the disk failed to sync it")

    monkeypatch.setattr(schema_changes, "alter", altered)
    with pytest.raises(CommitUnknownError):
        run(session, "ALTER TABLE t MODIFY COLUMN v STRING")
    monkeypatch.undo()
    store.schema_changes.wait()
    assert dicts(session, "SELECT v FROM t WHERE k = 1") == [{"v": "10"}]
    run(session, "ALTER TABLE t ADD COLUMN w INT")


def test_a_job_that_a_closed_handle_could_not_release_goes_on_at_the_next_opening(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner was this process, which lives, so no handle took it over."""

    def fail(*_: Any) -> None:
        raise UnavailableError("the disk is full", kind="disk")

    with Store.open(store.path) as broken, Session(broken, "db") as other:
        monkeypatch.setattr(failpoint, "hit", fail)
        monkeypatch.setattr(SchemaChangeJobs, "change", fail)
        run(other, "ALTER TABLE t MODIFY COLUMN v STRING")
    monkeypatch.undo()
    with Store.open(store.path) as again:
        again.schema_changes.wait()
    assert dicts(session, "SELECT v FROM t WHERE k = 1") == [{"v": "10"}]
