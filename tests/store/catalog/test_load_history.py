"""What the catalog still knows of loads that have ended."""

from __future__ import annotations

import pyarrow as pa
import pytest

from seqstore import Store
from seqstore.store.catalog.catalog import require_database
from seqstore.store.catalog.load_history import loads_of, metrics_of
from tests.support.rows import schema_of

SCHEMA = schema_of("k BIGINT NOT NULL")


def load(store: Store, name: str, label: str, rows: int, operation: str = "STREAM LOAD") -> None:
    with store.table(name).begin_load(label=label, operation=operation) as opened:
        opened.write(pa.table({"k": list(range(rows))}))
        opened.commit()


def test_loads_are_those_of_one_kind_in_one_database_with_their_rows(store: Store) -> None:
    store.create_database("other")
    for name in ("db.t", "other.t"):
        store.create_table(name, SCHEMA)
    load(store, "db.t", "one", 1)
    load(store, "db.t", "two", 2, "INSERT")
    load(store, "other.t", "three", 3)
    load(store, "db.t", "four", 4)
    with store.catalog.read() as tx:
        found = loads_of(tx, require_database(tx, "db"), "STREAM LOAD")
    assert [(past.transaction.label, past.metrics.rows_total) for past in found if past.metrics] == [
        ("one", 1),
        ("four", 4),
    ]


@pytest.mark.parametrize("end", ["running", "dropped", "made anew"])
def test_a_load_whose_version_is_no_more_has_no_metrics(store: Store, end: str) -> None:
    """A table of the same name has versions of other loads."""
    table = store.create_table("db.t", SCHEMA)
    opened = table.begin_load(label="one", operation="STREAM LOAD")
    opened.write(pa.table({"k": [1]}))
    if end != "running":
        opened.commit()
        store.drop_table("db.t")
    if end == "made anew":
        store.create_table("db.t", SCHEMA)
        load(store, "db.t", "two", 2)
    record = store.find_transaction("db", "one")
    assert record is not None
    with store.catalog.read() as tx:
        assert metrics_of(tx, record) is None
