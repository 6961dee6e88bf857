"""Statements of a great depth or length are refused in our own words, before they take long."""

from __future__ import annotations

import pytest

from seqstore import InvalidInputError, StoreError
from seqstore.store.sql import Session
from seqstore.store.sql.parse import nesting
from tests.weight import by_form

TERMS = by_form(8_000, 20_000)
_CTES = ", ".join(f"c{i} AS (SELECT * FROM {f'c{i - 1}' if i else 't'})" for i in range(600))
_DEEP = {
    "sum": "SELECT {sum} FROM t",
    "condition": "SELECT k FROM t WHERE {sum} > 1",
    "update": "UPDATE t SET v = {sum}",
    "delete": "DELETE FROM t WHERE {sum} = 1",
    "insert": "INSERT INTO t SELECT k, {sum} FROM t",
    "arguments": "SELECT concat({list}) FROM t",
    "union": " UNION ALL ".join(["SELECT k FROM t"] * 700),
    "queries": f"WITH {_CTES} SELECT * FROM c599",
    "view": "CREATE VIEW w AS SELECT {sum} AS n FROM t",
    "explain": "EXPLAIN SELECT {sum} FROM t",
}


@pytest.mark.family(3)
@pytest.mark.parametrize("name", _DEEP)
def test_statements_that_are_too_deep_are_refused(session: Session, name: str) -> None:
    """8,000 terms took a minute before DuckDB refused them; 600 queries of a UNION were a defect."""
    list(session.execute("CREATE TABLE t (k INT, v INT) UNIQUE KEY(k); INSERT INTO t VALUES (1, 2)"))
    text = _DEEP[name].replace("{sum}", "+".join(["v"] * TERMS)).replace("{list}", ", ".join(["v"] * 2_000))
    with pytest.raises(InvalidInputError, match="less deeply nested"):
        list(session.execute(text))
    [rows] = session.execute("SELECT * FROM t")
    assert rows.rows is not None
    assert rows.rows.to_pylist() == [{"k": 1, "v": 2}]


def test_the_log_names_the_calls_of_a_statement_that_is_too_deep_once(
    session: Session, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that is not nested would be a defect of ours."""
    monkeypatch.setattr(nesting, "_told", set())
    list(session.execute("CREATE TABLE t (k INT) UNIQUE KEY(k)"))
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="less deeply nested statement"):
            list(session.execute(_DEEP["union"]))
    [told] = [record.getMessage() for record in caplog.records if record.name.endswith("nesting")]
    assert told.startswith("a statement ended at the limit of nested calls, in ")
    assert 2 <= told.count(".py:") <= 8


def test_long_lists_of_conditions_are_no_depth(session: Session) -> None:
    list(session.execute("CREATE TABLE t (k INT, v INT) UNIQUE KEY(k); INSERT INTO t VALUES (1, 2)"))
    text = " OR ".join(f"v = {number}" for number in range(1_600))
    [found] = session.execute(f"SELECT k FROM t WHERE {text}")
    assert found.rows is not None
    assert found.rows.num_rows == 1


def test_a_long_translation_ends_at_its_timeout(session: Session) -> None:
    """No interrupt of DuckDB ended what Python did before it."""
    list(session.execute("CREATE TABLE t (k INT, v INT) UNIQUE KEY(k); SET query_timeout = 1"))
    text = " OR ".join(f"(k > 100 AND v = {number})" for number in range(4_000))
    with pytest.raises(StoreError, match="query timeout"):
        list(session.execute(f"SELECT k FROM t WHERE {text}"))
