"""Calls of a client, and what they return, beside those of a store that was opened."""

from __future__ import annotations

import gc
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import flight

from seqstore import (
    AccessDeniedError,
    AlreadyExistsError,
    ClosedError,
    InvalidInputError,
    LabelExistsError,
    LoadRejectedError,
    NotFoundError,
    Session,
    Store,
    Table,
    UnavailableError,
    VersionExpiredError,
)
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.remote import client_sessions
from seqstore.cli.scan.flight_server import FlightSqlServer
from seqstore.store.remote import sent_rows
from seqstore.store.remote.link import Link
from seqstore.store.remote.remote_store import RemoteStore
from seqstore.store.remote.remote_table import RemoteTable
from seqstore.store.transaction import transaction_table
from tests.support.certificates import write_certificate
from tests.support.http_server import serving
from tests.support.remote.server import client
from tests.support.rows import rows_of, schema_of

BOTH: list[Callable[[Table], Any]] = [
    lambda t: t.name,
    lambda t: t.database,
    lambda t: t.version,
    lambda t: t.oldest_version,
    lambda t: t.schema,
    lambda t: t.history(),
    lambda t: t.key_history({"k": 1}),
    lambda t: t.count(1),
    lambda t: t.scan().read_all(),
    lambda t: t.scan(["v"], pc.field("k") == 2, 2, hidden=True).read_all(),
    lambda t: t.get({"k": [2, 7]}, ["v"]),
    lambda t: t.changes(1).read_all(),
    lambda t: t.find_label("first"),
    lambda t: t.snapshot().metrics(pc.field("k") > 1),
    lambda t: t.snapshot().extreme("k", largest=False),
    lambda t: t.snapshot().has_bounds("k"),
    lambda t: t.snapshot(2).version,
    lambda t: t.check(),
    lambda t: t.vacuum(dry_run=True),
]
DAYS = "SELECT count(*) FROM " + ", ".join(f"(SELECT 1 a UNION ALL SELECT 2) x{n}" for n in range(60))
FAILING: list[Callable[[Table], Any]] = [
    lambda t: t.scan(["nope"]).read_all(),
    lambda t: t.scan(None, pc.field("v") > 5).read_all(),
    lambda t: t.scan(version=9).read_all(),
    lambda t: t.snapshot(0),
    lambda t: t.get({"x": [1]}),
    lambda t: t.upsert(pa.table({"k": [1], "x": [2]})),
    lambda t: t.upsert(pa.table({"k": pa.array([None], pa.int64())}), label="rejected"),
    lambda t: t.upsert(pa.table({"k": [1]}), label="first"),
    lambda t: t.upsert(pa.table({"k": [1]}), label="not a label!"),
    lambda t: t.upsert(pa.table({"k": [1]}), mode="x"),
    lambda t: t.upsert("rows"),
    lambda t: t.update({"k": 1}),
    lambda t: t.update({"nope": 1}, pc.field("k") == 1),
    lambda t: t.merge(pa.table({"k": [1]}), on="t.k ==== s.k"),
    lambda t: t.restore(77),
    lambda t: t.key_history({"v": 1}),
    lambda t: t.refuse_label("first"),
]


@pytest.mark.parametrize("number", range(len(BOTH)))
def test_a_call_returns_what_it_returns_where_the_store_is(
    table: RemoteTable, stored: Table, number: int
) -> None:
    assert BOTH[number](table) == BOTH[number](stored)


@pytest.mark.parametrize("number", range(len(FAILING)))
def test_a_call_fails_with_the_same_class_and_message(table: RemoteTable, stored: Table, number: int) -> None:
    with pytest.raises(Exception) as here:  # noqa: PT011 - whatever the engine raises
        FAILING[number](stored)
    with pytest.raises(type(here.value)) as there:
        FAILING[number](table)
    assert str(there.value) == str(here.value)
    assert getattr(there.value, "fields", None) == getattr(here.value, "fields", None)


