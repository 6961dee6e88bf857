"""Texts to statements: what is read, and what errors say."""

from __future__ import annotations

from decimal import Decimal

import pytest

from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import Default
from seqstore.store.sql import parse
from seqstore.store.sql.parse import statement_values as st
from seqstore.store.sql.parse.tokens import is_complete, parse_tree
from seqstore.store.sql.session.show_output import create_table_text
from tests.support.printed import WORKED_EXAMPLE


def only(text: str) -> object:
    (statement,) = parse(text)
    return statement


def table(text: str) -> st.CreateTable:
    statement = only(text)
    assert isinstance(statement, st.CreateTable)
    return statement


def test_the_documented_table_is_read_as_it_stands() -> None:
    """SD1."""
    created = table(WORKED_EXAMPLE)
    assert str(created.table) == "test.test_table"
    assert created.schema.key == ("user_id", "date", "group_id")
    assert created.schema.sequence_column == "modify_date"
    assert created.schema.distribution == "HASH(`user_id`) BUCKETS 32"
    assert [column.nullable for column in created.schema.columns] == [True] * 5


def test_every_part_of_a_column_is_read() -> None:
    columns = table(
        "CREATE TABLE IF NOT EXISTS `t` (k INT(11) NOT NULL COMMENT 'the key', a VARCHAR(9) NULL "
        'DEFAULT "x", '
        "b DECIMAL(9,2) DEFAULT -1.5, c DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3), d DATE DEFAULT "
        "CURRENT_DATE, "
        "e INT DEFAULT NULL, f MAP<VARCHAR(5),ARRAY<STRUCT<x:INT,y:DECIMAL(4,1)>>> NULL, g BOOLEAN "
        "DEFAULT true) "
        "ENGINE=OLAP UNIQUE KEY(k) COMMENT 'all' DISTRIBUTED BY RANDOM BUCKETS AUTO"
    )
    assert columns.if_not_exists
    assert columns.schema.comment == "all"
    assert columns.schema.distribution == "RANDOM BUCKETS AUTO"
    defaults = [column.default for column in columns.schema.columns]
    assert defaults == [
        None,
        Default("constant", "x"),
        Default("constant", "-1.5"),
        Default("current_timestamp", precision=3),
        Default("current_date"),
        Default("null"),
        None,
        Default("constant", "true"),
    ]
    assert [column.nullable for column in columns.schema.columns] == [
        False,
        True,
        True,
        True,
        True,
        True,
        True,
        True,
    ]
    assert columns.schema.columns[0].comment == "the key"
    assert columns.schema.columns[6].type.sql == "MAP<VARCHAR(5),ARRAY<STRUCT<x:INT,y:DECIMAL(4,1)>>>"


@pytest.mark.parametrize(
    "text",
    [
        WORKED_EXAMPLE,
        "CREATE TABLE t (k INT, v VARCHAR(5) NULL DEFAULT \"a\\\"b\\\\c\" COMMENT 'it''s') "
        'UNIQUE KEY(k) COMMENT "x\\"y"',
        "CREATE TABLE t (k LARGEINT NULL, d DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6), a ARRAY<INT> "
        "NULL) UNIQUE KEY(k)",
        "CREATE TABLE t (k INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS AUTO "
        "PROPERTIES('storage_format'='parquet')",
    ],
)
def test_show_create_table_reads_back_as_the_same_schema(text: str) -> None:
    schema = table(text).schema
    assert table(create_table_text("t", schema)).schema == schema


def test_literals_of_insert_keep_their_kind() -> None:
    statement = only(
        "INSERT INTO t (a, `b`) VALUES (1, 'it''s'), (-2.50, NULL), (DEFAULT, true), (1 + 1, -9);"
    )
    assert isinstance(statement, st.Insert)
    assert statement.columns == ("a", "b")
    assert statement.rows is not None
    assert statement.rows[:3] == ((1, "it's"), (Decimal("-2.50"), None), (st.Word.DEFAULT, True))
    assert statement.rows[3][1] == -9


@pytest.mark.parametrize(
    "text", ["INSERT INTO t WITH LABEL l (k) VALUES (1)", "INSERT INTO t (k) WITH LABEL `l` SELECT 1"]
)
def test_insert_takes_a_label_before_or_behind_its_columns(text: str) -> None:
    """I1."""
    statement = only(text)
    assert isinstance(statement, st.Insert)
    assert (statement.label, statement.columns) == ("l", ("k",))


