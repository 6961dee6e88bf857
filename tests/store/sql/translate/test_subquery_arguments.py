"""Scalar subqueries as arguments: a translation may repeat an argument, and each copy reads its table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

import pytest

from seqstore import InvalidInputError, Store
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.sql import Session
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.tokens import parse_tree
from seqstore.store.sql.translate.calls import EvaluationContext, Moment
from seqstore.store.sql.translate.functions import function_names
from seqstore.store.sql.translate.implicit import PARAMETERS
from seqstore.store.sql.translate.relations import find_relations, nodes_by_relation
from seqstore.store.sql.translate.source_table import SourceTable, place_source, source_name
from seqstore.store.sql.translate.translate import translate
from tests.store.sql.conftest import NOON, Run

pytestmark = pytest.mark.sql(
    "CREATE TABLE t (id INT, v INT, s VARCHAR(20)) UNIQUE KEY(id); INSERT INTO t VALUES (1, 5, '2024-05-01')"
)
V, S = "(SELECT max(v) FROM t)", "(SELECT max(s) FROM t)"
OPERATORS = (
    "{v} + 1", "1 - {v}", "{v} / 2", "{v} DIV 2", "{v} % 2", "{v} << 1", "-{v}", "NOT {v}", "{v} = '5'",
    "'5' <=> {v}", "{s} = {v}", "{s} LIKE {s}", "{s} REGEXP {s}", "{v} IN (1, '5')", "1 IN ({v}, '5')",
    "{v} BETWEEN 1 AND '9'", "5 BETWEEN {v} AND '9'", "{v} IS TRUE", "CASE {v} WHEN 5 THEN 1 END",
    "CASE 5 WHEN {v} THEN 1 ELSE 'x' END", "CASE WHEN {v} THEN {s} ELSE {v} END", "CAST({s} AS DATETIME)",
    "{s} COLLATE utf8mb4_general_ci", "EXTRACT(DAY FROM {s})", "{s} -> '$.a'", "{s} + INTERVAL {v} DAY",
    "date_sub({s}, INTERVAL {v} HOUR)", "(1, {v}) = ('1', 5)", "(1, {v}) IN ((1, '5'))", "time({s})",
    "if({v}, {s}, 1)", "{v} XOR {v}", "{s} || {v}",
)  # fmt: skip
OTHERS = ("abs", "atan2", "ceil", "char", "coalesce", "floor", "greatest", "ifnull", "least", "nullif",
          "nvl", "power", "round", "sign", "sum", "avg", "timestampdiff")  # fmt: skip


@pytest.fixture
def snapshot(store: Store) -> Iterator[Snapshot]:
    with store.snapshot("db.t") as opened:
        yield opened


def tables_left(text: str, snapshot: Snapshot) -> list[str]:
    """The tables without a source that a translated query reads; none for a refused query."""
    try:
        tree = parse_tree(text, 0, len(text))
        assert isinstance(tree, exp.Query)
        relations = find_relations(tree, lambda *_: snapshot, lambda _: snapshot)
        translate(tree, EvaluationContext(Moment.at(NOON, "UTC")), lambda *_: None, relations)
    except InvalidInputError:
        return []
    nodes = nodes_by_relation(tree, len(relations))
    for number, relation in enumerate(relations):
        place_source(
            relation,
            nodes[number],
            SourceTable(source_name(number), ["v", "s"], frozenset(), is_marked=True),
        )
    return [table.name for table in tree.find_all(exp.Table) if table.catalog != "temp"]


@pytest.mark.family(1)
@pytest.mark.parametrize("others", [V, "'%D %H'", "'%X%V %W'"])
def test_every_function_takes_a_subquery_as_each_argument(snapshot: Snapshot, others: str) -> None:
    """The copies that LIKE, CASE, GREATEST, FIELD, DATE_FORMAT and others make of an argument were taken for
    tables that do not exist."""
    left = {}
    for name in sorted({*function_names(), *PARAMETERS, *OTHERS}):
        for count in (1, 2, 3):
            call = f"{name}({', '.join([V, *[others] * (count - 1)])})"
            left[call] = tables_left(f"SELECT {call}", snapshot)
    assert {call: tables for call, tables in left.items() if tables} == {}


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_takes_subqueries(rows: Run, operator: str) -> None:
    """A subquery has the value of a column with the same value."""
    expected = rows(f"SELECT {operator.format(v='v', s='s')} FROM t WHERE id = 1")
    assert rows(f"SELECT {operator.format(v=V, s=S)}") == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"GREATEST({V}, 4)", 5),
        (f"LEAST(7, {V}, {V})", 5),
        (f"FIELD({V}, 1, 5)", 2),
        (f"ELT({V} - 4, {S})", "2024-05-01"),
        (f"FROM_UNIXTIME({V})", "1970-01-01 00:00:05"),
        (f"DATE_FORMAT({S}, '%D')", "1st"),
        (f"TIME_FORMAT(concat('10:00:0', {V}), '%k')", "10"),
        (f"STR_TO_DATE(concat('20240', {V}, ' Monday'), '%X%V %W')", date(2024, 2, 5)),
        (f"JSON_EXTRACT(concat('{{\"a\": ', {V}, '}}'), '$.a', '$.b')", "[5]"),
        (f"FROM_SECOND({V})", datetime(1970, 1, 1, 0, 0, 5)),
        (f"CONV({V}, 10, 2)", "101"),
        (f"CHAR({V} + 60)", "A"),
        (f"UNHEX(concat(4, {V} - 4))", "A"),
        (f"FROM_BASE64(concat('Q', {V} + 60, 'B='))", None),
    ],
)
def test_arguments_that_are_used_twice(value: Run, expression: str, expected: Any) -> None:
    assert value(expression) == expected


def test_update_takes_a_subquery_on_its_own_table(session: Session, rows: Run) -> None:
    list(session.execute("UPDATE t SET v = LEAST(v, (SELECT min(u.v) - 1 FROM t u))"))
    assert rows("SELECT v FROM t") == [(4,)]


def test_a_correlated_subquery_is_an_argument(rows: Run) -> None:
    text = (
        "SELECT GREATEST((SELECT max(u.v) FROM t u WHERE u.id = t.id), 1) FROM t WHERE s LIKE concat(s, '%')"
    )
    assert rows(text) == [(5,)]
