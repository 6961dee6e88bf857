"""OPTIMIZE, REORG, VACUUM, RESTORE TABLE and DESCRIBE HISTORY."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.history.history_rows import history_table
from seqstore.store.iceberg.uniform import upgrade_uniform
from seqstore.store.maintenance.compaction import CompactionResult
from seqstore.store.sql.parse.load_jobs import required
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import TableName
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.sql.translate.predicates import scan_filter

_HOUR: Final = 3600
_VACUUM_METRICS: Final = ("oldest_version", "versions", "segments", "files", "bytes", "orphans",
                          "transactions")  # fmt: skip
_COMPACTION_METRICS: Final = ("version", "segments_before", "segments_after", "segments_lost", "rows",
                              "rows_removed", "tombstones_removed", "bytes_read", "bytes_written",
                              "milliseconds")  # fmt: skip


@dataclass(frozen=True)
class Optimize:
    table: TableName
    where: exp.Expr | None = None
    zorder_by: tuple[str, ...] = ()
    is_full: bool = False
    is_on_spark: bool = False


@dataclass(frozen=True)
class Vacuum:
    """`table` None: every table of the session's database."""

    table: TableName | None
    retain_hours: int | None = None
    is_dry_run: bool = False


@dataclass(frozen=True)
class Restore:
    """`to` is a version, or a time of the session's zone for the newest version of then."""

    table: TableName
    to: int | datetime


@dataclass(frozen=True)
class DescribeHistory:
    table: TableName
    limit: int | None = None


def _parse_optimize(stream: TokenStream) -> Optimize:
    stream.take("TABLE")
    table = parse_table_name(stream)
    is_full = stream.take("FULL")
    where = stream.expression("ZORDER", "PROPERTIES") if stream.take("WHERE") else None
    columns: list[str] = []
    if stream.take("ZORDER"):
        stream.need("BY")
        columns = stream.names("a column name")
    given = stream.properties() if stream.take("PROPERTIES") else {}
    for name in given.keys() - {"engine"}:
        stream.refuse(f"OPTIMIZE has the property engine, and no {name!r}", "bad_property")
    engine = given.get("engine", "local")
    if engine not in ("local", "spark"):
        stream.refuse(f"engine: expected local or spark, found {engine!r}", "bad_property")
    return Optimize(table, where, tuple(columns), is_full, engine == "spark")


def _optimize(statement: Optimize, session: Session) -> Result:
    table = session.table(statement.table)
    node = statement.where
    where = scan_filter(table.schema, node, "OPTIMIZE ... WHERE") if node is not None else None
    if statement.is_on_spark:
        jobs = required(session.server.load_jobs, "OPTIMIZE with engine spark")
        return compacted(jobs.optimize(table, where, zorder_by=statement.zorder_by, full=statement.is_full))
    return compacted(table.optimize(where, zorder_by=statement.zorder_by, full=statement.is_full))


def compacted(result: CompactionResult) -> Result:
    """Returns the metrics of a compaction, one row."""
    columns = {name: pa.array([getattr(result, name)], pa.int64()) for name in _COMPACTION_METRICS}
    return Result(pa.table(columns))


def _parse_vacuum(stream: TokenStream) -> Vacuum:
    stream.take("TABLE")
    is_named = not stream.is_done and stream.word() not in ("RETAIN", "DRY")
    table = parse_table_name(stream) if is_named else None
    hours = None
    if stream.take("RETAIN"):
        hours = stream.integer("a number of hours")
        stream.need("HOURS")
    is_dry_run = stream.take("DRY")
    if is_dry_run:
        stream.need("RUN")
    return Vacuum(table, hours, is_dry_run)


def _vacuum(statement: Vacuum, session: Session) -> Result:
    if statement.table is not None:
        names = [session.full_name(statement.table)]
    else:
        database = session.current_database()
        names = [f"{database}.{name}" for name in session.store.tables(database)]
    seconds = None if statement.retain_hours is None else statement.retain_hours * _HOUR
    rows = []
    for name in names:
        result = session.store.table(name).vacuum(retention_seconds=seconds, dry_run=statement.is_dry_run)
        rows.append(
            {
                "table": name,
                "oldest_version": result.oldest,
                "versions": result.versions,
                "segments": result.segments,
                "files": len(result.files),
                "bytes": result.bytes,
                "orphans": len(result.orphans),
                "transactions": result.transactions,
                "held_versions": ",".join(map(str, result.held)),
            }
        )
    fields = [("table", pa.string())]
    fields += [(n, pa.int64()) for n in _VACUUM_METRICS]
    return Result(pa.Table.from_pylist(rows, pa.schema([*fields, ("held_versions", pa.string())])))


def _parse_restore(stream: TokenStream) -> Restore:
    table = parse_table_name(stream)
    stream.take("TO")
    if stream.take("VERSION"):
        stream.take("AS", "OF")
        return Restore(table, stream.integer("a version"))
    if not stream.take_one_of("TIME", "TIMESTAMP"):
        stream.fail("TO VERSION or TO TIME")
    stream.take("AS", "OF")
    return Restore(table, _moment(stream))


def _moment(stream: TokenStream) -> datetime:
    text = stream.string("a time such as '2024-05-01 10:00:00'")
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(
            f"{text!r} is no time; write '2024-05-01 10:00:00'", kind="bad_time"
        ) from error


def _restore(statement: Restore, session: Session) -> Result:
    table = session.table(statement.table)
    to = statement.to
    version = to if isinstance(to, int) else table.version_as_of(session.in_zone(to))
    return Result(pa.table({"version": pa.array([table.restore(version)], pa.int64())}))


def _parse_history(stream: TokenStream) -> DescribeHistory:
    table = parse_table_name(stream)
    return DescribeHistory(table, stream.integer("a number") if stream.take("LIMIT") else None)


def _history(statement: DescribeHistory, session: Session) -> Result:
    """Returns the history newest first, as DESCRIBE HISTORY elsewhere."""
    table = session.table(statement.table)
    return Result(history_table(table, newest_first=True).slice(0, statement.limit))


@dataclass(frozen=True)
class Reorg:
    """`iceberg_compatibility` is None for PURGE."""

    table: TableName
    iceberg_compatibility: int | None = None


def _parse_reorg(stream: TokenStream) -> Reorg:
    table = parse_table_name(stream)
    stream.need("APPLY", "(")
    if not stream.take("UPGRADE"):
        stream.need("PURGE", ")")
        return Reorg(table)
    stream.need("UNIFORM", "(", "ICEBERG_COMPAT_VERSION", "=")
    compatibility = stream.integer("a version")
    stream.need(")", ")")
    return Reorg(table, compatibility)


def _reorg(statement: Reorg, session: Session) -> Result:
    table = session.table(statement.table)
    if statement.iceberg_compatibility is None:
        return compacted(table.purge())
    written = upgrade_uniform(table, session.store.opener.of(table), statement.iceberg_compatibility)
    metrics = {name: [getattr(written, name)] for name in ("version", "files", "rows", "bytes")}
    return Result(pa.table({**metrics, "metadata": [str(written.metadata)]}))


KINDS: Final = (
    StatementKind(("OPTIMIZE",), Optimize, _parse_optimize, _optimize),
    StatementKind(("VACUUM",), Vacuum, _parse_vacuum, _vacuum),
    StatementKind(("RESTORE TABLE", "RESTORE"), Restore, _parse_restore, _restore),
    StatementKind(("DESC HISTORY", "DESCRIBE HISTORY"), DescribeHistory, _parse_history, _history),
    StatementKind(("REORG TABLE",), Reorg, _parse_reorg, _reorg),
)
