"""The plan of a read: what `_query_plan` answers, and what a connector sends back with each tablet.

1. The connector asks for a plan of `SELECT columns FROM table WHERE ..`. The answer names the tablets of the
   newest version and this server as the backend of each.
2. For each tablet it opens a scanner (cli.scan.thrift_server) with the opaque plan, which is the query's
   text, or sends the query with TABLET(id) over Arrow Flight SQL (cli.scan.flight_server).

A plan grants nothing: user and privileges are checked when the tablet is read.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from seqstore.store import InvalidInputError, NotFoundError, Store
from seqstore.store.sql import Session
from seqstore.store.sql.parse.single_scan import scanned_table
from seqstore.store.sql.parse.statement_values import Query


def query_plan(
    session: Session, statements: Sequence[Any], text: str, name: str, backend: str
) -> dict[str, Any]:
    """Plans a read of a table.

    Args:
        statements: those of the text.
        name: `db.table`, which the session's user may read.
        backend: `host:port` of the service that opens scanners.

    Raises:
        InvalidInputError: the query is no scan of the table.
        NotFoundError: no such table.
    """
    database, _, table = name.partition(".")
    query = one_query(statements, text)
    scanned = scanned_table(query)
    if ((scanned.database or database).lower(), scanned.name.lower()) != (database.lower(), table.lower()):
        raise InvalidInputError(
            f"requested database and table must consistent with sql: request [ {name} ] and sql [ "
            f"{scanned.database or database}.{scanned.name} ]",
            kind="bad_request",
        )
    with session.stream(query):
        pass  # its names exist
    with session.store.table(name).snapshot() as snapshot:
        version, ids = snapshot.version, snapshot.tablet_ids()
    tablet = {"routings": [backend], "version": version & 0x7FFFFFFF, "versionHash": 0, "schemaHash": 0}
    partitions = {str(number): tablet for number in ids}
    plan = base64.b64encode(text.encode()).decode()
    return {"partitions": partitions, "opaqued_query_plan": plan, "status": 200}


def plan_text(plan: str) -> str:
    """Returns the text of the query of an opaque plan.

    Raises:
        InvalidInputError: the text is no plan of this server.
    """
    try:
        return base64.b64decode(plan, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise InvalidInputError(
            "opaqued_query_plan: expected the text that _query_plan returned; plan the read again",
            kind="bad_plan",
        ) from error


def one_query(statements: Sequence[Any], text: str) -> Query:
    """Returns the query of a text that has nothing else.

    Raises:
        InvalidInputError: it is something else.
    """
    if len(statements) != 1 or not isinstance(statements[0], Query):
        raise InvalidInputError(
            f"expected one SELECT, found {text[:100]!r}; send other statements over the MySQL protocol",
            kind="not_supported",
        )
    return statements[0]


def require_table(store: Store, user: str, database: str, table: str) -> str:
    """Returns `db.table` of a stored table that the user may read.

    Raises:
        AccessDeniedError: the user may not.
        NotFoundError: no such table.
    """
    store.accounts.require(user, "SELECT", database, table)
    if store.views.find(database, table) is not None:
        raise NotFoundError(
            f"{database}.{table} is a view, which has no tablets; read it over the MySQL protocol or Arrow "
            "Flight SQL",
            kind="is_view",
        )
    return store.table(f"{database}.{table}").name
