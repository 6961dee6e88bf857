"""SHOW STREAM LOAD (LS15)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from seqstore.store.catalog import catalog
from seqstore.store.catalog.load_history import PastLoad, loads_of
from seqstore.store.sql.parse.load_jobs import LabelFilter
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import parse_database
from seqstore.store.sql.session.statement_kind import StatementKind

_HEADINGS: Final = ("TransactionId", "Label", "Db", "Table", "Status", "Message", "TotalRows", "LoadedRows",
                    "FilteredRows", "StartTime", "FinishTime")  # fmt: skip
_STATUSES: Final = {"VISIBLE": "Success", "ABORTED": "Fail"}


@dataclass(frozen=True)
class ShowStreamLoad:
    """SHOW STREAM LOAD [FROM db] [WHERE LABEL = .. | LABEL LIKE .. [AND STATUS = ..]] [LIMIT n]."""

    database: str | None
    filter: LabelFilter
    limit: int | None


def _parse(stream: TokenStream) -> ShowStreamLoad:
    database = parse_database(stream)
    wanted = _parse_filter(stream)
    limit = stream.integer("a number of rows") if stream.take("LIMIT") else None
    return ShowStreamLoad(database, wanted, limit)


def _parse_filter(stream: TokenStream) -> LabelFilter:
    label, is_pattern, status = None, False, None
    if not stream.take("WHERE"):
        return LabelFilter()
    while True:
        word = stream.take_one_of("LABEL", "STATUS") or stream.fail("LABEL or STATUS")
        if word == "STATUS":
            stream.need("=")
            status = stream.string("a status").upper()
        else:
            is_pattern = (stream.take_one_of("=", "LIKE") or stream.fail("'=' or LIKE")) == "LIKE"
            label = stream.string("a label")
        if not stream.take("AND"):
            return LabelFilter(label, is_pattern, status)


def _show(statement: ShowStreamLoad, session: Session) -> Result:
    database = statement.database or session.current_database()
    with session.store.catalog.read() as tx:
        loads = loads_of(tx, catalog.require_database(tx, database), "STREAM LOAD")
    lines = [_line(database, load) for load in loads]
    wanted = statement.filter
    pattern = _pattern(wanted)
    chosen = [
        line
        for line in lines
        if pattern.fullmatch(line[1] or "") and wanted.state in (None, (line[4] or "").upper())
    ]
    return text_rows(_HEADINGS, chosen[: statement.limit])


def _pattern(wanted: LabelFilter) -> re.Pattern[str]:
    if wanted.label is None:
        return re.compile(".*", re.DOTALL)
    if not wanted.is_pattern:
        return re.compile(re.escape(wanted.label))
    parts = (".*" if c == "%" else "." if c == "_" else re.escape(c) for c in wanted.label)
    return re.compile("".join(parts), re.DOTALL)


def _line(database: str, load: PastLoad) -> tuple[str | None, ...]:
    record, metrics = load.transaction, load.metrics
    counts: tuple[int | None, ...] = (None, None, None)
    if metrics is not None:
        counts = (metrics.rows_total, metrics.rows_loaded, metrics.rows_filtered)
    return (
        str(record.id),
        record.label,
        database,
        record.table.partition(".")[2],
        _STATUSES.get(record.status, record.status),
        record.reason or ("OK" if record.status == "VISIBLE" else ""),
        *(None if count is None else str(count) for count in counts),
        _time(record.begun_ms),
        _time(record.finished_ms),
    )


def _time(unix_ms: int) -> str | None:
    if not unix_ms:
        return None
    return datetime.fromtimestamp(unix_ms / 1000).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


KINDS: Final = (StatementKind(("SHOW STREAM LOAD",), ShowStreamLoad, _parse, _show),)
