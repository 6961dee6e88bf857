"""Casts to JSON, and to ARRAY, MAP and STRUCT from JSON text and from Arrow's nested types.

DuckDB parses JSON text into the wanted shape with text leaves; the leaves are then cast as other text is.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.runtime.cancellation import interruptible
from seqstore.store.runtime.descriptors import require_for_duckdb
from seqstore.store.runtime.format_value import has_python_form
from seqstore.store.types.cast.outcome import Cast, all_failed, is_valid, masked, merge_masks, outcome
from seqstore.store.types.column_types import ColumnType

if TYPE_CHECKING:
    import duckdb

CastChild = Callable[[pa.Array, ColumnType], Cast]

_SETTINGS: Final[dict[str, Any]] = {"threads": 1, "enable_external_access": False, "lock_configuration": True}
_connections = threading.local()
_LISTS: Final = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)


def to_json(source: pa.Array, to: ColumnType) -> Cast | None:
    """Casts to JSON: valid JSON text stays unchanged; other types become JSON."""
    if pa.types.is_string(source.type):
        valid = evaluate(source, "json_valid(c)").cast(pa.bool_())
        return Cast(source) if pc.all(valid).as_py() is not False else outcome(source, masked(source, valid))
    return _as_json(source)


def to_text(source: pa.Array) -> Cast:
    """Formats nested values as JSON text (J11)."""
    made = _as_json(source)
    return Cast(masked(made.values, pc.is_valid(source)), made.failed)


def _as_json(source: pa.Array) -> Cast:
    """Converts any values to JSON with DuckDB.

    DuckDB fails for the whole array if one value is a time beyond its range. Such values have no Python form
    either, and are left out. So are texts that are not UTF-8, which DuckDB would read as empty.
    """
    import duckdb  # few values are nested

    if is_valid(source):
        with suppress(duckdb.Error):
            return Cast(evaluate(source, "to_json(c)::VARCHAR"))
    ordinary = masked(source, pa.array([has_python_form(value) for value in source]))
    try:
        return outcome(source, evaluate(ordinary, "to_json(c)::VARCHAR"))
    except duckdb.Error:
        return all_failed(source, pa.string())


def to_nested(source: pa.Array, to: ColumnType, cast: CastChild) -> Cast | None:
    """Casts to ARRAY, MAP or STRUCT; `cast` converts the parts. None if no value of the source type fits."""
    kind = source.type
    if pa.types.is_string(kind):
        return _from_text(source, to, cast)
    if to.name == "ARRAY" and isinstance(kind, _LISTS):
        return _list(source, to, cast)
    if to.name == "MAP" and pa.types.is_map(kind):
        return _map(source, to, cast)
    if to.name == "STRUCT" and pa.types.is_struct(kind):
        return _struct(source, to, cast)
    return None


# -------------------------------------------------------------------------------------------------- JSON text


def _from_text(text: pa.Array, to: ColumnType, cast: CastChild) -> Cast:
    shape = text_literal(json.dumps(_skeleton(to)))
    # from_json raises for text that is no JSON, so such rows are removed first
    outer = "ARRAY" if to.name == "ARRAY" else "OBJECT"
    fits = f"CASE WHEN json_valid(c) THEN json_type(c) = '{outer}' END"
    parsed = evaluate(text, f"CASE WHEN {fits} THEN from_json(c, {shape}) END")
    # Doris accepts scalar array elements but JSON without quotes or in single quotes; JSON does not
    may_be_bare = to.name == "ARRAY" and not to.children[0].is_nested and to.children[0].name != "JSON"
    if may_be_bare and parsed.null_count > text.null_count:
        relaxed = evaluate(text, "CASE WHEN c LIKE '[%' THEN TRY_CAST(c AS VARCHAR[]) END")
        parsed = pc.if_else(pc.is_valid(parsed), parsed, relaxed.cast(parsed.type))
    inner = to_nested(parsed, to, cast) or all_failed(parsed, to.arrow)
    shapeless = pc.and_(pc.is_valid(text), pc.is_null(inner.values))
    failed = merge_masks(inner.failed, shapeless if shapeless.true_count else None)
    return Cast(inner.values, failed, inner.out_of_range)


def _skeleton(to: ColumnType) -> str:
    """Returns DuckDB's name of the type with every scalar as VARCHAR."""
    if to.name == "ARRAY":
        return f"{_skeleton(to.children[0])}[]"
    if to.name == "MAP":
        return f"MAP({_skeleton(to.children[0])}, {_skeleton(to.children[1])})"
    if to.name == "STRUCT":
        quoted = (name.replace('"', '""') for name in to.names)
        fields = ", ".join(f'"{n}" {_skeleton(t)}' for n, t in zip(quoted, to.children, strict=True))
        return f"STRUCT({fields})"
    return "VARCHAR"


