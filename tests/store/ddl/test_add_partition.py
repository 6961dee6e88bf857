"""ADD PARTITION: one change of the schema, whoever else changes it meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pyarrow as pa
import pytest

from seqstore import AlreadyExistsError, FormatError, MetadataChangedException, Store, Table
from seqstore.store.ddl.alter import Altered, alter
from seqstore.store.ddl.partition_changes import add_partitions
from seqstore.store.schema.partitioning import Partition
from seqstore.store.schema.table_schema import TableSchema

TABLE = """
CREATE TABLE t (d INT NOT NULL, v INT NULL) UNIQUE KEY(d)
PARTITION BY RANGE(d) (PARTITION p0 VALUES LESS THAN (10)) DISTRIBUTED BY HASH(d) BUCKETS 1
"""
pytestmark = [pytest.mark.settings(catalog_bytes_max=2**28, auto_compaction=0), pytest.mark.sql(TABLE)]


@pytest.fixture
def table(store: Store) -> Table:
    return store.table("db.t")


def ten_from(low: int) -> Partition:
    return Partition(f"p{low}", (str(low),), (str(low + 10),))


def names(table: Table) -> list[str]:
    partitioning = table.schema.partitioning
    assert partitioning is not None
    return [partition.name for partition in partitioning.partitions]


def test_partitions_that_are_added_at_once_are_all_there(table: Table) -> None:
    start = Barrier(8)

    def add(low: int) -> None:
        start.wait()
        add_partitions(table, [ten_from(low)])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(10, 90, 10)))
    assert names(table) == ["p0", *(f"p{low}" for low in range(10, 90, 10))]


def test_what_another_declared_meanwhile_stays(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement sees the schema as it was when it began; the schema of the commit point counts."""
    as_it_was = table.schema
    add_partitions(table, [ten_from(10)])
    monkeypatch.setattr(Table, "schema", property(lambda _: as_it_was))
    add_partitions(table, [ten_from(20)], if_not_exists=True)
    with pytest.raises(AlreadyExistsError, match="Duplicate partition name p10"):
        add_partitions(table, [ten_from(10)])
    monkeypatch.undo()
    assert names(table) == ["p0", "p10", "p20"]


def test_if_not_exists_makes_a_version_only_of_something_new(table: Table) -> None:
    before = table.version
    add_partitions(table, [ten_from(0)], if_not_exists=True)
    assert table.version == before


def test_a_load_that_began_before_is_told_which_partition_came(table: Table) -> None:
    with table.begin_load() as load:
        load.write(pa.table({"d": pa.array([1], pa.int32()), "v": pa.array([1], pa.int32())}))
        add_partitions(table, [ten_from(10)])
        with pytest.raises(MetadataChangedException, match=r"partition p10 \(added\)"):
            load.commit()


def test_a_table_with_a_feature_unknown_here_gets_no_partitions(table: Table) -> None:
    def from_the_future(schema: TableSchema) -> Altered:
        return Altered(replace(schema, features=("unheardOf",)), ())

    alter(table, [from_the_future])
    with pytest.raises(FormatError, match="unheardOf"):
        add_partitions(table, [ten_from(10)])
