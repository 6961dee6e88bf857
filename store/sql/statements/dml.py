"""INSERT, UPDATE, DELETE FROM and MERGE INTO: each a transaction of its own, or a part of the session's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Final

from seqstore.store.catalog.transaction_record import check_client_label
from seqstore.store.conflict.read_set import SUBQUERY
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.properties import GROUP_COMMIT_OFF
from seqstore.store.sql.evaluate.select import open_query
from seqstore.store.sql.parse import statement_values as st
from seqstore.store.sql.parse.dialect import is_utf8
from seqstore.store.sql.parse.partition_parser import parse_partition_names
from seqstore.store.sql.parse.query_parser import (
    QUERY_STARTS,
    parse_delete,
    parse_merge,
    parse_query,
    parse_update,
)
from seqstore.store.sql.parse.sqlglot_adapter import TokenType, exp
from seqstore.store.sql.parse.statement_values import (
    DeleteStatement,
    DmlStatement,
    MergeStatement,
    UpdateStatement,
)
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, write_info
from seqstore.store.sql.session import variables as names
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.sql.translate.relations import mentioned_tables
from seqstore.store.sql.write.changed_rows import key_predicate, names_key, one_key
from seqstore.store.sql.write.insert import InsertOptions, run_insert
from seqstore.store.sql.write.insert_merge import run_insert_merge
from seqstore.store.sql.write.row_change import run_change
from seqstore.store.table import Table
from seqstore.store.transaction.joined_statements import run_joined
from seqstore.store.transaction.merge_builder import Outcome
from seqstore.store.transaction.statement import Work, run_statement
from seqstore.store.transaction.transaction import Transaction
from seqstore.store.transaction.transaction_options import DmlOptions
from seqstore.store.transaction.transaction_table import TransactionTable

_LITERAL_ENDS: Final = frozenset([TokenType.COMMA, TokenType.R_PAREN, None])  # None: the end of the text
_LITERALS: Final[dict[TokenType, Callable[[str], st.Cell]]] = {
    TokenType.STRING: lambda text: text,
    TokenType.NULL: lambda _text: None,
    TokenType.TRUE: lambda _text: True,
    TokenType.FALSE: lambda _text: False,
    TokenType.DEFAULT: lambda _text: st.Word.DEFAULT,
}


class _Targets:
    """Parses the columns of the table that an INSERT writes, each perhaps behind the name of the table.

    Attributes:
        databases: the names before the table's, which only the session can check where the table has none.
    """

    def __init__(self, table: st.TableName) -> None:
        self._table = table
        self.databases: set[str] = set()

    def column(self, stream: TokenStream) -> str:
        """Parses one column."""
        parts = stream.dotted_name("column name")
        *database, owner = parts[:-1] or [self._table.name]
        is_known = owner.lower() == self._table.name.lower()
        if not is_known or len(database) > 1 or (database and self._table.database not in (None, *database)):
            raise unknown_target(".".join(parts), self._table)
        if database and self._table.database is None:
            self.databases.update(database)
        return parts[-1]

    def assignment(self, stream: TokenStream) -> tuple[str, exp.Expr]:
        """Parses `column = expression` of ON DUPLICATE KEY UPDATE."""
        name = self.column(stream)
        stream.need("=")
        return name, stream.expression()

    def item(self, stream: TokenStream) -> tuple[str, st.Cell]:
        """Parses `column = value` of INSERT .. SET, whose items are one row."""
        name = self.column(stream)
        stream.need("=")
        return name, _parse_cell(stream, "AS")


def unknown_target(written: str, table: st.TableName) -> InvalidInputError:
    """Builds the error of a column that is not of the table which a statement writes."""
    return InvalidInputError(
        f"Unknown column '{written}' in the field list; the statement writes {table}", kind="unknown_column"
    )


_MODIFIERS: Final = (
    "LOW_PRIORITY",
    "DELAYED",
    "HIGH_PRIORITY",
)  # of MySQL, which has no effect by them either


def _parse_insert(stream: TokenStream) -> st.Insert:
    first, second = stream.first_word, stream.tokens[1].text.upper() if len(stream.tokens) > 1 else ""
    is_ignore = second == "IGNORE"
    if stream.take_one_of(*_MODIFIERS):
        is_ignore = stream.take("IGNORE")
        stream.take("INTO")
    stream.take("TABLE")
    table = parse_table_name(stream)
    if stream.word() == "TEMPORARY":
        stream.refuse("temporary partitions are not supported; INSERT OVERWRITE replaces one at once")
    partitions = parse_partition_names(stream)
    label = _parse_label(stream)
    targets = _Targets(table)
    columns: tuple[str, ...] | None = None
    if stream.take("(", ")"):
        columns = ()
    elif stream.word() == "(" and stream.word(1) not in ("SELECT", "WITH", "("):
        columns = tuple(stream.enclosed(targets.column))
    statement = st.Insert(
        table,
        columns,
        label or _parse_label(stream),
        partitions=partitions,
        is_overwrite=second == "OVERWRITE",
        is_replace=first == "REPLACE",
        is_ignore=is_ignore,
    )
    clause = None if statement.is_replace or statement.is_overwrite else _on_duplicate_at(stream)
    if clause is None:
        statement = _parse_source(stream, statement, targets)
    else:
        source = replace(stream, tokens=stream.tokens[:clause], end=stream.tokens[clause].start)
        statement = _parse_source(source, statement, targets)
        source.need_end()
        stream.at = clause
        stream.need("ON", "DUPLICATE", "KEY", "UPDATE")
        statement = replace(statement, on_duplicate=tuple(stream.listed(targets.assignment)))
    return replace(statement, databases=frozenset(targets.databases)) if targets.databases else statement


def _parse_source(stream: TokenStream, statement: st.Insert, targets: _Targets) -> st.Insert:
    """Parses the rows: literals, with an alias for ON DUPLICATE KEY UPDATE, or a query."""
    if stream.take_one_of("VALUES", "VALUE"):
        return _with_alias(stream, replace(statement, rows=tuple(stream.listed(_parse_row))))
    if statement.columns is None and stream.take("SET"):
        columns, row = (tuple(part) for part in zip(*stream.listed(targets.item), strict=True))
        return _with_alias(stream, replace(statement, columns=columns, rows=(row,)))
    if stream.word() in QUERY_STARTS:
        return replace(statement, query=parse_query(stream))
    stream.fail("VALUES or SELECT")


def _with_alias(stream: TokenStream, statement: st.Insert) -> st.Insert:
    """Reads the name of the new row, which ON DUPLICATE KEY UPDATE may use."""
    return replace(statement, row_alias=stream.name("an alias")) if stream.take("AS") else statement


def _on_duplicate_at(stream: TokenStream) -> int | None:
    """Returns the index of ON DUPLICATE, None without that clause."""
    ahead = range(len(stream.tokens) - stream.at)
    found = (i for i in ahead if stream.word(i) == "ON" and stream.word(i + 1) == "DUPLICATE")
    clause = next(found, None)
    return None if clause is None else stream.at + clause


def _parse_label(stream: TokenStream) -> str | None:
    if stream.word() != "WITH" or stream.word(1) != "LABEL":
        return None
    stream.need("WITH", "LABEL")
    return check_client_label(stream.word_or_string("a label"))


def _parse_row(stream: TokenStream) -> tuple[st.Cell, ...]:
    return () if stream.take("(", ")") else tuple(stream.enclosed(_parse_cell))


def _parse_cell(stream: TokenStream, *stops: str) -> st.Cell:
    """Reads a literal from its token, without sqlglot, which parses other expressions, up to a stop."""
    if (
        stream.kind() is TokenType.INTRODUCER
        and stream.kind(1) is TokenType.STRING
        and is_utf8(stream.tokens[stream.at].text)
    ):
        stream.at += 1
    is_negative = stream.kind() is TokenType.DASH
    is_literal = stream.kind(1 + is_negative) in _LITERAL_ENDS or stream.word(1 + is_negative) in stops
    if is_literal and stream.kind(is_negative) is not None:
        token = stream.tokens[stream.at + is_negative]
        kind = token.token_type
        if kind is TokenType.NUMBER:
            try:
                text = "-" + token.text if is_negative else token.text
                number = int(text) if token.text.isdigit() else Decimal(text)
            except (ValueError, InvalidOperation):  # `1e`, or more digits than Python reads
                stream.at += is_negative
                stream.fail("a number")
            stream.at += 1 + is_negative
            return number
        if not is_negative and kind in _LITERALS:
            stream.at += 1
            return _LITERALS[kind](token.text)
    start = stream.at
    value = stream.expression(*stops)
    if isinstance(value, exp.Alias):
        stream.at = start
        stream.fail("a value without an alias")
    return value


def _insert(statement: st.Insert, session: Session) -> Result:
    if statement.databases - {session.full_name(statement.table).partition(".")[0]}:
        raise unknown_target(f"{min(statement.databases)}.{statement.table.name}", statement.table)
    options = _insert_options(session)
    if statement.merges and not session.table(statement.table).schema.is_duplicate:
        return _insert_merge(statement, session)
    if statement.is_ignore:  # of rows that have no key in common
        options = replace(options, strict=False, max_filter_ratio=1.0)
    if statement.is_replace:
        options = replace(options, partial=False)
    if session.transaction is not None:
        target = session.transaction.table(session.full_name(statement.table))
        return _run_insert(statement, target, session, options)
    operation = "INSERT OVERWRITE" if statement.is_overwrite else "INSERT"
    transaction = session.variables.dml_options(operation, label=statement.label)
    transaction = replace(transaction, isolation=session.transactions.isolation())
    if _reads_target(statement, session):
        return _insert_of_itself(statement, session, options, transaction)
    options = replace(options, txn_app_id=transaction.txn_app_id, txn_version=transaction.txn_version)
    return _run_insert(statement, session.table(statement.table), session, options)


def _run_insert(
    statement: st.Insert, target: Table | TransactionTable, session: Session, options: InsertOptions
) -> Result:
    with session.query_context(trees=_queries(statement)) as context:
        return run_insert(statement, target, partial(open_query, context=context), options)


def _insert_options(session: Session) -> InsertOptions:
    moment = session.moment()
    return InsertOptions(
        strict=names.INSERT_STRICT in session.variables.on,
        max_filter_ratio=float(session.variables.values[names.INSERT_FILTER_RATIO]),
        require_sequence=names.REQUIRE_SEQUENCE in session.variables.on,
        now=moment.local.replace(microsecond=0),
        zone=moment.zone,
        partial=names.PARTIAL_UPDATE in session.variables.on,
        new_keys=session.variables.get(names.NEW_KEY_BEHAVIOR) or "APPEND",
        group_commit=session.variables.get(names.GROUP_COMMIT) or None,
    )


def _reads_target(statement: st.Insert, session: Session) -> bool:
    """Returns whether a query or a value of the statement names the table it writes."""
    wanted = session.full_name(statement.table).lower()
    found = (name for tree in _queries(statement) for name in session.tables_of(tree))
    return any(name.lower() == wanted for name in found)


def _queries(statement: st.Insert) -> Iterator[exp.Expr]:
    """Yields the query of a statement, or the expressions among its values."""
    if statement.rows is not None:
        yield from (cell for row in statement.rows for cell in row if isinstance(cell, exp.Expr))
    elif statement.query is not None:
        yield statement.query.tree


def _insert_of_itself(
    statement: st.Insert, session: Session, options: InsertOptions, transaction: DmlOptions
) -> Result:
    """Runs an INSERT that reads its own table like MERGE, so that it undoes no concurrent write."""
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


def _insert_merge(statement: st.Insert, session: Session) -> Result:
    """Runs INSERT IGNORE, or an INSERT with ON DUPLICATE KEY UPDATE."""
    insert_options = _insert_options(session)
    if statement.is_ignore:
        insert_options = replace(insert_options, strict=False, max_filter_ratio=1.0)

    first_id = 0

    def change(opened: TransactionTable) -> Outcome:
        nonlocal first_id
        with session.within(opened) as open_query:
            matched, done = run_insert_merge(statement, opened, open_query, insert_options)
        first_id = done.first_id if done is not None else 0
        return matched, done

    result = _run_change(statement.table, "INSERT", change, session, statement.label)
    return replace(result, generated_id=first_id, insert_id=first_id)


def _change(statement: DmlStatement, session: Session) -> Result:
    operation = statement.operation
    debugging = [n for n in (names.SHOW_HIDDEN_COLUMNS, names.SKIP_DELETE_SIGN) if n in session.variables.on]
    if debugging:
        raise InvalidInputError(
            f"{operation.capitalize()} is forbidden since current session is in debug mode. Please "
            f"check the following session variables: {', '.join(debugging)}",
            kind="debug_mode",
        )

    if names.SAFE_UPDATES in session.variables.on and not isinstance(statement, MergeStatement):
        _check_safe(statement, session)
    if isinstance(statement, DeleteStatement) and session.transaction is None:
        removed = _delete_by_predicate(statement, session)
        if removed is not None:
            return removed

    hidden = isinstance(statement, MergeStatement) and _hides_target(statement, session)

    def change(opened: TransactionTable) -> Outcome:
        if hidden:
            opened.isolation.reads.fall_back(SUBQUERY)
        with session.within(opened) as open_query:
            return run_change(statement, opened, open_query)

    return _run_change(
        statement.table, operation, change, session, joined_key=_joined_key(statement, session)
    )


def _check_safe(statement: DmlStatement, session: Session) -> None:
    """Checks an UPDATE or DELETE of a session with `sql_safe_updates`.

    Raises:
        InvalidInputError: it has no LIMIT, and no condition on a column of the declared key.
    """
    schema = session.table(statement.table).schema
    if statement.tree.args.get("limit") is None and not names_key(statement.tree, schema):
        columns = ", ".join(schema.declared_key)
        way = f"compare one of {columns}" if columns else "add LIMIT"
        raise InvalidInputError(
            f"You are using safe update mode and you tried to update {statement.table.name} without a WHERE "
            f"that uses a key column; {way}, or SET sql_safe_updates = 0",
            kind="safe_updates",
        )


def _joined_key(statement: DmlStatement, session: Session) -> tuple[object, ...] | None:
    """Returns the key of a statement that may join others in one transaction (G14), None for all others."""
    if isinstance(statement, MergeStatement) or session.transaction is not None:
        return None
    schema = session.table(statement.table).schema
    mode = session.variables.get(names.GROUP_COMMIT) or schema.group_commit
    return one_key(statement.tree, schema) if mode != GROUP_COMMIT_OFF else None


def _hides_target(statement: MergeStatement, session: Session) -> bool:
    """Returns whether the source of a MERGE reads the target through a view, which no condition shows."""
    source = statement.tree.args["using"]
    target = session.full_name(statement.table)
    named = {session.full_name(name) for name in mentioned_tables(source)}
    return target not in named and target in session.tables_of(source)


def _delete_by_predicate(statement: DeleteStatement, session: Session) -> Result | None:
    """Runs a DELETE of a merge-on-read table whose conditions compare key columns with constants.

    As in Doris the rows go without tombstones, so that no sequence of the past keeps a new row out. Other
    statements return None: they write tombstones, in Doris too (D15).
    """
    table = session.table(statement.table)
    if not table.schema.is_merge_on_read:
        return None
    filter = key_predicate(statement.tree, table.schema)
    if filter is None:
        return None
    options = session.variables.dml_options("DELETE", label_prefix="delete_")
    with table.begin_load(
        operation="DELETE",
        label_prefix="delete_",
        require_sequence=False,
        txn_app_id=options.txn_app_id,
        txn_version=options.txn_version,
    ) as load:
        load.clear(filter)
        done = load.commit()
    warnings = (load.skipped,) if load.skipped else ()
    return Result(
        affected_rows=done.rows_deleted,
        info=write_info(done.label, done.status, done.txn_id),
        warnings=warnings,
    )


def _run_change(
    table: st.TableName,
    operation: str,
    change: Work,
    session: Session,
    label: str | None = None,
    *,
    joined_key: tuple[object, ...] | None = None,
) -> Result:
    """Runs a statement that reads and writes one table, alone or within the session's transaction.

    Args:
        joined_key: the statement changes the row of this key, and may share a transaction with statements
            of other keys.
    """
    transaction = session.transactions.current
    if transaction is not None:
        return _change_within(transaction, table, change, session)
    prefix = f"{operation.lower()}_"
    options = session.variables.dml_options(operation, label=label, label_prefix=prefix)
    options = replace(options, isolation=session.transactions.isolation())
    if joined_key is not None and options.txn_app_id is None:
        done = run_joined(session.table(table), joined_key, change, options)
    else:
        done = run_statement(session.table(table), change, options)
    info = write_info(done.label, done.status, done.txn_id)
    return Result(affected_rows=done.rows_changed, info=info, warnings=done.warnings)


def _change_within(transaction: Transaction, table: st.TableName, change: Work, session: Session) -> Result:
    """Runs a statement of the session's transaction, which is invisible before COMMIT (X9)."""
    name = session.full_name(table)
    session.transactions.lock_first(name, session.variables.lock_seconds)
    opened = transaction.table(name)
    opened.begin_write()
    info = write_info(transaction.label, "PREPARE")
    if opened.app is not None and opened.is_skipped:
        return Result(info=info, warnings=(opened.app.skipped,))
    session.transactions.lock(opened, session.variables.lock_seconds)
    with opened.undoing():
        matched, _ = change(opened)
    warnings, opened.warnings = tuple(opened.warnings), []
    return Result(affected_rows=matched, info=info, warnings=warnings)


KINDS: Final = (
    StatementKind(
        (
            "INSERT INTO",
            "INSERT OVERWRITE",
            "INSERT IGNORE INTO",
            "INSERT IGNORE",
            "INSERT",
            "REPLACE INTO",
            "REPLACE",
        ),
        st.Insert,
        _parse_insert,
        _insert,
    ),
    StatementKind(("UPDATE",), UpdateStatement, parse_update, _change),
    StatementKind(("DELETE FROM", "DELETE"), DeleteStatement, parse_delete, _change),
    StatementKind(("MERGE INTO",), MergeStatement, parse_merge, _change),
)
