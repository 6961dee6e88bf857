"""Queries: what is read, by which way, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seqstore import CorruptionError, InvalidInputError, Snapshot, Store, VersionExpiredError
from seqstore.store.read.marked_scan import MarkedScan
from seqstore.store.sql import Session
from tests.support.rows import schema_of
from tests.support.statements import run

Run = Callable[[str], Any]


@pytest.fixture(autouse=True)
def _tables(session: Session) -> None:
    list(
        session.execute(
            "CREATE TABLE t (k INT, d DATE, a INT NULL, s VARCHAR(20) NULL, f DOUBLE NULL) UNIQUE KEY(k, d);"
            "CREATE TABLE u (k INT NULL, n LARGEINT NULL) UNIQUE KEY(k);"
            "INSERT INTO t VALUES (1, '2024-01-01', 10, 'x', 0.5), (2, '2024-01-02', NULL, 'y', 1.5),"
            " (3, '2024-01-03', 30, NULL, NULL), (3, '2024-01-04', 40, 'x', -1);"
            "INSERT INTO u VALUES (1, 170141183460469231731687303715884105727), (3, -5), (NULL, 0)"
        )
    )


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What a statement asked: `("scan", columns, has a filter)`, `("get", columns, keys)`, `("count",)`."""
    asked: list[tuple[Any, ...]] = []
    scan, marked, get, count = Snapshot.scan, Snapshot.marked, Snapshot.get, Snapshot.count

    def spy_scan(
        self: Snapshot, columns: Sequence[str] | None = None, filter: Any = None, **more: Any
    ) -> Any:
        asked.append(("scan", list(columns or ()), filter is not None))
        return scan(self, columns, filter, **more)

    def spy_marked(self: Snapshot, columns: Sequence[str], *given: Any, **more: Any) -> Any:
        asked.append(("scan", list(columns), given[1] is not None))
        return marked(self, columns, *given, **more)

    def spy_get(self: Snapshot, keys: pa.Table, columns: Sequence[str] | None = None, **more: Any) -> Any:
        asked.append(("get", list(columns or ()), keys.num_rows))
        return get(self, keys, columns, **more)

    def spy_count(self: Snapshot, *given: Any, **more: Any) -> int:
        asked.append(("count",))
        return count(self, *given, **more)

    monkeypatch.setattr(Snapshot, "scan", spy_scan)
    monkeypatch.setattr(Snapshot, "marked", spy_marked)
    monkeypatch.setattr(Snapshot, "get", spy_get)
    monkeypatch.setattr(Snapshot, "count", spy_count)
    return asked


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT count(*) FROM t", [("count",)]),
        ("SELECT a FROM t WHERE k = 3 AND d = '2024-01-03'", [("get", ["k", "d", "a"], 1)]),
        ("SELECT a FROM t WHERE k IN (3, 1, 3) AND d = '2024-01-03'", [("get", ["k", "d", "a"], 2)]),
        ("SELECT max(a) FROM t WHERE k = 3 AND d = '2024-01-03'", [("get", ["a", "k", "d"], 1)]),
        ("SELECT a + 1 FROM t WHERE k > 1 AND a IS NOT NULL", [("scan", ["k", "a"], True)]),
        ("SELECT a + 1 FROM t WHERE k > 1 AND s = 'x'", [("scan", ["a"], True)]),
        ("SELECT * FROM t WHERE k + 1 = 2", [("scan", ["k", "d", "a", "s", "f"], False)]),
        ("SELECT count(*) FROM t, u", [("scan", ["k"], False), ("scan", ["k"], False)]),
        (
            "SELECT x.a FROM t x LEFT JOIN u y ON x.k = y.k WHERE x.a > 1 AND y.n = 1",
            [("scan", ["k", "a"], True), ("scan", ["k", "n"], False)],
        ),
        ("SELECT q.a FROM (SELECT a, s FROM t WHERE s = 'x') q WHERE q.a > 5", [("scan", ["a", "s"], True)]),
        ("SELECT a FROM t WHERE f > 0 OR k = 1", [("scan", ["k", "a", "f"], False)]),
    ],
)  # fmt: skip
def test_the_engine_is_asked_for_no_more_than_needed(
    rows: Run, read: list[Any], text: str, expected: list[Any]
) -> None:
    rows(text)
    assert sorted(map(str, read)) == sorted(map(str, expected))


