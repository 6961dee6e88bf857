"""Privileges that sessions check: of table functions, and of the administrator of one database."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from seqstore import AccessDeniedError, NotFoundError, Session, Store, StoreError
from seqstore.store.catalog.access.grants import PRIVILEGES
from seqstore.store.sql.evaluate import table_functions
from seqstore.store.sql.session import privileges
from seqstore.store.sql.session.statement_kind import all_kinds, kinds_by_class, parse
from tests.support.statements import run

pytestmark = pytest.mark.sql(
    """
    CREATE TABLE t (k INT NOT NULL, v INT NULL) UNIQUE KEY(k);
    INSERT INTO t VALUES (1, 1), (2, 2);
    CREATE DATABASE other;
    CREATE TABLE other.u (k INT NOT NULL, c STRING NULL) UNIQUE KEY(k);
    """
)
CALLS = {"table_changes": "table_changes('{}', 2)", "key_history": "key_history('{}', 1)"}
FORMS = {
    "query": "SELECT count(*) FROM {}",
    "subquery": "SELECT 1 WHERE EXISTS (SELECT * FROM {} x)",
    "join": "SELECT count(*) FROM {} x, other.u",
    "insert": "INSERT INTO other.u SELECT 1, 'x' FROM {} x",
    "create": "CREATE TABLE other.w UNIQUE KEY(k) AS SELECT 1 AS k, count(*) AS n FROM {} x",
    "explain": "EXPLAIN SELECT * FROM {} x",
}


def as_user(store: Store, name: str, database: str, *held: str) -> Session:
    """A session of a new user with some privileges on `db`, and all of another database."""
    store.accounts.create(name, "")
    store.accounts.grant(name, ["ALL"], "other")
    if held:
        store.accounts.grant(name, held, "db")
    return Session(store, database, user=name)


def test_no_table_function_is_left_out() -> None:
    """A new function is added to CALLS."""
    assert CALLS.keys() == table_functions._FUNCTIONS.keys()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("function", CALLS)
def test_a_table_function_needs_select_on_the_database_of_its_table(
    store: Store, function: str, form: str
) -> None:
    qualified, bare = (FORMS[form].format(CALLS[function].format(table)) for table in ("db.t", "t"))
    everything_else = [name for name in PRIVILEGES if name not in ("ADMIN", "SELECT")]
    with as_user(store, "ann", "other", *everything_else) as ann:
        for text, database in ((qualified, "other"), (qualified, "db"), (bare, "db")):
            ann.database = database
            with pytest.raises(AccessDeniedError, match="needs the SELECT privilege on database 'db'"):
                run(ann, text)
    with as_user(store, "bob", "other", "SELECT") as bob:
        run(bob, qualified)


@pytest.mark.parametrize(
    "text",
    [
        "GRANT SELECT_PRIV ON *.* TO bob",
        "GRANT ADMIN_PRIV ON *.* TO chief",
        "GRANT SELECT_PRIV ON other.* TO bob",
        "GRANT SELECT_PRIV ON db.* TO bob",
        "REVOKE SELECT_PRIV ON db.* FROM bob",
        "CREATE USER eve",
        "ALTER USER bob IDENTIFIED BY 'x'",
        "DROP USER bob",
        "SET PASSWORD FOR bob = 'x'",
        "SET PASSWORD FOR root = 'x'",
        "SET GLOBAL time_zone = '+01:00'",
        'ADMIN SET FRONTEND CONFIG ("enable_concurrent_update" = "true")',
    ],
)
def test_the_administrator_of_one_database_administers_no_other(store: Store, text: str) -> None:
    """ADMIN on `db` would otherwise be ADMIN on everything, by one GRANT."""
    as_user(store, "bob", "other", "SELECT").close()
    before = store.accounts.find("bob")
    with as_user(store, "chief", "db", "ADMIN") as chief:
        run(chief, "SELECT * FROM t; ALTER TABLE t ADD COLUMN w INT NULL")
        with pytest.raises(AccessDeniedError, match="needs the ADMIN privilege"):
            run(chief, text)
    assert store.accounts.find("bob") == before
    assert store.accounts.find("eve") is None
    store.accounts.log_in("root", "")


def test_every_statement_that_needs_admin_needs_it_on_all_databases(store: Store) -> None:
    as_user(store, "chief", "db", "ADMIN").close()
    asked: list[str] = []
    check: Callable[..., Any] = privileges.check
    for kind in all_kinds():
        for start in kind.starts:
            if privileges._needed(start, None) == "ADMIN":
                asked.append(start)
                with pytest.raises(AccessDeniedError):
                    check(store.accounts, "chief", start, None, "db")
    assert {"CREATE USER", "DROP USER", "CREATE ROLE", "DROP ROLE", "SHOW ROLES"} <= {*asked}


# Statements on the table db.t, by the privilege that they need on it.
ON_TABLE = {
    "SELECT": ["DESC t", "SHOW CREATE TABLE t", "DESC HISTORY t", "CREATE TABLE other.x LIKE t"],
    "LOAD": ["INSERT INTO t VALUES (9, 9)", "UPDATE t SET v = 1 WHERE k = 1", "DELETE FROM t WHERE k = 1",
             "REPLACE INTO t VALUES (1, 1)", "TRUNCATE TABLE t", "INSERT OVERWRITE TABLE t VALUES (1, 1)",
             "MERGE INTO t USING other.u ON t.k = u.k WHEN MATCHED THEN DELETE",
             "INSERT /*+ SET_VAR(query_timeout=1) */ INTO t VALUES (1, 1)",
             "LOAD LABEL l (DATA INFILE('x') INTO TABLE t)",
             "CREATE ROUTINE LOAD j ON t FROM FILES ('path' = 'x')"],
    "ALTER": ["ALTER TABLE t ADD COLUMN w INT", "ALTER TABLE t ADD CONSTRAINT c CHECK (k > 0)",
              "ALTER TABLE t ADD PARTITION p VALUES LESS THAN ('1')", "ALTER TABLE t DROP PARTITION p",
              "ALTER TABLE t DROP FEATURE f", "CANCEL ALTER TABLE COLUMN FROM t",
              "OPTIMIZE t", "VACUUM t", "REORG TABLE t APPLY (PURGE)",
              "RESTORE TABLE t TO VERSION 1", "ALTER VIEW t AS SELECT 1 AS x",
              "ALTER TABLE t RENAME t", "RENAME TABLE t TO t", "ALTER TABLE t DISABLE KEYS",
              "ALTER VIEW t MODIFY COMMENT 'x'", "ALTER TABLE t REPLACE WITH TABLE t"],
    "CREATE": ["CREATE TABLE t (k INT) UNIQUE KEY(k)", "CREATE VIEW t AS SELECT 1 AS x",
               "CREATE TABLE t UNIQUE KEY(k) AS SELECT 1 AS k", "CREATE TABLE t LIKE other.u"],
    "DROP": ["DROP TABLE t", "DROP TABLE t, db.t", "DROP VIEW t"],
    "SHOW_VIEW": ["SHOW CREATE VIEW t"],
}  # fmt: skip


@pytest.mark.parametrize("privilege", ON_TABLE)
def test_a_privilege_on_a_table_allows_its_statements_and_no_other_does(store: Store, privilege: str) -> None:
    """Each statement on db.t needs it on db.t or on db; other tables and privileges do not count."""
    everything_else = [name for name in PRIVILEGES if name not in ("ADMIN", privilege)]
    if privilege == "SHOW_VIEW":
        everything_else.remove("SELECT")  # SELECT includes it
    holders = {"on_table": ("db.t", [privilege]), "on_database": ("db", [privilege]),
               "on_all": ("*", [privilege]), "others": ("db.t", everything_else),
               "other_table": ("db.tt", [privilege]),
               "other_database": ("other.t", [privilege])}  # fmt: skip
    for user, (scope, held) in holders.items():
        store.accounts.create(user)
        store.accounts.grant(user, held, scope)
        store.accounts.grant(user, ["SELECT"], "other.u")
        store.accounts.grant(user, ["CREATE"], "other.x")
    for text in ON_TABLE[privilege]:
        statement = parse(text)[0]
        kind = kinds_by_class()[type(statement)]
        allowed = []
        for user in holders:
            with contextlib.suppress(AccessDeniedError):
                privileges.check(store.accounts, user, kind.starts[0], statement, "db")
                allowed.append(user)
        assert allowed == ["on_table", "on_database", "on_all"], text


def test_a_new_name_of_a_table_needs_alter_too(store: Store) -> None:
    """A user with SELECT on a free name gave it to a table, and read the table's rows."""
    store.accounts.create("alto")
    store.accounts.grant("alto", ["ALTER"], "db.t")
    store.accounts.grant("alto", ["SELECT"], "db.old")
    with Session(store, "db", user="alto") as alto:
        with pytest.raises(AccessDeniedError, match=r"needs the ALTER privilege on .*'old'"):
            run(alto, "ALTER TABLE t RENAME old")
        store.accounts.grant("alto", ["ALTER"], "db.old")
        run(alto, "ALTER TABLE t RENAME old")
    assert store.tables("db") == ["old"]


