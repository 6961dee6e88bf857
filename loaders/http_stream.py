"""SQL over an upload: `INSERT INTO t [WITH LABEL l] [(columns)] SELECT ... FROM http_stream(...) [WHERE
...]` (LH26).

The statement is turned into the headers of a stream load, which does the work:

1. The properties of `http_stream` are headers of the same name.
2. Each item of SELECT is a derived column of the target in its place; `*` means the fields in their order.
3. Fields of CSV are c1, c2, ...: as many as the first line has. Fields of JSON are the names that are used,
   those of files are their columns.
4. WHERE is the load's `where`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

from seqstore.loaders.compress import open_compressed
from seqstore.loaders.expressions import parse
from seqstore.loaders.headers import StreamLoadOptions, parse_headers
from seqstore.loaders.prefixed_body import PrefixedBody
from seqstore.loaders.reply import StreamLoadReply, refusal
from seqstore.loaders.stream_load import stream_load
from seqstore.store.errors import InvalidInputError, StoreError
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.store import Store

# The parts of a statement, read one behind the other: one expression for all of it would try every place of
# `from http_stream` with every place of `)`, under the interpreter lock.
_HEAD: Final = re.compile(
    r"\s*insert\s+into\s+(?P<table>[\w`.]+)\s*(?:with\s+label\s+(?P<label>[\w`:-]+)\s*)?"
    r"(?:\((?P<columns>[^()]*)\)\s*)?select\s",
    re.IGNORECASE,
)
_FROM: Final = re.compile(r"\sfrom\s+http_stream\s*\(", re.IGNORECASE)
_PROPERTY: Final = re.compile(
    r"""\s*(["'])(?P<name>[\w.]+)\1\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)')\s*(?:,|(?=\)))"""
)
_WHERE: Final = re.compile(r"where\s", re.IGNORECASE)
_STATEMENT_MAX: Final = 100_000
_HEAD_BYTES: Final = 1 << 20


def table_of(sql: str) -> tuple[str, str]:
    """Returns the database and table that a statement writes, for the check of privileges.

    Raises:
        InvalidInputError: the statement is of another kind.
    """
    return _table_of(_parse_statement(sql))


def _table_of(statement: _Statement) -> tuple[str, str]:
    database, dot, table = statement.table.replace("`", "").partition(".")
    if not dot:
        raise InvalidInputError("sql: name the table as database.table", kind="bad_header")
    return database, table


def http_stream(
    store: Store,
    sql: str,
    body: BinaryIO,
    headers: Mapping[str, str],
    *,
    turn: AbstractContextManager[Any] | None = None,
) -> StreamLoadReply:
    """Loads a body by a statement; a user's mistake is a refusal, never an exception.

    Args:
        headers: of the request; the properties of the statement have precedence.
        turn: see `stream_load`.
    """
    try:
        statement = _parse_statement(sql)
        database, table = _table_of(statement)
        given = _headers(statement, headers)
        options = parse_headers(given)
        if options.avro is not None:
            raise InvalidInputError(
                f"sql: http_stream does not read {options.avro.format}; send the body by a stream load",
                kind="not_supported",
            )
        plain = open_compressed(body, options.compression)
        given.pop("compress_type", None)
        targets = store.table(f"{database}.{table}").schema.names
        given["columns"], body = _columns(statement, options, targets, plain)
    except StoreError as error:
        return refusal(headers, error)
    return stream_load(store, database, table, body, given, turn=turn)


@dataclass(frozen=True)
class _Statement:
    """The parts of a statement; those that it does not have are empty."""

    table: str
    label: str
    columns: str
    items: str
    properties: dict[str, str]
    where: str


def _parse_statement(sql: str) -> _Statement:
    head = _HEAD.match(sql) if len(sql) <= _STATEMENT_MAX else None
    source = _FROM.search(sql, head.end() - 1) if head is not None else None
    items = sql[head.end() : source.start()].strip() if head is not None and source is not None else ""
    if head is None or source is None or not items:
        raise _not_parsed(sql)
    properties, at = _properties(sql, source.end())
    rest = sql[at:].strip().removesuffix(";").strip()
    where = _WHERE.match(rest)
    if rest and where is None:
        raise _not_parsed(sql)
    condition = rest[where.end() :].strip() if where is not None else ""
    return _Statement(
        head["table"], (head["label"] or "").strip("`"), head["columns"] or "", items, properties, condition
    )


def _not_parsed(sql: str) -> InvalidInputError:
    return InvalidInputError(
        "sql: expected INSERT INTO db.table [WITH LABEL label] [(columns)] SELECT ... FROM "
        f'http_stream("format" = "csv", ...) [WHERE ...], found {sql[:200]!r}',
        kind="bad_header",
    )


def _properties(sql: str, at: int) -> tuple[dict[str, str], int]:
    """Returns the pairs in the parentheses that begin before `at`, and the offset behind them."""
    found: dict[str, str] = {}
    while (match := _PROPERTY.match(sql, at)) is not None:
        found[match["name"].lower()] = match["double"] or match["single"] or ""
        at = match.end()
    rest = sql[at:].lstrip()
    if not rest.startswith(")"):
        raise InvalidInputError(
            f'sql: expected "name" = "value" in http_stream, found {rest[:100]!r}', kind="bad_header"
        )
    return found, len(sql) - len(rest) + 1


def _headers(statement: _Statement, headers: Mapping[str, str]) -> dict[str, str]:
    given = {name: value for name, value in headers.items() if name not in ("sql", "columns", "where")}
    given |= statement.properties
    if statement.label:
        given["label"] = statement.label
    if statement.where:
        given["where"] = statement.where
    return given


def _columns(
    statement: _Statement, options: StreamLoadOptions, targets: list[str], body: BinaryIO
) -> tuple[str, BinaryIO]:
    """Returns the `columns` header, and the body from its start."""
    if statement.columns:
        targets = [name.strip().strip("`") for name in statement.columns.split(",")]
    items = _split(statement.items)
    if items == ["*"]:
        return ", ".join(f"`{name}`" for name in targets), body
    if len(items) != len(targets):
        raise InvalidInputError(
            f"sql: {len(items)} values are selected for {len(targets)} columns ({', '.join(targets)})",
            kind="bad_header",
        )
    trees = [parse(item, "sql") for item in items]
    fields: list[str] = []
    if options.is_csv:
        count, body = _field_count(options, body)
        fields = [f"c{number}" for number in range(1, count + 1)]
    elif options.format == "json":
        conditions = [parse(statement.where, "sql")] if statement.where else []
        used = [column.name for tree in [*trees, *conditions] for column in tree.find_all(exp.Column)]
        fields = list(dict.fromkeys(used))
    derived = [f"`{name}` = {item}" for name, item in zip(targets, items, strict=True)]
    return ", ".join([*(f"`{name}`" for name in fields), *derived]), body


def _split(text: str) -> list[str]:
    """Items between the commas that are in no parentheses and no quotes."""
    items, depth, quote, start = [], 0, "", 0
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'`":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "," and not depth:
            items.append(text[start:at].strip())
            start = at + 1
    return [*items, text[start:].strip()]


def _field_count(options: StreamLoadOptions, body: BinaryIO) -> tuple[int, BinaryIO]:
    """Counts the fields of the first line and returns the body from its start."""
    head = b""
    while options.csv.delimiter not in head and len(head) < _HEAD_BYTES:
        piece = body.read(1 << 16)
        if not piece:
            break
        head += piece
    line = head.partition(options.csv.delimiter)[0]
    enclose = options.csv.enclose
    if enclose:  # separators between two of them separate nothing
        line = re.sub(re.escape(enclose) + rb".*?" + re.escape(enclose), b"", line, flags=re.DOTALL)
    return line.count(options.csv.separator) + 1, cast(BinaryIO, PrefixedBody(head, body))