def test_a_limit_stops_the_scan(
    session: Session, store: Store, rows: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = store.table("db.u")
    for start in range(0, 600_000, 200_000):
        table.upsert(pa.table({"k": np.arange(start, start + 200_000, dtype=np.int32)}))
    seen: list[int] = []
    scan = Snapshot.scan

    def counting(self: Snapshot, *arguments: Any, **more: Any) -> pa.RecordBatchReader:
        reader = scan(self, *arguments, **more)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                seen.append(batch.num_rows)
                yield batch

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    monkeypatch.setattr(Snapshot, "scan", counting)
    assert len(rows("SELECT k FROM u LIMIT 10, 5")) == 5
    assert sum(seen) < 200_000


ORACLE = [
    "SELECT k, a FROM t WHERE {}",
    "SELECT k, a + 0 FROM t WHERE {}",
]


@pytest.mark.family(24)
@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ("k = 3", [3, 3]),
        ("3 = k", [3, 3]),
        ("k != 3", [1, 2]),
        ("k <> 3 AND a = 10", [1]),
        ("2 <= k", [2, 3, 3]),
        ("k BETWEEN 1 AND 2", [1, 2]),
        ("k NOT BETWEEN 1 AND 2", [3, 3]),
        ("k IN (1, 9)", [1]),
        ("k NOT IN (1, 9)", [2, 3, 3]),
        ("a IS NULL", [2]),
        ("a IS NOT NULL AND k > 1", [3, 3]),
        ("NOT a IS NULL", [1, 3, 3]),
        ("a = NULL", []),
        ("a <=> NULL", [2]),
        ("a > -1", [1, 3, 3]),
        ("k = 1.5", []),
        ("k < 1.5", [1]),
        ("k = '2'", [2]),
        ("k = 99999999999999", []),
        ("k < 99999999999999", [1, 2, 3, 3]),
        ("d = '2024-01-03'", [3]),
        ("d > DATE '2024-01-02'", [3, 3]),
        ("d >= '2024-01-02 00:00:00'", [2, 3, 3]),
        ("s = 'x'", [1, 3]),
        ("s = 'X'", []),
        ("s > 'x'", [2]),
        ("f > 0", [1, 2]),
        ("f = -1", [3]),
        ("f IS NULL", [3]),
        ("s LIKE 'x%' OR k = 2", [1, 2, 3]),
        ("(k = 1 OR k = 2) AND (a = 10)", [1]),
        ("k = 3 AND d = '2024-01-03' AND a = 31", []),
        ("true", [1, 2, 3, 3]),
        ("1 = 2", []),
        ("k = 5 - 2", [3, 3]),
        ("k BETWEEN 4 - 2 * 1 AND -(1 - 9) * 2", [2, 3, 3]),
        ("a > 10 - 0.5 AND k < 2 + 1", [1]),
        ("k < 9223372036854775807 - 1 + 1", [1, 2, 3, 3]),
        ("k = 4294967296 + 4294967299 - 8589934592", [3, 3]),
    ],
)
@pytest.mark.parametrize("query", ORACLE)
def test_a_condition_means_the_same_wherever_it_is_decided(
    rows: Run, query: str, condition: str, keys: list[int]
) -> None:
    assert sorted(row[0] for row in rows(query.format(condition))) == keys


@pytest.mark.family(1)
@pytest.mark.parametrize("sign", ["AND", "OR"])
def test_a_program_may_write_thousands_of_conditions(rows: Run, sign: str) -> None:
    query = "SELECT k, a FROM t WHERE " + f" {sign} ".join(f"k != {i + 9}" for i in range(5_000))
    assert len(rows(query)) == 4


