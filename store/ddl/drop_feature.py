"""DROP FEATURE (ISO15): switches a feature off, rewrites its traces, then removes it from the list.

| feature | switched off | traces that are rewritten |
| --- | --- | --- |
| appendOnly | `delta.appendOnly` is unset | none |
| deletionVectors | `delta.enableDeletionVectors` = false | segments with hidden rows |
| columnMapping | - | segments written under other columns than today's |
| icebergCompatV1, -V2 | - | none: the Iceberg table stays unchanged |
| sequenceLoad | refused: the sequence decides which row of a key counts | |

The rewrite is a compaction: readers see no difference. The transaction that changes the list looks for traces
once more: if a load has made new ones in between, those are rewritten too. Delete bitmaps still hide rows
that are replaced later, for a keyed table has no other way; the property decides whether writers conflict by
row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from seqstore.store.catalog import catalog as records
from seqstore.store.ddl.alter import PROPERTY_OF, Altered, alter, schema_change
from seqstore.store.errors import InvalidInputError, UnavailableError
from seqstore.store.maintenance.compaction import Compaction
from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.features import DUPLICATE_KEY
from seqstore.store.schema.table_schema import TableSchema

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

_OPERATION: Final = "DROP FEATURE"
_TRIES: Final = 5


class _TracesLeft(Exception):
    """A load has made new traces."""


def drop_feature(table: VersionedTable, name: str) -> int:
    """Drops a feature; returns the version whose list lacks it.

    Raises:
        InvalidInputError: the table has no such feature, or cannot be without it.
        ConflictError: the schema was changed meanwhile.
        UnavailableError: loads make new traces faster than they can be rewritten.
    """
    schema = table.schema
    change = _without(name)
    change(schema)  # raises before any rewrite
    traces = _TRACES.get(name, _none)

    def check(tx: records.CatalogTransaction) -> None:
        if traces(table.advance(tx, None)):
            raise _TracesLeft

    for _ in range(_TRIES):
        Compaction(table, _OPERATION, traces).run()
        try:
            return alter(table, [change], expected_revision=schema.revision, check=check)
        except _TracesLeft:
            continue
    raise UnavailableError(
        f"DROP FEATURE {name} on {table.name!r}: loads make new traces faster than they are rewritten; "
        "run it when fewer write",
        kind="busy",
    )


def _none(_state: TableState) -> list[LiveSegment]:
    return []


def _hidden(state: TableState) -> list[LiveSegment]:
    return [live for live in state.segments.values() if live.deletes.live_count < live.segment.rows]


def _mapped(state: TableState) -> list[LiveSegment]:
    """Returns segments whose columns differ from today's by name, type or order."""
    wanted = [(column.id, column.name, column.type) for column in state.schema.columns]
    return [
        live
        for live in state.segments.values()
        if [(c.id, c.name, c.type) for c in live.segment.schema.columns] != wanted
    ]


_TRACES: Final[Mapping[str, Callable[[TableState], list[LiveSegment]]]] = {
    "deletionVectors": _hidden,
    "columnMapping": _mapped,
}


@schema_change
def _without(schema: TableSchema, name: str) -> Altered:
    if name not in schema.features:
        raise InvalidInputError(f"the table has no feature {name!r}", kind="unknown_feature")
    if name == DUPLICATE_KEY:
        raise InvalidInputError(
            f"the feature {name!r} cannot be dropped: the rows have no unique key; copy them into a table "
            "with one",
            kind="feature_needed",
        )
    if name == "sequenceLoad":
        raise InvalidInputError(
            "the feature 'sequenceLoad' cannot be dropped: the sequence decides which row of a "
            "key counts; copy the rows into a table without one",
            kind="feature_needed",
        )
    kept = tuple(feature for feature in schema.features if feature != name)
    properties = dict(schema.properties)
    properties.pop(PROPERTY_OF.get(name, ""), None)
    if name == "deletionVectors":  # on by default
        properties[PROPERTY_OF[name]] = "false"
    return Altered(replace(schema, features=kept, properties=properties), (), (f"-{name}",))
