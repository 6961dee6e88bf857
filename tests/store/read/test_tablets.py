"""`FROM t TABLET(id, ..)`: shares of one version, as Doris's connectors read them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from seqstore import InvalidInputError, NotFoundError, Store, VersionExpiredError
from seqstore.store.read import tablets
from seqstore.store.sql import Session
from tests.support.rows import schema_of

LOADS, ROWS = 5, 100


@pytest.fixture
def table_ids(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tablets of `db.t`, whose loads overlap by ten keys; each load is a tablet."""
    monkeypatch.setattr(tablets, "TABLET_ROWS", ROWS + ROWS // 2)
    with Session(store, "db") as session:
        list(session.execute("CREATE TABLE t (k INT, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k)"))
    table = store.table("db.t")
    for number in range(LOADS):
        keys = list(range(number * 90, number * 90 + ROWS))
        table.upsert(pa.table({"k": keys, "v": [number] * ROWS}))
    with table.snapshot() as snapshot:
        return snapshot.tablet_ids()


def rows(session: Session, text: str) -> list[tuple[object, ...]]:
    """Returns the rows of one query."""
    [result] = session.execute(text)
    assert result.rows is not None
    return [tuple(row.values()) for row in result.rows.to_pylist()]


def test_the_tablets_of_a_version_have_every_row_once(store: Store, table_ids: list[int]) -> None:
    assert len(table_ids) == LOADS
    with Session(store, "db") as session:
        found = [row for each in table_ids for row in rows(session, f"SELECT k, v FROM t TABLET({each})")]
        together = rows(session, f"SELECT k, v FROM db.t TABLET({', '.join(map(str, table_ids))}) AS x")
        everything = rows(session, "SELECT k, v FROM t")
    assert sorted(found) == sorted(everything) == sorted(together)


def test_tablets_show_their_version_after_later_loads_and_a_compaction(
    store: Store, table_ids: list[int]
) -> None:
    with Session(store, "db") as session:
        before = rows(session, "SELECT k, v FROM t")
        list(session.execute("DELETE FROM t WHERE k < 50; INSERT INTO t VALUES (9999, 9)"))
        store.table("db.t").optimize()
        found = [row for each in table_ids for row in rows(session, f"SELECT k, v FROM t TABLET({each})")]
    assert sorted(found) == sorted(before)


def test_conditions_counts_and_look_ups_stay_within_the_tablet(store: Store, table_ids: list[int]) -> None:
    first, last = table_ids[0], table_ids[-1]
    with Session(store, "db") as session:
        assert rows(session, f"SELECT count(*), min(k), max(k) FROM t TABLET({first})") == [(90, 0, 89)]
        assert rows(session, f"SELECT v FROM t TABLET({first}) WHERE k = 3") == [(0,)]
        assert rows(session, f"SELECT v FROM t TABLET({last}) WHERE k = 3") == []
        assert rows(session, f"SELECT count(*) FROM t TABLET({last}) t2 WHERE t2.v + 0 = 4") == [(ROWS,)]


def test_a_table_without_rows_has_one_tablet(store: Store) -> None:
    with Session(store, "db") as session:
        list(session.execute("CREATE TABLE e (k INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k)"))
        with store.table("db.e").snapshot() as snapshot:
            [only] = snapshot.tablet_ids()
        assert rows(session, f"SELECT * FROM e TABLET({only})") == []


@pytest.mark.parametrize(
    ("ids", "error"),
    [
        (lambda ids: [ids[-1] + 1], NotFoundError),
        (lambda ids: [ids[0], ids[0] + (1 << 20)], InvalidInputError),
        (lambda ids: [5], VersionExpiredError),
        (lambda ids: [1 << 63], InvalidInputError),
        (lambda ids: ["'a'"], InvalidInputError),
        (lambda ids: ["k"], InvalidInputError),
    ],
    ids=["beyond the last", "of two versions", "of no version", "too large", "a text", "a name"],
)
def test_ids_that_are_no_tablets_of_one_version_are_refused(
    store: Store, table_ids: list[int], ids: object, error: type[Exception]
) -> None:
    """Before, TABLET(5) was an alias with a column: the query returned every row of the table."""
    wanted = ", ".join(map(str, ids(table_ids)))  # type: ignore[operator]
    with Session(store, "db") as session, pytest.raises(error):
        rows(session, f"SELECT 1 FROM t TABLET({wanted})")


def test_tablet_stays_a_name_for_tables_and_columns(store: Store) -> None:
    with Session(store, "db") as session:
        list(
            session.execute("CREATE TABLE tablet (tablet INT) UNIQUE KEY(tablet) DISTRIBUTED BY HASH(tablet)")
        )
        list(session.execute("INSERT INTO tablet (tablet) VALUES (1)"))
        assert rows(session, "SELECT tablet.tablet FROM tablet tablet") == [(1,)]


@pytest.mark.settings(inline_bytes_max=0, segment_rows=100, batch_rows_max=50, auto_compaction=0)
def test_the_tablets_of_a_version_stay_while_the_table_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that planned before a delete read some segments twice and others never."""
    monkeypatch.setattr(tablets, "TABLET_ROWS", 150)
    table = store.create_table("db.many", schema_of("k BIGINT NOT NULL"))
    table.upsert(pa.table({"k": pa.array(range(1000), pa.int64())}))
    version = table.version

    def cut() -> list[set[str]]:
        with table.snapshot(version) as seen:
            numbers = seen.tablet_ids()
        state = table.state(version)
        parts = [tablets.of_tablets(state, tablets.Tablets.of([number])) for number in numbers]
        return [{live.segment.meta.id for live in part.segments.values()} for part in parts]

    before = cut()
    table.delete_where()
    assert cut() == before
