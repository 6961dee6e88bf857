"""Random and damaged statements, run: they answer or fail in our own words, whatever is in them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seqstore import Settings, Store, StoreError
from seqstore.store.runtime.memory_limit import MemoryLimit
from seqstore.store.sql import Session
from seqstore.store.sql.translate.functions import function_names
from tests.seeds import new_seed
from tests.support.hostile.mutated_statements import mutated, statements_of_the_manual
from tests.support.hostile.usage import descriptors, resident_bytes
from tests.weight import by_form, torture_minutes

STATEMENTS = (Path(__file__).parent / "fuzz_statements.sql").read_text(encoding="utf-8").splitlines()
SETUP = """
CREATE DATABASE IF NOT EXISTS d; CREATE DATABASE IF NOT EXISTS db; USE d;
CREATE TABLE IF NOT EXISTS d.t (k INT, a INT NULL, b VARCHAR(20) NULL, c DOUBLE NULL, d DATE NULL,
    v BIGINT NULL, x STRING NULL) UNIQUE KEY(k);
CREATE TABLE IF NOT EXISTS d.u (k INT, a INT NULL, b DECIMAL(9,2) NULL, c DATETIME NULL, v INT NULL)
    UNIQUE KEY(k);
INSERT INTO d.t VALUES (1, 2, 'x', 0.5, '2024-01-01', 7, '{"b": 1}'), (2, NULL, 'yy', NULL, NULL, NULL, NULL);
INSERT INTO d.u VALUES (1, 5, 1.5, '2024-01-01 01:02:03', 1), (3, 1, NULL, NULL, NULL)"""
VALUES = """k|a|b|c|d|v|x|1|'5'|NULL|0|'2024-01-01'|a + b|a / 0|c * v|length(b)|upper(b)|sum(a)|count(*)
max(d)|year(d)|date_add(d, INTERVAL 1 DAY)|cast(b AS INT)|if(a, b, c)|ifnull(a, 'x')
a IN (1, '2')|b LIKE '%x'|d > '2024'|[a, k]|map(b, a)|json_extract(x, '$.b')|group_concat(b)
row_number() OVER (ORDER BY k)|(SELECT max(a) FROM u)|-a|NOT a
EXISTS (SELECT 1 FROM u WHERE u.k = t.k)|CASE WHEN a > 1 THEN b ELSE c END|a DIV b|a % c
concat(a, b)|t.*|*|substring(b, a)|round(c, a)|date_format(d, '%Y')|a BETWEEN b AND c
array_map(y -> y + a, [k])""".replace("\n", "|")
OPERATORS = ["+", "-", "*", "/", "=", "<", "AND", "OR", "%", "DIV", "||", "<=>", "IS NOT", "LIKE"]
NAMES = [
    *function_names(),
    "sum",
    "avg",
    "min",
    "max",
    "abs",
    "round",
    "lower",
    "replace",
    "greatest",
    "coalesce",
]
SECONDS_MAX = 20.0
MEMORY_BYTES_MAX = 6 << 30
STATEMENTS_OF_A_SESSION = 50


def value(choose: random.Random, depth: int = 0) -> str:
    """An expression over the columns of t."""
    kind = choose.random()
    if kind < 0.5 or depth > 2:
        return choose.choice(VALUES.split("|"))
    if kind < 0.8:
        arguments = [value(choose, depth + 1) for _ in range(choose.randint(0, 3))]
        return f"{choose.choice(NAMES)}({', '.join(arguments)})"
    return f"({value(choose, depth + 1)} {choose.choice(OPERATORS)} {value(choose, depth + 1)})"


def statement(choose: random.Random) -> str:
    """A query, UPDATE or INSERT of random expressions, or a valid statement damaged in one or two places."""
    kind = choose.random()
    if kind < 0.08:
        return f"UPDATE t SET {choose.choice('abcdvx')} = {value(choose)} WHERE {value(choose)}"
    if kind < 0.16:
        return f"INSERT INTO t SELECT {', '.join(value(choose) for _ in range(7))} FROM t"
    if kind < 0.6:
        parts = [f"SELECT {value(choose)}, {value(choose)} FROM t"]
        clauses = ("JOIN u USING (k)", "WHERE {}", "GROUP BY {}", "HAVING {}", "ORDER BY {}", "LIMIT 1")
        parts += [clause.format(value(choose)) for clause in clauses if choose.random() < 0.3]
        return " ".join(parts)
    text = choose.choice(STATEMENTS)
    for _ in range(choose.randint(0, 2)):
        start = choose.randint(0, len(text))
        end = min(len(text), start + choose.randint(0, 6))
        text = text[:start] + choose.choice(["", text[start:end] * 2, " 1 ", "a", "NULL"]) + text[end:]
    return text


def prepare(session: Session) -> None:
    """Brings back what statements dropped; what they left in a form that does not fit stays."""
    for text in SETUP.split(";"):
        try:
            list(session.execute(text))
        except StoreError:
            continue


def complaint(session: Session, text: str) -> str:
    """What a statement fails with, empty when it answers; anything but our own errors fails the test."""
    try:
        list(session.execute(text))
    except StoreError as error:
        return str(error)
    return ""


def mutant(choose: random.Random) -> str:
    """A statement with parts of others in it; none that waits for an answer of some network."""
    return mutated(choose, (*STATEMENTS, *statements_of_the_manual())).replace("s3://", "file:///")


def run(
    store: Store, choose: random.Random, count: int, make: Callable[[random.Random], str] = statement
) -> int:
    """Runs statements, some to a session; returns how many answered."""
    answered = 0
    for _ in range(count // STATEMENTS_OF_A_SESSION):
        with Session(store) as session:  # closing it ends the transaction a damaged BEGIN may have left open
            prepare(session)
            answered += sum(answers(session, make(choose)) for _ in range(STATEMENTS_OF_A_SESSION))
    return answered


def answers(session: Session, text: str) -> bool:
    """Runs one statement; whether it answered."""
    timer = threading.Timer(SECONDS_MAX, session.interrupt)
    timer.start()
    started = time.monotonic()
    try:
        message = complaint(session, text)
    except BaseException as error:
        raise AssertionError(f"{text!r} raised {error!r}") from error
    finally:
        timer.cancel()
    assert not any(leak in message for leak in ("__source_", "__copy_", "INTERNAL", "Macro d_")), text
    assert time.monotonic() - started < SECONDS_MAX, text
    return not message


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "s", settings=Settings(auto_compaction=False))


def test_statements_answer_or_fail_in_our_own_words(store: Store) -> None:
    seed = new_seed()
    print(f"seed {seed}")  # shown when it fails
    with store:
        assert run(store, random.Random(seed), by_form(100, 300)) > 1  # of most seeds 10 to 18


def test_mutants_answer_or_fail_in_our_own_words(store: Store) -> None:
    seeds = (20261122, new_seed())
    print(f"seeds {seeds}")
    with store:
        for seed in seeds:
            run(store, random.Random(seed), by_form(100, 1_000), mutant)


@pytest.fixture
def memory_limit() -> Iterator[None]:
    """The limit of a server: a statement that builds values without end fails, the tests go on."""
    limit = MemoryLimit(MEMORY_BYTES_MAX)
    limit.start()
    try:
        yield
    finally:
        limit.stop()


@pytest.mark.torture
@pytest.mark.usefixtures("memory_limit")
def test_mutants_for_an_hour_leave_no_descriptors_and_no_memory(store: Store) -> None:
    until, used, opened = time.monotonic() + 60 * torture_minutes(60), 0, 0
    with store:
        while time.monotonic() < until:
            seed = new_seed()
            print(f"seed {seed}")
            run(store, random.Random(seed), 2_000, random.Random(seed).choice((statement, mutant)))
            used, opened = used or resident_bytes(), opened or descriptors()
            assert resident_bytes() < used + (1 << 30)
            assert descriptors() < opened + 20


@pytest.mark.torture
@pytest.mark.usefixtures("memory_limit")
def test_many_statements_answer_or_fail_in_our_own_words(store: Store) -> None:
    seed = new_seed()
    print(f"seed {seed}")
    with store:
        assert run(store, random.Random(seed), 20_000) > 1_000