def test_databases_and_tables_are_made_listed_and_removed(remote: RemoteStore) -> None:
    remote.create_database("other")
    remote.create_table("other.a", schema_of("k INT"))
    remote.rename_table("other.a", "b")
    remote.create_table("other.c", schema_of("k INT"))
    remote.replace_table("other.b", "other.c")
    remote.drop_table("other.c")
    assert (remote.databases(), remote.tables("other")) == (["db", "other"], ["b"])
    with pytest.raises(AlreadyExistsError):
        remote.create_table("other.b", schema_of("k INT"))
    remote.drop_database("other")
    assert remote.databases() == ["db"]


def test_a_renamed_table_keeps_its_handle(remote: RemoteStore, table: RemoteTable) -> None:
    remote.rename_table("db.t", "u")
    assert table.count() == 2


def test_a_table_made_anew_under_a_name_is_another_one(remote: RemoteStore, table: RemoteTable) -> None:
    remote.drop_table("db.t")
    remote.create_table("db.t", schema_of("k BIGINT", "v STRING"))
    with pytest.raises(NotFoundError, match="dropped"):
        table.count()


def test_rows_of_many_bytes_travel_in_parts_as_one_load(
    table: RemoteTable, stored: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_rows, "BYTES_MAX", 1_000)
    rows = pa.table({"k": range(1_000), "v": ["x"] * 1_000})
    done = table.upsert(rows, label="large")
    assert (done.rows_loaded, stored.version, stored.count()) == (1_000, 3, 1_000)


def test_rejected_rows_are_counted_over_the_parts_of_a_write(
    table: RemoteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_rows, "BYTES_MAX", 50)
    load = table.begin_load()
    done = load.write(pa.table({"k": [1, 2, 3, 4, 5, 6, 7, 8, None]}))
    assert (done.rows, [row.row for row in done.rejected]) == (9, [8])
    with pytest.raises(LoadRejectedError) as error:
        load.commit(max_filter_ratio=0.0)
    assert [row.row for row in error.value.rejected] == [8]


def test_a_load_of_several_batches_is_published_once(table: RemoteTable, stored: Table) -> None:
    with table.begin_load(label="two") as load:
        load.write(pa.table({"k": [3], "v": ["c"]}))
        load.write(pa.table({"k": [4], "v": ["d"]}))
        assert (stored.version, load.label, load.txn_id > 0) == (2, "two", True)
        assert load.commit().version == 3
    assert stored.count() == 4


def test_a_load_left_without_a_commit_leaves_nothing(table: RemoteTable, stored: Table) -> None:
    with table.begin_load(label="none") as load:
        load.write(pa.table({"k": [3]}))
    assert (stored.version, stored.find_label("none").status) == (2, "ABORTED")  # type: ignore[union-attr]


def test_a_load_that_was_aborted_says_so(table: RemoteTable) -> None:
    load = table.begin_load()
    load.abort("enough")
    with pytest.raises(ClosedError):
        load.write(pa.table({"k": [3]}))


def test_partial_updates_and_deletes_by_key(table: RemoteTable, stored: Table) -> None:
    table.upsert(pa.table({"k": [1], "v": ["z"]}), mode="UPDATE_FIXED_COLUMNS")
    assert table.delete({"k": [2]}).rows_deleted == 1
    assert rows_of(stored) == [(1, "z")]


def test_an_update_and_a_merge_run_at_the_server(table: RemoteTable, stored: Table) -> None:
    assert table.update({"v": pc.field("v")}, pc.field("k") == 1).rows_matched == 1
    merge = table.merge(pa.table({"k": [1, 9], "v": ["m", "n"]}), on="t.k = s.k")
    done = merge.when_matched_update({"v": "s.v"}).when_not_matched_insert_all().execute(retries=1)
    assert (done.rows_changed, rows_of(stored)) == (2, [(1, "m"), (2, "b"), (9, "n")])


