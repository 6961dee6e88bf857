"""Connections that break: a proxy withholds replies and cuts, servers end and begin anew."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    ClosedError,
    CommitUnknownError,
    Load,
    Session,
    Store,
    Table,
    Transaction,
    UnavailableError,
)
from seqstore.cli.scan.flight_server import FlightSqlServer
from seqstore.store.remote.address import Address
from seqstore.store.remote.connection import Request
from seqstore.store.remote.remote_store import RemoteStore
from tests.support.remote.cut_proxy import CutProxy
from tests.support.remote.server import client, serving
from tests.support.rows import rows_of

ROW = pa.table({"k": [3], "v": ["c"]})


@pytest.fixture
def proxy(server: FlightSqlServer) -> Iterator[CutProxy]:
    made = CutProxy(server.port)
    yield made
    made.close()


@pytest.fixture
def remote(proxy: CutProxy) -> Iterator[RemoteStore]:
    """A client behind the proxy."""
    with connected(proxy) as found:
        yield found


def connected(proxy: CutProxy, retry_seconds: float = 300) -> RemoteStore:
    return RemoteStore(Address.of(f"seqstore://127.0.0.1:{proxy.port}", "root", ""), retry_seconds)


def cut_once_visible(
    proxy: CutProxy,
    stored: Table,
    versions: int,
    run: Callable[[], Any],
    before_cut: Callable[[], None] = lambda: None,
) -> Any:
    """Runs a call whose reply is withheld; cuts as soon as the server has published its version."""
    proxy.withhold_replies()
    found: list[Any] = []
    running = threading.Thread(target=lambda: found.append(_caught(run)))
    running.start()
    while stored.version < versions:
        assert running.is_alive()
        running.join(0.01)
    before_cut()
    proxy.cut()
    running.join(300)
    [value] = found
    if isinstance(value, Exception):
        raise value
    return value


def _caught(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Exception as error:
        return error


CHANGES: dict[str, Callable[[Table], Any]] = {
    "upsert": lambda t: t.upsert(ROW),
    "upsert with a label": lambda t: t.upsert(ROW, label="mine"),
    "delete": lambda t: t.delete({"k": [1]}),
    "update": lambda t: t.update({"v": "z"}, pc.field("k") == 1),
    "merge": lambda t: t.merge(ROW, on=["k"]).when_not_matched_insert_all().execute(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_whose_reply_is_lost_happens_once(
    remote: RemoteStore, proxy: CutProxy, stored: Table, name: str
) -> None:
    table = remote.table("db.t")
    done = cut_once_visible(proxy, stored, 3, lambda: CHANGES[name](table))
    assert (done.version, stored.version) == (3, 3)
    assert len(stored.history()) == 3


def test_a_commit_whose_reply_is_lost_happens_once(
    remote: RemoteStore, proxy: CutProxy, stored: Table
) -> None:
    with remote.table("db.t").begin_load(label="mine") as load:
        load.write(ROW)
        done = cut_once_visible(proxy, stored, 3, load.commit)
    assert (done.version, done.label, done.rows_loaded, stored.version) == (3, "mine", 1, 3)


def test_a_commit_of_a_transaction_whose_reply_is_lost_happens_once(
    remote: RemoteStore, proxy: CutProxy, stored: Table
) -> None:
    transaction = remote.transaction()
    transaction.table("db.t").upsert(ROW)
    done = cut_once_visible(proxy, stored, 3, transaction.commit)
    assert (done.versions, stored.version) == ({"db.t": 3}, 3)


@contextmanager
def newer_replies(remote: RemoteStore, server: FlightSqlServer) -> Iterator[Callable[[], None]]:
    """Has the server keep more replies than it has place for, in the session of a client."""
    with client(server) as direct:
        direct.connection.link().session = remote.connection.link().session

        def fill() -> None:
            for _ in range(300):
                direct.create_database("db", if_not_exists=True)

        yield fill


def test_a_change_whose_reply_is_forgotten_is_found_by_its_label(
    remote: RemoteStore, proxy: CutProxy, stored: Table, server: FlightSqlServer
) -> None:
    """The server told `unknown` of a request whose reply it had dropped, so it was sent again."""
    table = remote.table("db.t")
    with newer_replies(remote, server) as fill:
        done = cut_once_visible(proxy, stored, 3, lambda: table.update({"v": "z"}), fill)
    assert (done.version, stored.version) == (3, 3)


def test_a_statement_whose_reply_is_forgotten_happens_once(
    remote: RemoteStore, proxy: CutProxy, stored: Table, server: FlightSqlServer
) -> None:
    """A statement of SQL has no label: the error says that its outcome is not known."""
    results = Session(remote, "db").execute("UPDATE t SET v = concat(v, 'x')")
    with newer_replies(remote, server) as fill, suppress(CommitUnknownError):
        cut_once_visible(proxy, stored, 3, lambda: next(results), fill)
    assert rows_of(stored) == [(1, "ax"), (2, "bx")]


COMMITS: dict[str, tuple[type, Callable[[RemoteStore], Any]]] = {
    "load": (Load, lambda remote: remote.table("db.t").begin_load(label="mine")),
    "transaction": (Transaction, lambda remote: remote.transaction(label="mine")),
}


class SlowCommit:
    """A commit of one row, which the server begins, and ends when the test lets it."""

    def __init__(self, name: str, remote: RemoteStore, patch: pytest.MonkeyPatch) -> None:
        engine, begin = COMMITS[name]
        self.begun, self.go_on = threading.Event(), threading.Event()
        commit = engine.commit  # type: ignore[attr-defined]

        def slow(value: Any, **given: Any) -> Any:
            self.begun.set()
            self.go_on.wait()
            return commit(value, **given)

        patch.setattr(engine, "commit", slow)
        self._made = begin(remote)
        if name == "load":
            self._made.write(ROW)
        else:
            self._made.table("db.t").delete({"k": [1]})

    def cut(self, proxy: CutProxy) -> Any:
        """Cuts the connection while the commit runs; returns the client's error."""
        found: list[Any] = []
        running = threading.Thread(target=lambda: found.append(_caught(self._made.commit)))
        running.start()
        assert self.begun.wait(300)
        proxy.cut()
        running.join(300)
        self.go_on.set()
        return found[0]


