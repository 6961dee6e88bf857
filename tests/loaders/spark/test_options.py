"""Options of the data source that contradict each other, or mean nothing where they are given."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from seqstore import InvalidInputError
from seqstore.loaders.spark import Feed, foreach_batch_sink
from seqstore.loaders.spark.options import (
    HOW_TO_READ,
    HOW_TO_WRITE,
    SNAPSHOT_READ,
    SNAPSHOT_WRITE,
    STREAM_READ,
    STREAM_WRITE,
    LoadOptions,
    SourceOptions,
    bytes_of,
)
from seqstore.loaders.spark.place import PASSWORD, Place, StoreAt, local_path, options_of

PLACE = {"path": "/data", "table": "db.t"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "id, v,ID"}, "option columns: 'id' is named 2 times"),
        ({"version": "3", "versionAsOf": "3"}, "version and versionAsOf are the same"),
        ({"txnAppId": "nightly"}, "txnVersion is missing"),
        ({"txnVersion": "1"}, "txnAppId is missing"),
        ({"version": "²"}, "option version: expected a positive integer, found '²'"),
        ({"path": "file://elsewhere/data"}, "option path: expected a directory of this host"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        SourceOptions.parse({**PLACE, **options})


@pytest.mark.parametrize("name", ["filter", "version", "versionAsOf", "hidden", "pushdown", "label"])
def test_what_the_change_feed_has_no_use_for_is_refused(name: str) -> None:
    value = "1" if name.startswith("version") else "true"
    asked = SourceOptions.parse({**PLACE, "changes": "true", name: value})
    with pytest.raises(InvalidInputError, match=f"option '{name.lower()}' means nothing to readStream"):
        asked.refuse_others(STREAM_READ, "readStream")


@pytest.mark.parametrize("given", [{"label": "l"}, {"txnAppId": "a", "txnVersion": "1"}, {"columns": "k"}])
def test_what_a_written_stream_has_no_use_for_is_refused(given: dict[str, str]) -> None:
    asked = SourceOptions.parse({**PLACE, **given})
    with pytest.raises(InvalidInputError, match=f"option '{next(iter(given)).lower()}' means nothing"):
        asked.refuse_others(STREAM_WRITE, "writeStream")


def test_spark_s_own_options_of_a_stream_are_passed_over() -> None:
    asked = SourceOptions.parse({**PLACE, "checkpointLocation": "/c", "partitions": "p1"})
    asked.refuse_others(STREAM_WRITE, "writeStream")


def test_a_partial_update_cannot_overwrite() -> None:
    with pytest.raises(InvalidInputError, match="a partial update cannot overwrite"):
        LoadOptions.named({"partial_columns": True}).refuse_overwriting("db.t")


@pytest.mark.parametrize("text", ["", " ", ",", " , ,"])
def test_partitions_that_name_none_are_refused(text: str) -> None:
    """An overwrite of them would be one of the whole table."""
    with pytest.raises(InvalidInputError, match="option partitions: expected names of partitions"):
        SourceOptions.parse({**PLACE, "partitions": text})
    assert SourceOptions.parse({**PLACE, "partitions": "a, b,"}).partitions == ("a", "b")


@pytest.mark.parametrize(
    "given",
    [
        {"partitions": "p1"},
        {"label": "l"},
        {"txnAppId": "a", "txnVersion": "1"},
        {"starting_version": "2"},
        {"max_rows_per_batch": "2"},
    ],
)
def test_what_a_read_has_no_use_for_is_refused(given: dict[str, str]) -> None:
    asked = SourceOptions.parse({**PLACE, **given})
    with pytest.raises(InvalidInputError, match=f"option '{next(iter(given)).lower()}' means nothing to"):
        asked.refuse_others(SNAPSHOT_READ, "a read", HOW_TO_WRITE)


@pytest.mark.parametrize(
    "given",
    [
        {"filter": "k = 1"},
        {"version": "1"},
        {"versionAsOf": "1"},
        {"changes": "true"},
        {"starting_version": "2"},
        {"max_rows_per_batch": "2"},
    ],
)
def test_what_a_write_has_no_use_for_is_refused(given: dict[str, str]) -> None:
    asked = SourceOptions.parse({**PLACE, **given})
    with pytest.raises(InvalidInputError, match=f"option '{next(iter(given)).lower()}' means nothing to"):
        asked.refuse_others(SNAPSHOT_WRITE, "a write", HOW_TO_READ)


def test_a_view_may_say_how_it_is_read_and_how_it_is_inserted_into() -> None:
    """Spark hands both the same options."""
    both = {"columns": "k,v", "pushdown": "true", "rows_per_partition": "9", "merge_type": "MERGE"}
    asked = SourceOptions.parse({**PLACE, **both, "sequence": "v"})
    asked.refuse_others(SNAPSHOT_READ, "a read", HOW_TO_WRITE)
    asked.refuse_others(SNAPSHOT_WRITE, "a write", HOW_TO_READ)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/data/shop", "/data/shop"),
        ("data/100%25", "data/100%25"),
        ("file:///data/the%20shop", "/data/the shop"),
        ("file:/data", "/data"),
        ("FILE://localhost/data", "/data"),
        (Path("/data"), "/data"),
    ],
)
def test_a_path_may_be_a_uri_of_this_host(given: str | Path, path: str) -> None:
    assert local_path(given) == Path(path)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (0, 0),
        ("7", 7),
        ("5b", 5),
        ("2k", 2048),
        ("64m", 2**26),
        (" 64MB ", 2**26),
        ("1g", 2**30),
        ("1tb", 2**40),
    ],
)
def test_a_size_is_written_as_spark_s_are(given: object, size: int) -> None:
    assert bytes_of("driver_bytes_max", given) == size


@pytest.mark.parametrize("given", ["", "m", "1.5g", "-1", "64 megabytes", "²", -2, 1.5, True])
def test_what_is_no_size_is_refused_when_the_sink_is_made(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="driver_bytes_max: expected bytes, or a size such as 64m"):
        foreach_batch_sink("/data", "db.t", driver_bytes_max=given)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (["db.t"], r"expected database\.table, or a mapping of such names, found \['db\.t'\]"),
        (None, "a mapping of such names, found None"),
        ({"db.t": None}, r"db\.t: expected a function of the epoch's frame, or a Feed, found None"),
        ({"db.t": Feed("x")}, r"db\.t: expected a function of the epoch's frame, or a Feed, found 'x'"),  # type: ignore[arg-type]
        ({1: lambda df: df}, "expected names of tables, found 1"),
        ({}, "found no tables"),
    ],
)
def test_tables_a_sink_cannot_feed_are_refused_when_it_is_made(tables: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        foreach_batch_sink("/data", tables)


def test_an_unknown_load_option_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="load option 'label' is not known"):
        foreach_batch_sink(tmp_path, "db.one", label="x")


def test_a_sink_feeds_tables_of_one_database(tmp_path: Path) -> None:
    """X12"""
    with pytest.raises(InvalidInputError, match="of one database in one commit; found a, b"):
        foreach_batch_sink(tmp_path, {"a.t": lambda df: df, "b.t": lambda df: df})


URL = "seqstore://127.0.0.1:8040"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "/data", "url": URL}, "path and url are both set"),
        ({}, "path is missing"),
        ({"url": "http://127.0.0.1"}, "expected seqstore://host:port"),
        ({"path": "/data", "user": "root"}, "option 'user' is for a store elsewhere"),
        ({"path": "/data", "password": "x"}, "option 'password' is for a store elsewhere"),
        ({"path": "/data", "certificates": "/x"}, "option 'certificates' is for a store elsewhere"),
        ({"url": URL, "certificates": "/none"}, "/none: No such file"),
    ],
)
def test_a_job_names_one_place(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        SourceOptions.parse({"table": "db.t", **options})


@pytest.mark.parametrize("name", ["url", "path"])
def test_a_url_may_stand_in_either_option(name: str) -> None:
    address = SourceOptions.parse({"table": "db.t", name: URL}).place.address
    assert address is not None
    assert (address.url, address.user) == (URL, "root")


def test_the_password_of_the_environment_stands_for_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, "a-word")
    address = Place.of(StoreAt(URL, user="loader")).address
    assert address is not None
    assert address.password == "a-word"
    assert options_of(StoreAt(URL, user="loader")) == {"url": URL, "user": "loader"}


def test_no_repr_has_the_password() -> None:
    at = StoreAt(URL, "loader", "a-secret")
    asked = SourceOptions.parse({"table": "db.t", **options_of(at)})
    assert "a-secret" not in repr([at, Place.of(at), asked])
    assert b"a-secret" not in pickle.dumps(asked.of_task())
