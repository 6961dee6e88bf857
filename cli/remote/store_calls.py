"""The calls on a store itself; what its lists show is what the user may see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from seqstore.cli.remote.access import Access
from seqstore.cli.remote.client_sessions import ClientSession
from seqstore.cli.remote.load_calls import LOAD_CALLS, load_job, overview, upload
from seqstore.store import InvalidInputError, NotFoundError, Store, Table, TableSchema, TransactionRecord
from seqstore.store.sql import Session


class Calls(Protocol):
    """What a call needs of `cli.remote.calls.Calls`."""

    store: Store
    access: Access
    session: ClientSession
    open_session: Callable[[str], Session]


StoreCall = Callable[[Calls, dict[str, Any]], Any]


def _plain(name: str) -> StoreCall:
    def run(calls: Calls, given: dict[str, Any]) -> Any:
        return getattr(calls.store, name)(**given)

    return run


def _databases(calls: Calls, _given: Mapping[str, Any]) -> list[str]:
    return [name for name in calls.store.databases() if calls.access.sees(name)]


def _tables(calls: Calls, given: Mapping[str, Any]) -> list[str]:
    database = given["database"]
    return [name for name in calls.store.tables(database) if calls.access.sees(database, name)]


def _table(calls: Calls, given: Mapping[str, Any]) -> dict[str, Any]:
    return _named(calls.store.table(given["name"]))


def _create_table(calls: Calls, given: Mapping[str, Any]) -> dict[str, Any]:
    schema = given.get("schema")
    if not isinstance(schema, TableSchema):
        raise InvalidInputError("create_table: expected a TableSchema", kind="bad_message")
    return _named(calls.store.create_table(**{**given, "schema": _checked(schema)}))


def _checked(given: TableSchema) -> TableSchema:
    """Declares a schema anew: what a client sends was checked there, or nowhere.

    Raises:
        InvalidInputError: it breaks a rule, or is none that a declaration makes.
    """
    made = TableSchema.create(
        given.columns,
        () if given.duplicate_key is not None else given.key,
        duplicate_key=given.duplicate_key,
        properties=given.properties,
        distribution=given.distribution,
        comment=given.comment,
        partitioning=given.partitioning,
    )
    if made.to_record() != given.to_record():
        raise InvalidInputError(
            "the schema of a new table is one that TableSchema.create made; further changes are ALTER TABLE",
            kind="bad_schema",
        )
    return made


def _named(table: Table) -> dict[str, Any]:
    return {"name": table.name, "id": table.id, "database_id": table.database_id}


def _snapshot(calls: Calls, _given: Mapping[str, Any]) -> Any:
    return calls.store.snapshot()


def _session(calls: Calls, given: Mapping[str, Any]) -> Any:
    return calls.open_session(given.get("database") or "")


def _find_transaction(calls: Calls, given: Mapping[str, Any]) -> TransactionRecord | None:
    found = calls.store.find_transaction(**given)
    if found is not None and not calls.access.may_end(given["database"], found):
        return None
    return found


def _ending(name: str) -> StoreCall:
    """Ends a transaction in two phases; one of other tables does not exist for the user."""

    def run(calls: Calls, given: dict[str, Any]) -> TransactionRecord:
        database, txn_id, label = given["database"], given.get("txn_id"), given.get("label")
        found = calls.store.find_transaction(database, label, txn_id=txn_id)
        if found is not None and not calls.access.may_end(database, found):
            named = txn_id if txn_id is not None else label
            raise NotFoundError(f"transaction [{named}] not found", kind="txn_not_found")
        record: TransactionRecord = getattr(calls.store, name)(**given)
        return record

    return run


STORE_CALLS: Final[Mapping[str, StoreCall]] = {
    **{
        name: _plain(name)
        for name in (
            "clean_labels",
            "create_database",
            "drop_database",
            "drop_table",
            "maintain",
            "rename_table",
            "replace_table",
            "set_config",
            "transaction",
        )
    },
    **{name: call.run for name, call in LOAD_CALLS.items()},
    "abort_transaction": _ending("abort_transaction"),
    "commit_transaction": _ending("commit_transaction"),
    "create_table": _create_table,
    "databases": _databases,
    "find_transaction": _find_transaction,
    "load_job": load_job,
    "overview": overview,
    "session": _session,
    "snapshot": _snapshot,
    "table": _table,
    "tables": _tables,
    "upload": upload,
}
"""The calls by their names; `store_call` checks their privileges before."""

STORE_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "abort_transaction": ("database", "txn_id", "label", "reason"),
    "broker_load": ("spec",),
    "clean_labels": ("database", "label"),
    "commit_transaction": ("database", "txn_id", "label"),
    "create_database": ("name", "if_not_exists"),
    "create_table": ("name", "schema", "if_not_exists"),
    "databases": (),
    "drop_database": ("name", "if_exists"),
    "drop_table": ("name", "if_exists"),
    "find_transaction": ("database", "label", "txn_id"),
    "load_job": ("database", "label"),
    "maintain": (),
    "overview": ("tables_max",),
    "rename_table": ("name", "new_name"),
    "replace_table": ("name", "other", "swap"),
    "replay": ("table", "where"),
    "session": ("database",),
    "set_config": ("name", "value"),
    "snapshot": (),
    "stream_load": ("table", "headers", "upload"),
    "table": ("name",),
    "tables": ("database",),
    "transaction": ("options",),
    "upload": ("database", "path"),
}
"""The arguments of the calls. Privileges are checked on what these name, so no call takes another one."""


def store_call(calls: Calls, name: str, given: dict[str, Any]) -> Any:
    """Runs a call after its privileges were checked on its arguments.

    Raises:
        InvalidInputError: the call takes no such argument.
        AccessDeniedError: the user lacks a privilege.
        NotFoundError: the user sees nothing of what is named.
    """
    unknown = sorted(given.keys() - set(STORE_ARGUMENTS[name]))
    if unknown:
        takes = ", ".join(STORE_ARGUMENTS[name]) or "none"
        raise InvalidInputError(
            f"Store.{name} takes no argument {unknown[0][:100]!r}; its arguments: {takes}", kind="bad_message"
        )
    calls.access.check_store_call(name, given)
    return STORE_CALLS[name](calls, given)