@pytest.mark.parametrize("name", COMMITS)
def test_a_commit_that_still_runs_when_the_server_is_back_is_waited_for(
    remote: RemoteStore, proxy: CutProxy, stored: Table, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was away for longer than the client's patience; then its label told `not applied`."""
    commit = SlowCommit(name, remote, monkeypatch)
    connection, link = remote.connection, remote.connection.link()
    run, ask = connection.run, link.ask

    def run_impatiently(request: Request) -> Any:
        try:
            return run(request)
        finally:
            connection.retry_seconds = 300

    def ask_and_go_on(request: str) -> dict[str, Any]:
        commit.go_on.set()
        return ask(request)

    connection.retry_seconds = 0
    monkeypatch.setattr(connection, "run", run_impatiently)
    monkeypatch.setattr(link, "ask", ask_and_go_on)
    done = commit.cut(proxy)
    assert (getattr(done, "label", done), stored.version) == ("mine", 3)


@pytest.mark.parametrize("name", COMMITS)
def test_a_label_that_has_not_ended_is_waited_for(
    remote: RemoteStore,
    proxy: CutProxy,
    store: Store,
    stored: Table,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server that runs the commit cannot be asked; another one sees that the label is in use."""
    commit, run = SlowCommit(name, remote, monkeypatch), remote.connection.run

    def run_and_go_on(request: Request) -> Any:
        found = run(request)
        if request.name == "find_transaction":
            commit.go_on.set()
        return found

    monkeypatch.setattr(remote.connection, "run", run_and_go_on)
    with anew_at_cut(proxy, store):
        done = commit.cut(proxy)
    assert (getattr(done, "label", done), stored.version) == ("mine", 3)


@pytest.mark.parametrize("name", COMMITS)
def test_a_label_that_does_not_end_leaves_the_outcome_unknown(
    proxy: CutProxy, store: Store, stored: Table, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(proxy, retry_seconds=0.5) as remote:
        commit = SlowCommit(name, remote, monkeypatch)
        with anew_at_cut(proxy, store):
            error = commit.cut(proxy)
    assert (type(error).__base__, error.label) == (CommitUnknownError, "mine")


def test_a_transaction_whose_server_stays_away_leaves_its_outcome_unknown(
    proxy: CutProxy, stored: Table
) -> None:
    remote = connected(proxy, retry_seconds=0.2)
    transaction = remote.transaction(label="mine")
    transaction.table("db.t").delete({"k": [1]})
    proxy.cut(refuse=True)
    with pytest.raises(CommitUnknownError, match="label 'mine'"):
        transaction.commit()


def test_a_request_that_never_arrived_is_sent_again(
    remote: RemoteStore, proxy: CutProxy, stored: Table
) -> None:
    table = remote.table("db.t")
    proxy.cut()
    assert table.upsert(ROW).version == 3
    proxy.cut()
    assert table.count() == 3
    proxy.cut()
    assert table.scan().read_all().num_rows == 3


def test_a_held_version_outlives_a_broken_connection(
    remote: RemoteStore, proxy: CutProxy, stored: Table
) -> None:
    snapshot = remote.table("db.t").snapshot()
    stored.upsert(ROW)
    proxy.cut()
    assert rows_of(snapshot) == [(1, "a"), (2, "b")]


def test_a_load_goes_on_after_a_broken_connection(
    remote: RemoteStore, proxy: CutProxy, stored: Table
) -> None:
    with remote.table("db.t").begin_load() as load:
        load.write(ROW)
        proxy.cut()
        load.write(pa.table({"k": [4]}))
        assert load.commit().rows_loaded == 2


def test_rows_that_break_off_are_an_error(remote: RemoteStore, proxy: CutProxy, stored: Table) -> None:
    stored.upsert(pa.table({"k": range(300_000), "v": ["x" * 200] * 300_000}))
    reader = remote.table("db.t").scan()
    reader.read_next_batch()
    proxy.cut(refuse=True)
    with pytest.raises(UnavailableError, match="broke while rows were read"):
        reader.read_all()


@contextmanager
def anew_at_cut(proxy: CutProxy, store: Store) -> Iterator[None]:
    """Cuts lead to another server of the store, which knows no session."""
    with serving(store) as other:
        proxy.target_after_cut = other.port
        yield


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_found_by_its_label_when_the_server_ended(
    remote: RemoteStore, proxy: CutProxy, store: Store, stored: Table, name: str
) -> None:
    """The session, and the replies that it kept, are gone; the label has the outcome."""
    table = remote.table("db.t")
    with anew_at_cut(proxy, store):
        done = cut_once_visible(proxy, stored, 3, lambda: CHANGES[name](table))
        assert (done.version, done.txn_id, stored.version) == (3, stored.history()[-1].txn_id, 3)


def test_a_transaction_is_found_by_its_label_when_the_server_ended(
    remote: RemoteStore, proxy: CutProxy, store: Store, stored: Table
) -> None:
    transaction = remote.transaction()
    transaction.table("db.t").upsert(ROW)
    with anew_at_cut(proxy, store):
        done = cut_once_visible(proxy, stored, 3, transaction.commit)
    assert (done.versions, done.label) == ({"db.t": 3}, transaction.label)


def test_a_server_that_began_anew_knows_no_handles_and_takes_calls(
    proxy: CutProxy, store: Store, stored: Table, server: FlightSqlServer
) -> None:
    with ExitStack() as stack:
        remote = stack.enter_context(connected(proxy))
        table = remote.table("db.t")
        load, snapshot = table.begin_load(label="open"), table.snapshot()
        proxy.cut(refuse=True)
        server.stop()
        anew = stack.enter_context(serving(store))
        proxy.accept_again(anew.port)
        assert table.upsert(ROW).version == 3
        with pytest.raises(ClosedError, match="session"):
            load.write(ROW)
        with pytest.raises(ClosedError, match="session"):
            snapshot.count()
        assert stored.find_label("open").status == "ABORTED"  # type: ignore[union-attr]
        assert table.upsert(ROW, label="open").version == 4


class _EndsWithoutReply:
    """A client of Arrow Flight whose first upload ends well, and without the reply."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._is_first = inner, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def do_put(self, *arguments: Any) -> Any:
        writer, answers = self._inner.do_put(*arguments)
        if not self._is_first:
            return writer, answers
        self._is_first = False
        return writer, SimpleNamespace(read=lambda: [answers.read()].clear())


def test_a_call_that_ends_without_a_reply_is_asked_for(
    remote: RemoteStore, stored: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that stops may end a call so. The error did not tell whether the load was applied."""
    link = remote.connection.link()
    monkeypatch.setattr(link, "_client", _EndsWithoutReply(vars(link)["_client"]))
    assert remote.table("db.t").upsert(ROW).version == 3
    assert stored.version == 3


def test_a_server_that_stays_away_is_given_up(proxy: CutProxy, stored: Table) -> None:
    remote = connected(proxy, retry_seconds=0.2)
    table = remote.table("db.t")
    proxy.cut(refuse=True)
    with pytest.raises(UnavailableError, match="no server answers"):
        table.count()
    with pytest.raises(CommitUnknownError, match="label"):
        table.upsert(ROW, label="x")
    assert stored.version == 2


def test_a_client_that_is_silent_for_its_term_has_ended(store: Store, stored: Table) -> None:
    with serving(store, lease_seconds=0.3) as server:
        proxy = CutProxy(server.port)
        remote = connected(proxy)
        table = remote.table("db.t")
        load, transaction, snapshot = table.begin_load(label="silent"), remote.transaction(), table.snapshot()
        transaction.table("db.t").update({"v": "x"})
        load.write(ROW)
        stored.upsert(ROW)
        proxy.cut(refuse=True)
        while stored.find_label("silent").status != "ABORTED":  # type: ignore[union-attr]
            threading.Event().wait(0.02)
        while stored.vacuum(retention_seconds=0).held:
            threading.Event().wait(0.02)
        proxy.accept_again()
        for call in (load.commit, transaction.commit, snapshot.count):
            with pytest.raises((ClosedError, UnavailableError), match=r"session|was applied"):
                call()
        assert (stored.version, table.count()) == (3, 3)
        remote.close()
        proxy.close()


def test_a_client_that_renews_keeps_what_it_holds(store: Store, stored: Table) -> None:
    with serving(store, lease_seconds=1.5) as server:
        remote = connected(CutProxy(server.port))
        snapshot = remote.table("db.t").snapshot()
        renewed = threading.Event()
        link = remote.connection.link()
        renew, times = link.renew, iter(range(8))

        def count() -> None:
            renew()
            if next(times) == 7:
                renewed.set()

        link.renew = count  # type: ignore[method-assign]
        assert renewed.wait(120)  # more than two terms
        assert snapshot.count() == 2
        remote.close()


@pytest.mark.long
def test_handles_that_are_dropped_are_released(remote: RemoteStore, stored: Table) -> None:
    table = remote.table("db.t")
    for _ in range(2_100):  # more than a client may hold
        table.snapshot()
    stored.upsert(ROW)
    assert table.count() == 3


def test_the_end_of_a_client_rolls_its_loads_back(remote: RemoteStore, stored: Table) -> None:
    load = remote.table("db.t").begin_load(label="open")
    load.write(ROW)
    remote.close()
    assert (stored.find_label("open").status, stored.version) == ("ABORTED", 2)  # type: ignore[union-attr]
