"""The REST catalog of Iceberg: tables that are open for Iceberg, read only.

GET  /iceberg/v1/config                                    the endpoints that this server has
POST /iceberg/v1/oauth/tokens                              a token for a name and a password
GET  /iceberg/v1/namespaces, /iceberg/v1/namespaces/{db}   databases, one database
GET  /iceberg/v1/namespaces/{db}/tables                    its open tables
GET  /iceberg/v1/namespaces/{db}/tables/{table}            the metadata of the newest version that appeared
HEAD of one database or table                              whether it exists

A user finds databases and tables of which it may read something. Clients read the files themselves, by the
paths of the data directory. Requests that write are refused with Iceberg's error for operations that a
catalog does not support.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs

from aiohttp import web

from seqstore.cli.server.replies import iceberg_failure, json_reply
from seqstore.cli.web.bodies import login_bytes_in
from seqstore.store import AccessDeniedError, InvalidInputError, NotFoundError, Store
from seqstore.store.open_table.iceberg_table import newest_metadata

_FORMAT: Final = "iceberg"
_LEVELS: Final = "\x1f"  # between the levels of a namespace
_BODY_BYTES_MAX: Final = 1 << 16
_NAMESPACES: Final = "/v1/{prefix}/namespaces"
_ENDPOINTS: Final = [
    f"GET {_NAMESPACES}",
    f"GET {_NAMESPACES}/{{namespace}}",
    f"HEAD {_NAMESPACES}/{{namespace}}",
    f"GET {_NAMESPACES}/{{namespace}}/tables",
    f"GET {_NAMESPACES}/{{namespace}}/tables/{{table}}",
    f"HEAD {_NAMESPACES}/{{namespace}}/tables/{{table}}",
]


class IcebergApi:
    """Answers of the catalog of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def config(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /iceberg/v1/config."""
        return json_reply({"defaults": {}, "overrides": {}, "endpoints": _ENDPOINTS})

    async def namespaces(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /iceberg/v1/namespaces; databases have no children."""

        def listed() -> web.Response:
            account = self._store.accounts.find(user)
            known = [] if request.query.get("parent") or account is None else self._store.databases()
            shown = [[each] for each in known if account is not None and account.may_within("SELECT", each)]
            return json_reply({"namespaces": shown})

        return await _replied(listed)

    async def namespace(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET and HEAD /iceberg/v1/namespaces/{db}."""

        def described() -> web.Response:
            self._require_database(user, names[0])
            return json_reply({"namespace": names, "properties": {}})

        return await _replied(described)

    async def tables(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /iceberg/v1/namespaces/{db}/tables."""
        [database] = names

        def listed() -> web.Response:
            self._require_database(user, database)
            account = self._store.accounts.find(user)
            found = [
                {"namespace": [database], "name": table}
                for table in self._store.tables(database)
                if account is not None
                and account.may("SELECT", database, table)
                and _FORMAT in self._store.table(f"{database}.{table}").schema.open_formats
            ]
            return json_reply({"identifiers": found})

        return await _replied(listed)

    async def table(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET and HEAD /iceberg/v1/namespaces/{db}/tables/{table}."""
        if _LEVELS in names[0]:  # a client that is asked for `db.table.files` looks for a table first
            name = ".".join([*names[0].split(_LEVELS), names[1]])
            return iceberg_failure(f"Unknown table '{name}'", status=404, is_table=True)
        return await _replied(lambda: self._loaded(user, *names), of_table=True)

    def _require_database(self, user: str, database: str) -> None:
        self._store.accounts.require(user, "SELECT", database, within=True)
        if database not in self._store.databases():
            raise NotFoundError(f"Unknown database '{database}'", kind="unknown_database")

    def _loaded(self, user: str, database: str, name: str) -> web.Response:
        self._store.accounts.require(user, "SELECT", database, name)
        table = self._store.table(f"{database}.{name}")
        found = None
        if _FORMAT in table.schema.open_formats:
            found = newest_metadata(table.loader.disk, table.loader.directory)
        if found is None:
            raise NotFoundError(
                f"no version of {table.name} has appeared as Iceberg; expected a table with "
                "'delta.universalFormat.enabledFormats' = 'iceberg'",
                kind="unknown_table",
            )
        location, metadata = found
        head = json.dumps({"metadata-location": location, "config": {}}).removesuffix("}").encode()
        body = b"".join((head, b', "metadata": ', metadata, b"}"))
        return web.Response(body=body, content_type="application/json")

    async def refused(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Refuses a request that would write."""
        return iceberg_failure(
            "this catalog is read only: the store alone writes versions of open tables; write by SQL, a "
            "stream load or the Python API",
            status=406,
        )


async def _replied(work: Callable[[], web.Response], *, of_table: bool = False) -> web.Response:
    """Runs blocking work in a thread; its refusals are errors of the catalog.

    Args:
        of_table: the table does not exist, either, where its database does not.
    """
    try:
        return await asyncio.to_thread(work)
    except AccessDeniedError as error:
        return iceberg_failure(error.message, status=403)
    except NotFoundError as error:
        is_table = of_table or error.kind != "unknown_database"
        return iceberg_failure(error.message, status=404, is_table=is_table)


async def requested_login(request: web.BaseRequest) -> tuple[str, str | None]:
    """Returns name and password of a request for a token; no password where one of them is missing.

    Raises:
        UnavailableError: the body does not arrive in time.
    """
    try:
        body = await login_bytes_in(request, _BODY_BYTES_MAX)
    except InvalidInputError:  # it is too long
        return "", None
    fields: dict[str, Any] = parse_qs(body.decode(errors="replace"), keep_blank_values=True)
    given = {name: values[0] for name, values in fields.items()}
    if given.get("grant_type") != "client_credentials" or "client_secret" not in given:
        return "", None
    return given.get("client_id", ""), given["client_secret"]
