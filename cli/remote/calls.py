"""Runs the calls of a client on the store and on what the client has opened; every call checks privileges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from seqstore.cli.remote.access import Access
from seqstore.cli.remote.client_sessions import ClientSession, Held
from seqstore.cli.remote.session_calls import session_call
from seqstore.cli.remote.stagings import Stagings
from seqstore.cli.remote.store_calls import store_call
from seqstore.cli.remote.task_calls import SCAN_CALLS, STAGING_CALLS, adopt, staging_call
from seqstore.cli.remote.uploads import Upload
from seqstore.store import (
    ClosedError,
    InvalidInputError,
    Load,
    LoadResult,
    MergeBuilder,
    Snapshot,
    Store,
    StoreSnapshot,
    Table,
    Transaction,
    TransactionRecord,
    TransactionStatus,
    TransactionTable,
)
from seqstore.store.catalog.version_record import VersionMetrics, read_version_record
from seqstore.store.remote.remote_merge import CLAUSES
from seqstore.store.remote.surface import CALLS, Call
from seqstore.store.sql import Session

_MERGE: Final = ("source", "on", "target_alias", "source_alias")
_ROWS: Final = {"write": "data", "upsert": "data", "delete": "keys", "change": "rows"}
"""The argument that the rows of a call are, by its name."""


class Calls:
    """The calls of one client.

    Args:
        session: of the client.
        open_session: opens a session for SQL on a database.
        stagings: the loads that tasks of jobs stage.
    """

    def __init__(self, store: Store, session: ClientSession, open_session: Any, stagings: Stagings) -> None:
        self.store = store
        self.session = session
        self.open_session = open_session
        self.stagings = stagings
        self.access = Access(store, session.user)

    def run(self, name: str, on: Any, arguments: Mapping[str, Any], rows: pa.Table | None) -> Any:
        """Runs a call and returns its value: one that travels, the description of an object, or rows.

        Raises:
            InvalidInputError: there is no such call.
            AccessDeniedError: the user lacks a privilege of it.
        """
        kind, _, member = name.partition(".")
        call = call_of(name)
        given = dict(arguments)
        if rows is not None:
            if member not in _ROWS:
                raise InvalidInputError(f"{name} takes no rows", kind="bad_message")
            given[_ROWS[member]] = rows
        if kind == "Store":
            return self._shown(store_call(self, member, given))
        if kind == "Table":
            table = self.access.table(on, call)
            if member in STAGING_CALLS:
                return self._on_staging(table, member, given)
            found = _on_table(table, member, given)
            if isinstance(found, TransactionRecord) and not self.access.may_end(table.database, found):
                return None  # a label of other tables, which does not exist for the user
            return self._shown(found, table.name)
        held = self.session.held(kind, on)
        with held.in_turn():
            if held.table:
                self.access.check(call, held.table)
            return self._on_held(held, on, member, given)

    def _on_held(self, held: Held, number: int, name: str, given: dict[str, Any]) -> Any:
        value = held.value
        if isinstance(value, Session):
            return session_call(value, name, str(given.get("text", "")), given.get("number"))
        if isinstance(value, StoreSnapshot) or (isinstance(value, Transaction) and name == "table"):
            return self._opened(held, number, str(given.get("name", "")))
        if isinstance(value, Transaction) and name in ("commit", "precommit"):
            for each in held.opened.values():
                table = self.session.held("TransactionTable", each).value
                if table.writes:
                    self.access.require("LOAD", table.name)
        if isinstance(value, Load) and name == "adopt":
            return adopt(self.stagings, self.session.user, value, given)
        if isinstance(value, TransactionTable) and name == "merge":
            return _clauses(value.merge, given).run()
        result = _member(value, name, given)
        owner = held.owner or number
        return self._shown(result, held.table, Held("", None, lock=held.lock, owner=owner))

    def _on_staging(self, table: Table, name: str, given: dict[str, Any]) -> Any:
        found = staging_call(self.stagings, self.session.user, table, name, given)
        return {"handle": self.session.add(found)} if isinstance(found, Held) else found

    def _opened(self, held: Held, number: int, name: str) -> Any:
        """Opens a table of a transaction, or of a moment; the same one every time."""
        if held.kind == "StoreSnapshot":
            self.access.require("SELECT", name)
        else:
            self.access.visible(name)
        table = held.value.table(name)
        table_name = table.name if isinstance(table, TransactionTable) else name
        known = held.opened.get(table_name)
        if known is not None:
            try:
                return _described(self.access, self.session.held(_kind(table), known), known)
            except ClosedError:
                pass  # the client has released it
        owned = Held(_kind(table), table, table_name, held.lock, owner=number)
        found = held.opened[table_name] = self.session.add(owned)
        return _described(self.access, owned, found)

    def _shown(self, value: Any, table: str = "", owner: Held | None = None) -> Any:
        """Keeps a value that is an object, and returns its description; returns other values as they are."""
        kind = _kind(value)
        if not kind:
            return value
        held = Held(kind, value, table)
        if owner is not None:
            held.lock, held.owner = owner.lock, owner.owner
        return _described(self.access, held, self.session.add(held))


def call_of(name: Any) -> Call:
    """Returns the call of a name, `Class.name`.

    Raises:
        InvalidInputError: there is none.
    """
    kind, _, member = str(name).partition(".")
    found = CALLS.get(kind, {}).get(member)
    if found is None:
        raise InvalidInputError(
            f"{str(name)[:100]} is no call of this server; client and server may be of different versions",
            kind="unknown_call",
        )
    return found


def _kind(value: Any) -> str:
    for kind in (Load, Snapshot, StoreSnapshot, Transaction, TransactionTable, Session, Upload):
        if isinstance(value, kind):
            return kind.__name__
    return ""


def _described(access: Access, held: Held, number: int) -> dict[str, Any]:
    """Returns the number of an object and the attributes that do not change."""
    value = held.value
    found: dict[str, Any] = {"handle": number}
    if isinstance(value, Load):
        found |= {"label": value.label, "revision": value.revision, "skipped": value.skipped}
    elif isinstance(value, Snapshot):
        found |= {"version": value.version, "schema": value.schema}
    elif isinstance(value, Transaction):
        names = ("label", "operation", "reads_own_writes", "timeout_seconds")
        found |= {name: getattr(value, name) for name in names}
    elif isinstance(value, TransactionTable):
        schema = value.schema if access.may("SELECT", value.name) else None
        found |= {"name": value.name, "version": value.version, "schema": schema}
    return found


def _on_table(table: Table, name: str, given: dict[str, Any]) -> Any:
    if name in SCAN_CALLS:
        return SCAN_CALLS[name](table, given)
    if name == "outcome":
        return _outcome(table, str(given.get("label", "")))
    if name == "merge":
        rest = {key: value for key, value in given.items() if key not in (*_MERGE, "clauses")}
        return _clauses(table.merge, given).execute(**rest)
    return _member(table, name, given)


def _member(value: Any, name: str, given: Mapping[str, Any]) -> Any:
    """Reads a property, or calls a method."""
    if isinstance(getattr(type(value), name), property):
        return getattr(value, name)
    return getattr(value, name)(**given)


def _clauses(merge: Any, given: dict[str, Any]) -> MergeBuilder:
    """Builds a merge from its clauses."""
    builder: MergeBuilder = merge(**{name: given[name] for name in _MERGE if name in given})
    for name, arguments in given["clauses"]:
        if name not in CLAUSES:
            raise InvalidInputError(f"{str(name)[:100]} is no clause of a merge", kind="bad_message")
        builder = getattr(builder, name)(**arguments)
    return builder


def _outcome(table: Table, label: str) -> LoadResult | None:
    """Returns what the catalog knows of a visible load of a table."""
    record = table.find_label(label)
    if record is None or record.status != TransactionStatus.VISIBLE:
        return None
    if table.name not in {record.table, *record.versions}:
        return None
    version = record.versions.get(table.name, record.version)
    counts: dict[str, Any] = {}
    with table.catalog.read() as tx:
        found = read_version_record(tx, table.id, version)
        if found is not None and found.txn_id == record.id:
            counts = dict(found.metrics.__dict__)
    return LoadResult(record.id, label, version, **(counts or VersionMetrics().__dict__))
