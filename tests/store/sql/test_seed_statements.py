"""Every statement of the Delta pages on isolation levels, and of the Doris page beside its worked example.

Statements run as printed. What a page leaves open is filled in, and nothing else: `<level-name>`, the `...`
of a sketch, `[WITH MERGE|APPEND|DELETE]`, a comparison that was lost in print. The worked example itself is
in `test_manual` and `test_worked_example`; its curl commands are in the tests of stream load.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from seqstore import InvalidInputError, Settings, Store
from seqstore.cli.output import box
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.store.errors import MetadataChangedException, ProtocolChangedException, StoreError
from seqstore.store.sql import ServerContext, Session
from tests.support.printed import LOAD_LABEL, ROUTINE_LOAD
from tests.support.statements import dicts

COLUMNS = "(k INT, date DATE, v INT NULL) UNIQUE KEY(k)"
ROWS = "(1, '2009-12-31', 1), (2, '2010-01-01', 2), (3, '2010-01-02', 3)"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    (tmp_path / "in").mkdir()
    settings = Settings(load_paths=(str(tmp_path / "in"),))
    with (
        Store.open(tmp_path / "s", settings=settings) as store,
        Session(store, server=ServerContext(load_jobs=StoreLoadJobs(store))) as opened,
    ):
        dicts(opened, "CREATE DATABASE d; USE d")
        for name in ("table_name", "table-name", "table"):
            dicts(opened, f"CREATE TABLE `{name}` {COLUMNS}; INSERT INTO `{name}` VALUES {ROWS}")
        yield opened


def drawn(session: Session, text: str) -> str:
    [result] = session.execute(text)
    assert result.rows is not None
    return box(result.rows)


def properties(session: Session, table: str) -> dict[str, str]:
    return dict(session.store.table(f"d.{table}").schema.properties)


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ("ALTER TABLE table-name SET TBLPROPERTIES ('delta.isolationLevel' = 'Serializable')", "table-name"),
        ("ALTER TABLE table_name SET TBLPROPERTIES ('delta.isolationLevel' = 'Serializable')", "table_name"),
        ("ALTER TABLE <table-name> SET TBLPROPERTIES ('delta.isolationLevel' = <level-name>)", "table-name"),
    ],
)
def test_the_isolation_level_is_a_table_property(session: Session, statement: str, table: str) -> None:
    filled = statement.replace("<table-name>", "table-name").replace("<level-name>", "'Serializable'")
    dicts(session, filled)
    assert session.store.table(f"d.{table}").schema.isolation_level == "Serializable"
    assert (
        drawn(session, f"SHOW CREATE TABLE `{table}`").count('"delta.isolationLevel" = "Serializable"') == 1
    )
    for level in ("WriteSerializable", "SnapshotIsolation"):
        text = filled.replace("'Serializable'", f"'{level}'")
        if level == "SnapshotIsolation":
            with pytest.raises(InvalidInputError, match="expected Serializable or WriteSerializable"):
                dicts(session, text)
        else:
            dicts(session, text)
    assert session.store.table(f"d.{table}").schema.isolation_level == "WriteSerializable"


def test_a_feature_is_enabled_by_its_property_and_dropped_by_name(session: Session) -> None:
    table = session.store.table("d.table_name")
    dicts(session, "ALTER TABLE table_name SET TBLPROPERTIES ('delta.enableDeletionVectors' = true);")
    assert properties(session, "table_name")["delta.enableDeletionVectors"] == "true"
    assert "deletionVectors" in table.schema.features
    dicts(session, "ALTER TABLE table_name DROP FEATURE deletionVectors;")
    assert properties(session, "table_name")["delta.enableDeletionVectors"] == "false"
    assert "deletionVectors" not in table.schema.features
    with pytest.raises(InvalidInputError, match="the table has no feature 'deletionVectors'"):
        dicts(session, "ALTER TABLE table_name DROP FEATURE deletionVectors;")


def test_columns_are_added_in_deltas_words(session: Session) -> None:
    dicts(session, "ALTER TABLE table_name ADD COLUMNS (col_name STRING);")
    assert drawn(session, "desc table_name") == "\n".join(
        [
            "+----------+--------+------+-------+---------+---------+",
            "| Field    | Type   | Null | Key   | Default | Extra   |",
            "+----------+--------+------+-------+---------+---------+",
            "| k        | INT    | Yes  | true  | NULL    |         |",
            "| date     | DATE   | Yes  | false | NULL    | REPLACE |",
            "| v        | INT    | Yes  | false | NULL    | REPLACE |",
            "| col_name | STRING | Yes  | false | NULL    | REPLACE |",
            "+----------+--------+------+-------+---------+---------+",
        ]
    )
    assert dicts(session, "SELECT col_name FROM table_name WHERE k = 1") == [{"col_name": None}]


def test_an_upgrade_writes_what_iceberg_readers_read(session: Session) -> None:
    (line,) = dicts(session, "REORG TABLE table_name APPLY (UPGRADE UNIFORM(ICEBERG_COMPAT_VERSION=2));")
    assert line["rows"] == len(dicts(session, "SELECT * FROM table_name"))
    assert line["metadata"].endswith(f"/metadata/v{line['version']}.metadata.json")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        (
            "ALTER TABLE table_name SET TBLPROPERTIES ('delta.isolationLevel' = 'Serializable')",
            MetadataChangedException,
        ),
        (
            "ALTER TABLE table_name SET TBLPROPERTIES ('delta.enableDeletionVectors' = true);",
            ProtocolChangedException,
        ),
        ("ALTER TABLE table_name ADD COLUMNS (col_name STRING);", MetadataChangedException),
    ],
)
def test_metadata_changes_cause_concurrent_writes_to_fail(
    session: Session, statement: str, error: type[StoreError]
) -> None:
    """The page's first "Important"."""
    load = session.store.table("d.table_name").begin_load()
    with Session(session.store, "d") as other:
        rows = other.store.table("d.table_name").scan().read_all()
        load.write(rows)
        dicts(other, statement)
    with pytest.raises(error):
        load.commit()