@pytest.mark.parametrize("text", ["DROP TABLE t, other.u", "DROP TABLE IF EXISTS t, other.u"])
def test_each_of_several_dropped_tables_needs_drop(store: Store, text: str) -> None:
    store.accounts.create("alto")
    store.accounts.grant("alto", ["DROP"], "db.t")
    with Session(store, "db", user="alto") as alto:
        with pytest.raises(AccessDeniedError, match=r"needs the DROP privilege on .*'other"):
            run(alto, text)
        assert store.tables("db") == ["t"]
        store.accounts.grant("alto", ["DROP"], "other.u")
        run(alto, text)
    assert store.tables("db") == store.tables("other") == []


@pytest.mark.parametrize(
    "text",
    [
        "DELETE t FROM t JOIN other.u ON t.k = u.k",
        "DELETE t FROM other.u JOIN t ON t.k = u.k",
        "DELETE FROM t USING t JOIN other.u ON t.k = u.k",
    ],
)
def test_a_delete_with_joins_needs_load_on_its_target_and_select_on_the_others(
    store: Store, text: str
) -> None:
    store.accounts.create("alto")
    store.accounts.grant("alto", ["SELECT"], "db.t")
    store.accounts.grant("alto", ["SELECT"], "other.u")
    with Session(store, "db", user="alto") as alto:
        with pytest.raises(AccessDeniedError, match=r"needs the LOAD privilege on .*'t'"):
            run(alto, text)
        store.accounts.grant("alto", ["LOAD"], "db.t")
        run(alto, text)
        store.accounts.revoke("alto", ["SELECT"], "other.u")
        with pytest.raises(AccessDeniedError, match=r"needs the SELECT privilege on .*'u'"):
            run(alto, text)


