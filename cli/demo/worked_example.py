"""The worked example of the Doris documentation on sequence columns, statement by statement.

One key, three uploads in an order in which they did not happen. `STEPS` holds the statements and the
printed answers of the documentation; `run_worked_example` runs them and compares the answers by character.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Final

from seqstore.cli.demo.screen import Screen
from seqstore.cli.output import box
from seqstore.loaders.stream_load import stream_load
from seqstore.store import Store, StoreError
from seqstore.store.sql import Session

DATABASE: Final = "test"
TABLE: Final = "test_table"


@dataclass(frozen=True)
class Statement:
    """SQL, and the table the documentation prints for it (empty: it prints none)."""

    sql: str
    answer: str = ""


@dataclass(frozen=True)
class Upload:
    """Tab-separated lines for stream load, and a remark on their effect."""

    lines: str
    remark: str


def _selected(modify_date: str, keyword: str) -> Statement:
    """Returns the one row that the table has, as the documentation prints it."""
    return Statement(
        "select * from test_table;",
        f"""\
+---------+------------+----------+-------------+---------+
| user_id | date       | group_id | modify_date | keyword |
+---------+------------+----------+-------------+---------+
|       1 | 2020-02-22 |        1 | {modify_date}  | {keyword}       |
+---------+------------+----------+-------------+---------+""",
    )


STEPS: Final[tuple[Statement | Upload, ...]] = (
    Statement("CREATE DATABASE test;"),
    Statement("USE test;"),
    Statement(
        """\
CREATE TABLE test.test_table
(
    user_id bigint,
    date date,
    group_id bigint,
    modify_date date,
    keyword VARCHAR(128)
)
UNIQUE KEY(user_id, date, group_id)
DISTRIBUTED BY HASH (user_id) BUCKETS 32
PROPERTIES(
    "function_column.sequence_col" = 'modify_date',
    "replication_num" = "1",
    "in_memory" = "false"
);"""
    ),
    Statement(
        "desc test_table;",
        """\
+-------------+--------------+------+-------+---------+---------+
| Field       | Type         | Null | Key   | Default | Extra   |
+-------------+--------------+------+-------+---------+---------+
| user_id     | BIGINT       | No   | true  | NULL    |         |
| date        | DATE         | No   | true  | NULL    |         |
| group_id    | BIGINT       | No   | true  | NULL    |         |
| modify_date | DATE         | No   | false | NULL    | REPLACE |
| keyword     | VARCHAR(128) | No   | false | NULL    | REPLACE |
+-------------+--------------+------+-------+---------+---------+""",
    ),
    Upload(
        "1\t2020-02-22\t1\t2020-02-21\ta\n"
        "1\t2020-02-22\t1\t2020-02-22\tb\n"
        "1\t2020-02-22\t1\t2020-03-05\tc\n"
        "1\t2020-02-22\t1\t2020-02-26\td\n"
        "1\t2020-02-22\t1\t2020-02-23\te\n"
        "1\t2020-02-22\t1\t2020-02-24\tb\n",
        "Six rows of one key in one upload: the largest modify_date, 2020-03-05, wins.",
    ),
    _selected("2020-03-05", "c"),
    Upload(
        "1\t2020-02-22\t1\t2020-02-22\ta\n1\t2020-02-22\t1\t2020-02-23\tb\n",
        "Both rows are older than the stored one: the upload succeeds and changes nothing.",
    ),
    _selected("2020-03-05", "c"),
    Upload(
        "1\t2020-02-22\t1\t2020-02-22\ta\n1\t2020-02-22\t1\t2020-03-23\tw\n",
        "One of them is newer: it replaces the stored row.",
    ),
    _selected("2020-03-23", "w"),
)


def run_worked_example(store: Store, screen: Screen) -> int:
    """Runs every step and prints every answer.

    Returns:
        How many answers were compared; all were equal.

    Raises:
        StoreError: an answer differs from the documentation's, with both.
    """
    session = Session(store)
    screen.title("1. The worked example of the documentation")
    return sum(_run(step, store, session, screen) for step in STEPS)


def _run(step: Statement | Upload, store: Store, session: Session, screen: Screen) -> int:
    if isinstance(step, Upload):
        _upload(step, store, screen)
        return 0
    screen.prompt("sql>", step.sql)
    answers = [box(result.rows) for result in session.execute(step.sql) if result.rows is not None]
    for answer in answers:
        screen.block(answer)
    if step.answer and answers != [step.answer]:
        raise StoreError(
            f"the answer to {step.sql!r} differs from the documentation's; expected\n{step.answer}",
            kind="demo_differs",
        )
    return len(answers)


def _upload(step: Upload, store: Store, screen: Screen) -> None:
    screen.prompt("stream-load>", f"{DATABASE}.{TABLE}")
    screen.block(step.lines.rstrip())
    reply = stream_load(store, DATABASE, TABLE, io.BytesIO(step.lines.encode()), {})
    screen.block(" ".join(f"{name}={reply[name]}" for name in _SHOWN))
    screen.say(step.remark)
    if reply["Status"] != "Success":
        raise StoreError(f"stream load into {DATABASE}.{TABLE}: {reply['Message']}", kind="demo_differs")


_SHOWN: Final = ("TxnId", "Status", "NumberTotalRows", "NumberLoadedRows", "NumberFilteredRows")
