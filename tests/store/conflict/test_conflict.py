"""Every conflict names both transactions, the isolation level and the reason (ISO12)."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from seqstore import (
    Column,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConflictError,
    Load,
    MetadataChangedException,
    ProtocolChangedException,
    Store,
    Table,
    TableSchema,
    parse_type,
)
from seqstore.store import errors
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus
from seqstore.store.catalog.version_record import CommitInfo
from seqstore.store.conflict.conflict_errors import schema_error
from seqstore.store.ddl.alter import add_feature, alter, set_properties
from seqstore.store.ddl.column_changes import add_column
from seqstore.store.maintenance.compaction import Compaction
from seqstore.store.publish.publish import check_revision

FIELDS = (
    "table",
    "operation",
    "read_version",
    "winner_version",
    "winner_operation",
    "winner_label",
    "isolation",
    "reason",
    "keys",
    "conflicts",
)
SIX = (
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    ConcurrentDeleteDeleteException,
    MetadataChangedException,
    ProtocolChangedException,
    ConcurrentTransactionException,
)


@pytest.fixture
def table(store: Store) -> Table:
    made = create(store)
    made.upsert(rows(1))
    return made


def create(store: Store) -> Table:
    columns = [Column("k", parse_type("INT"), nullable=False), Column("a", parse_type("INT"))]
    return store.create_table("db.t", TableSchema.create(columns, ["k"]))


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int32()), "a": pa.array([0] * len(keys), pa.int32())})


def begun(table: Table, **options: Any) -> Load:
    load = table.begin_load(**options)
    load.write(rows(9))
    return load


def lose(load: Load) -> ConflictError:
    with pytest.raises(ConflictError) as caught:
        load.commit()
    return caught.value


def add(table: Table, name: str) -> int:
    return alter(table, [add_column(Column(name, parse_type("INT")))])


@pytest.mark.parametrize("cls", [*SIX, ConflictError], ids=lambda cls: cls.__name__)
def test_every_class_answers_every_field(cls: type[ConflictError]) -> None:
    """Nothing known is 0, an empty text or an empty tuple, never an AttributeError."""
    error = cls("lost")
    assert {name: getattr(error, name) for name in FIELDS} == errors._CONFLICT_FIELDS


def test_a_metadata_conflict_tells_loser_winner_level_and_reason(table: Table) -> None:
    load = begun(table)
    add(table, "c")
    found = lose(load)
    assert {name: getattr(found, name) for name in FIELDS if name != "conflicts"} == {
        "table": "db.t",
        "operation": "LOAD",
        "read_version": 2,
        "winner_version": 3,
        "winner_operation": "ALTER TABLE",
        "winner_label": "",
        "isolation": "WriteSerializable",
        "reason": "METADATA_CHANGE",
        "keys": (),
    }


def test_a_metadata_conflict_names_every_alter_met(table: Table) -> None:
    load = begun(table)
    add(table, "c")
    table.upsert(rows(5))
    add(table, "d")
    found = lose(load).conflicts
    assert [(winner.version, winner.changes) for winner in found] == [
        (3, ("column c (added)",)),
        (5, ("column d (added)",)),
    ]


def test_the_message_of_a_metadata_conflict_names_every_alter_and_the_level(table: Table) -> None:
    load = begun(table)
    add(table, "c")
    add(table, "d")
    assert (
        ": ALTER TABLE committed version 3 and changed column c (added), ALTER TABLE committed version 4 and "
        "changed column d (added) [WriteSerializable, METADATA_CHANGE]; run it again on the new schema"
    ) in lose(load).message


def test_a_long_list_of_winners_is_cut_in_the_message_only(table: Table) -> None:
    load = begun(table)
    for number in range(7):
        add(table, f"c{number}")
    found = lose(load)
    assert len(found.conflicts) == 7
    assert "column c4 (added) and 2 more [" in found.message


def test_a_metadata_conflict_has_the_level_of_the_table(table: Table) -> None:
    alter(table, [set_properties({"delta.isolationLevel": "Serializable"})])
    load = begun(table)
    add(table, "c")
    assert lose(load).isolation == "Serializable"


def test_a_metadata_conflict_has_the_level_and_snapshot_of_the_transaction(
    store: Store, table: Table
) -> None:
    with store.transaction(isolation="serializable") as transaction:
        transaction.table("db.t").update({"a": 1})
        add(table, "c")
        with pytest.raises(MetadataChangedException) as caught:
            transaction.commit()
    assert (caught.value.isolation, caught.value.read_version) == ("Serializable", 2)


def test_a_protocol_conflict_tells_features_level_and_winner(table: Table) -> None:
    load = begun(table)
    alter(table, [add_feature("appendOnly")])
    found = lose(load)
    assert isinstance(found, ProtocolChangedException)
    assert (found.isolation, found.keys, found.features) == ("WriteSerializable", (), ("+appendOnly",))
    assert [(winner.version, winner.changes) for winner in found.conflicts] == [(3, ("+appendOnly",))]


def test_the_first_winner_says_which_exception_it_is(table: Table) -> None:
    """ISO7: winners are taken in the order of their versions; the feature that came later is listed, too."""
    load = begun(table)
    add(table, "c")
    alter(table, [add_feature("appendOnly")])
    found = lose(load)
    assert isinstance(found, MetadataChangedException)
    assert [winner.kind.value for winner in found.conflicts] == [
        "MetadataChangedException",
        "ProtocolChangedException",
    ]


def test_45_whoever_made_the_table_anew_is_told(store: Store, table: Table) -> None:
    """The table goes and comes between the last look at it and the commit point."""
    record = TransactionRecord(0, table.database_id, "db.t", "", TransactionStatus.VISIBLE, "UPDATE", 0)
    commit_info = CommitInfo(is_blind=False, read_version=2, level="Serializable")
    store.drop_table("db.t")
    create(store)
    with store.catalog.read() as tx, pytest.raises(ProtocolChangedException) as caught:
        check_revision(tx, record, table.id, "db.t", 1, commit_info)
    found = caught.value
    assert {name: getattr(found, name) for name in FIELDS if name != "conflicts"} == {
        "table": "db.t",
        "operation": "UPDATE",
        "read_version": 2,
        "winner_version": 1,
        "winner_operation": "CREATE TABLE",
        "winner_label": "",
        "isolation": "Serializable",
        "reason": "PROTOCOL_CHANGE",
        "keys": (),
    }


def test_50_a_raced_application_id_tells_both_runs(table: Table) -> None:
    load = begun(table, txn_app_id="job", txn_version=4)
    table.upsert(rows(8), txn_app_id="job", txn_version=3, label="first")
    found = lose(load)
    assert {name: getattr(found, name) for name in FIELDS if name != "conflicts"} == {
        "table": "db.t",
        "operation": "LOAD",
        "read_version": 2,
        "winner_version": 3,
        "winner_operation": "LOAD",
        "winner_label": "first",
        "isolation": "WriteSerializable",
        "reason": "APP_ID",
        "keys": (),
    }
    assert (found.app_id, found.app_version, found.own_app_version) == ("job", 3, 4)
    assert [winner.label for winner in found.conflicts] == ["first"]


def test_50_the_message_of_a_raced_application_id_names_winner_and_level(table: Table) -> None:
    load = begun(table, txn_app_id="job", txn_version=3)
    table.upsert(rows(8), txn_app_id="job", txn_version=3, label="first")
    assert "LOAD 'first', committed version 3" in lose(load).message
    assert "[WriteSerializable, APP_ID]" in lose(begun_again(table)).message


def begun_again(table: Table) -> Load:
    load = begun(table, txn_app_id="job", txn_version=5)
    table.upsert(rows(8), txn_app_id="job", txn_version=5)
    return load


def test_40_a_z_order_whose_input_was_rewritten_tells_by_whom(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.upsert(rows(2))
    merge = Compaction.merge

    def overtaken(self: Compaction, *arguments: Any) -> Any:
        merged = merge(self, *arguments)
        monkeypatch.setattr(Compaction, "merge", merge)
        table.optimize(full=True)
        return merged

    monkeypatch.setattr(Compaction, "merge", overtaken)
    with pytest.raises(ConcurrentDeleteDeleteException) as caught:
        table.optimize(zorder_by=["a"])
    found = caught.value
    assert (found.table, found.read_version, found.winner_version) == ("db.t", 3, 4)
    assert (found.winner_operation, found.isolation) == ("OPTIMIZE", "WriteSerializable")


def test_when_no_record_tells_the_winner_the_fields_are_empty(table: Table) -> None:
    with table.catalog.read() as tx:
        found = schema_error(tx, table.id, name=table.name, operation="LOAD", revision=7)
    assert (found.winner_version, found.winner_operation, found.read_version) == (0, "", 0)


def test_fields_survive_pickle(table: Table) -> None:
    load = begun(table)
    add(table, "c")
    found = lose(load)
    again = pickle.loads(pickle.dumps(found))
    assert {name: getattr(again, name) for name in FIELDS} == {name: getattr(found, name) for name in FIELDS}
