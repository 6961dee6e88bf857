"""A source database is changed at random; its change stream makes the same table in any order (CS4)."""

from __future__ import annotations

import io
import random
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqstore import Session, Store
from seqstore.loaders.stream_load import stream_load
from tests.support.changes.messages import Row, body, canal, envelope, flattened, maxwell
from tests.support.statements import dicts, run
from tests.weight import by_form

TABLE = (
    "CREATE TABLE t (id BIGINT, name VARCHAR(40) NULL, n INT NULL) UNIQUE KEY(id) "
    'DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES("function_column.sequence_type" = "LARGEINT", '
    '"enable_unique_key_skip_bitmap_column" = "true")'
)
UNAVAILABLE = "__debezium_unavailable_value"
CONNECTORS = ("postgresql", "mysql", "sqlserver", "oracle")


class Source:
    """A table of a source database and the messages of its changes.

    Attributes:
        rows: the present rows by key.
        stream: the messages of the changes, in order; a change of a key is one message.
    """

    def __init__(self, make: Callable[[str, int, Row | None, Row | None], list[Row]]) -> None:
        self.rows: dict[int, Row] = {}
        self.stream: list[list[Row]] = []
        self._make = make

    def change(self, rng: random.Random) -> None:
        key = rng.randrange(6)
        at = len(self.stream) + 1
        old = self.rows.get(key)
        new: Row | None = {"id": key, "name": f"name {at}", "n": rng.choice([None, at])}
        if old is not None and rng.random() < 0.3:
            new = None
        elif old is not None and rng.random() < 0.3 and (free := set(range(6)) - set(self.rows)):
            assert new is not None
            new["id"] = rng.choice(sorted(free))
        self.rows.pop(key, None)
        if new is not None:
            self.rows[new["id"]] = new
        self.stream.append(self._make("", at, old, new))

    def snapshot(self) -> list[Row]:
        return [message for row in self.rows.values() for message in self._make("snapshot", 500, None, row)]


def _debezium(connector: str) -> Callable[[str, int, Row | None, Row | None], list[Row]]:
    def make(kind: str, at: int, old: Row | None, new: Row | None) -> list[Row]:
        if kind:
            return [envelope("r", at, after=new, connector=connector)]
        if (
            old is not None and new is not None and old["id"] != new["id"]
        ):  # two events, as the connectors send them
            return [
                envelope("d", at, before=old, connector=connector),
                envelope("c", at, after=new, connector=connector),
            ]
        op = "d" if new is None else "c" if old is None else "u"
        return [envelope(op, at, before=old, after=new, connector=connector)]

    return make


def _one_event(kind: str, at: int, old: Row | None, new: Row | None) -> list[Row]:
    """Sends a changed key as one update, as tables with `message.key.columns` do."""
    if kind:
        return [envelope("r", at, after=new)]
    return [envelope("d" if new is None else "c" if old is None else "u", at, before=old, after=new)]


def _flattened(kind: str, at: int, old: Row | None, new: Row | None) -> list[Row]:
    if kind:
        return [flattened(new or {}, at, op="r")]
    moved = old is not None and new is not None and old["id"] != new["id"]
    gone = [flattened(old, at, op="d")] if old is not None and (new is None or moved) else []
    return [*gone, *([flattened(new, at, op="c" if old is None else "u")] if new is not None else [])]


def _canal(kind: str, at: int, old: Row | None, new: Row | None) -> list[Row]:
    if old is None or kind:
        return [canal("INSERT", 0 if kind else at, [new or {}])]
    if new is None:
        return [canal("DELETE", at, [old])]
    return [canal("UPDATE", at, [new], old=[_changed(old, new)])]


def _maxwell(kind: str, at: int, old: Row | None, new: Row | None) -> list[Row]:
    if kind:
        return [maxwell("bootstrap-insert", at, new or {})]
    if new is None:
        return [maxwell("delete", at, old or {})]
    return [maxwell("insert" if old is None else "update", at, new, old=_changed(old, new) if old else None)]


def _changed(old: Row, new: Row) -> Row:
    return {name: value for name, value in old.items() if value != new[name]}


DIALECTS: dict[str, tuple[str, Any]] = {
    **{f"debezium {name}": ("debezium_json", _debezium(name)) for name in CONNECTORS},
    "debezium, one event for a changed key": ("debezium_json", _one_event),
    "debezium, flattened": ("debezium_json", _flattened),
    "canal": ("canal_json", _canal),
    "maxwell": ("maxwell_json", _maxwell),
}


def loaded(session: Session, store: Store, file_format: str, messages: list[Row], **headers: str) -> None:
    reply = stream_load(store, "db", "t", io.BytesIO(body(*messages)), {"format": file_format, **headers})
    assert reply["Status"] == "Success", reply["Message"]


@pytest.mark.family(3)
@pytest.mark.parametrize("dialect", DIALECTS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=by_form(2, 12))
def test_snapshot_and_stream_in_any_order_make_the_table_of_the_source(dialect: str, seed: int) -> None:
    """Messages arrive twice and out of order, in loads of random sizes, the snapshot among them."""
    rng = random.Random(seed)
    file_format, make = DIALECTS[dialect]
    source = Source(make)
    for _ in range(rng.randrange(1, 8)):
        source.change(rng)
    snapshot = source.snapshot()
    for _ in range(rng.randrange(1, 30)):
        source.change(rng)
    messages = [*snapshot, *(message for change in source.stream for message in change)]
    messages += rng.sample(messages, rng.randrange(len(messages)))
    rng.shuffle(messages)
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(folder) as store,
        Session(store, "db") as session,
    ):
        store.create_database("db")
        run(session, TABLE)
        while messages:
            count = rng.randrange(1, len(messages) + 1)
            loaded(session, store, file_format, messages[:count])
            messages = messages[count:]
        found = {row["id"]: row for row in dicts(session, "SELECT * FROM t")}
    assert found == source.rows, f"seed {seed}"


@given(seed=st.integers(0, 2**32))
@settings(max_examples=by_form(3, 24))
def test_a_stream_with_unavailable_values_makes_the_table_of_the_source_also_when_read_again(
    seed: int,
) -> None:
    """CS9: a log is read in its order, a load at a time, and from an earlier offset now and then."""
    rng = random.Random(seed)
    source = Source(_debezium("postgresql"))
    stream: list[Row] = []
    for _ in range(rng.randrange(1, 40)):
        before = dict(source.rows)
        source.change(rng)
        for message in source.stream[-1]:
            after = message["after"]
            stored = before.get(after["id"]) if after else None
            if message["op"] == "u" and stored is not None and rng.random() < 0.5:
                source.rows[after["id"]] = {**source.rows[after["id"]], "name": stored["name"]}
                message = {**message, "before": None, "after": {**after, "name": UNAVAILABLE}}
            stream.append(message)
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(folder) as store,
        Session(store, "db") as session,
    ):
        store.create_database("db")
        run(session, TABLE)
        at = 0
        while at < len(stream):
            end = rng.randrange(at, len(stream)) + 1
            mode = {"unique_key_update_mode": "UPDATE_FLEXIBLE_COLUMNS"}
            loaded(session, store, "debezium_json", stream[at:end], **mode)
            at = end if rng.random() < 0.8 else rng.randrange(end)
        found = {row["id"]: row for row in dicts(session, "SELECT * FROM t")}
    assert found == source.rows, f"seed {seed}"