def test_arithmetic_too_deep_to_be_evaluated_says_so(rows: Run) -> None:
    with pytest.raises(InvalidInputError, match="less deeply nested expressions, found more than 1,000"):
        rows("SELECT k, a FROM t WHERE k = " + " + ".join(["1"] * 5_000))


def test_numbers_are_compared_where_they_lie_and_hidden_rows_stay_hidden(session: Session, rows: Run) -> None:
    """DuckDB decides the condition, on batches that hold replaced and deleted rows."""
    table = session.store.table("db.u")
    keys = pa.array(range(100, 20_100), pa.int32())
    table.upsert(pa.table({"k": keys}))
    table.upsert(pa.table({"k": keys[:10_000]}))
    table.delete(pa.table({"k": keys[:10]}))
    counted = "SELECT count(*) + 0, sum(k) FROM u WHERE k BETWEEN 105 AND 10109"
    assert rows(counted) == [(10_000, sum(range(110, 10_110)))]
    assert rows("SELECT max(k) + 0 FROM u WHERE k < 100") == [(3,)]


def test_names_of_the_answer_are_those_written(session: Session) -> None:
    text = (
        "SELECT count(*), Max( a ), K, `s` AS `t s`, t.k, 1+1, 'x', t.* FROM t GROUP BY K, s, d, a, f LIMIT 1"
    )
    (result,) = session.execute(text)
    assert result.columns[:7] == ["count(*)", "Max( a )", "K", "t s", "k", "1+1", "'x'"]
    assert result.columns[7:] == ["k", "d", "a", "s", "f"]


def test_a_star_over_two_tables_keeps_both_columns_of_a_name(session: Session) -> None:
    (result,) = session.execute("SELECT * FROM u a JOIN u b ON a.k = b.k")
    assert result.columns == ["k", "n", "k", "n"]


def test_joins_subqueries_ctes_and_windows(rows: Run) -> None:
    assert rows("SELECT t.k, u.n FROM t JOIN u ON t.k = u.k WHERE t.d = '2024-01-04'") == [(3, Decimal(-5))]
    assert rows(
        "WITH q AS (SELECT k, sum(a) AS n FROM t GROUP BY k) SELECT x.n, y.n FROM q x, q y "
        "WHERE x.k < y.k AND x.k = 1 AND y.k = 3"
    ) == [(10, 70)]
    assert rows("WITH t AS (SELECT k FROM t WHERE k = 1) SELECT count(*) FROM t") == [(1,)]
    assert rows("SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)") == [(2,)]
    assert rows("SELECT db.t.k FROM db.t WHERE a = (SELECT max(a) FROM t)") == [(3,)]
    assert rows(
        "SELECT k, row_number() OVER (PARTITION BY k ORDER BY d DESC) AS r FROM t ORDER BY k, r LIMIT 2, 2"
    ) == [(3, 1), (3, 2)]
    assert rows("(SELECT 1) UNION ALL (SELECT 1) UNION SELECT 2 ORDER BY 1") == [(1,), (2,)]
    assert rows("SELECT group_concat(DISTINCT s, '-' ORDER BY s DESC), count(DISTINCT k) FROM t") == [
        ("y-x", 3)
    ]


def test_null_sorts_first_as_in_doris(rows: Run) -> None:
    assert rows("SELECT k FROM u ORDER BY k") == [(None,), (1,), (3,)]
    assert rows("SELECT k FROM u ORDER BY k DESC") == [(3,), (1,), (None,)]


def test_largeint_is_exact_through_every_way(rows: Run) -> None:
    largest = Decimal(2**127 - 1)
    assert rows(f"SELECT n FROM u WHERE n = {largest}") == [(largest,)]
    assert rows("SELECT max(n), min(n) - 1, sum(n) FROM u") == [(largest, Decimal(-6), Decimal(2**127 - 6))]
    assert rows("SELECT cast(n AS STRING) FROM u WHERE k = 1") == [(str(largest),)]


