"""Rules of stream load that no other file tests: what has no meaning here is told, or of no effect."""

from __future__ import annotations

import csv
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


WIDE = pytest.mark.sql(
    "CREATE TABLE w (k INT NOT NULL, a INT NULL, s VARCHAR(50) NULL, j JSON NULL, "
    "b BOOLEAN NULL, n BIGINT NULL) "
    "UNIQUE KEY(k)"
)


@WIDE
def test_strict_mode_refuses_a_text_with_a_point_for_an_integer(store: Store) -> None:
    """Without it the fraction is cut off."""
    body = "1,3.12\n2,.5\n3,7\n4,-8.0\n"
    for kind in ("a", "n"):
        given = {"columns": f"k,{kind}", "max_filter_ratio": "1"}
        reply = load(store, body, "w", strict_mode="true", **given)
        assert (reply["NumberFilteredRows"], reply["NumberLoadedRows"]) == (3, 1)
        assert load(store, body, "w", **given)["NumberFilteredRows"] == 0
        found = [(row[0], row[1] if kind == "a" else row[5]) for row in rows(store, "w")]
        assert found == [(1, 3), (2, 0), (3, 7), (4, -8)]


@WIDE
def test_true_and_false_of_json_are_1_and_0_in_a_text(store: Store) -> None:
    """In a column of JSON they stay; the texts "true" and "false" do."""
    body = (
        '{"k":1,"s":true,"j":true,"b":true,"a":true}\n{"k":2,"s":"true","j":false,"b":false,"a":false}\n'
        '{"k":3,"s":false,"j":[true],"b":null}\n{"k":4,"s":[true],"j":"x","b":"true"}\n'
    )
    assert load(store, body, "w", format="json")["Status"] == "Success"
    found = [row[:5] for row in rows(store, "w")]
    assert found[:2] == [(1, 1, "1", "true", True), (2, 0, "true", "false", False)]
    assert [(row[2], row[4]) for row in found[2:]] == [("0", None), ("[true]", True)]
    paths = {"format": "json", "jsonpaths": '["$.k", "$.s"]', "columns": "k, x, s = concat(x, '!')"}
    assert load(store, '{"k":1,"s":true}', "w", **paths)["Status"] == "Success"
    assert rows(store, "w")[0][2] == "1!"


@WIDE
@pytest.mark.parametrize("delimiter", ["|", "||", "\\x1e", "\\r\\n"])
def test_json_documents_are_split_at_the_line_delimiter(store: Store, delimiter: str) -> None:
    mark = {"\\x1e": "\x1e", "\\r\\n": "\r\n"}.get(delimiter, delimiter)
    documents = [f'{{"k":{k},\n"s":"x\\ny"}}' for k in range(5)]
    given = {"format": "json", "line_delimiter": delimiter}
    for body in (mark.join(documents), mark.join([*documents, "", " ", ""])):
        reply = load(store, body, "w", **given)
        assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", 5)
    bad = load(store, mark.join([documents[0], "nope", documents[1]]), "w", **given)
    assert "first: line 2" in bad["Message"]


@WIDE
def test_json_root_is_applied_to_each_element_of_an_array(store: Store) -> None:
    given = {"format": "json", "json_root": "$.d", "strip_outer_array": "true", "max_filter_ratio": "1"}
    body = '[{"d":{"k":1,"s":"a"}},{"d":{"k":2,"s":"b"}},{"e":{"k":3}}]'
    reply = load(store, body, "w", **given)
    assert (reply["NumberLoadedRows"], reply["NumberFilteredRows"]) == (2, 1)
    assert load(store, '{"d":[{"k":4,"s":"c"},{"k":5,"s":"d"}]}', "w", **given)["NumberLoadedRows"] == 2
    assert [(row[0], row[2]) for row in rows(store, "w")] == [(1, "a"), (2, "b"), (4, "c"), (5, "d")]
    alone = load(store, '[{"e":1}]', "w", **given)
    assert (alone["Status"], alone["NumberLoadedRows"], alone["NumberFilteredRows"]) == ("Success", 0, 1)


@WIDE
def test_names_of_json_paths_are_case_sensitive(store: Store) -> None:
    """Keys without paths are not."""
    body = '{"k":1,"K":7,"s":"a","S":"B"}'
    given = {"format": "json", "jsonpaths": '["$.K", "$.S"]', "columns": "k, s"}
    assert load(store, body, "w", **given)["Status"] == "Success"
    missing = given | {"jsonpaths": '["$.k", "$.X"]', "columns": "k, s"}
    assert load(store, '{"k":2,"x":"lower"}', "w", **missing)["Status"] == "Success"
    assert [(row[0], row[2]) for row in rows(store, "w")] == [(2, None), (7, "B")]


@WIDE
@pytest.mark.parametrize("escape", ["", '"', "\\"])
def test_a_doubled_enclosing_character_is_one(store: Store, escape: str) -> None:
    """RFC 4180; escape may name the same character."""
    body = '1,"a ""q"", b"\n2,"x,\n""y"\n3,""\n4,""""\n5,""","","""\n6,pl""ain\n'
    given = {"columns": "k,s", "enclose": '"', "trim_double_quotes": "true"}
    given |= {"escape": escape} if escape else {}
    assert load(store, body, "w", **given)["Status"] == "Success"
    expected = ['a "q", b', 'x,\n"y', "", '"', '",","', 'pl""ain']
    assert [row[2] for row in rows(store, "w")] == expected


@WIDE
@pytest.mark.parametrize("enclose", ['"', "'"])
def test_what_csv_of_python_writes_is_read_back(store: Store, enclose: str) -> None:
    values = ["", enclose, enclose * 2, f"a{enclose}b", f"{enclose},{enclose}", "x\ny", "a,b"]
    values.append(f",{enclose}\n{enclose},")
    written = io.StringIO()
    writer = csv.writer(written, quotechar=enclose, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows(enumerate(values))
    given = {"columns": "k,s", "enclose": enclose, "trim_double_quotes": "true"}
    assert load(store, written.getvalue(), "w", **given)["Status"] == "Success"
    assert [row[2] for row in rows(store, "w")] == values
