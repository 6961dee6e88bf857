"""The scan-only plan: queries that a scan or look-up of one table answers without DuckDB.

Such a query selects columns of one table and literals, under conditions that the scan decides, with a LIMIT
at most, before which ORDER BY may name leading columns of the key (read.first_rows). So do the rows of
UPDATE .. SET c = 'literal'. Values stay as they are stored, reading stops at the limit, and a complete key
reads only rows of that key. Literals alone, as in `SELECT 1`, need no table.
Zone maps answer `count(*)`, `count(1)`, `count(c)`, `min(c)` and `max(c)` under such conditions. Extremes of
floats are excluded: SQL orders NaN among them, Arrow does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Final

import pyarrow as pa

from seqstore.store.expressions.condition import Condition
from seqstore.store.read.first_rows import FIRST_ROWS_MAX, key_order
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.translate.relations import Relation, rows_bound
from seqstore.store.types.column_types import INTEGER_RANGES, ColumnType
from seqstore.store.types.fraction_digits import with_fraction_digits

_ORDERED: Final = frozenset([*INTEGER_RANGES, "DECIMAL", "DATE", "DATETIME", "CHAR", "VARCHAR", "STRING"])
_CLAUSES: Final = frozenset(["expressions", "from_", "where", "limit", "offset"])
# Parts of a select list that return a value for each row, whatever the other rows are.
_OF_A_ROW: Final = (exp.Cast, exp.TryCast, exp.Case, exp.If, exp.Coalesce, exp.Concat, exp.Upper, exp.Lower,
                    exp.Length, exp.Abs, exp.Round, exp.And, exp.Or)  # fmt: skip
_NO_FIRST_ROWS: Final = (exp.Func, exp.Query, exp.Window, exp.Lateral, exp.Unnest)

# Offset, and limit if there is one.
Bounds = tuple[int, int | None]
_ALL_ROWS: Final[Bounds] = (0, None)
_INT, _BIGINT = INTEGER_RANGES["INT"], INTEGER_RANGES["BIGINT"]


@dataclass(frozen=True)
class Item:
    """A column of the result: a stored one by its canonical name, or a literal."""

    field: pa.Field
    column: str = ""
    literal: pa.Scalar | None = None

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        if self.literal is None:
            return batch.column(self.column)
        if not self.literal.is_valid:
            return pa.nulls(batch.num_rows)
        return pa.repeat(self.literal, batch.num_rows)


def scan_only_plan(
    tree: exp.Query, relations: list[Relation], *, show_hidden: bool, deleted: bool
) -> pa.RecordBatchReader | None:
    """Returns the result of a query that needs no evaluation, read on demand; None for any other query."""
    if not isinstance(tree, exp.Select) or len(relations) > 1:
        return None
    if not relations:
        return _literals(tree)
    relation, bounds = relations[0], bounds_of(tree)
    evaluated = () if relation.first is None else ("order",)
    if bounds is None or not relation.is_where_decided or not _is_simple(tree, relation, *evaluated):
        return None
    if bounds == _ALL_ROWS and relation.keys is None:
        answer = _aggregates(tree, relation, deleted=deleted)
        if answer is not None:
            return answer
    items = items_of(tree, relation, show_hidden=show_hidden)
    return projected(relation, items, bounds, deleted=deleted) if items is not None else None


def _literals(tree: exp.Select) -> pa.RecordBatchReader | None:
    """Returns the one row of a query of literals, None for any other query without tables."""
    if any(value for name, value in tree.args.items() if name != "expressions"):
        return None
    values = [_literal(item.unalias()) for item in tree.expressions]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    fields = zip(tree.expressions, known, strict=True)
    schema = pa.schema([pa.field(item.alias, value.type) for item, value in fields])
    row = pa.record_batch([pa.array([value.as_py()], value.type) for value in known], schema=schema)
    return pa.RecordBatchReader.from_batches(schema, [row])


def choose_first_rows(tree: exp.Query, relations: list[Relation]) -> None:
    """Finds out whether a query needs only the first rows of its table by key."""
    if not isinstance(tree, exp.Select) or len(relations) != 1 or tree.args.get("order") is None:
        return
    relation, bounds = relations[0], bounds_of(tree)
    is_stored = isinstance(relation.snapshot, Snapshot) and not relation.partitions and relation.keys is None
    if bounds is None or bounds[1] is None or not is_stored or not relation.is_where_decided:
        return
    rows = bounds[0] + bounds[1]
    if rows > FIRST_ROWS_MAX or not _is_simple(tree, relation, "order"):
        return
    parts = (part for item in tree.expressions for part in find_all(item, *_NO_FIRST_ROWS))
    if not all(isinstance(part, _OF_A_ROW) for part in parts):
        return
    columns = _ordered_columns(tree, relation)
    order = key_order(relation.schema, columns, relation.conditions) if columns is not None else None
    relation.first = (order, rows) if order is not None else None


def _ordered_columns(tree: exp.Select, relation: Relation) -> list[tuple[str, bool]] | None:
    """Returns the columns of ORDER BY with whether each descends, None if it orders by anything else."""
    found = []
    for node in tree.args["order"].expressions:
        known = _ordered_column(node.this, tree, relation) if isinstance(node, exp.Ordered) else None
        if known is None or node.args.get("with_fill"):
            return None
        descends = bool(node.args.get("desc"))
        column = relation.schema.find(known)
        if bool(node.args.get("nulls_first")) == descends and (column is None or column.nullable):
            return None
        found.append((known, descends))
    return found


def _ordered_column(node: exp.Expr, tree: exp.Select, relation: Relation) -> str | None:
    """Returns the column that a part of ORDER BY names: by its place, an alias, or its own name."""
    items = tree.expressions
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        is_starred = any(item.find(exp.Star) for item in items)
        if is_starred or not 0 < int(node.name) <= len(items):
            return None
        node = items[int(node.name) - 1].unalias()
    elif isinstance(node, exp.Column) and not node.table:
        named = [item for item in items if item.alias_or_name.lower() == node.name.lower()]
        if named:
            node = named[0].unalias()
    known = _column(node, relation)
    return known[0] if known is not None else None


def _is_simple(tree: exp.Select, relation: Relation, *clauses: str) -> bool:
    """Returns whether the relation is a query's only source, and no clause but some must be evaluated."""
    source = tree.args.get("from_")
    if source is None or source.this is not relation.node or relation.node.args.get("joins"):
        return False
    return not any(value for name, value in tree.args.items() if name not in _CLAUSES and name not in clauses)


