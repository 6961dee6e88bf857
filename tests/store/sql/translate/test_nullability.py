"""A column declared with neither NULL nor NOT NULL: NULL, unless a setting says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seqstore import InvalidInputError, LoadRejectedError
from seqstore.store.sql import Session

Run = Callable[[str], Any]
CREATE = "CREATE TABLE t (k INT, j VARCHAR(9), a INT, b INT NOT NULL, c INT NULL) UNIQUE KEY(k, j)"


def nullability(rows: Run) -> dict[str, str]:
    return {row[0]: row[2] for row in rows("DESC t")}


def test_a_bare_column_may_be_null(session: Session, rows: Run) -> None:
    list(session.execute(CREATE))
    assert nullability(rows) == {"k": "Yes", "j": "Yes", "a": "Yes", "b": "No", "c": "Yes"}
    list(session.execute("INSERT INTO t VALUES (NULL, NULL, NULL, 1, NULL), (NULL, 'x', 2, 2, NULL)"))
    list(session.execute("INSERT INTO t VALUES (NULL, NULL, 7, 7, NULL)"))
    assert rows("SELECT * FROM t ORDER BY b") == [(None, "x", 2, 2, None), (None, None, 7, 7, None)]
    list(session.execute("DELETE FROM t WHERE j IS NULL"))
    assert rows("SELECT b FROM t") == [(2,)]
    with pytest.raises(LoadRejectedError, match="b"):
        list(session.execute("INSERT INTO t VALUES (1, 'y', 1, NULL, 1)"))


def test_alter_table_adds_a_bare_column_as_create_does(session: Session, rows: Run) -> None:
    list(
        session.execute(CREATE + "; ALTER TABLE t ADD COLUMN d INT; ALTER TABLE t ADD COLUMN (e INT, f INT)")
    )
    assert {name: nullability(rows)[name] for name in "def"} == {"d": "Yes", "e": "Yes", "f": "Yes"}


@pytest.mark.settings(columns_not_null_by_default=True)
def test_the_setting_declares_bare_columns_not_null(session: Session, rows: Run) -> None:
    list(session.execute(CREATE))
    assert nullability(rows) == {"k": "No", "j": "No", "a": "No", "b": "No", "c": "Yes"}
    with pytest.raises(LoadRejectedError):
        list(session.execute("INSERT INTO t VALUES (1, 'y', NULL, 1, 1)"))
    with pytest.raises(InvalidInputError, match="'d' is NOT NULL and has no default"):
        list(session.execute("ALTER TABLE t ADD COLUMN d INT"))
    list(session.execute("ALTER TABLE t ADD COLUMN (d INT DEFAULT '1', e INT DEFAULT NULL)"))
    assert (nullability(rows)["d"], nullability(rows)["e"]) == ("No", "Yes")


def test_show_create_table_states_what_was_decided(session: Session, rows: Run) -> None:
    """A copy made by LIKE does not change with the setting."""
    list(session.execute(CREATE + "; CREATE TABLE u LIKE t"))
    text = rows("SHOW CREATE TABLE t")[0][1]
    assert rows("SHOW CREATE TABLE u")[0][1] == text.replace("`t`", "`u`")
    assert text.count("NOT NULL") == 1


def test_an_auto_increment_column_is_not_null(session: Session, rows: Run) -> None:
    """As in MySQL; Doris wants the words."""
    list(session.execute("CREATE TABLE t (k BIGINT AUTO_INCREMENT, a INT) UNIQUE KEY(k)"))
    assert nullability(rows) == {"k": "No", "a": "Yes"}
