"""EXPLAIN of statements that write: what they would read, and what they would write where; nothing is done.

The statement runs in a transaction that nobody will commit. Each query it asks is explained, and answered by
no rows, so it writes none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pyarrow as pa

from seqstore.store.conflict.isolation import Isolation, level_of
from seqstore.store.schema.column import hidden_name
from seqstore.store.sql.evaluate.select import QueryContext, explain_query
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import Insert, Query
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.write.dml import Ask, Dml, clause_kind, fallback_reason, run
from seqstore.store.table import Table
from seqstore.store.transaction.transaction import Transaction
from seqstore.store.transaction.transaction_table import TransactionTable


def explain_insert(statement: Insert, session: Session) -> list[str]:
    """Where an INSERT writes, and what its query reads."""
    name = session.full_name(statement.table)
    _check_privilege(session, name)
    schema = session.store.table(name).schema
    lines = [f"WRITE {name}"]
    columns = [
        schema.column(name).name for name in statement.columns or schema.names if not hidden_name(name)
    ]
    lines.append(f"  insert: {', '.join(columns)}")
    if statement.is_overwrite:
        what = f"partitions {', '.join(statement.partitions)}" if statement.partitions else "all rows"
        lines.append(f"  replaces: {what}")
    if statement.query is None:
        return [*lines, f"  rows: {len(statement.rows or ())} from VALUES"]
    with session.query_context() as context:
        return lines + explain_query(statement.query, context)


def _check_privilege(session: Session, name: str) -> None:
    """Who may not write a table is not told what it is like."""
    if session.user is not None:
        session.store.accounts.require(session.user, "LOAD", name.partition(".")[0])


def explain_dml(statement: Dml, session: Session) -> list[str]:
    """What an UPDATE, DELETE or MERGE reads, and what each of its clauses writes.

    Raises:
        InvalidInputError: what running it would find wrong before rows are read.
    """
    name = session.full_name(statement.table)
    _check_privilege(session, name)
    table = session.store.table(name)
    read: list[str] = []
    with _opened(table, statement.operation) as opened, session.query_context(opened) as context:
        run(statement, opened, _explaining(context, read))
        lines = [f"WRITE {table.name} VERSION {opened.version + 1} OR LATER", *_writes(statement.tree)]
        reason = fallback_reason(statement.tree, opened)
    conflicts = f"with any change of the table ({reason})" if reason else "row by row"
    return [*lines, f"  conflicts: {conflicts}", *read]


@contextmanager
def _opened(table: Table, operation: str) -> Iterator[TransactionTable]:
    """A table as a transaction sees it that leaves no trace."""
    transaction = Transaction(table.catalog, table.settings, lambda _name: table, operation=operation)
    state, lease = table.hold()
    isolation = Isolation(table, state, level_of(state.schema, None), is_unchecked=True)
    opened = TransactionTable(transaction, table, isolation, lease)
    try:
        yield opened
    finally:
        opened.let_go()


def _explaining(context: QueryContext, lines: list[str]) -> Ask:
    @contextmanager
    def ask(query: Query) -> Iterator[pa.RecordBatchReader]:
        lines.extend(explain_query(query, context))
        schema = pa.schema([(item.alias_or_name, pa.null()) for item in query.tree.expressions])
        with closing(schema.empty_table().to_reader()) as reader:
            yield reader

    return ask


def _writes(tree: exp.Update | exp.Delete | exp.Merge) -> list[str]:
    if isinstance(tree, exp.Update):
        return [f"  {_update(tree)}"]
    if isinstance(tree, exp.Delete):
        return ["  delete by key"]
    lines = []
    for clause in tree.args["whens"].expressions:
        condition = clause.args.get("condition")
        when = {"matched": "matched", "insert": "not matched", "unsourced": "not matched by source"}
        also = f" and {condition.sql('doris')}" if condition is not None else ""
        lines.append(f"  when {when[clause_kind(clause)]}{also}: {_action(clause.args['then'])}")
    return lines


def _action(then: exp.Expr) -> str:
    if isinstance(then, exp.Update):
        return _update(then)
    if isinstance(then, exp.Insert):
        return "insert"
    return "delete by key"


def _update(tree: exp.Update) -> str:
    names = [item.this.name for item in tree.expressions if isinstance(item, exp.EQ)]
    return f"update columns: {', '.join(names) or '*'}"
