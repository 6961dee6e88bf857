"""ALTER TABLE: SC1, SC3, SD7-SD11, table features, and scenarios 4, 42, 44 and 45."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    AlreadyExistsError,
    Column,
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    FormatError,
    InvalidInputError,
    MetadataChangedException,
    ProtocolChangedException,
    Store,
    Table,
    TableSchema,
    TransactionTable,
    parse_type,
)
from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import schema_key
from seqstore.store.conflict.conflict_errors import CurrentTransaction, creation, recreated_error
from seqstore.store.ddl.alter import add_constraint, alter
from seqstore.store.ddl.column_changes import add_column, drop_column, rename_column
from seqstore.store.maintenance.compaction import Compaction, CompactionResult
from seqstore.store.sql import Session
from tests.support.statements import run

TABLE = """
CREATE TABLE t (k INT NOT NULL, v VARCHAR(5) NULL, n INT NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
INSERT INTO t VALUES (1, 'a', 10), (2, 'b', 20);
"""


pytestmark = pytest.mark.sql(TABLE)


def table(session: Session) -> Table:
    return session.store.table("db.t")


def test_an_added_column_reads_as_its_default_in_older_rows(session: Session) -> None:
    """SC1"""
    run(
        session,
        'ALTER TABLE t ADD COLUMN w INT NULL DEFAULT "7" AFTER k; INSERT INTO t VALUES (3, 1, "c", 30)',
    )
    assert run(session, "SELECT * FROM t") == [(1, 7, "a", 10), (2, 7, "b", 20), (3, 1, "c", 30)]
    run(session, "UPDATE t SET n = 11 WHERE w = 7 AND k = 1")
    assert run(session, "SELECT k, w, n FROM t WHERE k = 1") == [(1, 7, 11)]


def test_older_rows_read_the_time_a_column_was_added(session: Session) -> None:
    """SC4: not the time they are read at."""
    change = add_column(Column("at", parse_type("DATETIME"), default=None))
    alter(table(session), [change])
    run(session, "ALTER TABLE t ADD COLUMN made DATETIME NULL DEFAULT CURRENT_TIMESTAMP")
    column = table(session).schema.column("made")
    assert column.initial is not None
    assert run(session, "SELECT made FROM t WHERE k = 1") == [(datetime.fromisoformat(column.initial.text),)]


def test_a_dropped_column_is_gone_and_its_id_is_not_given_again(session: Session) -> None:
    last = table(session).schema.column("n").id
    run(session, "ALTER TABLE t DROP COLUMN n; ALTER TABLE t ADD COLUMN n INT NULL")
    assert table(session).schema.column("n").id == last + 1
    assert run(session, "SELECT * FROM t") == [(1, "a", None), (2, "b", None)]


def test_a_renamed_column_keeps_its_rows(session: Session) -> None:
    run(session, "ALTER TABLE t RENAME COLUMN v name; INSERT INTO t VALUES (3, 'c', 30)")
    assert run(session, "SELECT k, name FROM t") == [(1, "a"), (2, "b"), (3, "c")]
    run(session, "ALTER TABLE t RENAME COLUMN k TO id; UPDATE t SET n = 0 WHERE id = 3")
    assert run(session, "SELECT id FROM t WHERE n = 0") == [(3,)]


def test_columns_become_wider(session: Session) -> None:
    run(session, "ALTER TABLE t MODIFY COLUMN v VARCHAR(20) NULL; ALTER TABLE t MODIFY COLUMN n BIGINT NULL")
    run(session, f"INSERT INTO t VALUES (3, 'longer than five', {2**40})")
    assert run(session, "SELECT n FROM t WHERE n > 15") == [(20,), (2**40,)]
    assert run(session, "SELECT k FROM t WHERE v = 'longer than five'") == [(3,)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("MODIFY COLUMN n TINYINT NULL", "can not change int to tinyint"),
        ("MODIFY COLUMN v VARCHAR(2) NULL", "shorten type length is prohibited"),
        ("MODIFY COLUMN v VARCHAR(20) NOT NULL", "from nullable to non-nullable"),
        ("DROP COLUMN k", "key column 'k' cannot be dropped"),
        ("DROP COLUMN zz", "unknown column 'zz'"),
        ("ADD COLUMN w INT NOT NULL", "has no default"),
        ("RENAME COLUMN v n", "column 'n' exists"),
        ("ADD COLUMN v INT NULL", "already exists"),
        ("SET ('delta.isolationLevel' = 'x')", "expected Serializable or WriteSerializable"),
        ("SET ('delta.isolationLevel' = 'SnapshotIsolation')", "expected Serializable or WriteSerializable"),
        ("SET ('function_column.sequence_col' = 'n')", "can only be set by CREATE TABLE"),
        ("UNSET TBLPROPERTIES ('delta.appendOnly')", "is not set"),
        ("DROP FEATURE appendOnly", "has no feature"),
        ("SET ('delta.feature.teleport' = 'supported')", "table feature 'teleport' is not known"),
        ("ENABLE FEATURE 'OTHER'", "unknown feature name: OTHER"),
    ],
)
def test_what_cannot_be_changed_is_said_and_makes_no_version(
    session: Session, change: str, message: str
) -> None:
    """Scenario 3 among others."""
    before = table(session).version
    with pytest.raises((InvalidInputError, AlreadyExistsError), match=f"(?i){message}"):
        run(session, f"ALTER TABLE t {change}")
    assert table(session).version == before


def test_a_mapped_sequence_column_keeps_its_type_and_may_be_renamed(session: Session) -> None:
    """SD7, SC3"""
    run(
        session,
        "CREATE TABLE q (k INT NOT NULL, v INT NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 "
        'PROPERTIES ("function_column.sequence_col" = "v"); INSERT INTO q VALUES (1, 5)',
    )
    for change in ("DROP COLUMN v", "MODIFY COLUMN v BIGINT NULL"):
        with pytest.raises(InvalidInputError, match="sequence"):
            run(session, f"ALTER TABLE q {change}")
    run(session, "ALTER TABLE q RENAME COLUMN v vv; INSERT INTO q VALUES (1, 4); INSERT INTO q VALUES (1, 6)")
    assert run(session, "SELECT vv FROM q") == [(6,)]


def test_sequence_load_gives_older_rows_the_smallest_sequence(session: Session) -> None:
    """SD8, SD10, SD11"""
    run(
        session,
        "ALTER TABLE t ENABLE FEATURE 'SEQUENCE_LOAD' "
        "WITH PROPERTIES ('function_column.sequence_type' = 'int')",
    )
    for sequence, value in ((99, "zzz"), (88, "hhh")):
        run(session, f"INSERT INTO t (k, v, n, __DORIS_SEQUENCE_COL__) VALUES (1, '{value}', 0, {sequence})")
    assert run(session, "SELECT k, v FROM t") == [(1, "zzz"), (2, "b")]
    assert table(session).check() == []
    with pytest.raises(InvalidInputError, match="unknown sequence column type"):  # SD9
        run(
            session,
            "ALTER TABLE t ENABLE FEATURE 'SEQUENCE_LOAD' "
            "WITH PROPERTIES ('function_column.sequence_col' = 'n')",
        )


def test_42_whoever_began_before_an_alter_fails(session: Session) -> None:
    store, opened = session.store, table(session)
    load = opened.begin_load()
    load.write(pa.table({"k": [9], "v": ["x"], "n": [9]}))
    transaction = store.transaction(concurrency="optimistic")
    transaction.table("db.t").update({"n": 0}, pc.field("k") == 1)
    before = opened.schema.revision
    alter(opened, [add_column(Column("w", parse_type("INT")))])
    losers: list[Callable[[], object]] = [
        load.commit,
        transaction.commit,
        lambda: alter(opened, [drop_column("w")], expected_revision=before),
    ]
    for loser in losers:
        with pytest.raises(MetadataChangedException, match="committed version 3 and changed column w"):
            loser()
    assert opened.count() == 2


PENDING: dict[str, Callable[[TransactionTable], object]] = {
    "DELETE by key": lambda t: t.delete(pa.table({"k": pa.array([1], pa.int32())})),
    "DELETE by condition": lambda t: t.delete_where(pc.field("n") == 10),
    "UPDATE": lambda t: t.update({"v": "x"}, pc.field("n") == 10),
    "upsert": lambda t: t.upsert(pa.table({"k": [9], "v": ["x"], "n": [9]})),
    "partial update": lambda t: t.upsert(pa.table({"k": [1], "v": ["x"]}), mode="UPDATE_FIXED_COLUMNS"),
    "MERGE": lambda t: (
        t.merge(pa.table({"k": [1], "v": ["x"]}), ["k"]).when_matched_update({"v": "s.v"}).run()
    ),
    "everything": lambda t: [pending(t) for name, pending in PENDING.items() if name != "everything"],
}
ALTERS = {
    "ADD COLUMN": "ALTER TABLE t ADD COLUMN w INT NULL",
    "ADD COLUMN AFTER": "ALTER TABLE t ADD COLUMN w INT NULL DEFAULT '7' AFTER k",
    "DROP COLUMN": "ALTER TABLE t DROP COLUMN v",
    "DROP COLUMN of the condition": "ALTER TABLE t DROP COLUMN n",
    "RENAME COLUMN": "ALTER TABLE t RENAME COLUMN n m",
    "names exchanged": "ALTER TABLE t RENAME COLUMN n m; ALTER TABLE t RENAME COLUMN v n",
    "MODIFY COLUMN": "ALTER TABLE t MODIFY COLUMN n BIGINT NULL",
    "another column of that name": "ALTER TABLE t DROP COLUMN n; ALTER TABLE t ADD COLUMN n STRING NULL",
    "ADD CONSTRAINT": "ALTER TABLE t ADD CONSTRAINT low CHECK (n < 100)",
    "property": "ALTER TABLE t SET ('delta.isolationLevel' = 'Serializable')",
    "sequence": "ALTER TABLE t ENABLE FEATURE 'SEQUENCE_LOAD' "
    "WITH PROPERTIES ('function_column.sequence_type' = 'int')",
    "flexible": "ALTER TABLE t ENABLE FEATURE 'UPDATE_FLEXIBLE_COLUMNS'",
    "made anew": f"DROP TABLE t; {TABLE}",
}


@pytest.mark.family(30)
@pytest.mark.parametrize("change", ALTERS)
@pytest.mark.parametrize("work", PENDING)
def test_42_every_pending_write_meets_every_alter(session: Session, work: str, change: str) -> None:
    """A pending DELETE was filled under the new schema: its commit ended in a KeyError."""
    expected = ProtocolChangedException if change in ("sequence", "made anew") else MetadataChangedException
    transaction = session.store.transaction(concurrency="optimistic")
    PENDING[work](transaction.table("db.t"))
    run(session, ALTERS[change])
    before = table(session).version
    with pytest.raises(expected):
        transaction.commit()
    assert (table(session).version, table(session).count()) == (before, 2)


def test_42_rows_that_changed_before_an_alter_name_the_exception(session: Session) -> None:
    """ISO7: the first version that conflicts, be it of data or of the schema."""
    for statements, expected in (
        ("UPDATE t SET n = 11 WHERE k = 1; ALTER TABLE t RENAME COLUMN n m", ConcurrentDeleteReadException),
        ("ALTER TABLE t RENAME COLUMN m n; UPDATE t SET n = 10 WHERE k = 1", MetadataChangedException),
    ):
        column = "n" if table(session).schema.find("n") else "m"
        transaction = session.store.transaction(concurrency="optimistic")
        transaction.table("db.t").delete_where(pc.field(column) <= 11)
        run(session, statements)
        with pytest.raises(expected):
            transaction.commit()


def test_42_an_alter_passes_data(session: Session) -> None:
    before = table(session).schema.revision
    run(session, "INSERT INTO t VALUES (3, 'c', 30)")
    alter(table(session), [rename_column("v", "w")], expected_revision=before)
    assert run(session, "SELECT w FROM t WHERE k = 3") == [("c",)]


def test_4_a_level_change_fails_a_staged_load(session: Session) -> None:
    load = table(session).begin_load(label="again")
    load.write(pa.table({"k": [9], "v": ["x"], "n": [9]}))
    load.prepare()
    run(session, "ALTER TABLE t SET TBLPROPERTIES ('delta.isolationLevel' = 'serializable')")
    with pytest.raises(MetadataChangedException, match=r"property delta\.isolationLevel"):
        load.commit()
    assert table(session).schema.isolation_level == "Serializable"
    table(session).upsert(pa.table({"k": [9], "v": ["x"], "n": [9]}), label="again")
    assert table(session).count() == 3


@pytest.mark.parametrize(
    "change", ["SET ('delta.feature.appendOnly' = 'supported')", "DROP FEATURE columnMapping"]
)
def test_44_features_fail_concurrent_writers(session: Session, change: str) -> None:
    run(session, "ALTER TABLE t SET ('delta.feature.columnMapping' = 'supported')")
    load = table(session).begin_load()
    load.write(pa.table({"k": [9], "v": ["x"], "n": [9]}))
    run(session, f"ALTER TABLE t {change}")
    with pytest.raises(ProtocolChangedException) as caught:
        load.commit()
    assert caught.value.features in (("+appendOnly",), ("-columnMapping",))
    assert caught.value.changes == ()


def test_44_an_unknown_feature_is_refused_by_name(session: Session) -> None:
    opened = table(session)
    record = {**opened.schema.to_record(), "reader_features": ["teleport"]}
    with session.store.catalog.write() as tx:
        tx.put("schemas", catalog.schema_key(opened.id, 1), record)
    session.store.close()
    with Store.open(session.store.path) as again, pytest.raises(FormatError, match="'teleport'"):
        again.table("db.t").count()


def test_44_a_feature_that_writers_need_leaves_readers_alone(session: Session) -> None:
    """5.4: to read for reader features, to write for both."""
    opened = table(session)
    record = opened.schema.to_record()
    record["features"] = ["teleport"]
    with session.store.catalog.write() as tx:
        tx.put("schemas", catalog.schema_key(opened.id, 1), record)
    session.store.close()
    with Store.open(session.store.path) as again:
        found = again.table("db.t")
        assert found.count() == 2
        for write in (
            lambda: found.upsert(pa.table({"k": [9], "v": ["x"], "n": [9]})),
            lambda: found.update({"n": 0}),
            lambda: found.optimize(full=True),
            lambda: list(Session(again, "db").execute("ALTER TABLE t ADD COLUMN w INT NULL")),
        ):
            with pytest.raises(FormatError, match=r"written only by .* 'teleport'"):
                write()
        assert found.version == 2


def test_44_a_newer_protocol_is_refused_by_its_version(session: Session) -> None:
    opened = table(session)
    record = {**opened.schema.to_record(), "min_reader_version": 4}
    with session.store.catalog.write() as tx:
        tx.put("schemas", catalog.schema_key(opened.id, 1), record)
    session.store.close()
    with Store.open(session.store.path) as again, pytest.raises(FormatError, match="needs reader version 4"):
        again.table("db.t").count()


def test_features_raise_the_protocol_and_dropping_the_last_lowers_it(session: Session) -> None:
    def protocol() -> tuple[int, int, list[str]]:
        record = table(session).schema.to_record()
        return record["min_reader_version"], record["min_writer_version"], record["reader_features"]

    assert protocol() == (1, 2, [])
    run(session, "ALTER TABLE t SET ('delta.appendOnly' = 'true')")
    assert protocol() == (1, 7, [])
    run(session, "ALTER TABLE t SET ('delta.feature.columnMapping' = 'supported')")
    assert protocol() == (3, 7, ["columnMapping"])
    run(session, "ALTER TABLE t DROP FEATURE appendOnly; ALTER TABLE t DROP FEATURE columnMapping")
    assert protocol() == (1, 2, [])
    assert "delta.appendOnly" not in table(session).schema.properties
    run(session, "DELETE FROM t WHERE k = 1")  # not append-only any more


def test_supported_is_not_active(session: Session) -> None:
    """5.4: `appendOnly` listed but not switched on still allows deletes."""
    run(session, "ALTER TABLE t SET ('delta.feature.appendOnly' = 'supported'); DELETE FROM t WHERE k = 1")
    assert table(session).count() == 1


def test_dropping_deletion_vectors_rewrites_what_they_hid(session: Session) -> None:
    """5.4: off first, its traces rewritten, then off the list; a reader in between sees the same rows."""
    run(
        session, "ALTER TABLE t SET ('delta.enableDeletionVectors' = 'true'); UPDATE t SET n = 11 WHERE k = 1"
    )
    run(session, "DELETE FROM t WHERE k = 2")
    before = table(session).snapshot()
    hidden = [
        live.deletes.live_count < live.segment.rows for live in table(session).state().segments.values()
    ]
    assert any(hidden)
    run(session, "ALTER TABLE t DROP FEATURE deletionVectors")
    state = table(session).state()
    assert all(live.deletes.live_count == live.segment.rows for live in state.segments.values())
    assert (state.schema.features, state.schema.row_level) == ((), False)
    assert run(session, "SELECT * FROM t") == [(1, "a", 11)]
    assert before.scan().read_all().to_pylist() == [{"k": 1, "v": "a", "n": 11}]
    assert table(session).check() == []


def test_dropping_column_mapping_rewrites_files_of_other_columns(session: Session) -> None:
    run(session, "ALTER TABLE t SET ('delta.feature.columnMapping' = 'supported')")
    run(session, "ALTER TABLE t RENAME COLUMN v TO w; ALTER TABLE t DROP COLUMN n")
    run(session, "INSERT INTO t VALUES (3, 'c'); ALTER TABLE t DROP FEATURE columnMapping")
    state = table(session).state()
    written = {tuple(live.segment.schema.names) for live in state.segments.values()}
    assert written == {("k", "w")}
    assert run(session, "SELECT * FROM t") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_load_between_rewriting_and_the_commit_point_is_rewritten_too(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(
        session, "ALTER TABLE t SET ('delta.enableDeletionVectors' = 'true'); UPDATE t SET n = 11 WHERE k = 1"
    )
    rewrite, rivals = Compaction.run, iter([12, 13])

    def and_then_a_rival_writes(self: Compaction) -> CompactionResult:
        done = rewrite(self)
        for value in itertools.islice(rivals, 1):
            run(session, f"UPDATE t SET n = {value} WHERE k = 2")
        return done

    monkeypatch.setattr(Compaction, "run", and_then_a_rival_writes)
    run(session, "ALTER TABLE t DROP FEATURE deletionVectors")
    state = table(session).state()
    assert all(live.deletes.live_count == live.segment.rows for live in state.segments.values())
    assert run(session, "SELECT * FROM t") == [(1, "a", 11), (2, "b", 13)]


def test_a_sequence_cannot_be_dropped(session: Session) -> None:
    run(
        session,
        "ALTER TABLE t ENABLE FEATURE 'SEQUENCE_LOAD' "
        "WITH PROPERTIES ('function_column.sequence_type' = 'int')",
    )
    with pytest.raises(InvalidInputError, match="'sequenceLoad' cannot be dropped"):
        run(session, "ALTER TABLE t DROP FEATURE sequenceLoad")


def test_45_a_table_made_anew_under_a_load_is_not_the_same(session: Session) -> None:
    load = table(session).begin_load()
    load.write(pa.table({"k": [9], "v": ["x"], "n": [9]}))
    run(session, f"DROP TABLE t; {TABLE}")
    with pytest.raises(ProtocolChangedException, match="create it once, ahead of time"):
        load.commit()
    assert table(session).count() == 2


def test_45_of_two_who_create_a_table_one_is_told(store: Store) -> None:
    schema = TableSchema.create([Column("k", parse_type("INT"), nullable=False)], ["k"])
    store.create_table("db.u", schema)
    with pytest.raises(AlreadyExistsError, match="already exists"):
        store.create_table("db.u", schema)


def test_45_of_two_who_create_a_table_at_once_the_second_gets_a_protocol_conflict(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loser got AlreadyExistsError, as one that began after the winner had ended."""
    schema = TableSchema.create([Column("k", parse_type("INT"), nullable=False)], ["k"])
    write = store.catalog.write

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(store.catalog, "write", write)
        store.create_table("db.u", schema)
        return write(*arguments)

    monkeypatch.setattr(store.catalog, "write", overtaken)
    with pytest.raises(ProtocolChangedException, match="create it once, ahead of time") as caught:
        store.create_table("db.u", schema)
    error = caught.value
    assert (error.table, error.operation, error.winner_version) == ("db.u", "CREATE TABLE", 1)
    store.drop_table("db.u")
    monkeypatch.setattr(store.catalog, "write", overtaken)
    assert store.create_table("db.u", schema, if_not_exists=True).version == 1


@pytest.mark.parametrize("is_at_once", [False, True])
def test_45_a_table_made_meanwhile_satisfies_if_not_exists(
    session: Session, monkeypatch: pytest.MonkeyPatch, is_at_once: bool
) -> None:
    """CREATE TABLE IF NOT EXISTS .. AS SELECT looks first; the error of the creation itself got out."""
    store, create = session.store, session.store.create_table

    def overtaken(name: str, schema: TableSchema, **given: Any) -> Table:
        monkeypatch.undo()
        run(session, "CREATE TABLE u (k INT NOT NULL, v INT NULL) UNIQUE KEY(k)")
        if is_at_once:
            with store.catalog.read() as tx:
                made = catalog.find_table(tx, table(session).database_id, "u")
                assert made is not None
                raise recreated_error(CurrentTransaction(name, "CREATE TABLE"), creation(tx, made))
        return create(name, schema, **given)

    monkeypatch.setattr(store, "create_table", overtaken)
    run(session, "CREATE TABLE IF NOT EXISTS u UNIQUE KEY(k) AS SELECT k, n FROM t")
    assert run(session, "SELECT * FROM u") == []
    assert store.table("db.u").schema.names == ["k", "v"]


def test_a_check_refuses_rows_that_break_it(session: Session) -> None:
    run(session, "ALTER TABLE t ADD CONSTRAINT low CHECK (n < 100 AND k > 0)")
    run(session, "INSERT INTO t VALUES (3, 'c', NULL)")  # NULL passes
    for statement in ("INSERT INTO t VALUES (4, 'd', 100)", "UPDATE t SET n = n * 10 WHERE k = 1"):
        with pytest.raises(InvalidInputError, match=r"CHECK constraint low \(n < 100 AND k > 0\) is broken"):
            run(session, statement)
    with pytest.raises(InvalidInputError, match="is part of the CHECK constraint low"):
        run(session, "ALTER TABLE t DROP COLUMN n")
    run(session, "ALTER TABLE t DROP CONSTRAINT low; INSERT INTO t VALUES (4, 'd', 100)")
    assert [row[0] for row in run(session, "SELECT k FROM t")] == [1, 2, 3, 4]


def test_a_check_that_cannot_be_computed_refuses_the_row(session: Session) -> None:
    """A division by zero is an error of Arrow, not a row that breaks the constraint."""
    add_constraint(table(session), "part", "100 / n > 1", pc.divide(pc.scalar(100), pc.field("n")) > 1)
    with pytest.raises(InvalidInputError, match=r"does not fit: divide by zero"):
        run(session, "INSERT INTO t VALUES (3, 'c', 0)")
    assert [row[0] for row in run(session, "SELECT k FROM t")] == [1, 2]


def test_a_check_that_rows_break_is_not_added(session: Session) -> None:
    with pytest.raises(InvalidInputError, match=r"1 rows of 'db\.t' break the CHECK constraint low"):
        run(session, "ALTER TABLE t ADD CONSTRAINT low CHECK (n < 20)")
    assert not table(session).schema.constraints


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
def test_43_rows_that_come_while_a_check_is_validated(session: Session, level: str) -> None:
    run(session, f"ALTER TABLE t SET ('delta.isolationLevel' = '{level}')")

    def add(value: int) -> int:
        return add_constraint(
            table(session),
            "low",
            "n < 100",
            pc.field("n") < 100,
            validated=lambda: run(session, f"INSERT INTO t VALUES (9, 'x', {value})"),
        )

    with pytest.raises(ConcurrentAppendException):
        add(100)
    assert not table(session).schema.constraints
    run(session, "DELETE FROM t WHERE k = 9")
    add(99)
    assert [constraint.name for constraint in table(session).schema.constraints] == ["low"]


def test_33_a_check_over_two_columns_makes_their_updates_meet(session: Session) -> None:
    run(session, "ALTER TABLE t ADD COLUMN m INT NULL DEFAULT '5'")
    run(session, "ALTER TABLE t ADD CONSTRAINT pair CHECK (n >= m)")
    store = session.store
    one, two = (store.transaction(concurrency="optimistic") for _ in range(2))
    one.table("db.t").update({"n": 6}, pc.field("k") == 1)
    two.table("db.t").update({"m": 9}, pc.field("k") == 1)
    one.commit()
    with pytest.raises(ConcurrentDeleteReadException):
        two.commit()


def test_a_revision_of_a_commit_group_that_failed_is_forgotten(session: Session) -> None:
    """A follower read it in the transaction that it shared with its leader, and kept it for good."""
    opened, record = table(session), table(session).schema.to_record()
    with contextlib.suppress(ZeroDivisionError), opened.catalog.write() as tx:
        tx.states = {}
        tx.put("schemas", schema_key(opened.id, 2), {**record, "revision": 2, "comment": "undone"})
        assert opened.loader.schema(tx, 2).comment == "undone"
        raise ZeroDivisionError
    run(session, "ALTER TABLE t ADD COLUMN w INT")
    assert (opened.schema.revision, opened.schema.comment) == (2, "")
