"""Tables declared with `enable_unique_key_merge_on_write = false` behave as Doris's merge-on-read tables."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from seqstore import Session, Store
from seqstore.loaders.stream_load import stream_load
from seqstore.store.errors import InvalidInputError
from tests.support.statements import dicts, run

OFF = "'enable_unique_key_merge_on_write' = 'false'"
PARTIAL = "Only unique key merge on write support partial update"
pytestmark = pytest.mark.sql(
    f"CREATE TABLE t (k INT NOT NULL, v INT NULL, s INT NULL) UNIQUE KEY (k) PROPERTIES ({OFF});"
    "CREATE TABLE q (k INT NOT NULL, v INT NULL, s INT NULL) UNIQUE KEY (k) "
    f"PROPERTIES ({OFF}, 'function_column.sequence_col' = 's');"
    "INSERT INTO t VALUES (1, 10, 1), (2, 20, 1), (3, 30, 1);"
    "INSERT INTO q VALUES (1, 10, 9), (2, 20, 9), (3, 30, 9)"
)


def test_show_create_table_prints_the_declaration(session: Session) -> None:
    text = dicts(session, "SHOW CREATE TABLE t")[0]["Create Table"]
    assert '"enable_unique_key_merge_on_write" = "false"' in text
    run(session, text.replace("`t`", "`again`"))
    assert '"false"' in dicts(session, "SHOW CREATE TABLE again")[0]["Create Table"]


def test_conditions_on_values_are_tested_after_the_merge(session: Session) -> None:
    run(session, "INSERT INTO t VALUES (1, 99, 1); INSERT INTO q VALUES (1, 99, 1)")
    assert run(session, "SELECT k FROM t WHERE v = 10") == []
    assert run(session, "SELECT v FROM t WHERE k = 1") == [(99,)]
    assert run(session, "SELECT v FROM q WHERE k = 1") == [(10,)]


def test_the_variable_of_partial_updates_has_no_effect(session: Session) -> None:
    """P16: an INSERT with a column list writes whole rows."""
    run(session, "SET enable_unique_key_partial_update = true; INSERT INTO t (k, v) VALUES (1, 11)")
    assert run(session, "SELECT v, s FROM t WHERE k = 1") == [(11, None)]


@pytest.mark.parametrize("mode", ["UPDATE_FIXED_COLUMNS", "UPDATE_FLEXIBLE_COLUMNS"])
def test_partial_updates_are_refused(store: Store, session: Session, mode: str) -> None:
    """P1, by every door."""
    rows = pa.table({"k": [1], "v": [0]})
    table = store.table("db.t")
    with pytest.raises(InvalidInputError, match=PARTIAL):
        table.upsert(rows, mode=mode)
    with pytest.raises(InvalidInputError, match=PARTIAL):
        table.write_task(mode=mode)
    with store.transaction() as transaction, pytest.raises(InvalidInputError, match=PARTIAL):
        transaction.table("db.t").upsert(rows, mode=mode)
    headers = {"format": "json", "read_json_by_line": "true", "unique_key_update_mode": mode}
    reply = stream_load(store, "db", "t", io.BytesIO(b'{"k": 1, "v": 0}'), headers)
    assert PARTIAL in str(reply)
    assert run(session, "SELECT v FROM t WHERE k = 1") == [(10,)]


def test_features_of_merge_on_write_cannot_be_enabled(session: Session) -> None:
    """F3; the property itself is fixed."""
    with pytest.raises(InvalidInputError, match="only supported on merge-on-write unique tables"):
        run(session, "ALTER TABLE t ENABLE FEATURE 'UPDATE_FLEXIBLE_COLUMNS'")
    for change in ("SET ('enable_unique_key_merge_on_write' = 'true')",
                   "UNSET TBLPROPERTIES ('enable_unique_key_merge_on_write')"):  # fmt: skip
        with pytest.raises(InvalidInputError, match="can only be set by CREATE TABLE"):
            run(session, f"ALTER TABLE t {change}")


@pytest.mark.parametrize("where", ["k = 1", "k < 2", "k IN (1, 7)", "k BETWEEN 0 AND 1 AND k <> 2"])
def test_a_delete_by_key_columns_remembers_no_sequence(session: Session, where: str) -> None:
    """As in Doris: a predicate removes the rows of before, and a smaller sequence is visible afterwards."""
    run(session, f"DELETE FROM q WHERE {where}; INSERT INTO q VALUES (1, 77, 2)")
    assert run(session, "SELECT * FROM q") == [(1, 77, 2), (2, 20, 9), (3, 30, 9)]


@pytest.mark.parametrize("where", ["v = 10", "k + 0 = 1", "k IN (SELECT 1)", "k = 1 OR k = 1"])
def test_another_delete_writes_tombstones(session: Session, where: str) -> None:
    """Doris runs it as an INSERT of delete signs, which keep the sequence (D8)."""
    run(session, f"DELETE FROM q WHERE {where}; INSERT INTO q VALUES (1, 77, 2)")
    assert run(session, "SELECT k FROM q") == [(2,), (3,)]


def test_a_delete_returns_its_rows(session: Session) -> None:
    assert run(session, "DELETE FROM t WHERE k > 1").affected_rows == 2
    assert run(session, "DELETE FROM t WHERE k > 1").affected_rows == 0
    with pytest.raises(InvalidInputError, match="delete all rows is forbidden"):
        run(session, "DELETE FROM t WHERE 1 = 1")
    run(session, "BEGIN; DELETE FROM t WHERE k = 1; COMMIT")
    assert run(session, "SELECT * FROM t") == []


def test_update_and_merge_work(session: Session) -> None:
    run(session, "UPDATE t SET v = v + 1 WHERE k = 1")
    run(session, "MERGE INTO t USING (SELECT 2 AS k) n ON t.k = n.k WHEN MATCHED THEN UPDATE SET v = 0")
    assert run(session, "SELECT * FROM t") == [(1, 11, 1), (2, 0, 1), (3, 30, 1)]


def test_desc_names_the_aggregation_of_hidden_columns(session: Session) -> None:
    """T5."""
    rows = run(session, "SET show_hidden_columns = true; DESC q")
    assert {row[0]: row[5] for row in rows if row[0].startswith("__")} == {
        "__DORIS_DELETE_SIGN__": "REPLACE",
        "__DORIS_SEQUENCE_COL__": "REPLACE",
        "__DORIS_VERSION_COL__": "REPLACE",
    }
