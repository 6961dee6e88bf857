"""Queries on snapshots: by the scan-only plan if possible (sql.evaluate.scan_only), else through DuckDB."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from seqstore.store.ddl.views import IS_VIEW
from seqstore.store.errors import InvalidInputError
from seqstore.store.read.marked_scan import LIVE, MarkedScan
from seqstore.store.read.numbered_scan import NUMBER, HeldRows
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.runtime import memory_limit
from seqstore.store.schema.column import Column
from seqstore.store.schema.partitions import matching
from seqstore.store.sql.evaluate.answer_origins import Origin, answer_origins, kept_origins
from seqstore.store.sql.evaluate.column_copies import TABLE, ColumnCopies, Copy
from seqstore.store.sql.evaluate.connections import Connection
from seqstore.store.sql.evaluate.copied_relations import CopiedRelations, CopyChangedError, scan_of
from seqstore.store.sql.evaluate.copy_changes import RowsToCopy
from seqstore.store.sql.evaluate.prepared_text import Preparation, PreparedText, SessionValues, translated
from seqstore.store.sql.evaluate.scan_only import choose_first_rows, open_rows, scan_only_plan
from seqstore.store.sql.evaluate.scan_shapes import keep_plan, kept_plan
from seqstore.store.sql.parse.sqlglot_adapter import copy_tree, exp
from seqstore.store.sql.parse.statement_values import Query, TableName
from seqstore.store.sql.translate.calls import EvaluationContext
from seqstore.store.sql.translate.predicates import choose_conditions, drop_decided
from seqstore.store.sql.translate.relations import (
    Readable,
    Relation,
    Version,
    check_databases,
    choose_columns,
    find_relations,
    grouped_columns,
    invalid_view,
    source_column,
)
from seqstore.store.sql.translate.result_columns import result_columns
from seqstore.store.sql.translate.source_table import SourceTable, source_name
from seqstore.store.sql.translate.translate import (
    Variables,
    check,
    name_answers,
    render,
)
from seqstore.store.sql.translate.views import FindView, expand_views
from seqstore.store.transaction.transaction_table import TransactionTable

if TYPE_CHECKING:
    from seqstore.store.sql.evaluate import duck


_CHECKED: Final = "checked"


@dataclass(frozen=True)
class QueryContext:
    """The parts of a session that a query needs.

    Attributes:
        open_snapshot: opens the version of a table that the statement reads, one for all mentions of it.
            Its last argument is the view that names the table, empty for the statement itself.
        open_function: opens the rows of a table function.
        find_view: finds the view of a name.
        connect: returns the session's DuckDB connection.
        evaluation: returns the session's values, of one moment for all queries of a statement.
        show_hidden: `*` includes hidden columns (T4).
        reads_deleted: rows include tombstones (T8).
        logged: the transaction's tables whose reads count for conflicts, by `id` of the snapshot.
        uses_copies: queries may read copies of columns, and have some made.
        known_copies: returns the copies that a query would read, without a connection for it.
        origins: receives the origins of the columns of the outermost query, None where they are not wanted.
    """

    open_snapshot: Callable[[TableName, Version, str], Readable]
    open_function: Callable[[exp.Anonymous], Readable]
    connect: Callable[[], Connection]
    evaluation: Callable[[], EvaluationContext]
    variables: Variables
    find_view: FindView = lambda _name, _within: None
    show_hidden: bool = False
    reads_deleted: bool = False
    logged: Mapping[int, TransactionTable] = field(default_factory=dict)
    uses_copies: bool = True
    known_copies: Callable[[], ColumnCopies | None] = lambda: None
    origins: list[Origin | None] | None = None


def _plan(
    query: Query, context: QueryContext, views: list[str] | None = None
) -> tuple[exp.Query, list[Relation], pa.RecordBatchReader | None]:
    """Returns a query's tree, the tables it reads, and its result if that needs no evaluation.

    Args:
        views: receives the views that the query reads.
    """
    options = {"show_hidden": context.show_hidden, "deleted": context.reads_deleted}
    kept = kept_plan(query, context.open_snapshot, **options)
    if kept is not None:
        return query.tree, [kept[0]], kept[1]
    tree = _checked(query, context)
    try:
        relations = find_relations(tree, context.open_snapshot, context.open_function)
    except InvalidInputError as error:
        if error.kind != IS_VIEW:  # views are looked up only where a name is no table
            raise
        tree = _checked(query, context)
        found = expand_views(tree, context.find_view)
        if views is not None:
            views += found
        relations = find_relations(tree, context.open_snapshot, context.open_function)
    choose_columns(tree, relations, show_hidden=context.show_hidden)
    choose_conditions(relations)
    choose_first_rows(tree, relations)
    plan = scan_only_plan(tree, relations, **options)
    if plan is not None:
        keep_plan(query, tree, relations, **options)
    return tree, relations, plan


def _checked(query: Query, context: QueryContext) -> exp.Query:
    tree = copy_tree(query.tree)
    if query.shape is None or _CHECKED not in query.shape:
        check(tree)
        names_databases = check_databases(tree, lambda: context.evaluation().database)
        # The shape has only nodes that are checked without regard to literals, and to the current database.
        if query.shape is not None and not names_databases:
            query.shape[_CHECKED] = True
    name_answers(tree, query.headings)
    return tree


@contextmanager
def open_query(query: Query, context: QueryContext) -> Iterator[pa.RecordBatchReader]:
    """Runs a query; its rows are computed while the reader is read.

    Raises:
        NotFoundError: a table or version that does not exist.
        InvalidInputError: a part that queries may not hold, or a value that cannot be computed.
    """
    views: list[str] = []
    with ExitStack() as held:
        try:
            try:
                reader = held.enter_context(_opened(query, context, views))
            except CopyChangedError:
                plain = replace(context, uses_copies=False)
                reader = held.enter_context(_opened(query, plain, views))
        except InvalidInputError as error:
            if error.kind != "invalid_view":
                _check_views(views, context)
            raise
        yield reader


def _check_views(views: list[str], context: QueryContext) -> None:
    """Raises the error of the first view whose query cannot run, the innermost first."""
    for name in reversed(views):
        database, _, view = name.partition(".")
        tree = exp.select("*").from_(exp.table_(view, db=database, quoted=True)).limit(0)
        try:
            with _opened(Query(tree, None), context, []):
                pass
        except InvalidInputError as error:
            raise (error if error.kind == "invalid_view" else invalid_view(name, error)) from error


@contextmanager
def _opened(query: Query, context: QueryContext, views: list[str]) -> Iterator[pa.RecordBatchReader]:
    tree, relations, scan_only = _plan(query, context, views)
    if context.origins is not None:
        find = answer_origins if views else partial(kept_origins, query)
        context.origins[:] = find(tree, relations, show_hidden=context.show_hidden)
    for relation in relations if context.logged else ():
        table = context.logged.get(id(relation.snapshot))
        if table is not None and relation.keys is not None:
            table.log_keys(relation.keys, relation.columns)
        elif table is not None:
            table.log_scan(relation.columns, relation.filter)
    if scan_only is not None:
        with scan_only as reader:
            yield reader
        return
    grouped = grouped_columns(tree)
    connection = context.connect()
    copies = connection.copies if context.uses_copies and not context.reads_deleted else None
    with CopiedRelations(copies, relations, _rows_to_copy) as copied:
        for number, relation in enumerate(relations):
            is_copied = copied.get(number) is not None
            relation.is_unfiltered = is_copied or _is_cheap_to_hand_over(relation, grouped)
        if drop_decided(relations):
            choose_columns(tree, relations, show_hidden=context.show_hidden)
            copied.keep_columns()
        sources, tables = _sources(relations, grouped, context, copied)
        session = _session_values(context)
        prepared = Preparation(query, tree, relations, tables, session, may_keep=not views)
        with _evaluated(prepared, sources, context, connection, copied) as reader:
            yield reader


def _session_values(context: QueryContext) -> SessionValues:
    return SessionValues(context.evaluation(), context.variables, context.show_hidden, context.reads_deleted)


def _sources(
    relations: list[Relation], grouped: Set[str], context: QueryContext, copied: CopiedRelations
) -> tuple[dict[str, duck.Source], list[SourceTable]]:
    """Returns the sources that DuckDB reads, by name, and a table of DuckDB for each relation."""
    sources: dict[str, duck.Source] = {}
    tables: list[SourceTable] = []
    for number, relation in enumerate(relations):
        copy = copied.get(number)
        if copy is not None:
            tables.append(_copied_table(relation, copy))
        else:
            source, table = _duck_source(number, relation, grouped, deleted=context.reads_deleted)
            sources[table.name] = source
            tables.append(table)
    return sources, tables


@contextmanager
def _evaluated(
    prepared: Preparation,
    sources: dict[str, duck.Source],
    context: QueryContext,
    connection: Connection,
    copied: CopiedRelations,
) -> Iterator[pa.RecordBatchReader]:
    from seqstore.store.sql.evaluate import duck, duck_errors  # imports DuckDB

    def run(text: PreparedText) -> tuple[pa.RecordBatchReader, Callable[[], None]]:
        return duck.run(
            connection,
            text.text,
            sources=sources,
            zone=context.evaluation().moment.zone,
            kinds=text.kinds,
            has_largeint=text.has_largeint,
            needs_counts=text.needs_counts,
            begin=copied.begin,
        )

    text = prepared.text()
    memory_limit.wait_for_room()
    started = time.monotonic()
    try:
        reader, close = run(text)
    except InvalidInputError as error:
        if error.kind not in (duck_errors.OVERLOADS, duck_errors.NARROW):
            raise
        reader, close = run(
            prepared.settled_text() if error.kind == duck_errors.OVERLOADS else prepared.wide_text()
        )
    copied.seconds = time.monotonic() - started
    try:
        with reader:
            yield reader
    finally:
        close()


def _duck_source(
    number: int, relation: Relation, grouped: Set[str], *, deleted: bool
) -> tuple[duck.Source, SourceTable]:
    """Returns the source that DuckDB reads for a relation, and its table.

    A source that does not mark live rows drops the others. `grouped` holds columns in lower case.
    """
    from seqstore.store.sql.evaluate import duck

    groups = [name for name in relation.columns if name.lower() in grouped]
    snapshot, is_marked = relation.snapshot, False
    if relation.reads_few or not isinstance(snapshot, Snapshot):
        rows = functools.partial(open_rows, relation, deleted=deleted)
        source = duck.Source(relation.scanned_schema(), rows)
    else:
        conditions = [] if relation.is_unfiltered else relation.conditions
        marked = snapshot.marked(
            relation.columns, conditions, relation.filter, deleted=deleted, grouped=groups
        )
        source, is_marked = _marked_source(marked, relation.columns), marked.is_marked
    columns = source.schema.names[: len(relation.columns)]
    return source, SourceTable(source_name(number), columns, source.largeint_columns, is_marked=is_marked)


def _marked_source(marked: MarkedScan, columns: Sequence[str]) -> duck.Source:
    from seqstore.store.sql.evaluate import duck

    names = [*map(source_column, columns), LIVE] if marked.is_marked else list(map(source_column, columns))
    named = pa.schema([field.with_name(name) for field, name in zip(marked.schema, names, strict=True)])
    return duck.Source(named, marked.open, marked.owned_bytes)


def _copied_table(relation: Relation, copy: Copy) -> SourceTable:
    from seqstore.store.sql.evaluate import duck

    fields = relation.scanned_schema()
    return SourceTable(TABLE, fields.names, duck.largeint_columns(fields), copy.database, has_more=True)


def _rows_to_copy(snapshot: Snapshot, columns: Sequence[str], held: HeldRows) -> RowsToCopy:
    """Returns what a copy needs that has the columns of other rows."""
    from seqstore.store.sql.evaluate import duck

    changes = snapshot.changes_since(held)
    rows = snapshot.added(changes, columns)
    names = [*map(source_column, columns), NUMBER]
    schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names, strict=True)])
    named = pa.RecordBatchReader.from_batches(schema, (batch.rename_columns(names) for batch in rows))
    added = pa.RecordBatchReader.from_stream(duck.Source(schema, lambda: named))
    return RowsToCopy(added, changes)


def _is_cheap_to_hand_over(relation: Relation, grouped: Set[str]) -> bool:
    """Returns whether DuckDB decides the conditions sooner than a scan that yields only satisfying rows.

    DuckDB compares numbers in place, on its own threads. It converts texts that are not dictionary-encoded.
    """
    snapshot = relation.snapshot
    if not isinstance(snapshot, Snapshot) or not relation.conditions:
        return False
    if relation.reads_few:
        return False
    return snapshot.is_in_place(relation.columns, grouped)


def query_columns(query: Query, context: QueryContext) -> list[Column]:
    """Returns the columns of a query's result, without computing its rows.

    Raises:
        InvalidInputError: the query cannot run.
    """
    with open_query(query, context) as reader:
        schema = reader.schema
    tree, relations, scan_only = _plan(query, context)
    if scan_only is not None:
        scan_only.close()
    return result_columns(tree, relations, schema)


def explain_query(query: Query, context: QueryContext) -> list[str]:
    """Describes which rows of which tables a query will read, without reading them.

    Raises:
        InvalidInputError: as `open_query`, for errors that precede the first read.
    """
    tree, relations, scan_only = _plan(query, context)
    if scan_only is None:
        translated(tree, relations, _session_values(context))
        render(tree)
    else:
        scan_only.close()
    alone = "the scan alone" if relations else "the statement alone"
    lines = ["EVALUATED BY " + ("DuckDB" if scan_only is None else alone)]
    copies = context.known_copies() if context.uses_copies and scan_only is None else None
    for relation in relations:
        lines += _explained(relation, copies if not context.reads_deleted else None)
    return lines


def _explained(relation: Relation, copies: ColumnCopies | None) -> list[str]:
    snapshot, schema = relation.snapshot, relation.schema
    alias = f" AS {relation.alias}" if relation.alias != relation.table.name else ""
    lines = [f"SCAN {relation.table}{alias} VERSION {snapshot.version}"]
    lines.append(f"  columns: {', '.join(map(source_column, relation.columns))}")
    if relation.conditions:
        lines.append(f"  predicates: {' AND '.join(map(str, relation.conditions))}")
    if relation.keys is not None:
        return [*lines, f"  key look-up: {relation.keys.num_rows} keys"]
    if relation.first is not None:
        order, rows = relation.first
        by = ", ".join(name + " DESC" * order.is_descending for name in order.columns)
        lines.append(f"  first rows by key: {rows}, in the order of {by}")
    if isinstance(snapshot, Snapshot):
        read = scan_of(relation)
        if copies is not None and read is not None and copies.has(*read):
            return [*lines, "  read from a copy of these columns"]
        found = snapshot.metrics(relation.filter)
        if schema.partitioning is not None and schema.partitioning.partitions:
            names = [partition.name for partition in matching(schema, relation.filter)]
            count = len(schema.partitioning.partitions)
            lines.append(f"  partitions: {len(names)} of {count} ({', '.join(names[:10])})")
        pruned = found.segments - found.segments_read
        lines.append(f"  segments: {found.segments_read} of {found.segments}, {pruned} pruned")
        lines.append(f"  batches: {found.batches_read} of {found.batches}")
        lines.append(f"  rows: {found.rows_read}, deleted or replaced {found.rows_hidden}")
    return lines