def test_sums_of_integers_are_integers(session: Session) -> None:
    (result,) = session.execute("SELECT sum(a), sum(k) + 1 FROM t")
    assert result.rows is not None
    assert result.rows.schema.types == [pa.int64(), pa.int64()]


def test_hidden_columns_are_shown_on_request_or_by_name(session: Session, rows: Run) -> None:
    """T4, T7, T8."""
    list(
        session.execute(
            "INSERT INTO t (k, d, a, s, f, __DELETE_SIGN__) VALUES (1, '2024-01-01', 0, '', 0, 1)"
        )
    )
    named = rows("SELECT *, __doris_version_col__ FROM t WHERE k + 0 = 2")
    assert named == [(2, date(2024, 1, 2), None, "y", 1.5, 2)]
    (result,) = session.execute("SELECT __Delete_Sign__ FROM t LIMIT 1")
    assert result.columns == ["__Delete_Sign__"]
    for text in ("SELECT * FROM t", "SELECT * FROM t ORDER BY k"):
        (_, result) = session.execute(f"SET show_hidden_columns = true; {text}")
        assert result.columns == ["k", "d", "a", "s", "f", "__DORIS_DELETE_SIGN__", "__DORIS_VERSION_COL__"]
        assert result.rows is not None
        assert result.rows.num_rows == 4
    assert rows("SELECT count(*) FROM t WHERE k = 1 AND d = '2024-01-01'") == [(1,)]


def test_an_older_version_can_be_read(session: Session, rows: Run) -> None:
    list(session.execute("INSERT INTO u VALUES (1, 7)"))
    assert rows("SELECT n FROM u WHERE k = 1") == [(Decimal(7),)]
    assert rows("SELECT a.n - b.n FROM u FOR VERSION AS OF 2 a, u b WHERE a.k = 3 AND b.k = 3") == [
        (Decimal(0),)
    ]
    assert rows("SELECT count(*) FROM u FOR VERSION AS OF 1") == [(0,)]
    with pytest.raises(VersionExpiredError):
        rows("SELECT * FROM u FOR VERSION AS OF 99")
    with pytest.raises(InvalidInputError, match="expected FOR VERSION AS OF and a number"):
        rows(f"SELECT * FROM u FOR VERSION AS OF {'9' * 5000}")


