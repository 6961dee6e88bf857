"""The privileges that statements need, as clients with few of them see it."""

from __future__ import annotations

import contextlib
from typing import Any

import pymysql
import pytest

from seqstore import Store
from tests.cli.mysql_client import ask
from tests.support.http_server import serving


@pytest.mark.parametrize("said", ["", "SELECT * FROM db.t", "SELECT 1"])
@pytest.mark.parametrize("current", ["db", None], ids=["in the database", "without a database"])
def test_a_label_is_taken_by_loaders_only(store: Store, connect: Any, said: str, current: str | None) -> None:
    """A user without LOAD took a label: the owner's load with it was "finished", and stored no row."""
    root = connect()
    for text in ("CREATE USER ann", "GRANT SELECT_PRIV ON db.* TO ann", "CREATE DATABASE hers",
                 "GRANT LOAD_PRIV, SELECT_PRIV ON hers.* TO ann",
                 "CREATE TABLE hers.t (k INT) UNIQUE KEY(k)"):  # fmt: skip
        ask(root, text)
    ann = connect(user="ann", database=current)
    with contextlib.suppress(pymysql.MySQLError):  # the first one, if the label belongs to `db`
        for text in ("BEGIN WITH LABEL x", said, "DELETE FROM hers.t WHERE k = 1"):
            if text:
                ask(ann, text)
    with serving(store) as http:  # while the transaction is open, and after it
        reply = http.load("db.t", "100\n", label="x", columns="k")
        assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", 1)
    ask(ann, "COMMIT")
    with serving(store) as http:
        assert http.load("db.t", "101\n", label="x", columns="k")["Status"] == "Label Already Exists"
    assert ask(root, "SELECT k FROM t WHERE k > 99") == [(100,)]


def test_a_load_is_cancelled_with_the_privilege_of_its_database(connect: Any) -> None:
    """The privilege of the current database was enough."""
    root = connect()
    for text in ("CREATE USER ann", "CREATE DATABASE hers", "GRANT LOAD_PRIV ON hers.* TO ann"):
        ask(root, text)
    with pytest.raises(pymysql.MySQLError, match="needs the LOAD privilege on database 'db'"):
        ask(connect(user="ann", database="hers"), "CANCEL LOAD FROM db WHERE LABEL = 'x'")


@pytest.mark.parametrize("text", ["SHOW ALTER TABLE COLUMN FROM db", "CANCEL ALTER TABLE COLUMN FROM db.t"])
def test_changes_of_columns_need_the_privilege_to_alter(connect: Any, text: str) -> None:
    root = connect()
    for statement in ("CREATE USER ann", "GRANT SELECT_PRIV, LOAD_PRIV ON db.* TO ann"):
        ask(root, statement)
    with pytest.raises(pymysql.MySQLError, match="needs the ALTER privilege on database 'db'"):
        ask(connect(user="ann", database="db"), text)
