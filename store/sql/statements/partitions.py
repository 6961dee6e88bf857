"""SHOW PARTITIONS, ALTER TABLE ADD/DROP PARTITION, TRUNCATE TABLE."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from seqstore.store.catalog.app_ids import DUPLICATE
from seqstore.store.catalog.version_record import version_time_ms
from seqstore.store.ddl.partition_changes import add_partitions, drop_partition
from seqstore.store.errors import NotFoundError
from seqstore.store.schema.partitioning import Partition
from seqstore.store.schema.partitions import (
    any_partition_filter,
    automatic_partitions,
    partition_filter,
    partitioned,
)
from seqstore.store.sql.parse.partition_parser import parse_partition, parse_partition_names
from seqstore.store.sql.parse.statement_values import TableName
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows, write_info
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import partition_counts
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.sql.statements.show import parse_table_from
from seqstore.store.table import Table


@dataclass(frozen=True)
class ShowPartitions:
    """`name` picks one partition."""

    table: TableName
    name: str | None


def _parse_show(stream: TokenStream) -> ShowPartitions:
    table = parse_table_from(stream)
    name = None
    if stream.take("WHERE"):
        stream.need("PARTITIONNAME")
        if not stream.take("="):
            stream.fail("'='")
        name = stream.string("a partition name")
    return ShowPartitions(table, name)


_HEADINGS: Final = ("PartitionId", "PartitionName", "VisibleVersion", "VisibleVersionTime", "State",
                    "PartitionKey", "Range", "DistributionKey", "Buckets", "ReplicationNum",
                    "RowCount")  # fmt: skip


def _show(statement: ShowPartitions, session: Session) -> Result:
    table = session.table(statement.table)
    with table.snapshot() as snapshot:
        partitioning = snapshot.schema.partitioning
        key = ", ".join(partitioning.columns) if partitioning is not None else ""
        whole = Partition(statement.table.name)
        found = partition_counts(snapshot) if partitioning is not None else [(whole, snapshot.count())]
        distribution, _, buckets = snapshot.schema.distribution.partition(" BUCKETS ")
        hashed = distribution.removeprefix("HASH(").removesuffix(")").replace("`", "")
        moment = datetime.fromtimestamp(_changed_ms(table, snapshot.version) // 1000, UTC)
        lines = [
            (str(number), p.name, str(snapshot.version), f"{moment:%Y-%m-%d %H:%M:%S}", "NORMAL", key,
             _range(p), hashed, buckets or "AUTO", "1", str(count))
            for number, (p, count) in enumerate(found, 1)
            if statement.name is None or p.name == statement.name
        ]  # fmt: skip
    return text_rows(_HEADINGS, lines)


def _changed_ms(table: Table, version: int) -> int:
    with table.catalog.read() as tx:
        return version_time_ms(tx, table.id, version)


def _range(partition: Partition) -> str:
    if partition.values:
        return partition.sql.partition(" VALUES IN ")[2]
    if partition.low is None and partition.high is None:
        return ""
    low = "(-∞)" if partition.low is None else f"({', '.join(map(str, partition.low))})"
    high = "(MAXVALUE)" if partition.high is None else f"({', '.join(map(str, partition.high))})"
    return f"[{low}, {high})"


@dataclass(frozen=True)
class AddPartition:
    table: TableName
    partitions: tuple[Partition, ...]
    if_not_exists: bool


def _parse_add(stream: TokenStream) -> AddPartition:
    table = parse_table_name(stream)
    stream.need("ADD")
    if stream.word() == "TEMPORARY":
        stream.refuse("temporary partitions are not supported; INSERT OVERWRITE replaces one at once")
    stream.take("PARTITIONS")
    if_not_exists = stream.word() == "PARTITION" and stream.word(1) == "IF"
    partitions = parse_partition(stream, "")
    if stream.word() == "(":  # properties of one partition change nothing here
        stream.properties()
    if stream.take("DISTRIBUTED"):
        stream.at = len(stream.tokens)
    return AddPartition(table, tuple(partitions), if_not_exists)


def _add(statement: AddPartition, session: Session) -> None:
    table = session.table(statement.table)
    add_partitions(table, statement.partitions, if_not_exists=statement.if_not_exists)


@dataclass(frozen=True)
class DropPartition:
    table: TableName
    name: str
    if_exists: bool


def _parse_drop(stream: TokenStream) -> DropPartition:
    table = parse_table_name(stream)
    stream.need("DROP", "PARTITION")
    if_exists = stream.take("IF", "EXISTS")
    name = stream.name("a partition name")
    stream.take("FORCE")
    return DropPartition(table, name, if_exists)


def _drop(statement: DropPartition, session: Session) -> Result:
    table = session.table(statement.table)
    partitioning = partitioned(table.schema, table.name)
    try:
        partition = find_partition(table, statement.name)
    except NotFoundError:
        if statement.if_exists:
            return Result()
        raise
    if any(other.name == partition.name for other in partitioning.partitions):
        drop_partition(table, partition)
        return Result()
    with table.begin_load(operation="DROP PARTITION", require_sequence=False) as load:
        load.clear(partition_filter(table.schema, partition))
        load.commit()
    return Result()


def find_partition(table: Table, name: str) -> Partition:
    """Finds a declared partition, or one that an AUTO table has by its rows.

    Raises:
        NotFoundError: there is none of that name.
    """
    schema = table.schema
    partitioning = partitioned(table.schema, table.name)
    if partitioning.is_auto:
        with table.snapshot() as snapshot:
            rows = snapshot.scan(partitioning.columns).read_all()
        for partition in automatic_partitions(schema, rows):
            if partition.name.lower() == name.lower():
                return partition
    return partitioning.find(name)


@dataclass(frozen=True)
class Truncate:
    table: TableName
    partitions: tuple[str, ...]


def _parse_truncate(stream: TokenStream) -> Truncate:
    table = parse_table_name(stream)
    partitions = parse_partition_names(stream)
    stream.take("FORCE")
    return Truncate(table, partitions)


def _truncate(statement: Truncate, session: Session) -> Result:
    table = session.table(statement.table)
    wanted = [find_partition(table, name) for name in statement.partitions]
    app_id, version = session.variables.take_app_pair()
    with table.begin_load(
        operation="TRUNCATE", require_sequence=False, txn_app_id=app_id, txn_version=version
    ) as load:
        load.clear(any_partition_filter(table.schema, wanted) if wanted else None)
        done = load.commit()
    if done.status != DUPLICATE:
        return Result()
    return Result(info=write_info(done.label, done.status, done.txn_id), warnings=(load.skipped,))


KINDS: Final = (
    StatementKind(("SHOW PARTITIONS",), ShowPartitions, _parse_show, _show),
    StatementKind(("ALTER TABLE * ADD PARTITION", "ALTER TABLE * ADD PARTITIONS",
                   "ALTER TABLE * ADD TEMPORARY PARTITION"), AddPartition, _parse_add, _add),
    StatementKind(("ALTER TABLE * DROP PARTITION",), DropPartition, _parse_drop, _drop),
    StatementKind(("TRUNCATE TABLE", "TRUNCATE"), Truncate, _parse_truncate, _truncate),
)  # fmt: skip
