"""Plans that queries of one shape share: equal answers, and new ones where something else has changed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from seqstore import AccessDeniedError, ConflictError, NotFoundError, Store, StoreError
from seqstore.store.sql import Session, parse
from seqstore.store.sql.evaluate import scan_only, select
from seqstore.store.sql.session import statement_kind
from tests.seeds import new_seed
from tests.support.statements import dicts, last_result
from tests.weight import by_form

pytestmark = pytest.mark.sql(
    """
    CREATE TABLE t (k INT, w VARCHAR(20), n BIGINT, d DECIMAL(9, 2), day DATE, at DATETIME(3), big LARGEINT,
                    f DOUBLE, b BOOLEAN) UNIQUE KEY(k, w);
    INSERT INTO t VALUES
        (1, 'a', 10, 1.25, '2024-01-01', '2024-01-01 10:00:00.5', 5, 1.5, TRUE),
        (1, 'b', 20, 2.50, '2024-01-02', '2024-01-02 10:00:00', 7, 2.5, FALSE),
        (2, 'a', NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (5, '5', 5, 5.00, '2024-05-05', '2024-05-05 05:05:05', 5, 5, TRUE),
        (-5, '', 0, 0.00, '1999-12-31', '1999-12-31 23:59:59.999', -5, -5, FALSE);
    CREATE TABLE o (k BIGINT, v VARCHAR(20)) UNIQUE KEY(k);
    INSERT INTO o VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four')
    """
)
SHAPES = [
    "SELECT * FROM t WHERE k = {} AND w = {}",
    "SELECT n, k FROM t AS x WHERE x.k = {} AND {} = x.w",
    "SELECT w AS word, d FROM t WHERE k IN ({}, {}) AND w IN ({}, {})",
    "SELECT k, w FROM t WHERE k >= {} ORDER BY k, w LIMIT {}",
    "SELECT k, w, n FROM t WHERE k = {} ORDER BY w DESC LIMIT {} OFFSET {}",
    "SELECT k FROM t WHERE n BETWEEN {} AND {} ORDER BY k, w LIMIT {}",
    "SELECT k FROM t WHERE k BETWEEN ({}) AND {}",
    "SELECT k FROM t WHERE d > {} AND n IS NOT NULL",
    "SELECT k FROM t WHERE day <= {} AND n IS NULL",
    "SELECT k FROM t WHERE at <> {}",
    "SELECT k FROM t WHERE big = {} OR big = {}",
    "SELECT k FROM t WHERE big < {}",
    "SELECT k FROM t WHERE f = {}",
    "SELECT k FROM t WHERE b = {}",
    "SELECT k FROM t WHERE k = -{}",
    "SELECT k FROM t WHERE k = {} + {}",
    "SELECT k, {} FROM t WHERE k = {}",
    "SELECT {}, k FROM t WHERE {} = k LIMIT {}",
    "SELECT count(*), min(k) FROM t WHERE k > {}",
    "SELECT k FROM t WHERE k > {} LIMIT {}",
    "SELECT k FROM t WHERE k = {} ORDER BY 1 LIMIT {}",
    "SELECT v FROM o WHERE k = {}",
    "SELECT k, v FROM o WHERE k < {} ORDER BY k DESC LIMIT {}",
    "SELECT * FROM o WHERE k = {} AND k = {}",
    "SELECT nothing FROM o WHERE k = {}",
]
LITERALS = ["0", "1", "2", "5", "20", "20000", "99999999999", "18446744073709551615", "1.25", "2.5", "0.001",
            "'a'", "'b'", "''", "'5'", "'1'", "'2024-01-01'", "'2024-01-02 10:00:00'", "'2024-02-30'",
            "'1999-12-31 23:59:59.999'", "NULL", "TRUE", "-1", "007"]  # fmt: skip


_numbers = itertools.count()


@pytest.fixture
def other(store: Store) -> Iterator[Session]:
    """A second session in the database `other`."""
    store.create_database("other")
    with Session(store, "other") as opened:
        yield opened


@contextmanager
def plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The queries of a block that are planned by themselves."""
    found: list[Any] = []
    planned = scan_only.scan_only_plan

    def counted(tree: Any, *arguments: Any, **options: Any) -> Any:
        found.append(tree)
        return planned(tree, *arguments, **options)

    with monkeypatch.context() as changed:
        changed.setattr(select, "scan_only_plan", counted)
        yield found


def answer(session: Session, text: str) -> tuple[Any, ...]:
    """The names, types and rows of the answer to a query, or its error."""
    try:
        rows = last_result(session, text).rows
    except StoreError as error:
        return type(error), error.message
    assert rows is not None
    found = [tuple(row.values()) for row in rows.to_pylist()]
    if "ORDER BY" not in text:  # a limit takes any rows
        found = [(len(found),)] if "LIMIT" in text else sorted(found, key=repr)
    return rows.schema, found


def answers_alike(session: Session, text: str) -> None:
    assert answer(session, text) == alone(session, text), text


def alone(session: Session, text: str) -> tuple[Any, ...]:
    """The answer to a query that is read and planned by itself: it has a comment that no other one has."""
    return answer(session, f"{text} /* {next(_numbers)} */")


@pytest.mark.family(10)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_query_of_a_shape_has_the_answer_that_it_has_alone(session: Session, shape: str) -> None:
    seed = new_seed()
    random_of = random.Random(seed)
    for _ in range(by_form(8, 120)):
        literals = random_of.choices(LITERALS, k=shape.count("{}"))
        answers_alike(session, shape.format(*literals))


def test_a_query_that_repeats_is_planned_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first query of its shape, too."""
    text = f"SELECT v, k AS c{next(_numbers)} FROM o WHERE k = 2"
    expected = answer(session, text)
    with plans(monkeypatch) as found:
        assert answer(session, text) == expected
    assert not found


@pytest.mark.parametrize(
    ("shape", "literals"),
    [
        (SHAPES[0], ["1, 'a'", "2, 'a'", "7, 'x'", "5, ''"]),
        (SHAPES[2], ["1, 2, 'a', 'b'", "5, 5, '5', ''", "0, 1, 'b', 'b'"]),
        (SHAPES[3], ["1, 2", "1, 0", "2, 9"]),
        (SHAPES[5], ["0, 10, 3", "20, 0, 3", "5, 5, 4"]),
        (SHAPES[8], ["'2024-01-01'", "'2030-12-31'"]),
        (SHAPES[21], ["1", "2", "9"]),
    ],
)
def test_queries_of_a_shape_are_planned_once(
    session: Session, monkeypatch: pytest.MonkeyPatch, shape: str, literals: list[str]
) -> None:
    statement_kind._parsed_query.cache_clear()  # it has texts of other tests, whose plans are of their tables
    texts = [shape.format(*each.split(", ")) for each in literals]
    for key in ("6", "7", "8"):  # the first is parsed, the second makes the template, and its plan is kept
        answer(session, shape.format(*literals[0].replace("1", key).split(", ")))
    expected = [alone(session, text) for text in texts]
    with plans(monkeypatch) as found:
        assert [answer(session, text) for text in texts] == expected
    assert not found


def looked_up(session: Session, key: int) -> list[dict[str, Any]]:
    return dicts(session, f"SELECT * FROM o WHERE k = {key}")


def warm(session: Session) -> None:
    for key in (1, 2, 3):
        looked_up(session, key)


def test_columns_that_changed_since_are_read(session: Session) -> None:
    warm(session)
    last_result(session, "ALTER TABLE o ADD COLUMN n INT DEFAULT '7'")
    assert looked_up(session, 1) == [{"k": 1, "v": "one", "n": 7}]
    last_result(session, "ALTER TABLE o RENAME COLUMN v word")
    assert looked_up(session, 2) == [{"k": 2, "word": "two", "n": 7}]
    last_result(session, "DROP TABLE o")
    with pytest.raises(NotFoundError):
        looked_up(session, 3)
    last_result(session, "CREATE TABLE o (k VARCHAR(5), x INT) UNIQUE KEY(k); INSERT INTO o VALUES ('3', 4)")
    assert looked_up(session, 3) == [{"k": "3", "x": 4}]


def test_each_database_has_its_own_table(session: Session, other: Session) -> None:
    last_result(other, "CREATE TABLE o (k INT, n INT) UNIQUE KEY(k); INSERT INTO o VALUES (1, 11), (2, 22)")
    for key in (1, 2, 1, 2, 9):
        answers_alike(session, f"SELECT * FROM o WHERE k = {key}")
        answers_alike(other, f"SELECT * FROM o WHERE k = {key}")
    assert looked_up(other, 2) == [{"k": 2, "n": 22}]
    assert looked_up(session, 2) == [{"k": 2, "v": "two"}]


def test_a_view_of_the_name_is_read(session: Session) -> None:
    warm(session)
    last_result(
        session, "ALTER TABLE o RENAME p; CREATE VIEW o AS SELECT k, upper(v) AS v FROM p WHERE k < 3"
    )
    assert looked_up(session, 1) == [{"k": 1, "v": "ONE"}]
    assert looked_up(session, 3) == []


def test_hidden_rows_and_columns_are_those_of_the_session(session: Session) -> None:
    warm(session)
    last_result(session, "DELETE FROM o WHERE k = 2")
    assert looked_up(session, 2) == []
    last_result(session, "SET skip_delete_sign = true")
    for key in (1, 3, 2):
        found = looked_up(session, key)
    assert found == [{"k": 2, "v": "two"}]
    last_result(session, "SET skip_delete_sign = false; SET show_hidden_columns = true")
    for key in (1, 3, 2):
        found = looked_up(session, key)
    assert [(row["k"], row["__DORIS_DELETE_SIGN__"]) for row in found] == [(2, 1)]
    last_result(session, "SET show_hidden_columns = false")
    assert looked_up(session, 2) == []


def test_a_plan_is_no_privilege(store: Store, session: Session) -> None:
    warm(session)
    last_result(session, "CREATE USER ann; GRANT SELECT_PRIV ON db.t TO ann")
    with Session(store, "db", user="ann") as hers, pytest.raises(AccessDeniedError):
        looked_up(hers, 1)


def test_a_transaction_notes_what_it_reads_so(store: Store, session: Session) -> None:
    last_result(session, 'ALTER TABLE o SET ("delta.isolationLevel" = "Serializable")')
    warm(session)
    with Session(store, "db") as mine:
        last_result(mine, "BEGIN")
        assert looked_up(mine, 1) == [{"k": 1, "v": "one"}]
        last_result(mine, "INSERT INTO o VALUES (7, 'seven')")
        last_result(session, "UPDATE o SET v = 'eins' WHERE k = 1")
        with pytest.raises(ConflictError):
            last_result(mine, "COMMIT")


def test_a_transaction_reads_its_own_rows(session: Session) -> None:
    warm(session)
    last_result(session, "BEGIN; UPDATE o SET v = 'eins' WHERE k = 1")
    assert looked_up(session, 1) == [{"k": 1, "v": "eins"}]
    last_result(session, "ROLLBACK")
    assert looked_up(session, 1) == [{"k": 1, "v": "one"}]


def test_columns_of_a_query_are_known_without_its_rows(session: Session) -> None:
    warm(session)
    [query] = parse("SELECT v, k FROM o WHERE k = 1")
    assert session.columns_of(query).names == ["v", "k"]
    assert pa.types.is_string(session.columns_of(query).field("v").type)
