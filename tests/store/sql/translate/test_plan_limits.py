"""Subqueries, joins, CTEs and grouping sets: as many as DuckDB plans in seconds, whatever the statement."""

from __future__ import annotations

import pytest

from seqstore import InvalidInputError
from seqstore.store.sql import Session
from seqstore.store.sql.translate import plan_limits
from tests.support.statements import last_result, run

pytestmark = pytest.mark.sql(
    """
    CREATE TABLE t (k INT NOT NULL, a INT, l ARRAY<INT>) UNIQUE KEY(k);
    CREATE TABLE u (k INT NOT NULL, b INT) UNIQUE KEY(k);
    CREATE TABLE named (x0 INT NOT NULL, x1 INT, x2 INT, x3 INT, x4 INT, x5 INT, x6 INT, x7 INT, x8 INT)
        UNIQUE KEY(x0);
    INSERT INTO t VALUES (1, 10, [1, 2]), (2, 20, [3]);
    INSERT INTO u VALUES (1, 1), (2, 2), (3, 3);
    """
)
# Each with the number of a subquery; all read a column of the SELECT around them.
SUBQUERIES = {
    "scalar": "a > (SELECT max(u.b) FROM u WHERE u.k = t.k + {0})",
    "exists": "EXISTS (SELECT 1 FROM u WHERE u.k = t.k + {0})",
    "in": "a IN (SELECT u.b FROM u WHERE u.k = t.k + {0})",
    "no table": "a = (SELECT t.a + {0})",
    "by the name of the column alone": "a > (SELECT max(b) FROM u WHERE b > a + {0})",
    "within another": "a > (SELECT max(b) FROM u WHERE b > (SELECT t.a + {0}))",
    "in a union": "a IN (SELECT b FROM u WHERE b = {0} UNION SELECT u.b FROM u WHERE u.k = t.k + {0})",
}
STATEMENTS = (
    "SELECT k FROM t WHERE {0}",
    "SELECT {0} FROM t",
    "SELECT k FROM (SELECT * FROM t WHERE {0}) AS d",
    "WITH c AS (SELECT k FROM t WHERE {0}) SELECT * FROM c",
    "SELECT k FROM t UNION ALL SELECT k FROM t WHERE {0}",
    "SELECT count(*) FROM t GROUP BY {0}",
    "EXPLAIN SELECT k FROM t WHERE {0}",
    "INSERT INTO u SELECT k, a FROM t WHERE {0}",
    "CREATE TABLE w AS SELECT k FROM t WHERE {0}",
    "DELETE FROM t WHERE {0}",
    "UPDATE t SET a = 1 WHERE {0}",
    "SELECT * FROM u WHERE b IN (SELECT a FROM t WHERE {0})",
)
ELSEWHERE = "EXISTS (SELECT 1 FROM u WHERE u.k = {0})"


def conditions(subquery: str, count: int) -> str:
    return " OR ".join(subquery.format(number) for number in range(count))


@pytest.mark.parametrize("statement", STATEMENTS)
def test_too_many_of_them_are_refused_in_every_statement(session: Session, statement: str) -> None:
    """60 of them took twenty seconds that neither KILL nor a timeout could end; 100 took minutes."""
    before = run(session, "SELECT k, a FROM t")
    with pytest.raises(InvalidInputError, match="at most 40 correlated subqueries in one SELECT, found 41"):
        run(session, statement.format(conditions(SUBQUERIES["scalar"], 41)))
    assert run(session, "SELECT k, a FROM t") == before


@pytest.mark.parametrize("kind", SUBQUERIES)
def test_the_limit_is_the_number_of_those_that_are_correlated(
    session: Session, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_limits, "_CORRELATED_MAX", 6)
    allowed = f"{conditions(SUBQUERIES[kind], 3)} OR {conditions(ELSEWHERE, 20)}"
    run(session, f"SELECT k FROM t WHERE {allowed}")
    with pytest.raises(InvalidInputError, match="at most 6 correlated subqueries"):
        run(session, f"SELECT k FROM t WHERE {conditions(SUBQUERIES[kind], 7)}")


