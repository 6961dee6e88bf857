"""The memory of queries: `exec_mem_limit`, and values that no query may build."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqstore import InvalidInputError, Store, UnavailableError
from seqstore.store.sql import Session

WIDE = (
    "SELECT length(group_concat(md5(concat(a.e, ',', b.e)))) FROM (SELECT unnest(array_range(3000)) e) a,"
    " (SELECT unnest(array_range(300)) e) b"
)


def rows(session: Session, text: str) -> list[tuple[object, ...]]:
    result = list(session.execute(text))[-1].rows
    return [tuple(row.values()) for row in result.to_pylist()] if result is not None else []


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(Store.open(tmp_path / "data"))


def test_exec_mem_limit_ends_a_query_that_needs_more(session: Session) -> None:
    """The variable was refused, because it had no effect."""
    assert rows(session, WIDE) == [(3000 * 300 * 34 - 2,)]
    rows(session, "SET exec_mem_limit = 33554432")
    with pytest.raises(UnavailableError, match="exec_mem_limit"):
        rows(session, WIDE)
    assert rows(session, "SELECT 1") == [(1,)]
    rows(session, "SET exec_mem_limit = DEFAULT")
    assert rows(session, WIDE) == [(3000 * 300 * 34 - 2,)]


@pytest.mark.parametrize("value", ["0", "-1", "lots", "1000"])
def test_exec_mem_limit_takes_bytes_that_a_query_can_run_with(session: Session, value: str) -> None:
    with pytest.raises(InvalidInputError, match="exec_mem_limit"):
        rows(session, f"SET exec_mem_limit = {value}")


@pytest.mark.parametrize(
    "value",
    [
        "repeat('a', 2000000000)",
        "repeat(concat(rand(), 'a'), 2000000000)",
        "lpad('a', 2000000000, 'x')",
        "rpad('a', 2000000000, 'x')",
        "space(2000000000)",
        "array_range(1000000000)",
        "array_range(5, 1000000000)",
        "array_range(0, 9000000000, 3)",
        "sequence(1, 1000000000)",
        "sequence(1000000000)",
        "array_repeat('a', 1000000000)",
        "array_with_constant(1000000000, 'a')",
        "unnest(array_range(1000000000))",
    ],
)
def test_a_value_that_no_query_may_build_is_refused_before_it_is_built(session: Session, value: str) -> None:
    """DuckDB does not count the memory of values that functions build: two gigabytes each were built."""
    with pytest.raises(InvalidInputError, match=r"expected a.* at most"):
        rows(session, f"SELECT {value}")


def test_functions_with_a_bound_return_what_they_returned(session: Session) -> None:
    assert rows(session, "SELECT repeat('ab', 3), repeat(NULL, 2), repeat('a', NULL), repeat('a', -1)") == [
        ("ababab", None, None, "")
    ]
    assert rows(
        session, "SELECT array_range(3), array_range(1, 3), array_range(1, 9, 4), sequence(1, 3)"
    ) == [([0, 1, 2], [1, 2], [1, 5], [1, 2])]
