"""CREATE TABLE .. FROM DELTA | ICEBERG. The server's load jobs run it: they read its files."""

from __future__ import annotations

from typing import Final

from seqstore.store.sql.parse.load_jobs import CreateTableFrom, required
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind


def _parse(stream: TokenStream) -> CreateTableFrom:
    if_not_exists = stream.word(-1) == "EXISTS"
    table = parse_table_name(stream)
    stream.need("FROM")
    form = stream.take_one_of("DELTA", "ICEBERG") or stream.fail("DELTA or ICEBERG")
    path = stream.string("the path of the table")
    key: list[str] = []
    sequence, version = "", None
    properties: dict[str, str] = {}
    while not stream.is_done:
        if not key and (stream.take("UNIQUE", "KEY") or stream.take("KEY")):
            key = stream.names("a key column")
        elif not sequence and stream.take("SEQUENCE"):
            stream.need("(")
            sequence = stream.name("the column of the sequence")
            stream.need(")")
        elif version is None and stream.take("VERSION", "AS", "OF"):
            version = stream.integer("a version of the Delta table, or the id of a snapshot of Iceberg")
        elif not properties and stream.take("PROPERTIES"):
            properties = stream.properties()
        else:
            stream.fail("KEY (columns), SEQUENCE (column), VERSION AS OF, PROPERTIES or the end")
    if not key:
        stream.fail("KEY (columns)")
    return CreateTableFrom(table, form, path, tuple(key), sequence, version, properties, if_not_exists)


def _run(statement: CreateTableFrom, session: Session) -> Result:
    jobs = required(session.server.load_jobs, f"CREATE TABLE .. FROM {statement.format}")
    name = session.full_name(statement.table)
    return jobs.create_table_from(statement, name, session.variables.zone)


KINDS: Final = (
    StatementKind(
        ("CREATE TABLE * FROM", "CREATE TABLE IF NOT EXISTS * FROM"), CreateTableFrom, _parse, _run
    ),
)
