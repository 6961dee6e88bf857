"""LOAD LABEL, SHOW LOAD and CANCEL LOAD (B1, B12, B17). The session's load jobs run them."""

from __future__ import annotations

from typing import Final

from seqstore.store.sql.parse.load_jobs import CancelLoad, DataDescription, LoadLabel, ShowLoad, required
from seqstore.store.sql.parse.load_parser import MERGE_TYPES, parse_clauses, parse_label_filter
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind

_SOURCES: Final = ("BROKER", "S3", "HDFS", "LOCAL")


def _parse_load(stream: TokenStream) -> LoadLabel:
    parts = stream.dotted_name("label")
    database = parts[-2] if len(parts) > 1 else None
    stream.need("(")
    descriptions = [_parse_description(stream)]
    while stream.take(","):
        descriptions.append(_parse_description(stream))
    if not stream.take(")"):
        stream.fail("',' or ')' behind the data description")
    if len({description.clauses.merge_type for description in descriptions}) > 1:
        stream.refuse("merge type in all statement must be the same.", "bad_load")  # B5
    source = broker = comment = ""
    source_properties: dict[str, str] = {}
    properties: dict[str, str] = {}
    if stream.take("WITH"):
        source = stream.take_one_of(*_SOURCES) or stream.fail("BROKER, S3, HDFS or LOCAL")
        if source == "BROKER" and stream.word() != "(":
            broker = stream.word_or_string("a broker name")
        if stream.word() == "(":
            source_properties = stream.properties()
    if stream.take("PROPERTIES"):
        properties = stream.properties()
    if stream.take("COMMENT"):
        comment = stream.string("a comment")
    made = tuple(descriptions)
    return LoadLabel(database, parts[-1], made, source, broker, source_properties, properties, comment)


def _parse_description(stream: TokenStream) -> DataDescription:
    merge_type = stream.take_one_of(*MERGE_TYPES) or "APPEND"
    stream.need("DATA", "INFILE")
    stream.need("(")
    paths = [stream.string("a path")]
    while stream.take(","):
        paths.append(stream.string("a path"))
    if not stream.take(")"):
        stream.fail("',' or ')'")
    is_negative = stream.take("NEGATIVE")
    stream.need("INTO", "TABLE")
    table = stream.name("a table name")
    clauses = parse_clauses(stream, merge_type, commas=False)
    properties = stream.properties() if stream.take("PROPERTIES") else {}
    return DataDescription(tuple(paths), table, clauses, properties, is_negative)


def _load(statement: LoadLabel, session: Session) -> Result:
    database = statement.database or session.current_database()
    return required(session.server.load_jobs, "LOAD LABEL").submit(statement, database)


def _parse_from(stream: TokenStream) -> str | None:
    return stream.name("a database name") if stream.take_one_of("FROM", "IN") else None


def _parse_show(stream: TokenStream) -> ShowLoad:
    database = _parse_from(stream)
    label_filter = parse_label_filter(stream)
    order: list[tuple[str, bool]] = []
    if stream.take("ORDER", "BY"):
        order.append(_parse_order(stream))
        while stream.take(","):
            order.append(_parse_order(stream))
    limit, offset = None, 0
    if stream.take("LIMIT"):
        limit = stream.integer("a number of rows")
        if stream.take(","):
            offset, limit = limit, stream.integer("a number of rows")
        elif stream.take("OFFSET"):
            offset = stream.integer("a number of rows")
    return ShowLoad(database, label_filter, limit, offset, tuple(order))


def _parse_order(stream: TokenStream) -> tuple[str, bool]:
    """A column of SHOW LOAD, and whether its largest value comes first."""
    column = stream.name("a column of SHOW LOAD")
    return column, stream.take_one_of("ASC", "DESC") == "DESC"


def _show(statement: ShowLoad, session: Session) -> Result:
    database = statement.database or session.current_database()
    return required(session.server.load_jobs, "SHOW LOAD").show(statement, database)


def _parse_cancel(stream: TokenStream) -> CancelLoad:
    return CancelLoad(_parse_from(stream), parse_label_filter(stream))


def _cancel(statement: CancelLoad, session: Session) -> Result:
    database = statement.database or session.current_database()
    return required(session.server.load_jobs, "CANCEL LOAD").cancel(statement, database)


KINDS: Final = (
    StatementKind(("LOAD LABEL",), LoadLabel, _parse_load, _load),
    StatementKind(("SHOW LOAD",), ShowLoad, _parse_show, _show),
    StatementKind(("CANCEL LOAD",), CancelLoad, _parse_cancel, _cancel),
)
