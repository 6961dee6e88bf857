"""Broker loads, routine loads and SHOW STREAM LOAD (B1, B12, B17, R1, R7, LS15).

The server's load jobs run the statements of broker and routine loads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from operator import methodcaller
from typing import Any, ClassVar, Final, TypeVar

from seqstore.store.catalog import catalog
from seqstore.store.catalog.load_history import PastLoad, loads_of
from seqstore.store.catalog.transaction_record import check_client_label
from seqstore.store.sql.parse import load_jobs as sql
from seqstore.store.sql.parse.load_jobs import LoadJobs, required
from seqstore.store.sql.parse.statement_values import TableName
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import parse_database, parse_like, parse_limit
from seqstore.store.sql.session.statement_kind import StatementKind

S = TypeVar("S")
_SOURCES: Final = ("BROKER", "S3", "HDFS", "LOCAL")


def _parse_label(stream: TokenStream) -> sql.LoadLabel:
    *before, label = stream.dotted_name("label")
    check_client_label(label)
    descriptions = tuple(stream.enclosed(_parse_description, " behind the data description"))
    if len({description.clauses.merge_type for description in descriptions}) > 1:
        stream.refuse("merge type in all statement must be the same.", "bad_load")  # B5
    source = broker = ""
    source_properties: dict[str, str] = {}
    if stream.take("WITH"):
        source = stream.take_one_of(*_SOURCES) or stream.fail("BROKER, S3, HDFS or LOCAL")
        if source == "BROKER" and stream.word() != "(":
            broker = stream.word_or_string("a broker name")
        if stream.word() == "(":
            source_properties = stream.properties()
    properties = stream.properties() if stream.take("PROPERTIES") else {}
    comment = stream.string("a comment") if stream.take("COMMENT") else ""
    database = before[-1] if before else None
    given = (source, broker, source_properties, properties, comment)
    return sql.LoadLabel(database, label, descriptions, *given)


def _parse_description(stream: TokenStream) -> sql.DataDescription:
    merge_type = stream.take_one_of(*_MERGE_TYPES) or "APPEND"
    stream.need("DATA", "INFILE")
    paths = stream.enclosed(lambda each: each.string("a path"))
    is_negative = stream.take("NEGATIVE")
    stream.need("INTO", "TABLE")
    table = stream.name("a table name")
    clauses = _parse_clauses(stream, merge_type, commas=False)
    properties = stream.properties() if stream.take("PROPERTIES") else {}
    return sql.DataDescription(tuple(paths), table, clauses, properties, is_negative)


def _kind(
    starts: tuple[str, ...],
    statement: type[S],
    parse: Callable[[TokenStream], S],
    method: Callable[[LoadJobs], Callable[[S, str], Result]],
) -> StatementKind[S, Session]:
    """Builds the kind of a statement that a method of the server's load jobs runs."""

    def run(statement: S, session: Session) -> Result:
        words = starts[0]
        if isinstance(statement, sql.ControlRoutineLoad):
            words = f"{statement.action} ROUTINE LOAD"
        jobs = required(session.server.load_jobs, words)
        named = getattr(statement, "job", statement)  # statements of routine loads have the database of a job
        return method(jobs)(statement, getattr(named, "database", None) or session.current_database())

    return StatementKind(starts, statement, parse, run)


def _parse_show_load(stream: TokenStream) -> sql.ShowLoad:
    database = parse_database(stream)
    label_filter = _parse_label_filter(stream)
    order = stream.listed(_parse_order) if stream.take("ORDER", "BY") else []
    limit, offset = parse_limit(stream)
    return sql.ShowLoad(database, label_filter, limit, offset, tuple(order))


def _parse_order(stream: TokenStream) -> tuple[str, bool]:
    """Parses a column of SHOW LOAD, and whether its largest value is the first."""
    column = stream.name("a column of SHOW LOAD")
    return column, stream.take_one_of("ASC", "DESC") == "DESC"


def _parse_create(stream: TokenStream) -> sql.CreateRoutineLoad:
    job = parse_table_name(stream)
    table = stream.name("a table name") if stream.take("ON") else None
    merge_type = "APPEND"
    if stream.take("WITH"):
        merge_type = stream.take_one_of(*_MERGE_TYPES) or stream.fail("MERGE, APPEND or DELETE")
    clauses = _parse_clauses(stream, merge_type, commas=True)
    if clauses.delete_on is not None and merge_type != "MERGE":
        stream.refuse("not support DELETE ON clause when merge type is not MERGE.", "bad_load")  # R23
    if clauses.delete_on is None and merge_type == "MERGE":
        stream.refuse("Excepted DELETE ON clause when merge type is MERGE.", "bad_load")
    properties = stream.properties() if stream.take("PROPERTIES") else {}
    stream.need("FROM")
    source = stream.take_one_of(*_ROUTINE_SOURCES) or stream.fail("KAFKA, FILES or DELTA")
    source_properties = stream.properties()
    comment = stream.string("a comment") if stream.take("COMMENT") else ""
    return sql.CreateRoutineLoad(job, table, clauses, properties, source, source_properties, comment)


