"""Calls and conditions nested within each other: bound as often as they are written, with the same values."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from seqstore import InvalidInputError, Store, StoreError
from seqstore.store.sql import Session
from seqstore.store.sql.evaluate import connections
from seqstore.store.sql.parse.sqlglot_adapter import exp, walk
from seqstore.store.sql.translate import computed_once, translate
from seqstore.store.sql.translate.argument_copies import argument_copies
from seqstore.store.sql.translate.date_functions import CONSTANT_TIMES
from seqstore.store.sql.translate.functions import function_names
from seqstore.store.sql.translate.implicit import PARAMETERS
from seqstore.store.sql.translate.macros.catalog import bodies
from seqstore.store.sql.translate.macros.unchosen import AGGREGATE_MACROS
from tests.seeds import new_seed
from tests.store.sql.translate.test_subquery_arguments import OTHERS
from tests.weight import ALL, by_form, form

COLUMNS = ("num", "txt", "moment", "doc")
FORMS = (
    "{f}({x})", "{f}({x}, {x0})", "{f}({x}, 1)", "{f}({x}, 'a')", "{f}({x}, 1, 2)", "{f}({x}, 'a', 'b')",
    "{f}(1, {x})", "{f}('a', {x})", "{f}(1, {x}, 2)", "{f}('%Y', {x}, {x0})", "{f}(day, 1, {x})",
    "{f}({x}, '%D %X')", "{f}({x}, '$.a', '$.b')", "{f}({x}, '%X%V %W')",
    "{f}(v -> v > 1, [{x}, 2])", "array_size({f}(v -> v > 1, [{x}, 2]))", "{f}(v -> v = {x0}, [{x}])",
)  # fmt: skip
OPERATORS = (
    "{x} + 1", "1 - {x}", "{x} / 2", "{x} DIV 2", "{x} % 2", "-{x}", "NOT {x}", "{x} = '5'", "'5' <=> {x}",
    "{x} = {x0}", "{x} LIKE '%1%'", "{x} REGEXP '1'", "{x} IN (1, '5')", "{x} NOT IN (1, NULL)",
    "{x} IN (1, 2, 3, 4, 5, 6)", "{x} BETWEEN 1 AND '9'", "5 NOT BETWEEN {x} AND '9'", "{x} IS TRUE",
    "CASE {x} WHEN 5 THEN 1 END", "CASE {x} WHEN 1 THEN 2 WHEN 3 THEN 4 ELSE 5 END",
    "CASE WHEN {x} THEN {x0} ELSE 1 END", "CAST({x} AS DATETIME)", "CAST({x} AS CHAR)",
    "EXTRACT(DAY FROM {x})", "{x} -> '$.a'", "{x} + INTERVAL 1 DAY", "date_sub({x}, INTERVAL 3 HOUR)",
    "if({x}, {x0}, 1)", "{x} XOR 1",
    "(1, {x}) = ('1', 5)", "{x} || 'a'", "nullif({x}, 'a')", "nullif({x}, 1)", "{x} BETWEEN {x0} AND 9",
)  # fmt: skip
NAMES = sorted({*function_names(), *PARAMETERS, *OTHERS, "nullif", "substr", "mid", "lpad", "rpad"})
# They have other values with each call, or take their time.
LEFT_OUT = {*CONSTANT_TIMES, "sleep", "uuid", "rand", "random", "uuid_numeric", "random_bytes"}


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    with Session(store, "db") as opened:
        for text in (
            "CREATE TABLE t (k INT, num INT, txt VARCHAR(90), moment DATETIME, doc STRING) UNIQUE KEY(k)",
            """INSERT INTO t VALUES (1, 5, '12', '2024-05-01 10:20:30', '{"a": {"a": 1}, "b": [1]}'),
            (2, 0, '2024-01-31', '1999-12-31', '[1, 2]'), (3, -7, 'a,b', '2024-02-29 01:02:03', 'x'),
            (4, NULL, NULL, NULL, NULL)""",
        ):
            list(opened.execute(text))
        yield opened


def nested(form: str, column: str, depth: int, name: str = "") -> str:
    text = column
    for _ in range(depth):
        text = f"({form.format(f=name, x=text, x0=column)})"
    return text


def level_by_level(form: str, column: str, depth: int, name: str = "") -> str:
    """A query with a derived table for each level."""
    source = f"(SELECT k, {column} AS y, {column} FROM t) l0"
    for number in range(1, depth + 1):
        item = f"({form.format(f=name, x='y', x0=column)})"
        source = f"(SELECT k, {item} AS y, {column} FROM {source}) l{number}"
    return f"SELECT y FROM {source} ORDER BY k"


def answer(session: Session, text: str) -> list[Any] | str:
    try:
        *_, result = session.execute(text)
    except StoreError as error:
        return type(error).__name__
    assert result.rows is not None
    column = result.rows.column(0)
    if pa.types.is_date(column.type):  # of the year 0, too
        column = column.cast(pa.int32())
    return [str(value) for value in column.to_pylist()]


def valid_forms(session: Session, name: str, forms: Sequence[str] = FORMS) -> Iterator[tuple[str, str]]:
    """The forms of a function that have values when nested twice, each with a column for which they do."""
    for each in forms:
        for column in COLUMNS:
            found = answer(session, f"SELECT {nested(each, column, 2, name)} FROM t ORDER BY k")
            if not isinstance(found, str):
                yield each, column
                break


def compare(session: Session, each: str, column: str, name: str = "") -> None:
    """Compares values of a form nested five times with those of five derived tables."""
    text = nested(each, column, 5, name)
    on_aggregates = re.sub(rf"\b{column}\b", f"max({column})", text)
    expected = answer(session, level_by_level(each, column, 5, name))
    assert answer(session, f"SELECT {text} FROM t ORDER BY k") == expected, text
    assert answer(session, f"SELECT {on_aggregates} FROM t GROUP BY k ORDER BY k") == expected, on_aggregates


@pytest.mark.parametrize("part", range(by_form(1, 12)))
def test_functions_nested_have_the_values_of_each_level(session: Session, part: int) -> None:
    """The short form draws functions; the long one has all of them."""
    seed = new_seed()
    print(f"seed {seed}")
    names = [name for name in NAMES if name not in LEFT_OUT]
    drawn = random.Random(seed).sample(names, 4)
    for name in names[part::12] if form() == ALL else drawn:
        found = list(valid_forms(session, name))
        for each, column in found:
            compare(session, each, column, name)


@pytest.mark.family(10)
@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_nested_have_the_values_of_each_level(session: Session, operator: str) -> None:
    [(each, column)] = valid_forms(session, "", [operator])
    compare(session, each, column)


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> list[exp.Expr]:
    """The trees of statements, which do not run."""
    found: list[exp.Expr] = []

    def noted(tree: exp.Expr) -> None:
        assert_is_tree(tree)
        computed_once.compute_once(tree)
        assert_is_tree(tree)
        found.append(tree)
        raise InvalidInputError("translated")

    monkeypatch.setattr(translate, "compute_once", noted)
    return found


def assert_is_tree(tree: exp.Expr) -> None:
    """No node has two places: a change of one would be a change of the other, or of none."""
    for node in walk(tree):
        for child in node.iter_expressions():
            assert child.parent is node, (child.sql(), node.sql())


def bound_most(tree: exp.Expr) -> int:
    """How often DuckDB binds the part of a tree that it binds most often."""
    most = 0
    copies = {id(tree): 1}
    for node in walk(tree):
        if node is not tree and node.parent is not None:
            copies[id(node)] = copies[id(node.parent)] * bindings(node.parent, node)
            most = max(most, copies[id(node)])
    return most


def bindings(above: exp.Expr, node: exp.Expr) -> int:
    if isinstance(above, exp.Anonymous):
        counts = argument_copies().get(str(above.this), ())
        return counts[node.index] if node.index is not None and node.index < len(counts) else 1
    if node.arg_key != "this" or not isinstance(above, (exp.Between, exp.In, exp.Nullif, exp.Case)):
        return 1
    return len(above.args["ifs"]) if isinstance(above, exp.Case) else max(len(above.expressions), 2)


def test_every_function_and_operator_nests_without_growing(
    session: Session, translated: list[exp.Expr]
) -> None:
    """Four levels of months_between took 18 s to bind, and eight of from_unixtime 11 s."""
    grown = {}
    named = [*((name, FORMS) for name in NAMES), *(("", [one]) for one in OPERATORS)]
    seed = new_seed()
    print(f"seed {seed}")
    for name, forms in random.Random(seed).sample(named, by_form(len(named) // 2, len(named))):
        taken = 0
        for each in forms if f"d_{name}" not in AGGREGATE_MACROS else ():
            sizes: list[int] = []
            for depth in (3, 6, 9):
                translated.clear()
                answer(session, f"SELECT {nested(each, 'num', depth, name)} FROM t")
                if not translated:  # the function takes no such arguments
                    break
                sizes.append(sum(1 for _ in walk(translated[0])))
            taken += len(sizes) == 3
            has_grown = len(sizes) == 3 and sizes[2] - sizes[1] > 1.2 * (sizes[1] - sizes[0]) + 60
            most = bound_most(translated[0]) if translated else 0
            if has_grown or most > 40:  # as often as CONV an argument
                grown[each.format(f=name, x="x", x0="y")] = [*sizes, most]
            if taken == by_form(1, len(FORMS)):
                break
    assert grown == {}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT (SELECT max({parse_url(x, t.txt)|u.txt|2}) FROM t u) FROM t",  # four levels of copies: 14 s
        "SELECT k, (SELECT count(*) FROM t u WHERE {locate(t.txt, x, t.num)|u.txt} > 0) FROM t ORDER BY k",
        "SELECT t.k, u.k FROM t JOIN t u ON {locate(t.txt, x, t.num)|u.txt} = 0 ORDER BY 1, 2",
        "SELECT (SELECT max({(CASE x WHEN t.num THEN 1 WHEN u.num THEN 2 END)|u.num}) FROM t u) FROM t",
        "SELECT (SELECT max({(x BETWEEN t.num AND 9)|u.num}) FROM t u) FROM t",
        "SELECT k, {(x BETWEEN 0 AND (SELECT max(u.num) FROM t u))|num} FROM t ORDER BY k",
        "SELECT k, {(x IN (1, 2, (SELECT max(u.num) FROM t u WHERE u.k = t.k)))|num} FROM t ORDER BY k",
        "SELECT k, {(CASE x WHEN max(num) THEN 5 ELSE sum(num) OVER () END)|k} FROM t GROUP BY k, num "
        "ORDER BY k",
        "SELECT {substring(x, 1)|txt} y, count(*) FROM t GROUP BY {substring(x, 1)|txt} "
        "HAVING {substring(x, 1)|max(txt)} > '' ORDER BY {substring(x, 1)|txt}",
        "SELECT k, rank() OVER (ORDER BY {substring(x, 2)|txt}) FROM t ORDER BY k",
        "SELECT k, array_map(v -> {substring(x, v)|txt}, [1, 2]) FROM t ORDER BY k",
        "SELECT array_map(v -> {(x BETWEEN v AND 2)|v}, [1, 2]) FROM t",
        "SELECT array_map(v -> {from_unixtime(x)|v}, [5]) FROM t",
        "SELECT k FROM t WHERE {substring(x, 1)|txt} IN (SELECT {substring(x, 1)|txt} FROM t) ORDER BY k",
        "SELECT group_concat(DISTINCT {substring(x, 1)|txt} ORDER BY {substring(x, 1)|txt}) FROM t",
        "SELECT k, greatest({substring(x, 1)|txt}, (SELECT max(txt) FROM t)) FROM t ORDER BY k",
    ],
)
def test_nested_calls_anywhere_in_a_query(
    session: Session, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values are those of arguments that are copied."""

    def deep(part: re.Match[str]) -> str:
        each, value, *depth = part[1].split("|")
        for _ in range(int(*depth) or 4):
            value = re.sub(r"\bx\b", lambda _, inner=value: inner, each)
        return value

    query = re.sub(r"\{([^}]*)\}", deep, text)
    found = rows_of(session, query)
    monkeypatch.setattr(translate, "compute_once", lambda _: None)
    monkeypatch.setattr(computed_once, "_NODES_MAX", 10_000)
    assert rows_of(session, query + " ") == found


