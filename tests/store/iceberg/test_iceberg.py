"""UPGRADE UNIFORM: what an Iceberg reader finds, and what it does not."""

from __future__ import annotations

import importlib.util
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.statements import dicts

pytest.importorskip("pyiceberg")

from pyiceberg.expressions import EqualTo, GreaterThan
from pyiceberg.table import StaticTable

from seqstore import InvalidInputError, ProtocolChangedException, UnavailableError
from seqstore.store.iceberg.uniform import upgrade_uniform
from seqstore.store.sql import Session
from tests.support.lake.iceberg_reader import static_table

_UPGRADE = "REORG TABLE t APPLY (UPGRADE UNIFORM(ICEBERG_COMPAT_VERSION=2))"


def reader(line: dict[str, Any]) -> StaticTable:
    """Finds a table as readers without a catalog do: by its directory."""
    return static_table(Path(line["metadata"]).parents[1])


def rows(line: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(reader(line).scan().to_arrow().to_pylist(), key=lambda row: str(row["k"]))


@pytest.mark.parametrize("storage", ["arrow", "parquet"])
def test_an_iceberg_reader_reads_the_rows_that_count(session: Session, storage: str) -> None:
    dicts(
        session,
        "CREATE TABLE t (k INT NOT NULL, b BOOLEAN NULL, i TINYINT NULL, g BIGINT NULL, d DECIMAL(9,2) NULL, "
        "f DOUBLE NULL, a DATE NULL, m DATETIME(6) NULL, s VARCHAR(9) NULL, l ARRAY<SMALLINT> NULL, "
        "p MAP<STRING,INT> NULL, r STRUCT<x:INT,y:ARRAY<STRING>> NULL) UNIQUE KEY(k) "
        f"PROPERTIES ('storage_format' = '{storage}')",
    )
    dicts(
        session,
        "INSERT INTO t VALUES (1, true, -3, 5000000000, 1.25, 0.5, '2024-05-01', "
        "'2024-05-01 10:00:00.123456', 'one', '[1,2]', '{\"a\":1}', '{\"x\":1,\"y\":[\"z\"]}')",
    )
    dicts(session, "INSERT INTO t (k, s) VALUES (2, 'two'), (3, 'three'), (4, 'four')")
    dicts(session, "DELETE FROM t WHERE k = 3")
    dicts(session, "UPDATE t SET s = 'TWO' WHERE k = 2")
    dicts(session, "ALTER TABLE t RENAME COLUMN s text")
    dicts(session, "ALTER TABLE t ADD COLUMN n INT NOT NULL DEFAULT '7'")
    (line,) = dicts(session, _UPGRADE)
    stored = dicts(session, "SELECT * FROM t ORDER BY k")
    found = rows(line)
    assert [row["k"] for row in found] == [1, 2, 4]
    assert found == stored
    assert (line["rows"], line["version"]) == (3, session.store.table("db.t").snapshot().version)
    table = reader(line)
    assert table.schema().identifier_field_names() == {"k"}
    assert table.scan(row_filter=EqualTo("text", "TWO")).to_arrow().column("k").to_pylist() == [2]
    assert table.scan(row_filter=GreaterThan("k", 9)).to_arrow().num_rows == 0


def test_times_beyond_pythons_and_texts_cut_in_their_bounds_are_read(session: Session) -> None:
    dicts(session, "CREATE TABLE t (k INT, d DATE NULL, m DATETIME(3) NULL, s STRING NULL) UNIQUE KEY(k)")
    text = "ä" * 40
    dicts(
        session,
        f"INSERT INTO t VALUES (1, '0000-01-01', '0000-01-01 00:00:00', '{text}'), "
        "(2, '9999-12-31', '9999-12-31 23:59:59.999', '')",
    )
    (line,) = dicts(session, _UPGRADE)
    found = reader(line).scan().to_arrow().sort_by("k")
    stored = session.store.table("db.t").snapshot().scan().read_all().sort_by("k")
    assert found.column("d").cast(pa.int32()).equals(stored.column("d").cast(pa.int32()))
    assert found.column("m").cast(pa.int64()).equals(stored.column("m").cast(pa.int64()))
    assert reader(line).scan(row_filter=EqualTo("s", text)).to_arrow().column("k").to_pylist() == [1]


def test_history_tells_of_an_upgrade(session: Session) -> None:
    dicts(session, "CREATE TABLE t (k INT, v INT) UNIQUE KEY(k)")
    dicts(session, _UPGRADE)
    assert dicts(session, "DESCRIBE HISTORY t")[0]["operation"] == "REORG TABLE UPGRADE UNIFORM"


def test_later_versions_are_shown_by_the_next_upgrade(session: Session) -> None:
    dicts(session, "CREATE TABLE t (k INT, v INT) UNIQUE KEY(k)")
    dicts(session, "INSERT INTO t VALUES (1, 1), (2, 2)")
    (first,) = dicts(session, _UPGRADE)
    before = reader(first)
    dicts(session, "INSERT INTO t VALUES (2, 3), (4, 4)")
    dicts(session, "OPTIMIZE TABLE t FULL")
    dicts(session, "VACUUM t RETAIN 0 HOURS")
    assert [row["v"] for row in rows(first)] == [1, 2]
    (second,) = dicts(session, _UPGRADE)
    assert [row["v"] for row in rows(second)] == [1, 3, 4]
    assert before.scan().to_arrow().num_rows == 2, "who reads the version before may finish"
    dicts(session, _UPGRADE)
    names = {path.name.split("-")[0] for path in Path(second["metadata"]).parent.parent.glob("data/*")}
    assert names == {f"v{second['version']}", f"v{reader(second).current_snapshot().snapshot_id}"}


def test_many_rows_fill_several_files(session: Session) -> None:
    dicts(session, "CREATE TABLE t (k BIGINT, v BIGINT) UNIQUE KEY(k)")
    keys = pa.array(range(1_300_000), pa.int64())
    session.store.table("db.t").upsert(pa.table({"k": keys, "v": keys}))
    table = session.store.table("db.t")
    written = upgrade_uniform(table, session.store.opener.of(table), 2)
    assert written.files > 1
    table = StaticTable.from_metadata(str(written.metadata))
    assert table.scan(selected_fields=("k",)).to_arrow().num_rows == 1_300_000
    assert table.scan(row_filter=EqualTo("k", 1_299_999)).to_arrow().column("v").to_pylist() == [1_299_999]


def test_an_empty_table_is_an_empty_table(session: Session) -> None:
    dicts(session, "CREATE TABLE t (k INT, v INT) UNIQUE KEY(k)")
    (line,) = dicts(session, _UPGRADE)
    assert (line["files"], rows(line)) == (0, [])


@pytest.mark.parametrize(
    ("column", "compatibility", "message"),
    [
        ("v LARGEINT", 2, "column 'v' is LARGEINT: Iceberg's numbers have at most 38 digits"),
        ("v ARRAY<LARGEINT>", 2, "at most 38 digits"),
        ("v ARRAY<INT>", 1, "1 has no nested types"),
        ("v INT", 3, "expected 1 or 2, found 3"),
    ],
)
def test_what_iceberg_cannot_hold_is_refused_before_anything_is_done(
    session: Session, column: str, compatibility: int, message: str
) -> None:
    dicts(session, f"CREATE TABLE t (k INT, {column}) UNIQUE KEY(k)")
    table = session.store.table("db.t")
    before = table.snapshot().version
    with pytest.raises(InvalidInputError, match=message):
        dicts(session, f"REORG TABLE t APPLY (UPGRADE UNIFORM(ICEBERG_COMPAT_VERSION={compatibility}))")
    assert table.snapshot().version == before
    assert not (session.store.path / "iceberg").exists()


def test_without_the_package_nothing_is_done(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    dicts(session, "CREATE TABLE t (k INT, v INT) UNIQUE KEY(k)")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'seqstore\[iceberg\]'"):
        dicts(session, _UPGRADE)
    assert session.store.table("db.t").snapshot().version == 1


def test_a_transaction_that_began_before_meets_a_changed_protocol(session: Session) -> None:
    dicts(session, "CREATE TABLE t (k INT, v INT) UNIQUE KEY(k)")
    dicts(session, "BEGIN")
    dicts(session, "INSERT INTO t VALUES (1, 1)")
    dicts(Session(session.store, "db"), _UPGRADE)
    with pytest.raises(ProtocolChangedException):
        dicts(session, "COMMIT")


def test_the_feature_is_listed_and_the_files_go_with_the_table(session: Session) -> None:
    dicts(session, "CREATE TABLE t (k INT, v INT) UNIQUE KEY(k)")
    dicts(session, _UPGRADE.replace("2))", "1))"))
    (line,) = dicts(session, _UPGRADE)
    assert session.store.table("db.t").schema.features[-1:] == ("icebergCompatV2",)
    assert "icebergCompatV1" not in session.store.table("db.t").schema.features
    assert json.loads(Path(line["metadata"]).read_text())["format-version"] == 2
    dicts(session, "ALTER TABLE t DROP FEATURE icebergCompatV2")
    assert "icebergCompatV2" not in session.store.table("db.t").schema.features
    dicts(session, "DROP TABLE t")
    assert not Path(line["metadata"]).exists()


@pytest.mark.skipif(version("pyiceberg").startswith("0.10."), reason="0.10 reads no deletion vectors")
def test_an_open_table_is_shown_and_not_copied(session: Session) -> None:
    dicts(
        session,
        "CREATE TABLE t (k INT, v INT) UNIQUE KEY(k) PROPERTIES ("
        "'delta.universalFormat.enabledFormats' = 'iceberg', 'open_every_seconds' = '3600')",
    )
    dicts(session, "INSERT INTO t VALUES (1, 1), (2, 2)")
    dicts(session, "INSERT INTO t VALUES (2, 3)")
    (line,) = dicts(session, _UPGRADE)
    table = session.store.table("db.t")
    assert (line["version"], line["rows"]) == (table.version, 2)
    assert rows(line) == [{"k": 1, "v": 1}, {"k": 2, "v": 3}]
    assert Path(line["metadata"]).parents[1] == session.store.path / table.loader.directory
    assert not (session.store.path / "iceberg").exists()