def test_what_a_user_may_not_see_is_unknown_to_it(store: Store) -> None:
    """The text is that of a name that does not exist."""
    with as_user(store, "ann", "other") as ann:
        for text in ("USE db", "SHOW TABLES FROM db", "SHOW INDEX FROM db.t", "USE none"):
            database = "none" if "none" in text else "db"
            with pytest.raises(NotFoundError, match=f"Unknown database '{database}'"):
                run(ann, text)
        assert [row[0] for row in run(ann, "SHOW TABLES FROM other")] == ["u"]
        assert run(ann, "SHOW TABLES FROM information_schema")


@pytest.mark.parametrize(
    ("privilege", "is_shown"),
    [("SELECT", True), ("SHOW_VIEW", True), ("LOAD", False), ("ALTER", False), ("DROP", False)],
)
def test_the_text_of_a_view_needs_select_or_show_view(store: Store, privilege: str, is_shown: bool) -> None:
    """information_schema.views told it to every user that sees the view."""
    with Session(store, "db") as root:
        run(root, "CREATE VIEW w AS SELECT k FROM other.u WHERE c = 'secret'")
    store.accounts.create("ann")
    store.accounts.grant("ann", [privilege], "db.w")
    with Session(store, "db", user="ann") as ann:
        [(name, text)] = run(ann, "SELECT TABLE_NAME, VIEW_DEFINITION FROM information_schema.views")
    assert name == "w"
    assert "secret" in text if is_shown else text == ""


