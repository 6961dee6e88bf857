"""Events for tables with column groups, and the ways a load can bring them.

An event is a row as `group_model` takes it: the key, the columns it supplies, maybe a sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from seqstore import Column, Default, Load, Table, TableSchema, parse_type
from tests.support.groups.group_model import DELETE_SIGN, Group, GroupModel, Key

Event = Mapping[str, Any]


@dataclass(frozen=True)
class GroupShape:
    """A table with column groups: key columns and other columns as (name, type)."""

    key: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, str], ...]
    groups: tuple[Group, ...]
    keys: tuple[Key, ...]
    defaults: tuple[tuple[str, Any], ...] = ()

    @property
    def key_names(self) -> list[str]:
        return [name for name, _ in self.key]

    def schema(self, **properties: str) -> TableSchema:
        defaults = dict(self.defaults)
        columns = [Column(name, parse_type(kind), nullable=False) for name, kind in self.key]
        for name, kind in self.columns:
            default = Default("constant", str(defaults[name])) if name in defaults else None
            columns.append(Column(name, parse_type(kind), default=default))
        mapped = {
            "sequence_mapping." + ",".join(group.sequence): ",".join(group.cells) for group in self.groups
        }
        return TableSchema.create(columns, self.key_names, properties=mapped | properties)

    def model(self) -> GroupModel:
        return GroupModel(self.key_names, self.groups, dict(self.defaults))


EXACT = GroupShape(
    key=(("k", "INT"),),
    columns=(("a", "INT"), ("b", "VARCHAR(20)"), ("s", "BIGINT"), ("c", "INT"), ("t", "DATE"), ("u", "INT")),
    groups=(Group(("s",), ("a", "b")), Group(("t", "u"), ("c",))),
    keys=((1,), (2,), (3,)),
    defaults=(("b", "none"),),
)
HASHED = GroupShape(
    key=(("k", "VARCHAR(20)"), ("n", "BIGINT")),
    columns=(
        ("p", "LARGEINT"),
        ("x", "INT"),
        ("q", "INT"),
        ("y", "VARCHAR(9)"),
        ("r", "BIGINT"),
        ("z", "INT"),
    ),
    groups=(Group(("p",), ("x",)), Group(("q",), ("y",)), Group(("r",), ("z",))),
    keys=(("one", 1), ("one", 2), ("two", 1)),
    defaults=(("x", 7),),
)


def given_columns(event: Event, shape: GroupShape) -> frozenset[str]:
    return frozenset(name for name in event if name not in (*shape.key_names, DELETE_SIGN))


def write_flexible(load: Load, schema: TableSchema, events: Sequence[Event]) -> None:
    """Row by row; the load's mode is flexible."""
    names = [name for name in schema.names if any(name in event for event in events)]
    data = _table(schema, names, events)
    masks = {name: np.array([name in event for event in events]) for name in names if name not in schema.key}
    load.write(data, supplied=masks)


def write_columns(load: Load, schema: TableSchema, events: Sequence[Event]) -> None:
    """Events that all supply the same columns."""
    load.write(_table(schema, [name for name in schema.names if name in events[0]], events))


def write_wide(load: Load, schema: TableSchema, events: Sequence[Event]) -> None:
    """Every column, NULL where an event does not supply it."""
    load.write(_table(schema, schema.names, events))


def _table(schema: TableSchema, names: Sequence[str], events: Sequence[Event]) -> pa.Table:
    columns = {
        name: pa.array([event.get(name) for event in events], schema.column(name).type.arrow)
        for name in names
    }
    if any(event.get(DELETE_SIGN) for event in events):
        columns[DELETE_SIGN] = pa.array([event.get(DELETE_SIGN, 0) for event in events], pa.int8())
    return pa.table(columns)


Write = Callable[[Load, TableSchema, Sequence[Event]], None]


@dataclass(frozen=True)
class Bringing:
    """A way to bring events: how the load begins, and how it is written."""

    options: Mapping[str, Any]
    write: Write

    def begin(self, table: Table) -> Load:
        return table.begin_load(**self.options)


FLEXIBLE = Bringing({"mode": "UPDATE_FLEXIBLE_COLUMNS"}, write_flexible)
FIXED = Bringing({"mode": "UPDATE_FIXED_COLUMNS"}, write_columns)
ROWS = Bringing({}, write_columns)
WIDE = Bringing({}, write_wide)
KEEP_NULLS = Bringing({"mode": "UPDATE_FIXED_COLUMNS", "ignore_null": True}, write_wide)


def parts(
    events: Sequence[Event], way: Bringing, shape: GroupShape
) -> Iterator[tuple[Bringing, list[Event]]]:
    """The loads that bring some events one way, or another where it cannot say what they say."""
    if way is WIDE and any(event.get(DELETE_SIGN) for event in events):
        way = FLEXIBLE  # a delete of all groups is another event
    if way is KEEP_NULLS and any(not _has_sequences(event, shape) for event in events):
        way = FLEXIBLE  # a sequence of NULL is a proposal, too
    if way.write is not write_columns:
        yield way, list(events)
        return
    start = 0
    for end in range(1, len(events) + 1):
        same = end < len(events) and given_columns(events[end], shape) == given_columns(events[start], shape)
        if not same:
            yield way, list(events[start:end])
            start = end


def _has_sequences(event: Event, shape: GroupShape) -> bool:
    given = [group for group in shape.groups if all(name in event for name in group.sequence)]
    return bool(given) and all(any(event[name] is not None for name in group.sequence) for group in given)


def assert_agrees(table: Table, model: GroupModel, *, purged: bool = False) -> None:
    """Every reader's answer, hidden columns included.

    Args:
        purged: tombstones that remember nothing may be gone.
    """
    key, schema = list(model.key), table.schema
    with table.snapshot() as snapshot:
        live = model.live()
        others = [name for name in schema.names if name not in key]
        seen = {
            tuple(row[name] for name in key): {n: row[n] for n in others} for row in _rows(snapshot.scan())
        }
        assert seen == live
        assert snapshot.count() == len(live)
        rows = _rows(snapshot.scan(hidden=True, deleted=True))
        hidden = {
            tuple(row[name] for name in key): (
                row[DELETE_SIGN],
                tuple(tuple(row[name] for name in group.sequence) for group in model.groups),
                row["__GROUPS_COL__"],
            )
            for row in rows
        }
        assert len(hidden) == len(rows), "a key has two rows"
        assert _remembering(hidden, purged) == _remembering(model.hidden(), purged)
    assert table.check() == []


def _remembering(hidden: Mapping[Key, Any], purged: bool) -> dict[Key, Any]:
    """All keys, or those that are more than a tombstone without any sequence."""
    return {
        key: (sign, sequences, groups)
        for key, (sign, sequences, groups) in hidden.items()
        if not purged or not sign or any(value is not None for values in sequences for value in values)
    }


def _rows(reader: pa.RecordBatchReader) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = reader.read_all().to_pylist()
    return rows
