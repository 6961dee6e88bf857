"""OPTIMIZE, REORG, VACUUM, RESTORE, DESCRIBE HISTORY, time travel, table_changes and key_history in SQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from seqstore import InvalidInputError, UnavailableError, VersionExpiredError
from seqstore.store.sql import Session
from tests.support.statements import dicts

TABLE = """
CREATE TABLE t (k INT, v INT, w VARCHAR(10)) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b');
INSERT INTO t VALUES (2, 21, 'c'), (3, 30, 'd');
INSERT INTO t (k, v, w, __DORIS_DELETE_SIGN__) VALUES (1, 0, '', 1)
"""
pytestmark = pytest.mark.sql(TABLE)


def test_optimize_says_what_it_did(session: Session) -> None:
    before = dicts(session, "SELECT * FROM t ORDER BY k")
    (line,) = dicts(session, "OPTIMIZE TABLE t")
    assert (line["version"], line["segments_before"], line["segments_after"]) == (5, 3, 1)
    assert dicts(session, "SELECT * FROM t ORDER BY k") == before
    assert dicts(session, "OPTIMIZE db.t")[0]["segments_before"] == 0
    assert dicts(session, "OPTIMIZE t WHERE k BETWEEN 1 AND 9 ZORDER BY (v, w)")[0]["version"] == 6
    assert dicts(session, "OPTIMIZE t FULL")[0]["version"] == 7
    with pytest.raises(InvalidInputError, match="comparisons of a column"):
        dicts(session, "OPTIMIZE t WHERE k + 1 = 2")


def test_optimize_has_one_property_the_engine(session: Session) -> None:
    """Spark runs where something runs load jobs: tests/loaders/spark/test_optimize.py."""
    text = "OPTIMIZE t FULL WHERE k > 0 PROPERTIES ('engine' = '{}')"
    assert dicts(session, text.format("local"))[0]["segments_before"] == 3
    with pytest.raises(UnavailableError, match="OPTIMIZE with engine spark is understood"):
        dicts(session, text.format("spark"))
    with pytest.raises(InvalidInputError, match="expected local or spark, found 'flink'"):
        dicts(session, text.format("flink"))
    with pytest.raises(InvalidInputError, match="the property engine, and no 'motor'"):
        dicts(session, "OPTIMIZE t PROPERTIES ('motor' = 'spark')")


def test_reorg_purge(session: Session) -> None:
    assert dicts(session, "REORG TABLE t APPLY (PURGE)")[0]["rows_removed"] == 2
    assert dicts(session, "REORG TABLE t APPLY (PURGE)")[0]["segments_before"] == 0


def test_vacuum_and_versions_that_are_gone(session: Session) -> None:
    assert dicts(session, "VACUUM t DRY RUN")[0]["oldest_version"] == 1
    (line,) = dicts(session, "VACUUM RETAIN 0 HOURS")
    assert (line["table"], line["oldest_version"], line["versions"]) == ("db.t", 4, 3)
    with pytest.raises(VersionExpiredError, match="the table has versions 4 to 4"):
        dicts(session, "SELECT * FROM t FOR VERSION AS OF 2")


def test_time_travel(session: Session) -> None:
    moments = [info.timestamp for info in session.store.table("db.t").history()]
    assert dicts(session, "SELECT v FROM t FOR VERSION AS OF 2 WHERE k = 2") == [{"v": 20}]
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert dicts(session, f"SELECT v FROM t FOR TIME AS OF '{later}' WHERE k = 2") == [{"v": 21}]
    dicts(session, "SET time_zone = '+08:00'")
    local = (moments[-1] + timedelta(hours=8, seconds=5)).replace(tzinfo=None)
    assert len(dicts(session, f"SELECT * FROM t FOR TIME AS OF '{local}'")) == 2
    with pytest.raises(VersionExpiredError):
        dicts(session, "SELECT * FROM t FOR TIME AS OF '2001-01-01 00:00:00'")
    with pytest.raises(InvalidInputError, match="FOR TIME AS OF and a time"):
        dicts(session, "SELECT * FROM t FOR TIME AS OF 'yesterday'")


def test_restore(session: Session) -> None:
    assert dicts(session, "RESTORE TABLE t TO VERSION AS OF 2") == [{"version": 5}]
    assert dicts(session, "SELECT k, v FROM t ORDER BY k") == [{"k": 1, "v": 10}, {"k": 2, "v": 20}]
    assert dicts(session, "RESTORE TABLE db.t TO VERSION 4") == [{"version": 6}]
    assert dicts(session, "SELECT k FROM t ORDER BY k") == [{"k": 2}, {"k": 3}]


def test_describe_history_is_newest_first(session: Session) -> None:
    dicts(session, "OPTIMIZE t")
    lines = dicts(session, "DESCRIBE HISTORY t")
    assert [line["version"] for line in lines] == [5, 4, 3, 2, 1]
    assert [line["operation"] for line in lines][::4] == ["OPTIMIZE", "CREATE TABLE"]
    assert [line["data_change"] for line in lines][:2] == [False, True]
    assert (lines[2]["rows_loaded"], lines[2]["rows_replaced"]) == (2, 1)
    assert len(dicts(session, "DESC HISTORY db.t LIMIT 2")) == 2


def test_table_changes(session: Session) -> None:
    dicts(session, "OPTIMIZE t")
    query = (
        "SELECT _commit_version, _change_type, k, v FROM table_changes('db.t', 3, 5) c "
        "ORDER BY _commit_version, k, _change_type"
    )
    assert [tuple(row.values()) for row in dicts(session, query)] == [
        (3, "+U", 2, 21),
        (3, "-U", 2, 20),
        (3, "+I", 3, 30),
        (4, "-D", 1, 10),
    ]
    assert dicts(session, "SELECT count(*) n FROM table_changes('t', 2)") == [{"n": 6}]
    assert dicts(session, "SELECT k FROM table_changes('db.t', 2) WHERE _change_type = '-D'") == [{"k": 1}]
    assert len(dicts(session, "SELECT * FROM table_changes('db.t', 4)")[0]) == 6
    for wrong in (
        "table_changes()",
        "table_changes('db.t')",
        "table_changes('db.t', 'x')",
        "other('db.t', 1)",
    ):
        with pytest.raises(InvalidInputError):
            dicts(session, f"SELECT * FROM {wrong}")


def test_key_history(session: Session) -> None:
    lines = dicts(session, "SELECT version, outcome, until_version, explanation FROM key_history('db.t', 2)")
    assert lines == [
        {
            "version": 2,
            "outcome": "replaced",
            "until_version": 3,
            "explanation": "replaced by version 3 (later version)",
        },
        {"version": 3, "outcome": "live", "until_version": None, "explanation": "counts"},
    ]
    with pytest.raises(InvalidInputError, match="found 2 key values"):
        dicts(session, "SELECT * FROM key_history('db.t', 1, 2)")
