"""Nodes that have several places in a tree of a statement, which no translation should make."""

from __future__ import annotations

import random

import pytest

from seqstore.store.sql.parse.sqlglot_adapter import exp, separate_children, walk
from tests.seeds import new_seed

KINDS = ("call", "between", "case", "in", "list")


def made_of(kind: str, nodes: list[exp.Expr]) -> exp.Expr:
    """An expression of three nodes, as they are."""
    one, two, three = nodes
    if kind == "call":
        return exp.Anonymous(this="f", expressions=[one, two, three])
    if kind == "between":
        return exp.Between(this=one, low=two, high=three)
    if kind == "case":
        return exp.Case(this=one, ifs=[exp.If(this=two, true=three)], default=two)
    if kind == "in":
        return exp.In(this=one, expressions=[two, three, two])
    return exp.Tuple(expressions=[one, one, exp.Paren(this=two), three])


def separate(tree: exp.Expr) -> None:
    seen = {id(tree)}
    for node in walk(tree):
        separate_children(node, seen)


def assert_each_has_one_place(tree: exp.Expr) -> None:
    seen: set[int] = set()
    for node in walk(tree):
        assert id(node) not in seen
        seen.add(id(node))
        for name, value in node.args.items():
            for index, child in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(child, exp.Expr):
                    assert child.parent is node
                    assert child.arg_key == name
                    assert child.index == (index if isinstance(value, list) else None)


@pytest.mark.parametrize("kind", KINDS)
def test_one_node_in_all_places_becomes_several(kind: str) -> None:
    value = exp.column("a")
    tree = made_of(kind, [value, value, value])
    text = tree.sql()
    separate(tree)
    assert_each_has_one_place(tree)
    assert tree.sql() == text


def test_random_trees_with_shared_nodes_keep_their_text() -> None:
    for _ in range(200):
        seed = new_seed()
        chosen = random.Random(seed)
        nodes: list[exp.Expr] = [exp.column(name) for name in "abc"]
        for _ in range(chosen.randint(1, 6)):
            nodes.append(made_of(chosen.choice(KINDS), chosen.choices(nodes[-6:], k=3)))
        tree = nodes[-1]
        text = tree.sql()
        separate(tree)
        assert_each_has_one_place(tree)
        assert tree.sql() == text, f"seed {seed}"


def test_a_tree_stays_as_it_is() -> None:
    tree = made_of("case", [exp.column("a"), exp.column("b"), exp.column("c")]).copy()
    nodes = [id(node) for node in walk(tree)]
    separate(tree)
    assert [id(node) for node in walk(tree)] == nodes
