"""SELECT, and EXPLAIN: the columns, segments, batches and rows that a statement will read and write.

A statement that writes is explained in a transaction that is never committed. Each of its queries is
explained and returns no rows, so that it writes none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from seqstore.store.conflict.isolation import Isolation
from seqstore.store.errors import InvalidInputError
from seqstore.store.export.outfile import OutFile, write_rows
from seqstore.store.runtime import cancellation
from seqstore.store.schema.column import hidden_name
from seqstore.store.sql.evaluate.select import QueryContext, explain_query
from seqstore.store.sql.parse.query_parser import parse_select
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import Describe, DmlStatement, Insert, IntoOutfile, Query
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.places import require_place
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind, kind_of, parse_statement
from seqstore.store.sql.write.changed_rows import OpenQuery
from seqstore.store.sql.write.merge_into import clause_match
from seqstore.store.sql.write.row_change import fallback_reason, run_change
from seqstore.store.table import Table
from seqstore.store.transaction.transaction import Transaction
from seqstore.store.transaction.transaction_options import TransactionOptions
from seqstore.store.transaction.transaction_table import TransactionTable


def _query(statement: Query, session: Session) -> Result:
    with session.stream(statement, is_answer=True) as reader:
        return Result(reader.read_all())


def _into_outfile(statement: IntoOutfile, session: Session) -> Result:
    """Writes the rows of a query to files; returns the row of Doris."""
    out = OutFile.of(statement.uri, statement.form, statement.properties)
    require_place(session, out.directory)
    with session.stream(statement.query) as reader:
        written = write_rows(reader, out, cancellation.check)
    counts = (written.files, written.rows, written.bytes)
    columns = {name: pa.array([count], pa.int64()) for name, count in zip(_COUNTS, counts, strict=True)}
    return Result(pa.table({**columns, "URL": [written.url]}))


_COUNTS: Final = ("FileNumber", "TotalRows", "FileSize")
_LEVELS: Final = ("VERBOSE", "GRAPH", "PARSED", "ANALYZED", "REWRITTEN", "LOGICAL", "PHYSICAL", "SHAPE",
                  "ALL")  # fmt: skip


@dataclass(frozen=True)
class Explain:
    """`statement` is the statement behind EXPLAIN."""

    statement: Any


def _parse_explain(stream: TokenStream) -> Any:
    if stream.word() == "ANALYZE":
        stream.refuse(
            "EXPLAIN ANALYZE is not supported: EXPLAIN shows the plan, /metrics what statements took"
        )
    stream.take_one_of(*_LEVELS)
    stream.take("PLAN")
    count = len(stream.tokens) - stream.at
    if count == 1 or (count == 3 and stream.word(1) == "."):
        return Describe(parse_table_name(stream))  # as in MySQL
    # The explained statement has a stream of its own, with the offsets of the whole text.
    inner = TokenStream(stream.text, stream.tokens[stream.at :], stream.end)
    if not inner.tokens:
        stream.fail("a statement to explain")
    statement = parse_statement(inner)
    stream.at = len(stream.tokens)
    return Explain(statement)


def _explain(statement: Explain, session: Session) -> Result:
    explained = statement.statement
    if isinstance(explained, Query):
        with session.query_context(trees=[explained.tree]) as context:
            lines = explain_query(explained, context)
    elif isinstance(explained, Insert):
        lines = _explain_insert(explained, session)
    elif isinstance(explained, DmlStatement):
        lines = _explain_dml(explained, session)
    else:
        kind = kind_of(type(explained))
        name = kind.starts[0] if kind is not None else type(explained).__name__
        raise InvalidInputError(
            f"EXPLAIN takes SELECT, INSERT, UPDATE, DELETE or MERGE INTO, found {name}", kind="not_supported"
        )
    return text_rows(["Explain String"], [(line,) for line in lines])


def _explain_insert(statement: Insert, session: Session) -> list[str]:
    name = session.full_name(statement.table)
    session.require("LOAD", name)  # readers without it must not see the plan of a write
    schema = session.store.table(name).schema
    lines = [f"WRITE {name}"]
    columns = [
        schema.column(name).name for name in statement.columns or schema.names if not hidden_name(name)
    ]
    lines.append(f"  insert: {', '.join(columns)}")
    if statement.is_overwrite:
        names = ", ".join(statement.partitions)
        lines.append(f"  replaces: {f'partitions {names}' if names else 'all rows'}")
    if statement.query is None:
        return [*lines, f"  rows: {len(statement.rows or ())} from VALUES"]
    with session.query_context(trees=[statement.query.tree]) as context:
        return lines + explain_query(statement.query, context)


def _explain_dml(statement: DmlStatement, session: Session) -> list[str]:
    name = session.full_name(statement.table)
    session.require("LOAD", name)
    table = session.store.table(name)
    read: list[str] = []
    with _opened(table, statement.operation) as opened, session.query_context(opened) as context:
        run_change(statement, opened, _explaining(context, read))
        lines = [f"WRITE {table.name} VERSION {opened.version + 1} OR LATER", *_writes(statement.tree)]
        reason = fallback_reason(statement.tree, opened.schema)
    conflicts = f"with any change of the table ({reason})" if reason else "row by row"
    return [*lines, f"  conflicts: {conflicts}", *read]


@contextmanager
def _opened(table: Table, operation: str) -> Iterator[TransactionTable]:
    """Opens a table as a transaction sees it; that transaction never begins."""
    options = TransactionOptions(operation=operation)
    transaction = Transaction(table.catalog, table.settings, lambda _name: table, options)
    state, lease = transaction.moment.hold(table)
    isolation = Isolation(table, state, state.schema.isolation_level, is_unchecked=True)
    opened = TransactionTable(transaction, table, isolation, lease)
    try:
        yield opened
    finally:
        opened.close()
        transaction.rollback()


def _explaining(context: QueryContext, lines: list[str]) -> OpenQuery:
    @contextmanager
    def explain(query: Query) -> Iterator[pa.RecordBatchReader]:
        lines.extend(explain_query(query, context))
        schema = pa.schema([(item.alias_or_name, pa.null()) for item in query.tree.expressions])
        with closing(schema.empty_table().to_reader()) as reader:
            yield reader

    return explain


def _writes(tree: exp.Update | exp.Delete | exp.Merge) -> list[str]:
    if not isinstance(tree, exp.Merge):
        return [f"  {_action(tree)}"]
    lines = []
    for clause in tree.args["whens"].expressions:
        condition = clause.args.get("condition")
        also = f" and {condition.sql('doris')}" if condition is not None else ""
        lines.append(f"  when {clause_match(clause).value}{also}: {_action(clause.args['then'])}")
    return lines


def _action(then: exp.Expr) -> str:
    if isinstance(then, exp.Update):
        names = [item.this.name for item in then.expressions if isinstance(item, exp.EQ)]
        return f"update columns: {', '.join(names) or '*'}"
    return "insert" if isinstance(then, exp.Insert) else "delete by key"


def _refuse(stream: TokenStream) -> IntoOutfile:
    """Stands for the parser of a kind that is read as a part of a query, never by its words."""
    stream.fail("a query")


KINDS: Final = (
    StatementKind(("SELECT", "WITH", "("), Query, parse_select, _query),
    StatementKind(("SELECT INTO OUTFILE",), IntoOutfile, _refuse, _into_outfile, is_around=True),
    StatementKind(("EXPLAIN",), Explain, _parse_explain, _explain),
)
