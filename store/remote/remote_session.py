"""A session for SQL at a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from seqstore.store.remote.handles import Handle, remote
from seqstore.store.sql.result import Result
from seqstore.store.sql.session.session import Session

STATE: Final = ("database", "in_transaction", "last_insert_id", "warnings")
"""The attributes of a session that a reply brings up to date."""


@remote("Session")
class RemoteSession(Handle, Session):
    """Runs SQL at the server; made by `Session` for a store elsewhere.

    Variables and the transaction live there, until `close` or the end of the client.
    """

    def __init__(self, store: Any, database: str | None = None) -> None:
        self.store = store
        self.bind(store.connection, store.made_by("session", {"database": database}))
        self.database = database
        self.last_insert_id = 0
        self.warnings: tuple[str, ...] = ()
        self._in_transaction = False

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._in_transaction

    def visible_databases(self) -> list[str]:
        """Databases on which the user holds any privilege."""
        found: list[str] = self.store.databases()
        return found

    def table_filter(self, privilege: str = "") -> Callable[[str, str], bool]:
        """Returns whether a table is there for the user: the server lists no others."""
        return lambda _database, _table: True

    def execute(self, text: str) -> Iterator[Result]:
        """Runs the statements of a text one after another, each when its result is requested.

        Raises:
            StoreError: as `Session.execute` raises it.
        """
        count: int = self.call("parse", {"text": text})
        return (self._run(text, number) for number in range(count))

    def _run(self, text: str, number: int) -> Result:
        reply: dict[str, Any] = self.call("execute", {"text": text, "number": number})
        self.database, self.last_insert_id = reply["database"], reply["last_insert_id"]
        self.warnings, self._in_transaction = reply["warnings"], reply["in_transaction"]
        result: Result = reply["result"]
        return result

    def stream(self, query: str) -> pa.RecordBatchReader:  # type: ignore[override]
        """Runs one query, whose rows are computed and sent while they are read.

        Raises:
            StoreError: as `Session.execute` raises it, here or while the rows are read.
        """
        return self.connection.reader(self.request("stream", {"query": query}))

    def close(self) -> None:
        """Ends the session and rolls its transaction back."""
        if self.link is not None:
            self.link.release(self.address)

    def __enter__(self) -> RemoteSession:
        return self
