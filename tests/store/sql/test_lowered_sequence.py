"""U14 within a transaction: an update that lowers the sequence loses, and whoever commits is told."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

from seqstore.store.sql import Session
from tests.support.statements import dicts, last_result

TABLES = """
CREATE TABLE t (k INT NOT NULL, a INT NULL, ts INT NULL) UNIQUE KEY(k)
    PROPERTIES("function_column.sequence_col" = "ts");
INSERT INTO t VALUES (1, 10, 5), (2, 20, 5);
CREATE TABLE g (k INT NOT NULL, a INT NULL, ts INT NULL) UNIQUE KEY(k)
    PROPERTIES("sequence_mapping.ts" = "a");
INSERT INTO g VALUES (1, 10, 5);
"""
REST = "keep their values: the assigned sequence is smaller than the stored one, so the stored row wins"


pytestmark = pytest.mark.sql(TABLES)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("UPDATE t SET ts = 4 WHERE k = 1", [f"1 of 1 rows written to db.t {REST}"]),
        ("UPDATE t SET ts = NULL WHERE k = 1", [f"1 of 1 rows written to db.t {REST}"]),
        ("UPDATE t SET ts = 3 + k, a = 0", [f"1 of 2 rows written to db.t {REST}"]),
        ("UPDATE t SET ts = 5 WHERE k = 1", []),
        ("UPDATE t SET a = 0 WHERE k = 1", []),
        ("DELETE FROM t WHERE k = 1", []),
        ("UPDATE g SET ts = 4 WHERE k = 1", [f"1 of 1 rows written to db.g {REST}"]),
        ("UPDATE t SET ts = 4 WHERE k = 1; UPDATE g SET ts = 4", [f"db.t {REST}", f"db.g {REST}"]),
        (
            "MERGE INTO t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET ts = 4",
            [f"1 of 1 rows written to db.t {REST}"],
        ),
        ("INSERT INTO t VALUES (1, 0, 4)", []),  # a load that comes late is no update
    ],
)
def test_a_commit_tells_of_updates_that_took_no_effect(session: Session, said: str, told: list[str]) -> None:
    """U14"""
    warnings = last_result(session, f"BEGIN; {said}; COMMIT").warnings
    assert len(warnings) == len(told)
    assert all(text in warning for text, warning in zip(told, warnings, strict=True))


def test_show_warnings_repeats_what_the_commit_told(session: Session) -> None:
    """U14"""
    last_result(session, "BEGIN; UPDATE t SET ts = 4 WHERE k = 1; COMMIT")
    shown = [line["Message"] for line in dicts(session, "SHOW WARNINGS")]
    assert shown == [f"1 of 1 rows written to db.t {REST}"]


def test_the_result_of_a_transaction_tells_of_updates_that_took_no_effect(session: Session) -> None:
    """U14"""
    transaction = session.store.transaction()
    transaction.table("db.t").update({"ts": 4}, pc.field("k") == 1)
    assert transaction.commit().warnings == (f"1 of 1 rows written to db.t {REST}",)
