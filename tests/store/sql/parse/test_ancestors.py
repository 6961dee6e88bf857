"""The nearest SELECT or lambda above each node of a tree."""

from __future__ import annotations

from typing import Any

import pytest

from seqstore.store.sql.parse.sqlglot_adapter import Ancestors, exp, walk
from seqstore.store.sql.parse.tokens import parse_tree

QUERIES = (
    "SELECT a FROM t WHERE a = 1 OR b = 2",
    "SELECT (SELECT max(u.a) FROM u WHERE u.k = t.k) FROM t GROUP BY a HAVING sum(a) > (SELECT 1)",
    "WITH c AS (SELECT a FROM t UNION ALL SELECT b FROM u) SELECT a FROM c JOIN (SELECT k FROM t) d ON a = k",
    "SELECT array_map(x -> x + (SELECT max(a) FROM t WHERE array_count(y -> y > a, v) > 1), v) FROM u",
    "SELECT CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.a = t.a) THEN 1 ELSE t.b END FROM t ORDER BY 1",
)


class _Place:
    """A node that counts how often the node above it is asked for."""

    asked = 0

    def __init__(self, above: _Place | None) -> None:
        self.above = above

    @property
    def parent(self) -> _Place | None:
        _Place.asked += 1
        return self.above


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("kinds", [(exp.Select,), (exp.Lambda, exp.Select)])
def test_the_nearest_node_is_that_of_a_climb(query: str, kinds: tuple[type[exp.Expr], ...]) -> None:
    tree, ancestors = parse_tree(query, 0, len(query)), Ancestors(*kinds)
    for node in walk(tree):
        assert ancestors.above(node) is node.find_ancestor(*kinds)


def test_a_chain_is_climbed_once_for_all_of_its_nodes() -> None:
    chain: list[Any] = [None]
    for _ in range(1_000):
        chain.append(_Place(chain[-1]))
    ancestors, _Place.asked = Ancestors(exp.Select), 0
    assert {ancestors.above(place) for place in reversed(chain[1:])} == {None}
    assert _Place.asked <= 3 * len(chain)
