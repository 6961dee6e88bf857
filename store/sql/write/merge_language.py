"""MERGE from Python: SQL expressions are parsed, and the clauses run as MERGE INTO (sql.write.merge_into)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Final

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import Column
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.evaluate.connections import QueryConnection
from seqstore.store.sql.evaluate.select import QueryContext, open_query
from seqstore.store.sql.evaluate.table_functions import FunctionRows
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import MergeStatement, TableName
from seqstore.store.sql.parse.tokens import parse_tree
from seqstore.store.sql.translate.calls import SYSTEM_ZONE, EvaluationContext, Moment
from seqstore.store.sql.translate.relations import Readable, Version
from seqstore.store.sql.write.changed_rows import OpenQuery
from seqstore.store.sql.write.row_change import run_change
from seqstore.store.transaction.merge_builder import Action, Match, Merge, MergeClause, Outcome
from seqstore.store.transaction.transaction_table import TransactionTable
from seqstore.store.types.column_types import type_from_arrow

_SOURCE: Final = "__given_rows__"


class SqlMergeLanguage:
    """The `MergeLanguage` of the store."""

    def expression(self, text: str) -> exp.Expr:
        """Reads one SQL expression."""
        return parse_tree(text, 0, len(text))

    def source(self, rows: pa.Table) -> FunctionRows:
        """Makes the source rows readable by a query."""
        return _readable(rows)

    def run(self, merge: Merge, opened: TransactionTable) -> Outcome:
        """Runs a merge as MERGE INTO would."""
        database, _, name = merge.table.partition(".")
        tree = exp.Merge(
            this=exp.table_(name, db=database, alias=merge.target_alias, quoted=True),
            using=exp.select("*").from_(exp.table_(_SOURCE, quoted=True)).subquery(merge.source_alias),
            on=_condition(merge, opened.schema),
            whens=exp.Whens(expressions=[_clause(clause) for clause in merge.clauses]),
        )
        with _queries(opened, merge.rows) as open_merge_query:
            return run_change(MergeStatement(TableName(database, name), tree), opened, open_merge_query)


def _condition(merge: Merge, schema: TableSchema) -> exp.Expr:
    if not isinstance(merge.on, tuple):
        condition: exp.Expr = merge.on
        return condition
    aliases = (merge.target_alias, merge.source_alias)
    pairs = [[exp.column(name, table=alias, quoted=True) for alias in aliases] for name in merge.on]
    # NULL equals NULL within a key (T3).
    nullable = {column.name.lower() for column in schema.key_columns if column.nullable}
    kinds = [exp.NullSafeEQ if name.lower() in nullable else exp.EQ for name in merge.on]
    return exp.and_(
        *(equal(this=mine, expression=given) for equal, (mine, given) in zip(kinds, pairs, strict=True))
    )


def _clause(clause: MergeClause) -> exp.When:
    return exp.When(
        matched=clause.match is Match.MATCHED,
        source=clause.match is Match.NOT_MATCHED_BY_SOURCE,
        condition=clause.condition,
        then=_action(clause),
    )


def _action(clause: MergeClause) -> exp.Expr:
    columns = [exp.column(name, quoted=True) for name in clause.values]
    if clause.action is Action.DELETE:
        return exp.Var(this="DELETE")
    if clause.action is Action.UPDATE_ALL:
        return exp.Update(expressions=[exp.Star()])
    if clause.action is Action.INSERT_ALL:
        return exp.Insert(this=exp.Star())
    if clause.action is Action.INSERT:
        items = exp.Tuple(expressions=list(clause.values.values()))
        return exp.Insert(this=exp.Tuple(expressions=columns), expression=items)
    pairs = zip(columns, clause.values.values(), strict=True)
    return exp.Update(expressions=[exp.EQ(this=column, expression=value) for column, value in pairs])


def _readable(rows: pa.Table) -> FunctionRows:
    """Converts the source rows to a form that a query reads."""
    columns = [
        Column(field.name, type_from_arrow(field.type), id=number)
        for number, field in enumerate(rows.schema, 1)
    ]
    if not columns:
        raise InvalidInputError("a merge needs rows with columns", kind="bad_data")
    schema = TableSchema(columns=tuple(columns), key=(columns[0].name,))
    batches = rows.cast(schema.arrow).to_batches()
    return FunctionRows("the source", schema, lambda: iter(batches))


@contextmanager
def _queries(opened: TransactionTable, source: FunctionRows) -> Iterator[OpenQuery]:
    """Runs queries over the target, as its transaction sees it, and the source rows."""
    target = opened.snapshot()
    connection = QueryConnection()

    def open_snapshot(table: TableName, _version: Version, _view: str) -> Readable:
        if table.database is None and table.name == _SOURCE:
            return source
        if f"{table.database}.{table.name}" == opened.name:
            return target
        raise InvalidInputError(
            f"a merge from Python reads its table and the given rows, not {table.name!r}; write it in SQL",
            kind="not_supported",
        )

    def open_function(node: exp.Anonymous) -> Readable:
        raise InvalidInputError(f"{node.name} cannot stand in a merge from Python", kind="not_supported")

    zone = opened.zone  # of the session whose INSERT runs as a merge
    moment = Moment.at(datetime.now(UTC), zone or SYSTEM_ZONE)
    evaluation = EvaluationContext(moment, opened.base.database)
    context = QueryContext(
        open_snapshot,
        open_function,
        connection.get,
        lambda: evaluation,
        lambda _name, _scope: None,
        logged={id(target): opened},
    )
    opened.zone = moment.zone
    try:
        yield partial(open_query, context=context)
    finally:
        opened.zone = zone
        connection.close()
