"""DROP PARTITION: the partition and its rows go in one version, whatever happens meanwhile."""

from __future__ import annotations

import signal
from typing import Any

import pyarrow as pa
import pytest

from seqstore import InvalidInputError, MetadataChangedException, NotFoundError, Settings, Store, Table
from seqstore.store.ddl import partition_changes as module
from seqstore.store.schema.partitioning import Partition
from seqstore.store.sql import Session
from tests.support.forks.forked import run_forked

SETTINGS = Settings(catalog_bytes_max=2**28, auto_compaction=0)
TABLE = """
CREATE TABLE t (d INT NOT NULL, v INT NULL) UNIQUE KEY(d)
PARTITION BY RANGE(d) (PARTITION low VALUES LESS THAN (10), PARTITION high VALUES LESS THAN (20))
DISTRIBUTED BY HASH(d) BUCKETS 1;
INSERT INTO t VALUES (1, 1), (2, 2), (11, 11)
"""
pytestmark = [pytest.mark.settings(SETTINGS), pytest.mark.sql(TABLE)]
CHILD = """
import sys
from seqstore import Settings, Store
from seqstore.store.sql import Session
with Store.open(sys.argv[1], settings=Settings(catalog_bytes_max=2**28, auto_compaction=0)) as store:
    list(Session(store, "db").execute("ALTER TABLE t DROP PARTITION low"))
"""


def table(session: Session) -> Table:
    return session.store.table("db.t")


def shown(table: Table, version: int | None = None) -> list[int]:
    return sorted(table.scan(["d"], version=version).read_all().column(0).to_pylist())


def partitions(table: Table) -> list[str]:
    partitioning = table.schema.partitioning
    assert partitioning is not None
    return [partition.name for partition in partitioning.partitions]


def test_a_partition_and_its_rows_go_in_one_version(session: Session) -> None:
    list(session.execute("ALTER TABLE t DROP PARTITION low"))
    found = table(session)
    assert (found.version, shown(found), partitions(found)) == (3, [11], ["high"])
    assert (found.history()[-1].operation, found.history()[-1].metrics.rows_deleted) == ("DROP PARTITION", 2)
    assert shown(found, 2) == [1, 2, 11]
    assert sorted(found.changes(3).read_all().column("_change_type").to_pylist()) == ["-D", "-D"]
    assert found.check() == []
    with Store.open(session.store.path, settings=SETTINGS) as again:
        assert shown(again.table("db.t")) == [11]


def test_whoever_began_before_cannot_bring_rows_into_it(session: Session) -> None:
    load = table(session).begin_load()
    load.write(pa.table({"d": [3], "v": [3]}))
    list(session.execute("ALTER TABLE t DROP PARTITION low"))
    with pytest.raises(MetadataChangedException, match=r"partition low \(dropped\)"):
        load.commit()
    assert shown(table(session)) == [11]


@pytest.mark.parametrize("rivals", [1, 5])
def test_rows_that_come_before_the_commit_point_go_too(
    session: Session, monkeypatch: pytest.MonkeyPatch, rivals: int
) -> None:
    """Also when every plan made outside the writer lock comes too late."""
    found, plan, left = table(session), module._plan, iter(range(3, 3 + min(rivals, 2)))

    def and_then_a_rival_writes(*arguments: Any) -> Any:
        made = plan(*arguments)
        for key in left:
            found.upsert(pa.table({"d": [key], "v": [key]}))
            break
        return made

    monkeypatch.setattr(module, "_plan", and_then_a_rival_writes)
    list(session.execute("ALTER TABLE t DROP PARTITION low"))
    assert (shown(found), partitions(found)) == ([11], ["high"])


def test_a_kill_leaves_all_or_nothing(session: Session) -> None:
    command = ("-c", CHILD, str(session.store.path))
    killed = run_forked(*command, environment={"SEQSTORE_FAILPOINT": "publish.before_commit"})
    assert killed.returncode == -signal.SIGKILL
    assert (shown(table(session)), partitions(table(session))) == ([1, 2, 11], ["low", "high"])
    assert run_forked(*command).returncode == 0
    assert (shown(table(session)), partitions(table(session))) == ([11], ["high"])


def test_a_table_that_only_grows_keeps_partitions_with_rows(session: Session) -> None:
    list(session.execute("ALTER TABLE t SET ('delta.appendOnly' = 'true')"))
    with pytest.raises(InvalidInputError, match="appendOnly"):
        list(session.execute("ALTER TABLE t DROP PARTITION low"))
    assert partitions(table(session)) == ["low", "high"]


def test_of_two_who_drop_it_the_second_is_told(session: Session) -> None:
    partitioning = table(session).schema.partitioning
    assert partitioning is not None
    low: Partition = partitioning.partitions[0]
    module.drop_partition(table(session), low)
    with pytest.raises(NotFoundError, match="'low' was dropped meanwhile"):
        module.drop_partition(table(session), low)
