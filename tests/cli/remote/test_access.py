"""Every call checks privileges: with none it is refused, with too few too, with those it names it runs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    AccessDeniedError,
    ClosedError,
    InvalidInputError,
    NotFoundError,
    Session,
    Store,
    Table,
    TransactionOptions,
)
from seqstore.cli.clients.audit_log import FILE, AuditLog
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.remote.store_calls import STORE_ARGUMENTS
from seqstore.cli.scan.flight_server import FlightSqlServer
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.store.load.write_options import WriteOptions
from seqstore.store.remote.handles import Handle
from seqstore.store.remote.remote_store import RemoteStore
from seqstore.store.remote.remote_table import RemoteTable
from seqstore.store.remote.remote_tasks import RemoteStaging
from seqstore.store.remote.remote_upload import RemoteUpload
from seqstore.store.remote.surface import CALLS
from tests.support.remote.server import client
from tests.support.rows import schema_of

ROWS = pa.table({"k": [1], "v": ["x"]})
PART = pa.table({"part": pa.array([b"x"], pa.large_binary())})
OPEN = {  # what a user without any privilege may do: it shows and changes nothing
    "Session.parse",
    "Store.databases",
    "Store.session",
    "Store.snapshot",
    "Store.transaction",
    "Transaction.commit",  # of nothing
    "Transaction.expire",
    "Transaction.has_written",
    "Transaction.is_open",
    "Transaction.precommit",
    "Transaction.rollback",
    "Transaction.txn_id",
    "Upload.write",  # of a file that was begun with the privilege
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Load.abort": {"reason": "x"},
    "Load.adopt": {"staging": "", "parts": ()},
    "Load.clear": {},
    "Load.note_filtered": {"count": 1},
    "Load.require_revision": {"revision": 1},
    "Session.execute": {"text": "SELECT * FROM db.t", "number": 0},
    "Session.parse": {"text": "SELECT 1"},
    "Session.stream": {"query": "SELECT * FROM db.t"},
    "Snapshot.extreme": {"column": "k", "largest": True},
    "Snapshot.get": {"keys": ROWS.select(["k"])},
    "Snapshot.has_bounds": {"column": "k"},
    "Staging.check_columns": {"data": ROWS.schema},
    "Store.abort_transaction": {"database": "db", "label": "prepared"},
    "Store.broker_load": {"spec": LoadSpec("db", "x", (DataDescription("t", ("s3://b/x.csv",)),)).to_record()},
    "Store.clean_labels": {"database": "db"},
    "Store.commit_transaction": {"database": "db", "label": "prepared"},
    "Store.create_database": {"name": "db", "if_not_exists": True},
    "Store.create_table": {"name": "db.t", "schema": schema_of("k INT"), "if_not_exists": True},
    "Store.drop_database": {"name": "nothing", "if_exists": True},
    "Store.drop_table": {"name": "db.nothing", "if_exists": True},
    "Store.find_transaction": {"database": "db", "label": "prepared"},
    "Store.load_job": {"database": "db", "label": "x"},
    "Store.overview": {"tables_max": 1},
    "Store.rename_table": {"name": "db.t", "new_name": "t2"},
    "Store.replay": {"table": "db.t", "where": ""},
    "Store.replace_table": {"name": "db.t", "other": "db.u"},
    "Store.set_config": {"name": "enable_concurrent_update", "value": "true"},
    "Store.stream_load": {"table": "db.t", "headers": {}, "upload": 0},
    "Store.table": {"name": "db.t"},
    "Store.tables": {"database": "db"},
    "Store.upload": {"database": "db", "path": "x"},
    "StoreSnapshot.table": {"name": "db.t"},
    "Table.begin_staging": {"options": WriteOptions()},
    "Table.begun_stagings": {"staging": ""},
    "Table.changes": {"first": 1},
    "Table.end_stagings": {"stagings": []},
    "Table.delete_where": {"where": pc.field("k") == 77},
    "Table.find_label": {"label": "first"},
    "Table.get": {"keys": ROWS.select(["k"])},
    "Table.key_history": {"key": {"k": 1}},
    "Table.merge": {"source": ROWS, "on": "t.k = s.k",
                    "clauses": [("when_matched_delete", {})]},
    "Table.outcome": {"label": "first"},
    "Table.refuse_label": {"label": "free"},
    "Table.restore": {"version": 1},
    "Table.scan_share": {"version": 2, "number": 0},
    "Table.scan_shares": {"version": 2},
    "Table.staging": {"staging": ""},
    "Table.update": {"assignments": {"v": "x"}, "where": pc.field("k") == 77},
    "Table.version_as_of": {"moment": None},
    "Transaction.table": {"name": "db.t"},
    "TransactionTable.get": {"keys": ROWS.select(["k"])},
    "TransactionTable.log_constraints": {"assigned": ["v"]},
    "TransactionTable.log_keys": {"keys": ROWS.select(["k"]), "columns": None},
    "TransactionTable.log_scan": {"columns": None, "filter": None},
    "TransactionTable.merge": {"source": ROWS, "on": "t.k = s.k", "clauses": [("when_matched_delete", {})]},
    "TransactionTable.update": {"assignments": {"v": "x"}, "where": pc.field("k") == 77},
}  # fmt: skip
WITH_ROWS = {"Load.write", "Staging.write", "Table.delete", "Table.upsert", "TransactionTable.change",
             "TransactionTable.delete", "Upload.write"}  # fmt: skip
AS_ROWS = {"changes", "get", "scan", "scan_share", "stream"}
NAMES = [f"{kind}.{name}" for kind, names in CALLS.items() for name in names]


@pytest.fixture
def user(store: Store, server: FlightSqlServer) -> Iterator[RemoteStore]:
    """The client of a user without privileges, who had all of them when it opened its handles."""
    store.accounts.create("user", "a-word")
    store.accounts.grant("user", ["ADMIN"])
    with client(server, "user", "a-word") as connected:
        yield connected


def handles(user: RemoteStore, store: Store) -> dict[str, Handle]:
    """One handle of each kind; afterwards the user holds no privilege."""
    table = user.table("db.t")
    transaction = user.transaction(reads_own_writes=False)
    with table.begin_load(label="prepared") as load:
        load.write(ROWS)
        load.precommit()
    session: Any = Session(user)
    found: list[Any] = [
        user,
        table,
        table.begin_load(),
        table.snapshot(),
        user.snapshot(),
        user.transaction(),
        transaction.table("db.t"),
        session,
        staging(table),
        RemoteUpload(user, "db", "x"),
    ]
    store.accounts.revoke("user", ["ADMIN"])
    return {each.kind: each for each in found}


def staging(table: RemoteTable) -> RemoteStaging:
    made = table.call("staging", {"staging": table.write_task().load})
    return RemoteStaging(table.connection, made)


def run(handle: Handle, kind: str, name: str) -> Any:
    full = f"{kind}.{name}"
    rows = PART if kind == "Upload" else ROWS
    request = handle.request(name, ARGUMENTS.get(full, {}), rows if full in WITH_ROWS else None)
    if name in AS_ROWS:
        return handle.connection.reader(request).read_all()
    return handle.connection.run(request)


def test_every_call_without_a_privilege_is_refused(user: RemoteStore, store: Store) -> None:
    found, allowed = handles(user, store), set()
    history = store.table("db.t").history()
    for full in NAMES:
        kind, name = full.split(".")
        try:
            run(found[kind], kind, name)
            allowed.add(full)
        except ClosedError:  # of a transaction that a call before has ended
            allowed.add(full)
        except (AccessDeniedError, NotFoundError):
            pass
    assert allowed == OPEN
    assert store.table("db.t").history() == history
    assert store.find_transaction("db", "prepared").status == "PRECOMMITTED"  # type: ignore[union-attr]


def test_each_privilege_of_a_call_counts(user: RemoteStore, store: Store) -> None:
    """With all privileges of a call but one, on its table, it is refused in the words of SQL."""
    found = handles(user, store)
    for full in NAMES:
        kind, name = full.split(".")
        for left_out in CALLS[kind][name].privileges:
            others = [each for each in ("SELECT", "LOAD", "ALTER", "CREATE", "DROP") if each != left_out]
            store.accounts.grant("user", others, "db.t")
            with pytest.raises(
                AccessDeniedError, match=f"needs the {left_out} privilege on database 'db' or"
            ):
                run(found[kind], kind, name)
            store.accounts.revoke("user", others, "db.t")


def test_a_user_sees_databases_and_tables_of_its_grants_only(user: RemoteStore, store: Store) -> None:
    store.create_database("hidden")
    store.create_table("db.u", schema_of("k INT"))
    handles(user, store)
    store.accounts.grant("user", ["SELECT"], "db.t")
    assert (user.databases(), user.tables("db")) == (["db"], ["t"])
    for name in ("hidden.x", "db.u", "none.x"):
        with pytest.raises(NotFoundError, match="Unknown"):
            user.table(name)


def test_a_commit_needs_load_on_what_it_writes(user: RemoteStore, store: Store, stored: Table) -> None:
    transaction = user.transaction()
    transaction.table("db.t").upsert(ROWS)
    store.accounts.revoke("user", ["ADMIN"])
    with pytest.raises(AccessDeniedError, match="LOAD"):
        transaction.commit()
    assert stored.version == 2


def test_a_table_renamed_to_where_a_user_sees_nothing_is_unknown(user: RemoteStore, store: Store) -> None:
    table = user.table("db.t")
    store.accounts.revoke("user", ["ADMIN"])
    store.accounts.grant("user", ["SELECT"], "db.t")
    assert table.count() == 2
    store.rename_table("db.t", "secret")
    with pytest.raises(NotFoundError, match=r"Unknown table 'db\.t'"):
        table.count()


def test_a_label_of_other_tables_does_not_exist_for_a_user(user: RemoteStore, store: Store) -> None:
    other = store.create_table("db.u", schema_of("k BIGINT NOT NULL", "v STRING"))
    other.upsert(ROWS, label="other")
    table = user.table("db.t")
    store.accounts.revoke("user", ["ADMIN"])
    store.accounts.grant("user", ["LOAD"], "db.t")
    assert (table.find_label("other"), table.outcome("other")) == (None, None)
    assert table.find_label("first").label == "first"  # type: ignore[union-attr]
    assert user.find_transaction("db", "other") is None


def test_a_transaction_of_a_database_that_a_user_does_not_see_is_refused(
    user: RemoteStore, store: Store
) -> None:
    store.accounts.revoke("user", ["ADMIN"])
    for database in ("db", "none"):
        with pytest.raises(NotFoundError, match=f"Unknown database '{database}'"):
            user.transaction(database=database)


@pytest.fixture
def loader(user: RemoteStore, store: Store) -> RemoteStore:
    """The client of a user who may read and load, and neither make nor alter tables."""
    store.accounts.revoke("user", ["ADMIN"])
    store.accounts.grant("user", ["LOAD", "SELECT"], "db")
    return user


def uploaded(loader: RemoteStore, name: str) -> RemoteUpload:
    upload = RemoteUpload(loader, "db", name)
    upload.send(io.BytesIO(b'{"k": 2, "extra": 5}\n'))
    return upload


@pytest.mark.parametrize(
    ("table", "header", "value", "privilege"),
    [("db.t", "schema_evolution", "add", "ALTER"), ("db.new", "auto_create", "true", "CREATE")],
)
@pytest.mark.parametrize("written", ["{}", "{} ", "\t{}", "{}\x1f"])
def test_a_stream_load_needs_the_privilege_of_its_headers(
    loader: RemoteStore, store: Store, table: str, header: str, value: str, privilege: str, written: str
) -> None:
    """EV8, EV10. Blanks around a name hid it from the check, and the load read it without them."""
    headers = {"format": "json", written.format(header).title(): value}
    upload = uploaded(loader, "body")
    given = {"table": table, "headers": headers, "upload": upload.address}
    with pytest.raises(AccessDeniedError, match=f"needs the {privilege} privilege"):
        loader.call("stream_load", given)
    assert (store.tables("db"), store.table("db.t").schema.names) == (["t"], ["k", "v"])


@pytest.mark.parametrize("is_of_job", [True, False])
@pytest.mark.parametrize(
    ("table", "properties", "privilege"),
    [("t", {"schema_evolution": "add"}, "ALTER"), ("new", {"auto_create": "TRUE"}, "CREATE")],
)
def test_a_broker_load_needs_the_privilege_of_its_properties(
    loader: RemoteStore,
    store: Store,
    table: str,
    properties: dict[str, str],
    privilege: str,
    is_of_job: bool,
) -> None:
    """EV8, EV10. `auto_create` needed no CREATE."""
    upload = uploaded(loader, "rows.json")
    path = f"upload:{upload.address}/rows.json"
    own, of_job = ({}, properties) if is_of_job else (properties, {})
    spec = LoadSpec("db", "x", (DataDescription(table, (path,), properties=own),), of_job)
    with pytest.raises(AccessDeniedError, match=f"needs the {privilege} privilege"):
        loader.call("broker_load", {"spec": spec.to_record()})


NAMING: dict[str, Any] = {
    "database": "hidden",
    "filler": (1, 1),
    "label": "hidden",
    "name": "hidden.t",
    "options": TransactionOptions(database="hidden"),
    "other": "hidden.t",
    "spec": LoadSpec("hidden", "x", (DataDescription("t", ("s3://b/x.csv",)),)).to_record(),
    "table": "hidden.t",
    "txn_id": 1,
}


@pytest.mark.parametrize("name", CALLS["Store"])
def test_a_call_of_the_store_takes_its_own_arguments_only(remote: RemoteStore, name: str) -> None:
    """Privileges were checked on `options`, and `transaction` took the database beside them."""
    for more in NAMING.keys() - set(STORE_ARGUMENTS[name]):
        given = {**ARGUMENTS.get(f"Store.{name}", {}), more: NAMING[more]}
        with pytest.raises(InvalidInputError, match=f"Store.{name} takes no argument '{more}'"):
            remote.call(name, given)


def test_each_argument_of_a_call_of_the_store_is_checked(user: RemoteStore, store: Store) -> None:
    """A user of one database reaches no other one by any argument that names something."""
    store.create_database("hidden")
    store.create_table("hidden.t", schema_of("k INT"))
    store.accounts.revoke("user", ["ADMIN"])
    store.accounts.grant("user", ["SELECT", "LOAD", "ALTER", "CREATE", "DROP"], "db")
    named = {"database", "name", "options", "other", "spec", "table"}
    for name in CALLS["Store"]:
        for argument in named & set(STORE_ARGUMENTS[name]):
            given = {**ARGUMENTS.get(f"Store.{name}", {}), argument: NAMING[argument]}
            with pytest.raises((AccessDeniedError, NotFoundError)):
                user.call(name, given)


def test_the_audit_log_has_the_query_that_ran(store: Store, stored: Table, tmp_path: Path) -> None:
    """A message with a text beside its query was logged with that text."""
    audit = AuditLog(tmp_path / "audit")
    audit.start()
    server = FlightSqlServer(ServerSessions(store, audit=audit), "127.0.0.1", 0)
    with client(server) as remote:
        session: Any = Session(remote, "db")
        given = {"query": "SELECT v FROM t", "text": "SELECT 1"}
        assert remote.connection.reader(session.request("stream", given)).read_all().num_rows == 2
    server.stop()
    audit.stop()
    lines = [json.loads(line) for line in (tmp_path / "audit" / FILE).read_text().splitlines()]
    statements = [line["statement"] for line in lines if line["event"] == "statement"]
    assert "SELECT v FROM t" in statements
    assert "SELECT 1" not in statements


def test_the_session_of_another_user_is_unknown(user: RemoteStore, remote: RemoteStore) -> None:
    taken = remote.connection.link().session
    user.connection.link().session = taken
    assert user.databases() == ["db"]  # in a session of its own
    assert user.connection.link().session != taken


@pytest.mark.parametrize(
    "call",
    ["Store.views", "Table.state", "Table.__init__", "Load.join", "Nothing.x", "Store", "", "Table.name"],
)
def test_what_is_no_call_cannot_be_called(remote: RemoteStore, call: str) -> None:
    link = remote.connection.link()
    request = {"protocol": 1, "request": "1", "call": call, "on": None, "arguments": {}}
    assert link.call(request, None)["error"]["kind"] == "unknown_call"
