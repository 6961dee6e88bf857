"""What is parsed by a template, or as rows of literals, equals what the parser reads."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql import Session, parse
from seqstore.store.sql.parse.literal_rows import literal_rows
from seqstore.store.sql.parse.statement_templates import StatementTemplates, shape_of
from seqstore.store.sql.parse.tokens import split_statements
from seqstore.store.sql.session.statement_kind import parse_statement
from tests.seeds import new_seed
from tests.weight import by_form

STATEMENTS = (Path(__file__).parents[1] / "fuzz_statements.sql").read_text(encoding="utf-8").splitlines()
LITERALS = re.compile(r"(?<![\w.$@'])[0-9]+(?:\.[0-9]+)?(?![\w.$@'])|'[^'\\]*'")
VALUES = ("0", "7", "-3", "20240101", "1.50", "0.5", "99999999999999999999", "''", "'a'", "'2024-01-01'",
          "'%Y-%m'", "'it''s'", "'1 day'", "'$.a'", "'x\\'y'", "'你'", "NULL", "1e5", ".5", '"q"', "x'41'",
          "1 + 1", "-- c\n5", "@x", "DATE '2024-01-01'", "INTERVAL '5' DAY", "1_0",
           "1٣", "0x1", "7\u00a0", "\x0b7", "'open", "007", "1.", "1e", "--5")  # fmt: skip
TEMPLATES = [
    "SELECT * FROM t WHERE k = ?",
    "SELECT a, b AS c FROM t WHERE k >= ? ORDER BY k DESC LIMIT ?",
    "SELECT k FROM d.t AS u WHERE u.k IN (?, ?, ?) AND (u.a = ? OR NOT u.b < ?) LIMIT ? OFFSET ?",
    "SELECT `a b`, count(*), sum(x * ?) FROM t WHERE a LIKE ? GROUP BY `a b` HAVING count(*) > ? ORDER BY 2",
    "SELECT t.k, s.v FROM t JOIN s ON t.k = s.k WHERE s.v BETWEEN ? AND ? AND t.a IS NOT NULL",
    "SELECT t.k + ? FROM t WHERE k = ?",
    "SELECT DISTINCT k FROM t WHERE a = date_format(d, ?)",
    "UPDATE t SET a = ?, n = n + ? WHERE k = ?",
    "UPDATE d.t SET `x y` = NULL WHERE a <> ? AND d < ?",
    "DELETE FROM t WHERE k = ? OR a IN (?, ?)",
]
INSERTS = [
    "INSERT INTO t VALUES (?, ?), (?, ?)",
    "insert into `d`.`t x`(a, `value`) values (?,?),\n(?,?);",
    "REPLACE INTO t (a) VALUES (?)",
    "INSERT IGNORE INTO t PARTITION (p1) (a) VALUES(?)",
    "INSERT OVERWRITE TABLE t VALUES (?, ?)",
    "INSERT INTO t WITH LABEL abc (a) VALUES (?)",
    "INSERT INTO t VALUES (?, ?) ON DUPLICATE KEY UPDATE a = VALUES(a), b = ?",
    "INSERT INTO t VALUES (?) AS n on duplicate key update a = n.a",
    "INSERT INTO value (a, b) VALUES (?, ?)",
    "INSERT INTO t VALUES (?), (?, ?)",
    "INSERT INTO t VALUES (?), ()",
    "INSERT INTO t VALUES (?",
    "INSERT INTO t VALUES (?),",
    "INSERT INTO t VALUES (? ?)",
    "INSERT INTO t VALUES (?); SELECT 1",
    "INSERT INTO t VALUES ((?))",
    "INSERT INTO t (a) SELECT ?",
    "INSERT INTO t SELECT a FROM u UNION ALL VALUES (?)",
    "INSERT INTO t SELECT a FROM u WHERE a IN VALUES (?)",
    "INSERT INTO t SELECT * FROM VALUES (?)",
    "INSERT INTO t VALUES (?); ON DUPLICATE KEY UPDATE a = 1",
    "INSERT INTO t WITH q AS (SELECT 1) SELECT * FROM q, VALUES (?)",
]


def directly(text: str) -> list[Any]:
    return [parse_statement(stream) for stream in split_statements(text)]


def shown(read: Callable[[str], list[Any]], text: str) -> str:
    """What a function reads of a text, or its complaint."""
    try:
        return re.sub(" at 0x[0-9a-f]+", "", repr([(type(each), each) for each in read(text)]))
    except InvalidInputError as error:
        return str(error)


def filled(text: str, chosen: random.Random) -> str:
    return re.sub(r"\?", lambda _: chosen.choice(VALUES), text)


def test_statements_of_a_shape_are_parsed_as_each_alone() -> None:
    seed = new_seed()
    chosen = random.Random(seed)
    for text in TEMPLATES * by_form(20, 200):
        statement = filled(text, chosen)
        assert shown(parse, statement) == shown(directly, statement), f"seed {seed}: {statement}"


def test_statements_of_all_kinds_are_parsed_as_each_alone() -> None:
    """Whatever a statement is, three of its shape with other literals are read as the parser reads them."""
    seed = new_seed()
    chosen = random.Random(seed)
    for text in STATEMENTS:
        for _ in range(3):
            statement = LITERALS.sub(lambda old: like(old.group(), chosen), text)
            assert shown(parse, statement) == shown(directly, statement), f"seed {seed}: {statement}"


def like(literal: str, chosen: random.Random) -> str:
    """Another literal of the same kind."""
    if literal.startswith("'"):
        return chosen.choice([literal, "'%Y'", "'5 day'", "'$.b[1]'", "'x'", "''"])
    return chosen.choice([literal, "0", "17", "2.25" if "." in literal else "3"])


def test_rows_of_literals_are_read_as_the_parser_reads_them() -> None:
    seed = new_seed()
    chosen = random.Random(seed)
    for text in INSERTS * by_form(40, 400):
        statement = filled(text, chosen)
        assert shown(parse, statement) == shown(directly, statement), f"seed {seed}: {statement}"


HOSTILE = {
    "escapes without an end": "'" + "\\'" * 300_000,
    "digits that end as a word": "1" * 300_000 + "x)",
    "quotes": "'" * 300_001,
    "blanks": " " * 300_000,
    "parentheses": "(" * 300_000,
    "rows": "1),(" * 100_000,
    "points": "1." * 300_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_any_text_is_divided_in_one_pass(name: str) -> None:
    """A regular expression that goes back would need hours, while no other statement runs."""
    text = f"INSERT INTO t VALUES ({HOSTILE[name]}"
    assert literal_rows(text) is None
    assert literal_rows(f"INSERT INTO {HOSTILE[name]}") is None


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t VALUES (1, 'a'), (-2, NULL)",
        "insert into `d`.`t`(a, `b c`) values (1.50, 'it''s'), (DEFAULT, 'o\\'b')",
        "REPLACE INTO t VALUES (true, \"q\")",
        "INSERT INTO t VALUES (1, 2) AS n ON DUPLICATE KEY UPDATE a = n.a",
    ],
)  # fmt: skip
def test_literals_need_no_parser(text: str) -> None:
    assert literal_rows(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t WHERE k = 5",
        "SELECT `a 1`, max(x) FROM t WHERE k >= 5 AND a = 'b' GROUP BY `a 1` ORDER BY 1 LIMIT 20",
        "UPDATE t SET a = 'x', n = n + 1.5 WHERE k = -5",
        "DELETE FROM t WHERE k IN (1, 2)",
    ],
)
def test_a_shape_that_comes_again_needs_no_parser(text: str) -> None:
    parsed: list[str] = []

    def parse_one(probed: str) -> Any:
        parsed.append(probed)
        return directly(probed)[0]

    templates = StatementTemplates(parse_one)
    assert templates.parsed(text) is None, "it comes for the first time"
    assert repr(templates.parsed(text)) == repr(parse(text)[0])
    assert templates.parsed(text.replace("5", "6")) is not None
    assert len(parsed) == 1


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 5",
        "SELECT k FROM t WHERE a = 'it''s' AND k = 5",
        "SELECT k FROM t WHERE a = 'x\\'y' AND k = 5",
        "SELECT k FROM t WHERE a = \"b\" AND k = 5",
        "SELECT k /* 3 */ FROM t WHERE k = 5",
        "SELECT k FROM t WHERE k = 5 -- 3",
        "SELECT k FROM t WHERE d > now() - INTERVAL 5 DAY",
        "SELECT k FROM t WHERE d = DATE '2024-01-01'",
        "SELECT k FROM t WHERE date_format(d, '%Y') = '2024'",
        "SELECT CAST(x AS VARCHAR(5)) AS y FROM t WHERE k = 5",
        "SELECT k FROM t WHERE j -> '$.a' = 5",
        "SELECT k FROM t WHERE k = @x AND n = 5",
        "UPDATE t SET a = 5 WHERE k = 5; SELECT 1",
    ],
)  # fmt: skip
def test_other_statements_have_no_template(text: str) -> None:
    templates = StatementTemplates(lambda probed: directly(probed)[0])
    assert [templates.parsed(text) for _ in range(3)] == [None] * 3


def test_a_shape_is_the_text_without_its_literals() -> None:
    assert shape_of("SELECT a1 FROM `t 2` WHERE k = 5 AND a = '7' AND x < 1.5") == (
        "SELECT a1 FROM `t 2` WHERE k = \0i AND a = \0t AND x < \0d",
        ["5", "7", "1.5"],
    )


def test_statements_of_a_shape_have_rows_of_their_own(session: Session) -> None:
    """A shared tree would answer with the literals of another statement."""
    list(session.execute("CREATE TABLE t (k INT, v VARCHAR(9)) UNIQUE KEY(k)"))
    for key in range(6):
        list(session.execute(f"INSERT INTO t VALUES ({key}, 'a{key}')"))
    for key in range(5):
        list(session.execute(f"UPDATE t SET v = 'b{key}' WHERE k = {key}"))
    list(session.execute("DELETE FROM t WHERE k = 4"))
    found = [answer(session, f"SELECT v FROM t WHERE k = {key}") for key in range(6)]
    assert found == [[f"b{key}"] for key in range(4)] + [[], ["a5"]]


def test_assignments_of_equal_inserts_are_not_shared(session: Session) -> None:
    list(session.execute("CREATE TABLE t (k INT, n INT) UNIQUE KEY(k)"))
    for _ in range(3):
        list(session.execute("INSERT INTO t VALUES (1, 1) ON DUPLICATE KEY UPDATE n = t.n + VALUES(n)"))
    assert answer(session, "SELECT n FROM t") == [3]


def answer(session: Session, text: str) -> list[Any]:
    [found] = session.execute(text)
    assert found.rows is not None
    values: list[Any] = found.rows.column(0).to_pylist()
    return values
