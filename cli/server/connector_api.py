"""The endpoints of Doris's frontends for connectors: schemas, query plans, nodes and statements.

GET  /api/{db}/{table}/_schema, _count            a table's columns, the number of its rows
POST /api/{db}/{table}/_query_plan                tablets to read (cli.scan.plan)
GET  /api/backends, /rest/v1/system, /rest/v2/manager/node/...   this server, as every node of a cluster
POST /api/query/{catalog}/{db}                    one statement; its rows as JSON
GET  /api/enable_light_schema_change/{db}/{table} whether a column can be added or dropped
GET  /api/_get_ddl                                CREATE TABLE
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from aiohttp import web

from seqstore.cli.clients.audit_log import Event
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.scan.plan import query_plan, require_table
from seqstore.cli.scan.sent_rows import primitive_type
from seqstore.cli.server.replies import manager_reply
from seqstore.cli.web.bodies import bytes_in
from seqstore.cli.web.statement_threads import StatementThreads, Work
from seqstore.store import InvalidInputError, NotFoundError, StoreError
from seqstore.store.schema.column import Column
from seqstore.store.sql import Session, parse
from seqstore.store.sql.parse.statement_values import Query
from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import parse_type

_BODY_BYTES_MAX: Final = 1 << 20
_ROWS_DEFAULT, _ROWS_MAX = 1000, 10_000
_CATALOG: Final = "internal"
_CLUSTERS: Final = ("default_cluster", _CATALOG)
_STRING: Final = parse_type("STRING")


class ConnectorApi:
    """Answers of a frontend.

    Args:
        advertised: `host:port` where clients reach this server, empty for the address of the request.

    Attributes:
        address: of the HTTP service, set when it has one.
    """

    def __init__(self, sessions: ServerSessions, statements: StatementThreads, advertised: str) -> None:
        self._sessions = sessions
        self._statements = statements
        self._store = sessions.store
        self._advertised = advertised
        self._ports = sessions.ports
        self.address = ""

    # ------------------------------------------------------------------------------------------ tables

    async def schema(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/{db}/{table}/_schema, and the same with a catalog in front."""
        *catalog, database, table = names

        def described(_session: Session, _event: Event) -> dict[str, Any]:
            if catalog and catalog[0].lower() not in _CLUSTERS:
                raise NotFoundError(
                    f"there is no catalog {catalog[0]!r}; use {_CATALOG}", kind="unknown_catalog"
                )
            found = self._store.table(require_table(self._store, user, database, table)).schema
            properties = [_described(column) for column in found.columns]
            keys_type = "UNIQUE_KEYS" if found.duplicate_key is None else "DUP_KEYS"
            return {"keysType": keys_type, "properties": properties, "status": 200}

        return await self._replied(request, user, described)

    async def count(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/{db}/{table}/_count."""

        def counted(session: Session, event: Event) -> dict[str, Any]:
            name = require_table(self._store, user, *names)
            quoted = ".".join(f"`{part}`" for part in name.split("."))
            [query] = parse(f"SELECT count(*) FROM {quoted}")
            with session.stream(query) as reader:
                size = reader.read_all().column(0)[0].as_py()
            event.rows_read = 1
            return {"size": size, "status": 200}

        return await self._replied(request, user, counted)

    async def query_plan(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves POST /api/{db}/{table}/_query_plan; errors are a field of the plan, as in Doris."""
        host, _ = self._own_address(request)
        backend = f"{host}:{self._ports().thrift or self._ports().flight}"

        def planned(session: Session, event: Event, text: str) -> dict[str, Any]:
            name = require_table(self._store, user, *names)
            if not self._ports().thrift and not self._ports().flight:
                raise InvalidInputError(
                    "this server serves no scans; set thrift_port in [server] of its configuration, or "
                    "flight_port for connectors that read by Arrow Flight SQL",
                    kind="no_scans",
                )
            with self._sessions.parsed(session, text, event) as statements:
                return query_plan(session, statements, text, name, backend)

        try:
            text = await _text_in(request, "sql")
            run = partial(planned, text=text)
            found = await self._statements.run(request, user, run, text, names[0])
            return manager_reply(found)
        except StoreError as error:
            return manager_reply({"status": 400, "exception": error.message})

    async def light_schema_change(
        self, request: web.BaseRequest, names: list[str], user: str
    ) -> web.Response:
        """Serves GET /api/enable_light_schema_change/{db}/{table}: whether ALTER changes no stored row.

        The body has `isDropColumn` and `columnName`.
        """
        given = await _object_in(request)

        def decided(_session: Session, _event: Event) -> bool:
            found = self._store.table(require_table(self._store, user, *names)).schema
            column = found.find(str(given.get("columnName", "")))
            if given.get("isDropColumn") and (column is None or column.name in found.key):
                raise InvalidInputError(
                    f"Column[{given.get('columnName')}] cannot be dropped from {'.'.join(names)}: it is "
                    f"{'unknown' if column is None else 'a key column'}",
                    kind="no_light_change",
                )
            return True

        return await self._replied(request, user, decided)

    async def create_statement(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/_get_ddl?db=...&table=..."""
        database, table = request.query.get("db", ""), request.query.get("table", "")

        def written(session: Session, _event: Event) -> dict[str, Any]:
            name = require_table(self._store, user, database, table)
            quoted = ".".join(f"`{part}`" for part in name.split("."))
            [result] = session.execute(f"SHOW CREATE TABLE {quoted}")
            assert result.rows is not None
            text = result.rows.column(1)[0].as_py()
            return {"create_table": [text], "create_partition": [], "create_rollup": []}

        return await self._replied(request, user, written, database=database)

    # ------------------------------------------------------------------------------------------ statements

    async def statement(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves POST /api/query/{catalog}/{db}: runs the statement in `stmt`."""
        catalog, database = names
        started = time.monotonic()

        def run(session: Session, event: Event) -> dict[str, Any]:
            if catalog.lower() not in _CLUSTERS:
                raise NotFoundError(
                    f"there is no catalog {catalog!r}; use {_CATALOG}", kind="unknown_catalog"
                )
            with self._sessions.parsed(session, text, event) as statements:
                answer = _answer(session, event, statements, rows_max)
            took = int((time.monotonic() - started) * 1000)
            return {**answer, "status": {}, "time": took}

        try:
            given = await _object_in(request)
            rows_max = given.get("limit", _ROWS_DEFAULT)
            if not isinstance(rows_max, int) or not 0 <= rows_max <= _ROWS_MAX:
                raise InvalidInputError(
                    f"limit: expected 0 to {_ROWS_MAX}, found {rows_max!r}", kind="bad_request"
                )
            text = str(given.get("stmt") or "")
        except StoreError as error:
            return manager_reply(error.message, message="Bad Request", code=1)
        return await self._replied(request, user, run, text, database)

    async def _replied(
        self, request: web.BaseRequest, user: str, work: Work, text: str = "", database: str = ""
    ) -> web.Response:
        """Runs a statement; its error is the data of a reply with code 1, as in Doris."""
        try:
            return manager_reply(await self._statements.run(request, user, work, text, database))
        except StoreError as error:
            return manager_reply(error.message, message="Error", code=1)

    # ------------------------------------------------------------------------------------------ nodes

    async def backends(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/backends: the servers that accept loads directly, which is this one."""
        host, port = self._own_address(request)
        return manager_reply({"backends": [{"ip": host, "http_port": port, "is_alive": True}]})

    async def system(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /rest/v1/system?path=//backends, and the same for frontends."""
        path = request.query.get("path", "").strip("/")
        if path not in ("backends", "frontends"):
            message = f"path {path!r} is not served; expected //backends or //frontends"
            return manager_reply(message, message="Bad Request", code=1)
        node = self._backend(request) if path == "backends" else self._frontend(request)
        return manager_reply({"column_names": list(node), "columnNames": list(node), "rows": [node]})

    async def manager_backends(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /rest/v2/manager/node/backends."""
        return _table(self._backend(request))

    async def manager_frontends(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /rest/v2/manager/node/frontends."""
        return _table(self._frontend(request))

    async def log_in(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves POST /rest/v1/login: the user of the request has logged in."""
        return manager_reply("", message="Login success!", code=200)

    def _backend(self, request: web.BaseRequest) -> dict[str, str]:
        host, http = self._own_address(request)
        ports = self._ports()
        return {
            "BackendId": "10001", "IP": host, "Host": host, "HostName": host,
            "BePort": str(ports.thrift or -1), "HttpPort": str(http),
            "ArrowFlightSqlPort": str(ports.flight or -1), "Alive": "true", "Status": "{}",
            "Tag": '{"location" : "default"}',
        }  # fmt: skip

    def _frontend(self, request: web.BaseRequest) -> dict[str, str]:
        host, http = self._own_address(request)
        ports = self._ports()
        return {
            "Name": "fe_1", "Host": host, "HostName": host, "HttpPort": str(http),
            "QueryPort": str(ports.mysql or -1), "ArrowFlightSqlPort": str(ports.flight or -1),
            "Role": "FOLLOWER", "IsMaster": "true", "Alive": "true",
        }  # fmt: skip

    def _own_address(self, request: web.BaseRequest) -> tuple[str, int]:
        """Returns host and port at which the client reaches this server."""
        given = self._advertised or request.headers.get("Host")
        url = urlsplit(f"//{given}" if given else self.address)
        return url.hostname or "", url.port or (443 if request.scheme == "https" else 80)

    # ------------------------------------------------------------------------------------------ refused

    async def refused(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Refuses the endpoints of what this server does not have."""
        path = request.rel_url.path
        start, reason = next(found for found in _REFUSED.items() if path.startswith(found[0]))
        return manager_reply(f"{start} is not supported: {reason}", message="Not Supported", code=1)


_REFUSED: Final = {
    "/api/ingestion_load": "Spark Load writes files of Doris's own format; load with the Spark connector",
    "/api/tso": "versions belong to tables, there is no global timestamp; read by FOR VERSION AS OF",
}


async def _object_in(request: web.BaseRequest) -> dict[str, Any]:
    """Reads the JSON object in a body, which may be empty.

    Raises:
        InvalidInputError: it is something else, or too large.
        UnavailableError: it does not arrive in time.
    """
    body = await bytes_in(request, _BODY_BYTES_MAX)
    try:
        found = json.loads(body or b"{}")
    except ValueError as error:
        raise InvalidInputError(f"the body is no JSON: {error}", kind="bad_request") from error
    if not isinstance(found, dict):
        raise InvalidInputError("the body is no JSON object", kind="bad_request")
    return found


async def _text_in(request: web.BaseRequest, name: str) -> str:
    value = (await _object_in(request)).get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(f"POST body must contains [{name}] root object", kind="bad_request")
    return value


def _described(column: Column) -> dict[str, str]:
    found = {
        "name": column.name,
        "type": primitive_type(column.type),
        "comment": column.comment,
        "aggregation_type": "",
        "is_nullable": "Yes" if column.nullable else "No",
    }
    if column.type.name == "DECIMAL":
        found["precision"], found["scale"] = map(str, column.type.params)
    return found


def _answer(session: Session, event: Event, statements: Sequence[Any], rows_max: int) -> dict[str, Any]:
    """Runs one statement; returns at most so many rows of it.

    Raises:
        InvalidInputError: there is another number of statements; none has run.
    """
    if len(statements) != 1:
        raise InvalidInputError(f"stmt: expected one statement, found {len(statements)}", kind="bad_request")
    if isinstance(statements[0], Query):
        with session.stream(statements[0], is_answer=True) as reader:
            rows = _first_rows(reader, rows_max)
    else:
        result = session.run(statements[0])
        event.rows_written = result.affected_rows
        if result.rows is None:
            return {"type": "exec_status"}
        rows = result.rows.slice(0, rows_max)
    event.rows_read = len(rows)
    meta = [{"name": field.name, "type": str(field.type)} for field in rows.schema]
    columns = [_texts(column) for column in rows.columns]
    return {
        "type": "result_set",
        "meta": meta,
        "schema": None,
        "data": [list(row) for row in zip(*columns, strict=True)],
    }


def _first_rows(reader: pa.RecordBatchReader, rows_max: int) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    left = rows_max
    while left > 0 and (batch := next(reader, None)) is not None:
        batches.append(batch.slice(0, left))
        left -= batches[-1].num_rows
    return pa.Table.from_batches(batches, reader.schema)


def _texts(column: Any) -> list[Any]:
    """Returns numbers as they are, other values as text."""
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return list(column.to_pylist())
    values = [try_cast(chunk, _STRING).values for chunk in column.chunks]
    return [value for chunk in values for value in chunk.to_pylist()]


def _table(node: dict[str, str]) -> web.Response:
    return manager_reply({"columnNames": list(node), "rows": [list(node.values())]})
