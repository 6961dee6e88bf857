"""Names of tables where columns stand, and answers of an empty database or of plain text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqstore import InvalidInputError, Store
from seqstore.store.sql import Session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Store.open(tmp_path / "data") as store, Session(store) as session:
        list(
            session.execute(
                "CREATE DATABASE empty; CREATE DATABASE d; USE d;"
                "CREATE TABLE t (k INT, v STRING) UNIQUE KEY(k);"
                "CREATE TABLE u (u INT, w STRING) UNIQUE KEY(u);"
                "INSERT INTO t VALUES (1, 'a'); INSERT INTO u VALUES (2, 'b')"
            )
        )
        yield session


def rows(session: Session, text: str) -> list[tuple[Any, ...]]:
    result = list(session.execute(text))[-1].rows
    return [tuple(row.values()) for row in result.to_pylist()] if result is not None else []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT t FROM t",
        "SELECT T FROM t",
        "SELECT x FROM t x",
        "SELECT t.k, t FROM t",
        "SELECT count(t) FROM t",
        "SELECT k FROM t WHERE t IS NOT NULL",
        "SELECT k FROM t ORDER BY t",
        "SELECT t FROM t JOIN u ON k = u",
        "SELECT s FROM (SELECT k FROM t) s",
        "SELECT k FROM t WHERE k IN (SELECT t FROM u WHERE u > 0)",
        "SELECT a FROM (SELECT t AS a FROM t) s",
    ],
)
def test_the_name_of_a_table_is_no_column(session: Session, text: str) -> None:
    """DuckDB returned the row as a struct, of those columns that the query happened to read."""
    with pytest.raises(InvalidInputError, match="unknown column") as refused:
        rows(session, text)
    assert refused.value.kind == "unknown_column"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT u FROM u", [(2,)]),
        ("SELECT t FROM (SELECT k AS t FROM t) t", [(1,)]),
        ("SELECT v AS t FROM t ORDER BY t", [("a",)]),
        ("SELECT (SELECT max(u) FROM t) FROM u", [(2,)]),
        ("SELECT w FROM u t JOIN (SELECT 2 AS t) s ON t = t.u", [("b",)]),
        ("WITH t AS (SELECT 5 AS t) SELECT t FROM t", [(5,)]),
        ("SELECT d.t.k, t.v FROM t", [(1, "a")]),
    ],
)
def test_a_column_with_the_name_of_a_table_is_a_column(
    session: Session, text: str, expected: list[tuple[Any, ...]]
) -> None:
    assert rows(session, text) == expected


def test_the_status_of_the_tables_of_an_empty_database_is_an_empty_list(session: Session) -> None:
    """An empty list of flags has no type, and the statement failed with an error of Arrow."""
    assert rows(session, "SHOW TABLE STATUS FROM empty") == []
    assert rows(session, "SHOW TABLE STATUS FROM d LIKE 'none'") == []
    assert [row[0] for row in rows(session, "SHOW TABLE STATUS FROM d")] == ["t", "u"]


def test_base64_takes_text_and_numbers_and_returns_text(session: Session) -> None:
    text = "SELECT to_base64('x'), to_base64('\u00fc'), to_base64(12), to_base64(NULL), to_base64(v) FROM t"
    assert rows(session, text) == [("eA==", "w7w=", "MTI=", None, "YQ==")]
    assert rows(session, "SELECT from_base64('eA=='), from_base64('?')") == [("x", None)]


@pytest.mark.parametrize("label", ["a b", "a/b", "\u00fcber", "a.b", "x" * 129])
def test_labels_of_statements_are_those_of_http(session: Session, label: str) -> None:
    """SQL accepted labels that no stream load can ask for."""
    for text in (
        f"INSERT INTO t WITH LABEL `{label}` VALUES (3, 'c')",
        f"BEGIN WITH LABEL `{label}`",
        f"LOAD LABEL d.`{label}` (DATA INFILE('/x') INTO TABLE t)",
    ):
        with pytest.raises(InvalidInputError, match="Label format error"):
            rows(session, text)
    rows(session, "INSERT INTO t WITH LABEL `a-B_1:2` VALUES (3, 'c')")
