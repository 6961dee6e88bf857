"""Tasks of jobs elsewhere: shares of a version that they read, loads that they stage, what ends these."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    AccessDeniedError,
    ClosedError,
    InvalidInputError,
    LoadRejectedError,
    NotFoundError,
    Settings,
    Store,
    Table,
    UnavailableError,
    VersionExpiredError,
)
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.scan.flight_server import FlightSqlServer
from seqstore.loaders.spark.place import Place
from seqstore.store.remote.remote_store import RemoteStore, connect
from seqstore.store.remote.remote_table import RemoteTable
from seqstore.store.remote.remote_tasks import RemoteRows
from tests.support.remote.cut_proxy import CutProxy
from tests.support.remote.server import client
from tests.support.rows import schema_of

SMALL = Settings(inline_bytes_max=0, segment_rows=100, batch_rows_max=50, auto_compaction=0)
pytestmark = pytest.mark.settings(SMALL)


def rows(*keys: int, value: str = "new") -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array([value] * len(keys), pa.string())})


def elsewhere(value: Any) -> Any:
    """A value as another process of the job gets it."""
    return pickle.loads(pickle.dumps(value))


def files(store: Store, table: Table) -> set[str]:
    return {each.name for each in (Path(store.path) / table.loader.directory).iterdir()}


def publish(table: RemoteTable, *shares: Any, **options: Any) -> Any:
    with table.begin_load(**options) as load:
        for share in shares:
            load.adopt(elsewhere(share))
        return load.commit(max_filter_ratio=0)


@pytest.fixture
def many(stored: Table) -> Table:
    """1,002 rows in several segments; some are deleted."""
    stored.upsert(rows(*range(3, 1003)))
    stored.delete(pa.table({"k": pa.array(range(10, 1000, 10), pa.int64())}))
    return stored


@pytest.mark.parametrize("where", [None, pc.field("k") > 700])
def test_the_shares_of_a_scan_are_its_rows(table: RemoteTable, many: Table, where: Any) -> None:
    tasks = elsewhere(table.scan_tasks(["v", "k"], where, rows_per_task=200))
    found = pa.concat_tables([task.read().read_all() for task in tasks])
    expected = many.scan(["v", "k"], where).read_all()
    assert len(tasks) > 1
    assert found.sort_by("k") == expected.sort_by("k")


def test_shares_are_of_the_version_they_were_planned_for(table: RemoteTable, many: Table) -> None:
    before = many.count()
    tasks = table.scan_tasks(rows_per_task=200)
    many.delete_where(pc.field("k") > 0)
    assert sum(len(task.read().read_all()) for task in tasks) == before


def test_a_share_of_another_cut_is_refused(table: RemoteTable, many: Table) -> None:
    first, second, *_ = table.scan_tasks(rows_per_task=200)
    with pytest.raises(NotFoundError, match="plan the read again"):
        replace(first, digest=second.digest).read()


def test_a_share_of_an_expired_version_is_refused(table: RemoteTable, many: Table) -> None:
    tasks = table.scan_tasks(rows_per_task=200)
    many.upsert(rows(1))
    many.vacuum(retention_seconds=0)
    with pytest.raises(VersionExpiredError):
        tasks[0].read()


def test_a_share_that_is_not_there_is_refused(table: RemoteTable, many: Table) -> None:
    request = table.request("scan_share", {"version": many.version, "number": 99})
    with pytest.raises(NotFoundError, match="there is no such share 99"):
        table.connection.reader(request)


def test_changes_travel_as_a_task(table: RemoteTable, many: Table) -> None:
    found = elsewhere(table.change_task(3, 4)).read().read_all()
    assert found == many.changes(3, 4).read_all()


def test_a_commit_has_the_shares_of_its_tasks_alone(table: RemoteTable, stored: Table) -> None:
    """A task that ran twice, and one whose driver did not take it, count for nothing."""
    task = elsewhere(table.write_task())
    task.check_columns(rows())
    twice = [task.run(rows(3, 4)) for _ in range(2)]
    task.run(rows(99))
    done = publish(table, twice[1], task.run(rows(5)), RemoteRows(), label="mine")
    table.end_stagings([task.load])
    assert (done.rows_loaded, done.label) == (3, "mine")
    assert stored.scan(["k"]).read_all().sort_by("k").column(0).to_pylist() == [1, 2, 3, 4, 5]


def test_the_end_of_a_load_removes_the_files_that_no_version_names(
    table: RemoteTable, store: Store, stored: Table
) -> None:
    before = files(store, stored)
    task = table.write_task()
    task.run(rows(3))
    assert files(store, stored) > before
    table.end_stagings([task.load, "unknown"])
    assert files(store, stored) == before
    with pytest.raises(ClosedError, match="run the job again"):
        task.run(rows(3))


def test_a_published_load_that_ends_keeps_its_rows(table: RemoteTable, stored: Table) -> None:
    task = table.write_task()
    publish(table, task.run(rows(*range(3, 500))))
    table.end_stagings([task.load])
    assert stored.scan().read_all().num_rows == 499


def test_a_load_that_has_ended_is_not_adopted(table: RemoteTable, stored: Table) -> None:
    task = table.write_task()
    share = task.run(rows(3))
    table.end_stagings([task.load])
    with pytest.raises(ClosedError, match="has ended"):
        publish(table, share)
    assert stored.version == 2


def test_a_part_of_another_load_is_not_adopted(table: RemoteTable) -> None:
    task = table.write_task()
    with pytest.raises(ClosedError, match="a part of this load is not known"):
        publish(table, RemoteRows(task.load, (7,)))


def test_later_processes_of_a_purpose_find_its_loads(table: RemoteTable) -> None:
    first, other = table.write_task(purpose="query 1"), table.write_task(purpose="query 2")
    second, plain = table.write_task(purpose="query 1"), table.write_task()
    assert table.begun_stagings(second.load) == [first.load, second.load]
    assert table.begun_stagings(other.load) == [other.load]
    assert table.begun_stagings(plain.load) == [plain.load]


def test_rejected_rows_have_their_place_in_the_task(table: RemoteTable, monkeypatch: Any) -> None:
    monkeypatch.setattr("seqstore.store.remote.sent_rows.BYTES_MAX", 64)
    task = table.write_task()
    sent = pa.table({"k": pa.array([5, 6, 7, 8, None, 9] * 2, pa.int64()), "v": ["a"] * 12})
    share = task.run(sent)
    assert len(share.parts) > 1
    with table.begin_load() as load:
        load.adopt(share)  # type: ignore[arg-type]
        with pytest.raises(LoadRejectedError, match="too many filtered rows") as caught:
            load.commit(max_filter_ratio=0)
    assert [row.row for row in caught.value.rejected] == [4, 10]


def test_columns_that_do_not_fit_are_refused_before_a_task_runs(table: RemoteTable) -> None:
    with pytest.raises(InvalidInputError, match="nope"):
        table.write_task().check_columns(pa.table({"k": [1], "nope": [1]}))


def test_tasks_carry_no_password(store: Store, stored: Table, server: FlightSqlServer) -> None:
    store.accounts.create("loader", "a-secret-word")
    store.accounts.grant("loader", ["LOAD", "SELECT"], "db.t")
    with client(server, "loader", "a-secret-word") as user:
        table = user.table("db.t")
        task, [share] = table.write_task(), table.scan_tasks()
    assert b"a-secret-word" not in pickle.dumps([task, share])
    assert elsewhere(share).read().read_all().num_rows == 2  # the planner's session has ended
    assert elsewhere(task).run(rows(3)).parts


def test_a_task_whose_login_has_ended_says_so(store: Store, stored: Table, server: FlightSqlServer) -> None:
    store.accounts.create("loader", "a-word")
    store.accounts.grant("loader", ["SELECT"], "db.t")
    with client(server, "loader", "a-word") as user:
        [task] = user.table("db.t").scan_tasks()
    store.accounts.set_password("loader", "another-word")
    with pytest.raises(AccessDeniedError, match="log in again"):
        task.read()


def test_the_load_of_another_user_is_unknown(
    table: RemoteTable, store: Store, stored: Table, server: FlightSqlServer
) -> None:
    task = table.write_task()
    store.accounts.create("other", "a-word")
    store.accounts.grant("other", ["LOAD", "SELECT"], "db.t")
    with client(server, "other", "a-word") as user:
        theirs = user.table("db.t")
        theirs.end_stagings([task.load])
        with pytest.raises(ClosedError):
            theirs.call("staging", {"staging": task.load})
        with pytest.raises(ClosedError):
            publish(theirs, RemoteRows(task.load, ()))
    assert task.run(rows(3)).parts == (1,)


class TestIdle:
    """A server that ends loads whose jobs are not connected for a moment."""

    @pytest.fixture
    def server(self, store: Store, stored: Table) -> Iterator[FlightSqlServer]:
        server = FlightSqlServer(ServerSessions(store), "127.0.0.1", 0, staging_seconds=0.2)
        yield server
        server.stop()

    def test_the_load_of_a_dead_job_ends(self, table: RemoteTable, store: Store, stored: Table) -> None:
        before = files(store, stored)
        table.write_task().run(rows(3))
        until = time.monotonic() + 60
        while files(store, stored) != before:
            assert time.monotonic() < until
            time.sleep(0.02)

    def test_a_connected_task_keeps_its_load(self, table: RemoteTable) -> None:
        task = table.write_task()
        arrived = time.monotonic()

        def slow() -> Iterator[pa.RecordBatch]:
            while time.monotonic() < arrived + 1:  # several times the time of an idle load
                time.sleep(0.05)
            yield rows(3).to_batches()[0]

        reader = pa.RecordBatchReader.from_batches(rows().schema, slow())
        assert publish(table, task.run(reader)).rows_loaded == 1


def test_a_lost_reply_of_a_part_is_met(remote: RemoteStore, server: FlightSqlServer, stored: Table) -> None:
    """The connection of a task breaks while its rows are staged: it sends them again, or asks."""
    proxy = CutProxy(server.port)
    try:
        url = f"seqstore://127.0.0.1:{proxy.port}"
        with Store.connect(url) as through:
            task = through.table("db.t").write_task()

            def broken() -> Iterator[pa.RecordBatch]:
                proxy.cut()
                yield rows(3).to_batches()[0]

            share = task.run(pa.RecordBatchReader.from_batches(rows().schema, broken()))
        assert publish(remote.table("db.t"), share).rows_loaded == 1
    finally:
        proxy.close()
    assert stored.count() == 3


@pytest.mark.parametrize("work", ["write", "read", "open"])
def test_a_task_that_begins_while_its_server_is_out_of_reach_waits(
    server: FlightSqlServer, stored: Table, work: str
) -> None:
    """It failed at once, where a call of the same program is tried again for half a minute."""
    proxy = CutProxy(server.port)
    try:
        url = f"seqstore://127.0.0.1:{proxy.port}"
        with Store.connect(url) as through:
            table = through.table("db.t")
            write, [read] = elsewhere(table.write_task()), elsewhere(table.scan_tasks())
            place = elsewhere(Place.of(url).of_job(through))
            proxy.cut(refuse=True)
            joining = threading.Timer(0.5, proxy.cut)
            joining.start()
            if work == "write":
                assert len(write.run(rows(3)).parts) == 1
            elif work == "read":
                assert read.read().read_all().num_rows == 2
            else:
                with place.open() as opened:
                    assert opened.table("db.t").count() == 2
            joining.join()
    finally:
        proxy.close()


def test_a_task_whose_server_stays_away_fails(server: FlightSqlServer, stored: Table) -> None:
    proxy = CutProxy(server.port)
    try:
        with connect(f"seqstore://127.0.0.1:{proxy.port}", retry_seconds=0.2) as through:
            task = elsewhere(through.table("db.t").write_task())
            proxy.cut(refuse=True)
            with pytest.raises(UnavailableError, match="no server answers"):
                task.run(rows(3))
    finally:
        proxy.close()


def test_a_server_that_stops_ends_the_loads_of_jobs(store: Store, stored: Table) -> None:
    before = files(store, stored)
    server = FlightSqlServer(ServerSessions(store), "127.0.0.1", 0)
    with client(server) as remote:
        remote.table("db.t").write_task().run(rows(3))
    server.stop()
    assert files(store, stored) == before


def test_a_dropped_table_ends_quietly(remote: RemoteStore, store: Store, server: FlightSqlServer) -> None:
    store.create_table("db.gone", schema_of("k BIGINT NOT NULL", "v STRING"))
    remote.table("db.gone").write_task().run(rows(3))
    store.drop_table("db.gone")
    server.stop()