def test_every_mention_of_a_table_in_a_statement_reads_the_same_version(
    session: Session, store: Store, rows: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_scan = MarkedScan.open

    def write_then_open(self: MarkedScan) -> Any:
        store.table("db.u").upsert(pa.table({"k": pa.array([store.table("db.u").version * 100], pa.int32())}))
        return open_scan(self)

    monkeypatch.setattr(MarkedScan, "open", write_then_open)
    assert rows(
        "SELECT (SELECT count(k) FROM u), (SELECT count(n) FROM u), count(*) FROM u WHERE k + 0 < 9999"
    )[0][:2] == (2, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT nope FROM t", "unknown column 'nope'"),
        ("SELECT x.k FROM t", "x"),
        ("SELECT nope(1)", "function 'nope' is not known"),
        ("SELECT unix_timestmp()", "did you mean 'unix_timestamp'?"),
        ("SELECT 1 FROM t FOR UPDATE", "rows are not locked"),
        ("SELECT * FROM t TABLESAMPLE (5)", "TABLESAMPLE behind table 't' is not supported"),
        ("SELECT ?", "may not hold PLACEHOLDER"),
        ("SELECT a, count(*) FROM t", "GROUP BY"),
        ("SELECT 9223372036854775807 + k FROM t", "BIGINT value is out of range"),
    ],
)
def test_what_cannot_be_answered_is_told_in_our_own_words(rows: Run, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        rows(text)
    assert message in str(caught.value)
    assert "__source_" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["SELECT * FROM t", "SELECT sum(a) FROM t", "INSERT INTO t SELECT * FROM t WHERE k + 0 = 1"]
)
def test_wrong_bytes_found_while_reading_are_told_as_such(
    session: Session, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, open_scan = Snapshot.scan, MarkedScan.open

    def broken(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            yield from reader
            raise CorruptionError("wrong bytes", path="x")

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    monkeypatch.setattr(Snapshot, "scan", lambda *given, **more: broken(scan(*given, **more)))
    monkeypatch.setattr(MarkedScan, "open", lambda given: broken(open_scan(given)))
    with pytest.raises(CorruptionError, match="wrong bytes"):
        list(session.execute(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT count(*), min(a), max(k) FROM t WHERE k >= 2", (3, 30, 3)),
        ("SELECT count(1) c, count(a), count(f) FROM t AS x WHERE x.k < 4", (4, 3, 3)),
        ("SELECT min(d), max(d), min(t.k) FROM t WHERE a IS NULL", (date(2024, 1, 2), date(2024, 1, 2), 2)),
        ("SELECT min(a), max(a), count(*) FROM t WHERE k > 7", (None, None, 0)),
        ("SELECT max(n), min(n) FROM u", (Decimal(2**127 - 1), Decimal(-5))),
        ("SELECT count(*) FROM t WHERE s IN ('x', 'z') AND k <> 1", (1,)),
    ],
)
def test_counts_and_extremes_are_answered_without_reading_rows(
    rows: Run, read: list[tuple[Any, ...]], text: str, expected: tuple[Any, ...]
) -> None:
    assert rows(text) == [expected]
    assert not [asked for asked in read if asked[0] in ("scan", "get")]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(DISTINCT k) FROM t",
        "SELECT max(f) FROM t",
        "SELECT count(*) + 1 FROM t",
        "SELECT k, count(*) FROM t GROUP BY k",
        "SELECT count(*) FROM t WHERE k + 1 = 2",
        "SELECT count(*) FROM t HAVING count(*) > 1",
        "SELECT count(*) FILTER (WHERE k > 1) FROM t",
    ],
)
def test_other_aggregates_are_evaluated(rows: Run, read: list[tuple[Any, ...]], text: str) -> None:
    assert rows(text)
    assert [asked for asked in read if asked[0] == "scan"]


def test_parts_of_a_where_that_the_scan_does_not_decide_stay(rows: Run) -> None:
    where = "k >= 1 AND (a + 0 > 10 OR f < 1) AND d < '2024-01-04' AND s IS NOT NULL"
    assert rows(f"SELECT k + 0 FROM t WHERE {where}") == [(1,)]
    assert rows("SELECT k + 0 FROM t WHERE k = 3 AND a IN (SELECT max(a) FROM t WHERE k < 9)") == [(3,)]
    assert rows("SELECT x.k, y.k FROM t x, t y WHERE x.k = 1 AND y.a > 30 AND x.s = y.s") == [(1, 3)]
    with_cte = "WITH c AS (SELECT k + 0 AS k, s FROM t WHERE a IS NULL) SELECT k, s FROM c WHERE k > 1"
    assert rows(with_cte) == [(2, "y")]


def test_few_rows_out_of_many_are_those_of_the_condition(store: Store, rows: Run) -> None:
    table = store.create_table("db.many", schema_of("k INT NOT NULL", "n INT", "s VARCHAR(20)"))
    keys = np.arange(5_000)
    numbers = pa.array([None if key % 11 == 0 else key % 100 for key in keys], pa.int32())
    table.upsert(pa.table({"k": keys, "n": numbers, "s": [f"s{key % 7}" for key in keys]}))
    table.delete({"k": list(range(0, 5_000, 3))})
    for high in (0, 5, 60, 99):
        expected: dict[str, int] = {}
        for key in keys.tolist():
            if key % 3 and key % 11 and key % 100 <= high:
                expected[f"s{key % 7}"] = expected.get(f"s{key % 7}", 0) + 1
        assert rows(f"SELECT s, count(*) FROM many WHERE n <= {high} GROUP BY s ORDER BY s") == sorted(
            expected.items()
        )


