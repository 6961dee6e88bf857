"""The rows that UPDATE, DELETE and MERGE write: the result of a SELECT, named by the table's columns.

- `UPDATE t SET a = e FROM s WHERE c`: the key of t and every `e`, of `t, s WHERE c`; a partial update.
- `UPDATE t JOIN s ON c SET a = e`, and MySQL's other joins: the same, of `t JOIN s ON c`.
- `DELETE FROM t USING s WHERE c`: the key of t; tombstones.
- MERGE INTO: one SELECT per clause (sql.write.merge_into).

Several source rows may match one row of the target. Its rows become one:
1. Equal rows are one.
2. Where the sequence is assigned, the largest decides, as between rows of a load.
3. Other rows of one key are ambiguous: the largest assigned values stay, so that the result does not depend
   on the order of the join. `one_row_per_key` returns the number of such keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import SEQUENCE_COL, VERSION_COL, Column
from seqstore.store.schema.column_groups import replaced_with
from seqstore.store.schema.partitions import any_partition_filter, partition_named
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.winner import order_winner_first
from seqstore.store.sql.parse.query_parser import has_sources
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.parse.statement_values import Query
from seqstore.store.sql.translate.conversions import as_assigned
from seqstore.store.sql.translate.predicates import scan_filter
from seqstore.store.sql.translate.relations import shown_name
from seqstore.store.transaction.merge_builder import Outcome
from seqstore.store.transaction.transaction_table import TransactionTable, check_assigned
from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import ColumnType, parse_type
from seqstore.store.types.fraction_digits import datetime_texts, fraction_digits_of

# Runs a query in the transaction of a statement.
OpenQuery = Callable[[Query], "AbstractContextManager[pa.RecordBatchReader]"]


def numbered(items: Iterable[exp.Expr]) -> list[exp.Expr]:
    """Adds an alias of its own to each item of a select list, so that names may repeat."""
    return [exp.alias_(item, f"v{number}") for number, item in enumerate(items)]


def key_columns(schema: TableSchema, alias: str) -> list[exp.Expr]:
    """Builds the key columns of a table that a query calls `alias`."""
    return [exp.column(name, table=alias, quoted=True) for name in schema.key]


def is_present(alias: str) -> exp.Expr:
    """Builds a condition that holds where an outer join found a row of the table that it calls `alias`."""
    version = exp.column(shown_name(VERSION_COL), table=alias)
    return exp.Not(this=exp.Is(this=version, expression=exp.null()))


def is_true(condition: exp.Expr) -> exp.Expr:
    """Builds a condition of which NULL is false."""
    return exp.func("coalesce", exp.paren(condition.copy()), exp.false())


def read_rows(
    select: exp.Select, names: Sequence[str], open_query: OpenQuery, schema: TableSchema | None = None
) -> pa.Table:
    """Runs a query and names the columns of its result, as they will be stored in a table of `schema`."""
    with open_query(Query(select, None)) as reader:
        if len(reader.schema) != len(names):
            raise InvalidInputError(
                f"expected {len(names)} values of a row, found {len(reader.schema)}: `*` is no value",
                kind="column_count",
            )
        rows = reader.read_all().rename_columns(list(names))
    by_name = schema.by_name if schema is not None else {}
    columns = [by_name.get(name.lower()) for name in names]
    return with_stored_texts(rows, [column.type if column is not None else None for column in columns])


def with_stored_texts(rows: pa.Table, kinds: Sequence[ColumnType | None]) -> pa.Table:
    """Formats DATETIME values that will be stored as text, with the fraction digits of their type."""
    for place, (field, kind) in enumerate(zip(rows.schema, kinds, strict=True)):
        is_text = kind is not None and kind.name in ("CHAR", "VARCHAR", "STRING")
        if is_text and pa.types.is_timestamp(field.type) and field.type.tz is None:
            texts = datetime_texts(rows.column(place), fraction_digits_of(field))
            rows = rows.set_column(place, field.name, texts)
    return rows


def distinct_rows(rows: pa.Table) -> pa.Table:
    return rows.group_by(rows.schema.names).aggregate([]) if len(rows) else rows


def one_row_per_key(rows: pa.Table, schema: TableSchema) -> tuple[pa.Table, int]:
    """Returns each key once, and the number of keys whose rows contradict each other.

    A table with column groups keeps all rows, for the sequence of each group decides.
    """
    if schema.groups:
        return rows, 0
    deciding = (SEQUENCE_COL, schema.sequence_column)
    sequence = next((name for name in rows.schema.names if name in deciding), None)
    return _one_per_key(rows, schema.key, sequence)


def assignments(
    items: Iterable[exp.Expr], opened: TransactionTable, schema: TableSchema, alias: str
) -> dict[str, exp.Expr]:
    """Reads `column = value, ..`: canonical column names to values.

    The columns of a group are written together: those that are not assigned keep their value.
    """
    table_name = opened.name.lower()
    qualifiers = {"", alias.lower()}
    if alias.lower() == table_name.partition(".")[2]:  # an alias hides the name (U9)
        qualifiers.add(table_name)
    given: dict[str, exp.Expr] = {}
    for item in items:
        target = item.this if isinstance(item, exp.EQ) else None
        if not isinstance(target, exp.Column):
            raise _invalid_assignment(item.sql("doris"))
        if ".".join(part.name for part in target.parts[:-1]).lower() not in qualifiers:
            raise _invalid_assignment(target.sql("doris"))
        if target.name in given:
            raise _invalid_assignment(f"{target.name} is assigned twice", "duplicate_column")
        given[target.name] = item.expression
    checked: dict[str, exp.Expr] = {
        name: with_default(value, schema, name) for name, value in check_assigned(schema, given).items()
    }
    rest = replaced_with(schema.groups, checked)
    opened.isolation.reads.read_columns(rest)
    return checked | {name: exp.column(name, table=alias, quoted=True) for name in rest}


def with_default(value: exp.Expr, schema: TableSchema, name: str) -> exp.Expr:
    """Returns the value that a statement gives to a column; for the word DEFAULT it is the column's default.

    Raises:
        InvalidInputError: DEFAULT for a column that has none and may not be NULL.
    """
    column = schema.find(name)
    if column is None:
        return value
    if not _is_default(value):
        return as_assigned(value, column.type)
    default = column.default
    if default is None and not column.nullable:
        raise InvalidInputError(
            f"column {column.name!r} has no default; give a value", kind="no_default", column=column.name
        )
    if default is None or default.kind == "null":
        return exp.null()
    if default.kind == "constant":
        return exp.Literal.string(default.text)
    if default.kind == "current_date":
        return exp.Anonymous(this="current_date")
    return exp.Anonymous(this="now", expressions=[exp.Literal.number(default.precision)])


def _is_default(value: exp.Expr) -> bool:
    is_name = isinstance(value, exp.Column) and not value.table and not value.this.args.get("quoted")
    return (is_name or isinstance(value, exp.Var)) and value.name.upper() == "DEFAULT"


def _invalid_assignment(found: str, kind: str = "bad_assignment") -> InvalidInputError:
    return InvalidInputError(f"column in assignment list is invalid, {found}", kind=kind)


_TEXT = parse_type("STRING")
_COMPARISONS = (exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.In, exp.Between)
_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_AT = "__at__"


def _one_per_key(rows: pa.Table, key: Sequence[str], sequence: str | None) -> tuple[pa.Table, int]:
    """Reduces the rows of each key to one; `sequence` is None when it is not assigned."""
    if len(rows.group_by(list(key)).aggregate([])) == len(rows):
        return rows, 0
    names = [f"v{number}" for number in range(rows.num_columns)]
    by = dict(zip(rows.schema.names, names, strict=True))
    plain = pa.table([_sortable(column) for column in rows.columns], names=names)
    deciding = [by[sequence]] if sequence is not None else []
    keys = [by[name] for name in key]
    rest = [name for name in names if name not in (*keys, *deciding)]
    order = order_winner_first(plain, keys, [*deciding, *rest])
    ordered = plain.take(order)
    fresh = _differs_from_before(ordered, keys)
    distinct = fresh | _differs_from_before(ordered, names)
    at = np.flatnonzero(distinct)
    first = fresh[at]
    # The second row of a key contradicts the first, unless its sequence is smaller.
    contradicts = ~_differs_from_before(ordered.take(pa.array(at)), [*keys, *deciding])
    ambiguous = int((first[:-1] & contradicts[1:]).sum())
    return rows.take(order.take(pa.array(np.flatnonzero(fresh)))), ambiguous


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Converts values to ones that Arrow can sort: lists, maps and structs become text."""
    if not pa.types.is_nested(column.type) and not pa.types.is_null(column.type):
        return column
    return pa.chunked_array([try_cast(column, _TEXT).values])


