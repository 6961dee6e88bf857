"""EXPORT TABLE, SHOW EXPORT and CANCEL EXPORT: the rows of one version of a table as files.

In a server the job runs in a thread, with a session of its own; a session without a server waits for it.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from seqstore.store.catalog.job_record import NO_OWNER
from seqstore.store.catalog.transaction_record import check_client_label, now_ms
from seqstore.store.errors import InvalidInputError, StoreError, UnavailableError
from seqstore.store.export.job import EXPORTING, FINISHED, ExportJob, ExportJobs
from seqstore.store.export.outfile import OutFile, Written, discard, write_rows
from seqstore.store.runtime import cancellation
from seqstore.store.runtime.process_identity import this_process
from seqstore.store.runtime.secrets.words import masked_uri
from seqstore.store.sql.parse.load_jobs import LabelFilter
from seqstore.store.sql.parse.statement_values import Query, TableName
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.places import require_place
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import parse_database
from seqstore.store.sql.session.statement_kind import StatementKind, parse

_TIMEOUT_SECONDS: Final = 7200  # as in Doris
_OWN: Final = ("label", "columns", "format", "timeout")
_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True)
class ExportTable:
    """EXPORT TABLE t [WHERE condition] TO 'uri' [PROPERTIES (..)]."""

    exported: TableName
    where: str
    uri: str = field(repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


def _parse_export(stream: TokenStream) -> ExportTable:
    table = parse_table_name(stream)
    if stream.word() in ("PARTITION", "PARTITIONS"):
        stream.refuse("EXPORT TABLE .. PARTITION: name the rows by WHERE")
    where = ""
    if stream.take("WHERE"):
        start, end = stream.slice_to("TO ''")
        where = stream.text[start:end]
    stream.need("TO")
    uri = stream.string("a URI such as file:///directory/prefix")
    properties = stream.properties() if stream.take("PROPERTIES") else {}
    if stream.word() == "WITH":
        stream.refuse("WITH: name the endpoint and the keys by the properties s3.endpoint, s3.access_key, ..")
    return ExportTable(table, where, uri, {name.lower(): value for name, value in properties.items()})


def _export(statement: ExportTable, session: Session) -> None:
    given = statement.properties
    form = given.get("format", "csv").lower()
    out = OutFile.of(statement.uri, form, {name: value for name, value in given.items() if name not in _OWN})
    require_place(session, out.directory)
    timeout = given.get("timeout", str(_TIMEOUT_SECONDS))
    if not timeout.isascii() or not timeout.isdigit() or not int(timeout):
        raise InvalidInputError(
            f"property 'timeout' is {timeout!r}; expected a number of seconds", kind="bad_property"
        )
    table = session.table(statement.exported)
    names = [name.strip().strip("`") for name in given.get("columns", "").split(",") if name.strip()]
    columns = [table.schema.column(name).name for name in names] or list(table.schema.names)
    job = ExportJob(
        table.database,
        table.name.partition(".")[2],
        check_client_label(given.get("label", f"export_{uuid.uuid4()}")),
        masked_uri(statement.uri),
        form,
        ", ".join(names),
        statement.where,
        EXPORTING,
        this_process(),
        now_ms(),
        int(timeout),
    )
    query = _query(job, columns)
    jobs = ExportJobs(session.store.catalog)
    jobs.forget_ended(session.store.settings.label_keep_seconds)
    job_id = jobs.add(job)
    run = _Run(jobs, job_id, query, out)
    if session.server.connection_id:
        # With the limits of its user; the client may leave.
        server = replace(session.server, has_client=lambda _is_cancelled: True)
        own = Session(session.store, job.db, user=session.user, server=server)
        thread = threading.Thread(target=run.quietly, args=(own,), name=f"export-{job_id}", daemon=True)
        thread.start()
    else:
        run.within(session)


def _query(job: ExportJob, columns: list[str]) -> Query:
    """Returns the query whose rows are exported; raises InvalidInputError for a condition that is none."""
    listed = ", ".join(f"`{name}`" for name in columns)
    condition = f" WHERE {job.where}" if job.where else ""
    parsed = parse(f"SELECT {listed} FROM `{job.db}`.`{job.table}`{condition}")
    if len(parsed) != 1 or not isinstance(parsed[0], Query):
        raise InvalidInputError(f"{job.where!r} is no condition", kind="syntax")
    return replace(parsed[0], settings=(("query_timeout", str(job.timeout_seconds)),))


@dataclass(frozen=True)
class _Run:
    """The work of one job."""

    jobs: ExportJobs
    job_id: int
    query: Query
    out: OutFile

    def quietly(self, session: Session) -> None:
        """Runs the job in a thread; its record has the outcome."""
        try:
            with session:
                self.within(session)
        except (StoreError, OSError):
            return

    def within(self, session: Session) -> None:
        """Writes the files and ends the job.

        Raises:
            StoreError: the rows cannot be read or written, or the job was cancelled; there are no files.
        """
        try:
            with session.stream(self.query) as reader:
                written = write_rows(reader, self.out, self._checker())
            if self.jobs.change(self.job_id, lambda job: _finished(job, written)).state != FINISHED:
                discard(self.out, written.names)  # cancelled at the last moment
                self._require_running()
        except BaseException as error:
            reason = error.message if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
            self.jobs.change(self.job_id, lambda job: job.cancelled(reason))
            raise

    def _checker(self) -> Callable[[], None]:
        looked = time.monotonic()

        def check() -> None:
            nonlocal looked
            cancellation.check()
            if time.monotonic() - looked < _LOOK_SECONDS:
                return
            looked = time.monotonic()
            self._require_running()

        return check

    def _require_running(self) -> None:
        """Raises UnavailableError when the job was cancelled or its time is over."""
        job = self.jobs.get(self.job_id)
        if job.has_ended:
            raise UnavailableError(f"export '{job.label}': {job.message}", kind="job_cancelled")
        if job.is_late:
            raise UnavailableError(f"timeout: it ran longer than {job.timeout_seconds} s", kind="timeout")


def _finished(job: ExportJob, written: Written) -> ExportJob:
    if job.has_ended:
        return job
    return replace(
        job, state=FINISHED, owner=NO_OWNER, finished_ms=now_ms(), files=written.files, rows=written.rows,
        bytes=written.bytes, url=written.url,
    )  # fmt: skip


@dataclass(frozen=True)
class ShowExport:
    """SHOW EXPORT [FROM db]."""

    database: str | None


def _show(statement: ShowExport, session: Session) -> Result:
    jobs = ExportJobs(session.store.catalog).all(statement.database or session.current_database())
    rows = [[show(job_id, job) for show in _COLUMNS.values()] for job_id, job in jobs.items()]
    return text_rows(list(_COLUMNS), rows)


def _time(unix_ms: int) -> str | None:
    return datetime.fromtimestamp(unix_ms / 1000).strftime("%Y-%m-%d %H:%M:%S") if unix_ms else None


def _task(job: ExportJob) -> str:
    return json.dumps(
        {"db": job.db, "tbl": job.table, "columns": job.columns, "where": job.where, "format": job.form}
    )


def _outfile(job: ExportJob) -> str | None:
    if not job.url:
        return None
    line = {
        "fileNumber": str(job.files),
        "totalRows": str(job.rows),
        "fileSize": str(job.bytes),
        "url": job.url,
    }
    return json.dumps([[line]])


_COLUMNS: Final[Mapping[str, Callable[[int, ExportJob], str | None]]] = {
    "JobId": lambda job_id, job: str(job_id),
    "Label": lambda _, job: job.label,
    "State": lambda _, job: job.state,
    "Progress": lambda _, job: "100%" if job.state == FINISHED else "0%",
    "TaskInfo": lambda _, job: _task(job),
    "Path": lambda _, job: job.path,
    "CreateTime": lambda _, job: _time(job.created_ms),
    "StartTime": lambda _, job: _time(job.created_ms),
    "FinishTime": lambda _, job: _time(job.finished_ms),
    "Timeout": lambda _, job: str(job.timeout_seconds),
    "ErrorMsg": lambda _, job: job.message or None,
    "OutfileInfo": lambda _, job: _outfile(job),
}


@dataclass(frozen=True)
class CancelExport:
    """CANCEL EXPORT [FROM db] WHERE LABEL = '..' | LABEL LIKE '..' | STATE = '..'."""

    database: str | None
    filter: LabelFilter


def _parse_cancel(stream: TokenStream) -> CancelExport:
    database = parse_database(stream)
    stream.need("WHERE")
    word = stream.take_one_of("LABEL", "STATE") or stream.fail("LABEL or STATE")
    sign = stream.take_one_of("=", "LIKE") if word == "LABEL" else stream.take_one_of("=")
    if not sign:
        stream.fail("'='" if word == "STATE" else "'=' or LIKE")
    text = stream.string("a value")
    if word == "STATE":
        return CancelExport(database, LabelFilter(state=text.upper()))
    return CancelExport(database, LabelFilter(text, sign == "LIKE"))


def _cancel(statement: CancelExport, session: Session) -> None:
    wanted = statement.filter
    matches = wanted.label_matcher()
    ExportJobs(session.store.catalog).cancel(
        statement.database or session.current_database(),
        lambda job: matches(job.label) and wanted.state in (None, job.state),
    )


KINDS: Final = (
    StatementKind(("EXPORT TABLE",), ExportTable, _parse_export, _export),
    StatementKind(("SHOW EXPORT",), ShowExport, lambda stream: ShowExport(parse_database(stream)), _show),
    StatementKind(("CANCEL EXPORT",), CancelExport, _parse_cancel, _cancel),
)
