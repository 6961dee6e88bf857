"""Stream load into tables with column groups: whole rows, fixed and flexible updates, deletes (SM4-SM6)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqstore import Column, Store, TableSchema, parse_type
from seqstore.loaders.reply import StreamLoadReply
from seqstore.loaders.stream_load import stream_load
from tests.support.rows import rows_of

PROPERTIES = {
    "sequence_mapping.s1": "c,d",
    "sequence_mapping.s2": "e",
    "enable_unique_key_skip_bitmap_column": "true",
}


FIXED, FLEXIBLE = {"partial_columns": "true"}, {"unique_key_update_mode": "UPDATE_FLEXIBLE_COLUMNS"}


class Bench:
    """A table of two groups, and short ways to load and look."""

    def __init__(self, store: Store) -> None:
        self.store = store
        names = ["k", "c", "d", "e", "s1", "s2"]
        columns = [Column(name, parse_type("int"), nullable=name != "k") for name in names]
        self.table = store.create_table("db.t", TableSchema.create(columns, ["k"], properties=PROPERTIES))

    def load(self, body: str, **headers: str) -> StreamLoadReply:
        given = {"column_separator": ","} | headers
        return stream_load(self.store, "db", "t", io.BytesIO(body.encode()), given)

    def csv(self, columns: str, body: str, **headers: str) -> None:
        reply = self.load(body, columns=columns, **headers)
        assert (reply["Status"], reply["Message"]) == ("Success", "OK")

    def json(self, *rows: dict[str, Any], **headers: str) -> StreamLoadReply:
        return self.load("\n".join(map(json.dumps, rows)), format="json", **headers)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return rows_of(self.table)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Store.open(tmp_path / "data") as store:
        store.create_database("db")
        yield Bench(store)


@pytest.mark.parametrize("headers", [{}, FIXED], ids=["whole rows", "partial_columns"])
def test_streams_that_know_different_columns_do_not_disturb_each_other(
    bench: Bench, headers: dict[str, str]
) -> None:
    """SM5, SM6."""
    bench.csv("k,c,d,s1", "1,1,1,1\n1,3,3,3\n1,2,2,2\n", **headers)
    bench.csv("k,e,s2", "1,7,7\n2,8,8\n", **headers)
    bench.csv("k,c,d,s1", "1,9,9,2\n", **headers)
    assert bench.rows == [(1, 3, 3, 7, 3, 7), (2, None, None, 8, None, 8)]


def test_a_part_of_a_group_fails_the_partial_load(bench: Bench) -> None:
    reply = bench.load("1,1,1\n", columns="k,c,s1", **FIXED)
    assert reply["Status"] == "Fail"
    assert "all columns of a column group, missing: d;" in reply["Message"]


def test_wide_json_rows_of_several_streams_meet_in_one_load(bench: Bench) -> None:
    """What a row does not have is NULL in whole rows (J7), and a group of NULLs is not given."""
    reply = bench.json(
        {"k": 1, "c": 1, "d": 1, "s1": 5}, {"k": 1, "e": 2, "s2": 9}, {"k": 1, "c": 4, "s1": 4}
    )
    assert reply["Status"] == "Success"
    assert bench.rows == [(1, 1, 1, 2, 5, 9)]


def test_flexible_rows_give_groups_one_by_one(bench: Bench) -> None:
    """F7: a row with a part of a group is filtered, and max_filter_ratio decides."""
    rows = [{"k": 1, "c": 1, "d": 1, "s1": 5}, {"k": 1, "e": 2, "s2": 9}, {"k": 1, "c": 4, "s1": 6}]
    reply = bench.json(*rows, **FLEXIBLE)
    assert (reply["Status"], reply["NumberFilteredRows"]) == ("Fail", 1)
    assert bench.rows == []
    reply = bench.json(*rows, max_filter_ratio="0.5", **FLEXIBLE)
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", 2)
    assert bench.rows == [(1, 1, 1, 2, 5, 9)]


def test_deletes_bring_the_sequences_of_what_they_delete(bench: Bench) -> None:
    """P28, D2, F14: merge_type DELETE with sequences, and a sign in flexible rows."""
    bench.csv("k,c,d,s1,e,s2", "1,1,1,5,1,5\n2,1,1,5,1,5\n3,1,1,5,1,5\n")
    bench.csv("k,s1", "1,5\n2,4\n", merge_type="DELETE", **FIXED)
    assert bench.rows == [(1, None, None, 1, 5, 5), (2, 1, 1, 1, 5, 5), (3, 1, 1, 1, 5, 5)]
    reply = bench.json({"k": 1, "s2": 5, "__DORIS_DELETE_SIGN__": 1}, {"k": 2, "e": 6, "s2": 6}, **FLEXIBLE)
    assert reply["Status"] == "Success"
    bench.csv("k", "3\n", merge_type="DELETE")
    assert bench.rows == [(2, 1, 1, 6, 5, 6)]
