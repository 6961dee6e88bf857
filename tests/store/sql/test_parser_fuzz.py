"""Damaged statements: whatever the damage, the parser reads them or raises its own error."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as some

from store.errors import InvalidInputError
from store.sql import parse
from store.sql.tokens import is_complete

STATEMENTS = [
    'CREATE TABLE IF NOT EXISTS db.t (k BIGINT NOT NULL COMMENT "c", '
    "d DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3), "
    "m MAP<INT,ARRAY<INT>> NULL) ENGINE=OLAP UNIQUE KEY(k) COMMENT 'x' DISTRIBUTED BY HASH(k) BUCKETS 8 "
    'PROPERTIES("replication_num"="1",)',
    "INSERT INTO db.t WITH LABEL l1 (k, `v`) VALUES (1, 'a'), (-2, DEFAULT), (1 + 1, concat('x', NULL))",
    "INSERT INTO t SELECT a, count(*) FROM u WHERE b BETWEEN 1 AND 2 GROUP BY a",
    "WITH q AS (SELECT a, b || c FROM t LEFT JOIN u USING (k)) SELECT q.*, if(a, 1, 2) FROM q ORDER "
    "BY 1 LIMIT 5, 10",
    "SELECT `a b`.c, date_add(d, INTERVAL 1 DAY), cast(x AS DECIMAL(9,2)) FROM db.t FOR VERSION AS "
    "OF 3 WHERE k IN (1, 2)",
    "SELECT a FROM t UNION ALL (SELECT 1 FROM u WHERE NOT EXISTS (SELECT 1 FROM v)) -- comment",
    "SET GLOBAL a = true, @@session.b = 'x', @c := 1 + 1, NAMES utf8mb4",
    "SHOW FULL TABLES FROM db LIKE 'a%'; SHOW VARIABLES WHERE Variable_name = 'x'; SHOW CREATE "
    "TABLE t; DESC t",
    "CREATE TABLE t (d DATE, k INT) UNIQUE KEY(d, k) PARTITION BY RANGE(d) (PARTITION p1 VALUES LESS THAN "
    "('2024-01-01'), PARTITION p2 VALUES [('2024-02-01'), ('2024-03-01')), FROM ('2025-01-01') TO "
    "('2025-06-01') INTERVAL 1 MONTH) DISTRIBUTED BY RANDOM",
    "CREATE TABLE t (c INT) UNIQUE KEY(c) AUTO PARTITION BY LIST(c) (PARTITION a VALUES IN ('1', NULL))",
    "ALTER TABLE d.t ADD PARTITION IF NOT EXISTS p VALUES IN (1, 2); TRUNCATE TABLE t PARTITION (p, q); "
    "INSERT OVERWRITE TABLE t PARTITION (p) SELECT 1; SELECT * FROM t PARTITION (p)",
    'LOAD LABEL db.l (MERGE DATA INFILE("a/*", "b") INTO TABLE t COLUMNS TERMINATED BY "," (a, b) '
    'SET (c = a + 1) WHERE a > 1 DELETE ON b = 1 ORDER BY s) WITH BROKER "b" ("u" = "v")'
    ' PROPERTIES ("timeout" = "1")',
    "CREATE ROUTINE LOAD d.j ON t WITH APPEND COLUMNS(a, b = a + 1), WHERE a > 1, ORDER BY s PROPERTIES "
    '("max_batch_rows" = "1") FROM KAFKA ("kafka_topic" = "t"); SHOW LOAD WHERE LABEL LIKE "a" LIMIT 1',
    "CREATE USER 'a'@'%' IDENTIFIED BY 'p'; GRANT SELECT_PRIV, LOAD ON d.* TO a; SHOW GRANTS FOR a; KILL 1",
    "EXPLAIN VERBOSE SELECT 1; SHOW PARTITIONS FROM t; SHOW FULL COLUMNS FROM t FROM d LIKE 'a%'",
    "CREATE DATABASE IF NOT EXISTS d; USE d; DROP TABLE IF EXISTS d.t FORCE; DROP DATABASE d",
]
PIECES = [
    *"()[]{}<>,;.'\"`\\@#*/-=+:?!$%^&|~\n\0",
    *("SELECT", "FROM", "VALUES", "KEY", "NULL", "DEFAULT", "CAST", "AS", "ORDER", "BY", "INTERVAL", "CASE"),
    *("END", "ARRAY", "MAP", "1", "1e", "0x", "@@", "/*", "*/", "--", "你"),
]


@some.composite
def damaged(draw: some.DrawFn) -> str:
    """A valid statement with a few pieces cut, doubled or put in."""
    text = draw(some.sampled_from(STATEMENTS))
    for _ in range(draw(some.integers(1, 4))):
        start = draw(some.integers(0, len(text)))
        end = min(len(text), start + draw(some.integers(0, 12)))
        piece = draw(
            some.one_of(some.sampled_from(PIECES), some.text(max_size=3), some.just(text[start:end] * 2))
        )
        text = text[:start] + piece + text[end:]
    return text


def complaint(text: str) -> InvalidInputError | None:
    """The parser's error, None when the text is read; anything else it raises fails the test."""
    try:
        parse(text)
    except InvalidInputError as error:
        return error
    return None


@settings(max_examples=600, deadline=None)
@given(damaged())
def test_a_damaged_statement_is_read_or_refused_in_our_own_words(text: str) -> None:
    is_complete(text)
    error = complaint(text)
    assert error is None or str(error)
    if error is not None and "line" in error.fields:
        assert 1 <= error.line <= text.count("\n") + 1


def test_twenty_thousand_damaged_statements_raise_nothing_but_our_own() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # shown when it fails
    choose = random.Random(seed)
    refused = 0
    for _ in range(20_000):
        text = choose.choice(STATEMENTS)
        for _ in range(choose.randint(1, 3)):
            start = choose.randint(0, len(text))
            end = min(len(text), start + choose.randint(0, 12))
            piece = choose.choice([choose.choice(PIECES), text[start:end] * 2, ""])
            text = text[:start] + piece + text[end:]
        refused += complaint(text) is not None
    assert refused > 10_000  # most damage is seen


@settings(max_examples=200, deadline=None)
@given(some.text(max_size=40))
def test_any_text_is_read_or_refused_in_our_own_words(text: str) -> None:
    error = complaint(text)
    assert error is None or str(error)