def test_the_two_sketched_commands_touch_what_their_conditions_say(session: Session) -> None:
    """`UPDATE table WHERE date > '2010-01-01' ...` and `DELETE table WHERE date < '2010-01-01'`."""
    dicts(session, "UPDATE table SET v = v + 10 WHERE date > '2010-01-01'")
    dicts(session, "DELETE table WHERE date < '2010-01-01'")
    rows = dicts(session, "SELECT * FROM table ORDER BY k")
    expected = [(2, date(2010, 1, 1), 2), (3, date(2010, 1, 2), 13)]
    assert [tuple(row.values()) for row in rows] == expected


@pytest.mark.parametrize("update", ["UPDATE SET *", "UPDATE *"])
@pytest.mark.parametrize("more", ["", " AND t.date = '2024-05-01' AND t.country = 'de'"])
def test_the_pages_merge_updates_and_inserts_whole_rows(session: Session, more: str, update: str) -> None:
    """`whenMatched().updateAll().whenNotMatched().insertAll()`, without and with the literals."""
    for name in ("deltaTable", "source"):
        dicts(
            session,
            f"CREATE TABLE {name} (user_id BIGINT, date DATE, country VARCHAR(2), n INT)"
            " UNIQUE KEY(user_id, date, country)"
            " PROPERTIES ('partition_columns' = 'date,country')",
        )
    dicts(session, "INSERT INTO deltaTable VALUES (1, '2024-05-01', 'de', 1), (2, '2024-05-02', 'fr', 2)")
    dicts(session, "INSERT INTO source VALUES (1, '2024-05-01', 'de', 10), (3, '2024-05-01', 'de', 30)")
    dicts(
        session,
        f"""
        MERGE INTO deltaTable AS t USING source AS s
        ON s.user_id = t.user_id AND s.date = t.date AND s.country = t.country{more}
        WHEN MATCHED THEN {update}
        WHEN NOT MATCHED THEN INSERT *""",
    )
    rows = dicts(session, "SELECT user_id, country, n FROM deltaTable ORDER BY 1")
    assert [tuple(row.values()) for row in rows] == [(1, "de", 10), (2, "fr", 2), (3, "de", 30)]


