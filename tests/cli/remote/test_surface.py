"""The public surface of the handles: each member runs at the server, or is refused by its name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest

from seqstore import (
    InvalidInputError,
    Load,
    Session,
    Snapshot,
    Store,
    StoreSnapshot,
    Table,
    Transaction,
    TransactionTable,
)
from seqstore.cli.remote.store_calls import STORE_ARGUMENTS, STORE_CALLS
from seqstore.store.remote.handles import Handle
from seqstore.store.remote.remote_load import RemoteLoad
from seqstore.store.remote.remote_session import RemoteSession
from seqstore.store.remote.remote_snapshot import RemoteSnapshot, RemoteStoreSnapshot
from seqstore.store.remote.remote_store import RemoteStore
from seqstore.store.remote.remote_table import RemoteTable
from seqstore.store.remote.remote_transaction import RemoteTransaction, RemoteTransactionTable
from seqstore.store.remote.surface import BESIDE, CALLS, REFUSED
from seqstore.store.runtime.internal import is_internal

CLASSES: dict[type, type] = {
    Store: RemoteStore,
    Table: RemoteTable,
    Load: RemoteLoad,
    Snapshot: RemoteSnapshot,
    StoreSnapshot: RemoteStoreSnapshot,
    Transaction: RemoteTransaction,
    TransactionTable: RemoteTransactionTable,
    Session: RemoteSession,
}

DEFINED = {"scan_tasks", "table_filter", "write_task"}  # internal members, for jobs and for the prompt


def public_members() -> Iterator[tuple[type, str]]:
    for engine in CLASSES:
        for name in dir(engine):
            if not name.startswith("_") and not is_internal(inspect.getattr_static(engine, name)):
                yield engine, name


@pytest.mark.parametrize(("engine", "name"), list(public_members()))
def test_each_public_member_is_called_defined_or_refused_with_a_reason(engine: type, name: str) -> None:
    kind, client = engine.__name__, CLASSES[engine]
    is_defined = any(name in vars(each) for each in client.__mro__ if each.__module__ != engine.__module__)
    assert is_defined, f"{kind}.{name} would run here, not at the server"
    assert (name in CALLS[kind] or name in REFUSED.get(kind, {})) or not _refuses(client, name), (
        f"{kind}.{name} is refused without a reason: name it in CALLS or REFUSED of store.remote.surface"
    )


def _refuses(client: type, name: str) -> bool:
    member = inspect.getattr_static(client, name)
    function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
    return (function.__doc__ or "").startswith("Refuses: ")


@pytest.mark.parametrize("engine", CLASSES)
def test_each_call_is_a_member_or_one_of_the_client(engine: type) -> None:
    names = set(CALLS[engine.__name__])
    public = {name for each, name in public_members() if each is engine}
    assert names - public == BESIDE.get(engine.__name__, frozenset())


def test_the_server_has_each_call_of_the_store() -> None:
    assert set(STORE_CALLS) == set(CALLS["Store"])


def test_the_server_knows_the_arguments_of_each_call_of_the_store() -> None:
    """Those of the engine's method by name, but for what stays with the store."""
    assert set(STORE_ARGUMENTS) == set(CALLS["Store"])
    staying = {"create_table": {"filler"}, "maintain": {"is_cancelled"}, "snapshot": {"name", "version"}}
    for name in set(STORE_ARGUMENTS) - BESIDE["Store"]:
        parameters = inspect.signature(getattr(Store, name)).parameters.values()
        named = {each.name for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD}
        assert set(STORE_ARGUMENTS[name]) == named - {"self"} - staying.get(name, set()), name


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in REFUSED.items() for name in names]
)
def test_a_member_that_is_refused_says_what_stands_for_it(kind: str, name: str) -> None:
    [client] = [each for engine, each in CLASSES.items() if engine.__name__ == kind]
    handle: object = object.__new__(client)
    with pytest.raises(InvalidInputError, match=re.escape(REFUSED[kind][name])):
        getattr(handle, name)()


@pytest.mark.parametrize("client", CLASSES.values())
def test_what_only_the_engine_uses_is_refused_too(client: type) -> None:
    engine = next(each for each, own in CLASSES.items() if own is client)
    members = {name: inspect.getattr_static(engine, name) for name in dir(engine) if name[0] != "_"}
    marked = [name for name, member in members.items() if is_internal(member)]
    own = BESIDE.get(engine.__name__, frozenset()) | DEFINED
    assert all(_refuses(client, name) for name in marked if name not in own)


def test_the_handles_of_a_client_are_handles_of_the_engine() -> None:
    assert all(issubclass(client, (Handle, engine)) for engine, client in CLASSES.items())
