"""Workload groups: their statements, and the effect of each property."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqstore import (
    AccessDeniedError,
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    Store,
    UnavailableError,
)
from seqstore.store.sql import ServerContext, Session

MEMORY = (
    "SELECT length(group_concat(md5(concat(a.e, ',', b.e)))) FROM (SELECT unnest(array_range(3000)) e) a,"
    " (SELECT unnest(array_range(300)) e) b"
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data") as store:
        store.accounts.create("ann")
        yield store


@pytest.fixture
def server() -> ServerContext:
    return ServerContext()


def run(
    store: Store, text: str, user: str = "root", server: ServerContext | None = None
) -> list[tuple[Any, ...]]:
    with Session(store, user=user, server=server) as session:
        result = list(session.execute(text))[-1].rows
        return [tuple(row.values()) for row in result.to_pylist()] if result is not None else []


def test_groups_are_created_altered_listed_and_dropped(store: Store) -> None:
    run(
        store,
        "CREATE WORKLOAD GROUP IF NOT EXISTS g PROPERTIES ('memory_limit' = '30%', 'max_concurrency' = '10');"
        "ALTER WORKLOAD GROUP g PROPERTIES ('max_queue_size' = '20', 'queue_timeout' = '3000')",
    )
    shown = [
        ("1", "g", "30%", "10", "20", "3000", "0", "0"),
        ("2", "normal", "0%", "2147483647", "0", "0", "0", "0"),
    ]
    assert run(store, "SHOW WORKLOAD GROUPS") == shown
    assert run(store, "SHOW WORKLOAD GROUPS LIKE 'g%'") == shown[:1]
    listed = run(store, "SELECT NAME, MEMORY_LIMIT, MAX_CONCURRENCY FROM information_schema.workload_groups")
    assert listed == [("g", "30%", 10), ("normal", "0%", 2147483647)]
    with pytest.raises(AlreadyExistsError):
        run(store, "CREATE WORKLOAD GROUP g PROPERTIES ('max_concurrency' = '1')")
    run(store, "DROP WORKLOAD GROUP g; DROP WORKLOAD GROUP IF EXISTS g")
    with pytest.raises(NotFoundError):
        run(store, "DROP WORKLOAD GROUP g")


def test_the_group_normal_is_changed_and_never_dropped(store: Store) -> None:
    run(store, "ALTER WORKLOAD GROUP normal PROPERTIES ('max_concurrency' = '7')")
    for text in ("DROP WORKLOAD GROUP normal", "DROP WORKLOAD GROUP IF EXISTS normal"):
        with pytest.raises(InvalidInputError, match="workload group 'normal' cannot be dropped"):
            run(store, text)
    [(_, name, _, concurrency, *_)] = run(store, "SHOW WORKLOAD GROUPS")
    assert (name, concurrency) == ("normal", "7")
    assert [group.name for group in store.workload_groups.all()] == ["normal"]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ("'cpu_share' = '10'", "cpu_share.*without effect here"),
        ("'enable_memory_overcommit' = 'true'", "without effect here"),
        ("'colour' = 'red'", "unknown"),
        ("'memory_limit' = '300%'", "expected a percentage"),
        ("'memory_limit' = '0%'", "expected a percentage"),
        ("'memory_limit' = '71%'", "cannot be greater than 100.0%"),
        ("'max_concurrency' = '0'", "from 1"),
        ("'queue_timeout' = 'soon'", "a whole number"),
    ],
)
def test_a_property_without_effect_or_with_a_bad_value_is_refused_by_name(
    store: Store, properties: str, expected: str
) -> None:
    run(store, "CREATE WORKLOAD GROUP a PROPERTIES ('memory_limit' = '30%')")
    with pytest.raises(InvalidInputError, match=expected):
        run(store, f"CREATE WORKLOAD GROUP g PROPERTIES ({properties})")


def test_only_an_administrator_changes_groups_and_properties(store: Store) -> None:
    for text in (
        "CREATE WORKLOAD GROUP g PROPERTIES ('max_concurrency' = '1')",
        "ALTER WORKLOAD GROUP normal PROPERTIES ('max_concurrency' = '1')",
        "DROP WORKLOAD GROUP g",
        "SET PROPERTY FOR 'ann' 'default_workload_group' = 'normal'",
        "SHOW PROPERTY FOR 'root'",
    ):
        with pytest.raises(AccessDeniedError):
            run(store, text, "ann")
    assert run(store, "SHOW PROPERTY", "ann") == []


def test_a_user_runs_in_its_default_group_and_may_not_choose_another(store: Store) -> None:
    run(
        store,
        "CREATE WORKLOAD GROUP g PROPERTIES ('max_concurrency' = '1');"
        "SET PROPERTY FOR 'ann' 'default_workload_group' = 'g'",
    )
    assert run(store, "SHOW PROPERTY FOR 'ann'") == [("default_workload_group", "g")]
    with pytest.raises(AccessDeniedError, match="may not use workload group 'normal'"):
        run(store, "SET workload_group = 'normal'; SELECT 1", "ann")
    with pytest.raises(InvalidInputError, match="'h' does not exist"):
        run(store, "SET workload_group = 'h'; SELECT 1")
    with pytest.raises(InvalidInputError, match="default of ann"):
        run(store, "DROP WORKLOAD GROUP g")
    store.accounts.drop("ann")
    store.accounts.create("ann")  # another one
    assert run(store, "SHOW PROPERTY FOR 'ann'") == []
    with pytest.raises(InvalidInputError, match=r"max_user_connections.*not supported"):
        run(store, "SET PROPERTY FOR 'ann' 'max_user_connections' = '3'")


def test_statements_beyond_max_concurrency_wait_in_a_queue_of_bounded_length_and_time(
    store: Store, server: ServerContext
) -> None:
    run(
        store,
        "CREATE WORKLOAD GROUP g PROPERTIES"
        " ('max_concurrency' = '1', 'max_queue_size' = '1', 'queue_timeout' = '50');"
        "SET PROPERTY FOR 'ann' 'default_workload_group' = 'g'",
    )
    group = store.workload_groups.find("g")
    assert group is not None
    with server.queues.admitted(group, lambda: group):
        with pytest.raises(UnavailableError, match="query queue timeout, timeout: 50 ms"):
            run(store, "SELECT 1", "ann", server)
        run(store, "ALTER WORKLOAD GROUP g PROPERTIES ('queue_timeout' = '600000')")
        answers: list[list[tuple[Any, ...]]] = []
        waiting = threading.Thread(target=lambda: answers.append(run(store, "SELECT 1", "ann", server)))
        waiting.start()
        while server.queues.counts("g") != (1, 1):
            assert waiting.is_alive()
        assert run(store, "SHOW WORKLOAD GROUPS LIKE 'g'", server=server)[0][-2:] == ("1", "1")
        with pytest.raises(UnavailableError, match="queue is full, queue length=1"):
            run(store, "SELECT 1", "ann", server)
        assert run(store, "SELECT 1", server=server) == [(1,)]  # root is in another group
    waiting.join()
    assert answers == [[(1,)]]
    assert server.queues.counts("g") == (0, 0)


def test_the_queries_of_a_group_share_its_memory(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqstore.store.runtime.memory_limit.limit_bytes", lambda: 320 << 20)
    assert run(store, MEMORY, "ann")
    run(
        store,
        "CREATE WORKLOAD GROUP g PROPERTIES ('memory_limit' = '10%');"
        "SET PROPERTY FOR 'ann' 'default_workload_group' = 'g'",
    )
    with pytest.raises(UnavailableError, match="workload group"):
        run(store, MEMORY, "ann")
    assert run(store, MEMORY)


def test_the_memory_of_a_users_queries_is_bounded_by_its_property(store: Store) -> None:
    run(store, "SET PROPERTY FOR 'ann' 'exec_mem_limit' = '33554432'")
    for text in (MEMORY, f"SET exec_mem_limit = 107374182400; {MEMORY}"):
        with pytest.raises(UnavailableError, match="exec_mem_limit"):
            run(store, text, "ann")


def test_a_property_is_of_the_user_at_a_host(store: Store) -> None:
    store.accounts.create("ann", host="10.%")
    run(store, "CREATE WORKLOAD GROUP g PROPERTIES ('max_concurrency' = '1')")
    run(store, "SET PROPERTY FOR 'ann'@'10.%' 'default_workload_group' = 'g'")
    shown = {user: dict(run(store, f"SHOW PROPERTY FOR {user}")) for user in ("'ann'", "'ann'@'10.%'")}
    assert [shown[user].get("default_workload_group") for user in shown] == [None, "g"]
    with pytest.raises(NotFoundError, match=r"Unknown user 'ann'@'11\.%'"):
        run(store, "SET PROPERTY FOR 'ann'@'11.%' 'default_workload_group' = 'g'")