def test_two_phases_by_label_and_by_id(remote: RemoteStore, table: RemoteTable, stored: Table) -> None:
    for label in ("one", "two"):
        with table.begin_load(label=label) as load:
            load.write(pa.table({"k": [5]}))
            prepared = load.precommit()
    assert stored.version == 2
    assert remote.commit_transaction("db", label="one").version == 3
    assert remote.abort_transaction("db", txn_id=prepared.txn_id).status == "ABORTED"
    assert stored.version == 3


def test_a_transaction_of_two_tables_is_one_commit(remote: RemoteStore, store: Store) -> None:
    other = remote.create_table("db.u", schema_of("k BIGINT", "v STRING"))
    with remote.transaction(label="both") as transaction:
        here = transaction.table("db.t")
        here.update({"v": "x"}, pc.field("k") == 1)
        assert here.get({"k": [1]}).to_pylist() == [{"k": 1, "v": "x"}]
        transaction.table("db.u").upsert(here.scan().read_all())
        assert (transaction.has_written, other.count()) == (True, 0)
    assert (other.count(), store.find_transaction("db", "both").status) == (2, "VISIBLE")  # type: ignore[union-attr]


def test_a_conflict_is_found_at_the_server(remote: RemoteStore, table: RemoteTable, stored: Table) -> None:
    def work(session: Any) -> int:
        opened = session.table("db.t")
        seen = opened.count(pc.field("v") == "a")
        if stored.version == 2:
            stored.upsert(pa.table({"k": [1], "v": ["other"]}))
        opened.update({"v": "mine"}, pc.field("k") == 1)
        return int(seen)

    with pytest.raises(Exception, match=r"run|retry|again") as error:
        remote.run_transaction(work)
    assert type(error.value).__module__ == "seqstore.store.errors"
    found, done = remote.run_transaction(work, retries=2)
    assert (found, done.versions) == (0, {"db.t": 4})


def test_a_transaction_left_by_an_error_is_rolled_back(remote: RemoteStore, stored: Table) -> None:
    def fail() -> None:
        with remote.transaction(label="left") as transaction:
            transaction.table("db.t").delete({"k": [1]})
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()
    assert stored.version == 2


def test_a_moment_and_a_snapshot_do_not_change(
    remote: RemoteStore, table: RemoteTable, stored: Table
) -> None:
    with remote.snapshot() as moment, table.snapshot() as snapshot:
        stored.upsert(pa.table({"k": [3]}))
        assert moment.table("db.t") is moment.table("db.t")
        assert (moment.table("db.t").count(), snapshot.count(), table.count()) == (2, 2, 3)


def test_a_table_of_a_moment_outlives_the_moment_s_handle(remote: RemoteStore, stored: Table) -> None:
    """The end of the handle released the moment, and with it the table."""
    assert remote.snapshot().table("db.t").count() == 2
    found = remote.snapshot().table("db.t")
    stored.upsert(pa.table({"k": [3]}))
    assert (found.count(), rows_of(found)) == (2, [(1, "a"), (2, "b")])


def test_a_snapshot_of_a_transaction_outlives_the_transaction_s_handle(remote: RemoteStore) -> None:
    found = remote.transaction().table("db.t").snapshot()
    gc.collect()  # a transaction and its tables refer to each other
    assert found.count() == 2


def test_a_moment_is_released_with_the_last_of_its_handles(
    remote: RemoteStore, table: RemoteTable, stored: Table
) -> None:
    gc.disable()  # no cycle of references delays it
    try:
        found = remote.snapshot().table("db.t")
        stored.upsert(pa.table({"k": [1, 2], "v": ["c", "d"]}))
        stored.optimize(full=True)
        assert found.count() == 2
        assert 2 in stored.vacuum(retention_seconds=0).held
        del found
        table.count()  # brings the release
        assert stored.vacuum(retention_seconds=0).held == ()
    finally:
        gc.enable()


