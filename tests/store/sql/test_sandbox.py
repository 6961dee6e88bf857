"""Queries reach stored tables and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from seqstore import StoreError
from seqstore.store.sql import Session, parse
from seqstore.store.sql.evaluate.connections import connect
from seqstore.store.sql.translate.functions import function_names
from tests.weight import by_form

Run = Callable[[str], Any]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.csv"
    path.write_text("password\nhunter2\n")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('{0}')",
        "SELECT * FROM read_csv_auto('{0}')",
        "SELECT * FROM read_text('{0}')",
        "SELECT * FROM read_blob('{0}')",
        "SELECT * FROM read_parquet('{0}')",
        "SELECT * FROM read_json('{0}')",
        "SELECT * FROM sniff_csv('{0}')",
        "SELECT * FROM '{0}'",
        "SELECT * FROM `{0}`",
        "SELECT * FROM \"{0}\"",
        "SELECT read_text('{0}')",
        "SELECT (SELECT content FROM read_text('{0}'))",
        "WITH q AS (SELECT * FROM read_csv('{0}')) SELECT * FROM q",
        "SELECT * FROM (SELECT 1) q, LATERAL (SELECT * FROM read_text('{0}')) x",
        "INSERT INTO t SELECT * FROM read_csv('{0}')",
        "INSERT INTO t VALUES ((SELECT content FROM read_text('{0}')))",
        "SET @x = (SELECT content FROM read_text('{0}'))",
        "COPY t TO '{0}'",
        "ATTACH '{0}' AS x",
        "IMPORT DATABASE '{0}'",
        "LOAD '{0}'",
        "INSTALL httpfs",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "SELECT * FROM glob('{0}')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM pragma_database_list()",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM query_table('t')",
        "SELECT current_setting('threads')",
        "SELECT getvariable('x')",
        "SELECT getenv('HOME')",
        "SELECT x.read_text('{0}')",
        "SELECT `read_text`('{0}')",
        "SELECT d_text('{0}')",
        "SELECT * FROM pg_catalog.pg_tables",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM temp.main.__source_0",
        "SELECT * FROM __source_0",
        "SELECT 1 INTO OUTFILE '{0}'",
        "SELECT secret",
        "SELECT * FROM secret",
    ],
)  # fmt: skip
def test_nothing_but_stored_tables_can_be_read_or_written(session: Session, secret: Path, text: str) -> None:
    list(session.execute("CREATE TABLE t (k VARCHAR(100)) UNIQUE KEY(k)"))
    with pytest.raises(StoreError) as caught:
        list(session.execute(text.format(secret)))
    assert "hunter2" not in str(caught.value)
    assert secret.read_text() == "password\nhunter2\n"


def test_the_evaluator_itself_is_locked(secret: Path) -> None:
    """The second wall, should a call ever slip through the first."""
    connection = connect()
    table = {"hunter": [2]}  # a Python local of the caller
    for text in (
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM '{secret}'",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SELECT * FROM table",
        "INSTALL httpfs",
        f"COPY (SELECT 1) TO '{secret}'",
        f"ATTACH '{secret}' AS x",
    ):
        with pytest.raises(duckdb.Error):
            connection.cursor().sql(text).fetchall()
    connection.close()
    assert table


REACHING = re.compile(
    r"read_|glob|sniff|getenv|setting|getvariable|nextval|currval|duckdb_|pragma_|^pg_|^query|parquet|serialize"
    r"|_scan|_log|logs?$|checkpoint|secret|copy|import|export|python|which|storage|schemas?$|_catalog|sql_"
    r"|test_|version|profil|set_|enable|disable|attach|load|install|extension|nanoarrow|file|http|variable"
)


def reaching_functions() -> list[str]:
    """Every function of DuckDB by whose name it may look beyond its arguments; ours of those names do not."""
    with duckdb.connect() as connection:
        names = connection.sql("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    found = sorted(name for (name,) in names if REACHING.search(name) and name.isidentifier())
    return [name for name in found if name not in function_names()]


def test_no_function_of_duckdb_that_reaches_out_can_be_called(session: Session, secret: Path) -> None:
    list(session.execute("CREATE TABLE t (k VARCHAR(100)) UNIQUE KEY(k)"))
    names = reaching_functions()
    assert len(names) > 60
    forms = ["SELECT {}()", "SELECT * FROM {}('%s')", "INSERT INTO t SELECT {}('%s')"]
    assert [name for name in names for form in forms if answers(session, form.format(name), secret)] == []


def answers(session: Session, text: str, secret: Path) -> bool:
    try:
        list(session.execute(text.replace("%s", str(secret))))
    except StoreError:
        return False
    return True


def test_text_in_quotes_stays_text(rows: Run) -> None:
    hostile = "x'); DROP TABLE t; --"
    escaped = hostile.replace("'", "''")
    assert rows(f'SELECT \'{escaped}\', "{hostile}" AS `a"b`') == [(hostile, hostile)]
    assert rows(f"SELECT concat('{escaped}', '\\\\') AS `{hostile}`") == [(hostile + "\\",)]


PIECES = [
    *(
        "a",
        "k",
        "t",
        "1",
        "'x'",
        "NULL",
        "*",
        "t.*",
        "q.k",
        "[1, 2]",
        "now()",
        "-a",
        "NOT k",
        "a + 1",
        "a / 0",
    ),
    *(
        "k = 1",
        "a IS NULL",
        "k IN (1, 2)",
        "a || k",
        "s LIKE 'x%'",
        "s -> '$.x'",
        "INTERVAL 1 DAY",
        "length(s)",
    ),
    *("count(*)", "sum(a)", "cast(a AS INT)", "CASE WHEN k = 1 THEN a END", "(SELECT max(k) FROM t)"),
    "date_add(s, INTERVAL 1 DAY)",
]


@settings(
    max_examples=by_form(60, 150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    items=some.lists(some.sampled_from(PIECES), min_size=1, max_size=3),
    where=some.sampled_from(PIECES),
    tail=some.sampled_from(
        ["", "GROUP BY k", "ORDER BY 1", "LIMIT 1", "GROUP BY 1 HAVING count(*) > 0", "LIMIT 1, 1"]
    ),
    source=some.sampled_from(
        ["t", "t q", "(SELECT k, a, s FROM t) q", "t JOIN t q ON t.k = q.k", "t LEFT JOIN t q USING (k)"]
    ),
)
def test_any_query_answers_or_fails_in_our_own_words(
    session: Session, items: list[str], where: str, tail: str, source: str
) -> None:
    setup = (
        "CREATE TABLE IF NOT EXISTS t (k INT, a INT NULL, s VARCHAR(9) NULL) UNIQUE KEY(k); "
        "INSERT INTO t VALUES (1, 2, 'x')"
    )
    list(session.execute(setup))
    text = f"SELECT {', '.join(items)} FROM {source} WHERE {where} {tail}"
    message = ""
    try:
        for statement in parse(text):
            session.run(statement)
    except StoreError as error:
        message = str(error)
    assert "__source_" not in message
    assert "\n" not in message


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "%"])
def test_long_arithmetic_is_bound_once(session: Session, operator: str) -> None:
    """Binding an operand for every type it may have doubled the time with every further one."""
    list(session.execute("CREATE TABLE t (k INT) UNIQUE KEY(k)"))
    (result,) = session.execute("SELECT " + f" {operator} ".join(["k"] * 200) + " FROM t")
    assert result.rows is not None


@pytest.mark.family(4)
@pytest.mark.parametrize(
    "nested",
    [
        "mid({}, 1)",
        "concat(substr({}, 1), 'a')",
        "sqrt({})",
        "conv({}, 10, 16)",
        "locate('1', {}, 1)",
        "from_unixtime({})",
        "({} BETWEEN 1 AND 5)",
        "({} NOT BETWEEN 1 AND 5)",
        "({} IN (1, 2))",
        "({} NOT IN (1, NULL))",
        "nullif({}, 1)",
        "(CASE {} WHEN 1 THEN 2 WHEN 3 THEN 4 ELSE 5 END)",
    ],
)
def test_what_binding_copies_nests_deeply(session: Session, nested: str) -> None:
    """Thirty BETWEEN took 22 GB, two CONV 17 s, and no interrupt ends the binding of a query."""
    list(session.execute("CREATE TABLE t (k INT) UNIQUE KEY(k)"))
    deep = "k"
    for _ in range(12):
        deep = nested.format(deep)
    for text in (f"SELECT {deep} FROM t", f"SELECT k FROM t WHERE {deep}", f"DELETE FROM t WHERE {deep}"):
        list(session.execute(text))


@pytest.mark.parametrize(
    "nested",
    ["(CASE k WHEN 1 THEN 2 ELSE {} END)", "(1 BETWEEN 0 AND {})", "(1 IN (2, {}))", "nullif(1, {})"],
)
def test_operands_that_are_bound_once_nest_deeply(session: Session, nested: str) -> None:
    list(session.execute("CREATE TABLE t (k INT) UNIQUE KEY(k)"))
    text = "k"
    for _ in range(12):
        text = nested.format(text)
    list(session.execute(f"SELECT {text} FROM t"))


@pytest.mark.parametrize("nested", ["if(k > 0, {}, 'b')", "date({})", "coalesce({}, 1)", "abs({})"])
def test_conversions_to_a_known_type_nest_deeply(session: Session, nested: str) -> None:
    """Such a call binds its argument once, so that its depth is not limited."""
    list(session.execute("CREATE TABLE t (k INT) UNIQUE KEY(k)"))
    text = "k"
    for _ in range(12):
        text = nested.format(text)
    list(session.execute(f"SELECT {text} FROM t"))
