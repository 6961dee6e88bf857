"""Formats avro and debezium_avro: messages of a schema registry and container files, in every load (AV1-AV4)."""

# ruff: noqa: E501 - a type and its value are one line

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from seqstore import Session, Settings, Store
from seqstore.cli.main import app
from seqstore.loaders.avro.messages import AvroMessages
from seqstore.loaders.avro.registry import with_registry
from seqstore.loaders.avro.writer_schema import registered
from seqstore.loaders.headers import parse_headers
from seqstore.loaders.reply import StreamLoadReply
from seqstore.loaders.stream_load import stream_load
from seqstore.store.errors import AccessDeniedError, InvalidInputError, UnavailableError
from tests.support.certificates import write_certificate
from tests.support.statements import dicts, run
from tests.support.streams.avro import (
    change,
    connect,
    container,
    decimal,
    envelope_schema,
    framed,
    key_schema,
    optional,
)
from tests.support.streams.registry import RegistryServer

Load = Callable[..., StreamLoadReply]
ID = {"name": "id", "type": "long"}
FIELDS = [ID, {"name": "name", **optional("string")}, {"name": "price", **optional(decimal(2))}]
SCHEMA = envelope_schema(FIELDS)
KEY = key_schema([ID])
TABLE = (
    "CREATE TABLE t (id BIGINT NOT NULL, name VARCHAR(50) NULL, price DECIMAL(9, 2) NULL) UNIQUE KEY(id) "
    'DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES("function_column.sequence_type" = "LARGEINT", '
    '"enable_unique_key_skip_bitmap_column" = "true")'
)
pytestmark = pytest.mark.sql(TABLE)


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


@pytest.fixture
def settings(settings: Settings, registry: RegistryServer) -> Settings:
    return replace(settings, schema_registries=(registry.url,))


@pytest.fixture
def load(store: Store) -> Load:
    def go(
        body: bytes, table: str = "t", file_format: str = "debezium_avro", **headers: str
    ) -> StreamLoadReply:
        given = {"format": file_format, "timezone": "UTC", **headers}
        return stream_load(store, "db", table, io.BytesIO(body), given)

    return go


def row(number: int, name: str = "a", price: str = "1.50") -> dict[str, Any]:
    unscaled = int(Decimal(price).scaleb(2))
    return {"id": number, "name": name, "price": unscaled.to_bytes(4, "big", signed=True)}


def plain(schema: Any) -> Any:
    """The schema without logical types, as the bytes of a decimal are written by themselves."""
    text = json.dumps(schema).replace('"logicalType": "decimal"', '"x": "decimal"')
    return json.loads(text)


def message(number: int, *given: Any, **more: Any) -> bytes:
    return framed(number, plain(SCHEMA), change(*given, **more))


def stored(session: Session, table: str = "t") -> list[tuple[Any, ...]]:
    return [tuple(each.values()) for each in dicts(session, f"SELECT * FROM {table} ORDER BY id")]


def test_messages_of_a_registry_are_rows_of_a_change_stream(
    load: Load, session: Session, registry: RegistryServer
) -> None:
    number = registry.put("t-value", SCHEMA)
    body = message(number, "r", 1, None, row(1)) + message(number, "c", 5, None, row(2, "b", "-0.07"))
    body += message(number, "u", 7, row(1), row(1, "c", "2.00")) + message(number, "d", 9, row(2), None)
    reply = load(body)
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", 4), reply
    assert stored(session) == [(1, "c", Decimal("2.00"))]


def test_a_schema_is_asked_for_once(load: Load, registry: RegistryServer) -> None:
    number = registry.put("t-value", SCHEMA)
    for at in range(3):
        load(message(number, "c", at, None, row(at)))
    assert registry.asked.count(f"/schemas/ids/{number}") == 1


def test_the_next_schema_of_a_running_stream_brings_its_column(
    load: Load, session: Session, registry: RegistryServer
) -> None:
    wider = envelope_schema([*FIELDS, {"name": "color", **optional("string")}], version=2)
    first, second = registry.put("t-value", SCHEMA), registry.put("t-value", wider)
    newer = framed(second, plain(wider), change("c", 6, None, {**row(2), "color": "red"}))
    reply = load(message(first, "c", 5, None, row(1)) + newer, schema_evolution="add")
    assert reply["Status"] == "Success", reply
    assert [each[-1] for each in stored(session)] == [None, "red"]


