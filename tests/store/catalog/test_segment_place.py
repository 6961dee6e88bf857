"""The place of segment files: chosen when a store is made, and remembered by its catalog."""

from __future__ import annotations

import pytest

from seqstore import InvalidInputError, Store
from seqstore.store.catalog.segment_place import segment_place
from tests.support.rows import schema_of

PLACE, OTHER = "s3://one/tables", "s3://other/tables"


def ask(store: Store, wanted: str | None) -> str | None:
    return segment_place(store.catalog, store.path, wanted)


def test_a_store_that_is_asked_for_none_has_its_own_directory(store: Store) -> None:
    assert ask(store, None) is None


def test_a_place_is_remembered_while_there_are_no_tables(store: Store) -> None:
    assert ask(store, PLACE) == PLACE
    assert ask(store, None) == PLACE
    assert ask(store, PLACE) == PLACE


def test_a_remembered_place_is_not_changed_even_without_tables(store: Store) -> None:
    ask(store, PLACE)
    with pytest.raises(InvalidInputError, match=f"its segments are in {PLACE}, not in {OTHER}"):
        ask(store, OTHER)
    assert ask(store, None) == PLACE


def test_a_store_with_tables_in_its_own_directory_gets_no_other_place(store: Store) -> None:
    store.create_table("db.t", schema_of("k BIGINT NOT NULL"))
    with pytest.raises(InvalidInputError, match=f"its segments are in its own directory, not in {PLACE}"):
        ask(store, PLACE)
    assert ask(store, None) is None


def test_a_store_with_tables_elsewhere_may_be_asked_for_its_place(store: Store) -> None:
    ask(store, PLACE)
    with store.catalog.write() as tx:
        tx.put("tables", b"a table", {})
    assert ask(store, PLACE) == PLACE
    with pytest.raises(InvalidInputError, match="the place is chosen when the store is made"):
        ask(store, OTHER)
    with store.catalog.write() as tx:
        tx.delete("tables", b"a table")
