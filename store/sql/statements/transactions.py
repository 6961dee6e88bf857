"""BEGIN, COMMIT and ROLLBACK; SHOW TRANSACTION.

Every statement of a transaction reads the snapshot of its begin with the transaction's own writes (X7), and
no later commits of others (stronger than X8). INSERT, UPDATE, DELETE and MERGE of one database may follow
each other in any order on one table. Of the prohibitions of Doris (X12) two remain: other databases, and
statements that change definitions. A transaction that no BEGIN began is committed before the latter
(sql.session.session_transaction).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from seqstore.store.catalog.app_ids import DUPLICATE
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus
from seqstore.store.errors import NotFoundError
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows, write_info
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import parse_database
from seqstore.store.sql.session.statement_kind import StatementKind

_HEADINGS: Final = ("TransactionId", "Label", "Coordinator", "TransactionStatus", "LoadJobSourceType",
                    "PrepareTime", "PreCommitTime", "CommitTime", "PublishTime", "FinishTime", "Reason",
                    "ErrorReplicasCount", "ListenerId", "TimeoutMs", "ErrMsg")  # fmt: skip


@dataclass(frozen=True)
class Begin:
    """BEGIN [WITH LABEL label]; START TRANSACTION. `is_read_only` is None for the session's mode."""

    label: str | None = None
    is_read_only: bool | None = None


@dataclass(frozen=True)
class Commit:
    """COMMIT; `chains`: another transaction begins at once."""

    chains: bool = False


@dataclass(frozen=True)
class Rollback:
    """ROLLBACK; `chains`: another transaction begins at once."""

    chains: bool = False


@dataclass(frozen=True)
class ShowTransaction:
    """SHOW TRANSACTION [FROM db] WHERE id = n | label = 'l'."""

    is_listed_by_table: ClassVar = True
    database: str | None
    txn_id: int | None
    label: str | None


def _parse_begin(stream: TokenStream) -> Begin:
    stream.take("WORK")
    if stream.take("WITH", "LABEL"):
        return Begin(stream.word_or_string("a label"))
    is_read_only: bool | None = None
    while not stream.is_done:
        if stream.take("READ"):
            mode = stream.take_one_of("ONLY", "WRITE") or stream.fail("ONLY or WRITE")
            is_read_only = mode == "ONLY"
        elif not stream.take("WITH", "CONSISTENT", "SNAPSHOT"):
            stream.fail("WITH LABEL, WITH CONSISTENT SNAPSHOT, READ ONLY or READ WRITE")
        if not stream.take(","):
            break
    return Begin(None, is_read_only)


def _begin(statement: Begin, session: Session) -> Result:
    is_new = session.transaction is None or session.transactions.is_implicit
    if is_new and statement.label is not None and session.database is not None:
        # Without a database the first write requires it, for its own table.
        session.require_within("LOAD", session.database)
    database = session.database if statement.label is not None else None
    begun = session.transactions.begin(
        label=statement.label, database=database, is_read_only=statement.is_read_only
    )
    return Result(info=write_info(begun.label, "PREPARE"))


def _parse_chain(stream: TokenStream) -> bool:
    stream.take("WORK")
    if not stream.take("AND"):
        return False
    is_not = bool(stream.take("NO"))
    stream.need("CHAIN")
    return not is_not


def _parse_commit(stream: TokenStream) -> Commit:
    return Commit(_parse_chain(stream))


def _commit(statement: Commit, session: Session) -> Result:
    is_read_only = session.transactions.is_read_only
    done = session.transactions.commit()
    if statement.chains:
        session.transactions.begin(is_read_only=is_read_only)
    if done is None:
        return Result()
    status = DUPLICATE if done.skipped and not done.versions else "VISIBLE"
    info = write_info(done.label, status, done.txn_id)
    warnings = tuple(
        f"writes to {table} were skipped: its version {version} has them already (txnAppId, txnVersion)"
        for table, version in done.skipped.items()
    )
    return Result(affected_rows=done.rows_changed, info=info, warnings=warnings + done.warnings)


def _parse_rollback(stream: TokenStream) -> Rollback:
    return Rollback(_parse_chain(stream))


def _rollback(statement: Rollback, session: Session) -> Result:
    is_read_only = session.transactions.is_read_only
    transaction = session.transactions.rollback()
    if statement.chains:
        session.transactions.begin(is_read_only=is_read_only)
    if transaction is None:
        return Result()
    return Result(info=write_info(transaction.label, "ABORTED"))


def _parse_show(stream: TokenStream) -> ShowTransaction:
    database = parse_database(stream)
    stream.need("WHERE")
    column = stream.name("id or label").lower()
    if column not in ("id", "label"):
        stream.at -= 1
        stream.fail("id or label")
    stream.need("=")
    if column == "id":
        return ShowTransaction(database, stream.integer("a transaction id"), None)
    return ShowTransaction(database, None, stream.string("a label"))


def _show(statement: ShowTransaction, session: Session) -> Result:
    database = statement.database or session.current_database()
    record = session.store.find_transaction(database, label=statement.label, txn_id=statement.txn_id)
    if record is None or not session.table_filter("LOAD")(database, record.table.partition(".")[2]):
        named = statement.txn_id if statement.label is None else statement.label
        raise NotFoundError(f"transaction [{named}] not found", kind="txn_not_found")
    return text_rows(_HEADINGS, [_described(record)])


def _described(record: TransactionRecord) -> tuple[str, ...]:
    visible = _time(record.finished_ms if record.status == TransactionStatus.VISIBLE else 0)
    is_running = record.status in (TransactionStatus.PREPARE, TransactionStatus.PRECOMMITTED)
    timeout = record.expires_ms - record.begun_ms if is_running and record.expires_ms else -1
    coordinator = f"process {record.owner[0]}" if record.owner[0] else ""
    return (str(record.id), record.label, coordinator, record.status, record.operation,
            _time(record.begun_ms), _time(record.precommitted_ms), visible, visible,
            _time(record.finished_ms), record.reason, "0", "-1", str(timeout), "")  # fmt: skip


def _time(unix_ms: int) -> str:
    if not unix_ms:
        return "\\N"
    return datetime.fromtimestamp(unix_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


KINDS: Final = (
    StatementKind(("BEGIN", "START TRANSACTION"), Begin, _parse_begin, _begin),
    StatementKind(("COMMIT",), Commit, _parse_commit, _commit),
    StatementKind(("ROLLBACK",), Rollback, _parse_rollback, _rollback),
    StatementKind(("SHOW TRANSACTION",), ShowTransaction, _parse_show, _show),
)