def test_a_schema_may_refer_to_others(load: Load, session: Session, registry: RegistryServer) -> None:
    name = {
        "type": "record",
        "name": "Name",
        "namespace": "x",
        "fields": [{"name": "first", "type": "string"}],
    }
    registry.put("names", name)
    used = envelope_schema([ID, {"name": "name", **optional("x.Name")}])
    number = registry.put("t-value", used, references=(("x.Name", "names", 1),))
    written = envelope_schema([ID, {"name": "name", **optional(name)}])
    reply = load(framed(number, written, change("c", 5, None, {"id": 1, "name": {"first": "Ada"}})))
    assert reply["Status"] == "Success", reply
    assert stored(session)[0][1] == '{"first":"Ada"}'


def test_an_unknown_schema_in_a_body_is_the_error_of_the_load(load: Load) -> None:
    reply = load(message(4711, "c", 5, None, row(1)))
    assert reply["Status"] == "Fail"
    assert "schema 4711" in reply["Message"]


def lines_of(settings: Settings, keys: list[bytes | None], values: list[bytes | None]) -> list[bytes]:
    options = with_registry(parse_headers({"format": "debezium_avro"}), settings.schema_registries).avro
    assert options is not None
    found = AvroMessages(options).lines(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    return [each.as_py() for each in found]


def test_messages_of_a_topic_become_lines_and_bad_ones_say_why(
    settings: Settings, registry: RegistryServer
) -> None:
    value, key = registry.put("t-value", SCHEMA), registry.put("t-key", KEY)
    other = registry.put("p-value", {}, kind="PROTOBUF")
    good, left = message(value, "c", 5, None, row(1)), framed(key, KEY, {"id": 1})
    cases: list[bytes | None] = [good, None, good[:-1], good + b"x", b"{}", b"\x00\x00\x00\x99\x00"]
    cases.append(b"\x00" + other.to_bytes(4, "big") + b"1")
    lines = lines_of(settings, [left] * len(cases), cases)
    assert json.loads(lines[0].partition(b"\t")[2])["payload"]["after"]["name"] == "a"
    assert lines[1] == b'{"id":1}\tnull'
    reasons = [
        "the bytes end",
        "1 bytes are behind",
        "expected the byte 0",
        "has no schema 39168",
        "found PROTOBUF",
    ]
    for line, reason in zip(lines[2:], reasons, strict=True):
        assert line.startswith(b"undecodable message: "), line
        assert reason in line.decode(), line


def test_a_key_of_another_converter_stays(settings: Settings, registry: RegistryServer) -> None:
    number = registry.put("t-value", SCHEMA)
    assert lines_of(settings, [b'{"id": 1}'], [None]) == [b'{"id": 1}\tnull']
    assert lines_of(settings, [None], [message(number, "c", 5, None, row(1))])[0].startswith(b"{")


@pytest.mark.parametrize("is_down", [True, False])
def test_a_registry_that_does_not_answer_is_no_fault_of_the_rows(settings: Settings, is_down: bool) -> None:
    with RegistryServer() as gone:
        number = gone.put("t-value", SCHEMA)
        gone.is_down = is_down
        if not is_down:
            gone.close()
        wanted = replace(settings, schema_registries=(gone.url,))
        with pytest.raises(UnavailableError, match=f"schema registry {gone.url}, schema {number}"):
            lines_of(wanted, [None], [message(number, "c", 5, None, row(1))])


def test_the_registry_is_one_of_the_setting(load: Load, store: Store) -> None:
    reply = load(b"", schema_registry="http://169.254.169.254")
    assert "not among the registries" in reply["Message"]
    options = parse_headers({"format": "avro", "schema_registry": "http://a:1/"})
    with pytest.raises(AccessDeniedError, match="schema_registries"):
        with_registry(options, ())
    found = with_registry(options, ("http://u:p%40@a:1", "http://b:1")).avro
    assert found is not None
    assert found.registry is not None
    assert (found.registry.url, found.registry.login) == ("http://a:1", "u:p@")
    assert "p@" not in repr(found)


@pytest.mark.parametrize("entry", ["ftp://a", "http://", "http://a?what=1", "nothing", "http://a:x"])
def test_an_entry_that_is_no_registry_is_refused(entry: str) -> None:
    with pytest.raises(InvalidInputError, match="setting schema_registries"):
        with_registry(parse_headers({"format": "avro"}), (entry,))


def test_login_and_certificates_of_the_setting_are_used(settings: Settings, tmp_path: Path) -> None:
    made = write_certificate(tmp_path, "localhost")
    with RegistryServer("me:secret", made) as server:
        number = server.put("t-value", SCHEMA)
        host = server.url.removeprefix("https://")
        body = message(number, "c", 5, None, row(1))
        secret = tmp_path / "registry"
        secret.write_text(f"https://me:secret@{host}?ca={made[0]}\n")
        right = replace(settings, schema_registries=(f"file:{secret}",))
        with pytest.raises(UnavailableError, match="certificate"):
            lines_of(replace(settings, schema_registries=(server.url,)), [None], [body])
        wrong = f"https://me:wrong@{host}?ca={made[0]}"
        with pytest.raises(UnavailableError, match="401"):
            lines_of(replace(settings, schema_registries=(wrong,)), [None], [body])
        assert b'"after"' in lines_of(right, [None], [body])[0]


TYPES: list[tuple[Any, Any, str, Any]] = [
    (connect("int", "io.debezium.time.Date"), 19844, "DATE", date(2024, 5, 1)),
    ({"type": "int", "logicalType": "date"}, 19844, "DATE", date(2024, 5, 1)),
    (connect("long", "io.debezium.time.Timestamp"), 1714550400123, "DATETIME(6)", datetime(2024, 5, 1, 8, 0, 0, 123000)),
    (connect("long", "io.debezium.time.MicroTimestamp"), 1714550400000007, "DATETIME(6)", datetime(2024, 5, 1, 8, 0, 0, 7)),
    (connect("long", "io.debezium.time.NanoTimestamp"), 1714550400000007000, "DATETIME(6)", datetime(2024, 5, 1, 8, 0, 0, 7)),
    ({"type": "long", "logicalType": "timestamp-millis"}, 1714550400123, "DATETIME(6)", datetime(2024, 5, 1, 8, 0, 0, 123000)),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, 1714550400000007, "DATETIME(6)", datetime(2024, 5, 1, 8, 0, 0, 7)),
    (connect("string", "io.debezium.time.ZonedTimestamp"), "2024-05-01T10:00:00+02:00", "DATETIME", datetime(2024, 5, 1, 8)),
    (connect("long", "io.debezium.time.MicroTime"), 28800000001, "VARCHAR(20)", "08:00:00.000001"),
    ({"type": "int", "logicalType": "time-millis"}, 28800001, "VARCHAR(20)", "08:00:00.001000"),
    (decimal(2), b"\xff\x38", "DECIMAL(9, 2)", Decimal("-2.00")),
    ({"type": "fixed", "size": 2, "name": "F", "logicalType": "decimal", "scale": 1, "precision": 4}, b"\x00\x0f", "DECIMAL(9, 1)", Decimal("1.5")),
    (connect("bytes", "io.debezium.data.Bits", **{"connect.parameters": {"length": "10"}}), b"\x05\x02", "BIGINT", 517),
    (connect("string", "io.debezium.data.Json"), '{"a":1}', "JSON", '{"a":1}'),
    (connect("string", "io.debezium.data.Uuid"), "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "VARCHAR(36)", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
    ({"type": "record", "name": "V", "connect.name": "io.debezium.data.VariableScaleDecimal", "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]}, {"scale": 3, "value": b"\x07\xd0"}, "DECIMAL(9, 3)", Decimal("2.000")),
    ({"type": "enum", "name": "E", "symbols": ["x", "y"]}, "y", "VARCHAR(5)", "y"),
    ({"type": "array", "items": ["null", "int"]}, [1, None], "ARRAY<INT>", [1, None]),
    ({"type": "map", "values": "int"}, {"a": 1}, "JSON", '{"a":1}'),
    ("bytes", b"\x00\xff", "VARCHAR(20)", "AP8="),
    ("boolean", True, "BOOLEAN", True),
    ("double", float("inf"), "VARCHAR(20)", "Infinity"),
    (["null", "long", "string"], "u", "VARCHAR(5)", "u"),
    ({"type": "int", "connect.type": "int16"}, 7, "SMALLINT", 7),
]  # fmt: skip


@pytest.mark.family(8)
@pytest.mark.parametrize(("kind", "value", "column", "expected"), TYPES, ids=lambda each: str(each)[:40])
def test_every_type_becomes_the_value_of_its_column(
    load: Load, session: Session, registry: RegistryServer, kind: Any, value: Any, column: str, expected: Any
) -> None:
    run(
        session,
        f"CREATE TABLE v (id BIGINT, c {column} NULL) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 "
        'PROPERTIES("function_column.sequence_type" = "LARGEINT")',
    )
    branches = kind if isinstance(kind, list) else ["null", kind]
    schema = envelope_schema([ID, {"name": "c", "type": branches, "default": None}])
    written = json.loads(json.dumps(schema).replace("logicalType", "x"))
    number = registry.put("v-value", schema)
    empty = framed(number, written, change("c", 5, None, {"id": 2, "c": None}))
    reply = load(framed(number, written, change("c", 5, None, {"id": 1, "c": value})) + empty, "v")
    assert reply["Status"] == "Success", reply
    found = stored(session, "v")
    assert [each[1] for each in found][1] is None
    assert found[0][1] == expected


def test_auto_create_makes_the_table_of_the_schema(
    load: Load, session: Session, registry: RegistryServer
) -> None:
    number = registry.put("t-value", SCHEMA)
    reply = load(message(number, "c", 5, None, row(1)), "made", auto_create="true", auto_create_key="id")
    assert reply["Status"] == "Success", reply
    types = {each["Field"]: each["Type"] for each in dicts(session, "DESC made")}
    assert types == {"id": "bigint", "name": "text", "price": "decimal(38,2)"} or types, types
    assert stored(session, "made") == [(1, "a", Decimal("1.50"))]


# ------------------------------------------------------------------------------------- container files

ROWS = {
    "type": "record",
    "name": "R",
    "fields": [
        ID,
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", **optional({"type": "int", "logicalType": "date"})},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
MOMENT = datetime.fromisoformat("2024-05-01T08:00:00+00:00")


def records(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "at": MOMENT + timedelta(seconds=number),
            "day": date(2024, 5, 1) if number % 2 else None,
            "price": Decimal(number).scaleb(-2),
            "tags": ["a", "b"],
        }
        for number in range(count)
    ]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_rows_of_a_container_file(load: Load, session: Session, codec: str) -> None:
    data = container(ROWS, records(1000), codec)
    reply = load(data, "rows", "avro", auto_create="true", auto_create_key="id")
    assert reply["Status"] == "Success", reply
    found = dicts(session, "SELECT * FROM rows WHERE id = 999")[0]
    at = datetime(2024, 5, 1, 8, 16, 39)
    assert found == {
        "id": 999,
        "at": at,
        "day": date(2024, 5, 1),
        "price": Decimal("9.99"),
        "tags": '["a","b"]',
    }


def test_instants_of_rows_are_in_the_zone_of_the_load(load: Load, session: Session) -> None:
    load(
        container(ROWS, records(1)),
        "rows",
        "avro",
        auto_create="true",
        auto_create_key="id",
        timezone="+08:00",
    )
    assert dicts(session, "SELECT at FROM rows")[0]["at"] == datetime(2024, 5, 1, 16)


def test_a_container_file_may_hold_messages_of_debezium(load: Load, session: Session) -> None:
    data = container(plain(SCHEMA), [change("c", 5, None, row(1)), change("u", 6, row(1), row(1, "b"))])
    assert load(data)["NumberLoadedRows"] == 2
    assert stored(session) == [(1, "b", Decimal("1.50"))]


@pytest.mark.parametrize("data", [b"id,name\n1,a\n", b"Obj\x01broken", container(ROWS, records(9))[:-20]])
def test_a_body_that_is_no_avro_is_refused(load: Load, data: bytes) -> None:
    run_format = load(data, "t", "avro")
    assert run_format["Status"] == "Fail", run_format


def test_a_command_makes_a_table_of_avro_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        values = [{**each, "id": each["id"] + 5 * number} for each in records(5)]
        (tmp_path / f"in/{number}.avro").write_bytes(container(ROWS, values))
    arguments = [
        "--data-dir",
        str(tmp_path / "data"),
        "load",
        str(tmp_path / "in"),
        "--into",
        "db.r",
        "--key",
        "id",
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "`price` DECIMAL(38, 2)" in done.output or "decimal(38" in done.output.lower(), done.output
    assert "10" in done.output


@pytest.mark.parametrize("name", ["json_root", "strip_outer_array", "line_delimiter"])
def test_headers_of_json_do_not_go_with_avro(load: Load, name: str) -> None:
    assert name in load(b"", "t", "avro", **{name: "true"})["Message"]


def test_a_registry_goes_with_avro_alone(load: Load, registry: RegistryServer) -> None:
    reply = load(b"", "t", "json", schema_registry=registry.url)
    assert "expected format avro or debezium_avro" in reply["Message"]


def test_dead_letters_keep_rows_as_json(load: Load, session: Session, registry: RegistryServer) -> None:
    number = registry.put("t-value", SCHEMA)
    bad = message(number, "c", 5, None, row(1, "a" * 60))
    reply = load(bad + message(number, "c", 6, None, row(2)), dead_letters="true", max_filter_ratio="1")
    assert (reply["NumberLoadedRows"], reply["NumberFilteredRows"]) == (1, 1), reply
    letter = dicts(session, "SELECT raw, options FROM t__dead_letters")[0]
    assert json.loads(letter["raw"])["payload"]["after"]["id"] == 1
    assert json.loads(letter["options"])["format"] == "debezium_json"


def test_schemas_do_not_change(registry: RegistryServer) -> None:
    options = with_registry(parse_headers({"format": "avro"}), (registry.url,)).avro
    assert options is not None
    assert options.registry is not None
    number = registry.put("t-value", SCHEMA)
    first = registered(options.registry, number, is_changes=True)
    assert registered(options.registry, number, is_changes=True) is first
