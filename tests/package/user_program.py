"""A user's program: calls every public function of a store, a table, a transaction and a session.

`test_wheel.py` checks it with `mypy --strict` against the installed wheel, and runs it there. It imports
nothing but the standard library, pyarrow and `seqstore`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from seqstore import (
    Column,
    DmlResult,
    KeyEvent,
    LoadResult,
    Session,
    Store,
    Table,
    TableSchema,
    Transaction,
    TransactionResult,
    TransactionTable,
    UnavailableError,
    VacuumResult,
    VersionInfo,
    WriteOptions,
    parse_type,
)


def rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table({"k": [key for key, _ in pairs], "v": [value for _, value in pairs]})


def schema() -> TableSchema:
    columns = [Column("k", parse_type("BIGINT"), False), Column("v", parse_type("VARCHAR(10)"), True)]
    return TableSchema.create(columns, ["k"], properties={"replication_num": "1"})


def use_store(store: Store) -> None:
    store.create_database("db", if_not_exists=True)
    store.create_database("other")
    store.create_table("db.t", schema(), if_not_exists=True)
    store.create_table("other.gone", TableSchema.from_arrow(rows((1, "a")).schema, ["k"]))
    databases: list[str] = store.databases()
    tables: list[str] = store.tables("other")
    store.create_table("other.made", TableSchema.from_arrow(rows((1, "a")).schema, ["k"]))
    store.rename_table("other.made", "named")
    store.replace_table("other.gone", "other.named", swap=False)
    cleaned: int = store.clean_labels("other")
    assert cleaned == 0
    store.drop_table("other.gone", if_exists=True)
    store.drop_database("other", if_exists=True)
    loaded: LoadResult = store.upsert("db.t", rows((1, "a")), label="first")
    read: pa.Table = store.scan("db.t", ["v"], pc.field("k") == 1, loaded.version).read_all()
    found: pa.Table = store.get("db.t", {"k": [1]}, ["v"])
    assert (databases, tables) == (["db", "other"], ["gone"])
    assert read.to_pylist() == found.to_pylist() == [{"v": "a"}]
    with store.snapshot("db.t") as snapshot:
        version: int = snapshot.version
        assert snapshot.count() == 1
    store.set_config("enable_concurrent_update", "false")
    compactions: dict[str, int] = store.maintain()
    print(version, compactions)


def use_two_phases(store: Store) -> None:
    for label in ("kept", "dropped"):
        with store.table("db.t").begin_load(WriteOptions(label=label, max_filter_ratio=0.5)) as load:
            load.write(rows((2, label)))
            load.precommit()
    done = store.commit_transaction("db", label="kept")
    store.abort_transaction("db", label="dropped", reason="not needed")
    found = store.find_transaction("db", "kept")
    assert found is not None
    version: int | None = found.version
    assert done.version == version


def use_table(table: Table) -> None:
    first: LoadResult = table.upsert(rows((3, "a"), (4, "b")), label_prefix="app_", merge_type="APPEND")
    table.delete(pa.table({"k": [4]}))
    updated: DmlResult = table.update({"v": "c"}, pc.field("k") == 3, retries=3)
    deleted: DmlResult = table.delete_where(pc.field("k") == 2, isolation="Serializable")
    merged: DmlResult = table.merge(rows((3, "d"), (5, "e")), on=["k"]).when_matched_update_all().execute()
    changed: int = updated.rows_changed + deleted.rows_changed + merged.rows_changed
    assert changed == 3
    events: list[KeyEvent] = table.key_history({"k": 3})
    history: list[VersionInfo] = table.history()
    changes: pa.RecordBatchReader = table.changes(first.version)
    assert (len(events) > 1, len(history) > 1, changes.read_all().num_rows > 1) == (True, True, True)
    count: int = table.count()
    read: pa.Table = table.scan(hidden=True).read_all()
    assert count == read.num_rows == sum(task.read().read_all().num_rows for task in table.scan_tasks())
    assert table.get(pa.table({"k": [3]})).num_rows == 1
    with table.snapshot(first.version) as snapshot:
        assert snapshot.version == first.version
    assert table.version_as_of(datetime.now(UTC)) == table.version
    assert table.find_label("never used") is None
    restored: int = table.restore(first.version)
    table.optimize(full=True)
    table.purge()
    vacuumed: VacuumResult = table.vacuum(retention_seconds=0, dry_run=True)
    faults: list[str] = table.check()
    assert faults == []
    print(restored, vacuumed, table.oldest_version, table.database, [c.name for c in table.schema.columns])


def use_transaction(store: Store) -> None:
    with store.transaction(label="day", isolation="WriteSerializable") as transaction:
        table: TransactionTable = transaction.table("db.t")
        assert (transaction.timeout_seconds, transaction.label) == (None, "day")
        assert table.count() == table.scan().read_all().num_rows
        table.upsert(rows((6, "f")))
        table.delete(pa.table({"k": [5]}))
        assert table.get(pa.table({"k": [3]})).num_rows == 1
        done: TransactionResult = transaction.commit()
    versions: Mapping[str, int] = done.versions
    assert list(versions) == ["db.t"]

    with store.transaction() as prepared:
        prepared.table("db.t").update({"v": "g"}, pc.field("k") == 6)
        prepared.table("db.t").delete_where(pc.field("k") == 7)
        number: int = prepared.precommit().txn_id
    store.abort_transaction("db", txn_id=number)

    given_up = store.transaction(txn_app_id="app", txn_version=1)
    given_up.table("db.t").merge(rows((6, "h")), on="t.k = s.k").when_not_matched_insert_all().run()
    given_up.rollback("not needed")
    assert (given_up.is_open, given_up.operation) == (False, "TRANSACTION")
    identity: tuple[int, str] = (given_up.txn_id, given_up.label)
    print(*identity)

    def count_rows(transaction: Transaction) -> int:
        return transaction.table("db.t").count()

    counted: tuple[int, TransactionResult] = store.run_transaction(count_rows, retries=2)
    print(counted[0])


def use_session(store: Store) -> None:
    with Session(store, "db") as session:
        for result in session.execute("INSERT INTO t VALUES (9, 'i'); SELECT k FROM t WHERE k = 9"):
            names: list[str] = result.columns
        assert names == ["k"]
        texts: Iterator[str] = iter(session.visible_databases())
        assert (next(texts), session.current_database()) == ("db", "db")
        with session.running("a statement"):
            session.interrupt()
        assert not session.in_transaction
        session.close()


def use_store_elsewhere() -> None:
    try:
        Store.connect("seqstore://127.0.0.1:1", user="root", password="")
    except UnavailableError:
        return
    raise AssertionError("a port without a server")


def main() -> None:
    use_store_elsewhere()
    with Store.open("user-data", create=True) as store:
        use_store(store)
        use_two_phases(store)
        use_table(store.table("db.t"))
        use_transaction(store)
        use_session(store)
        store.close()


if __name__ == "__main__":
    main()
