"""Rejected rows in the history of a table: every kind of load counts them in the version that it makes."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import Settings, Store
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.loaders.stream_load import stream_load
from seqstore.store.sql import ServerContext, Session

pytestmark = pytest.mark.sql(
    "CREATE TABLE db.t (k INT NOT NULL, v INT NOT NULL) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)"
)

# Two rows are loaded, one has too few fields, one is rejected where columns are computed, one by NOT NULL.
BODY = "1,1\n2,2\n3\n4,x\n5,\\N\n"
HEADERS = {"column_separator": ",", "max_filter_ratio": "1", "strict_mode": "true"}


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    (tmp_path / "in").mkdir()
    return replace(settings, load_paths=(str(tmp_path / "in"),))


def by_stream(store: Store, folder: Path) -> None:
    assert stream_load(store, "db", "t", io.BytesIO(BODY.encode()), HEADERS)["NumberFilteredRows"] == 3


def by_two_phases(store: Store, folder: Path) -> None:
    with store.table("db.t").begin_load(label="two") as load:
        load.note_filtered(3)
        load.write(pa.table({"k": [1, 2], "v": [1, 2]}))
        load.precommit()
    store.commit_transaction("db", label="two")


def by_group(store: Store, folder: Path) -> None:
    headers = {**HEADERS, "group_commit": "sync_mode"}
    reply = stream_load(store, "db", "t", io.BytesIO(BODY.encode()), headers)
    assert (reply["Status"], reply["NumberFilteredRows"]) == ("Success", 3)
    assert reply["Label"].startswith("group_commit_")


def by_broker(store: Store, folder: Path) -> None:
    (folder / "a.csv").write_text(BODY)
    description = DataDescription("t", (f"{folder}/a.csv",), column_separator=",")
    properties = {"load_parallelism": "1", "max_filter_ratio": "1", "strict_mode": "true"}
    _, job = BrokerLoad(store, LoadSpec("db", "job", (description,), properties), [str(folder)]).run()
    assert (job.error, job.filtered) == ("", 3)


def by_routine(store: Store, folder: Path) -> None:
    (folder / "a.csv").write_text(BODY)
    with Session(store, "db", server=ServerContext(load_jobs=StoreLoadJobs(store))) as session:
        text = (
            "CREATE ROUTINE LOAD job ON t COLUMNS TERMINATED BY ',' PROPERTIES ('max_error_number' = '9', "
            f"'strict_mode' = 'true') FROM FILES ('path' = '{folder}/*.csv')"
        )
        list(session.execute(text))
    (job,) = RoutineRunner(store).drain().values()
    assert job.statistic.error_rows == 3


@pytest.mark.parametrize("load", [by_stream, by_two_phases, by_group, by_broker, by_routine])
def test_the_version_of_a_load_counts_its_rejected_rows(
    store: Store, tmp_path: Path, load: Callable[[Store, Path], None]
) -> None:
    load(store, tmp_path / "in")
    metrics = store.table("db.t").history()[-1].metrics
    assert (metrics.rows_total, metrics.rows_loaded, metrics.rows_filtered) == (5, 2, 3)