def bounds_of(tree: exp.Select) -> Bounds | None:
    """Returns offset and limit, None when one of them is no plain number."""
    numbers: list[int | None] = []
    for clause in ("offset", "limit"):
        node = tree.args.get(clause)
        if node is None:
            numbers.append(None)
            continue
        value = node.expression if isinstance(node, (exp.Limit, exp.Offset)) else None
        if not isinstance(value, exp.Literal) or value.is_string or node.expressions:
            return None
        if not value.this.isdigit():
            return None
        numbers.append(rows_bound(value.this))
    return numbers[0] or 0, numbers[1]


def items_of(tree: exp.Select, relation: Relation, *, show_hidden: bool) -> list[Item] | None:
    """Returns the columns of the result, None when the query computes one."""
    items: list[Item] = []
    for item in tree.expressions:
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            if any(star.args.values()) or (item is not star and item.table.lower() != relation.alias.lower()):
                return None
            found = relation.all_columns(show_hidden=show_hidden)
            items += [Item(_field(heading, kind), name) for name, kind, heading in found]
            continue
        value = item.unalias()
        known = _column(value, relation)
        literal = _literal(value) if known is None else None
        if known is not None:
            items.append(Item(_field(item.alias, known[1]), known[0]))
        elif literal is not None:
            items.append(Item(pa.field(item.alias, literal.type), literal=literal))
        else:
            return None
    return items


def _literal(node: exp.Expr) -> pa.Scalar | None:
    """Returns the value of a literal with the type that DuckDB gives it, None for any other expression."""
    if isinstance(node, exp.Null):
        return pa.scalar(None) if _types_signed_literals() else pa.scalar(None, pa.int32())
    if isinstance(node, exp.Boolean):
        return pa.scalar(bool(node.this))
    sign, digits = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if not isinstance(digits, exp.Literal):
        return None
    if digits.is_string:
        return pa.scalar(str(digits.this), pa.string()) if sign == 1 else None
    number = str(digits.this)
    if not (number.isascii() and number.isdigit()) or int(number) > _BIGINT[1]:
        return None
    value = sign * int(number)
    smallest = _INT[0] if _types_signed_literals() else -_INT[1]
    return pa.scalar(value, pa.int32() if smallest <= value <= _INT[1] else pa.int64())


@cache
def _types_signed_literals() -> bool:
    """Returns whether DuckDB is 2.0 or later; before, the sign was an operator and NULL was an INT."""
    return int(version("duckdb").partition(".")[0]) >= 2


def _column(node: exp.Expr, relation: Relation) -> tuple[str, ColumnType] | None:
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return None
    if node.table and node.table.lower() != relation.alias.lower():
        return None
    return relation.schema.types.get(node.name.lower())