def test_the_headings_of_a_query_are_its_items_as_written() -> None:
    statement = only("WITH q AS (SELECT 1 AS x) SELECT DISTINCT count( * ), Max(x)+1, f.`a b` FROM q")
    assert isinstance(statement, st.Query)
    assert statement.headings == ("count( * )", "Max(x)+1", "f.`a b`")


@pytest.mark.parametrize(
    ("text", "assignments"),
    [
        ("SET show_hidden_columns=true", [("session", "show_hidden_columns", "true")]),
        (
            "SET GLOBAL a = ON, @@session.b = 'x', @c := -5",
            [("global", "a", "ON"), ("session", "b", "x"), ("user", "c", "-5")],
        ),
        ("SET autocommit = DEFAULT", [("session", "autocommit", st.Word.DEFAULT)]),
        (
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            [("session", "transaction_isolation", "READ-COMMITTED")],
        ),
    ],
)
def test_set_is_read_in_every_spelling(text: str, assignments: list[tuple[str, str, object]]) -> None:
    statement = only(text)
    assert isinstance(statement, st.SetVariables)
    assert [(a.scope, a.name, a.value) for a in statement.assignments] == assignments


def test_statements_are_separated_by_semicolons_outside_strings_and_comments() -> None:
    text = "USE `a;b`; -- x; y\n SET a = ';'; /* ; */ ;; DESC t # end;"
    assert [type(statement).__name__ for statement in parse(text)] == [
        "UseDatabase",
        "SetVariables",
        "Describe",
    ]


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SELECT 1;", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT 1; -- x", True),
        ("/* a ;", False),
        ("", True),
    ],
)
def test_a_prompt_waits_for_the_semicolon(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selec 1", "line 1, column 1: expected a statement such as SELECT"),
        (
            "USE db;\n  DROP THING v",
            "line 2, column 8: expected DATABASE or ROLE or SCHEMA or TABLE or USER or VIEW or WORKLOAD, "
            "found 'THING'",
        ),
        ("SELECT 'abc", "line 1, column 8: expected the end of the string that starts here"),
        ("SELECT /* abc", "line 1, column 8: expected the end of the comment that starts here"),
        ("SELECT a,\n b FROM t WHERE a ==", "line 2, column"),
        ("SELECT (1", "line 1, column"),
        (
            "CREATE TABLE t (k INT,, v INT) UNIQUE KEY(k)",
            "line 1, column 23: expected a column name, found ','",
        ),
        (
            "CREATE TABLE t (k INT v INT) UNIQUE KEY(k)",
            "line 1, column 23: expected ',' or ')' behind a column",
        ),
        ("CREATE TABLE t (k INTT) UNIQUE KEY(k)", "line 1, column 19: type 'INTT': no such type"),
        ("CREATE TABLE t (k INT) UNIQUE KEY k", "line 1, column 35: expected (, found 'k'"),
        ("INSERT INTO t (a) VALUES (1, 2", "expected ',' or ')', found the end of the statement"),
        ("INSERT INTO t VALUES (-1e)", "line 1, column 24: expected a number, found '1e'"),
        (f"INSERT INTO t VALUES ({'9' * 5000})", "line 1, column 23: expected a number"),
        (
            "CREATE TABLE t (d DATE) UNIQUE KEY(d) PARTITION BY RANGE(d) (FROM ('2020-01-01') TO "
            "('2020-02-01 00:00:00+05:00') INTERVAL 1 DAY)",
            "a stepped range by DAY needs dates without a time zone, not 2020-02-01 00:00:00+05:00",
        ),
        ("INSERT t", "line 1, column 9: expected VALUES or SELECT, found the end of the statement"),
        ("SET a", "line 1, column 6: expected '=', found the end of the statement"),
        ("SHOW TABLES LIKE x", "line 1, column 18: expected a pattern in quotes, found 'x'"),
        ("DESC t u", "line 1, column 8: expected the end of the statement, found 'u'"),
        ("DESC a.b.c", "expected a table name of one or two parts"),
    ],
)
def test_an_error_tells_the_place_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert caught.value.line == int(str(caught.value).split("line ")[1].split(",")[0])