def _parse_alter(stream: TokenStream) -> sql.AlterRoutineLoad:
    stream.need("FOR")
    job = parse_table_name(stream)
    clauses = _parse_clauses(stream, commas=True)
    properties = stream.properties() if stream.take("PROPERTIES") else {}
    source, source_properties = "", {}
    if stream.take("FROM"):
        source = stream.take_one_of(*_ROUTINE_SOURCES) or stream.fail("KAFKA, FILES or DELTA")
        source_properties = stream.properties()
    return sql.AlterRoutineLoad(job, clauses, properties, source, source_properties)


def _parse_control(stream: TokenStream) -> sql.ControlRoutineLoad:
    action = stream.tokens[0].text.upper()
    is_all = stream.tokens[1].text.upper() == "ALL"
    job = None
    if not is_all or stream.word() == "FOR":
        stream.need("FOR")
        job = parse_table_name(stream)
    return sql.ControlRoutineLoad(action, job)


def _parse_show_routine(stream: TokenStream) -> sql.ShowRoutineLoad:
    words = [token.text.upper() for token in stream.tokens[1 : stream.at]]
    listed = "CREATE" if "CREATE" in words else "TASKS" if "TASK" in words else "JOBS"
    job = None
    if listed == "TASKS" and stream.take("WHERE"):
        stream.need("JOBNAME", "=")
        job = TableName(None, stream.string("a job name"))
    elif stream.take("FOR"):
        job = parse_table_name(stream)
    return sql.ShowRoutineLoad(listed, job, "ALL" in words, parse_like(stream))


_ROUTINE_ACTIONS: Final = tuple(
    f"{action} {scope}ROUTINE LOAD" for action in ("PAUSE", "RESUME", "STOP") for scope in ("", "ALL ")
)
_ROUTINE_SHOWS: Final = ("SHOW ROUTINE LOAD", "SHOW ALL ROUTINE LOAD", "SHOW ROUTINE LOAD TASK",
                 "SHOW CREATE ROUTINE LOAD", "SHOW CREATE ALL ROUTINE LOAD")  # fmt: skip


_HEADINGS: Final = ("TransactionId", "Label", "Db", "Table", "Status", "Message", "TotalRows", "LoadedRows",
                    "FilteredRows", "StartTime", "FinishTime")  # fmt: skip
_STATUSES: Final = {"VISIBLE": "Success", "ABORTED": "Fail"}


@dataclass(frozen=True)
class ShowStreamLoad:
    """SHOW STREAM LOAD [FROM db] [WHERE LABEL = .. | LABEL LIKE .. [AND STATUS = ..]] [LIMIT n]."""

    is_listed_by_table: ClassVar = True
    database: str | None
    filter: sql.LabelFilter
    limit: int | None


def _parse_show_stream(stream: TokenStream) -> ShowStreamLoad:
    database = parse_database(stream)
    wanted = _parse_filter(stream)
    limit = stream.integer("a number of rows") if stream.take("LIMIT") else None
    return ShowStreamLoad(database, wanted, limit)


def _parse_filter(stream: TokenStream) -> sql.LabelFilter:
    label, is_pattern, status = None, False, None
    if not stream.take("WHERE"):
        return sql.LabelFilter()
    while True:
        word = stream.take_one_of("LABEL", "STATUS") or stream.fail("LABEL or STATUS")
        if word == "STATUS":
            stream.need("=")
            status = stream.string("a status").upper()
        else:
            is_pattern = (stream.take_one_of("=", "LIKE") or stream.fail("'=' or LIKE")) == "LIKE"
            label = stream.string("a label")
        if not stream.take("AND"):
            return sql.LabelFilter(label, is_pattern, status)


def _show_stream(statement: ShowStreamLoad, session: Session) -> Result:
    database = statement.database or session.current_database()
    with session.store.catalog.read() as tx:
        loads = loads_of(tx, catalog.require_database(tx, database), "STREAM LOAD")
    may_load = session.table_filter("LOAD")
    lines = [
        _line(database, load)
        for load in loads
        if may_load(database, load.transaction.table.partition(".")[2])
    ]
    wanted = statement.filter
    matches = wanted.label_matcher()
    chosen = [
        line for line in lines if matches(line[1] or "") and wanted.state in (None, (line[4] or "").upper())
    ]
    return text_rows(_HEADINGS, chosen[: statement.limit])


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


_MERGE_TYPES: Final = ("MERGE", "APPEND", "DELETE")
_ROUTINE_SOURCES: Final = ("KAFKA", "FILES", "DELTA")
# Words that end an expression. Most of them alone may name columns: `WHERE comment = 'x' FORMAT AS "csv"`.
_STOPS: Final = ("WHERE", "FROM", "WITH", "PRECEDING FILTER", "DELETE ON", "ORDER BY", "PROPERTIES (",
                 "SET (", "PARTITION (", "PARTITIONS (", "COLUMNS (", "COLUMNS TERMINATED", "COLUMNS FROM",
                 "COMMENT ''", "LINES TERMINATED", "FORMAT AS", "COMPRESS_TYPE AS")  # fmt: skip


