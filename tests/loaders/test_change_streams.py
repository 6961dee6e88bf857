"""`loaders.changes`: the formats debezium_json, canal_json and maxwell_json in stream loads (CS)."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from seqstore import Session, Store
from seqstore.loaders.reply import StreamLoadReply
from seqstore.loaders.stream_load import stream_load
from tests.support.changes.messages import (
    CONNECTORS,
    body,
    canal,
    envelope,
    flattened,
    heartbeats,
    maxwell,
    source,
    with_schema,
)
from tests.support.statements import dicts, run

FLEXIBLE = {"unique_key_update_mode": "UPDATE_FLEXIBLE_COLUMNS"}
UNAVAILABLE = "__debezium_unavailable_value"
TABLE = (
    "CREATE TABLE t (id BIGINT NOT NULL, name VARCHAR(50) NULL, n INT NULL) UNIQUE KEY(id) "
    'DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES("function_column.sequence_type" = "LARGEINT", '
    '"enable_unique_key_skip_bitmap_column" = "true")'
)
pytestmark = pytest.mark.sql(TABLE)
Load = Callable[..., StreamLoadReply]


@pytest.fixture
def load(store: Store) -> Load:
    def go(
        *messages: Any, table: str = "t", file_format: str = "debezium_json", **headers: str
    ) -> StreamLoadReply:
        given = {"format": file_format, "timezone": "UTC", **headers}
        return stream_load(store, "db", table, io.BytesIO(body(*messages)), given)

    return go


def rows(session: Session) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in dicts(session, "SELECT * FROM t ORDER BY id")]


def counts(reply: StreamLoadReply) -> tuple[str, int, int, int]:
    rows = reply["NumberLoadedRows"], reply["NumberFilteredRows"], reply["NumberUnselectedRows"]
    return reply["Status"], *rows


def reasons(reply: StreamLoadReply) -> str:
    return Path(reply["ErrorURL"]).read_text() if reply.get("ErrorURL") else ""


# ---------------------------------------------------------------------------------------- operations


@pytest.mark.parametrize("connector", [name for name in CONNECTORS if name != "mongodb"])
def test_later_changes_win_in_whatever_order_they_arrive(
    load: Load, session: Session, connector: str
) -> None:
    """CS4: inserted at 5, updated at 12 and 17; the snapshot of before arrives last."""
    changes = [
        envelope("u", 17, before={"id": 1}, after={"id": 1, "name": "c", "n": 3}, connector=connector),
        envelope("c", 5, after={"id": 1, "name": "a", "n": 1}, connector=connector),
        envelope("d", 16, before={"id": 2, "name": "x", "n": 0}, connector=connector),
        envelope("u", 12, after={"id": 1, "name": "b", "n": 2}, connector=connector),
        envelope("c", 6, after={"id": 2, "name": "x", "n": 0}, connector=connector),
        envelope("r", 90, after={"id": 1, "name": "snapshot", "n": 0}, connector=connector),
        envelope("r", 91, after={"id": 2, "name": "snapshot", "n": 0}, connector=connector),
        envelope("r", 92, after={"id": 3, "name": "snapshot", "n": 0}, connector=connector),
    ]
    for change in changes:
        assert counts(load(change)) == ("Success", 1, 0, 0)
    assert rows(session) == [(1, "c", 3), (3, "snapshot", 0)]


def test_documents_of_mongodb_are_rows(load: Load, session: Session) -> None:
    run(session, "DROP TABLE t")
    run(
        session,
        "CREATE TABLE t (_id VARCHAR(24), n BIGINT NULL, at DATETIME(3) NULL, tags JSON NULL) "
        "UNIQUE KEY(_id) DISTRIBUTED BY HASH(_id) "
        'BUCKETS 1 PROPERTIES("function_column.sequence_type" = "LARGEINT")',
    )
    identity = '{"$oid": "596e275826f08b2730779e1f"}'
    first = (
        f'{{"_id": {identity}, "n": {{"$numberLong": "5"}}, "at": {{"$date": 1700000000123}}, "tags": ["a"]}}'
    )
    later = f'{{"_id": {identity}, "n": 6}}'
    other = '{"_id": "plain", "n": 1}'
    reply = load(
        envelope("c", 5, after=first, connector="mongodb"),
        envelope("u", 7, after=None, connector="mongodb"),
        max_filter_ratio="0.5",
    )
    assert counts(reply) == ("Success", 1, 1, 0)
    assert "capture.mode" in reasons(reply)
    found = dicts(session, "SELECT _id, n, at, cast(tags as string) AS tags FROM t")
    assert found == [
        {
            "_id": "596e275826f08b2730779e1f",
            "n": 5,
            "at": datetime(2023, 11, 14, 22, 13, 20, 123000),
            "tags": '["a"]',
        }
    ]
    load(
        envelope("u", 6, after=later, connector="mongodb"), envelope("c", 6, after=other, connector="mongodb")
    )
    assert [row["at"] for row in dicts(session, "SELECT at FROM t ORDER BY _id")] == [None, None]
    gone = envelope("d", 9, connector="mongodb")
    key = json.dumps({"id": identity})
    assert counts(load(f"{key}\t{json.dumps(gone)}", f"{key}\t")) == ("Success", 1, 0, 1)
    assert [row["_id"] for row in dicts(session, "SELECT _id FROM t")] == ["plain"]


def test_a_changed_key_is_a_delete_and_an_insert(load: Load, session: Session) -> None:
    """CS5."""
    load(*(envelope("r", 1, after={"id": i, "name": "x", "n": i}) for i in range(1, 7)))
    moved = envelope("u", 3, before={"id": 1, "name": None, "n": None}, after={"id": 11, "name": "x", "n": 1})
    assert counts(load(moved)) == ("Success", 2, 0, 0)
    load(
        canal(
            "UPDATE",
            3,
            [{"id": 12, "name": "x", "n": 2}, {"id": 3, "name": "y", "n": 3}],
            old=[{"id": 2}, {"name": "x"}],
        ),
        file_format="canal_json",
    )
    load(maxwell("update", 3, {"id": 14, "name": "x", "n": 4}, old={"id": 4}), file_format="maxwell_json")
    assert rows(session) == [(3, "y", 3), (5, "x", 5), (6, "x", 6), (11, "x", 1), (12, "x", 2), (14, "x", 4)]


@pytest.mark.parametrize("mode", [{}, FLEXIBLE])
def test_deletes_need_only_the_key(load: Load, session: Session, mode: dict[str, str]) -> None:
    load(*(envelope("c", 1, after={"id": i, "name": "x", "n": 0}) for i in range(1, 5)), **mode)
    wrapped = {"schema": {"type": "struct", "fields": []}, "payload": {"id": 3}}
    reply = load(
        envelope("d", 2, before={"id": 1, "name": None, "n": None}),
        f"{json.dumps({'id': 2})}\t{json.dumps(envelope('d', 2))}",
        f"{json.dumps(wrapped)}\t{json.dumps(envelope('d', 2))}",
        f"{json.dumps({'id': 2})}\tnull",
        envelope("d", 2),
        envelope("d", 2, before={"id": 77}),
        max_filter_ratio="0.5",
        **mode,
    )
    assert counts(reply) == ("Success", 4, 1, 1)
    assert "neither an old image nor a key" in reasons(reply)
    assert rows(session) == [(4, "x", 0)]


def test_flattened_rows_have_their_operation_and_position_in_added_fields(
    load: Load, session: Session
) -> None:
    for connector, key in (("postgresql", 1), ("mysql", 2), ("sqlserver", 3), ("mongodb", 4), ("oracle", 5)):
        row = {"id": key, "name": connector, "n": 0}
        assert counts(load(flattened(row, 20, connector=connector))) == ("Success", 1, 0, 0)
        load(flattened({**row, "name": "late"}, 10, connector=connector))
        load(flattened({**row, "name": "snapshot"}, 99, op="r", connector=connector))
    assert [name for _, name, _ in rows(session)] == ["postgresql", "mysql", "sqlserver", "mongodb", "oracle"]
    load(flattened({"id": 1, "name": None, "n": None}, 30, op="d"))
    assert [key for key, _, _ in rows(session)] == [2, 3, 4, 5]


def test_a_tombstone_that_is_the_only_trace_of_a_delete_is_refused(load: Load) -> None:
    reply = load({"id": 1, "name": "x", "__lsn": 5}, '{"id": 1}\t', max_filter_ratio="0.5")
    assert counts(reply) == ("Success", 1, 1, 0)
    assert "delete.tombstone.handling.mode" in reasons(reply)


def test_messages_that_are_no_rows_are_passed_over_and_counted(load: Load, session: Session) -> None:
    """CS6."""
    wrapped = [{"schema": {"type": "struct", "fields": []}, "payload": each} for each in heartbeats()[:3]]
    tombstone = '{"id": 1}\tnull'
    one = envelope("c", 1, after={"id": 1, "name": "x", "n": 1})
    assert counts(load(*heartbeats(), *wrapped, tombstone, one)) == ("Success", 1, 0, 9)
    ddl = {**canal("ALTER", 1, []), "isDdl": True, "data": None, "sql": "ALTER TABLE t"}
    assert counts(load(ddl, canal("QUERY", 1, []), file_format="canal_json")) == ("Success", 0, 0, 2)
    marks = [
        {"type": name, "database": "shop", "table": "t", "ts": 1}
        for name in ("bootstrap-start", "table-alter")
    ]
    assert counts(load(*marks, file_format="maxwell_json")) == ("Success", 0, 0, 2)
    assert rows(session) == [(1, "x", 1)]


@pytest.mark.parametrize(
    ("file_format", "message"),
    [
        ("debezium_json", envelope("t", 8)),
        ("debezium_json", flattened({}, 8, op="t")),
        ("canal_json", {**canal("TRUNCATE", 8, []), "isDdl": True, "data": None}),
    ],
)
def test_truncates_are_refused_with_their_position(load: Load, file_format: str, message: Any) -> None:
    """CS7."""
    reply = load(message, file_format=file_format, max_filter_ratio="1")
    assert counts(reply)[:3] == ("Success", 0, 1)
    assert "truncate events are not applied" in reasons(reply)
    assert "00008" in reasons(reply)


def test_bad_messages_cost_only_themselves(load: Load, session: Session) -> None:
    reply = load(
        "{nonsense",
        "[1]",
        "5",
        envelope("x", 1, after={"id": 1}),
        envelope("c", 1, after=None),
        envelope("c", 1, after={"name": "no key"}),
        envelope("c", 1, after={"id": 1, "name": "x", "n": "no number"}),
        {**envelope("c", 1, after={"id": 2}), "source": {"connector": "postgresql"}},
        envelope("c", 1, after={"id": 9, "name": "good", "n": 1}),
        max_filter_ratio="0.9",
    )
    assert counts(reply) == ("Success", 1, 8, 0)
    told = reasons(reply)
    for reason in (
        "no JSON object",
        "op 'x'",
        "no image",
        "'id', a key column",
        "'no number'",
        "no position",
    ):
        assert reason in told
    assert rows(session) == [(9, "good", 1)]


@pytest.mark.parametrize(
    "schema",
    [
        "public",
        5,
        {},
        {"type": "struct", "fields": "x"},
        {"type": "struct", "fields": ["x"]},
        {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": ["x"]}]},
        {"type": "struct", "fields": [{"field": "id", "type": "int64", "parameters": "x"}]},
    ],
)
def test_a_schema_that_is_none_costs_only_its_message(load: Load, session: Session, schema: Any) -> None:
    """CS8: it ended the load, partly with a Python exception."""
    row = {"id": 1, "name": "a", "n": 1}
    odd = {"schema": schema, "payload": envelope("c", 1, after=row)}
    other = {"schema": schema, "payload": envelope("c", 1, after=row, table="u")}
    good = with_schema(envelope("c", 2, after={**row, "id": 2}), [{**_field("int64"), "field": "id"}])
    reply = load(odd, other, good, max_filter_ratio="1", change_table="t")
    assert counts(reply) == ("Success", 1, 1, 1)
    assert "no schema of Kafka Connect" in reasons(reply)
    assert rows(session) == [(2, "a", 1)]


@pytest.mark.parametrize("scale", ["--1", "9" * 5000, "x", None])
def test_a_scale_that_is_no_number_costs_only_its_row(load: Load, session: Session, scale: Any) -> None:
    """CS8: it ended the load with a Python exception."""
    odd = envelope("c", 1, after={"id": 1, "n": {"scale": scale, "value": "AQ=="}})
    declared = [{**_field("bytes", "org.apache.kafka.connect.data.Decimal", scale=scale), "field": "n"}]
    reply = load(
        odd,
        with_schema(envelope("c", 2, after={"id": 2, "n": "AQ=="}), declared),
        max_filter_ratio="1",
    )
    assert counts(reply) == ("Success", 1, 1, 0)
    assert rows(session) == [(2, None, 1)]


def test_messages_of_other_tables_are_passed_over(load: Load, session: Session) -> None:
    row = {"id": 1, "name": "x", "n": 1}
    for wanted in ("t", "shop.t", "public.t", "shop.public.t"):
        reply = load(envelope("c", 1, after=row), envelope("c", 2, after=row, table="u"), change_table=wanted)
        assert counts(reply) == ("Success", 1, 0, 1)
    for name, make in (
        ("canal_json", canal("INSERT", 1, [row], table="u")),
        ("maxwell_json", maxwell("insert", 1, row)),
    ):
        reply = load(make, file_format=name, change_table="shop.other")
        assert counts(reply) == ("Success", 0, 0, 1)


# ---------------------------------------------------------------------------------------- canal, maxwell


def test_rows_of_canal_win_by_their_moment(load: Load, session: Session) -> None:
    for message in (
        canal("UPDATE", 9, [{"id": 1, "name": "b", "n": 2}], old=[{"name": "a"}]),
        canal("INSERT", 5, [{"id": 1, "name": "a", "n": 1}, {"id": 2, "name": "x", "n": None}]),
        canal("DELETE", 7, [{"id": 2, "name": "x", "n": None}]),
        canal("UPDATE", 6, [{"id": 2, "name": "y", "n": 5}], old=[None]),
    ):
        assert load(message, file_format="canal_json")["Status"] == "Success"
    assert rows(session) == [(1, "b", 2)]


def test_rows_of_maxwell_win_by_the_position_in_the_log(load: Load, session: Session) -> None:
    commit = {**maxwell("update", 12, {"id": 1, "name": "last", "n": 3}, old={"n": 2}), "commit": True}
    del commit["xoffset"]
    for message in (
        commit,
        maxwell("update", 12, {"id": 1, "name": "first", "n": 2}, old={"n": 1}),
        maxwell("insert", 5, {"id": 2, "name": "x", "n": 1}),
        maxwell("delete", 30, {"id": 2, "name": "x", "n": 1}),
        maxwell("bootstrap-insert", 99, {"id": 1, "name": "snapshot", "n": 0}),
        maxwell("bootstrap-insert", 99, {"id": 3, "name": "snapshot", "n": 0}),
    ):
        assert load(message, file_format="maxwell_json")["Status"] == "Success"
    assert rows(session) == [(1, "last", 3), (3, "snapshot", 0)]


def test_decimals_of_maxwell_keep_their_digits(load: Load, session: Session) -> None:
    run(session, "ALTER TABLE t ADD COLUMN price DECIMAL(38, 20) NULL")
    message = body(maxwell("insert", 1, {"id": 1, "price": 0})).replace(
        b'"price": 0', b'"price": 3.14159265358979323846'
    )
    assert load(message.decode().strip(), file_format="maxwell_json")["Status"] == "Success"
    assert dicts(session, "SELECT price FROM t")[0]["price"] == Decimal("3.14159265358979323846")


# ---------------------------------------------------------------------------------------- positions


@pytest.mark.parametrize(
    ("connector", "options", "expected"),
    [
        ("postgresql", {}, 24_000_007),
        ("mysql", {}, (1 << 96) + (207 << 32)),
        ("mysql", {"change_position": "gtid"}, (8 << 80) + (207 << 32)),
        ("sqlserver", {}, (((0x27 << 48) + (7 << 16) + 2) << 16) + 1),
        ("oracle", {}, 1_700_000_000_007),
        ("postgresql", {"change_position": "ts_ms"}, 1_700_000_000_007),
    ],
)
def test_positions_are_the_sequence(
    load: Load, store: Store, connector: str, options: dict[str, str], expected: int
) -> None:
    """CS4."""
    load(envelope("c", 7, after={"id": 1}, connector=connector), **options)
    assert store.table("db.t").scan(hidden=True).read_all()["__SEQUENCE_COL__"].to_pylist() == [expected]


def test_positions_of_mysql_are_in_the_order_of_file_pos_and_row(load: Load, session: Session) -> None:
    def at(file: int, pos: int, row: int | None) -> dict[str, Any]:
        block = {**source("mysql", 1), "file": f"log.{file:06}", "pos": pos, "row": row}
        return {**envelope("u", 1, after={"id": 1, "name": f"{file}/{pos}/{row}"}), "source": block}

    last = at(10, 4, 2)
    load(last, at(9, 2**40, 7), at(10, 4, 1), at(10, 4, None), at(2, 5, 0), at(10, 3, 9))
    assert [name for _, name, _ in rows(session)] == ["10/4/2"]


@pytest.mark.parametrize(
    ("sequence", "connector", "needed"),
    [
        ("BIGINT", "mysql", "LARGEINT"),
        ("BIGINT", "sqlserver", "LARGEINT"),
        ("INT", "postgresql", "BIGINT or LARGEINT"),
    ],
)
def test_a_sequence_that_cannot_hold_the_positions_is_refused_once(
    load: Load, session: Session, sequence: str, connector: str, needed: str
) -> None:
    """CS4."""
    run(session, "DROP TABLE t")
    run(session, TABLE.replace("LARGEINT", sequence))
    reply = load(envelope("c", 1, after={"id": 1}, connector=connector), max_filter_ratio="1")
    assert reply["Status"] == "Fail"
    assert f"need a sequence of type {needed}, found {sequence}" in reply["Message"]


def test_a_mapped_column_is_the_sequence_and_the_position_where_rows_lack_it(
    load: Load, session: Session
) -> None:
    """CS4."""
    run(session, "DROP TABLE t")
    run(
        session,
        "CREATE TABLE t (id BIGINT, name VARCHAR(9) NULL, at BIGINT NULL) UNIQUE KEY(id) DISTRIBUTED BY "
        'HASH(id) BUCKETS 1 PROPERTIES("function_column.sequence_col" = "at")',
    )
    load(
        envelope("c", 9, after={"id": 1, "name": "position"}),
        envelope("c", 9, after={"id": 2, "name": "own", "at": 5}),
    )
    load(
        envelope("u", 8, after={"id": 1, "name": "late"}),
        envelope("u", 8, after={"id": 2, "name": "new", "at": 6}),
    )
    assert rows(session) == [(1, "position", 24_000_009), (2, "new", 6)]
    reply = load(envelope("d", 10, before={"id": 2, "name": None, "at": None}), max_filter_ratio="1")
    assert "no value of at, the sequence" in reasons(reply)
    load(envelope("d", 10, before={"id": 2, "name": "new", "at": 6}), envelope("d", 10, before={"id": 1}))
    assert rows(session) == []


# ---------------------------------------------------------------------------------------- types


def _b64(number: int, size: int, *, little: bool = False) -> str:
    return base64.b64encode(number.to_bytes(size, "little" if little else "big", signed=not little)).decode()


def _field(base: str, name: str = "", **parameters: str) -> dict[str, Any]:
    return {"type": base, "optional": True, "name": name or None, "parameters": parameters or None}


MOMENT = datetime(2023, 11, 14, 22, 13, 20)
TYPES = [
    ("DATE", _field("int32", "io.debezium.time.Date"), 19_000, date(2022, 1, 8)),
    ("DATE", _field("int32", "org.apache.kafka.connect.data.Date"), -1, date(1969, 12, 31)),
    ("DATE", _field("string", "io.debezium.time.IsoDate"), "2022-01-08Z", date(2022, 1, 8)),
    (
        "DATETIME(3)",
        _field("int64", "io.debezium.time.Timestamp"),
        1_700_000_000_123,
        MOMENT.replace(microsecond=123000),
    ),
    ("DATETIME", _field("int64", "org.apache.kafka.connect.data.Timestamp"), 0, datetime(1970, 1, 1)),
    (
        "DATETIME(6)",
        _field("int64", "io.debezium.time.MicroTimestamp"),
        -1,
        datetime(1969, 12, 31, 23, 59, 59, 999999),
    ),
    (
        "DATETIME(6)",
        _field("int64", "io.debezium.time.MicroTimestamp"),
        5_000_000,
        datetime(1970, 1, 1, 0, 0, 5),
    ),
    (
        "DATETIME(6)",
        _field("int64", "io.debezium.time.NanoTimestamp"),
        1_700_000_000_123_456_789,
        MOMENT.replace(microsecond=123456),
    ),
    (
        "DATETIME(6)",
        _field("string", "io.debezium.time.IsoTimestamp"),
        "2023-11-14T22:13:20.000001Z",
        MOMENT.replace(microsecond=1),
    ),
    (
        "DATETIME(6)",
        _field("string", "io.debezium.time.ZonedTimestamp"),
        "2023-11-15T00:13:20.5+02:00",
        MOMENT.replace(microsecond=500000),
    ),
    ("BIGINT", _field("int64", "io.debezium.time.MicroTimestamp"), 77, 77),
    (
        "VARCHAR(30)",
        _field("int64", "io.debezium.time.MicroTimestamp"),
        1_700_000_000_000_000,
        "2023-11-14 22:13:20.000000",
    ),
    ("VARCHAR(20)", _field("int32", "io.debezium.time.Time"), 3_723_004, "01:02:03.004000"),
    ("VARCHAR(20)", _field("int64", "io.debezium.time.MicroTime"), -3_020_399_000_000, "-838:59:59"),
    ("VARCHAR(20)", _field("int64", "io.debezium.time.NanoTime"), 3_723_000_004_000, "01:02:03.000004"),
    ("BIGINT", _field("int64", "io.debezium.time.MicroTime"), 5, 5),
    ("VARCHAR(20)", _field("string", "io.debezium.time.ZonedTime"), "10:00:00Z", "10:00:00Z"),
    ("VARCHAR(20)", _field("string", "io.debezium.time.Interval"), "P1Y2M3DT4H5M6.78S", "P1Y2M3DT4H5M6.78S"),
    ("BIGINT", _field("int64", "io.debezium.time.MicroDuration"), 90_000_000, 90_000_000),
    ("INT", _field("int32", "io.debezium.time.Year"), 2024, 2024),
    (
        "DECIMAL(9, 2)",
        _field("bytes", "org.apache.kafka.connect.data.Decimal", scale="2"),
        _b64(-12345, 2),
        Decimal("-123.45"),
    ),
    (
        "DECIMAL(38, 10)",
        _field("bytes", "org.apache.kafka.connect.data.Decimal", scale="10"),
        _b64(10**37 + 1, 16),
        Decimal("1000000000000000000000000000.0000000001"),
    ),
    (
        "LARGEINT",
        _field("bytes", "org.apache.kafka.connect.data.Decimal", scale="0"),
        _b64(-(2**100), 16),
        -(2**100),
    ),
    ("BIGINT", _field("bytes", "org.apache.kafka.connect.data.Decimal", scale="-2"), _b64(7, 1), 700),
    (
        "STRING",  # an exponent is no digit
        _field("bytes", "org.apache.kafka.connect.data.Decimal", scale="9"),
        _b64(-5, 1),
        "-0.000000005",
    ),
    ("DECIMAL(9, 2)", _field("string"), "1234.50", Decimal("1234.50")),
    ("DECIMAL(9, 2)", _field("double"), 1234.5, Decimal("1234.50")),
    (
        "DECIMAL(9, 3)",
        _field("struct", "io.debezium.data.VariableScaleDecimal"),
        {"scale": 3, "value": _b64(1500, 2)},
        Decimal("1.500"),
    ),
    ("DECIMAL(9, 3)", None, {"scale": 1, "value": _b64(-15, 1)}, Decimal("-1.500")),
    ("INT", _field("bytes", "io.debezium.data.Bits", length="12"), _b64(0x203, 2, little=True), 0x203),
    (
        "VARCHAR(12)",
        _field("bytes", "io.debezium.data.Bits", length="12"),
        _b64(0x203, 2, little=True),
        "001000000011",
    ),
    ("BOOLEAN", _field("boolean"), True, True),
    ("TINYINT", _field("boolean"), True, 1),
    ("VARCHAR(9)", _field("string", "io.debezium.data.Enum", allowed="a,b"), "b", "b"),
    ("VARCHAR(9)", _field("string", "io.debezium.data.EnumSet", allowed="a,b"), "a,b", "a,b"),
    (
        "VARCHAR(36)",
        _field("string", "io.debezium.data.Uuid"),
        "1e3e5a52-0000-4000-8000-000000000001",
        "1e3e5a52-0000-4000-8000-000000000001",
    ),
    ("STRING", _field("string", "io.debezium.data.Xml"), "<a/>", "<a/>"),
    (
        "STRING",
        _field("struct", "io.debezium.data.geometry.Point"),
        {"x": 1, "y": 2, "wkb": "AQ==", "srid": 7},
        '{"x":1,"y":2,"wkb":"AQ==","srid":7}',
    ),
    ("STRING", _field("bytes"), "AAH/", "AAH/"),
    ("STRING", _field("array"), [1, 2], "[1,2]"),
    ("ARRAY<INT>", _field("array"), [1, 2], [1, 2]),
    ("DOUBLE", _field("double"), 1.0e-7, 1.0e-7),
    ("DATE", None, 19_000, date(2022, 1, 8)),
    ("DATETIME(6)", None, 1_700_000_000_123, MOMENT.replace(microsecond=123000)),
    ("DATETIME(6)", None, 1_700_000_000_123_456, MOMENT.replace(microsecond=123456)),
    ("DATETIME(6)", None, 1_700_000_000_123_456_789, MOMENT.replace(microsecond=123456)),
    ("DATETIME(6)", None, "2023-11-14T22:13:20Z", MOMENT),
]


def test_logical_types_become_values_of_their_columns(load: Load, session: Session) -> None:
    """CS8: every type in one table and one message, with and without NULL."""
    columns = ", ".join(f"c{i} {kind} NULL" for i, (kind, _, _, _) in enumerate(TYPES))
    run(session, "DROP TABLE t")
    run(session, f"CREATE TABLE t (id BIGINT, {columns}) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1")
    fields = [{**_field("int64"), "field": "id"}]
    fields += [{**declared, "field": f"c{i}"} for i, (_, declared, _, _) in enumerate(TYPES) if declared]
    row = {"id": 1, **{f"c{i}": value for i, (_, _, value, _) in enumerate(TYPES)}}
    empty = {"id": 2, **{f"c{i}": None for i in range(len(TYPES))}}
    reply = load(*(with_schema(envelope("c", 1, after=each), fields) for each in (row, empty)))
    assert counts(reply) == ("Success", 2, 0, 0), (reply["Message"], reasons(reply))
    first, second = rows(session)
    wrong = [(TYPES[i], value) for i, value in enumerate(first[1:]) if value != TYPES[i][3]]
    assert wrong == []
    assert set(second[1:]) == {None}


def test_values_of_other_types_are_refused(load: Load, session: Session) -> None:
    """CS8: a geometry or base64 in a number, and a time beyond the calendar, are no silent NULL."""
    infinity = with_schema(
        envelope("c", 1, after={"id": 1, "at": 9_223_372_036_825_200_000}),
        [{**_field("int64", "io.debezium.time.MicroTimestamp"), "field": "at"}],
    )
    run(session, "ALTER TABLE t ADD COLUMN at DATETIME NULL")
    reply = load(
        infinity,
        envelope("c", 1, after={"id": 2, "n": {"wkb": "AQ=="}}),
        envelope("c", 1, after={"id": 3, "n": "AfQ="}),
        max_filter_ratio="1",
    )
    assert counts(reply) == ("Success", 0, 3, 0)


def test_the_unit_of_moments_without_a_schema_can_be_set(load: Load, session: Session) -> None:
    run(session, "ALTER TABLE t ADD COLUMN at DATETIME(6) NULL")
    for unit, number in (("ms", 1500), ("us", 1_500_000), ("ns", 1_500_000_000)):
        load(envelope("c", 1, after={"id": 1, "at": number}), change_time_unit=unit)
        assert dicts(session, "SELECT at FROM t")[0]["at"] == datetime(1970, 1, 1, 0, 0, 1, 500000)


def test_a_schema_may_change_within_a_body(load: Load, session: Session) -> None:
    run(session, "ALTER TABLE t ADD COLUMN at DATETIME(6) NULL")
    declared = ["io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp"]
    messages = [
        with_schema(
            envelope("c", i, after={"id": i, "at": 7_000_000}), [{**_field("int64", name), "field": "at"}]
        )
        for i, name in enumerate(declared)
    ]
    load(messages[0], envelope("c", 2, after={"id": 2, "at": 7_000_000}), messages[1])
    found = [row["at"] for row in dicts(session, "SELECT at FROM t ORDER BY id")]
    assert found == [
        datetime(1970, 1, 1, 1, 56, 40),
        datetime(1970, 1, 1, 0, 0, 7),
        datetime(1970, 1, 1, 1, 56, 40),
    ]


# ---------------------------------------------------------------------------------------- unavailable values


def test_an_unavailable_value_keeps_the_stored_one(load: Load, session: Session) -> None:
    """CS9."""
    run(session, "ALTER TABLE t ADD COLUMN doc STRING NULL")
    load(envelope("c", 1, after={"id": 1, "name": "x" * 50, "n": 1, "doc": "{}"}), **FLEXIBLE)
    forms = [
        UNAVAILABLE,
        base64.b64encode(UNAVAILABLE.encode()).decode(),
        [UNAVAILABLE],
        list(UNAVAILABLE.encode()),
    ]
    for at, form in enumerate([*forms, json.dumps({UNAVAILABLE: UNAVAILABLE}, separators=(",", ":"))], 2):
        change = envelope("u", at, after={"id": 1, "name": UNAVAILABLE, "n": at, "doc": form})
        assert counts(load(change, **FLEXIBLE)) == ("Success", 1, 0, 0)
        assert rows(session) == [(1, "x" * 50, at, "{}")]
    mixed = [
        envelope("u", 8, after={"id": 1, "name": "short", "n": None, "doc": UNAVAILABLE}),
        envelope("u", 9, after={"id": 1, "name": UNAVAILABLE, "n": 9, "doc": UNAVAILABLE}),
        envelope("u", 4, after={"id": 1, "name": "late", "n": 0, "doc": "late"}),
    ]
    load(*mixed, **FLEXIBLE)
    assert rows(session) == [(1, "short", 9, "{}")]


def test_an_unavailable_value_is_refused_in_whole_rows(load: Load, session: Session) -> None:
    """CS9."""
    change = envelope("u", 2, after={"id": 1, "name": UNAVAILABLE, "n": 2})
    reply = load(change, envelope("d", 3, before={"id": 2, "name": UNAVAILABLE}), max_filter_ratio="0.5")
    assert counts(reply) == ("Success", 1, 1, 0)
    assert "UPDATE_FLEXIBLE_COLUMNS" in reasons(reply)


def test_columns_that_messages_lack_have_their_default_or_are_kept(load: Load, session: Session) -> None:
    run(session, 'ALTER TABLE t ADD COLUMN state VARCHAR(9) NULL DEFAULT "new"')
    load(envelope("c", 1, after={"id": 1, "NAME": "a", "n": 1}))
    load(envelope("u", 2, after={"id": 1, "name": "b", "n": 1, "state": "old", "other": 5}))
    load(envelope("u", 3, after={"id": 1, "name": "c", "n": 1}), **FLEXIBLE)
    assert rows(session) == [(1, "c", 1, "old")]
    load(envelope("u", 4, after={"id": 1, "name": "d", "n": 1}))
    assert rows(session) == [(1, "d", 1, "new")]


# ---------------------------------------------------------------------------------------- headers


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"where": "n > 1"}, "where does not go with format debezium_json"),
        ({"merge_type": "DELETE"}, "merge_type does not go"),
        ({"jsonpaths": '["$.a"]'}, "jsonpaths does not go"),
        ({"strip_outer_array": "true"}, "strip_outer_array does not go"),
        ({"partial_columns": "true"}, "expected UPSERT or UPDATE_FLEXIBLE_COLUMNS"),
        ({"change_position": "lsn"}, "change_position: expected one of auto, gtid, ts_ms, found lsn"),
        ({"change_time_unit": "s"}, "change_time_unit: expected one of auto, ms, us, ns, found s"),
    ],
)
def test_headers_that_contradict_a_change_stream_are_refused(
    load: Load, headers: dict[str, str], text: str
) -> None:
    """CS2."""
    reply = load(envelope("c", 1, after={"id": 1}), **headers)
    assert (reply["Status"], text in reply["Message"]) == ("Fail", True), reply["Message"]


def test_columns_name_and_compute_fields(load: Load, session: Session) -> None:
    """CS3."""
    change = envelope("c", 1, after={"id": 1, "first": "a", "last": "b", "n": 7})
    load(change, columns="id, first, last, n, name = concat(first, last)")
    assert rows(session) == [(1, "ab", 7)]
    load(envelope("d", 2, before={"id": 1}), columns="id, first, last, n, name = concat(first, last)")
    assert rows(session) == []


def test_a_table_without_a_sequence_takes_changes_in_their_order(load: Load, session: Session) -> None:
    run(session, "DROP TABLE t")
    run(
        session,
        "CREATE TABLE t (id BIGINT, name VARCHAR(9) NULL) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1",
    )
    load(
        envelope("c", 9, after={"id": 1, "name": "a"}),
        {"id": 2, "name": "plain"},
        envelope("u", 3, after={"id": 1, "name": "b"}),
    )
    assert rows(session) == [(1, "b"), (2, "plain")]


def test_byte_order_marks_blank_lines_and_compression_are_read(store: Store, session: Session) -> None:
    import gzip

    text = b"\xef\xbb\xbf\n" + body(envelope("c", 1, after={"id": 1, "name": "ü", "n": 1})) + b"\n  \n"
    given = {"format": "debezium_json", "compress_type": "gz"}
    assert counts(stream_load(store, "db", "t", io.BytesIO(gzip.compress(text)), given)) == (
        "Success",
        1,
        0,
        0,
    )
    assert rows(session) == [(1, "ü", 1)]
