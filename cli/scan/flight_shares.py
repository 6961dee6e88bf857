"""Shares of a scan: the endpoints of one query, which a client reads side by side.

A client asks for them by the header `endpoints`, since many clients read the first endpoint only. A query
that filters and chooses columns of one table is divided by tablets (`store.read.tablets`) of the newest
version: each of its rows is in one share, and all shares are of that version. Any other query has one
endpoint.
"""

from __future__ import annotations

from typing import Any, Final

from seqstore.cli.scan.flight_messages import command, message
from seqstore.store import InvalidInputError, NotFoundError
from seqstore.store.sql import Session
from seqstore.store.sql.parse.single_scan import of_tablets, scanned_table
from seqstore.store.sql.parse.statement_values import Query

HEADER: Final = "endpoints"
_SHARES_MAX: Final = 256
_TABLETS: Final = 100  # a field of our own in a ticket


def wanted_shares(given: str) -> int:
    """Returns how many endpoints a client asks for.

    Args:
        given: the header, empty without one.

    Raises:
        InvalidInputError: it is no number from 1 to 256.
    """
    if not given:
        return 1
    if not given.isascii() or not given.isdigit() or not 1 <= int(given) <= _SHARES_MAX:
        raise InvalidInputError(
            f"header {HEADER}: expected a number from 1 to {_SHARES_MAX}, found {given[:50]!r}",
            kind="bad_header",
        )
    return int(given)


def tickets(session: Session, query: Query, text: str, count: int) -> list[bytes]:
    """Returns the tickets of a query, at most so many."""
    whole = message("TicketStatementQuery", {1: text.encode()})
    ids = _tablets(session, query) if count > 1 else []
    if len(ids) < 2:
        return [whole]
    count = min(count, len(ids))
    shares = [ids[n * len(ids) // count : (n + 1) * len(ids) // count] for n in range(count)]
    return [
        message("TicketStatementQuery", {1: text.encode(), _TABLETS: ",".join(map(str, share)).encode()})
        for share in shares
    ]


def share_of(query: Query, ticket: bytes) -> Query:
    """Returns the query of a ticket: the whole one, or the rows of its share.

    Raises:
        InvalidInputError: the ticket is none of `tickets`.
    """
    given = command(ticket)[1].get(_TABLETS, b"")
    if not given:
        return query
    ids = given.decode(errors="replace").split(",") if isinstance(given, bytes) else [""]
    if not all(each.isascii() and each.isdigit() for each in ids):
        raise InvalidInputError("the ticket names no tablets; plan the read again", kind="bad_tablet")
    return of_tablets(query, [int(each) for each in ids])


def _tablets(session: Session, query: Query) -> list[int]:
    """Returns the tablets of the table of a scan; none for another query."""
    tree: Any = query.tree
    try:
        scanned = scanned_table(query)
        if tree.args.get("limit"):
            return []
        with session.store.table(f"{scanned.database or session.database}.{scanned.name}").snapshot() as seen:
            return seen.tablet_ids()
    except (InvalidInputError, NotFoundError):  # more than a scan, a view, or a list of names
        return []
