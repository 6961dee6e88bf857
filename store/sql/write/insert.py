"""INSERT: rows of literals, or the result of a query, as one load."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.check.row_checker import RejectedRow
from seqstore.store.check.write_modes import UpdateMode
from seqstore.store.errors import InvalidInputError, LoadRejectedError
from seqstore.store.load.group_commit import LABEL_PREFIX, GroupedLoad
from seqstore.store.load.load import Load, LoadResult
from seqstore.store.runtime.format_value import format_value
from seqstore.store.schema.column import (
    DELETE_SIGN,
    GROUPS_COL,
    ROW_ID_COL,
    SEQUENCE_COL,
    VERSION_COL,
    Column,
    default_scalar,
    hidden_name,
)
from seqstore.store.schema.partitioning import Partition
from seqstore.store.schema.partitions import any_partition_filter, automatic_partitions, partition_named
from seqstore.store.schema.properties import GROUP_COMMIT_OFF
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.partition_parser import TOUCHED
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import Cell, Insert, Query, Word
from seqstore.store.sql.result import Result, write_info
from seqstore.store.sql.translate.conversions import as_assigned
from seqstore.store.sql.write.changed_rows import OpenQuery, with_stored_texts
from seqstore.store.table import Table
from seqstore.store.transaction.transaction_table import TransactionTable
from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import ColumnType, parse_type

_EXPRESSIONS_AT_ONCE: Final = 500
_ROWS_AT_ONCE: Final = 1_000_000
_WARNINGS_MAX: Final = 64
_SIGN_TYPE: Final = parse_type("TINYINT")
_TEXT: Final = parse_type("STRING")
_PLAIN_DIGITS_MAX: Final = 400  # a double has no more; 1e999999999 would be a gigabyte


@dataclass(frozen=True)
class InsertOptions:
    """The session's settings of INSERT.

    Attributes:
        strict: a row that cannot be stored fails the statement (Y10); otherwise its bad values become NULL
            (Y1), and rows that still cannot be stored are left out.
        max_filter_ratio: share of rows that may be left out when not strict.
        require_sequence: False admits rows without a sequence (SL12).
        now: the moment of CURRENT_TIMESTAMP defaults (A3).
        zone: the zone to which values with a time zone are converted.
        partial: a statement with a column list updates those columns and keeps the others (P2); a statement
            without one writes whole rows (P15).
        new_keys: in partial updates, APPEND or ERROR (P10).
        txn_app_id, txn_version: of an idempotent statement, both or neither.
        group_commit: the mode of the session; None for that of the table.
    """

    strict: bool
    max_filter_ratio: float
    require_sequence: bool
    now: datetime
    zone: str
    partial: bool = False
    new_keys: str = "APPEND"
    txn_app_id: str | None = None
    txn_version: int | None = None
    group_commit: str | None = None


@dataclass(frozen=True)
class _Target:
    """A column to write; `column` is None for hidden ones."""

    name: str
    type: ColumnType
    column: Column | None


def run_insert(
    statement: Insert, table: Table | TransactionTable, open_query: OpenQuery, options: InsertOptions
) -> Result:
    """Loads the rows of one INSERT; all of them or none.

    Args:
        open_query: runs a query that reads no table of the statement's own.

    Raises:
        InvalidInputError: columns or values do not fit the table.
        LoadRejectedError: a row cannot be stored, and the session is strict.
        LabelExistsError: the label was used.
    """
    statement = _with_defaults(statement, table.schema)
    targets = _targets(statement, table)
    if isinstance(table, Table) and _may_group(statement, table.schema, options):
        return _run_grouped(statement, table, targets, open_query, options)
    return _run_alone(statement, table, targets, open_query, options)


def _with_defaults(statement: Insert, schema: TableSchema) -> Insert:
    """Writes `() VALUES ()`, rows of defaults alone, as DEFAULT for one column."""
    if not statement.rows or any(statement.rows) or statement.columns:
        return statement
    column = schema.auto_increment_column or schema.columns[0]
    return replace(statement, columns=(column.name,), rows=((Word.DEFAULT,),) * len(statement.rows))


def _run_alone(
    statement: Insert,
    table: Table | TransactionTable,
    targets: Sequence[_Target],
    open_query: OpenQuery,
    options: InsertOptions,
) -> Result:
    """Loads the rows of a statement in a load of its own."""
    is_touched = statement.partitions == (TOUCHED,)
    if is_touched:
        _check_touched(statement, table)
    with table.begin_load(
        label=statement.label,
        operation="INSERT OVERWRITE" if statement.is_overwrite else "INSERT",
        partitions=() if is_touched else statement.partitions,
        now=options.now,
        zone=options.zone,
        require_sequence=options.require_sequence,
        mode=_mode(statement, table.schema, options),
        new_keys=options.new_keys,
        txn_app_id=options.txn_app_id,
        txn_version=options.txn_version,
    ) as load:
        if load.skipped:
            return _result(load.commit(), [], (load.skipped,))
        if statement.is_overwrite and not is_touched:
            load.clear(_overwritten(statement, table))
        filtered: list[RejectedRow] = []
        touched: dict[str, Partition] = {}
        total = given_id = 0
        for rows in _batches(statement, table.schema, targets, open_query, options):
            filtered += _write(load, rows, targets, options, total)
            total += len(rows)
            given_id = _given_id(rows, targets) or given_id
            if is_touched:
                touched |= _touched(table.schema, rows, options.zone)
        _check_filtered(filtered, total, options)
        if is_touched and not touched:
            load.abort("no rows: no partition is overwritten")
            return Result()
        if is_touched:
            load.clear(any_partition_filter(table.schema, touched.values()))
        return _result(load.commit(), filtered, given_id=given_id)


def _may_group(statement: Insert, schema: TableSchema, options: InsertOptions) -> bool:
    """Returns whether the statement joins others in one transaction (G13).

    It has an outcome of its own with a label, an application id, or values that the table generates.
    """
    mode = schema.group_commit if options.group_commit is None else options.group_commit
    is_plain = statement.rows is not None and not (statement.is_overwrite or statement.partitions)
    is_plain = is_plain and statement.label is None and options.txn_app_id is None
    is_plain = is_plain and schema.auto_increment_column is None and not schema.groups
    return mode != GROUP_COMMIT_OFF and is_plain and _mode(statement, schema, options) is UpdateMode.UPSERT


def _run_grouped(
    statement: Insert, table: Table, targets: Sequence[_Target], open_query: OpenQuery, options: InsertOptions
) -> Result:
    """Loads the rows of a statement in one transaction with those of others (store.load.group_commit)."""

    def begin() -> Load:
        return table.begin_load(
            operation="INSERT",
            label_prefix=LABEL_PREFIX,
            now=options.now,
            zone=options.zone,
            require_sequence=options.require_sequence,
        )

    with GroupedLoad(table, begin) as load:
        filtered: list[RejectedRow] = []
        total = 0
        for rows in _batches(statement, table.schema, targets, open_query, options):
            filtered += _write(load, rows, targets, options, total)
            total += len(rows)
        _check_filtered(filtered, total, options)
        return _result(load.commit(), filtered)


def _mode(statement: Insert, schema: TableSchema, options: InsertOptions) -> UpdateMode:
    """Returns whether the columns of a statement are all of a row, or a partial update (P16)."""
    is_partial = options.partial and statement.columns is not None and not statement.is_overwrite
    is_possible = not (schema.is_merge_on_read or schema.is_duplicate)
    return UpdateMode.FIXED if is_partial and is_possible else UpdateMode.UPSERT


def converted_rows(
    statement: Insert, table: TransactionTable, open_query: OpenQuery, options: InsertOptions
) -> tuple[pa.Table, list[str]]:
    """Returns the rows of a statement, converted to the columns, and warnings.

    A warning tells of a row left out, or of a value that was made NULL. A value of the key is never made NULL
    (T3: NULL would be the key of another row): its row is left out.

    Raises:
        InvalidInputError: columns or values do not fit the table.
        LoadRejectedError: a row cannot be stored, and the session is strict.
    """
    statement = _with_defaults(statement, table.schema)
    targets = _targets(statement, table)
    filtered: list[RejectedRow] = []
    emptied: list[RejectedRow] = []
    parts: list[pa.Table] = []
    total = 0
    for rows in _batches(statement, table.schema, targets, open_query, options):
        unreadable = [] if options.strict else _unreadable(rows, targets, table.schema.key, options)
        kept, positions, left_out = _converted(rows, targets, options)
        of_key = [each for each in unreadable if each.column in table.schema.key]
        lost = {each.row: each for each in (*left_out, *of_key)}
        for each in _unstorable(kept, positions, targets):
            lost.setdefault(each.row, each)
        keep = pc.invert(pc.is_in(positions, pa.array(list(lost), positions.type)))
        parts.append(kept.filter(keep))
        filtered += [replace(lost[row], row=row + total) for row in sorted(lost)]
        emptied += [replace(each, row=each.row + total) for each in unreadable if each.row not in lost]
        total += len(rows)
    if options.strict or len(filtered) > total * options.max_filter_ratio:
        _check_filtered(filtered, total, options)
    told = sorted((*filtered, *emptied), key=lambda each: each.row)
    return pa.concat_tables(parts), [_described(row) for row in told[:_WARNINGS_MAX]]


def _unreadable(
    rows: pa.Table, targets: Sequence[_Target], key: Sequence[str], options: InsertOptions
) -> list[RejectedRow]:
    """Finds the values that are made NULL because they cannot be converted.

    Of a column beside the key there are no more than warnings can tell of: the first ones.
    """
    found = []
    for column, target in zip(rows.columns, targets, strict=True):
        cast = try_cast(column, target.type, zone=options.zone)
        if cast.failed is None:
            continue
        flat = column.combine_chunks()
        failed = pc.indices_nonzero(cast.failed)
        for row in (failed if target.name in key else failed[:_WARNINGS_MAX]).to_pylist():
            reason = f"column({target.name}) value {str(format_value(flat[row]))[:80]!r} is no {target.type}"
            found.append(RejectedRow(row, target.name, reason))
    return found


def _unstorable(rows: pa.Table, positions: pa.Array, targets: Sequence[_Target]) -> Iterator[RejectedRow]:
    """Yields converted rows that the table does not take: a NULL for NOT NULL, or a text that is too long."""
    for values, target in zip(rows.columns, targets, strict=True):
        column = target.column
        if column is None:
            continue
        flat = values.combine_chunks()
        if not column.nullable and column.auto_increment is None:
            reason = f"column({target.name}) values is null while columns is not nullable"
            for row in positions.filter(flat.is_null()).to_pylist():
                yield RejectedRow(row, target.name, reason)
        limit = column.type.byte_length_max
        if limit is not None and (pc.max(pc.binary_length(flat)).as_py() or 0) > limit:
            too_long = pc.greater(pc.binary_length(flat), limit).fill_null(False)
            reason = f"the length of input is too long than schema. column_name: {column.name}; "
            reason += f"schema length: {limit}"
            for row in positions.filter(too_long).to_pylist():
                yield RejectedRow(row, target.name, reason)


def _check_touched(statement: Insert, table: Table | TransactionTable) -> None:
    """Checks that PARTITION(*), the partitions of the rows, stands in an INSERT OVERWRITE."""
    if not statement.is_overwrite:
        raise InvalidInputError(
            "PARTITION(*) is for INSERT OVERWRITE; name the partitions of an INSERT INTO",
            kind="not_partitioned",
        )
    if table.schema.partitioning is None:
        raise InvalidInputError(
            f"PARTITION(*) is for INSERT OVERWRITE of a partitioned table; {table.name} is none",
            kind="not_partitioned",
        )


def _touched(schema: TableSchema, rows: pa.Table, zone: str) -> dict[str, Partition]:
    """Finds the partitions of rows, by name; those of an AUTO table may be new."""
    partitioning = schema.partitioning
    assert partitioning is not None
    columns = {
        name: try_cast(_given(rows, name), schema.column(name).type, zone=zone)
        for name in partitioning.columns
    }
    values = pa.table({name: cast.values for name, cast in columns.items()})
    found = {
        partition.name: partition
        for partition in partitioning.partitions
        if values.filter(any_partition_filter(schema, [partition])).num_rows
    }
    if partitioning.is_auto:
        found |= {partition.name: partition for partition in automatic_partitions(schema, values)}
    return found


def _given(rows: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in rows.schema.names:
        raise InvalidInputError(
            f"PARTITION(*) needs partition column {name!r} among the columns", kind="column_count"
        )
    return rows.column(name)


def _overwritten(statement: Insert, table: Table | TransactionTable) -> pc.Expression | None:
    """Returns a filter for the rows to replace, None for all of them."""
    schema = table.schema
    if not statement.partitions or schema.partitioning is None:
        return None
    return any_partition_filter(schema, [partition_named(schema, name) for name in statement.partitions])


def _result(
    done: LoadResult, filtered: list[RejectedRow], skipped: tuple[str, ...] = (), *, given_id: int = 0
) -> Result:
    info = write_info(done.label, done.status, done.txn_id or "")
    warnings = (*skipped, *(_described(row) for row in filtered[:_WARNINGS_MAX]))
    made = done.first_id
    return Result(None, done.rows_loaded, info, warnings, generated_id=made, insert_id=made or given_id)


def _given_id(rows: pa.Table, targets: Sequence[_Target]) -> int:
    """Returns the value of the AUTO_INCREMENT column in the last row, as MySQL does; 0 for none."""
    for values, target in zip(rows.columns, targets, strict=True):
        if target.column is not None and target.column.auto_increment is not None and len(rows):
            value = try_cast(values.slice(len(rows) - 1), target.type).values[0].as_py()
            return max(value or 0, 0)
    return 0


def _described(row: RejectedRow) -> str:
    return f"row {row.row + 1}: {row.reason}"


def _targets(statement: Insert, table: Table | TransactionTable) -> list[_Target]:
    """Returns the columns to write; hidden ones in any spelling (T7), the delete sign included (D11)."""
    schema = table.schema
    if statement.columns is None:
        return [_Target(column.name, column.type, column) for column in schema.columns]
    targets: list[_Target] = []
    for name in statement.columns:
        target = _target(name, table, schema)
        if any(target.name == other.name for other in targets):
            raise InvalidInputError(f"column {name!r} is listed twice", kind="duplicate_column", column=name)
        targets.append(target)
    return targets


def _target(name: str, table: Table | TransactionTable, schema: TableSchema) -> _Target:
    hidden = hidden_name(name)
    if hidden == DELETE_SIGN:
        return _Target(hidden, _SIGN_TYPE, None)
    if hidden == SEQUENCE_COL:
        if schema.sequence_type is None:
            raise InvalidInputError(
                f"There is no sequence column in the table {table.name.partition('.')[2]}", kind="no_sequence"
            )
        return _Target(hidden, schema.sequence_type, None)
    if hidden in (VERSION_COL, GROUPS_COL, ROW_ID_COL):
        raise InvalidInputError(f"column {name!r} is written by the store; leave it out", kind="bad_column")
    column = schema.find(name)
    if column is None:
        raise InvalidInputError(
            f"unknown column {name!r} in table {table.name}; it has {', '.join(schema.names)}",
            kind="unknown_column",
            column=name,
        )
    return _Target(column.name, column.type, column)


def _batches(
    statement: Insert,
    schema: TableSchema,
    targets: Sequence[_Target],
    open_query: OpenQuery,
    options: InsertOptions,
) -> Iterator[pa.Table]:
    names = [target.name for target in targets]
    if statement.rows is not None:
        for number, row in enumerate(statement.rows, start=1):
            if len(row) != len(targets):
                raise _count_mismatch(len(targets), len(row), f"row {number}")
        for start in range(0, len(statement.rows), _ROWS_AT_ONCE):
            rows = _evaluated(statement.rows[start : start + _ROWS_AT_ONCE], targets, open_query)
            columns = zip(*rows, strict=True)
            arrays = [_array(cells, t, options) for cells, t in zip(columns, targets, strict=True)]
            yield pa.Table.from_arrays(arrays, names=names)
        return
    assert statement.query is not None
    with open_query(statement.query) as reader:
        if len(reader.schema) != len(targets):
            raise _count_mismatch(len(targets), len(reader.schema), "the query")
        for batches in _gathered(reader):
            table = pa.Table.from_batches(batches, schema=reader.schema)
            yield with_stored_texts(table.rename_columns(names), [target.type for target in targets])


def _gathered(reader: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in reader:
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS_AT_ONCE:
            yield gathered
            gathered, rows = [], 0
    yield gathered


def _count_mismatch(expected: int, found: int, where: str) -> InvalidInputError:
    return InvalidInputError(
        f"insert into cols should be corresponding to the query output: expected {expected} values, "
        f"found {found} in {where}",
        kind="column_count",
    )


def _evaluated(
    rows: Sequence[tuple[Cell, ...]], targets: Sequence[_Target], open_query: OpenQuery
) -> Sequence[tuple[Any, ...]]:
    """Replaces every expression in the rows by its value."""
    places = [(r, c, x) for r, row in enumerate(rows) for c, x in enumerate(row) if isinstance(x, exp.Expr)]
    if not places:
        return rows
    changed: dict[int, list[Any]] = {}
    for start in range(0, len(places), _EXPRESSIONS_AT_ONCE):
        chunk = places[start : start + _EXPRESSIONS_AT_ONCE]
        cells = [as_assigned(cell, targets[column].type) for _, column, cell in chunk]
        items = [exp.alias_(cell, f"v{i}") for i, cell in enumerate(cells)]
        with open_query(Query(exp.select(*items), None)) as reader:
            values = with_stored_texts(reader.read_all(), [targets[c].type for _, c, _ in chunk])
        for (r, c, _), column in zip(chunk, values.columns, strict=True):
            changed.setdefault(r, list(rows[r]))[c] = _value(column)
    return [tuple(changed[r]) if r in changed else row for r, row in enumerate(rows)]


def _value(column: pa.ChunkedArray) -> Any:
    """Returns the value of an expression; nested values stay Arrow's, for Python's of maps are lists."""
    value = column[0] if len(column) else None
    if value is None or not value.is_valid:
        return None
    return value if pa.types.is_nested(value.type) else value.as_py()


def _array(cells: Sequence[Any], target: _Target, options: InsertOptions) -> pa.Array:
    """Builds the values of one column: in their own Arrow type when they are of one kind, else as text."""
    if Word.DEFAULT in cells:
        default = _default(target, options.now)
        cells = [default if cell is Word.DEFAULT else cell for cell in cells]
    nested = {cell.type for cell in cells if isinstance(cell, pa.Scalar)}
    kinds = {type(cell) for cell in cells if cell is not None}
    if len(nested) == 1 and all(cell is None or isinstance(cell, pa.Scalar) for cell in cells):
        return pa.array([None if cell is None else cell.as_py() for cell in cells], next(iter(nested)))
    is_text = target.type.name in ("CHAR", "VARCHAR", "STRING")  # which keeps the digits of each value
    if not nested and (kinds <= {int, Decimal} or len(kinds) == 1) and not (is_text and Decimal in kinds):
        try:
            return pa.array(cells)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass  # integers beyond 64 bits, decimals too far apart, lists of mixed kinds
    if target.type.name == "BOOLEAN" and kinds <= {bool, int, float, Decimal}:
        return pa.array([None if cell is None else bool(cell) for cell in cells], pa.bool_())
    return pa.array([None if cell is None else _text(cell, is_text=is_text) for cell in cells], pa.string())


def _default(target: _Target, now: datetime) -> Any:
    column = target.column
    if column is None:
        return 0 if target.name == DELETE_SIGN else None
    if not column.can_be_omitted:
        raise InvalidInputError(
            f"column {column.name!r} has no default; give a value", kind="no_default", column=column.name
        )
    return default_scalar(column, now).as_py()


def _text(value: Any, *, is_text: bool) -> str | None:
    """Formats a value that stands beside others of another kind; numbers for a number have no exponent."""
    if isinstance(value, pa.Scalar) or (isinstance(value, float) and is_text):
        alone = pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else pa.array([value])
        text: str | None = try_cast(alone, _TEXT).values[0].as_py()
        return text
    if isinstance(value, float) and math.isfinite(value):
        return f"{Decimal(repr(value)):f}"
    if isinstance(value, Decimal) and abs(value.adjusted()) <= _PLAIN_DIGITS_MAX:
        return f"{value:f}"
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return value.isoformat() if isinstance(value, date) else str(value)


def _write(
    load: Load | GroupedLoad, rows: pa.Table, targets: Sequence[_Target], options: InsertOptions, before: int
) -> list[RejectedRow]:
    """Writes one batch; returns the rows left out, counted from the start of the statement."""
    if options.strict:
        left_out = list(load.write(rows).rejected)
    else:
        kept, positions, left_out = _converted(rows, targets, options)
        rejected = load.write(kept).rejected
        left_out += [replace(each, row=positions[each.row].as_py()) for each in rejected]
        left_out.sort(key=lambda each: each.row)
    return [replace(each, row=each.row + before) for each in left_out]


def _converted(
    rows: pa.Table, targets: Sequence[_Target], options: InsertOptions
) -> tuple[pa.Table, pa.Array, list[RejectedRow]]:
    """Makes values NULL that cannot be converted (Y1), except numbers out of range (Y4); filters the rows of
    all of them where the session is strict."""
    arrays, lost = [], pa.array([False] * len(rows), pa.bool_())
    filtered: dict[int, RejectedRow] = {}
    for column, target in zip(rows.columns, targets, strict=True):
        cast = try_cast(column, target.type, zone=options.zone)
        arrays.append(cast.values)
        failed = cast.failed if options.strict else cast.out_of_range
        if failed is not None:
            reason = "no value" if options.strict else "out of range"
            reason = f"column {target.name!r}: {reason} of {target.type}"
            lost = pc.or_(lost, failed)
            for row in pc.indices_nonzero(failed).to_pylist():
                filtered.setdefault(row, RejectedRow(row, target.name, reason))
    keep = pc.invert(lost)
    converted = pa.Table.from_arrays(arrays, names=rows.schema.names).filter(keep)
    return converted, pc.indices_nonzero(keep), list(filtered.values())


def _check_filtered(filtered: list[RejectedRow], total: int, options: InsertOptions) -> None:
    """Fails the statement when it leaves out more rows than the session allows (Y10, Y11)."""
    if not filtered:
        return
    count = f"{len(filtered)} of {total} rows, first {_described(filtered[0])}"
    if options.strict:
        message = f"Insert has filtered data in strict mode: {count}"
    elif len(filtered) == total:
        message = f"all partitions have no load data: {count}"
    elif len(filtered) > total * options.max_filter_ratio:
        message = f"Insert has too many filtered data: {count}; at most {options.max_filter_ratio:g} may"
    else:
        return
    raise LoadRejectedError(message, kind="too_many_filtered", rejected=filtered, total=total)
