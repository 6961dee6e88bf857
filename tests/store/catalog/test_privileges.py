"""Privileges that sessions check: of table functions, and of the administrator of one database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seqstore import AccessDeniedError, Session, Store
from seqstore.store.catalog.accounts import PRIVILEGES
from seqstore.store.sql.evaluate import table_functions
from seqstore.store.sql.session import privileges
from seqstore.store.sql.session.statement_kind import all_kinds
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
    assert {"GRANT", "REVOKE", "CREATE USER"} <= {*asked}
