"""`debezium_json`: envelopes and flattened rows, with and without a schema.

1. A message `{"schema": .., "payload": ..}` is its payload; the schema declares the types of its
   fields.
2. An envelope has `op` and `source`. Its row is `after`, of a delete `before` or the message's key. MongoDB's
   rows are documents in a text.
3. Messages of transactions, schema changes, heartbeats and `pg_logical_emit_message` are passed over.
4. All other messages are flattened rows (ExtractNewRecordState). `__deleted` or `__op` marks deletes, and the
   fields of the setting `add.fields` have the position, as `__lsn` or `__source_lsn`.

A truncate is a bad message, because the rows of the table would have to go with it. A row whose schema is
none of Kafka Connect is one too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.changes import positions
from seqstore.loaders.changes.change_rows import (
    NO_SHAPE,
    ChangeRows,
    Mask,
    Messages,
    Shapes,
    joined,
    no_text,
)
from seqstore.loaders.changes.field_type import FieldType, row_types
from seqstore.loaders.changes.positions import SNAPSHOT, PositionKind
from seqstore.loaders.headers import ChangeOptions
from seqstore.loaders.json.fields import extract, mask_of, one_array
from seqstore.store.errors import InvalidInputError
from seqstore.store.types.cast import evaluate

_SOURCE: Final = (
    "lsn",
    "file",
    "pos",
    "row",
    "gtid",
    "change_lsn",
    "event_serial_no",
    "ord",
    "ts_ms",
    "commit_version",
)
_NAMES: Final = ("connector", "snapshot", "db", "schema", "table", "collection")
_ROW_OPS: Final = ("c", "u", "d", "r")
_SNAPSHOTS: Final = pa.array(
    ["true", "first", "first_in_data_collection", "last_in_data_collection", "last", "incremental"]
)
_NO_POSITION: Final = (
    "the message has no position; of flattened messages the setting add.fields of the connector adds it"
)
_MONGO: Final = "mongodb"

Head = Mapping[str, pa.Array]
Source = Callable[[str], pa.Array]


def debezium_rows(messages: Messages, options: ChangeOptions) -> ChangeRows:
    """Returns the rows of the messages; a `Dialect`."""
    payloads, shapes, types, refused = _unwrapped(messages.values)
    kinds = _extracted(payloads, "json_type", ["$.op", "$.source", "$.payload"])
    is_envelope = mask_of(pc.and_(pc.equal(kinds[0], "VARCHAR"), pc.equal(kinds[1], "OBJECT")))
    parts = []
    for choose, make in ((is_envelope, _enveloped), (~is_envelope, _flattened)):
        places = np.flatnonzero(choose)
        if len(places):
            rows = pa.array(places)
            chosen = Messages(payloads.take(rows), messages.keys.take(rows), messages.columns)
            part = make(chosen, options)
            own = shapes[places][part.origins]
            bad = {int(places[message]): reason for message, reason in part.bad.items()}
            parts.append(replace(part, origins=places[part.origins], shapes=own, bad=bad))
    rows = replace(joined(parts), types=types)
    return _without(rows, refused) if refused else rows


def _without(rows: ChangeRows, refused: Mapping[int, str]) -> ChangeRows:
    """Returns the rows without those of some messages, which are bad with the reasons given."""
    places = np.isin(rows.origins, list(refused))
    bad = {int(message): refused[int(message)] for message in rows.origins[places]}
    return replace(rows.filtered(~places), bad={**rows.bad, **bad})


def _unwrapped(
    values: pa.Array,
) -> tuple[pa.Array, Shapes, list[Mapping[str, FieldType]], dict[int, str]]:
    """Returns payloads, the place of the schema of each, and the types that the schemas declare.

    The last result has the messages whose schema is none, with the reason.
    """
    shapes = np.full(len(values), NO_SHAPE, np.int32)
    types: list[Mapping[str, FieldType]] = []
    kinds = _extracted(values, "json_type", ["$.schema", "$.payload", "$.op"])
    has_payload = pc.and_kleene(kinds[1].is_valid(), kinds[2].is_null())
    wrapped = np.flatnonzero(mask_of(pc.and_(has_payload, kinds[0].is_valid())))
    if not len(wrapped):
        return values, shapes, types, {}
    rows = pa.array(wrapped)
    schemas, payloads = extract(values.take(rows), [["$.schema"], ["$.payload"]])
    payloads = pc.fill_null(payloads, "null")
    encoded = one_array(schemas).dictionary_encode()
    declared = pc.fill_null(encoded.indices, NO_SHAPE).to_numpy(zero_copy_only=False)
    refused: dict[int, str] = {}
    for place, schema in enumerate(encoded.dictionary.to_pylist()):
        try:
            types.append(row_types(schema))
        except InvalidInputError as error:
            types.append({})
            refused |= dict.fromkeys(wrapped[declared == place].tolist(), error.message)
    shapes[wrapped] = declared
    flags = np.zeros(len(values), np.bool_)
    flags[wrapped] = True
    return pc.replace_with_mask(values, pa.array(flags), payloads), shapes, types, refused


# ------------------------------------------------------------------------------------------- envelopes


def _enveloped(messages: Messages, options: ChangeOptions) -> ChangeRows:
    paths = {name: [f'$."source"."{name}"'] for name in (*_SOURCE, *_NAMES)}
    paths |= {name: [f'$."{name}"'] for name in ("op", "before", "after")}
    found = extract(messages.values, list(paths.values()))
    head = dict(zip(paths, found, strict=True))
    count = len(messages.values)
    bad: dict[int, str] = {}
    is_ours = _of_table(head, options.table, count)
    op = head["op"]
    has_row = mask_of(pc.is_in(op, pa.array(_ROW_OPS))) & is_ours
    deleted = mask_of(pc.equal(op, "d"))
    is_mongo = mask_of(pc.equal(head["connector"], _MONGO))
    documents = pc.if_else(pa.array(deleted), head["before"], head["after"])
    documents = _with_keys(documents, deleted, is_mongo, messages.keys)
    is_snapshot = pc.or_kleene(pc.equal(op, "r"), pc.is_in(head["snapshot"], _SNAPSHOTS))
    where, kinds = _positions(head.__getitem__, head["connector"], mask_of(is_snapshot), options, has_row)
    _refuse(bad, is_ours & mask_of(pc.equal(op, "t")), lambda row: _truncated(where[row].as_py()))
    known = pa.array([*_ROW_OPS, "t", "m"])
    _refuse(bad, is_ours & ~mask_of(pc.is_in(op, known)), lambda row: f"op {op[row].as_py()!r} is not known")
    no_row = has_row & ~mask_of(documents.is_valid())
    _refuse(bad, no_row, lambda row: _imageless(bool(deleted[row]), bool(is_mongo[row])))
    rows = np.flatnonzero(has_row & ~no_row)
    taken = pa.array(rows)
    before = pc.if_else(pa.array(deleted | is_mongo), pa.scalar(None, pa.string()), head["before"])
    return ChangeRows(
        documents.take(taken),
        before.take(taken),
        rows,
        deleted[rows],
        where.take(taken),
        kinds,
        bad=bad,
        is_document=is_mongo[rows],
    )


def _of_table(head: Head, wanted: str, count: int) -> Mask:
    """Marks the messages of the wanted table: named alone, or with its database, schema or both."""
    if not wanted:
        return np.ones(count, np.bool_)
    table = pc.coalesce(head["table"], head["collection"])
    marks = pc.equal(table, wanted)
    for parts in (("db",), ("schema",), ("db", "schema")):
        name = pc.binary_join_element_wise(*(head[part] for part in parts), table, ".")
        marks = pc.or_kleene(marks, pc.equal(name, wanted))
    return mask_of(marks)


def _with_keys(documents: pa.Array, deleted: Mask, is_mongo: Mask, keys: pa.Array) -> pa.Array:
    """Returns the documents; a delete without an old image has the key of its message."""
    lacking = deleted & ~mask_of(documents.is_valid()) & mask_of(keys.is_valid())
    if not lacking.any():
        return documents
    plain, mongo = extract(keys, [["$.payload", "$"], ["$.payload.id", "$.id"]])
    documented = pc.binary_join_element_wise('{"_id":', mongo, "}", "")
    found = pc.if_else(pa.array(is_mongo), documented, plain)
    return pc.if_else(pa.array(lacking), found, documents)


def _positions(
    part: Source, connector: pa.Array, is_snapshot: Mask, options: ChangeOptions, has_row: Mask
) -> tuple[pa.Array, frozenset[PositionKind]]:
    """Returns the position of each message, and the kinds of positions."""
    result = no_text(len(connector))
    kinds: set[PositionKind] = set()
    streamed = ~is_snapshot
    for kind, is_kind in _kinds_of(connector, options, streamed):
        if is_kind.any():
            result = pc.if_else(pa.array(is_kind), _position(kind, part), result)
            kinds |= {kind} if (is_kind & has_row).any() else set()
    result = pc.if_else(pa.array(is_snapshot), SNAPSHOT, result)
    return result, frozenset(kinds)


def _kinds_of(connector: pa.Array, options: ChangeOptions, streamed: Mask) -> list[tuple[PositionKind, Mask]]:
    if options.position == "ts_ms":
        return [(PositionKind.TS_MS, streamed)]
    of_mysql = PositionKind.GTID if options.position == "gtid" else PositionKind.BINLOG
    names = {
        PositionKind.LSN: ["postgresql"],
        of_mysql: ["mysql", "mariadb"],
        PositionKind.CHANGE_LSN: ["sqlserver"],
        PositionKind.ORDER: [_MONGO],
        PositionKind.VERSION: ["seqstore"],
    }
    found = []
    left = streamed.copy()
    for kind, wanted in names.items():
        mask = streamed & mask_of(pc.is_in(connector, pa.array(wanted)))
        left &= ~mask
        found.append((kind, mask))
    return [*found, (PositionKind.TS_MS, left)]


def _position(kind: PositionKind, part: Source) -> pa.Array:
    if kind == PositionKind.LSN:
        return positions.lsn(part("lsn"))
    if kind == PositionKind.BINLOG:
        return positions.binlog(part("file"), part("pos"), part("row"))
    if kind == PositionKind.GTID:
        return positions.gtid(part("gtid"), part("pos"), part("row"))
    if kind == PositionKind.CHANGE_LSN:
        return positions.change_lsn(part("change_lsn"), part("event_serial_no"))
    if kind == PositionKind.ORDER:
        return positions.order(part("ts_ms"), part("ord"))
    if kind == PositionKind.VERSION:
        return positions.lsn(part("commit_version"))
    return positions.ts_ms(part("ts_ms"))


def _truncated(position: str | None) -> str:
    return (
        f"the table was truncated at its source (position {position or 'unknown'}); truncate events are not "
        "applied: delete the rows with a smaller sequence"
    )


def _imageless(is_delete: bool, is_mongo: bool) -> str:
    if is_delete:
        return (
            "the delete has neither an old image nor a key; send the message's key and a tab before its value"
        )
    if is_mongo:
        return (
            "the update has no full document; set capture.mode of the connector to change_streams_update_full"
        )
    return "the message has no image of its row"


# ------------------------------------------------------------------------------------------- flattened


def _flattened(messages: Messages, options: ChangeOptions) -> ChangeRows:
    values = messages.values
    names = [*_SOURCE, *_NAMES]
    paths = {name: [f'$."__source_{name}"', f'$."__{name}"'] for name in names}
    paths |= {"op": ['$."__op"'], "deleted": ['$."__deleted"']}
    head = dict(zip(paths, extract(values, list(paths.values())), strict=True))
    passed = _passed_over(messages)
    bad: dict[int, str] = {}
    op = head["op"]
    is_row = ~passed & _of_table(head, options.table, len(values))
    is_object = mask_of(pc.equal(evaluate(values, "json_type(c)"), "OBJECT"))
    _refuse(bad, is_row & ~is_object, lambda row: "the payload is no object")
    truncated = mask_of(pc.equal(op, "t"))
    deleted = mask_of(pc.or_kleene(pc.equal(head["deleted"], "true"), pc.equal(op, "d")))
    is_snapshot = mask_of(pc.or_kleene(pc.equal(op, "r"), pc.is_in(head["snapshot"], _SNAPSHOTS)))
    is_row &= is_object
    connector = _connector(head)
    where, kinds = _positions(head.__getitem__, connector, is_snapshot, options, is_row & ~truncated)
    _refuse(bad, is_row & truncated, lambda row: _truncated(where[row].as_py()))
    rows = np.flatnonzero(is_row & ~truncated)
    taken = pa.array(rows)
    tells = pc.or_(head["deleted"].is_valid(), op.is_valid()).take(taken)
    return ChangeRows(
        values.take(taken),
        no_text(len(rows)),
        rows,
        deleted[rows],
        where.take(taken),
        kinds,
        bad=bad,
        lacks_deletes=bool(len(rows)) and not mask_of(tells).all(),
    )


def _connector(head: Head) -> pa.Array:
    """Returns the connector of flattened rows, from the parts of the position that they have."""
    found = head["connector"]
    for part, name in (
        ("lsn", "postgresql"),
        ("file", "mysql"),
        ("change_lsn", "sqlserver"),
        ("ord", _MONGO),
    ):
        found = pc.coalesce(found, pc.if_else(head[part].is_valid(), name, pa.scalar(None, pa.string())))
    return pc.coalesce(found, "")


def _passed_over(messages: Messages) -> Mask:
    """Marks heartbeats, and messages of transactions and schema changes."""
    values = messages.values
    names = ["status", "event_count", "data_collections", "ddl", "databaseName", "tableChanges", "ts_ms"]
    has = dict(
        zip(
            names,
            (k.is_valid() for k in _extracted(values, "json_type", [f"$.{n}" for n in names])),
            strict=True,
        )
    )
    transaction = mask_of(pc.and_(pc.and_(has["status"], has["event_count"]), has["data_collections"]))
    ddl = mask_of(pc.and_(has["ddl"], pc.or_(has["databaseName"], has["tableChanges"])))
    sizes = evaluate(values, "CASE json_type(c) WHEN 'OBJECT' THEN len(json_keys(c)) END")
    heartbeat = mask_of(pc.and_(has["ts_ms"], pc.equal(sizes, 1)))
    if "ts_ms" in messages.columns:
        heartbeat[:] = False
    return transaction | ddl | heartbeat


def _extracted(values: pa.Array, function: str, paths: list[str]) -> list[pa.Array]:
    lists = evaluate(values, f"{function}(c, [{', '.join(repr(path) for path in paths)}])")
    return [pc.list_element(lists, place) for place in range(len(paths))]


def _refuse(bad: dict[int, str], rows: Mask, reason: Callable[[int], str]) -> None:
    for row in np.flatnonzero(rows).tolist():
        bad[row] = reason(row)
