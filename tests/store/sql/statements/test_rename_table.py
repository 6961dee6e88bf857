"""ALTER TABLE a RENAME b, and MODIFY .. COMMENT."""

from __future__ import annotations

import pyarrow as pa
import pytest

from seqstore import AlreadyExistsError, InvalidInputError, NotFoundError, Session, Store, StoreError
from tests.support.statements import last_result

pytestmark = pytest.mark.sql(
    "CREATE TABLE a (k INT, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k); INSERT INTO a VALUES (1, 10);"
    "CREATE TABLE taken (k INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k); CREATE VIEW w AS SELECT k FROM taken"
)


def rows(session: Session, text: str) -> list[tuple[object, ...]]:
    """Returns the rows of the last statement."""
    found = last_result(session, text).rows
    assert found is not None
    return [tuple(row.values()) for row in found.to_pylist()]


def test_a_table_keeps_rows_history_and_handles_under_its_new_name(session: Session, store: Store) -> None:
    handle = store.table("db.a")
    version = handle.version
    last_result(session, "ALTER TABLE a RENAME b; INSERT INTO b VALUES (2, 20)")
    assert rows(session, "SELECT * FROM b ORDER BY k") == [(1, 10), (2, 20)]
    assert rows(session, f"SELECT * FROM b FOR VERSION AS OF {version}") == [(1, 10)]
    handle.upsert(pa.table({"k": [3], "v": [30]}))
    assert rows(session, "SELECT count(*) FROM b") == [(3,)]
    assert store.tables("db") == ["b", "taken"]


def test_the_old_name_is_free_and_a_load_that_has_begun_goes_on(session: Session, store: Store) -> None:
    with store.table("db.a").begin_load() as load:
        load.write(pa.table({"k": [5], "v": [50]}))
        last_result(session, "ALTER TABLE db.a RENAME `b`")
        last_result(session, "CREATE TABLE a (k INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k)")
        load.commit()
    assert rows(session, "SELECT k FROM b ORDER BY k") == [(1,), (5,)]
    assert rows(session, "SELECT k FROM a") == []


@pytest.mark.parametrize(
    ("text", "error", "part"),
    [
        ("ALTER TABLE nope RENAME b", NotFoundError, r"Unknown table 'db\.nope'"),
        ("ALTER TABLE a RENAME taken", AlreadyExistsError, "taken"),
        ("ALTER TABLE a RENAME a", AlreadyExistsError, "is already used"),
        ("ALTER TABLE a RENAME w", AlreadyExistsError, "view"),
        ("ALTER TABLE w RENAME b", InvalidInputError, "it is a view"),
        ("ALTER TABLE a RENAME", InvalidInputError, "new name"),
        ("ALTER TABLE a RENAME b c", InvalidInputError, "'c'"),
        ("ALTER TABLE a RENAME PARTITION p q", InvalidInputError, "partition"),
    ],
)
def test_what_cannot_be_renamed_is_refused_and_changes_nothing(
    session: Session, store: Store, text: str, error: type[StoreError], part: str
) -> None:
    with pytest.raises(error, match=part):
        last_result(session, text)
    assert store.tables("db") == ["a", "taken"]


def test_columns_are_renamed_as_before_and_a_table_may_be_named_column(
    session: Session, store: Store
) -> None:
    last_result(session, "ALTER TABLE a RENAME COLUMN v w")
    assert rows(session, "SELECT w FROM a") == [(10,)]
    last_result(session, "ALTER TABLE a RENAME COLUMN")
    assert store.tables("db") == ["COLUMN", "taken"]


def test_comments_of_a_table_and_its_columns_change_alone(session: Session, store: Store) -> None:
    last_result(session, "ALTER TABLE a MODIFY COMMENT 'all of them'")
    last_result(session, "ALTER TABLE a MODIFY COLUMN `k` COMMENT 'the key', MODIFY v COMMENT \"it's\"")
    schema = store.table("db.a").schema
    assert (schema.comment, schema.column("k").comment, schema.column("v").comment) == (
        "all of them", "the key", "it's"
    )  # fmt: skip
    assert (str(schema.column("v").type), schema.column("v").nullable, schema.key) == ("INT", True, ("k",))
    assert rows(session, "SELECT * FROM a") == [(1, 10)]
    with pytest.raises(InvalidInputError, match="nope"):
        last_result(session, "ALTER TABLE a MODIFY COLUMN nope COMMENT 'x'")
    last_result(session, "ALTER TABLE a ADD COLUMN comment INT, MODIFY COLUMN comment BIGINT COMMENT 'x'")
    assert str(store.table("db.a").schema.column("comment").type) == "BIGINT"