def test_many_subqueries_that_read_nothing_around_them_are_planned(session: Session) -> None:
    assert run(session, f"SELECT k FROM t WHERE {conditions(ELSEWHERE, 120)}") == [(1,), (2,)]


def test_many_selects_may_have_one_each(session: Session) -> None:
    [one] = [conditions(SUBQUERIES["scalar"], 1)]
    query = " UNION ALL ".join([f"SELECT k FROM t WHERE {one}"] * 60)
    assert len(run(session, query)) == 120


def test_selects_that_take_as_long_together_are_refused(session: Session) -> None:
    part = f"SELECT k FROM t WHERE {conditions(SUBQUERIES['exists'], 36)}"
    with pytest.raises(InvalidInputError, match="at most 40 correlated subqueries"):
        run(session, f"{part} UNION ALL {part}")


def test_lateral_views_count_as_well(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_limits, "_CORRELATED_MAX", 4)
    views = "".join(f" LATERAL VIEW explode(l) x{number} AS v{number}" for number in range(5))
    with pytest.raises(InvalidInputError, match="at most 4 correlated subqueries in one SELECT, found 5"):
        run(session, f"SELECT count(*) FROM t{views}")


@pytest.mark.parametrize(
    ("grouping", "sets"),
    [
        ("CUBE(k, a)", 4),
        ("ROLLUP(k, a)", 3),
        ("k, a WITH ROLLUP", 3),
        ("GROUPING SETS((k, a), (k), ())", 3),
        ("CUBE(k), ROLLUP(a)", 4),
    ],
)
def test_grouping_sets_are_counted(
    session: Session, grouping: str, sets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = f"SELECT k, a, count(*) FROM t GROUP BY {grouping}"
    monkeypatch.setattr(plan_limits, "_SETS_MAX", 2 * sets - 1)
    assert last_result(session, query).rows is not None
    with pytest.raises(InvalidInputError, match=f"grouping sets in a statement, found {2 * sets}: CUBE"):
        run(session, f"{query} UNION ALL {query}")


def test_a_cube_of_many_columns_is_refused(session: Session) -> None:
    """13 of them took 17 GB and half a minute that neither KILL nor a timeout could end."""
    cube = ", ".join(f"a + {number}" for number in range(11))
    with pytest.raises(InvalidInputError, match="at most 1,024 grouping sets in a statement, found 2,048"):
        run(session, f"SELECT count(*) FROM t GROUP BY CUBE({cube})")


DOUBLED = {
    "union": "SELECT k FROM {0} UNION ALL SELECT k FROM {0}",
    "join": "SELECT a.k FROM {0} a JOIN {0} b ON a.k = b.k",
    "subqueries": "SELECT (SELECT max(k) FROM {0}) + (SELECT min(k) FROM {0}) AS k",
    "a CTE of its own": "WITH d AS (SELECT k FROM {0}) SELECT k FROM d UNION ALL SELECT k FROM d",
}


def doubled(kind: str, count: int, first: str = "SELECT k FROM t") -> str:
    """A query whose CTEs name the one before twice each."""
    later = "".join(f", c{i} AS ({DOUBLED[kind].format(f'c{i - 1}')})" for i in range(1, count))
    return f"WITH c0 AS ({first}){later} SELECT count(*) FROM c{count - 1}"


@pytest.mark.family(1)
@pytest.mark.parametrize("kind", DOUBLED)
def test_ctes_that_double_are_refused(session: Session, kind: str) -> None:
    """25 of them, in a kilobyte of text, were planned for hours, in ever more memory."""
    for text in (doubled(kind, 25), f"INSERT INTO u {doubled(kind, 600)}"):
        with pytest.raises(InvalidInputError, match=r"reads at most 1,000 tables, found|less deeply nested"):
            run(session, text)
    assert run(session, doubled(kind, 4))


def test_a_cte_that_is_planned_often_counts_as_often(session: Session) -> None:
    subqueries = conditions(SUBQUERIES["exists"], 30)
    with pytest.raises(InvalidInputError, match="found 30 in one that is planned 8 times"):
        run(session, doubled("union", 4, f"SELECT k FROM t WHERE {subqueries}"))
    one = conditions(SUBQUERIES["no table"], 38)
    names = " UNION ALL ".join(["SELECT k FROM c"] * 15)
    with pytest.raises(InvalidInputError, match="found 38 in one that is planned 15 times"):
        run(session, f"WITH c AS (SELECT k FROM t WHERE {one}) {names}")
    cube = "SELECT k FROM t GROUP BY CUBE(k, a, k + 1, k + 2, k + 3)"
    with pytest.raises(InvalidInputError, match="grouping sets in a statement, found 2,048"):
        run(session, doubled("union", 7, cube))


def test_a_chain_and_a_recursion_of_ctes_read_little(session: Session) -> None:
    chain = "".join(f", c{i} AS (SELECT k FROM c{i - 1})" for i in range(1, 90))
    assert run(session, f"WITH c0 AS (SELECT k FROM t){chain} SELECT * FROM c89") == [(1,), (2,)]
    tree = "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < 9) SELECT max(n) FROM r"
    assert run(session, tree) == [(9,)]


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN", "CROSS JOIN", ","])
def test_too_many_joined_tables_are_refused(session: Session, join: str) -> None:
    """160 of them took seven seconds, and twice as many ten times as long."""
    on = "" if join in (",", "CROSS JOIN") else " ON u{0}.k = t.k"
    joins = "".join(f" {join} u AS u{{0}}{on}".format(number) for number in range(100))
    with pytest.raises(InvalidInputError, match="at most 100 joined tables in one SELECT, found 101"):
        run(session, f"SELECT count(*) FROM t{joins}")
    with pytest.raises(InvalidInputError, match="at most 100 joined tables in one SELECT, found 101"):
        run(session, f"SELECT count(*) FROM (t{joins})")


def doubled_aliases(count: int, first: str = "a % 2") -> str:
    """Items of a select list that each use the one before twice."""
    items = [f"{first} AS x0", *(f"(x{n - 1} + x{n - 1}) % 7 AS x{n}" for n in range(1, count))]
    return ", ".join(items)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT {0} FROM t",
        "SELECT {0} FROM t GROUP BY a HAVING x15 > 0",
        "SELECT k FROM t WHERE EXISTS (SELECT {0} FROM u WHERE u.k = t.k)",
        "WITH c AS (SELECT {0} FROM t) SELECT * FROM c",
        "SELECT 1 AS x15 UNION ALL SELECT y FROM (SELECT {0}, 1 AS y FROM t) d",
        "INSERT INTO u SELECT x1, x15 FROM (SELECT {0} FROM t) d",
        "SELECT {0} FROM t WHERE EXISTS (SELECT 1 FROM named)",  # its columns precede none here
    ],
)
def test_aliases_that_double_are_refused(session: Session, query: str) -> None:
    """Sixteen of them took half a minute and a gigabyte."""
    with pytest.raises(InvalidInputError, match="use of an alias counts"):
        run(session, query.format(doubled_aliases(16)))
    if "HAVING" in query:
        query = query.replace("x15", "x4")
    run(session, query.replace("x15", "x4").format(doubled_aliases(5)))


def test_aliases_in_conditions_count(session: Session) -> None:
    items = "a + " * 99 + "a AS x"
    with pytest.raises(InvalidInputError, match="use of an alias counts"):
        run(session, f"SELECT {items} FROM t ORDER BY {' + '.join(['x'] * 99)}")


def test_columns_precede_aliases_and_long_lists_stay_allowed(session: Session) -> None:
    run(session, "SELECT a + a AS a, a + a AS k, k + k AS a, a + k AS k, k + a AS a FROM t")
    names = "".join(f"{name} + {name} AS a, " for name in ["a", "k"] * 30)
    run(session, f"SELECT {names} 1 FROM t")
    run(session, "SELECT " + ", ".join(f"a + {n} AS y{n}" for n in range(1_000)) + " FROM t")
    run(session, "SELECT a + 1 AS y, " + ", ".join(f"y + {n} AS z{n}" for n in range(500)) + " FROM t")