def text_literal(text: str) -> str:
    """Writes text for `evaluate`; before DuckDB 2 a NUL character ended the expression."""
    return "||chr(0)||".join("'" + part.replace("'", "''") + "'" for part in text.split("\0"))


def evaluate(source: pa.Array, expression: str) -> pa.Array:
    """Evaluates an expression of this program over column `c`.

    The connection cannot access files or change settings.
    """
    connection = _connection()
    try:
        connection.register("source", pa.table({"c": source}))
        with interruptible(connection.interrupt):
            found = connection.sql(f"SELECT {expression} AS c FROM source").to_arrow_table()["c"]
        connection.unregister("source")
    except BaseException:  # an internal error ends DuckDB's database: the next call opens another
        _connections.process = None
        raise
    result = found.combine_chunks()
    return result.chunk(0) if isinstance(result, pa.ChunkedArray) else result


def _connection() -> duckdb.DuckDBPyConnection:
    """Returns the connection of this thread. A forked process opens its own: a DuckDB connection must not
    cross a fork.
    """
    if getattr(_connections, "process", None) != os.getpid():
        import duckdb

        require_for_duckdb()
        _connections.duckdb = duckdb.connect(":memory:", config=_SETTINGS)
        _connections.process = os.getpid()
    connection: duckdb.DuckDBPyConnection = _connections.duckdb
    return connection


# --------------------------------------------------------------------------------------- Arrow's nested types


def _offsets(source: pa.Array) -> pa.Array:
    lengths = np.cumsum(pc.fill_null(pc.list_value_length(source), 0))
    return pa.array(np.concatenate([[0], lengths]).astype(np.int32))


def _rows_with(flags: pa.BooleanArray | None, offsets: pa.Array) -> pa.BooleanArray | None:
    """Returns the parents that have a flagged element."""
    if flags is None:
        return None
    counts = np.concatenate([[0], np.cumsum(np.asarray(flags))])
    bounds = np.asarray(offsets)
    return pa.array(counts[bounds[1:]] > counts[bounds[:-1]])


def _null_mask(source: pa.Array) -> pa.BooleanArray | None:
    return pc.is_null(source) if source.null_count else None


def _list(source: pa.Array, to: ColumnType, cast: CastChild) -> Cast:
    offsets = _offsets(source)
    child = cast(pc.list_flatten(source), to.children[0])
    values = pa.ListArray.from_arrays(offsets, child.values, type=to.arrow, mask=_null_mask(source))
    return Cast(values, _rows_with(child.failed, offsets), _rows_with(child.out_of_range, offsets))


def _map(source: pa.Array, to: ColumnType, cast: CastChild) -> Cast:
    entries = source.cast(
        pa.list_(pa.struct([pa.field("key", source.type.key_type), pa.field("value", source.type.item_type)]))
    )
    flat, offsets = pc.list_flatten(entries), _offsets(entries)
    keys = cast(pc.struct_field(flat, "key"), to.children[0])
    items = cast(pc.struct_field(flat, "value"), to.children[1])
    failed = _rows_with(merge_masks(keys.failed, items.failed), offsets)
    beyond = _rows_with(merge_masks(keys.out_of_range, items.out_of_range), offsets)
    if keys.values.null_count:  # a map key cannot be NULL: the whole map is lost
        lost = _rows_with(pc.is_null(keys.values), offsets)
        kept = _map(pc.if_else(lost, pa.scalar(None, source.type), source), to, cast)
        return Cast(kept.values, merge_masks(failed, lost), beyond)
    values = pa.MapArray.from_arrays(
        offsets, keys.values, items.values, type=to.arrow, mask=_null_mask(source)
    )
    return Cast(values, failed, beyond)


def _struct(source: pa.Array, to: ColumnType, cast: CastChild) -> Cast:
    """Casts a STRUCT. Fields match by name without regard to case; a field missing in the source is NULL."""
    present = {field.name.lower(): part for field, part in zip(source.type, source.flatten(), strict=True)}
    nothing = pa.nulls(len(source))
    children = [
        cast(present.get(name.lower(), nothing), child_type)
        for name, child_type in zip(to.names, to.children, strict=True)
    ]
    values = pa.StructArray.from_arrays(
        [child.values for child in children], fields=list(to.arrow), mask=_null_mask(source)
    )
    failed = reduce(merge_masks, [child.failed for child in children])
    return Cast(values, failed, reduce(merge_masks, [child.out_of_range for child in children]))