@pytest.mark.parametrize("word", ["DECIMAL", "DECIMALV3", "decimalv2", "NUMERIC"])
def test_a_decimal_without_digits_has_those_of_doris_everywhere(
    session: Session, rows: Run, word: str
) -> None:
    """CAST made it DECIMAL(18,3), the default of DuckDB."""
    run(session, f"CREATE TABLE numbers (k INT, n {word}, p {word}(5), v DECIMAL(9,2)) UNIQUE KEY(k)")
    run(session, f"ALTER TABLE numbers ADD COLUMN m {word} DEFAULT '0.000000001', MODIFY COLUMN p {word}(7)")
    run(
        session, f"CREATE TABLE casted AS SELECT CAST('1.2345678915' AS {word}) n, CAST('1.6' AS {word}(3)) p"
    )
    found = {name: kind for name, kind, *_ in [*rows("DESC numbers"), *rows("DESC casted")]}
    assert {name: found[name].lower() for name in "nmp"} == {
        "n": "decimal(38,9)", "m": "decimal(38,9)", "p": "decimal(3,0)"}  # fmt: skip
    assert rows("SELECT n, p FROM casted") == [(Decimal("1.234567892"), Decimal(2))]
    assert rows(f"SELECT CAST('[1.25]' AS ARRAY<{word}>)") == [([Decimal("1.250000000")],)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("(SELECT k FROM t ORDER BY k LIMIT 3) LIMIT 1", [(1,)]),
        ("(SELECT k AS x FROM t ORDER BY k LIMIT 3) ORDER BY x DESC LIMIT 1", [(3,)]),
        ("(SELECT k FROM t ORDER BY k LIMIT 3) ORDER BY k LIMIT 1 OFFSET 1", [(2,)]),
        ("((SELECT k FROM t ORDER BY k LIMIT 1 OFFSET 1)) LIMIT 5", [(2,)]),
        (
            "SELECT x.k + 0 FROM ((SELECT k FROM t ORDER BY k LIMIT 3) ORDER BY k DESC LIMIT 2) x ORDER BY 1",
            [(2,), (3,)],
        ),
        (
            "(SELECT k FROM t ORDER BY k LIMIT 2) UNION ALL (SELECT 7 LIMIT 1) ORDER BY k LIMIT 2",
            [(1,), (2,)],
        ),
    ],
)
def test_a_query_in_parentheses_has_a_limit_beside_its_own(
    rows: Run, query: str, expected: list[tuple[int, ...]]
) -> None:
    """DuckDB before 2 refuses the two together."""
    assert rows(query) == expected


@pytest.mark.parametrize("many", ["18446744073709551615", "9223372036854775808", "99999999999999999999"])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT k FROM t LIMIT {}", [(1,), (2,), (3,), (3,)]),
        ("SELECT k FROM t ORDER BY k, d LIMIT 1, {}", [(2,), (3,), (3,)]),
        ("SELECT k FROM t WHERE k = 3 AND d = '2024-01-03' LIMIT {}", [(3,)]),
        ("SELECT k FROM t ORDER BY s, k LIMIT {} OFFSET 3", [(2,)]),
        ("SELECT k, count(*) FROM t GROUP BY k LIMIT {}", [(1, 1), (2, 1), (3, 2)]),
        ("SELECT k FROM (SELECT k FROM u LIMIT {}) x WHERE k > 1", [(3,)]),
        ("SELECT k FROM t LIMIT {0}, {0}", []),
        ("SELECT k FROM t ORDER BY s LIMIT {0}, {0}", []),
    ],
)
def test_all_rows_are_a_limit_as_programs_of_mysql_write_it(
    rows: Run, query: str, expected: list[tuple[int, ...]], many: str
) -> None:
    """2^64 - 1 is the number that MySQL's manual names for an offset without a limit."""
    for _ in range(3):  # parsed, by its template, and by the plan that is kept
        found = rows(query.format(many))
        assert sorted(found) == expected
