"""The statements of the Doris manual's page on sequence columns, as printed there.

What the page leaves open (`[ORDER BY ..]`, a comparison lost in print) is filled in, nothing else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from seqstore import Settings, Store, StoreError
from seqstore.cli.output import box
from seqstore.store.sql import Session, parse
from tests.support.printed import LOAD_LABEL, ROUTINE_LOAD, WORKED_EXAMPLE

DESC = """+-------------+--------------+------+-------+---------+---------+
| Field       | Type         | Null | Key   | Default | Extra   |
+-------------+--------------+------+-------+---------+---------+
| user_id     | BIGINT       | No   | true  | NULL    |         |
| date        | DATE         | No   | true  | NULL    |         |
| group_id    | BIGINT       | No   | true  | NULL    |         |
| modify_date | DATE         | No   | false | NULL    | REPLACE |
| keyword     | VARCHAR(128) | No   | false | NULL    | REPLACE |
+-------------+--------------+------+-------+---------+---------+"""
ROWS = """+---------+------------+----------+-------------+---------+
| user_id | date       | group_id | modify_date | keyword |
+---------+------------+----------+-------------+---------+
|       1 | 2020-02-22 |        1 | {}  | {}       |
+---------+------------+----------+-------------+---------+"""
LOADS = [
    ([("2020-02-21", "a"), ("2020-02-22", "b"), ("2020-03-05", "c"), ("2020-02-26", "d"), ("2020-02-23", "e"),
      ("2020-02-24", "b")], ("2020-03-05", "c")),
    ([("2020-02-22", "a"), ("2020-02-23", "b")], ("2020-03-05", "c")),
    ([("2020-02-22", "a"), ("2020-03-23", "w")], ("2020-03-23", "w")),
]  # fmt: skip


def test_the_worked_example_prints_what_the_manual_prints(tmp_path: Path) -> None:
    settings = Settings(columns_not_null_by_default=True)  # as the manual prints
    with Store.open(tmp_path / "s", settings=settings) as store, Session(store) as session:
        list(session.execute(f"CREATE DATABASE test; USE test; {WORKED_EXAMPLE}"))
        [described] = session.execute("desc test_table;")
        assert described.rows is not None
        assert box(described.rows) == DESC
        for rows, (modified, keyword) in LOADS:
            values = ", ".join(f"(1, '2020-02-22', 1, '{date}', '{word}')" for date, word in rows)
            list(session.execute(f"INSERT INTO test_table VALUES {values}"))
            [selected] = session.execute("select * from test_table;")
            assert selected.rows is not None
            assert box(selected.rows) == ROWS.format(modified, keyword)


def test_hidden_columns_tell_whether_a_table_supports_sequences(tmp_path: Path) -> None:
    """T6."""
    with Store.open(tmp_path / "s") as store, Session(store) as session:
        for text in (
            "CREATE DATABASE d; USE d; SET show_hidden_columns=true; CREATE TABLE p (k INT) UNIQUE KEY(k);",
            "CREATE TABLE s (k INT) UNIQUE KEY(k) PROPERTIES ('function_column.sequence_type' = 'Date',);",
        ):
            list(session.execute(text))
        for name, has_sequence in (("s", True), ("p", False)):
            [described] = session.execute(f"desc {name}")
            assert described.rows is not None
            fields = described.rows.column("Field").to_pylist()
            assert ("__DORIS_SEQUENCE_COL__" in fields) is has_sequence


@pytest.mark.parametrize("text", [LOAD_LABEL, ROUTINE_LOAD], ids=["load label", "routine load"])
def test_load_statements_are_read_and_say_who_could_run_them(tmp_path: Path, text: str) -> None:
    assert len(parse(text)) == 1
    with Store.open(tmp_path / "s") as store, Session(store) as session, pytest.raises(StoreError):
        list(session.execute(text))


def test_a_row_without_its_sequence_is_refused_in_the_manuals_words(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s") as store, Session(store) as session:
        list(session.execute("CREATE DATABASE d; USE d; CREATE TABLE test_tbl (k INT, v INT) UNIQUE KEY(k)"
                             " PROPERTIES ('function_column.sequence_type' = 'Date')"))  # fmt: skip
        with pytest.raises(
            StoreError, match="Table test_tbl has sequence column, need to specify the sequence column"
        ):
            list(session.execute("INSERT INTO test_tbl VALUES (1, 2)"))