def projected(
    relation: Relation, items: list[Item], bounds: Bounds, *, deleted: bool
) -> pa.RecordBatchReader:
    schema = pa.schema([item.field for item in items])
    skip, limit = bounds

    def batches() -> Iterator[pa.RecordBatch]:
        to_skip, left = skip, limit
        if left == 0:
            return
        with open_rows(relation, deleted=deleted) as reader:
            for batch in reader:
                cut = batch.slice(to_skip, left) if left is not None else batch.slice(to_skip)
                to_skip = max(to_skip - batch.num_rows, 0)
                if cut.num_rows:
                    yield pa.RecordBatch.from_arrays([item.of(cut) for item in items], schema=schema)
                if left is not None:
                    left -= cut.num_rows
                    if left == 0:
                        return

    return pa.RecordBatchReader.from_batches(schema, batches())


def _field(heading: str, kind: ColumnType) -> pa.Field:
    field = pa.field(heading, kind.arrow)
    return with_fraction_digits(field, kind.params[0]) if kind.name == "DATETIME" else field


def open_rows(relation: Relation, *, deleted: bool) -> pa.RecordBatchReader:
    """Reads the rows that satisfy the relation's conditions, by key where these allow only a few keys.

    Where the query needs only the first rows of an order by key, it reads these in their order.

    Args:
        deleted: tombstones count as rows (T8).
    """
    snapshot, columns, keys = relation.snapshot, relation.columns, relation.keys
    if relation.first is not None and isinstance(snapshot, Snapshot):
        order, rows = relation.first
        return snapshot.first(columns, order, relation.conditions, range(rows), deleted=deleted).to_reader()
    if keys is None and isinstance(snapshot, Snapshot) and not relation.partitions:
        return snapshot.scan(columns, relation.filter, conditions=relation.conditions, deleted=deleted)
    if keys is None:
        return snapshot.scan(columns, relation.filter, deleted=deleted)
    names = list(dict.fromkeys([*columns, *(condition.column for condition in relation.conditions)]))
    rows = snapshot.get(keys, names, deleted=deleted)
    if relation.partitions:
        return rows.filter(relation.filter).select(columns).to_reader()
    looked_up = relation.key_conditions.values() if isinstance(snapshot, Snapshot) else ()
    for condition in relation.conditions:
        if condition not in looked_up:  # a filter of Arrow's own wakes its threads, for a row or two
            rows = rows.filter(condition.holds(rows.column(condition.column)))
    return rows.select(columns).to_reader()


@dataclass(frozen=True)
class _Aggregate:
    """One item of a select list. `column` is None for a count of rows."""

    function: type[exp.Expr]
    column: str | None
    field: pa.Field


def _aggregates(tree: exp.Select, relation: Relation, *, deleted: bool) -> pa.RecordBatchReader | None:
    """Returns the result, computed when it is read; None for a query that selects anything else."""
    if relation.partitions:
        return None
    items = []
    for expression in tree.expressions:
        item = _aggregate(expression, relation)
        if item is None:
            return None
        items.append(item)
    snapshot = relation.snapshot
    schema = pa.schema([item.field for item in items])
    if not isinstance(snapshot, Snapshot):
        if relation.conditions or deleted or any(item.column for item in items):
            return None
        return pa.table([[snapshot.count()]] * len(items), schema=schema).to_reader()
    extremes = {item.column for item in items if item.function is not exp.Count and item.column}
    if not all(snapshot.has_bounds(column) for column in extremes):
        return None
    return pa.RecordBatchReader.from_batches(schema, _aggregated(items, relation, snapshot, schema, deleted))


def _aggregate(item: exp.Expr, relation: Relation) -> _Aggregate | None:
    call = item.unalias()
    if not isinstance(call, (exp.Count, exp.Min, exp.Max)) or call.expressions:
        return None
    of = call.this
    if isinstance(call, exp.Count) and isinstance(of, (exp.Star, exp.Literal)):
        return _Aggregate(exp.Count, None, pa.field(item.alias, pa.int64()))
    known = _column(of, relation)
    if known is None:
        return None
    name, kind = known
    if isinstance(call, exp.Count):
        return _Aggregate(exp.Count, name, pa.field(item.alias, pa.int64()))
    return _Aggregate(type(call), name, _field(item.alias, kind)) if kind.name in _ORDERED else None


def _aggregated(
    items: list[_Aggregate], relation: Relation, snapshot: Snapshot, schema: pa.Schema, deleted: bool
) -> Iterator[pa.RecordBatch]:
    conditions = relation.conditions
    counts: dict[str | None, int] = {}
    values = []
    for item in items:
        if item.function is not exp.Count:
            assert item.column is not None
            largest = item.function is exp.Max
            values.append(snapshot.extreme(item.column, conditions, largest=largest, deleted=deleted))
            continue
        if item.column not in counts:
            more = [Condition(item.column, "is not null")] if item.column is not None else []
            counts[item.column] = snapshot.count([*conditions, *more], deleted=deleted)
        values.append(pa.scalar(counts[item.column], pa.int64()))
    columns = [pa.repeat(value, 1).cast(field.type) for value, field in zip(values, schema, strict=True)]
    yield pa.RecordBatch.from_arrays(columns, schema=schema)
