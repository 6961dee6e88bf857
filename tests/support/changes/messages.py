"""Messages of change streams as the documents of Debezium, Canal and Maxwell describe them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]
CONNECTORS = ("postgresql", "mysql", "sqlserver", "mongodb", "oracle")


def source(connector: str, at: int, *, snapshot: bool = False, table: str = "t") -> Row:
    """Returns the block `source` of the change number `at`."""
    common = {
        "version": "3.0.0.Final",
        "connector": connector,
        "name": "server",
        "ts_ms": 1_700_000_000_000 + at,
        "snapshot": "true" if snapshot else "false",
        "db": "shop",
        "sequence": None,
        "ts_us": 1_700_000_000_000_000 + 1000 * at,
        "ts_ns": 1_700_000_000_000_000_000 + 1_000_000 * at,
    }
    own: dict[str, Row] = {
        "postgresql": {"schema": "public", "txId": 700 + at, "lsn": 24_000_000 + at, "xmin": None},
        "mysql": {
            "server_id": 1,
            "gtid": f"24bc7850-2c16-11e6-a073-0242ac110002:{1 + at}",
            "file": f"mysql-bin.{1 + at // 10:06}",
            "pos": 200 + at % 10,
            "row": 0,
            "thread": 7,
        },
        "sqlserver": {
            "schema": "dbo",
            "change_lsn": f"00000027:{at:08x}:0002",
            "commit_lsn": f"00000027:{at:08x}:0005",
            "event_serial_no": 1,
        },
        "mongodb": {"ts_ms": 1_700_000_000_000 + 1000 * (at // 4), "ord": at % 4, "collection": table},
        "oracle": {"schema": "DEBEZIUM", "scn": str(2_000_000 + at), "commit_scn": str(2_000_001 + at)},
    }
    named = {} if connector == "mongodb" else {"table": table}
    return {**common, **named, **own[connector]}


def envelope(
    op: str,
    at: int,
    *,
    before: Any = None,
    after: Any = None,
    connector: str = "postgresql",
    table: str = "t",
) -> Row:
    """Returns the value of a change event."""
    block = source(connector, at, snapshot=op == "r", table=table)
    return {
        "before": before,
        "after": after,
        "source": block,
        "op": op,
        "ts_ms": 1_700_000_009_000,
        "transaction": None,
    }


def with_schema(payload: Row, fields: Sequence[Mapping[str, Any]]) -> Row:
    """Returns a message with the schema of an envelope, whose rows have the fields."""
    images = [
        {
            "type": "struct",
            "fields": list(fields),
            "optional": True,
            "name": "server.public.t.Value",
            "field": name,
        }
        for name in ("before", "after")
    ]
    others = [
        {
            "type": "struct",
            "fields": [],
            "optional": False,
            "name": "io.debezium.connector.Source",
            "field": "source",
        },
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    schema = {
        "type": "struct",
        "fields": [*images, *others],
        "optional": False,
        "name": "server.public.t.Envelope",
    }
    return {"schema": schema, "payload": payload}


def flattened(row: Row, at: int, *, op: str = "u", connector: str = "postgresql") -> Row:
    """Returns a row of ExtractNewRecordState with `add.fields` and marked deletes."""
    block = source(connector, at)
    parts = ("lsn", "file", "pos", "row", "change_lsn", "event_serial_no", "ord")
    added = {f"__source_{name}": block[name] for name in parts if name in block}
    return {**row, **added, "__source_ts_ms": block["ts_ms"], "__op": op, "__deleted": str(op == "d").lower()}


def canal(
    kind: str, at: int, rows: Sequence[Row], *, old: Sequence[Row | None] | None = None, table: str = "t"
) -> Row:
    """Returns a flat message of Canal, whose values are texts."""
    return {
        "data": [_texts(row) for row in rows],
        "database": "shop",
        "es": 1_700_000_000_000 + at,
        "gtid": "",
        "id": at,
        "isDdl": False,
        "mysqlType": {},
        "old": None if old is None else [None if row is None else _texts(row) for row in old],
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {},
        "table": table,
        "ts": 1_700_000_009_000,
        "type": kind,
    }


def maxwell(kind: str, at: int, row: Row, *, old: Row | None = None, table: str = "t") -> Row:
    """Returns a message of Maxwell with `output_binlog_position`."""
    message = {
        "database": "shop",
        "table": table,
        "type": kind,
        "ts": 1_700_000_000 + at,
        "xid": 900 + at,
        "xoffset": 0,
        "position": f"master.{1 + at // 10:06}:{200 + at % 10}",
        "data": row,
    }
    return message if old is None else {**message, "old": old}


def heartbeats(connector: str = "mysql") -> list[Row]:
    """Returns messages that are no rows: a heartbeat, a transaction, a schema change, a logical message."""
    return [
        {"ts_ms": 1_700_000_000_000},
        {
            "status": "BEGIN",
            "id": "571",
            "event_count": None,
            "data_collections": None,
            "ts_ms": 1_700_000_000_000,
        },
        {
            "status": "END",
            "id": "571",
            "event_count": 2,
            "data_collections": [{"data_collection": "shop.t", "event_count": 2}],
            "ts_ms": 1_700_000_000_000,
        },
        {
            "source": source(connector, 1),
            "ts_ms": 1_700_000_000_000,
            "databaseName": "shop",
            "schemaName": None,
            "ddl": "ALTER TABLE t ADD COLUMN c INT",
            "tableChanges": [{"type": "ALTER", "id": '"shop"."t"'}],
        },
        {
            "op": "m",
            "ts_ms": 1,
            "source": source("postgresql", 1),
            "message": {"prefix": "foo", "content": "Ymfy"},
        },
    ]


def body(*messages: Row | str) -> bytes:
    """Returns messages as lines; a text is a line as it is."""
    return "".join(f"{m if isinstance(m, str) else json.dumps(m)}\n" for m in messages).encode()


def _texts(row: Row) -> Row:
    return {name: None if value is None else str(value) for name, value in row.items()}