def test_every_statement_that_names_a_table_is_in_the_list() -> None:
    """A new one is added to ON_TABLE, or to those that need any privilege on what they name."""
    seen_by_any = {"ShowColumns", "ShowIndex", "ShowPartitions"}
    named = {kind.statement.__name__ for kind in all_kinds() if _names_a_table(kind.statement)}
    listed = {type(parse(text)[0]).__name__ for texts in ON_TABLE.values() for text in texts}
    by_two = {"CreateTableFrom"}  # CREATE and LOAD, which its own tests ask for one by one
    assert named - listed == seen_by_any | by_two


def _names_a_table(statement: type) -> bool:
    return "table" in getattr(statement, "__dataclass_fields__", {}) or hasattr(statement, "table")


@pytest.mark.parametrize("function", CALLS)
def test_select_on_a_table_opens_it_in_every_form(store: Store, function: str) -> None:
    store.accounts.create("ann")
    store.accounts.grant("ann", ["ALL"], "other")
    store.accounts.grant("ann", ["SELECT"], "db.t")
    run(Session(store), "CREATE TABLE db.w (k INT NOT NULL, v INT NULL) UNIQUE KEY(k)")
    with Session(store, "other", user="ann") as ann:
        for form in FORMS.values():
            run(ann, form.format(CALLS[function].format("db.t")))
            run(ann, "DROP TABLE IF EXISTS other.w")
            for hidden in ("db.w", "db.absent"):
                with pytest.raises(AccessDeniedError, match="needs the SELECT privilege"):
                    run(ann, form.format(CALLS[function].format(hidden)))
        run(ann, "SELECT * FROM db.t; EXPLAIN SELECT * FROM db.t")
        with pytest.raises(AccessDeniedError, match="needs the SELECT privilege"):
            run(ann, "SELECT * FROM db.t JOIN db.w ON t.k = w.k")


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("GRANT SELECT_PRIV ON db.t TO bob", True),
        ("GRANT SELECT_PRIV, GRANT_PRIV ON internal.db.t TO ROLE r", True),
        ("GRANT LOAD_PRIV ON db.t TO bob", False),
        ("GRANT SELECT_PRIV ON db.u TO bob", False),
        ("GRANT SELECT_PRIV ON db.* TO bob", False),
        ("GRANT ADMIN_PRIV ON db.t TO bob", False),
        ("GRANT r TO bob", False),
        ("CREATE USER eve", False),
    ],
)
def test_grant_priv_passes_on_what_its_holder_holds(store: Store, text: str, is_allowed: bool) -> None:
    for name in ("ann", "bob"):
        store.accounts.create(name)
    store.accounts.roles.create("r")
    store.accounts.grant("ann", ["GRANT", "SELECT"], "db.t")
    with Session(store, user="ann") as ann:
        if is_allowed:
            run(ann, text)
            run(ann, text.replace("GRANT", "REVOKE", 1).replace(" TO ", " FROM "))
            return
        with pytest.raises(AccessDeniedError, match="needs the ADMIN privilege"):
            run(ann, text)
    bob = store.accounts.find("bob")
    assert bob is not None
    assert (bob.effective, store.accounts.find("eve")) == ({}, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("GRANT NODE_PRIV ON *.*.* TO ann", "'NODE_PRIV' cannot be granted: there are no nodes"),
        ("GRANT USAGE_PRIV ON db.* TO ann", "not granted on resources or workload groups"),
        ("GRANT USAGE_PRIV ON RESOURCE 'r' TO ann", "not granted on a RESOURCE"),
        ("GRANT FLY_PRIV ON db.* TO ann", "unknown privilege 'FLY_PRIV'; expected ADMIN_PRIV, ALTER_PRIV"),
        ("GRANT SELECT_PRIV(k) ON db.t TO ann", "not on columns; make a view"),
        ("GRANT SELECT_PRIV ON *.t TO ann", r"expected \*\.\*, db\.\* or db\.table"),
        ("GRANT SELECT_PRIV ON hive.db.t TO ann", "one catalog, internal, found hive"),
        ("GRANT SELECT_PRIV ON db.t TO 'ann'@'10.%'", "Unknown user 'ann'@'10.%'"),
        ("GRANT none TO ann", "Unknown role 'none'"),
        ("REVOKE SELECT_PRIV ON db.* FROM ann", r"holds no SELECT on db\.\*"),
        ("DROP ROLE admin", "built in"),
        ("SET DEFAULT ROLE r", "all roles of a user are always active"),
        ("CREATE USER 'eve'@'example.com'", "host names are not resolved"),
        ("CREATE USER 'eve'@['example.com']", "an address, a pattern or a network"),
    ],
)
def test_what_cannot_be_granted_is_refused_by_name(store: Store, text: str, message: str) -> None:
    store.accounts.create("ann")
    store.accounts.grant("ann", ["SELECT"], "db.t")
    with Session(store) as session, pytest.raises(StoreError, match=message):
        run(session, text)


