"""Rules of stream load that no other file tests: what has no meaning here is told, or of no effect."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pytest

from seqstore import CommitUnknownError, Store
from seqstore.loaders.reply import (
    FAIL,
    PUBLISH_TIMEOUT,
    SUCCESS,
    Progress,
    StreamLoadReply,
    make_reply,
    reply_for_error,
)
from seqstore.loaders.stream_load import stream_load
from seqstore.store.sql.session.session import Session

TABLES = """
CREATE TABLE t (k INT NOT NULL, v VARCHAR(5) NULL) UNIQUE KEY(k);
CREATE TABLE s (k INT NOT NULL, v VARCHAR(5) NULL)
    UNIQUE KEY(k) PROPERTIES('function_column.sequence_type'='int');
"""
pytestmark = pytest.mark.sql(TABLES)


def load(store: Store, body: bytes | str, table: str = "t", **headers: str) -> StreamLoadReply:
    given = {"column_separator": ","} | {name.replace("__", ".", 1): v for name, v in headers.items()}
    data = body.encode() if isinstance(body, str) else body
    return stream_load(store, "db", table, io.BytesIO(data), given)


def rows(store: Store, table: str = "t") -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in store.scan(f"db.{table}").read_all().to_pylist())


def test_the_sequence_header_names_a_field_of_the_load(store: Store) -> None:
    """LH14, SL1: the larger sequence stays, whichever came later."""
    given = {"columns": "k,v,at", "function_column__sequence_col": "at"}
    assert load(store, "1,new,5\n1,old,4\n", "s", **given)["Status"] == "Success"
    assert load(store, "1,older,3\n", "s", **given)["NumberLoadedRows"] == 1
    assert rows(store, "s") == [(1, "new")]


def test_negative_is_for_sums_which_there_are_none_of(store: Store) -> None:
    """LH23."""
    assert "only for SUM columns" in load(store, "1,a\n", negative="true")["Message"]
    assert load(store, "1,a\n", negative="false")["Status"] == "Success"


def test_publish_timeout_counts_as_done(store: Store) -> None:
    """LS3: committed; here the commit point makes rows visible at once, so it is never answered."""
    assert make_reply(Progress(), PUBLISH_TIMEOUT, "the rows will be visible soon").is_success
    assert make_reply(Progress(), SUCCESS, "OK").is_success
    assert not make_reply(Progress(), FAIL, "no").is_success


def test_an_outcome_that_is_not_known_is_a_failure_to_be_repeated_by_label(store: Store) -> None:
    """LS3, LS13: the label tells whether it happened."""
    reply = reply_for_error(
        Progress("l"), CommitUnknownError("the disk failed in a commit; look up the label")
    )
    assert (reply["Status"], reply["Label"]) == ("Fail", "l")
    assert "label" in reply["Message"]


def test_a_batch_that_is_sent_again_under_its_label_is_loaded_once(store: Store) -> None:
    """LS13, LS14: whatever it holds the second time."""
    assert load(store, "1,a\n", label="batch-1")["Status"] == "Success"
    again = load(store, "1,b\n", label="batch-1")
    assert (again["Status"], again["ExistingJobStatus"]) == ("Label Already Exists", "FINISHED")
    assert load(store, "1,c\n", label="batch-2")["Status"] == "Success"
    assert rows(store) == [(1, "c")]


def test_orc_columns_named_by_position_are_mapped_by_name(store: Store) -> None:
    """Q2: some versions of Hive name them _col0, _col1."""
    sink = io.BytesIO()
    pa.orc.write_table(pa.table({"_col0": pa.array([1, 2], pa.int32()), "_col1": ["a", "b"]}), sink)
    refused = load(store, sink.getvalue(), format="orc")
    assert refused["Status"] == "Fail"
    mapped = load(store, sink.getvalue(), format="orc", columns="_col0, _col1, k=_col0, v=_col1")
    assert mapped["NumberLoadedRows"] == 2
    assert rows(store) == [(1, "a"), (2, "b")]


def test_every_table_takes_deletes(store: Store) -> None:
    """G2, G4: all tables are unique and have a delete sign; rows of a MERGE apply in the order they came."""
    load(store, "1,a\n2,b\n")
    reply = load(store, "1,x\n1,gone\n2,gone\n2,y\n", merge_type="MERGE", delete="v = 'gone'")
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", 4)
    assert rows(store) == [(2, "y")]


def test_a_partition_that_is_not_there_fails_the_load(store: Store) -> None:
    """LH8, Y6: a table without partitions has one, of its own name, and every row has its place in it."""
    assert "unknown partition 'p1'" in load(store, "1,a\n", partitions="p1")["Message"]
    assert load(store, "1,a\n", partitions="t")["Status"] == "Success"


def test_rows_outside_of_the_partitions_are_filtered(store: Store) -> None:
    """LH8, Y6: those of no partition, and with the header those of others."""
    with Session(store) as session:
        list(
            session.execute(
                "CREATE TABLE db.p (k INT NOT NULL, v VARCHAR(5) NULL) UNIQUE KEY(k) "
                "PARTITION BY RANGE(k) (PARTITION low VALUES LESS THAN ('10'), "
                "PARTITION high VALUES LESS THAN ('20')) DISTRIBUTED BY HASH(k) BUCKETS 1"
            )
        )
    body = "1,a\n11,b\n99,c\n"
    assert load(store, body, "p")["Status"] == "Fail"
    every = load(store, body, "p", max_filter_ratio="0.5")
    assert (every["NumberLoadedRows"], every["NumberFilteredRows"]) == (2, 1)
    one = load(store, body, "p", max_filter_ratio="0.9", partitions="high", group_commit="sync_mode")
    assert (one["NumberLoadedRows"], one["NumberFilteredRows"]) == (1, 2)
    assert "p9" in load(store, body, "p", partitions="p9")["Message"]
    assert rows(store, "p") == [(1, "a"), (11, "b")]


def test_replies_are_json_with_one_field_a_line(store: Store) -> None:
    """LS1."""
    reply = load(store, "1,ä\n", comment='quo"te')
    text = reply.to_json()
    assert json.loads(text) == dict(reply)
    assert len(text.splitlines()) == len(reply) + 2