def test_half_a_character_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="not valid Unicode"):
        parse("SELECT '\ud800'")


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        ("(k INT) UNIQUE KEY(k) DUPLICATE KEY(k)", "a table has either UNIQUE KEY or DUPLICATE KEY"),
        ("(k INT) AGGREGATE KEY(k)", "AGGREGATE KEY tables merge values"),
        ("(k INT, v INT REPLACE) UNIQUE KEY(k)", "REPLACE is for AGGREGATE KEY tables"),
        ("(k INT AUTO_INCREMENT) UNIQUE KEY(k)", "the auto increment column k must be BIGINT"),
        (
            "(k INT, v DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE NULL) UNIQUE KEY(k)",
            "CURRENT_TIMESTAMP[(digits)] behind ON UPDATE",
        ),
        (
            "(k INT, v DATETIME(6) DEFAULT CURRENT_TIMESTAMP ON UPDATE NOW(6)) UNIQUE KEY(k)",
            "must be as the default",
        ),
        ("(k INT, INDEX i (k) USING INVERTED) UNIQUE KEY(k)", "INDEX is not supported"),
        (
            "(k INT, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(v) BUCKETS 1",
            "Distribution column[v] is not key column",
        ),
        ("(k INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 0", "a number of buckets of at least 1"),
        ("(k INT) UNIQUE KEY(k) PROPERTIES('a'='b')", "property 'a' is not known"),
        (
            "(k INT, v INT) UNIQUE KEY(k) PROPERTIES('function_column.sequence_col'='x')",
            "column[x] not exists",
        ),
        ("(k INT, v STRING) UNIQUE KEY(v)", "cannot be a key"),
        ("(k INT) ENGINE=MYSQL UNIQUE KEY(k)", "expected OLAP, the only engine"),
    ],
)
def test_tables_that_cannot_be_kept_are_refused_by_name(tail: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(f"CREATE TABLE t {tail}")
    assert message in str(caught.value)


@pytest.mark.parametrize("depth", [100, 3000])
def test_nesting_beyond_all_measure_is_an_error_of_ours(depth: int) -> None:
    with pytest.raises(InvalidInputError, match="nested"):
        parse("SELECT " + "(" * depth + "1" + ")" * depth)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"'\0'", "\0"),
        (r"'\Z\b\n\r\t'", "\x1a\b\n\r\t"),
        (r"'\a\q\f\v'", "aqfv"),
        (r"'\%\_'", r"\%\_"),
        (r"'\'\"\\'", "'\"\\"),
        (r'"\'\"\\"', "'\"\\"),
        ("'a''b'", "a'b"),
    ],
)
def test_escapes_of_text_are_those_of_mysql(written: str, meant: str) -> None:
    """Versions of sqlglot know different ones; the others kept their backslash, or lost it."""
    assert parse_tree(written, 0, len(written)).this == meant


@pytest.mark.parametrize(("written", "name"), [(r"`a\nb`", r"a\nb"), (r"`a\\b`", r"a\\b"), ("`a``b`", "a`b")])
def test_a_backslash_in_a_quoted_name_is_a_character(written: str, name: str) -> None:
    assert parse_tree(written, 0, len(written)).name == name


@pytest.mark.family(1)
@pytest.mark.parametrize("join", [" JOIN u", " LEFT JOIN u", " LEFT JOIN u LEFT JOIN u USING (k)"])
def test_a_statement_that_has_too_many_readings_is_refused(join: str) -> None:
    """Thirty joins without a condition took hours, and nothing could end them."""
    text = f"SELECT 1 FROM t{join * 40}"
    with pytest.raises(InvalidInputError, match="expected a statement with one reading"):
        parse_tree(text, 0, len(text))


@pytest.mark.parametrize(
    "rest",
    [
        "".join(f" JOIN u{i} ON u{i}.k = t.k" for i in range(60)),
        " JOIN u" * 30 + " ON t.k = u.k" * 30,
        " CROSS JOIN u" * 60,
        ", u" * 60,
        " JOIN u" * 10,
        f" WHERE k IN ({', '.join(map(str, range(5_000)))})",
    ],
    ids=["conditions", "nested", "cross", "commas", "a few without", "a long list"],
)
def test_long_statements_with_one_reading_are_read(rest: str) -> None:
    text = f"SELECT 1 FROM t{rest}"
    assert parse_tree(text, 0, len(text)) is not None
