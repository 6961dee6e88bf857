"""INSERT of literal rows or of a query's result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Final

from seqstore.store.sql.parse import statement_values as st
from seqstore.store.sql.parse.partition_parser import parse_partition_names
from seqstore.store.sql.parse.query_parser import QUERY_STARTS, parse_query
from seqstore.store.sql.parse.sqlglot_adapter import TokenType, exp
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, write_info
from seqstore.store.sql.session import variables as names
from seqstore.store.sql.session.session import Session, refused_in_transaction
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.sql.write.insert import InsertOptions, run_insert
from seqstore.store.transaction.merge_builder import Outcome
from seqstore.store.transaction.statement import run_statement
from seqstore.store.transaction.transaction_options import DmlOptions
from seqstore.store.transaction.transaction_table import TransactionTable

_LITERAL_ENDS: Final = frozenset([TokenType.COMMA, TokenType.R_PAREN])
_LITERALS: Final[dict[TokenType, Callable[[str], st.Cell]]] = {
    TokenType.STRING: lambda text: text,
    TokenType.NULL: lambda _text: None,
    TokenType.TRUE: lambda _text: True,
    TokenType.FALSE: lambda _text: False,
    TokenType.DEFAULT: lambda _text: st.Word.DEFAULT,
}


def _parse_insert(stream: TokenStream) -> st.Insert:
    is_overwrite = stream.tokens[1].text.upper() == "OVERWRITE"
    stream.take("TABLE")
    table = parse_table_name(stream)
    if stream.word() == "TEMPORARY":
        stream.refuse("temporary partitions are not supported; INSERT OVERWRITE replaces one at once")
    partitions = parse_partition_names(stream)
    label = _parse_label(stream)
    columns = None
    if stream.word() == "(" and stream.word(1) not in ("SELECT", "WITH", "("):
        columns = tuple(stream.names("a column name"))
    label = label or _parse_label(stream)
    if stream.take_one_of("VALUES", "VALUE"):
        rows = _parse_rows(stream)
        return st.Insert(table, columns, label, rows, None, partitions, is_overwrite)
    if stream.word() in QUERY_STARTS:
        query = parse_query(stream)
        return st.Insert(table, columns, label, None, query, partitions, is_overwrite)
    stream.fail("VALUES or SELECT")


def _parse_label(stream: TokenStream) -> str | None:
    if stream.word() != "WITH" or stream.word(1) != "LABEL":
        return None
    stream.need("WITH", "LABEL")
    return stream.word_or_string("a label")


def _parse_rows(stream: TokenStream) -> tuple[tuple[st.Cell, ...], ...]:
    rows: list[tuple[st.Cell, ...]] = []
    while True:
        stream.need("(")
        cells: list[st.Cell] = []
        if not stream.take(")"):
            cells.append(_parse_cell(stream))
            while stream.take(","):
                cells.append(_parse_cell(stream))
            if not stream.take(")"):
                stream.fail("',' or ')'")
        rows.append(tuple(cells))
        if not stream.take(","):
            return tuple(rows)


def _parse_cell(stream: TokenStream) -> st.Cell:
    """Reads a literal from its token, without sqlglot, which parses other expressions."""
    is_negative = stream.kind() is TokenType.DASH
    if stream.kind(1 + is_negative) in _LITERAL_ENDS:
        token = stream.tokens[stream.at + is_negative]
        kind = token.token_type
        if kind is TokenType.NUMBER:
            try:
                number = _number("-" + token.text if is_negative else token.text)
            except (ValueError, InvalidOperation):  # `1e`, or more digits than Python reads
                stream.at += is_negative
                stream.fail("a number")
            stream.at += 1 + is_negative
            return number
        if not is_negative and kind in _LITERALS:
            stream.at += 1
            return _LITERALS[kind](token.text)
    return stream.expression()


def _number(text: str) -> int | Decimal:
    digits = text.removeprefix("-")
    return int(text) if digits.isdigit() else Decimal(text)


def _insert(statement: st.Insert, session: Session) -> Result:
    if statement.is_overwrite and session.transaction is not None:
        raise refused_in_transaction()
    options = _options(session)
    if session.transaction is not None:
        target = session.transaction.table(session.full_name(statement.table))
        return run_insert(statement, target, session.stream, options)
    operation = "INSERT OVERWRITE" if statement.is_overwrite else "INSERT"
    transaction = session.variables.dml_options(operation, label=statement.label)
    if _reads_target(statement, session):
        return _insert_of_itself(statement, session, options, transaction)
    options = replace(options, txn_app_id=transaction.txn_app_id, txn_version=transaction.txn_version)
    return run_insert(statement, session.table(statement.table), session.stream, options)


def _options(session: Session) -> InsertOptions:
    moment = session.moment()
    return InsertOptions(
        strict=session.variables.flag(names.INSERT_STRICT),
        max_filter_ratio=session.variables.number(names.INSERT_FILTER_RATIO),
        require_sequence=session.variables.flag(names.REQUIRE_SEQUENCE),
        now=moment.local.replace(microsecond=0),
        zone=moment.zone,
        partial=session.variables.flag(names.PARTIAL_UPDATE),
        new_keys=session.variables.get(names.NEW_KEY_BEHAVIOR) or "APPEND",
    )


def _reads_target(statement: st.Insert, session: Session) -> bool:
    """Returns whether a query or a value of the statement names the table it writes."""
    if statement.rows is None:
        trees: Iterable[exp.Expr] = [statement.query.tree] if statement.query is not None else []
    else:
        trees = (cell for row in statement.rows for cell in row if isinstance(cell, exp.Expr))
    wanted = session.full_name(statement.table).lower()
    return any(
        session.full_name(st.TableName(found.db or None, found.name)).lower() == wanted
        for tree in trees
        for found in tree.find_all(exp.Table)
        if isinstance(found.this, exp.Identifier)
    )


def _insert_of_itself(
    statement: st.Insert, session: Session, options: InsertOptions, transaction: DmlOptions
) -> Result:
    """Runs an INSERT that reads its own table as a read-modify-write, like MERGE.

    Its reads are checked when it is published, so that it undoes no concurrent write.
    """
    results: list[Result] = []
    unlabelled = replace(statement, label=None)

    def work(opened: TransactionTable) -> Outcome:
        opened.takes_replace_where = statement.is_overwrite
        with session.within(opened) as open_query:
            results.append(run_insert(unlabelled, opened, open_query, options))
        return 0, None

    done = run_statement(session.table(statement.table), work, transaction)
    info = write_info(done.label, done.status, done.txn_id or "")
    if not results:
        return Result(affected_rows=0, info=info, warnings=done.warnings)
    return replace(results[-1], info=info)


KINDS: Final = (StatementKind(("INSERT INTO", "INSERT OVERWRITE"), st.Insert, _parse_insert, _insert),)
