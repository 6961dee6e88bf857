"""Transactions at a server. Conflicts are found there; a client that is gone is rolled back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import pyarrow as pa

from seqstore.store.errors import StoreError, UnavailableError
from seqstore.store.load.load import LoadResult
from seqstore.store.load.write_options import WriteArguments, WriteOptions
from seqstore.store.read.snapshot import as_table
from seqstore.store.remote.connection import Connection, LostReplyError
from seqstore.store.remote.handles import Handle, arguments_of, refusal, remote
from seqstore.store.remote.outcomes import ended, run_once
from seqstore.store.remote.remote_load import RemoteLoad
from seqstore.store.remote.remote_merge import RemoteMerge
from seqstore.store.remote.remote_snapshot import RemoteSnapshot
from seqstore.store.remote.sent_rows import parts_of
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.transaction.transaction import Transaction, TransactionResult
from seqstore.store.transaction.transaction_table import TransactionTable


@remote("Transaction")
class RemoteTransaction(Handle, Transaction):
    """A transaction of a store elsewhere; made by `RemoteStore.transaction`. Use from one thread."""

    def __init__(self, connection: Connection, made: Mapping[str, Any]) -> None:
        self.bind(connection, made)
        self.label: str = made["label"]
        self.operation: str = made["operation"]
        self.reads_own_writes: bool = made["reads_own_writes"]
        self._timeout: float | None = made["timeout_seconds"]
        self._opened: dict[str, RemoteTransactionTable] = {}
        self._has_ended = False

    @property
    def timeout_seconds(self) -> float | None:
        """The time after which it is rolled back, None for never."""
        return self._timeout

    def table(self, name: str) -> RemoteTransactionTable:
        """Returns a table as the transaction sees it; see `Transaction.table`."""
        made = self.made_by("table", {"name": name})
        found = self._opened.get(made["name"])
        if found is None:
            found = self._opened[made["name"]] = RemoteTransactionTable(self, made)
        return found

    def commit(self, also: Any = None) -> TransactionResult:
        """Publishes everything; see `Transaction.commit`.

        Raises:
            InvalidInputError: `also`, which runs where the store is.
            UnavailableError: the reply is lost, and nothing was applied.
            CommitUnknownError: the reply is lost, and so is the outcome for now.
        """
        if also is not None:
            raise refusal("Transaction", "commit(also=..)", "a function cannot be sent")
        return self._finish("commit")

    def precommit(self) -> TransactionResult:
        """Runs the first phase of a two-phase commit; see `Transaction.precommit`."""
        return self._finish("precommit")

    def _finish(self, name: str) -> TransactionResult:
        self._has_ended = True
        if name == "commit":
            return run_once(self.connection, self.request(name), self.label, self._met_by_label)
        done: TransactionResult = self.call(name)
        return done

    def _met_by_label(self, error: LostReplyError) -> TransactionResult:
        """Returns the outcome of a commit whose reply was lost together with the session.

        Raises:
            UnavailableError: it was not applied.
            CommitUnknownError: the server cannot be asked, or the transaction has not ended.
        """
        for database in {name.partition(".")[0] for name in self._opened}:
            found = ended(self.connection, database, self.label, error)
            if found is not None:
                read = {name: table.version for name, table in self._opened.items()}
                return TransactionResult(found.id, self.label, found.versions, read)
        raise UnavailableError(
            f"the connection broke before transaction {self.label!r} was applied; run it again",
            kind="connection_lost",
            label=self.label,
        ) from error

    def rollback(self, reason: str = "User Abort") -> None:
        """Ends it without a trace; see `Transaction.rollback`. The end of the session does the same."""
        if not self._has_ended:
            self._has_ended = True
            self.call("rollback", {"reason": reason})

    def __enter__(self) -> RemoteTransaction:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            try:
                self.rollback(str(error) or type(error).__name__)
            except StoreError as failed:
                error.add_note(f"the rollback of {self.label!r} failed: {failed}")
        elif not self._has_ended:
            self.commit()


@remote("TransactionTable")
class RemoteTransactionTable(Handle, TransactionTable):
    """A table of a transaction of a store elsewhere; made by `RemoteTransaction.table`."""

    def __init__(self, transaction: RemoteTransaction, made: Mapping[str, Any]) -> None:
        self.bind(transaction.connection, made)
        self.transaction = transaction
        self.name: str = made["name"]
        self.schema: TableSchema = made["schema"]
        self.version: int = made["version"]

    def scan(self, *given: Any, **named: Any) -> pa.RecordBatchReader:
        """Returns the rows as the transaction sees them; see `TransactionTable.scan`."""
        arguments = arguments_of(TransactionTable.scan, *given, **named)
        return self.connection.reader(self.request("scan", arguments))

    def get(self, *given: Any, **named: Any) -> pa.Table:
        """Returns the rows of some keys; see `TransactionTable.get`."""
        arguments = arguments_of(TransactionTable.get, *given, **named)
        arguments["keys"] = as_table(arguments["keys"])
        return self.connection.reader(self.request("get", arguments)).read_all()

    def snapshot(self, version: int | None = None) -> RemoteSnapshot:
        """Returns the rows as the transaction sees them now, unlogged; see `TransactionTable.snapshot`."""
        return RemoteSnapshot(self.connection, self.made_by("snapshot", {"version": version}), self)

    def upsert(
        self, data: Any, options: WriteOptions | None = None, **arguments: Unpack[WriteArguments]
    ) -> LoadResult:
        """Writes rows at commit; see `TransactionTable.upsert`."""
        options = replace(options or WriteOptions(), **arguments)
        with self.begin_load(options) as load:
            for part in parts_of(data):
                load.write(part)
            return load.commit(max_filter_ratio=options.max_filter_ratio)

    def delete(self, keys: Any) -> LoadResult:
        """Deletes keys at commit; see `TransactionTable.delete`."""
        done: LoadResult = self.connection.run(self.request("delete", {}, as_table(keys)))
        return done

    def change(self, rows: pa.Table) -> LoadResult:
        """Writes rows that were read, with some cells computed anew; see `TransactionTable.change`."""
        done: LoadResult = self.connection.run(self.request("change", {}, rows))
        return done

    def begin_load(
        self, options: WriteOptions | None = None, **arguments: Unpack[WriteArguments]
    ) -> RemoteLoad:
        """Starts a statement of several batches; see `TransactionTable.begin_load`."""
        options = replace(options or WriteOptions(), **arguments)
        return RemoteLoad(self.connection, self.made_by("begin_load", {"options": options}), None)

    def merge(
        self, source: Any, on: str | Sequence[str], *, target_alias: str = "t", source_alias: str = "s"
    ) -> RemoteMerge:
        """Builds a MERGE as a statement of the transaction; see `TransactionTable.merge`."""
        aliases = {"target_alias": target_alias, "source_alias": source_alias}
        return RemoteMerge(self, source, on, in_transaction=True, **aliases)
