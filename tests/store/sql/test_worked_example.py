"""The worked example of the Doris documentation, its statements and rows as printed there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from seqstore import InvalidInputError, Settings, Store
from seqstore.store.sql import Session
from tests.support.printed import WORKED_EXAMPLE

Run = Callable[[str], Any]


DESC = [
    ("user_id", "BIGINT", "No", "true", None, ""),
    ("date", "DATE", "No", "true", None, ""),
    ("group_id", "BIGINT", "No", "true", None, ""),
    ("modify_date", "DATE", "No", "false", None, "REPLACE"),
    ("keyword", "VARCHAR(128)", "No", "false", None, "REPLACE"),
]

LOADS = [
    "2020-02-21 a, 2020-02-22 b, 2020-03-05 c, 2020-02-26 d, 2020-02-23 e, 2020-02-24 b",
    "2020-02-22 a, 2020-02-23 b",
    "2020-02-22 a, 2020-03-23 w",
]
WINNERS = [(date(2020, 3, 5), "c"), (date(2020, 3, 5), "c"), (date(2020, 3, 23), "w")]


@pytest.fixture
def settings() -> Settings:
    """The example's columns say neither NULL nor NOT NULL, and are printed as NOT NULL."""
    return Settings(columns_not_null_by_default=True)


@pytest.fixture
def _test_table(session: Session) -> None:
    list(session.execute("CREATE DATABASE test; USE test;" + WORKED_EXAMPLE))


@pytest.mark.usefixtures("_test_table")
def test_the_table_is_described_as_printed(session: Session, rows: Run) -> None:
    assert rows("desc test_table;") == DESC
    (result,) = session.execute("desc test_table;")
    assert result.columns == ["Field", "Type", "Null", "Key", "Default", "Extra"]


@pytest.mark.usefixtures("_test_table")
def test_the_largest_modify_date_of_all_loads_wins(rows: Run, session: Session) -> None:
    """SD1, SO1, SL7."""
    for load, (modified, keyword) in zip(LOADS, WINNERS, strict=True):
        values = ", ".join(
            f"(1, '2020-02-22', 1, '{day}', '{word}')" for day, word in map(str.split, load.split(", "))
        )
        list(session.execute(f"INSERT INTO test_table VALUES {values}"))
        assert rows("select * from test_table;") == [(1, date(2020, 2, 22), 1, modified, keyword)]


@pytest.mark.usefixtures("_test_table")
def test_hidden_columns_tell_whether_a_table_has_a_sequence(rows: Run) -> None:
    """T6."""
    assert ("__DORIS_SEQUENCE_COL__", "DATE", "Yes") in [
        row[:3] for row in rows("SET show_hidden_columns=true; desc test_table")
    ]


@pytest.mark.usefixtures("_test_table")
def test_a_row_without_the_sequence_is_refused_in_the_documented_words(session: Session) -> None:
    """SL6."""
    with pytest.raises(InvalidInputError) as caught:
        list(
            session.execute(
                "INSERT INTO test_table (user_id, date, group_id, keyword) VALUES (1, '2020-02-22', 1, 'x')"
            )
        )
    assert str(caught.value) == "Table test_table has sequence column, need to specify the sequence column"


def test_the_second_documented_way_declares_only_the_type(store: Store) -> None:
    """SD2, SD4."""
    with Session(store) as session:
        text = """
            CREATE DATABASE d; USE d;
            CREATE TABLE t (k INT, v INT NULL) UNIQUE KEY(k) PROPERTIES (
                "function_column.sequence_type" = 'Date',
            );
            INSERT INTO t (k, v, __DORIS_SEQUENCE_COL__) VALUES (1, 1, '2020-03-05'), (1, 2, '2020-02-22');
            SELECT v FROM t"""
        last = list(session.execute(text))[-1]
        assert last.rows is not None
        assert last.rows.to_pylist() == [{"v": 1}]
