"""Broker load from a bucket of a real server: patterns, formats, the allow-list, both engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from loaders.broker.job import CANCELLED, FINISHED, LoadJob
from loaders.broker.run import BrokerLoad
from loaders.broker.statements import spec_of
from store import Store
from store.sql import Session
from store.sql.load_jobs import LoadLabel
from store.sql.parser import parse
from tests.support.object_store import WEED, object_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(not WEED.exists(), reason="needs the object store of the extra test")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URI of a folder with two days of CSV, one of them packed, and a Parquet file beside them."""
    with object_store(tmp_path_factory.mktemp("weed")) as uri:
        filesystem, root = pafs.FileSystem.from_uri(uri.format("in"))
        for day in (1, 2):
            with filesystem.open_output_stream(f"{root}/day={day}/a.csv") as file:
                file.write(f"{day},a\n{day + 10},b\nbad,c\n".encode())
        with filesystem.open_output_stream(f"{root}/day=2/b.csv.gz", compression="gzip") as file:
            file.write(b"30,packed\n")
        pq.write_table(pa.table({"k": [40], "v": ["parquet"]}), f"{root}/rows.parquet", filesystem=filesystem)
        yield uri.format("in")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data") as opened:
        list(
            Session(opened).execute(
                "CREATE DATABASE db; CREATE TABLE db.t (k BIGINT, v VARCHAR(10) NULL, day INT NULL) "
                "UNIQUE KEY (k) DISTRIBUTED BY HASH (k)"
            )
        )
        yield opened


def endpoint(bucket: str) -> str:
    return parse_qs(urlsplit(bucket).query)["endpoint_override"][0]


def load(store: Store, bucket: str, engine: str, allowed: str, **more: Any) -> LoadJob:
    """The statement as Doris writes it."""
    (statement,) = parse(
        f"""LOAD LABEL db.job (
            DATA INFILE ("s3://tests/in/day=*/*") INTO TABLE t COLUMNS TERMINATED BY "," (k, v)
            COLUMNS FROM PATH AS (day),
            DATA INFILE ("s3://tests/in/rows.parquet") INTO TABLE t FORMAT AS "parquet" (k, v)
        ) WITH S3 ("s3.endpoint" = "http://{endpoint(bucket)}", "s3.region" = "us-east-1",
            "s3.access_key" = "any", "s3.secret_key" = "{more.get("secret", "any")}")
        PROPERTIES ("max_filter_ratio" = "0.5", "engine" = "{engine}", "load_parallelism" = "1")"""
    )
    assert isinstance(statement, LoadLabel)
    return BrokerLoad(store, spec_of(statement, "db"), [allowed]).run()[1]


def assert_loaded(store: Store, job: LoadJob) -> None:
    assert (job.state, job.error, job.files, job.loaded, job.filtered) == (FINISHED, "", 4, 6, 2)
    rows = store.table("db.t").scan().read_all().to_pylist()
    assert sorted((row["k"], row["v"], row["day"]) for row in rows) == [
        (1, "a", 1),
        (2, "a", 2),
        (11, "b", 1),
        (12, "b", 2),
        (30, "packed", 2),
        (40, "parquet", None),
    ]
    log = Path(job.url).read_text()
    assert "line 3: Reason: s3://tests/in/day=1/a.csv: " in log
    assert "any@" not in log


def test_objects_are_loaded_by_patterns_and_their_paths(store: Store, bucket: str) -> None:
    allowed = f"s3://tests/in?endpoint_override={endpoint(bucket)}"
    assert_loaded(store, load(store, bucket, "local", allowed))


@pytest.mark.spark
def test_executors_read_objects_too(spark: SparkSession, store: Store, bucket: str) -> None:
    allowed = f"s3://tests?endpoint_override={endpoint(bucket)}"
    assert_loaded(store, load(store, bucket, "spark", allowed))


@pytest.mark.parametrize(
    ("allowed", "secret", "message"),
    [
        (
            "s3://tests/other?endpoint_override={}",
            "any",
            "not below a directory or bucket that loads may read",
        ),
        ("s3://tests/in", "any", "with ?endpoint_override="),
        ("s3://tests/in?endpoint_override={}", "wrong-key", "s3://tests/in/day=*/*: cannot be listed"),
    ],
    ids=["another folder", "another server", "wrong key"],
)
def test_what_may_not_be_read_is_refused_without_telling_the_key(
    store: Store, bucket: str, allowed: str, secret: str, message: str
) -> None:
    job = load(store, bucket, "local", allowed.format(endpoint(bucket)), secret=secret)
    assert job.state == CANCELLED
    assert message in job.error
    assert "wrong-key" not in job.error
    assert "any@" not in job.error
