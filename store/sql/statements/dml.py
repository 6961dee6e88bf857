"""UPDATE, DELETE FROM and MERGE INTO."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.load.load import LoadResult
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.tokens import TokenStream, parse_tree
from seqstore.store.sql.result import Result
from seqstore.store.sql.session import variables as names
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.sql.write.dml import Dml, run, star_inserts, table_of
from seqstore.store.transaction.dml import run_dml
from seqstore.store.transaction.dml_options import DmlOptions, DmlResult
from seqstore.store.transaction.transaction_table import TransactionTable


@dataclass(frozen=True)
class Update(Dml):
    """UPDATE t [alias] SET .. [FROM ..] [WHERE ..]."""


@dataclass(frozen=True)
class Delete(Dml):
    """DELETE FROM t [alias] [USING ..] WHERE ..."""


@dataclass(frozen=True)
class Merge(Dml):
    """MERGE INTO t USING s ON .. WHEN .."""


def _tree(stream: TokenStream) -> exp.Expr:
    """sqlglot's tree of the whole statement."""
    text = stream.text
    start, end = stream.tokens[0].start, stream.tokens[-1].end + 1
    if stream.word(-stream.at) == "DELETE" and stream.word(1 - stream.at) != "FROM":  # Delta's pages say so
        text, end = f"{text[:start]}DELETE FROM{text[start + len('DELETE') :]}", end + len(" FROM")
    words = stream.tokens
    inserts = [
        after.start
        for before, after in itertools.pairwise(words)
        if before.text.upper() == "INSERT" and after.text.upper() == "VALUES"
    ]
    if inserts:
        text = star_inserts(text[:end], iter(inserts))
        end = len(text)
    stream.at = len(stream.tokens)
    return parse_tree(text, start, end)


def _parse_update(stream: TokenStream) -> Update:
    tree = _tree(stream)
    if not isinstance(tree, exp.Update) or tree.args.get("limit") or tree.args.get("order"):
        raise InvalidInputError("UPDATE takes SET, FROM and WHERE", kind="not_supported")
    return Update(table_of(tree), tree)


def _parse_delete(stream: TokenStream) -> Delete:
    tree = _tree(stream)
    if not isinstance(tree, exp.Delete) or tree.args.get("limit") or tree.args.get("order"):
        raise InvalidInputError("DELETE FROM takes USING and WHERE", kind="not_supported")
    return Delete(table_of(tree), tree)


def _parse_merge(stream: TokenStream) -> Merge:
    tree = _tree(stream)
    if not isinstance(tree, exp.Merge):
        raise InvalidInputError("expected MERGE INTO .. USING .. ON .. WHEN ..", kind="syntax")
    return Merge(table_of(tree), tree)


def _run(statement: Dml, session: Session) -> Result:
    if session.variables.flag(names.SHOW_HIDDEN_COLUMNS):
        raise InvalidInputError(
            f"{statement.operation.capitalize()} is forbidden since current session is in debug mode. Please "
            "check the following session variables: show_hidden_columns",
            kind="debug_mode",
        )
    if session.transaction is not None:
        return _run_within(statement, session)
    app_id, version = session.variables.take_app_pair()
    options = DmlOptions(
        statement.operation,
        label_prefix=f"{statement.operation.lower()}_",
        retries=int(session.variables.number(names.CONFLICT_RETRIES)),
        lock_seconds=session.lock_seconds(),
        txn_app_id=app_id,
        txn_version=version,
    )
    table = session.store.table(session.full_name(statement.table))

    def work(opened: TransactionTable) -> tuple[int, LoadResult | None]:
        with session.within(opened) as ask:
            return run(statement, opened, ask)

    return _told(run_dml(table, work, options))


def _run_within(statement: Dml, session: Session) -> Result:
    """As a statement of the session's transaction: nothing is visible before COMMIT (X9)."""
    assert session.transaction is not None
    opened = session.transaction.table(session.full_name(statement.table))
    opened.begin_write()
    warnings: tuple[str, ...] = ()
    matched = 0
    if opened.app is not None and opened.is_skipped:
        warnings = (opened.app.skipped,)
    else:
        session.transaction.lock(opened, session.lock_seconds())
        with session.within(opened) as ask:
            matched, _ = run(statement, opened, ask)
        warnings, opened.warnings = tuple(opened.warnings), []
    info = f"{{'label':'{session.transaction.label}', 'status':'PREPARE', 'txnId':''}}"
    return Result(affected_rows=matched, info=info, warnings=warnings)


def _told(done: DmlResult) -> Result:
    info = f"{{'label':'{done.label}', 'status':'{done.status}', 'txnId':'{done.txn_id}'}}"
    return Result(affected_rows=done.rows_changed, info=info, warnings=done.warnings)


KINDS: Final = (
    StatementKind(("UPDATE",), Update, _parse_update, _run),
    StatementKind(("DELETE FROM", "DELETE"), Delete, _parse_delete, _run),
    StatementKind(("MERGE INTO",), Merge, _parse_merge, _run),
)