def _differs_from_before(rows: pa.Table, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Marks rows that differ from the row before, as the first does; NULL equals NULL."""
    differs = np.zeros(len(rows), dtype=np.bool_)
    differs[:1] = True
    for name in names:
        column = rows.column(name).combine_chunks()
        before, after = column[:-1], column[1:]
        same = pc.fill_null(pc.equal(before, after), pc.and_(pc.is_null(before), pc.is_null(after)))
        differs[1:] |= ~np.asarray(same.to_numpy(zero_copy_only=False)).astype(np.bool_)
    return differs


def keys_in_several(parts: Sequence[pa.Table], key: Sequence[str]) -> pa.Table:
    """Returns keys that occur in several tables, each of which has a key once."""
    both = pa.concat_tables([part.select(key) for part in parts])
    numbered = both.append_column(_AT, pa.array(np.arange(len(both))))
    counted = numbered.group_by(list(key)).aggregate([(_AT, "count")])
    return counted.filter(pc.field(f"{_AT}_count") > 1).select(list(key))


def run_update(
    tree: exp.Update, opened: TransactionTable, schema: TableSchema, open_query: OpenQuery
) -> Outcome:
    """Runs an UPDATE on a table of `schema`, as `row_change.run_change` does."""
    alias = tree.this.alias_or_name
    values = assignments(_without_kept_keys(tree, schema, opened.name), opened, schema, alias)
    if schema.constraints:
        opened.log_constraints(list(values))
    source = tree.args.get("from_")
    is_joined = has_sources(tree)
    select = _select(
        tree, [*key_columns(schema, alias), *values.values()], [source.this] if source is not None else []
    )
    opened.isolation.reads.read_sequence()
    rows = read_rows(select, [*schema.key, *values], open_query, schema)
    if is_joined:
        rows, ambiguous = one_row_per_key(rows, schema)
        if ambiguous:
            opened.warnings.append(
                f"{ambiguous} {'row was' if ambiguous == 1 else 'rows were'} matched by several rows that "
                "assign different values; the largest of those was assigned"
            )
    return len(rows), opened.change(rows) if len(rows) else None


def _without_kept_keys(tree: exp.Update, schema: TableSchema, full_name: str) -> list[exp.Expr]:
    """Returns the assignments of an UPDATE without those that give a key column the value of WHERE.

    Drivers that change the row of a result assign every column, `SET k = 1, v = 2 WHERE k <=> 1`.
    """
    alias = tree.this.alias_or_name.lower()
    qualifiers = {alias} if tree.this.alias else {alias, full_name.lower()}
    of_where = qualifiers if has_sources(tree) else {"", *qualifiers}
    equal = {
        part.this.name.lower(): part.expression
        for part in _conjuncts(tree.args.get("where"))
        if isinstance(part, (exp.EQ, exp.NullSafeEQ))
        and isinstance(part.this, exp.Column)
        and _qualifier(part.this) in of_where
        and isinstance(part.expression, (exp.Literal, exp.Neg))
    }
    given = [item.this.name.lower() for item in tree.expressions if isinstance(item, exp.EQ)]
    kept = [
        item
        for item in tree.expressions
        if not (
            isinstance(item, exp.EQ)
            and isinstance(item.this, exp.Column)
            and _qualifier(item.this) in {"", *qualifiers}
            and given.count(item.this.name.lower()) == 1
            and _is_kept_key(item, schema, equal.get(item.this.name.lower()))
        )
    ]
    return kept or tree.expressions


def _is_kept_key(item: exp.EQ, schema: TableSchema, value: exp.Expr | None) -> bool:
    """Returns whether an assignment gives a key column a value that its row has; of texts '1' is not 01."""
    column = schema.find(item.this.name)
    if column is None or column.name not in schema.key or value != item.expression:
        return False
    is_text = column.type.name in ("CHAR", "VARCHAR", "STRING")
    return not is_text or (isinstance(value, exp.Literal) and value.is_string)


def _qualifier(column: exp.Column) -> str:
    """Returns what stands before a column, in lower case."""
    return ".".join(part.name for part in column.parts[:-1]).lower()


def _conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """Returns the conditions that all hold by a WHERE, or by the ON of a join."""
    bare = condition.this if isinstance(condition, exp.Where) else condition
    if bare is None:
        return []
    bare = bare.unnest()
    parts = bare.flatten() if isinstance(bare, exp.And) else (bare,)
    return [part.unnest() for part in parts]


def run_delete(
    tree: exp.Delete, opened: TransactionTable, schema: TableSchema, open_query: OpenQuery
) -> Outcome:
    """Runs a DELETE on a table of `schema`, as `row_change.run_change` does."""
    where = tree.args.get("where")
    is_limited = tree.args.get("limit") is not None
    joins = tree.this.args.get("joins") or ()  # MySQL's DELETE t FROM t JOIN .. ON ..
    is_narrowed = is_limited or any(join.args.get("on") or join.args.get("using") for join in joins)
    if not is_narrowed and (where is None or _is_always_true(where.this, open_query)):
        raise InvalidInputError("delete all rows is forbidden temporary.", kind="delete_all")
    is_joined = has_sources(tree)
    select = _select(tree, key_columns(schema, tree.this.alias_or_name), tree.args.get("using") or [])
    rows = read_rows(select, list(schema.key), open_query)
    if is_joined:
        rows = distinct_rows(rows)
    return len(rows), opened.delete(rows) if len(rows) else None


def key_predicate(tree: exp.Expr, schema: TableSchema) -> pc.Expression | None:
    """Returns the rows of a DELETE whose conditions compare key columns with constants, None for others."""
    where, target = tree.args.get("where"), tree.this
    if where is None or has_sources(tree) or where.find(exp.Select):
        return None
    alias = target.alias_or_name.lower()
    for column in find_all(where, exp.Column):
        known = schema.find(column.name)
        if known is None or known.name not in schema.key or column.table.lower() not in ("", alias):
            return None
    try:
        found = scan_filter(schema, where.this, "DELETE")
    except InvalidInputError:
        return None
    partition = target.args.get("partition")
    if partition is None:
        return found
    named = [partition_named(schema, item.name) for item in partition.expressions]
    return found & any_partition_filter(schema, named)


def names_key(tree: exp.Expr, schema: TableSchema) -> bool:
    """Returns whether a condition of an UPDATE or DELETE compares a column of the declared key.

    It is one that every changed row meets: a part of an OR is none. Conditions of inner joins count, too.
    """
    parts = _conjuncts(tree.args.get("where"))
    for join in tree.this.args.get("joins") or ():
        if not join.side and not join.kind:
            parts += _conjuncts(join.args.get("on"))
    alias = tree.this.alias_or_name.lower()
    return any(isinstance(part, _COMPARISONS) and _compares_key(part, schema, alias) for part in parts)


def _compares_key(part: exp.Expr, schema: TableSchema, alias: str) -> bool:
    """Returns whether one side of a comparison is a column of the key, and no other has one of the table."""

    def is_own(column: exp.Column) -> bool:
        return column.table.lower() in ("", alias) and schema.find(column.name) is not None

    values = [value if isinstance(value, list) else [value] for value in part.args.values()]
    sides = [side for each in values for side in each if isinstance(side, exp.Expr)]
    for side in (part.this, part.args.get("expression")):
        column = schema.find(side.name) if isinstance(side, exp.Column) and is_own(side) else None
        if column is None or column.name not in schema.declared_key:
            continue
        others = [each for other in sides if other is not side for each in find_all(other, exp.Column)]
        if not any(map(is_own, others)):
            return True
    return False


def one_key(tree: exp.Expr, schema: TableSchema) -> tuple[object, ...] | None:
    """Returns the key of an UPDATE or DELETE that changes the row of one key, if its conditions hold.

    Statements of different keys read none of each other's rows. None for all others, among them those that
    assign the sequence and may leave the row as it is, and those whose key has other types than integers,
    dates and texts: two texts may mean one moment.
    """
    where = tree.args.get("where")
    if where is None or schema.is_duplicate or schema.groups or has_sources(tree) or tree.find(exp.Select):
        return None
    if tree.args.get("limit") or tree.args.get("order"):
        return None
    assigned = {item.this.name.lower() for item in tree.expressions if isinstance(item, exp.EQ)}
    if {(schema.sequence_column or SEQUENCE_COL).lower(), SEQUENCE_COL.lower()} & assigned:
        return None
    given: dict[str, object] = {}
    for condition in where.this.flatten() if isinstance(where.this, exp.And) else (where.this,):
        if isinstance(condition, exp.EQ) and isinstance(condition.this, exp.Column):
            column = schema.find(condition.this.name)
            value = _key_value(column, condition.expression) if column is not None else None
            if column is not None and value is not None:
                given[column.name] = value
    return tuple(given[name] for name in schema.key) if given.keys() >= {*schema.key} else None


def _key_value(column: Column, value: exp.Expr) -> object:
    """Returns the value that equals a literal, None where several might."""
    sign = "-" if isinstance(value, exp.Neg) else ""
    literal = value.this if sign else value
    if not isinstance(literal, exp.Literal):
        return None
    if column.type.name in _INTEGERS:
        return try_cast(pa.array([sign + literal.name]), column.type).values[0].as_py()
    is_date = column.type.name == "DATE" and bool(_DATE.fullmatch(literal.name))
    is_text = column.type.name == "VARCHAR"
    return literal.name if literal.is_string and (is_date or is_text) else None


def _is_always_true(condition: exp.Expr, open_query: OpenQuery) -> bool:
    """Returns whether a condition without columns holds, such as `1 = 1` (D17)."""
    if condition.find(exp.Column, exp.Select):
        return False
    found = read_rows(exp.select(exp.alias_(is_true(condition), "found")), ["found"], open_query)
    return bool(len(found) and found.column(0)[0].as_py())


def _select(
    tree: exp.Update | exp.Delete, items: Iterable[exp.Expr], sources: Iterable[exp.Expr]
) -> exp.Select:
    """Builds `SELECT items.. FROM target, sources WHERE ..`, of rows that the target has."""
    joins = _taken_joins(tree.this)
    for source in sources:
        own = _taken_joins(source)
        joins += [exp.Join(this=source, kind="CROSS"), *own]
    named = [exp.alias_(item, f"v{number}", copy=False) for number, item in enumerate(items)]
    select = exp.select(*named, copy=False).from_(tree.this, copy=False)
    for join in joins:
        select.append("joins", join)
    for clause in ("with_", "where", "order", "limit"):
        if tree.args.get(clause) is not None:
            select.set(clause, tree.args[clause])
    if any(join.side in ("RIGHT", "FULL") for join in joins):
        select.where(is_present(tree.this.alias_or_name), copy=False)
    return select


def _taken_joins(source: exp.Expr) -> list[exp.Join]:
    """Removes the joins that hang at a table, and returns them."""
    joins = source.args.get("joins") or []
    source.set("joins", None)
    return list(joins)
