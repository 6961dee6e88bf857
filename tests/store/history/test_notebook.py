"""What a notebook shows of tables, loads and histories."""

from __future__ import annotations

import pickle
import re
from datetime import datetime

import pyarrow as pa
import pytest

from seqstore import Column, Store, Table, TableSchema, parse_type
from seqstore.store.load.load import LoadResult
from seqstore.store.runtime.html_table import html_table

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def loaded(store: Store) -> tuple[Table, LoadResult]:
    columns = [
        Column("k", parse_type("varchar(40)"), False, comment=EVIL),
        Column("v", parse_type("tinyint")),
    ]
    table = store.create_table("db.t", TableSchema.create(columns, ["k"]))
    data = pa.table({"k": [EVIL, "b", "b"], "v": [1, 1000, 2]})
    return table, table.upsert(data, label="first", max_filter_ratio=0.5)


def shown(value: object) -> list[list[str]]:
    """The cells of every row of its tables."""
    text = value._repr_html_()  # type: ignore[attr-defined]
    assert EVIL not in text
    rows = re.findall(r"<tr>(.*?)</tr>", text)
    return [[re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]


def test_a_table_shows_its_columns(loaded: tuple[Table, LoadResult]) -> None:
    table, _ = loaded
    head, key, value = shown(table)
    assert head == ["column", "type", "key", "comment"]
    assert key[:3] == ["k", "VARCHAR(40)", "key"]
    assert value == ["v", "TINYINT", "", ""]
    assert "2 rows, version 2" in table._repr_html_()


def test_a_load_shows_its_counts_and_rejected_rows(loaded: tuple[Table, LoadResult]) -> None:
    head, counts, head_of_rejected, rejected = shown(loaded[1])
    found = dict(zip(head, counts, strict=True))
    assert (found["total"], found["loaded"], found["filtered"]) == ("3", "2", "1")
    assert head_of_rejected == ["row", "reason"]
    assert rejected[0] == "1"
    assert "1000" in rejected[1]


def test_a_history_shows_the_newest_version_first_and_is_a_list(loaded: tuple[Table, LoadResult]) -> None:
    history = loaded[0].history()
    head, newest, first = shown(history)
    assert (newest[0], first[0]) == ("2", "1")
    assert newest[head.index("filtered")] == "1"
    assert newest[-1] == "first"
    assert history == list(history)
    assert pickle.loads(pickle.dumps(history)) == history


def test_the_history_of_a_key_shows_why(loaded: tuple[Table, LoadResult]) -> None:
    history = loaded[0].key_history({"k": EVIL})
    head, only = shown(history)
    assert only[head.index("outcome")] == "live"
    assert isinstance(history[0].timestamp, datetime)
    assert pickle.loads(pickle.dumps(history)) == history


def test_a_long_table_is_cut_and_says_so() -> None:
    text = html_table("numbers", ["n"], ([number] for number in range(1_234)))
    assert text.count("<tr>") == 101
    assert "and 1,134 more" in text