def test_a_condition_is_computed_once_by_one_lambda(session: Session, translated: list[exp.Expr]) -> None:
    """Further calls beside its operand do not have it computed again."""
    text = nested("({x} IN (1, 2, 3, 4, 5))", "num", 3)
    others = ", ".join(f"substr(concat(substr(txt, {n}), 1), 1)" for n in range(9))
    answer(session, f"SELECT ({text} IN ({others})) FROM t")
    [tree] = translated
    assert str(tree).upper().count("LIST_TRANSFORM") < 25


def rows_of(session: Session, text: str) -> list[Any]:
    *_, result = session.execute(text)
    assert result.rows is not None
    return [tuple(row.values()) for row in result.rows.to_pylist()]


def test_calls_that_cannot_be_computed_once_are_refused(session: Session) -> None:
    with pytest.raises(InvalidInputError, match="nested so deeply"):
        list(session.execute(f"SELECT {nested('collect_list({x})', 'num', 14)} FROM t"))


def test_macros_of_duckdb_that_use_an_argument_twice_are_known() -> None:
    """Those that the translation of a function calls."""
    with connections.connect().cursor() as cursor:
        found = cursor.execute(
            "SELECT function_name, parameters, macro_definition FROM duckdb_functions() "
            "WHERE function_type = 'macro' AND internal"
        ).fetchall()
    called = set(re.findall(r"\w+", " ".join(bodies()))) | {name.lower() for name in function_names()}
    for name, parameters, definition in found:
        uses = [len(re.findall(rf'\b"?{each}"?\b', definition)) for each in parameters]
        if max(uses, default=0) > 1 and name in called:
            known = argument_copies()[name]
            assert all(one <= other for one, other in zip(uses, known, strict=False)), (name, uses)


@pytest.mark.parametrize(
    ("macro", "copies"),
    [
        ("d_json_keys", [4, 3]),  # three uses or two, and one more for its two bodies
        ("d_parse_url", [18, 18]),  # nine in a CASE, twice by NULLIF
        ("d_since_1970", [2, 1, 1]),  # BETWEEN
        ("d_conv", [1, 11, 40]),  # an element of a list
        ("d_months_between", None),
    ],
)
def test_copies_of_arguments(macro: str, copies: list[int] | None) -> None:
    found = argument_copies().get(macro)
    assert (None if found is None else list(found)) == copies
