"""Broker load from a bucket of a real server: patterns, formats, the allow-list, both engines."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from seqstore import AccessDeniedError, Store
from seqstore.loaders.broker.files import find_files
from seqstore.loaders.broker.job import FINISHED, LoadJob
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.broker.statements import spec_of
from seqstore.store.catalog.job_record import CANCELLED
from seqstore.store.sql.parse.load_jobs import LoadLabel
from seqstore.store.sql.session.statement_kind import parse
from tests.support.object_store import WEED, object_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = """
CREATE TABLE t (k BIGINT NOT NULL, v VARCHAR(10) NULL, day INT NULL) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)
"""
pytestmark = [
    pytest.mark.skipif(not WEED.exists(), reason="needs the object store of the extra test"),
    pytest.mark.sql(TABLE),
]


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


@pytest.mark.long
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


CITIES = ("a%3Ab", "a b", "Köln", "K%C3%B6ln", "a+b", "a#b", "100%", "[x]", "a&b", "q?z", "q?z=1")


@pytest.fixture(scope="module")
def cities(bucket: str) -> str:
    """URI of a folder with a file a city, whose names Hive would write and URIs have other uses for."""
    filesystem, root = pafs.FileSystem.from_uri(bucket)
    for number, city in enumerate(CITIES):
        with filesystem.open_output_stream(f"{root}/cities/v={city}/a.csv") as file:
            file.write(f"{number}\n".encode())
    return below(bucket, "cities")


def below(bucket: str, path: str) -> str:
    plain, _, query = bucket.partition("?")
    return f"{plain}/{path}?{query}"


def names(pattern: str, *allowed: str) -> list[str]:
    found = find_files(DataDescription("t", (pattern,)), allowed)
    return [file.name.removeprefix("s3://tests/in/") for file in found]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_keys_are_taken_as_the_server_lists_them(store: Store, cities: str, processes: str) -> None:
    described = DataDescription(
        "t", (below(cities, "*/a.csv"),), column_separator=",", columns=("k",), columns_from_path=("v",)
    )
    spec = LoadSpec("db", "job", (described,), {"load_parallelism": processes})
    job = BrokerLoad(store, spec, [cities]).run()[1]
    assert (job.state, job.error, job.loaded) == (FINISHED, "", len(CITIES))
    rows = store.table("db.t").scan().read_all().to_pylist()
    assert {row["k"]: row["v"] for row in rows} == dict(enumerate(CITIES))


@pytest.mark.parametrize("city", CITIES)
def test_a_key_can_be_named(cities: str, city: str) -> None:
    """As it is, even where it looks like a pattern; it travels to other processes."""
    (file,) = find_files(DataDescription("t", (below(cities, f"v={city}/a.csv"),)), [cities])
    assert file.name == f"s3://tests/in/cities/v={city}/a.csv"
    assert "any@" not in repr(file)
    with pickle.loads(pickle.dumps(file)).open() as opened:
        assert opened.read() == f"{CITIES.index(city)}\n".encode()


def test_escapes_lead_to_no_other_folder(store: Store, bucket: str) -> None:
    filesystem, root = pafs.FileSystem.from_uri(bucket)
    with filesystem.open_output_stream(root.replace("in", "out/x.csv")) as file:
        file.write(b"1,secret\n")
    for path in ("%2E%2E/out/x.csv", "%2e%2e%2Fout/x.csv", "%2E%2E/out/*.csv"):
        described = DataDescription("t", (below(bucket, path),), column_separator=",", columns=("k", "v"))
        job = BrokerLoad(store, LoadSpec("db", "job", (described,)), [bucket]).run()[1]
        assert job.state == CANCELLED
        assert "'..' cannot be in the URI of a file" in job.error


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("tree/[^b].csv", ["tree/a.csv", "tree/c.csv"]),
        (
            "tree/**/*.csv",
            ["tree/a.csv", "tree/b.csv", "tree/c.csv", "tree/deep/d.csv", "tree/deep/er/e.csv"],
        ),
        ("tree/deep/**", ["tree/deep/d.csv", "tree/deep/er/e.csv"]),
        ("tree/**/er/e.csv", ["tree/deep/er/e.csv"]),
        ("tree/{a,deep/*}.csv", ["tree/a.csv", "tree/deep/d.csv"]),
    ],
)
def test_patterns_mean_the_same_in_a_bucket_and_on_disk(
    bucket: str, tmp_path: Path, pattern: str, expected: list[str]
) -> None:
    filesystem, root = pafs.FileSystem.from_uri(bucket)
    for name in ("a.csv", "b.csv", "c.csv", "deep/d.csv", "deep/er/e.csv", "deep/.tmp/f.csv"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
        with filesystem.open_output_stream(f"{root}/tree/{name}") as file:
            file.write(b"1\n")
    assert names(below(bucket, pattern), bucket) == expected
    local = find_files(DataDescription("t", (f"{tmp_path}/{pattern}",)), [str(tmp_path)])
    assert [file.name.removeprefix(f"{tmp_path}/") for file in local] == expected


def test_only_what_a_pattern_needs_is_listed(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = []
    selector = pafs.FileSelector

    def spy(base: str, **more: Any) -> pafs.FileSelector:
        listed.append((base, more["recursive"]))
        return selector(base, **more)

    monkeypatch.setattr(pafs, "FileSelector", spy)
    everything = bucket.replace("tests/in", "tests")
    assert names(below(bucket, "*.parquet"), everything) == ["rows.parquet"]
    assert names(below(bucket, "day={1,2}/a*"), everything) == ["day=1/a.csv", "day=2/a.csv"]
    assert names(below(bucket, "day=*/b*"), everything) == ["day=2/b.csv.gz"]
    assert listed == [
        ("tests/in", False),
        ("tests/in/day=1", False),
        ("tests/in/day=2", False),
        ("tests/in", True),
    ]


def test_folders_in_braces_are_checked_one_by_one(bucket: str) -> None:
    one, two = below(bucket, "day=1"), below(bucket, "day=2")
    pattern = below(bucket, "day={1,2}/a.csv")
    assert names(pattern, one, two) == ["day=1/a.csv", "day=2/a.csv"]
    with pytest.raises(AccessDeniedError):
        names(pattern, one)