def test_a_version_that_a_client_holds_outlives_a_vacuum(table: RemoteTable, stored: Table) -> None:
    snapshot = table.snapshot(2)
    for number in range(3):
        stored.upsert(pa.table({"k": [1, 2], "v": [str(number)] * 2}))
    stored.optimize(full=True)
    assert stored.vacuum(retention_seconds=0).held == (2,)
    assert rows_of(snapshot) == [(1, "a"), (2, "b")]
    snapshot.close()
    table.count()  # brings the release
    assert stored.vacuum(retention_seconds=0).held == ()
    with pytest.raises(VersionExpiredError):
        table.snapshot(2)


def test_statements_of_a_session_share_database_variables_and_transaction(remote: RemoteStore) -> None:
    with Session(remote, "db") as session:
        text = "SET @x = 5; BEGIN; INSERT INTO t VALUES (7, 'q'); SELECT @x, count(*) FROM t"
        *_, last = session.execute(text)
        assert last.rows is not None
        assert (list(last.rows.to_pylist()[0].values()), session.in_transaction) == ([5, 3], True)
        list(session.execute("ROLLBACK"))
        assert remote.table("db.t").count() == 2


def test_a_statement_is_listed_and_ended_by_kill(remote: RemoteStore, server: FlightSqlServer) -> None:
    slow = Session(remote, "db")
    failed: list[Exception] = []

    def run() -> None:
        try:
            list(slow.execute(DAYS))
        except Exception as error:
            failed.append(error)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    with Session(remote) as other:
        while running.is_alive():  # a KILL before the statement runs has no effect
            [listed] = other.execute("SHOW PROCESSLIST")
            assert listed.rows is not None
            for row in listed.rows.to_pylist():
                if "UNION ALL" in (row["Info"] or ""):
                    with suppress(NotFoundError):  # one before has ended it meanwhile
                        list(other.execute(f"KILL QUERY {row['Id']}"))
            running.join(0.1)
    assert [str(each) for each in failed] == ["Query execution was interrupted"]


def test_a_text_with_a_syntax_error_runs_no_statement(remote: RemoteStore, stored: Table) -> None:
    with Session(remote, "db") as session, pytest.raises(InvalidInputError):
        session.execute("DELETE FROM t WHERE k = 1; SELEKT")
    assert stored.count() == 2


def test_a_query_is_sent_while_it_runs(remote: RemoteStore) -> None:
    session = Session(remote, "db")
    assert session.stream("SELECT v FROM t ORDER BY k").read_all().to_pydict() == {"v": ["a", "b"]}  # type: ignore[arg-type,attr-defined]


def test_a_closed_session_with_rows_to_be_read_holds_up_no_call(remote: RemoteStore, stored: Table) -> None:
    """The release waited for the rows to be read, and the next call for the release."""
    stored.upsert(pa.table({"k": range(600), "v": ["x" * 200] * 600}))
    with Session(remote, "db") as session:
        reader: Any = session.stream("SELECT a.v FROM t a CROSS JOIN t b")  # type: ignore[arg-type]
        first = reader.read_next_batch()
    calling = threading.Thread(target=remote.table, args=("db.t",), daemon=True)
    calling.start()
    calling.join(60)
    is_held_up = calling.is_alive()
    assert first.num_rows + sum(batch.num_rows for batch in reader) == 600 * 600
    assert not is_held_up


