"""LOAD LABEL, SHOW LOAD and CANCEL LOAD (B1, B12, B17). The server's load jobs run them."""

from __future__ import annotations

from typing import Final

from seqstore.store.sql.parse.load_jobs import CancelLoad, DataDescription, LoadLabel, ShowLoad, required
from seqstore.store.sql.parse.load_parser import MERGE_TYPES, parse_clauses, parse_label_filter
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import parse_database
from seqstore.store.sql.session.statement_kind import StatementKind

_SOURCES: Final = ("BROKER", "S3", "HDFS", "LOCAL")


def _parse_load(stream: TokenStream) -> LoadLabel:
    *before, label = stream.dotted_name("label")
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
    return LoadLabel(database, label, descriptions, source, broker, source_properties, properties, comment)


def _parse_description(stream: TokenStream) -> DataDescription:
    merge_type = stream.take_one_of(*MERGE_TYPES) or "APPEND"
    stream.need("DATA", "INFILE")
    paths = stream.enclosed(lambda each: each.string("a path"))
    is_negative = stream.take("NEGATIVE")
    stream.need("INTO", "TABLE")
    table = stream.name("a table name")
    clauses = parse_clauses(stream, merge_type, commas=False)
    properties = stream.properties() if stream.take("PROPERTIES") else {}
    return DataDescription(tuple(paths), table, clauses, properties, is_negative)


def _load(statement: LoadLabel, session: Session) -> Result:
    database = statement.database or session.current_database()
    return required(session.server.load_jobs, "LOAD LABEL").submit(statement, database)


def _parse_show(stream: TokenStream) -> ShowLoad:
    database = parse_database(stream)
    label_filter = parse_label_filter(stream)
    order = stream.listed(_parse_order) if stream.take("ORDER", "BY") else []
    limit, offset = None, 0
    if stream.take("LIMIT"):
        limit = stream.integer("a number of rows")
        if stream.take(","):
            offset, limit = limit, stream.integer("a number of rows")
        elif stream.take("OFFSET"):
            offset = stream.integer("a number of rows")
    return ShowLoad(database, label_filter, limit, offset, tuple(order))


def _parse_order(stream: TokenStream) -> tuple[str, bool]:
    """Parses a column of SHOW LOAD, and whether its largest value is the first."""
    column = stream.name("a column of SHOW LOAD")
    return column, stream.take_one_of("ASC", "DESC") == "DESC"


def _show(statement: ShowLoad, session: Session) -> Result:
    database = statement.database or session.current_database()
    return required(session.server.load_jobs, "SHOW LOAD").show(statement, database)


def _parse_cancel(stream: TokenStream) -> CancelLoad:
    return CancelLoad(parse_database(stream), parse_label_filter(stream))


def _cancel(statement: CancelLoad, session: Session) -> Result:
    database = statement.database or session.current_database()
    return required(session.server.load_jobs, "CANCEL LOAD").cancel(statement, database)


KINDS: Final = (
    StatementKind(("LOAD LABEL",), LoadLabel, _parse_load, _load),
    StatementKind(("SHOW LOAD",), ShowLoad, _parse_show, _show),
    StatementKind(("CANCEL LOAD",), CancelLoad, _parse_cancel, _cancel),
)
