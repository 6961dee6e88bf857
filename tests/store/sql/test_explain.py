"""EXPLAIN of writes leaves nothing behind and tells nothing to who may not write."""

from __future__ import annotations

import pytest

from seqstore import AccessDeniedError, Store
from seqstore.store.sql import Session

_WRITES = (
    "UPDATE t SET v = v + 1 WHERE k = 1",
    "DELETE FROM t WHERE v > 0",
    "MERGE INTO t USING (SELECT 1 k, 7 v) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v "
    "WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.v)",
    "INSERT INTO t SELECT k + 10, v FROM t",
    "INSERT OVERWRITE TABLE t VALUES (8, 8)",
)


@pytest.fixture
def root(store: Store) -> Session:
    opened = Session(store)
    run(opened, "CREATE DATABASE d; USE d; CREATE TABLE t (k INT, v INT) UNIQUE KEY(k)")
    run(opened, "INSERT INTO t VALUES (1, 1), (2, 2); CREATE USER eve IDENTIFIED BY 'x'")
    return opened


def run(session: Session, text: str) -> list[str]:
    lines: list[str] = []
    for result in session.execute(text):
        lines = [str(next(iter(row.values()))) for row in result.rows.to_pylist()] if result.rows else []
    return lines


@pytest.mark.parametrize("text", _WRITES)
def test_nothing_is_written_and_no_transaction_begun(root: Session, text: str) -> None:
    table = root.store.table("d.t")
    before = table.snapshot().version
    with root.store.catalog.read() as tx:
        transactions = len(list(tx.items("txns")))
    lines = run(root, f"EXPLAIN {text}")
    assert lines[0].startswith("WRITE d.t")
    assert table.snapshot().version == before
    with root.store.catalog.read() as tx:
        assert len(list(tx.items("txns"))) == transactions
    run(root, text)
    assert table.snapshot().version == before + 1


@pytest.mark.parametrize("text", _WRITES)
def test_who_may_not_write_is_not_told(root: Session, text: str) -> None:
    root.store.accounts.grant("eve", ["SELECT"], "d")
    with Session(root.store, "d", user="eve") as eve, pytest.raises(AccessDeniedError):
        run(eve, f"EXPLAIN {text}")


@pytest.mark.parametrize(
    "literal",
    ["'x'", "''", r"'a\0b'", "5", "007", "2147483647", "2147483648", "9223372036854775807", "-5",
     "-2147483648", "-3000000000", "NULL", "true", "FALSE", "9223372036854775808 > 0", "1.5", "(5)"],
)  # fmt: skip
def test_a_literal_of_the_scan_alone_is_that_of_duckdb(root: Session, literal: str) -> None:
    """Type and value; the second query has a clause that only DuckDB evaluates."""
    (alone,) = root.execute(f"SELECT k, {literal} FROM t WHERE k = 2")
    (evaluated,) = root.execute(f"SELECT k, {literal} FROM t WHERE k = 2 ORDER BY k")
    assert alone.rows is not None
    assert evaluated.rows is not None
    assert alone.rows.schema == evaluated.rows.schema
    assert alone.rows.to_pylist() == evaluated.rows.to_pylist()


def test_an_update_of_one_key_by_literals_needs_no_duckdb(root: Session) -> None:
    """The rows to write are computed by a query, which went through DuckDB for the literal alone."""
    lines = run(root, "EXPLAIN UPDATE t SET v = 7 WHERE k = 2")
    assert "EVALUATED BY the scan alone" in lines
    assert "EVALUATED BY DuckDB" in run(root, "EXPLAIN UPDATE t SET v = v + 7 WHERE k = 2")
    run(root, "UPDATE t SET v = 7 WHERE k = 2; UPDATE t SET v = NULL WHERE k = 1")
    (result,) = root.execute("SELECT * FROM t ORDER BY k")
    assert result.rows is not None
    assert result.rows.to_pylist() == [{"k": 1, "v": None}, {"k": 2, "v": 7}]
