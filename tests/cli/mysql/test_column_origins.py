"""The table, the name and the flags that the MySQL server sends with each column of an answer."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest

from tests.cli.mysql_client import ask

KEY, NOT_NULL, GENERATED = 0x4002, 0x1, 0x200
_TABLES = (
    "CREATE TABLE a (k INT NOT NULL, v INT) UNIQUE KEY(k)",
    "CREATE TABLE b (k INT, w VARCHAR(9)) UNIQUE KEY(k)",
    "CREATE TABLE g (id BIGINT NOT NULL AUTO_INCREMENT, w INT) UNIQUE KEY(id)",
    "CREATE TABLE log (k INT, v INT) DUPLICATE KEY(k)",
    "CREATE VIEW seen AS SELECT k, w AS text FROM b",
    "CREATE DATABASE other",
    "CREATE VIEW other.seen AS SELECT k FROM db.b",
    "CREATE TABLE other.a (k INT, z INT) UNIQUE KEY(k)",
    "INSERT INTO a VALUES (1, 2)",
    "INSERT INTO b VALUES (1, 'x')",
)
A_K, A_V = ("db", "a", "a", "k", KEY | NOT_NULL), ("db", "a", "a", "v", 0)
B_K, B_W = ("db", "b", "b", "k", KEY), ("db", "b", "b", "w", 0)
JOINED_K = ("db", "a", "a", "k", KEY)  # an outer join may make it NULL
NONE = ("", "", "", "", 0)


@pytest.fixture
def cursor(connect: Any) -> Any:
    connection = connect()
    for text in _TABLES:
        ask(connection, text)
    return connection.cursor()


def origins(cursor: Any, text: str) -> list[tuple[str, str, str, str, int]]:
    """Database, alias, table, column and flags; a computed column has its heading as its name."""
    cursor.execute(text)
    found = []
    for field in cursor._result.fields:
        own = field.org_name if field.table_name else ""
        flags = field.flags & (KEY | NOT_NULL | GENERATED)
        found.append((field.db.decode(), field.table_name, field.org_table, own, flags))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM a", [A_K, A_V]),
        ("SELECT v AS x, k, v + 1, 1 FROM a", [A_V, A_K, NONE, NONE]),
        ("SELECT k FROM a WHERE k = 1", [A_K]),
        ("SELECT * FROM a WHERE k >= 1 ORDER BY k LIMIT 3", [A_K, A_V]),
        ("(SELECT k FROM a)", [A_K]),
        ("SELECT x.k FROM a AS x", [("db", "x", "a", "k", KEY | NOT_NULL)]),
        ("SELECT a.k, b.k, w FROM a JOIN b ON a.k = b.k", [JOINED_K, B_K, B_W]),
        ("SELECT * FROM a, b", [JOINED_K, A_V, B_K, B_W]),
        ("SELECT b.*, a.v FROM a LEFT JOIN b USING (k)", [B_K, B_W, A_V]),
        ("SELECT * FROM a JOIN b USING (k)", [NONE] * 3),
        ("SELECT * FROM other.a", [("other", "a", "a", "k", KEY), ("other", "a", "a", "z", 0)]),
        ("SELECT * FROM g", [("db", "g", "g", "id", KEY | NOT_NULL | GENERATED), ("db", "g", "g", "w", 0)]),
        ("SELECT * FROM log", [("db", "log", "log", "k", 0), ("db", "log", "log", "v", 0)]),
        ("SELECT * FROM seen", [("db", "seen", "seen", "k", 0), ("db", "seen", "seen", "text", 0)]),
        ("SELECT q.n FROM (SELECT k AS n FROM a) AS q", [("", "q", "", "", 0)]),
        ("WITH c AS (SELECT v AS k FROM a) SELECT c.k FROM c", [("", "c", "", "", 0)]),
        ("SELECT k FROM a UNION SELECT k FROM b", [NONE]),
        ("SELECT count(*), max(k) FROM a", [NONE, NONE]),
        ("SELECT 1", [NONE]),
        ("SELECT * REPLACE (k + 100 AS k) FROM a", [NONE, NONE]),
        ("SELECT * EXCEPT (v) FROM a", [NONE]),
        ("SELECT k, count(*) FROM a GROUP BY k WITH ROLLUP", [JOINED_K, NONE]),
        ("SELECT k FROM a GROUP BY GROUPING SETS ((k), (v))", [JOINED_K]),
        ("SELECT k FROM seen AS a", [("db", "a", "seen", "k", 0)]),
        ("SELECT k FROM other.seen", [("other", "seen", "seen", "k", 0)]),
        ("SELECT k FROM a FOR VERSION AS OF 1", [("db", "a", "a", "k", NOT_NULL)]),
    ],
)
def test_a_column_has_the_table_that_it_comes_from(cursor: Any, text: str, expected: list[Any]) -> None:
    for _ in range(3):  # the second and the third time by what is known of the text
        assert origins(cursor, text) == expected


def test_a_changed_table_or_view_has_its_own_columns(cursor: Any) -> None:
    assert origins(cursor, "SELECT * FROM seen")[1][3] == "text"
    cursor.execute("CREATE OR REPLACE VIEW seen AS SELECT k, w AS word FROM b")
    assert origins(cursor, "SELECT * FROM seen")[1][3] == "word"
    assert origins(cursor, "SELECT * FROM a") == [A_K, A_V]
    cursor.execute("ALTER TABLE a ADD COLUMN n INT AFTER k")
    assert [column[3] for column in origins(cursor, "SELECT * FROM a")] == ["k", "n", "v"]
    cursor.execute("USE other")
    assert origins(cursor, "SELECT * FROM a")[1] == ("other", "a", "a", "z", 0)


def test_rows_as_dicts_keep_both_columns_of_a_name(cursor: Any, connect: Any) -> None:
    """The second one was called `.k`."""
    ask(cursor.connection, "COMMIT")
    dicts = connect(cursorclass=pymysql.cursors.DictCursor).cursor()
    dicts.execute("SELECT a.k, b.k FROM a JOIN b ON a.k = b.k")
    assert dicts.fetchall() == [{"k": 1, "b.k": 1}]


def test_the_list_of_fields_has_them_too(cursor: Any) -> None:
    connection = cursor.connection
    connection._execute_command(4, b"a\0")
    packets = [connection._read_packet(pymysql.protocol.FieldDescriptorPacket) for _ in range(2)]
    assert [(each.org_table, each.org_name, each.flags & (KEY | NOT_NULL)) for each in packets] == [
        ("a", "k", KEY | NOT_NULL), ("a", "v", 0)]  # fmt: skip
    assert connection._read_packet().is_eof_packet()


def test_a_prepared_query_has_them_before_it_runs(cursor: Any) -> None:
    connection = cursor.connection
    connection._execute_command(0x16, b"SELECT k, v + ? FROM a WHERE k = ?")
    prepared = connection._read_packet()
    assert prepared.get_all_data()[:1] == b"\0"
    for _ in range(2):
        connection._read_packet()  # a parameter
    assert connection._read_packet().is_eof_packet()
    packets = [connection._read_packet(pymysql.protocol.FieldDescriptorPacket) for _ in range(2)]
    assert [(each.table_name, each.org_table, each.flags & (KEY | NOT_NULL)) for each in packets] == [
        ("a", "a", KEY | NOT_NULL), ("", "", 0)]  # fmt: skip
    assert connection._read_packet().is_eof_packet()
