"""The versions of tables that one statement reads: one of each table, and one moment for those of a view."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime
from typing import Protocol

from seqstore.store.ddl.views import View
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.read.store_snapshot import StoreSnapshot
from seqstore.store.read.tablets import Tablets
from seqstore.store.sql.parse import statement_values as st
from seqstore.store.sql.session.system_tables import SessionView, open_system_table
from seqstore.store.sql.translate.relations import Readable, Version
from seqstore.store.table import Table
from seqstore.store.transaction.transaction import Transaction
from seqstore.store.transaction.transaction_table import TransactionTable


class TableSession(SessionView, Protocol):
    """The part of a session that finds the tables of its statements."""

    @property
    def transaction(self) -> Transaction | None:
        """The open transaction."""

    def is_system(self, table: st.TableName) -> bool:
        """Returns whether a name is that of a system table."""

    def full_name(self, table: st.TableName) -> str:
        """Returns the name with its database."""

    def require(self, privilege: str, table: str) -> None:
        """Refuses a user that lacks a privilege on a table."""

    def in_zone(self, moment: datetime) -> datetime:
        """Adds the time zone of the session to a time that has none."""

    def find_view(self, table: st.TableName, within: str) -> tuple[str, View] | None:
        """Finds the view of a name."""


class StatementVersions:
    """The version of each table that one statement reads, held until the statement ends.

    `logged` holds tables whose transaction remembers the reads, by `id` of the snapshot.
    """

    def __init__(
        self,
        session: TableSession,
        held: ExitStack,
        target: TransactionTable | None,
        moment: StoreSnapshot | None,
    ) -> None:
        self.logged: dict[int, TransactionTable] = {}
        self._session = session
        self._held = held
        self._target = target
        self._moment = moment
        self._opened: dict[tuple[str, Version], Readable] = {}

    def open(self, table: st.TableName, version: Version, view: str = "") -> Readable:
        """Opens a table at a version; all mentions of the two share one snapshot.

        Args:
            view: names the table, and its privilege is the one that counts; empty for the statement itself.
        """
        session = self._session
        if session.is_system(table):
            return open_system_table(table.name, session)
        name = session.full_name(table)
        if not view:
            session.require("SELECT", name)
        found = self._opened.get((name, version))
        if found is None:
            number = version
            if isinstance(number, datetime):
                number = session.store.table(name).version_as_of(session.in_zone(number))
            if isinstance(number, Tablets):
                found = self._of_tablets(name, number)
            else:
                found = self._snapshot(name, number)
            self._opened[name, version] = found
        return found

    def _of_tablets(self, name: str, tablets: Tablets) -> Readable:
        found = self._snapshot(name, tablets.version)
        return found.of_tablets(tablets) if isinstance(found, Snapshot) else found

    def newest(self, table: Table) -> int:
        """Returns the version of a table that the statement reads."""
        return self._moment.version(table) if self._moment is not None else table.version

    def find_view(self, table: st.TableName, within: str) -> tuple[str, View] | None:
        """Finds the view of a name; the tables that it reads are read as of one moment."""
        session = self._session
        found = session.find_view(table, within)
        is_alone = self._target is None and session.transaction is None
        if found is not None and self._moment is None and is_alone:
            self._moment = self._held.enter_context(session.store.snapshot())
        return found

    def _snapshot(self, name: str, version: int | None) -> Readable:
        table, transaction = self._target, self._session.transaction
        if table is None or table.name != name:
            if transaction is None:
                stored = self._session.store.table(name)
                if self._moment is not None and version is None:
                    return self._moment.of(stored)
                return self._held.enter_context(stored.snapshot(version))
            table = transaction.table(name)
        snapshot = table.snapshot(version)
        if version is None:
            self.logged[id(snapshot)] = table
        return snapshot
