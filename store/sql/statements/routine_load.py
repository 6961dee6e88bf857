"""CREATE, ALTER, PAUSE, RESUME, STOP and SHOW ROUTINE LOAD (R1, R7). The server's load jobs run them."""

from __future__ import annotations

from typing import Final

from seqstore.store.sql.parse.load_jobs import (
    AlterRoutineLoad,
    ControlRoutineLoad,
    CreateRoutineLoad,
    ShowRoutineLoad,
    required,
)
from seqstore.store.sql.parse.load_parser import MERGE_TYPES, parse_clauses
from seqstore.store.sql.parse.statement_values import TableName
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import parse_like
from seqstore.store.sql.session.statement_kind import StatementKind


def _parse_create(stream: TokenStream) -> CreateRoutineLoad:
    job = parse_table_name(stream)
    table = stream.name("a table name") if stream.take("ON") else None
    merge_type = "APPEND"
    if stream.take("WITH"):
        merge_type = stream.take_one_of(*MERGE_TYPES) or stream.fail("MERGE, APPEND or DELETE")
    clauses = parse_clauses(stream, merge_type, commas=True)
    if clauses.delete_on is not None and merge_type != "MERGE":
        stream.refuse("not support DELETE ON clause when merge type is not MERGE.", "bad_load")  # R23
    if clauses.delete_on is None and merge_type == "MERGE":
        stream.refuse("Excepted DELETE ON clause when merge type is MERGE.", "bad_load")
    properties = stream.properties() if stream.take("PROPERTIES") else {}
    stream.need("FROM")
    source = stream.take_one_of("KAFKA", "FILES") or stream.fail("KAFKA or FILES")
    source_properties = stream.properties()
    comment = stream.string("a comment") if stream.take("COMMENT") else ""
    return CreateRoutineLoad(job, table, clauses, properties, source, source_properties, comment)


def _create(statement: CreateRoutineLoad, session: Session) -> Result:
    jobs = required(session.server.load_jobs, "CREATE ROUTINE LOAD")
    return jobs.create_routine(statement, _database(statement.job, session))


def _database(job: TableName | None, session: Session) -> str:
    return (job.database if job is not None else None) or session.current_database()


def _parse_alter(stream: TokenStream) -> AlterRoutineLoad:
    stream.need("FOR")
    job = parse_table_name(stream)
    clauses = parse_clauses(stream, commas=True)
    properties = stream.properties() if stream.take("PROPERTIES") else {}
    source, source_properties = "", {}
    if stream.take("FROM"):
        source = stream.take_one_of("KAFKA", "FILES") or stream.fail("KAFKA or FILES")
        source_properties = stream.properties()
    return AlterRoutineLoad(job, clauses, properties, source, source_properties)


def _alter(statement: AlterRoutineLoad, session: Session) -> Result:
    jobs = required(session.server.load_jobs, "ALTER ROUTINE LOAD")
    return jobs.alter_routine(statement, _database(statement.job, session))


def _parse_control(stream: TokenStream) -> ControlRoutineLoad:
    action = stream.tokens[0].text.upper()
    is_all = stream.tokens[1].text.upper() == "ALL"
    job = None
    if not is_all or stream.word() == "FOR":
        stream.need("FOR")
        job = parse_table_name(stream)
    return ControlRoutineLoad(action, job)


def _control(statement: ControlRoutineLoad, session: Session) -> Result:
    jobs = required(session.server.load_jobs, f"{statement.action} ROUTINE LOAD")
    return jobs.control_routine(statement, _database(statement.job, session))


def _parse_show(stream: TokenStream) -> ShowRoutineLoad:
    words = [token.text.upper() for token in stream.tokens[1 : stream.at]]
    listed = "CREATE" if "CREATE" in words else "TASKS" if "TASK" in words else "JOBS"
    is_all = "ALL" in words
    job = None
    if listed == "TASKS" and stream.take("WHERE"):
        stream.need("JOBNAME", "=")
        job = TableName(None, stream.string("a job name"))
    elif stream.take("FOR"):
        job = parse_table_name(stream)
    return ShowRoutineLoad(listed, job, is_all, parse_like(stream))


def _show(statement: ShowRoutineLoad, session: Session) -> Result:
    jobs = required(session.server.load_jobs, "SHOW ROUTINE LOAD")
    return jobs.show_routine(statement, _database(statement.job, session))


_ACTIONS: Final = tuple(
    f"{action} {scope}ROUTINE LOAD" for action in ("PAUSE", "RESUME", "STOP") for scope in ("", "ALL ")
)
_SHOWS: Final = ("SHOW ROUTINE LOAD", "SHOW ALL ROUTINE LOAD", "SHOW ROUTINE LOAD TASK",
                 "SHOW CREATE ROUTINE LOAD", "SHOW CREATE ALL ROUTINE LOAD")  # fmt: skip
KINDS: Final = (
    StatementKind(("CREATE ROUTINE LOAD",), CreateRoutineLoad, _parse_create, _create),
    StatementKind(("ALTER ROUTINE LOAD",), AlterRoutineLoad, _parse_alter, _alter),
    StatementKind(_ACTIONS, ControlRoutineLoad, _parse_control, _control),
    StatementKind(_SHOWS, ShowRoutineLoad, _parse_show, _show),
)
