"""UPDATE, DELETE FROM and MERGE INTO: each a transaction of its own, or a part of the session's."""

from __future__ import annotations

from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.dml_parser import parse_delete, parse_merge, parse_update
from seqstore.store.sql.parse.statement_values import (
    DeleteStatement,
    DmlStatement,
    MergeStatement,
    UpdateStatement,
)
from seqstore.store.sql.result import Result, write_info
from seqstore.store.sql.session import variables as names
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.sql.write.row_change import run_change
from seqstore.store.transaction.merge_builder import Outcome
from seqstore.store.transaction.statement import run_statement
from seqstore.store.transaction.transaction import Transaction
from seqstore.store.transaction.transaction_table import TransactionTable


def _run(statement: DmlStatement, session: Session) -> Result:
    operation = statement.operation
    if session.variables.flag(names.SHOW_HIDDEN_COLUMNS):
        raise InvalidInputError(
            f"{operation.capitalize()} is forbidden since current session is in debug mode. Please "
            "check the following session variables: show_hidden_columns",
            kind="debug_mode",
        )
    if session.transaction is not None:
        return _run_within(session.transaction, statement, session)
    options = session.variables.dml_options(operation, label_prefix=f"{operation.lower()}_")

    def work(opened: TransactionTable) -> Outcome:
        with session.within(opened) as open_query:
            return run_change(statement, opened, open_query)

    done = run_statement(session.table(statement.table), work, options)
    info = write_info(done.label, done.status, done.txn_id)
    return Result(affected_rows=done.rows_changed, info=info, warnings=done.warnings)


def _run_within(transaction: Transaction, statement: DmlStatement, session: Session) -> Result:
    """Runs a statement of the session's transaction, which is invisible before COMMIT (X9)."""
    opened = transaction.table(session.full_name(statement.table))
    opened.begin_write()
    info = write_info(transaction.label, "PREPARE")
    if opened.app is not None and opened.is_skipped:
        return Result(info=info, warnings=(opened.app.skipped,))
    transaction.lock(opened, session.variables.lock_seconds)
    with session.within(opened) as open_query:
        matched, _ = run_change(statement, opened, open_query)
    warnings, opened.warnings = tuple(opened.warnings), []
    return Result(affected_rows=matched, info=info, warnings=warnings)


KINDS: Final = (
    StatementKind(("UPDATE",), UpdateStatement, parse_update, _run),
    StatementKind(("DELETE FROM", "DELETE"), DeleteStatement, parse_delete, _run),
    StatementKind(("MERGE INTO",), MergeStatement, parse_merge, _run),
)