def test_a_sequence_is_enabled_for_a_table_without_one(session: Session) -> None:
    """SD8; whether a table supports it, the page says, hidden columns tell."""
    dicts(session, "CREATE DATABASE example_db; CREATE TABLE example_db.my_table (k INT) UNIQUE KEY(k)")
    dicts(session, "SET show_hidden_columns=true")
    assert "__DORIS_SEQUENCE_COL__" not in drawn(session, "desc example_db.my_table")
    dicts(
        session,
        'ALTER TABLE example_db.my_table ENABLE FEATURE "SEQUENCE_LOAD" '
        'WITH PROPERTIES ("function_column.sequence_type" = "Date")',
    )
    assert "| __DORIS_SEQUENCE_COL__ | DATE" in drawn(session, "desc example_db.my_table")


SEQUENCED = (
    "(k1 INT, k2 VARCHAR(20), v1 INT, v2 INT) UNIQUE KEY(k1, k2)"
    " PROPERTIES ('function_column.sequence_type' = 'INT')"
)


def ended(session: Session) -> dict[str, Any]:
    """The job's line once it has ended: jobs tell nobody, SHOW LOAD is how one learns."""
    deadline = time.monotonic() + 200
    while True:
        (line,) = dicts(session, "SHOW LOAD FROM db1 WHERE LABEL = 'label1'")
        if line["State"] in ("FINISHED", "CANCELLED"):
            return line
        assert time.monotonic() < deadline, line
        time.sleep(0.05)


def test_the_broker_load_orders_rows_by_the_column_it_names(session: Session, tmp_path: Path) -> None:
    """As printed but for the place of the files: the larger source_sequence wins."""
    dicts(session, f"CREATE DATABASE db1; CREATE TABLE db1.tbl1 {SEQUENCED}")
    (tmp_path / "in" / "a").mkdir()
    (tmp_path / "in" / "a" / "test.txt").write_text("1,x,5,50,500\n1,x,3,30,300\n2,y,1,10,100\n")
    dicts(session, LOAD_LABEL.replace("hdfs://host:port/user/data", f"{tmp_path}/in"))
    assert ended(session)["State"] == "FINISHED"
    rows = dicts(session, "SELECT * FROM db1.tbl1 ORDER BY k1")
    assert [tuple(row.values()) for row in rows] == [(1, "x", 50, 500), (2, "y", 10, 100)]


def test_the_broker_load_as_printed_is_registered_and_tells_what_it_cannot_reach(session: Session) -> None:
    dicts(session, f"CREATE DATABASE db1; CREATE TABLE db1.tbl1 {SEQUENCED}; {LOAD_LABEL}")
    line = ended(session)
    assert (line["State"], line["Label"]) == ("CANCELLED", "label1")
    assert "host:port/user/data" in line["ErrorMsg"]


@pytest.mark.parametrize("merge_type", ["APPEND", "MERGE", "DELETE"])
def test_the_routine_load_is_registered_as_printed(session: Session, merge_type: str) -> None:
    dicts(session, f"CREATE DATABASE example_db; CREATE TABLE example_db.example_tbl {SEQUENCED}")
    text = ROUTINE_LOAD.replace("WITH APPEND", f"WITH {merge_type}")
    if merge_type == "MERGE":  # Doris: MERGE needs to know which rows delete
        text = text.replace('like "%doris%"', 'like "%doris%",\n    DELETE ON v1 = 1')
    dicts(session, text)
    (line,) = dicts(session, "SHOW ROUTINE LOAD FOR example_db.test1")
    assert (line["Name"], line["TableName"], line["DataSourceType"]) == ("test1", "example_tbl", "KAFKA")
    assert '"topic":"my_topic"' in line["DataSourceProperties"].replace(" ", "")
    assert "source_sequence" in line["JobProperties"]