def _parse_clauses(stream: TokenStream, merge_type: str = "APPEND", *, commas: bool) -> sql.LoadClauses:
    """Reads clauses up to the first word that starts none; `commas` may separate them."""
    clauses = sql.LoadClauses(merge_type)
    while (changed := _clause(stream, clauses)) is not None:
        clauses = changed
        if commas:
            stream.take(",")
    return clauses


def _clause(stream: TokenStream, clauses: sql.LoadClauses) -> sql.LoadClauses | None:
    for words, field, parse in _CLAUSES:
        at = stream.at
        if stream.take(*words):
            if words == ("COLUMNS",) and stream.word() != "(":
                stream.at = at
                return None
            value: dict[str, Any] = {field: parse(stream)}
            return replace(clauses, **value)
    if stream.word() == "(" and not clauses.columns:
        return replace(clauses, columns=_items(stream))
    return None


def _items(stream: TokenStream) -> tuple[str, ...]:
    return tuple(item.strip("`") if "=" not in item else item for item in stream.enclosed(_item_text))


def _item_text(stream: TokenStream, *stops: str) -> str:
    start, end = stream.slice_to(*stops)
    return stream.text[start:end]


def _expression(stream: TokenStream) -> str:
    return _item_text(stream, *_STOPS)


def _set_item(stream: TokenStream) -> tuple[str, str]:
    name = stream.name("a column name")
    stream.need("=")
    return name, _item_text(stream)


def _parse_names(stream: TokenStream) -> tuple[str, ...]:
    return tuple(stream.names("a name"))


_separator: Final = methodcaller("string", "a separator")
_parse_name: Final = methodcaller("word_or_string", "a name")
_CLAUSES: Final[tuple[tuple[tuple[str, ...], str, Callable[[TokenStream], Any]], ...]] = (
    (("COLUMNS", "TERMINATED", "BY"), "column_separator", _separator),
    (("COLUMNS", "FROM", "PATH", "AS"), "columns_from_path", _parse_names),
    (("LINES", "TERMINATED", "BY"), "line_delimiter", _separator),
    (("FORMAT", "AS"), "format", _parse_name),
    (("COMPRESS_TYPE", "AS"), "compress_type", _parse_name),
    (("COLUMNS",), "columns", _items),
    (("PARTITION",), "partitions", _parse_names),
    (("PARTITIONS",), "partitions", _parse_names),
    (("SET",), "set_columns", lambda stream: tuple(stream.enclosed(_set_item))),
    (("PRECEDING", "FILTER"), "preceding_filter", _expression),
    (("WHERE",), "where", _expression),
    (("DELETE", "ON"), "delete_on", _expression),
    (("ORDER", "BY"), "order_by", _parse_name),
)


def _parse_label_filter(stream: TokenStream) -> sql.LabelFilter:
    """Parses `[WHERE LABEL = '..' | LABEL LIKE '..' [AND STATE = '..']]`, in either order."""
    found = sql.LabelFilter()
    if not stream.take("WHERE"):
        return found
    while True:
        word = stream.take_one_of("LABEL", "STATE") or stream.fail("LABEL or STATE")
        sign = stream.take_one_of("=", "LIKE") or stream.fail("'=' or LIKE")
        value = stream.string("a value")
        if word == "LABEL":
            found = replace(found, label=value, is_pattern=sign == "LIKE")
        else:
            found = replace(found, state=value.upper())
        if not stream.take("AND"):
            return found


KINDS: Final = (
    _kind(("LOAD LABEL",), sql.LoadLabel, _parse_label, lambda jobs: jobs.submit),
    _kind(("SHOW LOAD",), sql.ShowLoad, _parse_show_load, lambda jobs: jobs.show),
    _kind(
        ("CANCEL LOAD",),
        sql.CancelLoad,
        lambda stream: sql.CancelLoad(parse_database(stream), _parse_label_filter(stream)),
        lambda jobs: jobs.cancel,
    ),
    _kind(("CREATE ROUTINE LOAD",), sql.CreateRoutineLoad, _parse_create, lambda jobs: jobs.create_routine),
    _kind(("ALTER ROUTINE LOAD",), sql.AlterRoutineLoad, _parse_alter, lambda jobs: jobs.alter_routine),
    _kind(_ROUTINE_ACTIONS, sql.ControlRoutineLoad, _parse_control, lambda jobs: jobs.control_routine),
    _kind(_ROUTINE_SHOWS, sql.ShowRoutineLoad, _parse_show_routine, lambda jobs: jobs.show_routine),
    StatementKind(("SHOW STREAM LOAD",), ShowStreamLoad, _parse_show_stream, _show_stream),
)
