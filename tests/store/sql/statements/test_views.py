"""Views: names that stand for queries."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import ConflictError, Session, Store, Table
from seqstore.store.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    StoreError,
)
from seqstore.store.read.store_snapshot import StoreSnapshot
from seqstore.store.sql.session.statement_kind import parse
from tests.support.statements import dicts, last_result, run

pytestmark = pytest.mark.sql(
    "CREATE TABLE t (k INT NOT NULL, s VARCHAR(20) NULL, d DATETIME(3) NULL) UNIQUE KEY (k);"
    "CREATE TABLE u (k INT NOT NULL, q INT NULL) UNIQUE KEY (k);"
    "INSERT INTO t VALUES (1, 'a', '2024-01-01'), (2, 'b', NULL), (3, 'c', NULL);"
    "INSERT INTO u VALUES (1, 10), (2, 20)"
)


def test_a_view_reads_its_tables_as_they_are_now(session: Session) -> None:
    run(session, "CREATE VIEW v AS SELECT k, upper(s) AS big FROM t WHERE k < 3")
    assert run(session, "SELECT * FROM v") == [(1, "A"), (2, "B")]
    run(session, "INSERT INTO t VALUES (0, 'z', NULL)")
    assert run(session, "SELECT big, k FROM v WHERE k < 2") == [("A", 1), ("Z", 0)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT v.k, db.v.big FROM db.v WHERE v.k = 1", [(1, "A")]),
        ("SELECT a.k AS x, a.* FROM v a JOIN v b ON a.k = b.k WHERE a.k = 2", [(2, 2, "B")]),
        ("SELECT u.q, v.big FROM u LEFT JOIN v ON v.k = u.k", [(10, "A"), (20, "B")]),
        ("SELECT count(*), max(big) FROM v", [(3, "C")]),
        ("WITH v AS (SELECT 7 AS k) SELECT * FROM v", [(7,)]),
        ("WITH t AS (SELECT 7 AS k) SELECT t.k AS x, v.k FROM t, v WHERE v.k = 1", [(7, 1)]),
        ("SELECT k FROM u WHERE k IN (SELECT k FROM v WHERE big > 'A')", [(2,)]),
        ("SELECT k FROM v UNION ALL SELECT k FROM u WHERE k = 1", [(1,), (1,), (2,), (3,)]),
        ("SELECT big, count(*) FROM v GROUP BY big HAVING big < 'C' ORDER BY big", [("A", 1), ("B", 1)]),
        ("SELECT `v`.`k` FROM `v` ORDER BY k DESC LIMIT 1", [(3,)]),
    ],
)
def test_a_view_stands_where_a_table_stands(session: Session, query: str, expected: list[object]) -> None:
    run(session, "CREATE VIEW v AS SELECT k, upper(s) AS big FROM t")
    assert run(session, query) == expected


@pytest.mark.parametrize(
    ("created", "query", "expected"),
    [
        ("CREATE VIEW v (a, b) AS SELECT k, s FROM t", "SELECT b FROM v WHERE a = 1", [("a",)]),
        ("CREATE VIEW v AS SELECT k + 1, count(*) FROM t GROUP BY k", "SELECT `k + 1` FROM v",
         [(2,), (3,), (4,)]),
        ("CREATE VIEW v AS WITH c AS (SELECT k FROM t) SELECT * FROM c", "SELECT k FROM v",
         [(1,), (2,), (3,)]),
        ("CREATE VIEW v AS SELECT k FROM t UNION SELECT q FROM u", "SELECT max(k) FROM v", [(20,)]),
        ("CREATE VIEW v AS (SELECT k FROM t ORDER BY k DESC LIMIT 1)", "SELECT k FROM v", [(3,)]),
        ("CREATE VIEW v AS SELECT 1 AS one, 'x' AS x", "SELECT * FROM v", [(1, "x")]),
        ("CREATE VIEW v AS SELECT * FROM t JOIN u USING (k)", "SELECT k, q, s FROM v",
         [(1, 10, "a"), (2, 20, "b")]),
        ("CREATE VIEW v AS SELECT t.* FROM t", "SELECT k, s FROM v WHERE k = 3", [(3, "c")]),
        ("CREATE VIEW v AS SELECT k AS `from` FROM `t`  -- all", "SELECT `from` FROM v WHERE `from` = 1",
         [(1,)]),
    ],
)  # fmt: skip
def test_any_query_can_be_a_view(session: Session, created: str, query: str, expected: list[object]) -> None:
    run(session, created)
    assert run(session, query) == expected
    text = dicts(session, "SHOW CREATE VIEW v")[0]["Create View"]
    run(session, "DROP VIEW v")
    run(session, text)
    assert run(session, query) == expected


def test_a_view_may_read_views(session: Session) -> None:
    run(session, "CREATE VIEW a AS SELECT k, s FROM t")
    run(session, "CREATE VIEW b (n, text) AS SELECT a.k, a.s FROM a JOIN u ON a.k = u.k")
    run(session, "CREATE VIEW c AS SELECT * FROM b WHERE n > (SELECT min(k) FROM a)")
    assert run(session, "SELECT * FROM c") == [(2, "b")]
    assert run(session, "DESC c") == [
        ("n", "INT", "Yes", "false", None, ""),
        ("text", "VARCHAR(20)", "Yes", "false", None, ""),
    ]


def test_a_view_may_read_earlier_versions(session: Session, store: Store) -> None:
    version = store.table("db.t").version
    run(
        session,
        f"CREATE VIEW v AS SELECT n.k, o.s FROM t n LEFT JOIN t FOR VERSION AS OF {version} o ON o.k = n.k",
    )
    run(session, "INSERT INTO t VALUES (1, 'new', NULL), (9, 'nine', NULL)")
    assert run(session, "SELECT * FROM v WHERE k IN (1, 9)") == [(1, "a"), (9, None)]
    changes = f"table_changes('db.t', {version + 1})"
    run(session, f"CREATE VIEW changed AS SELECT k, _change_type FROM {changes}")
    assert run(session, "SELECT * FROM changed WHERE k = 9") == [(9, "+I")]
    with pytest.raises(InvalidInputError, match=r"'db\.v' is a view: a version or a partition is named"):
        run(session, "SELECT * FROM v FOR VERSION AS OF 1")


def test_a_view_means_the_same_in_every_database(session: Session, store: Store) -> None:
    store.create_database("other")
    run(session, "CREATE VIEW other.v AS SELECT t.k FROM t")
    with Session(store, "other") as elsewhere:
        run(elsewhere, "CREATE TABLE t (k INT NOT NULL) UNIQUE KEY (k)")
        assert run(elsewhere, "SELECT * FROM v") == [(1,), (2,), (3,)]
        assert dicts(elsewhere, "SHOW CREATE TABLE v") == [
            {
                "View": "v",
                "Create View": "CREATE VIEW `v` AS SELECT t.k FROM `db`.t",
                "character_set_client": "utf8mb4",
                "collation_connection": "utf8mb4_0900_bin",
            }
        ]


def test_the_columns_of_a_view_are_fixed(session: Session) -> None:
    run(session, "CREATE VIEW v AS SELECT * FROM t")
    run(session, "ALTER TABLE t ADD COLUMN more INT NULL")
    assert dicts(session, "SELECT * FROM v WHERE k = 2") == [{"k": 2, "s": "b", "d": None}]
    assert [row[:3] for row in run(session, "DESC v")] == [
        ("d", "DATETIME(3)", "Yes"),
        ("k", "INT", "No"),
        ("s", "VARCHAR(20)", "Yes"),
    ]


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ("DROP TABLE t", r"Unknown table 'db\.t'"),
        ("ALTER TABLE t DROP COLUMN s", "s"),
        ("ALTER TABLE t RENAME COLUMN s r", "s"),
        ("DROP VIEW a", r"Unknown table 'db\.a'"),
    ],
)
def test_a_view_whose_table_has_changed_is_named(session: Session, change: str, missing: str) -> None:
    run(session, "CREATE VIEW a AS SELECT k, s FROM t; CREATE VIEW v AS SELECT * FROM a")
    run(session, change)
    with pytest.raises(
        InvalidInputError, match=rf"View 'db\.(a|v)' references invalid .*{missing}.*ALTER VIEW"
    ) as got:
        run(session, "SELECT k FROM v WHERE k = 1")
    assert got.value.kind == "invalid_view"
    run(session, "DESC v; SHOW CREATE VIEW v; SELECT * FROM information_schema.columns")


def test_an_error_of_the_statement_is_not_one_of_the_view(session: Session) -> None:
    run(session, "CREATE VIEW v AS SELECT k FROM t")
    with pytest.raises(InvalidInputError, match="nope") as got:
        run(session, "SELECT nope FROM v")
    assert got.value.kind == "unknown_column"


def test_a_view_cannot_read_itself(session: Session) -> None:
    run(session, "CREATE VIEW a AS SELECT k FROM t; CREATE VIEW b AS SELECT k FROM a")
    for statement in ("CREATE OR REPLACE VIEW a AS", "ALTER VIEW a AS"):
        for query in ("SELECT k FROM b", "SELECT k FROM a", "SELECT 1 AS k WHERE 1 IN (SELECT k FROM b)"):
            with pytest.raises(InvalidInputError, match=r"View 'db\.a' would read itself"):
                run(session, f"{statement} {query}")
    assert run(session, "SELECT * FROM b") == [(1,), (2,), (3,)]


def test_views_that_name_each_other_are_refused_when_read(session: Session, store: Store) -> None:
    """Two sessions may alter one view each at the same moment."""
    run(session, "CREATE VIEW a AS SELECT k FROM t; CREATE VIEW b AS SELECT k FROM a")
    other = store.views.require("db", "b")
    store.views.alter("db", type(other)("a", "SELECT k FROM `db`.b", other.columns))
    with pytest.raises(InvalidInputError, match=r"reads itself: db\.\w reads db\.\w reads db\.\w"):
        run(session, "SELECT * FROM b")


def test_views_that_multiply_are_refused(session: Session) -> None:
    run(session, "CREATE VIEW v0 AS SELECT k FROM t")
    joined = "CREATE VIEW v{0} AS SELECT a.k FROM v{1} a JOIN v{1} b ON a.k = b.k"
    for number in range(1, 7):
        run(session, joined.format(number, number - 1))
    with pytest.raises(InvalidInputError, match="more than 256 views"):
        run(session, "SELECT a.k FROM v6 a JOIN v6 b ON a.k = b.k JOIN v6 c ON a.k = c.k")


def test_create_alter_and_drop(session: Session) -> None:
    run(session, "CREATE VIEW v COMMENT 'one' AS SELECT k FROM t")
    with pytest.raises(AlreadyExistsError, match="Table 'v' already exists"):
        run(session, "CREATE VIEW v AS SELECT 2 AS k")
    run(session, "CREATE VIEW IF NOT EXISTS v AS SELECT 2 AS k")
    assert run(session, "SELECT count(*) FROM v") == [(3,)]
    run(session, "CREATE OR REPLACE VIEW v AS SELECT 2 AS k")
    assert run(session, "SELECT * FROM v") == [(2,)]
    run(session, "ALTER VIEW v (a COMMENT 'first', b) COMMENT 'two' AS SELECT k, s FROM t")
    run(session, "ALTER VIEW v MODIFY COMMENT 'it''s'")
    assert dicts(session, "SHOW CREATE VIEW v")[0]["Create View"] == (
        'CREATE VIEW `v` (`a` COMMENT "first", `b`) COMMENT "it\'s" AS SELECT k, s FROM `db`.t'
    )
    assert [row["Comment"] for row in dicts(session, "SHOW FULL COLUMNS FROM v")] == ["first", ""]
    run(session, "DROP VIEW v; DROP VIEW IF EXISTS v")
    for statement in ("DROP VIEW v", "ALTER VIEW v AS SELECT 1 AS k", "SHOW CREATE VIEW v"):
        with pytest.raises(NotFoundError, match=r"Unknown view 'db\.v'"):
            run(session, statement)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE VIEW v (a) AS SELECT k, s FROM t", "expected 2 column names"),
        ("CREATE VIEW v AS SELECT k, s AS k FROM t", "Duplicate column name 'k'"),
        ("CREATE VIEW v (a, A) AS SELECT k, s FROM t", "Duplicate column name 'a'"),
        ("CREATE VIEW v AS SELECT k FROM nowhere", r"Unknown table 'db\.nowhere'"),
        ("CREATE VIEW v AS SELECT nope FROM t", "nope"),
        ("CREATE VIEW v AS SELECT @x AS x", "contains a variable or parameter"),
        ("CREATE VIEW v AS SELECT @@autocommit AS x", "contains a variable or parameter"),
        ("CREATE VIEW v AS SELECT k FROM table_changes('t', 1)", r"'db\.t'"),
        ("CREATE VIEW v AS INSERT INTO t VALUES (1)", "expected a query"),
        ("CREATE VIEW information_schema.v AS SELECT 1 AS k", "holds no views"),
        ("CREATE VIEW nowhere.v AS SELECT 1 AS k", "Unknown database"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "materialized views"),
    ],
)
def test_a_view_that_cannot_be_is_refused(session: Session, statement: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        run(session, statement)
    assert run(session, "SHOW VIEWS") == []


def test_views_and_tables_share_their_names(session: Session, store: Store) -> None:
    run(session, "CREATE VIEW v AS SELECT k FROM t")
    for statement in (
        "CREATE TABLE v (k INT) UNIQUE KEY (k)",
        "CREATE TABLE v LIKE t",
        "CREATE VIEW t AS SELECT 1 AS k",
        "CREATE OR REPLACE VIEW t AS SELECT 1 AS k",
        "CREATE VIEW IF NOT EXISTS t AS SELECT 1 AS k",
    ):
        with pytest.raises(AlreadyExistsError, match=r"already exists: it is a (table|view)"):
            run(session, statement)
    with pytest.raises(InvalidInputError, match=r"'db\.t' is not VIEW"):
        run(session, "DROP VIEW IF EXISTS t")
    assert run(session, "SHOW TABLES") == [("t",), ("u",), ("v",)]
    assert run(session, "SHOW FULL TABLES LIKE 'v'") == [("v", "VIEW")]
    assert run(session, "SHOW VIEWS FROM db LIKE 'V%'") == [("v",)]
    assert store.tables("db") == ["t", "u"]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO v VALUES (1)",
        "INSERT INTO v SELECT k FROM t",
        "INSERT OVERWRITE TABLE v VALUES (1)",
        "REPLACE INTO v VALUES (1)",
        "INSERT IGNORE INTO v VALUES (1)",
        "UPDATE v SET k = 1 WHERE k = 2",
        "DELETE FROM v WHERE k = 1",
        "MERGE INTO v USING t ON v.k = t.k WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE v",
        "DROP TABLE v",
        "DROP TABLE IF EXISTS v",
        "ALTER TABLE v ADD COLUMN x INT",
        "OPTIMIZE v",
        "EXPLAIN INSERT INTO v VALUES (1)",
        "SELECT * FROM table_changes('db.v', 1)",
    ],
)
def test_a_view_is_not_written(session: Session, statement: str) -> None:
    run(session, "CREATE VIEW v AS SELECT k FROM t")
    with pytest.raises(InvalidInputError, match=r"'db\.v' is not BASE TABLE: it is a view") as got:
        run(session, statement)
    assert got.value.kind == "is_view"


def test_statements_that_write_read_views(session: Session) -> None:
    run(session, "CREATE VIEW v AS SELECT k, q + 1 AS q FROM u")
    run(session, "INSERT INTO u SELECT k + 10, q FROM v")
    run(session, "UPDATE u SET q = v.q FROM v WHERE u.k = v.k AND u.k = 1")
    run(session, "DELETE FROM u USING v WHERE u.k = v.k AND v.q = 21")
    run(session, "MERGE INTO u USING v ON u.k = v.k WHEN MATCHED THEN UPDATE SET q = v.q")
    assert run(session, "SELECT * FROM u") == [(1, 12), (11, 12), (12, 22)]


def test_information_schema_lists_views(session: Session) -> None:
    run(session, "CREATE VIEW v COMMENT 'some' AS SELECT k, s FROM t")
    assert run(session, "SELECT table_schema, table_name, view_definition FROM information_schema.views") == [
        ("db", "v", "SELECT k, s FROM `db`.t")
    ]
    types = "SELECT table_name, table_type, table_comment FROM information_schema.tables"
    assert run(session, f"{types} WHERE table_schema = 'db'") == [
        ("t", "BASE TABLE", ""),
        ("u", "BASE TABLE", ""),
        ("v", "VIEW", "some"),
    ]
    columns = "SELECT column_name, column_type FROM information_schema.columns WHERE table_name = 'v'"
    assert run(session, columns) == [("k", "int"), ("s", "varchar(20)")]


def test_views_go_with_their_database(session: Session, store: Store) -> None:
    run(session, "CREATE DATABASE gone; CREATE VIEW gone.v AS SELECT k FROM t; DROP DATABASE gone")
    run(session, "CREATE DATABASE gone")
    assert run(session, "SHOW TABLES FROM gone") == []
    with store.catalog.read() as tx:
        assert list(tx.items("views")) == []


def test_select_on_the_database_of_a_view_is_enough(store: Store, session: Session) -> None:
    """As in Doris: the privilege on the view counts, not those on what its query names."""
    run(session, "CREATE DATABASE shown; CREATE USER ann IDENTIFIED BY ''")
    run(session, "GRANT SELECT_PRIV, ALTER_PRIV ON shown.* TO ann")
    run(session, "CREATE VIEW inner_view AS SELECT k FROM t; CREATE VIEW shown.v AS SELECT k FROM inner_view")
    with Session(store, "shown", user="ann") as ann:
        assert run(ann, "SELECT * FROM v") == [(1,), (2,), (3,)]
        for statement in (
            "SELECT * FROM db.inner_view",
            "SELECT v.k FROM v JOIN db.t ON t.k = v.k",
            "CREATE VIEW w AS SELECT k FROM db.t",
            "ALTER VIEW v AS SELECT k FROM db.t",
            "CREATE VIEW db.w AS SELECT 1 AS k",
            "DROP VIEW db.inner_view",
            "SHOW CREATE VIEW db.inner_view",
            "DESC db.inner_view",
        ):
            with pytest.raises(AccessDeniedError):
                run(ann, statement)
        assert run(ann, "SELECT table_name FROM information_schema.views") == [("v",)]


def test_views_outlast_the_store(store: Store, session: Session) -> None:
    run(session, "CREATE VIEW v AS SELECT k FROM t")
    with Store.open(store.path) as again, Session(again, "db") as other:
        assert run(other, "SELECT * FROM v") == [(1,), (2,), (3,)]


def test_explain_names_the_tables_of_a_view(session: Session) -> None:
    run(session, "CREATE VIEW v AS SELECT k FROM t WHERE k = 1")
    lines = [row["Explain String"] for row in dicts(session, "EXPLAIN SELECT * FROM v")]
    assert any(line.startswith("SCAN db.t VERSION") for line in lines), lines
    assert last_result(session, "SELECT * FROM v").rows is not None


def test_an_insert_that_reads_its_table_by_a_view_is_one_transaction(session: Session, store: Store) -> None:
    """It runs like MERGE, so that it undoes no concurrent write; the view hid the table it reads."""
    run(session, "CREATE VIEW a AS SELECT k, q FROM u; CREATE VIEW v AS SELECT k, q FROM a")
    assert session.tables_of(parse("SELECT 1 FROM v, t")[0].tree) == {"db.u", "db.t"}
    infos = []
    for source in ("u", "v", "t"):
        run(session, f"INSERT INTO u SELECT k, {'1' if source == 't' else 'q'} FROM {source}")
        infos.append({*store.table("db.u").history()[-1].commit_info})
    assert infos[0] == infos[1] != infos[2]


def test_a_table_made_of_a_query_keeps_declared_types(session: Session) -> None:
    """CREATE TABLE .. AS, of tables and of views; a computed column has the type of its values."""
    run(session, "CREATE VIEW v (a, b, c) AS SELECT k, s, d FROM t")
    for source in (
        "SELECT k AS a, s AS b, d AS c FROM t",
        "SELECT * FROM v",
        "SELECT v.* FROM v JOIN u ON k = a",
    ):
        run(session, f"CREATE TABLE made UNIQUE KEY (a) AS {source}")
        types = [row[:2] for row in run(session, "DESC made")]
        assert types == [("a", "INT"), ("b", "VARCHAR(20)"), ("c", "DATETIME(3)")]
        run(session, "DROP TABLE made")
    run(session, "CREATE TABLE made UNIQUE KEY (b) AS SELECT upper(s) AS b, k FROM t")
    assert run(session, "DESC made")[0][:2] == ("b", "VARCHAR(65533)")


def test_the_tables_of_a_view_are_read_as_of_one_moment(
    session: Session, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit to both tables between the openings of the two must not be seen in one of them only."""
    run(session, "CREATE VIEW v AS SELECT t.k, u.q FROM t JOIN u ON t.k = u.k")
    opened = StoreSnapshot.of

    def write_in_between(moment: StoreSnapshot, table: Table) -> object:
        found = opened(moment, table)
        with store.transaction() as transaction:
            transaction.table("db.t").upsert(pa.table({"k": [9]}))
            transaction.table("db.u").upsert(pa.table({"k": [9], "q": [9]}))
            transaction.commit()
        return found

    monkeypatch.setattr(StoreSnapshot, "of", write_in_between)
    assert run(session, "SELECT * FROM v") == [(1, 10), (2, 20)]
    monkeypatch.undo()
    assert run(session, "SELECT * FROM v") == [(1, 10), (2, 20), (9, 9)]


@pytest.mark.parametrize("source", ["(SELECT * FROM u WHERE q = 10) v", "v"])
def test_a_merge_that_reads_its_target_by_a_view_conflicts_as_without(
    session: Session, store: Store, source: str
) -> None:
    """A row that enters the source meanwhile is a conflict; the view hid that the source reads the target."""
    run(session, "ALTER TABLE u ADD COLUMN w INT NULL; CREATE VIEW v AS SELECT k, q FROM u WHERE q = 10")
    run(session, "ADMIN SET FRONTEND CONFIG ('enable_concurrent_update' = 'true'); BEGIN")
    run(session, f"MERGE INTO u USING {source} ON u.k = v.k WHEN NOT MATCHED BY SOURCE THEN UPDATE SET w = 0")
    store.table("db.u").update({"q": 10}, pc.field("k") == 2, concurrency="unchecked")
    with pytest.raises(ConflictError):
        run(session, "COMMIT")
