"""SHOW ALTER TABLE COLUMN and CANCEL ALTER TABLE COLUMN: the schema changes of a database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.catalog.schema_change_job import RUNNING, TIMEOUT_SECONDS, SchemaChangeJob
from seqstore.store.sql.evaluate.result_filter import filter_result
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import TableName
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import parse_database, parse_limit
from seqstore.store.sql.session.statement_kind import StatementKind

_HEADINGS: Final = ("JobId", "TableName", "CreateTime", "FinishTime", "IndexName", "IndexId", "OriginIndexId",
                    "SchemaVersion", "TransactionId", "State", "Msg", "Progress", "Timeout")  # fmt: skip


@dataclass(frozen=True)
class ShowAlterTable:
    """SHOW ALTER TABLE COLUMN [FROM db] [WHERE ..] [ORDER BY column [ASC | DESC], ..] [LIMIT n [OFFSET m]].

    Attributes:
        order: headings, and whether the largest value is the first.
    """

    database: str | None
    condition: exp.Expr | None
    order: tuple[tuple[str, bool], ...]
    limit: int | None
    offset: int


def _parse_show(stream: TokenStream) -> ShowAlterTable:
    database = parse_database(stream)
    condition = stream.expression("ORDER", "LIMIT") if stream.take("WHERE") else None
    order = tuple(stream.listed(_parse_order)) if stream.take("ORDER", "BY") else ()
    limit, offset = parse_limit(stream)
    return ShowAlterTable(database, condition, order, limit, offset)


def _parse_order(stream: TokenStream) -> tuple[str, bool]:
    start = stream.at
    name = stream.name("a heading of SHOW ALTER TABLE COLUMN")
    heading = next((known for known in _HEADINGS if known.lower() == name.lower()), None)
    if heading is None:
        stream.at = start
        stream.fail(f"one of {', '.join(_HEADINGS)}")
    return heading, stream.take_one_of("ASC", "DESC") == "DESC"


def _show(statement: ShowAlterTable, session: Session) -> Result:
    jobs = session.store.schema_changes.jobs(statement.database or session.current_database())
    result = text_rows(_HEADINGS, [_row(number, job) for number, job in jobs.items()])
    rows = result.rows
    assert rows is not None
    if statement.condition is not None:
        with session.query_context() as context:
            rows = filter_result(rows, statement.condition, context)
    return Result(_ordered(rows, statement).slice(statement.offset, statement.limit))


def _ordered(rows: pa.Table, statement: ShowAlterTable) -> pa.Table:
    """Orders rows; numbers by their value, which their texts have not."""
    if not statement.order:
        return rows
    keys = [pc.cast(rows.column(name), pa.int64()) if name.endswith("Id") else rows.column(name)
            for name, _ in statement.order]  # fmt: skip
    names = [str(i) for i in range(len(keys))]
    directions = ["descending" if is_last else "ascending" for _, is_last in statement.order]
    order = pc.sort_indices(pa.table(keys, names=names), sort_keys=list(zip(names, directions, strict=True)))
    return rows.take(order)


def _row(number: int, job: SchemaChangeJob) -> tuple[str | None, ...]:
    is_running = job.state == RUNNING
    return (
        str(number),
        job.name,
        _moment(job.created_ms),
        _moment(job.finished_ms),
        job.name,
        str(job.table_id),
        str(job.table_id),
        f"{job.revision + 1}:0",
        str(job.watershed),
        job.state,
        job.message,
        f"{job.rows_done}/{job.rows_total}" if is_running else None,
        str(TIMEOUT_SECONDS),
    )


def _moment(milliseconds: int) -> str | None:
    if not milliseconds:
        return None
    return f"{datetime.fromtimestamp(milliseconds / 1000):%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03d}"


@dataclass(frozen=True)
class CancelAlterTable:
    """CANCEL ALTER TABLE COLUMN FROM t."""

    table: TableName


def _parse_cancel(stream: TokenStream) -> CancelAlterTable:
    if stream.word() in ("ROLLUP", "MATERIALIZED"):
        stream.refuse(f"CANCEL ALTER TABLE {stream.word()}: there are no rollups; expected COLUMN")
    stream.need("COLUMN", "FROM")
    return CancelAlterTable(parse_table_name(stream))


def _cancel(statement: CancelAlterTable, session: Session) -> None:
    session.store.schema_changes.cancel(session.table(statement.table))


KINDS: Final = (
    StatementKind(("SHOW ALTER TABLE COLUMN",), ShowAlterTable, _parse_show, _show),
    StatementKind(("CANCEL ALTER TABLE",), CancelAlterTable, _parse_cancel, _cancel),
)
