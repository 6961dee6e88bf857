"""The destination of a task's rows: one table, or all tables that its messages name, in one commit.

One table is one load. Many tables are one transaction over them with a statement for each: rows of all tables
and the offsets of the messages that brought them are there together, or none is (R3, R11).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

from seqstore.loaders.begin import begin
from seqstore.loaders.dead_letters.letters import SUFFIX, begin_beside
from seqstore.loaders.routine.spec import RoutineSpec
from seqstore.loaders.row_source import Target
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus, now_ms
from seqstore.store.check.partial_checker import check_flexible
from seqstore.store.errors import NotFoundError
from seqstore.store.load.load import Load
from seqstore.store.publish.commit import Also
from seqstore.store.publish.evolution import Evolution
from seqstore.store.schema.declaration import check_name
from seqstore.store.store import Store
from seqstore.store.table import Table

OnBegun = Callable[[int], None]


class Destination(Protocol):
    """The tables of one task. Use from one thread."""

    @property
    def txn_id(self) -> int:
        """Of the transaction, 0 while it has none."""

    def of(self, table: str) -> tuple[Target, Load]:
        """Returns the table of rows, and its load.

        Args:
            table: as the message names it; empty where there is one table.

        Raises:
            StoreError: there is none of that name, or the job does not fit it.
        """

    def letters(self, store: Store, table: str) -> Load:
        """Begins the load of the dead letters of a table, which is published with the rows.

        Raises:
            StoreError: there can be none.
        """

    def commit(self, also: Also) -> None:
        """Publishes everything.

        Args:
            also: becomes durable with the rows, or neither does; called even when there are no rows (R15).

        Raises:
            StoreError: nothing was published.
        """

    def abort(self, reason: str) -> None:
        """Leaves nothing, unless it was committed."""


class OneTable:
    """See the module.

    Args:
        now: the value of CURRENT_TIMESTAMP.
        on_begun: called with the transaction's id.
        evolution: the schema that the rows need.
    """

    def __init__(
        self,
        table: Table,
        spec: RoutineSpec,
        label: str,
        now: datetime,
        on_begun: OnBegun,
        evolution: Evolution | None = None,
    ) -> None:
        options = spec.options("")
        schema = table.schema if evolution is None else evolution.schema
        if options.is_flexible:
            check_flexible(table.name, schema)
        self._target = Target(schema, table.name)
        self._load = begin(table, options, now, operation="ROUTINE LOAD", label=label, evolution=evolution)
        on_begun(self._load.txn_id)

    @property
    def txn_id(self) -> int:
        return self._load.txn_id

    def of(self, table: str) -> tuple[Target, Load]:
        return self._target, self._load

    def letters(self, store: Store, table: str) -> Load:
        beside = begin_beside(store, self._target.name)
        self._load.join(beside)
        return beside

    def commit(self, also: Also) -> None:
        self._load.commit(also=also)

    def abort(self, reason: str) -> None:
        self._load.abort(reason)


class ManyTables:
    """See the module.

    Args:
        now: the value of CURRENT_TIMESTAMP.
        on_begun: called with the transaction's id, once there is a table.
        evolutions: the schemas that the rows need, by table.
    """

    def __init__(
        self,
        store: Store,
        spec: RoutineSpec,
        label: str,
        now: datetime,
        on_begun: OnBegun,
        evolutions: Mapping[str, Evolution],
    ) -> None:
        self._evolutions = evolutions
        self._catalog = store.catalog
        self._spec, self._label, self._now = spec, label, now
        self._on_begun = on_begun
        self._transaction = store.transaction(label=label, operation="ROUTINE LOAD", reads_own_writes=False)
        self._opened: dict[str, tuple[Target, Load]] = {}
        self._letters: list[Load] = []

    @property
    def txn_id(self) -> int:
        return self._transaction.txn_id

    def of(self, table: str) -> tuple[Target, Load]:
        if table not in self._opened:
            self._opened[table] = self._open(table)
        return self._opened[table]

    def letters(self, store: Store, table: str) -> Load:
        name = f"{self._spec.database}.{table}{SUFFIX}"
        load = self._transaction.table(name).begin_load(operation="ROUTINE LOAD")
        self._letters.append(load)
        return load

    def commit(self, also: Also) -> None:
        if not self._opened:  # no message names a table: there are offsets to move, and no rows
            self._transaction.rollback("no table was named")
            with self._catalog.write() as tx:
                also(
                    tx,
                    TransactionRecord(
                        0, 0, "", self._label, TransactionStatus.PREPARE, "ROUTINE LOAD", now_ms()
                    ),
                )
            return
        for load in self._loads():
            load.commit()
        self._transaction.commit(also=also)

    def abort(self, reason: str) -> None:
        for load in self._loads():
            load.abort(reason)
        self._transaction.rollback(reason)

    def _loads(self) -> list[Load]:
        return [*(load for _, load in self._opened.values()), *self._letters]

    def _open(self, name: str) -> tuple[Target, Load]:
        database = self._spec.database
        try:
            table = self._transaction.table(f"{database}.{name}")
        except NotFoundError as error:
            check_name(name, "table")  # one that can be made is waited for
            raise NotFoundError(
                f"a message is for the table {name[:200]!r}, which is not in database {database}; create the "
                f"table, or ALTER ROUTINE LOAD FOR {self._spec.name} to offsets after the message",
                kind="unknown_table",
            ) from error
        if name in self._evolutions:
            table.evolve(self._evolutions[name])
        target = Target(table.schema, table.name)
        target.check_partitions(self._spec.partitions)
        options = self._spec.options("")
        if options.is_flexible:
            check_flexible(table.name, table.schema)
        load = begin(table, options, self._now, operation="ROUTINE LOAD", label=None)
        if not self._opened:  # the first write takes the label
            self._on_begun(self._transaction.txn_id)
        return target, load
