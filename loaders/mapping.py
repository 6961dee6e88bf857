"""From the fields of the source to the columns of the table.

Planned once for a load from the headers `columns`, `hidden_columns`, `where`, `delete`,
`function_column.sequence_col` and `strict_mode`, then for each batch:

1. Rows that a preceding filter does not pass are unselected, before anything else looks at them.
2. Derived columns are computed from the fields (M1-M3): a name means the field of that name, else the derived
   column before it; the same name on both sides of `=` means the field (M2).
3. Every column is cast to its type. A field that cannot be converted is NULL, or its row is filtered in
   strict mode (Y1); derived columns are not looked at (Y3); a DECIMAL out of range filters the row in both
   (Y4). A field that a JSON row does not have gets the column's default (J7).
4. `delete` makes tombstones (G1), `where` drops rows, which then count as unselected (M5). Both may name
   fields; a name that is a column of the table means the column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.column_list import ColumnList
from seqstore.loaders.expressions import Evaluator, Field, bind, parse
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.source import SourceBatch, described_max
from seqstore.store.check.write_modes import duplicate_error
from seqstore.store.errors import InvalidInputError, UnavailableError
from seqstore.store.runtime.format_value import format_value
from seqstore.store.schema.column import DELETE_SIGN, SEQUENCE_COL, default_scalar, hidden_name
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.calls import EvaluationContext
from seqstore.store.types.cast import Cast, try_cast
from seqstore.store.types.column_types import INTEGER_RANGES, ColumnType, parse_type, type_from_arrow

_SIGN: Final = ColumnType("TINYINT")
_NUMERIC: Final = (*INTEGER_RANGES, "FLOAT", "DOUBLE", "DECIMAL")
_AS_TEXT: Final = dict.fromkeys(("CHAR", "VARCHAR", "STRING", "DATE", "DATETIME"), pa.string())
_AS_THEY_ARE: Final = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
}
_OF_CSV: Final = {name: kind for name, kind in _AS_THEY_ARE.items() if name != "BOOLEAN"} | {
    "DATE": pa.date32(),
    "DATETIME": pa.timestamp("us"),
}
_FIELD, _TARGET = "field ", "column "  # prefixes that keep both kinds of names apart in one table

_TRUTH: Final = parse_type("BOOLEAN")
Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MappedBatch:
    """A batch ready for the table.

    Attributes:
        rows: columns of the table by name, hidden ones among them.
        positions: for each of `rows`, its position in the source batch.
        bad_count: rows filtered on the way.
        bad: position in the source batch, and reason, of the first of them.
        unselected: rows that `where` dropped.
        supplied: in flexible updates, the rows that have a column, for each that some rows lack (F9).
        lost: position in the batch and NOT NULL column -> why the value became NULL; of the first such rows.
        memory_bytes: of the load's `exec_mem_limit`, 0 for no limit.
    """

    rows: pa.Table
    positions: Positions
    bad_count: int
    bad: Sequence[tuple[int, str]]
    unselected: int
    supplied: Mapping[str, Mask] = field(default_factory=dict)
    lost: Mapping[tuple[int, str | None], str] = field(default_factory=dict)
    memory_bytes: int = 0


@dataclass(frozen=True)
class _Target:
    """One column of the result: the source and the type of its values."""

    name: str
    type: ColumnType
    source: str | None  # a field, None when derived
    derived: int = -1  # index among the computed expressions


class RowMapping:
    """Maps batches of one load.

    Args:
        schema: of the table.
        table: its name, for messages.
        options: the headers.
        columns: `options.columns`, parsed.
        fields: fields of the source, in order.
        kinds: Arrow types of the fields; text for CSV and JSON.
        around: the moment of the load in its time zone.
        needs_all: every column that has no default must be supplied; not so for partial updates.

    Raises:
        InvalidInputError: the headers do not fit the table.
    """

    def __init__(
        self,
        schema: TableSchema,
        table: str,
        options: StreamLoadOptions,
        columns: ColumnList,
        fields: Sequence[str],
        kinds: Sequence[pa.DataType],
        around: EvaluationContext,
        *,
        needs_all: bool = True,
    ) -> None:
        if schema.is_duplicate and options.merge_type != "APPEND":
            raise duplicate_error(table, "load by MERGE or DELETE is only supported in unique tables.")
        self._schema = schema
        self._table = table
        self._options = options
        self._columns = columns
        self._fields = {name.lower(): name for name in fields}
        self._kinds = dict(zip(fields, kinds, strict=True))
        self._around = around
        self._expressions: list[exp.Expr] = []
        self._derived = self._bind_derived()
        self._targets = self._plan_targets()
        self._by_name = {target.name.lower(): target for target in self._targets}
        if needs_all:
            self._check_supplied()
        else:
            self._check_keys()
        self._conditions = self._bind_conditions()
        targets = self._computed_types()
        self._compute = self._evaluator(self._expressions, targets) if self._expressions else None
        self._decide = self._evaluator(list(self._conditions.values())) if self._conditions else None
        self._precede = self._bind_preceding(options.preceding_filter)

    def _evaluator(
        self, expressions: Sequence[exp.Expr], targets: Sequence[ColumnType | None] = ()
    ) -> Evaluator:
        return Evaluator(self._around, expressions, targets, memory_bytes=self._options.memory_bytes)

    def _computed_types(self) -> list[ColumnType | None]:
        """Returns the type of the column that each expression computes, None for one that is not stored."""
        names = {place: name for name, place in self._derived.items()}
        targets = (self._by_name.get(names.get(place, "")) for place in range(len(self._expressions)))
        return [target.type if target is not None else None for target in targets]

    @property
    def json_fields(self) -> list[str]:
        """The fields that are stored as JSON, as they are."""
        return [target.source for target in self._targets if target.source and target.type.name == "JSON"]

    @property
    def field_types(self) -> dict[str, pa.DataType]:
        """The types in which fields may come, instead of as text: of values that a column keeps as they are.

        Expressions compute with the text, so with one there is none.
        """
        return self._types(_AS_TEXT | _AS_THEY_ARE)

    @property
    def csv_types(self) -> dict[str, pa.DataType]:
        """The types in which fields of CSV may come, as `field_types`."""
        return self._types(_OF_CSV)

    def _types(self, known: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        if self._expressions or self._decide is not None or self._precede is not None:
            return {}
        types: dict[str, pa.DataType | None] = {}
        for target in self._targets:
            if target.source is not None:
                kind = known.get(target.type.name)
                types[target.source] = kind if types.get(target.source, kind) == kind else None
        return {name: kind for name, kind in types.items() if kind is not None}

    @property
    def watched(self) -> list[str]:
        """Fields whose absence from a row means something: the column's default (J7), in flexible updates
        that the row keeps the column (F9)."""
        if self._options.is_flexible:
            return list(self._fields.values())
        watched = []
        for target in self._targets:
            column = self._schema.find(target.name)
            if target.source is not None and column is not None and column.default is not None:
                watched.append(target.source)
        return watched

    @property
    def supplied(self) -> list[str]:
        """Returns columns the load brings, hidden ones among them."""
        return [target.name for target in self._targets]

    def close(self) -> None:
        for evaluator in (self._compute, self._decide, self._precede):
            if evaluator is not None:
                evaluator.close()

    # ------------------------------------------------------------------------------------------ planning

    def _bind_derived(self) -> dict[str, int]:
        """Binds the derived columns; returns the index of each bound expression by lower-case name."""
        bound: dict[str, int] = {}
        for name, tree in self._columns.derived.items():

            def resolve(wanted: str, own: str = name) -> Field | exp.Expr:
                found = self._field(wanted)
                if found is not None:
                    return found
                if wanted.lower() in bound and wanted.lower() != own.lower():
                    return self._expressions[bound[wanted.lower()]]
                raise self._unknown(wanted, "columns")

            self._expressions.append(bind(tree, resolve, "columns"))
            bound[name.lower()] = len(self._expressions) - 1
        return bound

    def _field(self, name: str) -> Field | None:
        known = self._fields.get(name.lower())
        if known is None:
            return None
        kind = self._kinds[known]
        meant = ColumnType("DATETIME", (6,)) if pa.types.is_timestamp(kind) else type_from_arrow(kind)
        if meant.name != "STRING":
            return Field(known, meant)
        column = self._schema.find(known)
        return Field(known, None, column.type if column is not None else None)

    def _unknown(self, name: str, header: str) -> InvalidInputError:
        known = [*self._fields.values(), *self._columns.derived]
        return InvalidInputError(
            f"{header}: unknown column {name!r}; the load has {', '.join(known[:50])}", kind="unknown_column"
        )

    def _plan_targets(self) -> list[_Target]:
        targets: list[_Target] = []
        for name, column_type in [*((c.name, c.type) for c in self._schema.columns), (DELETE_SIGN, _SIGN)]:
            target = self._target(name, name, column_type)
            if target is not None:
                targets.append(target)
        self._check_hidden()
        sequence = self._plan_sequence(targets)
        return targets if sequence is None else [*targets, sequence]

    def _target(self, name: str, wanted: str, column_type: ColumnType) -> _Target | None:
        """Returns the column `name` from the derived column or field `wanted`, None without one."""
        for given, index in self._derived.items():
            if (hidden_name(given) or given).lower() == wanted.lower():
                return _Target(name, column_type, None, index)
        for given in self._fields.values():
            if (hidden_name(given) or given).lower() == wanted.lower():
                return _Target(name, column_type, given)
        return None

    def _check_hidden(self) -> None:
        """Checks the header `hidden_columns`; beside `columns` it may only repeat names from there (SL4)."""
        names = [*self._fields.values(), *self._derived] if self._options.columns else ()
        listed = {hidden_name(name) for name in names}
        for name in self._options.hidden_columns:
            hidden = hidden_name(name)
            if hidden not in (DELETE_SIGN, SEQUENCE_COL):
                raise InvalidInputError(
                    f"hidden_columns: expected {DELETE_SIGN} or {SEQUENCE_COL}, found {name!r}",
                    kind="bad_header",
                )
            if self._options.columns and hidden not in listed:
                raise InvalidInputError(
                    f"hidden_columns: {name} is not in the header columns, which names every field; list it "
                    "there",
                    kind="bad_header",
                )

    def _plan_sequence(self, targets: Sequence[_Target]) -> _Target | None:
        """Returns the source of the hidden sequence, None for the mapped column or no sequence (SL1-SL14)."""
        schema, wanted = self._schema, self._options.sequence
        hidden = self._target(SEQUENCE_COL, SEQUENCE_COL, schema.sequence_type or _SIGN)
        if schema.sequence_type is None:
            if wanted is not None or hidden is not None:
                raise InvalidInputError(
                    f"There is no sequence column in the table {self._table}", kind="no_sequence"
                )
            return None
        mapped = schema.sequence_column
        if wanted is not None and (mapped is None or wanted.lower() != mapped.lower()):
            source = self._target(SEQUENCE_COL, hidden_name(wanted) or wanted, schema.sequence_type)
            if source is None:
                raise InvalidInputError(
                    f"function_column.sequence_col: {wanted!r} is neither a field of the load nor a column "
                    "it brings",
                    kind="unknown_column",
                )
            return source
        if hidden is not None:
            return hidden
        if mapped is not None:
            default = schema.column(mapped).default
            if mapped in {target.name for target in targets}:
                return None
            if default is not None and default.kind == "current_timestamp":  # SL9
                return None
        if self._options.update_mode != "UPSERT":  # SL11
            return None
        raise InvalidInputError(
            f"Table {self._table} has sequence column, need to specify the sequence column",
            kind="sequence_missing",
        )

    def _check_supplied(self) -> None:
        """Checks before the first row is read that the load supplies every required column (M8, Q1).

        A tombstone needs only its key (D9).
        """
        is_delete = self._options.merge_type == "DELETE"
        for column in self._schema.key_columns if is_delete else self._schema.columns:
            if column.name.lower() not in self._by_name and not column.can_be_omitted:
                raise InvalidInputError(
                    f"Column has no default value. column: {column.name}; the load has to bring it",
                    kind="missing_column",
                    column=column.name,
                )

    def _check_keys(self) -> None:
        """Checks that a partial update lists all key columns (P3)."""
        for column in self._schema.key_columns:
            if column.name.lower() not in self._by_name and not column.can_be_omitted:
                raise InvalidInputError(
                    f"Partial update should include all key columns, missing: {column.name}",
                    kind="missing_column",
                    column=column.name,
                )

    def _bind_conditions(self) -> dict[str, exp.Expr]:
        conditions: dict[str, exp.Expr] = {}
        for header, text in (("where", self._options.where), ("delete", self._options.delete)):
            if text:
                conditions[header] = bind(parse(text, header), partial(self._final, header), header)
        return conditions

    def _bind_preceding(self, text: str) -> Evaluator | None:
        if not text:
            return None

        def resolve(wanted: str) -> Field | exp.Expr:
            found = self._field(wanted)
            if found is None:
                raise self._unknown(wanted, "preceding filter")
            return found

        return self._evaluator([bind(parse(text, "preceding filter"), resolve, "preceding filter")])

    def _final(self, header: str, name: str) -> Field | exp.Expr:
        """Resolves a name of a condition: the finished column, else the field."""
        target = self._by_name.get((hidden_name(name) or name).lower())
        if target is not None:
            return Field(_TARGET + target.name, target.type)
        if name.lower() in self._derived:
            return _prefixed(self._expressions[self._derived[name.lower()]])
        found = self._field(name)
        if found is None:
            raise self._unknown(name, header)
        return Field(_FIELD + found.column, found.type, found.meaning)

    # ------------------------------------------------------------------------------------------ one batch

    def __call__(self, batch: SourceBatch, now: datetime) -> MappedBatch:
        """Maps one batch.

        Args:
            now: the moment of CURRENT_TIMESTAMP defaults, local to the load's zone (A3).

        Raises:
            InvalidInputError: an expression cannot be evaluated, or a column can never be of its type.
        """
        if self._precede is None or not len(batch.rows):
            return self._map(batch, now)
        truths = _truths(self._precede(batch.rows)[0], "preceding filter")
        passed = np.flatnonzero(truths.to_numpy(zero_copy_only=False))
        rows = pa.array(passed)
        absent = {name: mask.take(rows) for name, mask in batch.absent.items()}
        mapped = self._map(replace(batch, rows=batch.rows.take(rows), absent=absent), now)
        return replace(
            mapped,
            positions=passed[mapped.positions],
            bad=[(int(passed[row]), reason) for row, reason in mapped.bad],
            lost={(int(passed[row]), name): reason for (row, name), reason in mapped.lost.items()},
            unselected=mapped.unselected + len(batch.rows) - len(passed),
        )

    def _map(self, batch: SourceBatch, now: datetime) -> MappedBatch:
        computed = self._compute(batch.rows) if self._compute is not None else []
        self._check_memory(batch.rows, computed)
        keep = np.ones(len(batch.rows), dtype=np.bool_)
        bad: dict[int, str] = {}
        lost: dict[tuple[int, str | None], str] = {}
        values: list[pa.Array] = []
        for target in self._targets:
            source = (
                batch.rows.column(target.source) if target.source is not None else computed[target.derived]
            )
            cast = self._cast(target, source)
            self._filter(target, source, cast, keep, bad)
            lost |= self._lost(target, source, cast)
            values.append(self._with_default(target, cast.values, batch, now))
        table = pa.table(values, names=[target.name for target in self._targets])
        positions = np.flatnonzero(keep)
        supplied = self._supplied_cells(batch, positions) if self._options.is_flexible else {}
        fields = batch.rows
        if len(positions) < len(keep):
            rows = pa.array(positions)
            table, fields = table.take(rows), fields.take(rows)
        table, selected = self._decided(table, fields)
        first = sorted(bad.items())[: described_max()]
        unselected = len(positions) - len(table)
        if selected is not None:
            positions = positions[selected]
        memory = self._options.memory_bytes
        return MappedBatch(table, positions, int((~keep).sum()), first, unselected, supplied, lost, memory)

    def _check_memory(self, rows: pa.Table, computed: Sequence[pa.Array]) -> None:
        most = self._options.memory_bytes
        if most and (size := rows.nbytes + sum(each.nbytes for each in computed)) > most:
            raise UnavailableError(
                f"a batch of {len(rows)} rows takes {size} bytes of memory, more than exec_mem_limit = {most}"
                "; raise it, or load shorter values",
                kind="out_of_memory",
            )

    def _lost(
        self, target: _Target, source: pa.ChunkedArray, cast: Cast
    ) -> dict[tuple[int, str | None], str]:
        """Returns why values of a NOT NULL column became NULL, for rows that the engine rejects."""
        column = self._schema.find(target.name)
        if cast.failed is None or column is None or column.nullable:
            return {}
        rows = np.flatnonzero(np.asarray(cast.failed.to_numpy(zero_copy_only=False)))[: described_max()]
        return {
            (row, target.name): f"{_shown(source[row])} cannot be converted to {target.type}"
            for row in rows.tolist()
        }

    def _supplied_cells(self, batch: SourceBatch, positions: Positions) -> dict[str, Mask]:
        """Returns masks of the kept rows for each column that some of them lack."""
        supplied = {}
        for target in self._targets:
            absent = batch.absent.get(target.source or "")
            if absent is not None and target.name != DELETE_SIGN and absent.true_count:
                supplied[target.name] = ~np.asarray(absent.to_numpy(zero_copy_only=False))[positions]
        return supplied

    def _cast(self, target: _Target, source: pa.Array | pa.ChunkedArray) -> Cast:
        zone = self._options.time_zone
        try:
            cast = try_cast(source, target.type, zone=zone)
            is_json = (
                self._options.format == "json" or self._options.is_changes
            ) and target.source is not None
            if is_json and cast.failed is not None and target.type.name in _NUMERIC:
                cast = try_cast(_truth_as_number(source), target.type, zone=zone)
            is_strict = self._options.strict_mode and target.source is not None
            if is_strict and target.type.name in INTEGER_RANGES and pa.types.is_string(source.type):
                cast = _without_fractions(source, cast)
        except InvalidInputError as error:
            raise InvalidInputError(f"column {target.name!r}: {error.message}", kind="bad_type") from error
        return cast

    def _filter(
        self, target: _Target, source: pa.ChunkedArray, cast: Cast, keep: Mask, bad: dict[int, str]
    ) -> None:
        """Removes rows whose lost value costs the row (Y1, Y3, Y4)."""
        is_strict = self._options.strict_mode and target.source is not None
        for mask, applies, reason in (
            (cast.out_of_range, True, "is out of the range of"),
            (cast.failed, is_strict, "cannot be converted to"),
        ):
            if mask is None or not applies:
                continue
            lost = np.flatnonzero(np.asarray(mask.to_numpy(zero_copy_only=False)) & keep)
            keep[lost] = False
            for row in lost[: described_max()].tolist():
                bad[row] = f"column {target.name}: {_shown(source[row])} {reason} {target.type}"

    def _with_default(self, target: _Target, values: pa.Array, batch: SourceBatch, now: datetime) -> pa.Array:
        if target.name == DELETE_SIGN:
            return pc.fill_null(values, 0)
        absent = batch.absent.get(target.source or "")
        column = None if self._options.is_flexible else self._schema.find(target.name)
        if absent is None or column is None or not absent.true_count:
            return values
        return pc.if_else(absent, default_scalar(column, now), values)

    def _decided(self, table: pa.Table, fields: pa.Table) -> tuple[pa.Table, Positions | None]:
        """Returns the rows that `where` selects, with the delete sign of `delete`, and their positions."""
        if self._decide is None or not len(table):
            return table, None
        both = pa.table(
            [*table.columns, *fields.columns],
            names=[*(_TARGET + n for n in table.schema.names), *(_FIELD + n for n in fields.schema.names)],
        )
        answers = dict(zip(self._conditions, self._decide(both), strict=True))
        if "delete" in answers:
            signs = _truths(answers["delete"], "delete").cast(pa.int8())
            named = [n for n in table.schema.names if n != DELETE_SIGN]
            table = table.select(named).append_column(DELETE_SIGN, signs)
        if "where" not in answers:
            return table, None
        selected = np.flatnonzero(_truths(answers["where"], "where").to_numpy(zero_copy_only=False))
        if len(selected) == len(table):
            return table, None
        return table.take(pa.array(selected)), selected


def _truths(values: pa.Array, header: str) -> pa.Array:
    """Returns for each row whether a condition holds: as in SQL a number but 0 does, and a text like `true`.

    Raises:
        InvalidInputError: its values are neither truth values nor numbers or texts.
    """
    kind = values.type
    if pa.types.is_null(kind):
        return pa.repeat(False, len(values))
    if pa.types.is_string(kind):
        values = try_cast(values, _TRUTH).values
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = pc.not_equal(values, pa.scalar(0, kind))
    elif not pa.types.is_boolean(kind):
        found = type_from_arrow(kind)
        raise InvalidInputError(
            f"{header}: expected a condition, found a value of type {found}; compare it with another",
            kind="bad_argument",
        )
    return pc.fill_null(values, False)


def _without_fractions(source: pa.Array | pa.ChunkedArray, cast: Cast) -> Cast:
    """Counts a text with a point as one that is no integer: strict mode cuts no fraction off."""
    has_point = pc.fill_null(pc.match_substring(source, "."), False)
    if not pc.any(has_point).as_py():
        return cast
    flags = has_point.combine_chunks() if isinstance(has_point, pa.ChunkedArray) else has_point
    values = pc.if_else(flags, pa.scalar(None, cast.values.type), cast.values)
    return Cast(values, flags if cast.failed is None else pc.or_(cast.failed, flags), cast.out_of_range)


def _truth_as_number(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Converts JSON's true and false to 1 and 0 for a column of numbers."""
    text = pc.if_else(pc.equal(text, "true"), "1", text)
    return pc.if_else(pc.equal(text, "false"), "0", text)


def _shown(value: pa.Scalar) -> str:
    """Returns a value for a message, cut to a readable length."""
    text = repr(format_value(value))
    return text if len(text) <= 100 else text[:97] + "..."


def _prefixed(tree: exp.Expr) -> exp.Expr:
    """Returns an expression over fields for use beside finished columns."""
    copied = tree.copy()
    for column in copied.find_all(exp.Column):
        column.set("this", exp.to_identifier(_FIELD + column.name, quoted=True))
    return copied