def test_a_call_of_a_session_whose_rows_are_not_read_is_refused(
    remote: RemoteStore, stored: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread would wait for itself, for ever."""
    monkeypatch.setattr(client_sessions, "UNREAD_SECONDS", 0.1)
    stored.upsert(pa.table({"k": range(600), "v": ["x" * 200] * 600}))
    with Session(remote, "db") as session:
        reader: Any = session.stream("SELECT a.v FROM t a CROSS JOIN t b")  # type: ignore[arg-type]
        first = reader.read_next_batch()
        with pytest.raises(InvalidInputError, match="a query whose rows are not all read"):
            list(session.execute("SELECT 1"))
        assert first.num_rows + sum(batch.num_rows for batch in reader) == 600 * 600
        [answer] = session.execute("SELECT 1")
        assert answer.rows is not None


def test_a_wrong_password_is_refused(server: FlightSqlServer, store: Store) -> None:
    store.accounts.create("reader", "a-word")
    with pytest.raises(AccessDeniedError, match="Access denied for user 'reader'"):
        client(server, "reader", "other")


def test_a_connection_is_encrypted_where_the_server_has_a_certificate(store: Store, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = FlightSqlServer(ServerSessions(store), "localhost", 0, context)
    url = f"seqstore+tls://localhost:{server.port}"
    with Store.connect(url, certificates=certificate) as remote:
        assert remote.databases() == ["db"]
    with pytest.raises(UnavailableError):
        Store.connect(url)  # the system does not know who signed it
    server.stop()


@pytest.mark.parametrize(
    ("host", "reason"),
    [("127.0.0.1:1", "Connection refused"), ("no-such-host.invalid:1", "no-such-host.invalid")],
)
def test_a_port_without_a_server_is_an_error_at_once(host: str, reason: str) -> None:
    """Of each of them Arrow's login said that it could not finish writing before closing."""
    with pytest.raises(UnavailableError, match=f"{host}: no server answers: .*{reason}"):
        Store.connect(f"seqstore://{host}")


def test_a_port_of_another_protocol_is_an_error_at_once(store: Store) -> None:
    with serving(store) as http, pytest.raises(UnavailableError, match=r"no server answers: .*HTTP/2"):
        Store.connect(http.address.replace("http://", "seqstore://"))


def test_a_login_that_breaks_is_tried_again(server: FlightSqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    given, broken = Link._given_token, [flight.FlightInternalError("Could not finish writing")]

    def once_broken(link: Link) -> tuple[bytes, bytes]:
        if broken:
            raise broken.pop()
        return given(link)

    monkeypatch.setattr(Link, "_given_token", once_broken)
    with client(server) as remote:
        assert remote.databases() == ["db"]
    assert broken == []


@pytest.mark.parametrize("url", ["seqstore://h", "http://h:1", "seqstore://u@h:1", "seqstore://h:1/x", "h:1"])
def test_a_url_of_no_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match="expected"):
        Store.connect(url)


def test_a_closed_store_takes_no_calls(remote: RemoteStore) -> None:
    remote.close()
    with pytest.raises(ClosedError):
        remote.databases()


def test_the_options_of_a_load_are_those_of_the_engine(table: RemoteTable) -> None:
    with pytest.raises(TypeError, match="nope"):
        table.upsert(pa.table({"k": [1]}), nope=1)  # type: ignore[call-arg]


def test_a_function_that_a_commit_would_run_is_refused(table: RemoteTable) -> None:
    with table.begin_load() as load, pytest.raises(InvalidInputError, match="a function cannot be sent"):
        load.commit(also=print)


def test_a_used_label_names_the_load(table: RemoteTable) -> None:
    with pytest.raises(LabelExistsError) as error:
        table.begin_load(label="first")
    assert (error.value.status, error.value.version) == ("VISIBLE", 2)


def test_an_error_of_arrow_at_the_server_is_no_lost_connection(
    table: RemoteTable, stored: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call was tried again for a minute, and its reply then called lost."""

    def fails(*_args: object) -> None:
        raise pa.ArrowInvalid("Could not convert")

    monkeypatch.setattr(transaction_table, "_scalar", fails)
    for each in (stored, table):
        with pytest.raises(pa.ArrowInvalid, match="Could not convert"):
            each.update({"v": 1})
