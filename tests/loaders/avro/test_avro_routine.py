"""Routine loads of Avro: files, and what a Kafka source makes of the messages that it has read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Session, Settings, Store
from seqstore.loaders.avro.messages import AvroMessages
from seqstore.loaders.avro.registry import with_registry
from seqstore.loaders.headers import StreamLoadOptions, parse_headers
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.routine.kafka_source import KafkaSource
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.loaders.routine.source import Span
from seqstore.store.sql import ServerContext
from tests.support.statements import dicts
from tests.support.streams.avro import change, container, envelope_schema, framed, key_schema, optional
from tests.support.streams.registry import RegistryServer

ID = {"name": "id", "type": "long"}
SCHEMA = envelope_schema([ID, {"name": "name", **optional("string")}])
KEY = key_schema([ID])
SEQUENCE = "PROPERTIES('function_column.sequence_type' = 'LARGEINT')"
TABLE = (
    "CREATE TABLE {} (id BIGINT, name VARCHAR(20) NULL) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) " + SEQUENCE
)


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


@pytest.fixture
def settings(settings: Settings, registry: RegistryServer, tmp_path: Path) -> Settings:
    (tmp_path / "in").mkdir()
    return replace(settings, schema_registries=(registry.url,), load_paths=(str(tmp_path / "in"),))


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    with Session(store, "db", server=ServerContext(load_jobs=StoreLoadJobs(store))) as opened:
        yield opened


def stored(session: Session, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in dicts(session, f"SELECT * FROM {table} ORDER BY id")]


def test_files_of_many_tables_and_new_columns(store: Store, session: Session, tmp_path: Path) -> None:
    """R3, EV9"""
    wider = envelope_schema([ID, {"name": "name", **optional("string")}, {"name": "n", **optional("int")}])
    for table in ("a", "b"):
        dicts(session, TABLE.format(table))
    first = [change("c", 1, None, {"id": 1, "name": "x"}, table) for table in ("a", "b")]
    first.append(change("d", 2, {"id": 1, "name": "x"}, None, "b"))
    (tmp_path / "in/1.avro").write_bytes(container(SCHEMA, first, "deflate"))
    second = [change("c", 3, None, {"id": 2, "name": "y", "n": 7}, "a")]
    (tmp_path / "in/2.avro").write_bytes(container(wider, second))
    dicts(
        session,
        "CREATE ROUTINE LOAD j PROPERTIES('format' = 'debezium_avro', 'schema_evolution' = 'add') "
        f"FROM FILES('path' = '{tmp_path}/in/*.avro')",
    )
    (job,) = RoutineRunner(store).drain().values()
    assert (job.statistic.loaded_rows, job.statistic.error_rows) == (4, 0)
    assert stored(session, "a") == [(1, "x", None), (2, "y", 7)]
    assert stored(session, "b") == []


def test_files_of_rows_of_one_table(store: Store, session: Session, tmp_path: Path) -> None:
    dicts(session, "CREATE TABLE t (id BIGINT, twice BIGINT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id)")
    schema = {"type": "record", "name": "R", "fields": [ID, {"name": "n", "type": "int"}]}
    (tmp_path / "in/1.avro").write_bytes(container(schema, [{"id": 1, "n": 2}, {"id": 2, "n": 5}]))
    dicts(
        session,
        "CREATE ROUTINE LOAD j ON t COLUMNS(id, n, twice = n * 2), WHERE n > 3 "
        f"FROM FILES('path' = '{tmp_path}/in/*.avro')",
    )
    (job,) = RoutineRunner(store).drain().values()
    assert (job.statistic.loaded_rows, job.statistic.unselected_rows) == (1, 1)
    assert stored(session, "t") == [(2, 10)]


def source(settings: Settings, file_format: str, *, is_multi: bool) -> KafkaSource:
    """One that has read: only the reading itself needs Spark."""
    options = with_registry(parse_headers({"format": file_format}), settings.schema_registries).avro
    assert options is not None
    made = KafkaSource.__new__(KafkaSource)
    made._avro, made._is_multi = AvroMessages(options), is_multi
    made._options = StreamLoadOptions(format="debezium_json" if options.is_changes else "json")
    return made


def read(keys: list[bytes | None], values: list[bytes | None]) -> pa.Table:
    columns = [
        pa.array(range(len(values)), pa.int64()),
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
    ]
    return pa.table(columns, names=["offset", "value", "key"])


def test_messages_of_a_topic_go_to_their_tables(settings: Settings, registry: RegistryServer) -> None:
    """AV3: a message that cannot be decoded is a bad row, with its reason."""
    number, keys = registry.put("v", SCHEMA), registry.put("k", KEY)
    values: list[bytes | None] = [
        framed(number, SCHEMA, change("c", at, None, {"id": at, "name": "x"}, table))
        for at, table in enumerate("abb")
    ]
    values += [None, b"\x00\x00\x00\x00\x63z"]
    left: list[bytes | None] = [framed(keys, KEY, {"id": at}) for at in range(5)]
    piece = source(settings, "debezium_avro", is_multi=True)._piece(Span("t-0", 0, 5), read(left, values))
    bodies = list(piece.bodies())
    assert {body.table: body.open().read().count(b"\n") for body in bodies if body.table} == {"a": 1, "b": 2}
    (last,) = [body for body in bodies if not body.table]
    assert (last.bad_count, last.passed) == (1, 1)
    assert "has no schema 99" in last.bad[0].reason


def test_rows_of_a_topic(settings: Settings, registry: RegistryServer) -> None:
    schema = {"type": "record", "name": "R", "fields": [ID]}
    number = registry.put("r", schema)
    values: list[bytes | None] = [framed(number, schema, {"id": 7}), None]
    piece = source(settings, "avro", is_multi=False)._piece(Span("t-0", 0, 2), read([None, None], values))
    (body,) = piece.bodies()
    assert (body.open().read(), body.bad_count) == (b'{"id":7}\n', 1)
