"""The endpoints of the console, each with the privileges that its answer needs.

GET  /, /console/{file}                     the pages
POST /api/console/login, logout             cookies (cli.server.cookies)
GET  /api/console/session                   the user, its grants, words of SQL
GET  /api/console/overview, tables          what a user sees, what is wrong; a page of tables
GET  /api/console/table/{db}/{table}        columns; with /versions, /segments, /lateness   (SELECT)
GET  /api/console/loads, jobs               of tables that the user may load                (LOAD)
GET  /api/console/rejected/{transaction}    rows that a load left out                       (LOAD)
PUT  /api/console/load/{db}/{table}         a stream load                                   (LOAD)
POST /api/console/preview/{db}/{table}      first rows of a Parquet or ORC file             (LOAD)
POST /api/console/query, download           statements, with the privileges of each
GET  /api/console/names                     completion
GET  /api/console/server                    processes of the user; of all, and resources    (ADMIN)
GET  /api/console/audit, settings           newest events, settings with reasons            (ADMIN)

A name that a user may not see reads as one that does not exist.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import IO, Any, Final

from aiohttp import web

from seqstore import __version__
from seqstore.cli.clients.audit_log import Event
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.console import (
    audit_tail,
    file_preview,
    load_view,
    queries,
    server_view,
    table_list,
    table_view,
)
from seqstore.cli.console.completion import completions
from seqstore.cli.console.findings import findings
from seqstore.cli.console.lateness import lateness
from seqstore.cli.console.replies import answered, number_in, object_in, reply
from seqstore.cli.console.static_files import page, static_file
from seqstore.cli.sql_words import functions, sql_words
from seqstore.cli.web.bodies import bytes_in
from seqstore.cli.web.routes import LOAD, NONE, STATEMENT, Handler, Route, route
from seqstore.cli.web.statement_threads import StatementThreads
from seqstore.store import AccessDeniedError, InvalidInputError, NotFoundError
from seqstore.store.catalog.access.grants import shown_scope
from seqstore.store.catalog.access.user_hosts import plain_user
from seqstore.store.catalog.accounts import Account
from seqstore.store.sql import Session
from seqstore.store.table import Table

_PAGE: Final = 50
_VERSIONS: Final = 200
_ROWS: Final = 1_000
_COUNT_MAX: Final = 2**62
_PIECE_BYTES: Final = 1 << 18
_FORMS: Final = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


class ConsoleApi:
    """The console of one server.

    Args:
        load: serves a stream load.
        settings: of the server; of its audit log it reads the folder.
    """

    def __init__(
        self, sessions: ServerSessions, statements: StatementThreads, load: Handler, settings: Any
    ) -> None:
        self._sessions = sessions
        self._store = sessions.store
        self._statements = statements
        self._load = load
        self._settings = settings
        self._started = time.monotonic()

    def routes(self, log_in: Handler, log_out: Handler) -> list[Route]:
        """Returns the routes of the console; the two handlers are those of its logins."""
        return [
            route("GET", "/", page, NONE),
            route("GET", "/console/{}", static_file, NONE),
            route("POST", "/api/console/login", log_in, NONE),
            route("POST", "/api/console/logout", log_out),
            route("GET", "/api/console/session", self.session),
            route("GET", "/api/console/overview", self.overview),
            route("GET", "/api/console/tables", self.tables),
            route("GET", "/api/console/table/{}/{}", self.table),
            route("GET", "/api/console/table/{}/{}/versions", self.versions),
            route("GET", "/api/console/table/{}/{}/segments", self.segments),
            route("GET", "/api/console/table/{}/{}/lateness", self.lateness, STATEMENT),
            route("GET", "/api/console/loads", self.loads),
            route("GET", "/api/console/jobs", self.jobs),
            route("GET", "/api/console/rejected/{}", self.rejected),
            route("PUT", "/api/console/load/{}/{}", self._load, LOAD),
            route("POST", "/api/console/preview/{}/{}", self.preview),
            route("POST", "/api/console/query", self.query, STATEMENT),
            route("POST", "/api/console/download", self.download, STATEMENT),
            route("GET", "/api/console/names", self.names),
            route("GET", "/api/console/server", self.server),
            route("GET", "/api/console/audit", self.audit),
            route("GET", "/api/console/settings", self.settings),
        ]

    def _account(self, user: str) -> Account:
        found = self._store.accounts.find(user)
        if found is None:
            raise AccessDeniedError(f"user {plain_user(user)!r} was dropped", kind="unknown_user")
        return found

    def _readable(self, user: str, names: list[str]) -> Table:
        self._store.accounts.require(user, "SELECT", *names)
        return self._store.table(".".join(names))

    # ------------------------------------------------------------------------------------------ overview

    @answered
    async def session(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/console/session."""
        account = self._account(user)
        return reply(
            {
                "user": plain_user(user),
                "version": __version__,
                "is_administrator": account.may("ADMIN"),
                "grants": [
                    {"scope": shown_scope(scope), "privileges": list(held)}
                    for scope, held in sorted(account.effective.items())
                ],
                "databases": [name for name in self._store.databases() if account.sees(name)],
                "words": sql_words(),
                "functions": functions(),
            }
        )

    @answered
    async def overview(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/console/overview: activity, routine loads and what is wrong."""

        def found() -> dict[str, Any]:
            account = self._account(user)
            activity = load_view.activity(self._store, account)
            known = table_list.visible_tables(self._store, account)
            first = table_list.table_page(self._store, account, database="", like="", offset=0, limit=_PAGE)
            wrong = findings(
                self._store,
                account,
                tables=first["tables"],
                activity=activity,
                audit=self._sessions.audit,
                disk_free_bytes_min=self._settings.disk_free_bytes_min,
            )
            return {
                "databases": len({database for database, _ in known}),
                "tables": len(known),
                "activity": activity,
                "findings": wrong,
                "jobs": load_view.jobs(self._store, account)["routine"][:10],
            }

        return reply(await asyncio.to_thread(found))

    @answered
    async def tables(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/console/tables?db=...&like=...&offset=...&limit=..."""
        offset = number_in(request, "offset", 0, _COUNT_MAX)
        limit = number_in(request, "limit", _PAGE, table_list.PAGE_MAX)
        database, like = request.query.get("db", ""), request.query.get("like", "")

        def found() -> dict[str, Any]:
            account = self._account(user)
            return table_list.table_page(
                self._store, account, database=database, like=like, offset=offset, limit=limit
            )

        return reply(await asyncio.to_thread(found))

    # ------------------------------------------------------------------------------------------ one table

    @answered
    async def table(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/console/table/{db}/{table}."""

        def found() -> dict[str, Any]:
            account = self._account(user)
            answer = table_view.described(self._readable(user, names))
            held = [each for each in ("SELECT", "LOAD", "ALTER") if account.may(each, *names)]
            return {**answer, "privileges": held}

        return reply(await asyncio.to_thread(found))

    @answered
    async def versions(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/console/table/{db}/{table}/versions?before=...&limit=..."""
        before = number_in(request, "before", 0, _COUNT_MAX) or None
        limit = number_in(request, "limit", _VERSIONS, table_view.VERSIONS_MAX)
        return reply(
            await asyncio.to_thread(
                lambda: table_view.versions(self._readable(user, names), before=before, limit=limit)
            )
        )

    @answered
    async def segments(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/console/table/{db}/{table}/segments."""
        settings = self._store.settings
        return reply(
            await asyncio.to_thread(lambda: table_view.segments(self._readable(user, names), settings))
        )

    @answered
    async def lateness(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/console/table/{db}/{table}/lateness."""

        def found(session: Session, event: Event) -> dict[str, Any]:
            table = self._readable(user, names)
            with session.reading():
                answer = lateness(table)
            event.rows_read = answer.get("rows", 0)
            return answer

        return reply(await self._statements.run(request, user, found))

    # ------------------------------------------------------------------------------------------ loads

    @answered
    async def loads(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/console/loads?before=...&limit=...&status=...&like=..."""
        before = number_in(request, "before", 0, _COUNT_MAX) or None
        limit = number_in(request, "limit", _PAGE, load_view.PAGE_MAX)
        status, like = request.query.get("status", ""), request.query.get("like", "")

        def found() -> dict[str, Any]:
            account = self._account(user)
            return load_view.loads(self._store, account, before=before, limit=limit, status=status, like=like)

        return reply(await asyncio.to_thread(found))

    @answered
    async def jobs(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/console/jobs."""
        return reply(await asyncio.to_thread(lambda: load_view.jobs(self._store, self._account(user))))

    @answered
    async def rejected(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/console/rejected/{transaction}."""
        if not (names[0].isascii() and names[0].isdigit()) or len(names[0]) > 18:
            raise NotFoundError(f"there is no transaction {names[0][:40]!r}", kind="unknown_transaction")
        number = int(names[0])
        return reply(
            await asyncio.to_thread(lambda: load_view.rejected(self._store, self._account(user), number))
        )

    @answered
    async def preview(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves POST /api/console/preview/{db}/{table}?format=...&size=...&parts=...&last=1."""
        self._store.accounts.require(user, "LOAD", *names)
        form, size = request.query.get("format", ""), number_in(request, "size", 0, _COUNT_MAX)
        if form not in file_preview.FORMATS:
            raise InvalidInputError(
                f"format: expected parquet or orc, found {form[:40]!r}", kind="bad_request"
            )
        parts = file_preview.parts_in(request, size)
        body = await bytes_in(request, file_preview.SENT_BYTES_MAX)
        is_last = request.query.get("last") == "1"

        def found() -> dict[str, Any]:
            schema = self._store.table(".".join(names)).schema
            return file_preview.preview(form, size, parts, body, schema, is_last=is_last)

        return reply(await asyncio.to_thread(found))

    # ------------------------------------------------------------------------------------------ statements

    @answered
    async def query(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves POST /api/console/query: `sql`, `database` and `limit` of a JSON object."""
        given = await object_in(request)
        text, database = _text(given, "sql"), str(given.get("database") or "")
        limit = given.get("limit", _ROWS)
        if not isinstance(limit, int) or not 0 <= limit <= queries.ROWS_MAX:
            raise InvalidInputError(
                f"limit: expected 0 to {queries.ROWS_MAX}, found {limit!r}", kind="bad_request"
            )

        def run(session: Session, event: Event) -> list[dict[str, Any]]:
            with self._sessions.parsed(session, text, event) as statements:
                return queries.run(session, event, statements, limit)

        return reply({"results": await self._statements.run(request, user, run, text, database)})

    @answered
    async def download(self, request: web.BaseRequest, names: list[str], user: str) -> web.StreamResponse:
        """Serves POST /api/console/download: `sql`, `database` and `format` (csv, parquet)."""
        given = await object_in(request)
        text, database = _text(given, "sql"), str(given.get("database") or "")
        form = str(given.get("format") or "csv")
        if form not in _FORMS:
            raise InvalidInputError(f"format: expected csv or parquet, found {form!r}", kind="bad_request")

        def run(session: Session, event: Event) -> IO[bytes]:
            with self._sessions.parsed(session, text, event) as statements:
                return queries.file_of(session, event, statements, form)

        with await self._statements.run(request, user, run, text, database) as file:
            response = web.StreamResponse()
            response.content_type = _FORMS[form]
            response.headers["Content-Disposition"] = f'attachment; filename="result.{form}"'
            response.headers["Cache-Control"] = "no-store"
            await response.prepare(request)
            while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
                await response.write(piece)
            await response.write_eof()
        return response

    @answered
    async def names(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/console/names?db=...&word=...&tables=..."""
        database, word = request.query.get("db", ""), request.query.get("word", "")
        tables = request.query.get("tables", "")

        def found() -> dict[str, Any]:
            account = self._account(user)
            return completions(self._store, account, database=database, word=word, tables=tables)

        return reply(await asyncio.to_thread(found))

    # ------------------------------------------------------------------------------------------ server

    @answered
    async def server(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/console/server."""

        def found() -> dict[str, Any]:
            return server_view.server(self._sessions, self._account(user), self._started)

        return reply(await asyncio.to_thread(found))

    @answered
    async def audit(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/console/audit?limit=...&like=...&ms=...&console=1: newest events first."""
        limit = number_in(request, "limit", _PAGE, 500)
        least = number_in(request, "ms", 0, _COUNT_MAX)
        like, has_console = request.query.get("like", ""), request.query.get("console") == "1"
        settings = self._settings
        folder = Path(settings.audit_log_dir) if settings.audit_log_dir else self._store.path / "audit"

        def found() -> dict[str, Any]:
            self._store.accounts.require(user, "ADMIN")
            return audit_tail.newest_events(
                folder, limit=limit, like=like, ms_min=least, has_console=has_console
            )

        return reply(await asyncio.to_thread(found))

    @answered
    async def settings(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/console/settings."""

        def found() -> dict[str, Any]:
            self._store.accounts.require(user, "ADMIN")
            sections = {"store": self._store.settings, "server": self._settings}
            return {"settings": server_view.settings(sections)}

        return reply(await asyncio.to_thread(found))


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(f"{name}: expected a text, found none", kind="bad_request")
    return value
