"""The fields of change rows: looked up by name, decoded by type, with the rows of old keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.changes.change_rows import NO_SHAPE, ChangeRows
from seqstore.loaders.changes.field_type import FieldType
from seqstore.loaders.changes.logical_types import decoded
from seqstore.loaders.json.fields import extract, mask_of, missing, one_array, truth_as_digit
from seqstore.loaders.json.paths import key_path
from seqstore.store.types.cast import evaluate
from seqstore.store.types.column_types import ColumnType

_PLACEHOLDER: Final = "__debezium_unavailable_value"
# Debezium's mark in text, in bytes, in maps, and in arrays of text and of numbers.
_UNAVAILABLE: Final = pa.array(
    [
        _PLACEHOLDER,
        "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        f'{{"{_PLACEHOLDER}":"{_PLACEHOLDER}"}}',
        f'["{_PLACEHOLDER}"]',
        f"[{','.join(str(octet) for octet in _PLACEHOLDER.encode())}]",
    ]
)
_EXTENDED: Final = ("$oid", "$numberLong", "$numberInt", "$numberDouble", "$numberDecimal")

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FieldTable:
    """Rows with their fields as text.

    Attributes:
        columns: by field.
        absent: by field, the rows that do not have it.
        unavailable: by field, the rows whose value the source did not send.
        origins, deleted, positions: as of `ChangeRows`.
        bad: rows that cannot be loaded, with the reason.
    """

    columns: dict[str, pa.Array]
    absent: dict[str, Mask]
    unavailable: dict[str, Mask]
    origins: Positions
    deleted: Mask
    positions: pa.Array
    bad: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.origins)


def found_fields(
    rows: ChangeRows,
    names: Sequence[str],
    types: Mapping[str, ColumnType],
    keys: Sequence[str],
    time_unit: str,
    sequence: str | None = None,
) -> FieldTable:
    """Looks fields up in the rows; a deleted row has its key alone.

    Args:
        names: the fields.
        types: the types of the columns that fields have the names of.
        keys: fields of the table's key.
        time_unit: as of `decoded`.
        sequence: the field that deleted rows have beside their key.
    """
    lookup = _Lookup(rows, types, time_unit)
    columns, absent, unavailable = lookup.fields(rows.documents, names)
    for name in names:
        if name in keys:
            continue
        if rows.is_document is not None:
            absent[name] &= ~rows.is_document
        if rows.deleted.any() and name != sequence:
            columns[name] = pc.if_else(pa.array(rows.deleted), pa.scalar(None, pa.string()), columns[name])
            absent[name] |= rows.deleted
            unavailable[name] &= ~rows.deleted
    table = FieldTable(columns, absent, unavailable, rows.origins, rows.deleted, rows.positions)
    return _with_old_keys(table, rows, lookup, keys)


class _Lookup:
    """Looks fields up in the documents of some rows."""

    def __init__(self, rows: ChangeRows, types: Mapping[str, ColumnType], time_unit: str) -> None:
        self._rows, self._types, self._unit = rows, types, time_unit

    def fields(
        self, documents: pa.Array, names: Sequence[str]
    ) -> tuple[dict[str, pa.Array], dict[str, Mask], dict[str, Mask]]:
        """Returns the columns, the rows without each field, and those whose value is unavailable."""
        spelled = _spellings(documents, names)
        paths = [[key_path(key) for key in spelled[name]] for name in names]
        found = extract(documents, paths)
        columns, absent, unavailable = {}, {}, {}
        for name, own, column in zip(names, paths, found, strict=True):
            column = one_array(column)
            absent[name] = self._absent(documents, column, own)
            unavailable[name] = mask_of(pc.is_in(column, _UNAVAILABLE))
            absent[name] |= unavailable[name]
            column = pc.if_else(pa.array(unavailable[name]), pa.scalar(None, pa.string()), column)
            target = self._types.get(name)
            if target is None or target.name != "JSON":
                column = truth_as_digit(documents, column, own)
            columns[name] = self._decoded(name, spelled[name], _plain_values(column, target))
        return columns, absent, unavailable

    def _absent(self, documents: pa.Array, column: pa.Array, paths: list[str]) -> Mask:
        empty = np.flatnonzero(~mask_of(column.is_valid()))
        absent = np.zeros(len(column), np.bool_)
        if len(empty):
            absent[empty] = mask_of(missing(documents.take(pa.array(empty)), paths))
        return absent

    def _decoded(self, name: str, keys: Sequence[str], column: pa.Array) -> pa.Array:
        """Decodes a column by the types that the schemas of its rows declare."""
        target = self._types.get(name)
        shapes = self._rows.shapes
        if shapes is None or not (shapes != NO_SHAPE).any():
            return decoded(column, None, target, self._unit)
        declared: dict[FieldType | None, Mask] = {}
        for shape in np.unique(shapes).tolist():
            types = self._rows.types[shape] if shape != NO_SHAPE else {}
            kind = next((types[key] for key in keys if key in types), None)
            declared[kind] = declared.get(kind, np.zeros(len(shapes), np.bool_)) | (shapes == shape)
        if len(declared) == 1:
            return decoded(column, next(iter(declared)), target, self._unit)
        for kind, mask in declared.items():
            flags = pa.array(mask)
            part = one_array(decoded(column.filter(flags), kind, target, self._unit))
            column = pc.replace_with_mask(column, flags, part)
        return column


def _with_old_keys(table: FieldTable, rows: ChangeRows, lookup: _Lookup, keys: Sequence[str]) -> FieldTable:
    """Adds a delete of the old key before each update that changed the key."""
    if not keys or not rows.before.null_count < len(rows):
        return table
    old, absent, _ = lookup.fields(pc.fill_null(rows.before, "{}"), keys)
    changed = np.zeros(len(rows), np.bool_)
    for name in keys:
        old[name] = pc.if_else(pa.array(absent[name]), table.columns[name], old[name])
        is_null = ~mask_of(old[name].is_valid()) & ~mask_of(table.columns[name].is_valid())
        changed |= ~mask_of(pc.equal(old[name], table.columns[name])) & ~is_null
    changed &= ~rows.deleted
    places = np.flatnonzero(changed)
    if not len(places):
        return table
    taken = pa.array(places)
    order = np.argsort(np.concatenate([np.arange(len(table)), places - 0.5]), kind="stable")
    columns, gone = {}, {}
    for name, column in table.columns.items():
        own = old[name].take(taken) if name in keys else pa.nulls(len(places), pa.string())
        columns[name] = pa.concat_arrays([one_array(column), one_array(own)]).take(pa.array(order))
        added = np.full(len(places), name not in keys)
        gone[name] = np.concatenate([table.absent[name], added])[order]
    unavailable = {
        name: np.concatenate([mask, np.zeros(len(places), np.bool_)])[order]
        for name, mask in table.unavailable.items()
    }
    return replace(
        table,
        columns=columns,
        absent=gone,
        unavailable=unavailable,
        origins=np.concatenate([table.origins, table.origins[places]])[order],
        deleted=np.concatenate([table.deleted, np.ones(len(places), np.bool_)])[order],
        positions=pa.concat_arrays([one_array(table.positions), one_array(table.positions.take(taken))]).take(
            pa.array(order)
        ),
    )


def _spellings(documents: pa.Array, names: Sequence[str]) -> dict[str, list[str]]:
    """Returns the spellings of the fields that occur, by field (J4)."""
    found: dict[str, list[str]] = {name: [] for name in names}
    wanted = {name.lower(): name for name in names}
    lists = evaluate(documents, "CASE json_type(c) WHEN 'OBJECT' THEN json_keys(c) END")
    for key in pc.unique(pc.list_flatten(lists)).to_pylist():
        if key.lower() in wanted and not any(mark in key for mark in '"\\*'):
            found[wanted[key.lower()]].append(key)
    return found


def _plain_values(column: pa.Array, target: ColumnType | None) -> pa.Array:
    """Returns the values of MongoDB's typed objects, such as `{"$oid": "6f.."}`, unless JSON is stored."""
    is_typed = pc.fill_null(pc.starts_with(column, '{"$'), False)
    if not is_typed.true_count or (target is not None and target.name == "JSON"):
        return column
    texts = one_array(column.filter(is_typed))
    paths = [[f'$."{name}"'] for name in _EXTENDED]
    parts = extract(texts, [*paths, ['$."$date"."$numberLong"', '$."$date"'], ['$."$date"."$numberLong"']])
    date = pc.coalesce(*parts[-1:], parts[-2])
    is_moment = pc.fill_null(pc.match_substring_regex(date, "^-?[0-9]+$"), False)
    if is_moment.true_count and target is not None and target.name in ("DATE", "DATETIME"):
        date = decoded(date, FieldType("int64", "io.debezium.time.Timestamp"), target, "ms")
    plain = pc.coalesce(*parts[:-2], date, texts)
    return pc.replace_with_mask(column, is_typed, one_array(plain))
