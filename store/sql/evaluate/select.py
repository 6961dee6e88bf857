"""Queries on snapshots: straight from a scan or look-up where the query is so simple, else through DuckDB.

Straight means: columns of one table, conditions the scan decides itself, a LIMIT. Such a query keeps every
value as it is stored, stops reading at its limit, and with the whole key given reads only those rows. Counts
and extremes under such conditions come from zone maps (sql.evaluate.aggregates).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import duckdb
import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.condition import Condition
from seqstore.store.read.marked_scan import LIVE, is_number
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.schema.partitions import matching
from seqstore.store.sql.evaluate import duck
from seqstore.store.sql.evaluate.aggregates import aggregates
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import Query, TableName
from seqstore.store.sql.translate.calls import Surroundings
from seqstore.store.sql.translate.decimal_division import note_divisions
from seqstore.store.sql.translate.overloads import settle
from seqstore.store.sql.translate.predicates import conjuncts
from seqstore.store.sql.translate.relations import (
    Readable,
    Relation,
    Version,
    choose_columns,
    choose_conditions,
    find_relations,
    grouped_columns,
    leave_out_decided,
    own_conditions,
)
from seqstore.store.sql.translate.translate import (
    Variables,
    check,
    name_answers,
    name_columns,
    place_sources,
    render,
    source_column,
    source_name,
    translate,
)
from seqstore.store.transaction.transaction_table import TransactionTable
from seqstore.store.types.column_types import ColumnType

_KEYS_MAX: Final = 10_000
_BIGINT_DIGITS: Final = 19
_STRAIGHT_CLAUSES: Final = frozenset(["expressions", "from_", "where", "limit", "offset"])


@dataclass(frozen=True)
class QueryContext:
    """What a query needs of its session.

    Attributes:
        open_snapshot: the version of a table that the statement reads; the same for every mention of it.
        open_function: the rows of a call that stands where a table may stand.
        connect: the session's DuckDB connection.
        show_hidden: `*` includes hidden columns, and rows include tombstones (T4, T8).
        log_read: is told of every relation, with the conditions its scan decides.
    """

    open_snapshot: Callable[[TableName, Version], Readable]
    open_function: Callable[[exp.Anonymous], Readable]
    connect: Callable[[], duckdb.DuckDBPyConnection]
    around: Surroundings
    variables: Variables
    show_hidden: bool = False
    log_read: Callable[[Relation], None] = lambda _relation: None


@contextmanager
def open_query(query: Query, context: QueryContext) -> Iterator[pa.RecordBatchReader]:
    """Runs a query; its rows come as they are read.

    Raises:
        NotFoundError: a table or version that does not exist.
        InvalidInputError: what queries may not hold, or a value that cannot be computed.
    """
    tree = query.tree.copy()
    check(tree)
    name_answers(tree, query.headings)
    relations = find_relations(tree, context.open_snapshot, context.open_function)
    choose_columns(tree, relations, show_hidden=context.show_hidden)
    straight = _straight(tree, relations, context)
    if straight is not None:
        context.log_read(relations[0])
        with straight:
            yield straight
        return
    choose_conditions(relations)
    for relation in relations:
        context.log_read(relation)
    grouped = grouped_columns(tree)
    for relation in relations:
        relation.is_bare = _is_cheap_to_hand_over(relation, grouped)
    leave_out_decided(relations)
    choose_columns(tree, relations, show_hidden=context.show_hidden)
    name_columns(tree, relations, show_hidden=context.show_hidden)
    note_divisions(tree, relations)
    translate(tree, context.around, context.variables, _column_names(relations))
    with _evaluated(tree, relations, context) as reader:
        yield reader


def _column_names(relations: list[Relation]) -> frozenset[str]:
    return frozenset(name.lower() for relation in relations for name in relation.schema.names)


def explain_query(query: Query, context: QueryContext) -> list[str]:
    """What a query will read, table by table, and who evaluates it; nothing is read.

    Raises:
        InvalidInputError: as `open_query`, as far as it is found before reading.
    """
    tree = query.tree.copy()
    check(tree)
    name_answers(tree, query.headings)
    relations = find_relations(tree, context.open_snapshot, context.open_function)
    choose_columns(tree, relations, show_hidden=context.show_hidden)
    straight = _straight(tree, relations, context)
    if straight is None:
        choose_conditions(relations)
        name_columns(tree, relations, show_hidden=context.show_hidden)
        note_divisions(tree, relations)
        translate(tree, context.around, context.variables, _column_names(relations))
        render(tree)
    else:
        straight.close()
    lines = ["EVALUATED BY " + ("DuckDB" if straight is None else "the scan alone")]
    for relation in relations:
        lines += _explained(relation)
    return lines


def _explained(relation: Relation) -> list[str]:
    snapshot = relation.snapshot
    alias = f" AS {relation.alias}" if relation.alias != relation.table.name else ""
    lines = [f"SCAN {relation.table}{alias} VERSION {snapshot.version}"]
    lines.append(f"  columns: {', '.join(map(source_column, relation.columns))}")
    if relation.conditions:
        lines.append(f"  predicates: {' AND '.join(map(str, relation.conditions))}")
    keys = _keys(relation)
    if keys is not None:
        return [*lines, f"  key look-up: {keys.num_rows} keys"]
    if isinstance(snapshot, Snapshot):
        found = snapshot.figures(relation.filter)
        if relation.schema.partitioning is not None and relation.schema.partitioning.partitions:
            names = [partition.name for partition in matching(relation.schema, relation.filter)]
            count = len(relation.schema.partitioning.partitions)
            lines.append(f"  partitions: {len(names)} of {count} ({', '.join(names[:10])})")
        pruned = found.segments - found.segments_read
        lines.append(f"  segments: {found.segments_read} of {found.segments}, {pruned} pruned")
        lines.append(f"  batches: {found.batches_read} of {found.batches}")
        lines.append(f"  rows: {found.rows_read}, deleted or replaced {found.rows_hidden}")
    return lines


@contextmanager
def _evaluated(
    tree: exp.Query, relations: list[Relation], context: QueryContext
) -> Iterator[pa.RecordBatchReader]:
    """The DuckDB way."""
    grouped = grouped_columns(tree)
    found = [_source(relation, grouped, deleted=context.show_hidden) for relation in relations]
    sources = [source for source, _ in found]
    place_sources(
        relations,
        {number: source.largeint_columns for number, source in enumerate(sources)},
        marked={number for number, (_, is_marked) in enumerate(found) if is_marked},
    )
    has_largeint = any(source.largeint_columns for source in sources) or _speaks_largeint(tree)
    named = {source_name(number): source for number, source in enumerate(sources)}
    try:
        reader, close = duck.run(context.connect(), render(tree), named, has_largeint=has_largeint)
    except InvalidInputError as error:
        if error.kind != duck.OVERLOADS:
            raise
        settle(tree, all_calls=True)  # a type that is not known where the macro is bound
        reader, close = duck.run(context.connect(), render(tree), named, has_largeint=has_largeint)
    try:
        with reader:
            yield reader
    finally:
        close()


def _speaks_largeint(tree: exp.Query) -> bool:
    """Whether a query names the type, or a number that only it holds."""
    if any(kind.this is exp.DataType.Type.INT128 for kind in tree.find_all(exp.DataType)):
        return True
    numbers = (node.name for node in tree.find_all(exp.Literal) if not node.is_string)
    return any(len(number) > _BIGINT_DIGITS and number.isdigit() for number in numbers)


def log_relation(table: TransactionTable, relation: Relation) -> None:
    """Remembers in a transaction what a query reads of one of its tables."""
    keys = _keys(relation)
    if keys is not None:
        table.log_keys(keys, relation.columns)
    else:
        table.log_scan(relation.columns, relation.filter)


def _source(relation: Relation, grouped: Set[str], *, deleted: bool) -> tuple[duck.Source, bool]:
    """What DuckDB reads for a relation, and whether it must leave out rows that are not marked as live.

    Args:
        grouped: names, in lower case, of columns that the query groups by.
    """
    names = list(map(source_column, relation.columns))
    keys = _keys(relation)
    if keys is not None or relation.partitions or not isinstance(relation.snapshot, Snapshot):
        schema = _scanned_schema(relation, names)
        return duck.Source(schema, lambda: _renamed(_open_rows(relation, deleted=deleted), schema)), False
    conditions = [] if relation.is_bare else relation.conditions
    groups = [name for name in relation.columns if name.lower() in grouped]
    marked = relation.snapshot.marked(
        relation.columns, conditions, relation.filter, deleted=deleted, grouped=groups
    )
    named = [*names, LIVE] if marked.is_marked else names
    schema = pa.schema([field.with_name(n) for field, n in zip(marked.schema, named, strict=True)])
    return duck.Source(schema, lambda: _renamed(marked.open(), schema)), marked.is_marked


def _is_cheap_to_hand_over(relation: Relation, grouped: Set[str]) -> bool:
    """Whether DuckDB decides conditions sooner than a scan that hands over only the rows that satisfy them.

    DuckDB compares numbers where they lie, on its own threads; what it is handed is a pointer. Texts it
    would have to turn into its own form before it can leave them out, unless they come as codes.
    """
    snapshot = relation.snapshot
    if not isinstance(snapshot, Snapshot) or not relation.decided:
        return False
    if relation.partitions or _keys(relation) is not None:
        return False
    fields = _scanned_schema(relation, relation.columns)
    texts = [field.name for field in fields if not is_number(field.type)]
    return all(name.lower() in grouped and snapshot.is_worth_encoding(name) for name in texts)


def _scanned_schema(relation: Relation, names: list[str]) -> pa.Schema:
    fields = []
    for name, canonical in zip(names, relation.columns, strict=True):
        known = relation.column_type(canonical)
        assert known is not None, canonical
        fields.append(pa.field(name, known[1].arrow))
    return pa.schema(fields)


def _renamed(reader: pa.RecordBatchReader, schema: pa.Schema) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        with reader:
            for batch in reader:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _open_rows(relation: Relation, *, deleted: bool) -> pa.RecordBatchReader:
    """The rows of a relation: by key when its conditions give the whole key, else by a scan."""
    keys = _keys(relation)
    if keys is None and isinstance(relation.snapshot, Snapshot) and not relation.partitions:
        wanted = relation.conditions
        return relation.snapshot.scan(relation.columns, relation.filter, conditions=wanted, deleted=deleted)
    if keys is None:
        return relation.snapshot.scan(relation.columns, relation.filter, deleted=deleted)
    names = list(dict.fromkeys([*relation.columns, *(each.column for each in relation.conditions)]))
    rows = relation.snapshot.get(keys, names, deleted=deleted)
    if relation.partitions:
        return rows.filter(relation.filter).select(relation.columns).to_reader()
    for condition in relation.conditions:  # a filter of Arrow's own wakes its threads, for a row or two
        rows = rows.filter(condition.holds(rows.column(condition.column)))
    return rows.select(relation.columns).to_reader()


def _keys(relation: Relation) -> pa.Table | None:
    """Every key the conditions allow, when they fix each key column to a few values."""
    fixed: dict[str, Condition] = {}
    for condition in relation.conditions:
        if condition.is_equality and condition.column in relation.schema.key:
            fixed.setdefault(condition.column, condition)
    if len(fixed) < len(relation.schema.key):
        return None
    choices = [list(dict.fromkeys(v.as_py() for v in fixed[name].values)) for name in relation.schema.key]
    count = 1
    for values in choices:
        count *= len(values)
    if count > _KEYS_MAX:
        return None
    columns = list(zip(*itertools.product(*choices), strict=True))
    fields = [relation.schema.arrow.field(name) for name in relation.schema.key]
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.table(arrays, schema=pa.schema(fields))


def _straight(
    tree: exp.Query, relations: list[Relation], context: QueryContext
) -> pa.RecordBatchReader | None:
    """The answer to a query that needs no evaluation, None when it does."""
    if not isinstance(tree, exp.Select) or len(relations) != 1:
        return None
    relation = relations[0]
    source = tree.args.get("from_")
    if source is None or source.this is not relation.node or relation.node.args.get("joins"):
        return None
    if any(value for name, value in tree.args.items() if name not in _STRAIGHT_CLAUSES):
        return None
    bounds = _bounds(tree)
    where = tree.args.get("where")
    parts = [
        own_conditions(part, relation, is_alone=True) for part in conjuncts(where.this if where else None)
    ]
    if bounds is None or any(part is None for part in parts):
        return None
    relation.conditions = [condition for part in parts for condition in part or []]
    if bounds == (0, None) and _keys(relation) is None:
        answer = aggregates(tree, relation, deleted=context.show_hidden)
        if answer is not None:
            return answer
    items = _items(tree, relation, show_hidden=context.show_hidden)
    if items is None:
        relation.conditions = []
        return None
    return _projected(relation, items, bounds, deleted=context.show_hidden)


def _bounds(tree: exp.Select) -> tuple[int, int | None] | None:
    """Offset and limit when they are plain numbers."""
    numbers: list[int | None] = []
    for clause in ("offset", "limit"):
        node = tree.args.get(clause)
        if node is None:
            numbers.append(None)
            continue
        value = node.expression if isinstance(node, (exp.Limit, exp.Offset)) else None
        if (
            not isinstance(value, exp.Literal)
            or value.is_string
            or not value.this.isdigit()
            or node.expressions
        ):
            return None
        numbers.append(int(value.this))
    return numbers[0] or 0, numbers[1]


def _items(
    tree: exp.Select, relation: Relation, *, show_hidden: bool
) -> list[tuple[str, ColumnType, str]] | None:
    """Canonical name, type and heading of each column of the answer, None when one is no plain column."""
    items: list[tuple[str, ColumnType, str]] = []
    for item in tree.expressions:
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            if any(star.args.values()) or (item is not star and item.table.lower() != relation.alias.lower()):
                return None
            names = list(relation.schema.names)
            names += [field.name for field in relation.schema.hidden_fields()] if show_hidden else []
            for name in names:
                known = relation.column_type(name)
                assert known is not None, name
                items.append((*known, source_column(name)))
            continue
        column = item.unalias()
        known = _column(column, relation)
        if known is None:
            return None
        items.append((*known, item.alias))
    return items


def _column(node: exp.Expr, relation: Relation) -> tuple[str, ColumnType] | None:
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return None
    if node.table and node.table.lower() != relation.alias.lower():
        return None
    return relation.column_type(node.name)


def _projected(
    relation: Relation,
    items: list[tuple[str, ColumnType, str]],
    bounds: tuple[int, int | None],
    *,
    deleted: bool,
) -> pa.RecordBatchReader:
    schema = pa.schema([pa.field(heading, kind.arrow) for _, kind, heading in items])
    skip, limit = bounds

    def batches() -> Iterator[pa.RecordBatch]:
        to_skip, left = skip, limit
        if left == 0:
            return
        with _open_rows(relation, deleted=deleted) as reader:
            for batch in reader:
                cut = batch.slice(to_skip, left) if left is not None else batch.slice(to_skip)
                to_skip = max(to_skip - batch.num_rows, 0)
                if cut.num_rows:
                    yield pa.RecordBatch.from_arrays(
                        [cut.column(name) for name, _, _ in items], schema=schema
                    )
                if left is not None:
                    left -= cut.num_rows
                    if left == 0:
                        return

    return pa.RecordBatchReader.from_batches(schema, batches())
