"""JDBC drivers as clients: Connector/J 9 and 5.1, and MariaDB's driver, in one JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bench.kafka.jars import JarsUnreachableError
from seqstore.cli.mysql import MysqlServer
from tests.support.clients.jdbc import DRIVERS, Drivers, driver_jar, drivers, rows

pytestmark = pytest.mark.spark  # for py4j and the jars, which come with what Spark needs
INFORMATION: dict[str, str] = {"useInformationSchema": "true"}
PREPARED = {"useServerPrepStmts": "true", "rewriteBatchedStatements": "true", "cachePrepStmts": "true",
            "useCursorFetch": "true"}  # fmt: skip
EVERY_KIND = (
    "CREATE TABLE kinds (k1 INT NOT NULL, k2 VARCHAR(20) NOT NULL, ti TINYINT, si SMALLINT, bi BIGINT,"
    " li LARGEINT, f FLOAT, d DOUBLE, n DECIMAL(27,9), b BOOLEAN, c CHAR(5), v VARCHAR(30), s STRING,"
    " dd DATE, ts DATETIME, ts6 DATETIME(6), j JSON, a ARRAY<INT>,"
    " df INT NOT NULL DEFAULT '7' COMMENT 'a comment')"
    " UNIQUE KEY(k1, k2) COMMENT 'every kind' DISTRIBUTED BY HASH(k1) BUCKETS 1"
)
CALLS: list[tuple[Any, ...]] = [
    ("getCatalogs",), ("getSchemas",), ("getTableTypes",), ("getTypeInfo",), ("getClientInfoProperties",),
    ("getTables", None, "%", None), ("getColumns", None, "kinds", "%"), ("getPrimaryKeys", None, "kinds"),
    ("getIndexInfo", None, "kinds", False, False), ("getImportedKeys", None, "t"),
    ("getExportedKeys", None, "t"), ("getBestRowIdentifier", None, "t", 0, True),
    ("getVersionColumns", None, "t"), ("getProcedures", None, "%"), ("getProcedureColumns", None, "%", "%"),
    ("getFunctions", None, "%"), ("getFunctionColumns", None, "%", "%"), ("getUDTs", None, "%", None),
    ("getSuperTables", None, "%"), ("getPseudoColumns", None, "t", "%"),
]  # fmt: skip


@pytest.fixture(scope="module")
def jvm() -> Iterator[Drivers]:
    try:
        driver_jar("mariadb")
    except JarsUnreachableError as error:
        pytest.skip(str(error))
    with drivers() as started:
        yield started


@pytest.fixture(params=[(name, mode) for name in DRIVERS for mode in ("plain", "information", "prepared")],
                ids="-".join)  # fmt: skip
def link(request: pytest.FixtureRequest, jvm: Drivers, server: MysqlServer) -> Iterator[Any]:
    """A connection of each driver in each mode."""
    name, mode = request.param
    options = {"plain": {}, "information": INFORMATION, "prepared": PREPARED}[mode]
    made = jvm.connect(name, server.port, **options)
    made.createStatement().execute(EVERY_KIND)
    yield made
    made.close()


def ask(link: Any, text: str) -> list[tuple[str | None, ...]]:
    return [tuple(row.values()) for row in rows(link.createStatement().executeQuery(text))]


def number_of(error: Any) -> tuple[int, str]:
    return error.java_exception.getErrorCode(), error.java_exception.getSQLState()


@pytest.mark.family(4)
def test_every_metadata_call_answers(link: Any, jvm: Drivers) -> None:
    """Those of useInformationSchema failed on HAVING, COLLATE and ROUTINE_COMMENT."""
    about = link.getMetaData()
    found = {}
    for call in CALLS:
        arguments = ("db", *call[1:]) if len(call) > 1 else ()
        found[call[0]] = rows(getattr(about, call[0])(*arguments))
    tables = {row["TABLE_NAME"]: row["TABLE_TYPE"] for row in found["getTables"]}
    assert set(tables) == {"kinds", "t"}
    assert {row["TABLE_CAT"] for row in found["getCatalogs"]} == {"db", "information_schema"}
    assert [(row["TABLE_NAME"], row["COLUMN_NAME"], row["KEY_SEQ"]) for row in found["getPrimaryKeys"]] == [
        ("kinds", "k1", "1"), ("kinds", "k2", "2")]  # fmt: skip
    assert {(row["TABLE_NAME"], row["COLUMN_NAME"]) for row in found["getIndexInfo"]} == {
        ("kinds", "k1"), ("kinds", "k2")}  # fmt: skip
    columns = {row["COLUMN_NAME"]: row for row in found["getColumns"]}
    assert len(columns) == 19
    assert (columns["k2"]["COLUMN_SIZE"], columns["k2"]["IS_NULLABLE"]) == ("20", "NO")
    assert (columns["n"]["COLUMN_SIZE"], columns["n"]["DECIMAL_DIGITS"]) == ("27", "9")
    assert (columns["df"]["COLUMN_DEF"] or "").strip("'") == "7"
    assert columns["df"]["REMARKS"] == "a comment"
    kinds = rows(about.getTables("db", None, "%", jvm.strings("VIEW")))
    assert kinds == []
    assert len(rows(about.getTables("db", None, "t%", jvm.strings("TABLE", "BASE TABLE")))) == 1
    assert about.isReadOnly() is False
    assert about.supportsTransactions() is True


def test_generated_keys_are_returned(link: Any, jvm: Drivers) -> None:
    """They were 0: the OK packet named no key."""
    java = jvm.gateway.jvm.java
    link.createStatement().execute("CREATE TABLE ids (id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT)")
    several = link.createStatement()
    wants = java.sql.Statement.RETURN_GENERATED_KEYS
    assert several.executeUpdate("INSERT INTO ids (v) VALUES (1), (2), (3)", wants) == 3
    first = [list(row.values()) for row in rows(several.getGeneratedKeys())]
    assert [ids[0] for ids in ask(link, "SELECT id FROM ids ORDER BY v")][:1] == first[0]
    one = link.prepareStatement("INSERT INTO ids (v) VALUES (?)", wants)
    for number in (4, 5, 6):
        one.setInt(1, number)
        one.addBatch()
    one.executeBatch()
    made = [next(iter(row.values())) for row in rows(one.getGeneratedKeys())]
    assert [(key,) for key in made] == ask(link, "SELECT id FROM ids WHERE v > 3 ORDER BY v")
    assert ask(link, "SELECT count(*), LAST_INSERT_ID() > 3 FROM ids") == [("6", "1")]


def test_rows_of_a_result_set_are_changed_in_place(link: Any, jvm: Drivers) -> None:
    """No driver found the table and the key of a column, so a result was read only."""
    kind = jvm.gateway.jvm.java.sql.ResultSet
    link.createStatement().execute("INSERT INTO t (k, v) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    statement = link.createStatement(kind.TYPE_SCROLL_INSENSITIVE, kind.CONCUR_UPDATABLE)
    found = statement.executeQuery("SELECT k, v FROM t WHERE k <= 3 ORDER BY k")
    assert found.getConcurrency() == kind.CONCUR_UPDATABLE
    found.absolute(2)
    found.updateString("v", "changed")
    found.updateRow()
    found.absolute(3)
    found.deleteRow()
    found.moveToInsertRow()
    found.updateInt("k", 9)
    found.updateString("v", "new")
    found.insertRow()
    found.close()
    assert ask(link, "SELECT k, v FROM t ORDER BY k") == [("1", "a"), ("2", "changed"), ("9", "new")]


def test_a_column_tells_its_table(link: Any) -> None:
    answer = link.createStatement().executeQuery(
        "SELECT a.k, b.k AS other, a.v, 1 AS one FROM t AS a JOIN db.t AS b ON a.k = b.k"
    )
    about = answer.getMetaData()
    assert [about.getTableName(i) for i in (1, 2, 3)] == ["t"] * 3
    assert [about.getColumnLabel(i) for i in (1, 2, 3, 4)] == ["k", "other", "v", "one"]
    assert about.getCatalogName(1) == "db"
    answer.close()


def test_transactions_and_modes(link: Any) -> None:
    link.setAutoCommit(False)
    statement = link.createStatement()
    assert statement.executeUpdate("INSERT INTO t (k, v) VALUES (100, 'x')") == 1
    assert ask(link, "SELECT v FROM t WHERE k = 100") == [("x",)]
    link.rollback()
    assert ask(link, "SELECT v FROM t WHERE k = 100") == []
    link.commit()
    link.setAutoCommit(True)
    for level in (1, 2, 4, 8):
        link.setTransactionIsolation(level)
        assert link.getTransactionIsolation() == level
    assert link.isReadOnly() is False
    link.setReadOnly(True)
    if "mariadb" not in link.getClass().getName():  # MariaDB's driver keeps the mode to itself
        with pytest.raises(Exception, match=r"(?i)read.only"):
            link.createStatement().executeUpdate("INSERT INTO t (k) VALUES (101)")
    link.setReadOnly(False)
    assert link.isValid(30)
    assert link.getCatalog() == "db"


def test_batches_write_values_of_every_type(link: Any, jvm: Drivers) -> None:
    java = jvm.gateway.jvm.java
    write = link.prepareStatement(
        "INSERT INTO kinds (k1, k2, ti, bi, d, n, b, v, dd, ts, ts6) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    moment = java.sql.Timestamp.valueOf("2024-02-03 04:05:06.0")
    for number in range(5):
        write.setInt(1, number)
        write.setString(2, "it's \\ ünï")
        write.setInt(3, -number)
        write.setLong(4, 1 << 40)
        write.setDouble(5, 1.5)
        write.setBigDecimal(6, java.math.BigDecimal("-0.5"))
        write.setBoolean(7, True)
        write.setNull(8, 12)
        write.setDate(9, java.sql.Date.valueOf("2024-02-03"))
        write.setTimestamp(10, moment)
        write.setObject(11, java.time.LocalDateTime.parse("2024-02-03T04:05:06.789123"))
        write.addBatch()
    assert len(list(write.executeBatch())) == 5
    read = link.prepareStatement("SELECT * FROM kinds WHERE k1 >= ? AND k2 = ? ORDER BY k1")
    read.setInt(1, 4)
    read.setString(2, "it's \\ ünï")
    read.setFetchSize(2)
    (row,) = rows(read.executeQuery())
    assert row["ti"] == "-4"
    assert row["bi"] == str(1 << 40)
    assert (row["n"], row["v"], row["dd"]) == ("-0.500000000", None, "2024-02-03")
    assert (row["ts"] or "").startswith("2024-02-03 04:05:06")
    assert row["ts6"] == "2024-02-03 04:05:06.789123"
    assert row["df"] == "7"
    several = link.createStatement()
    for text in ("UPDATE kinds SET v = 'y' WHERE k1 > 2", "DELETE FROM kinds WHERE k1 = 0"):
        several.addBatch(text)
    assert list(several.executeBatch()) == [2, 1]


def test_values_of_every_type_are_read(link: Any) -> None:
    values = (
        "1, 'a', -128, -32768, -9223372036854775808, 170141183460469231731687303715884105727, 1.5, 2.5,"
        " 123.456, true, 'c', 'v', 's', '2024-01-02', '2024-01-02 03:04:05', '2024-01-02 03:04:05.678901',"
        " '{\"a\":1}', [1,2], 8"
    )
    link.createStatement().executeUpdate(f"INSERT INTO kinds VALUES ({values})")
    answer = link.prepareStatement("SELECT * FROM kinds").executeQuery()
    assert answer.next()
    assert answer.getInt("ti") == -128
    assert answer.getLong("bi") == -(1 << 63)
    assert str(answer.getBigDecimal("li")) == str(2**127 - 1)
    assert answer.getDouble("f") == 1.5
    assert str(answer.getBigDecimal("n")) == "123.456000000"
    assert answer.getBoolean("b") is True
    assert answer.getString("c") == "c"
    assert answer.getDate("dd").toString() == "2024-01-02"
    assert answer.getTimestamp("ts6").toString() == "2024-01-02 03:04:05.678901"
    assert answer.getString("a") == "[1,2]"
    answer.close()


def test_errors_have_numbers_and_states(link: Any) -> None:
    from py4j.protocol import Py4JJavaError

    for text, expected in (
        ("SELECT * FROM nowhere", (1146, "42S02")),
        ("SELECT nothing FROM t", (1054, "42S22")),
        ("CREATE TABLE t (k INT) UNIQUE KEY(k)", (1050, "42S01")),
    ):
        with pytest.raises(Py4JJavaError) as caught:
            link.createStatement().execute(text)
        assert number_of(caught.value) == expected