def test_roles_are_made_given_shown_and_taken_by_statements(store: Store) -> None:
    with Session(store) as session:
        run(
            session,
            "CREATE ROLE r COMMENT 'one'; ALTER ROLE r COMMENT 'two'; CREATE USER ann DEFAULT ROLE 'r'",
        )
        run(session, "GRANT SELECT_PRIV, LOAD ON internal.db.t TO ROLE 'r'; GRANT ALL ON *.*.* TO ROLE r")
        run(session, "REVOKE ALL ON *.* FROM ROLE r; CREATE ROLE IF NOT EXISTS r")
        assert run(session, "SHOW ROLES")[1] == (
            "r",
            "two",
            "'ann'@'%'",
            None,
            None,
            "internal.db.t: Load_priv,Select_priv",
        )
        granted = "SELECT PRIVILEGE_TYPE FROM information_schema.table_privileges WHERE GRANTEE LIKE '%ann%'"
        assert run(session, granted) == [("LOAD",), ("SELECT",)]
        run(session, "REVOKE 'r' FROM 'ann'@'%'; DROP ROLE r; DROP ROLE IF EXISTS r")
        assert run(session, granted) == []


@pytest.mark.parametrize("name", ["auto_create", "Auto_Create", "auto_create ", "\tauto_create"])
@pytest.mark.parametrize(
    "text",
    [
        "LOAD LABEL l (DATA INFILE('x.csv') INTO TABLE made) PROPERTIES ('{}' = 'true')",
        "LOAD LABEL l (DATA INFILE('x.csv') INTO TABLE made PROPERTIES ('{}' = 'true'))",
        "CREATE ROUTINE LOAD j PROPERTIES ('{}' = 'true', 'format' = 'debezium_json')"
        " FROM FILES ('path' = 'x')",
    ],
)
def test_a_job_that_may_make_its_tables_needs_create(store: Store, text: str, name: str) -> None:
    """EV10; however the name is written."""
    with (
        as_user(store, "ann", "db", "LOAD", "SELECT") as ann,
        pytest.raises(AccessDeniedError, match="needs the CREATE privilege on database 'db'"),
    ):
        run(ann, text.format(name))
