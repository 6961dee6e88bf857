"""Macros with a body for each type, on aggregates and window functions, where DuckDB cannot choose a body.

The types of such arguments are not known when DuckDB chooses. The macro's form without bodies replaces it
(`d_ts` becomes `d_ts_of`) and converts by way of text: such values are few, one a group. Macros that only
align operands (sql.translate.implicit) are dropped, for sums and counts are wide already.
"""

from __future__ import annotations

from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.macros import growing_names

_BY_TEXT: Final = frozenset(["d_add_date", "d_date", "d_date_trunc", "d_int_div", "d_integer", "d_ts"])
# Name -> the argument that replaces the call.
_LEFT_OUT: Final = {"d_as_number": 0, "d_beside": 0, "d_branch": 0, "d_number": 0, "d_text_beside": 1,
                    "d_whole_beside": 1}  # fmt: skip
_DEPTH_MAX: Final = 8
# Aggregates that the tree knows by name only, as DuckDB calls them.
_AGGREGATES: Final = frozenset([
    "approx_count_distinct", "approx_quantile", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or",
    "d_collect_list", "d_collect_set", "kurtosis", "list", "quantile_cont", "regr_intercept", "regr_slope",
    "stddev_pop", "var_pop",
])  # fmt: skip


def settle(tree: exp.Expr, *, all_calls: bool = False) -> None:
    """Replaces the macro calls in a translated tree for which DuckDB can choose no body, or all of them."""
    unchosen = _calls_on_aggregates(tree)
    for node in reversed(list(tree.find_all(exp.Anonymous))):
        name = str(node.this)
        if (name not in _BY_TEXT and name not in _LEFT_OUT) or not (all_calls or id(node) in unchosen):
            continue
        if name in _BY_TEXT:
            node.set("this", f"{name}_of")
        else:
            node.replace(node.expressions[_LEFT_OUT[name]])


def check_depth(tree: exp.Expr) -> None:
    """Checks that calls are not nested so deeply that binding them would not end.

    Raises:
        InvalidInputError: more than `_DEPTH_MAX` of them.
    """
    growing = growing_names()
    depths: dict[int, int] = {}
    for node in tree.find_all(exp.Anonymous):  # from the root: outer calls first
        if str(node.this) not in growing:
            continue
        above = node.parent
        while above is not None and id(above) not in depths and above is not tree:
            above = above.parent
        depths[id(node)] = depth = depths.get(id(above), 0) + 1
        if depth > _DEPTH_MAX:
            raise InvalidInputError(
                f"more than {_DEPTH_MAX} functions or conditions are nested within each other; "
                "compute a part in a subquery or in another column",
                kind="not_supported",
            )


def _calls_on_aggregates(tree: exp.Expr) -> set[int]:
    """Returns the calls, by `id`, that have an aggregate or window function among their arguments.

    The function belongs to the same SELECT as the call.
    """
    found: set[int] = set()
    for node in tree.find_all(exp.AggFunc, exp.Window, exp.Anonymous):
        above = node.parent if _is_aggregate(node) else None
        while above is not None and not isinstance(above, exp.Select) and id(above) not in found:
            found.add(id(above))  # other nodes too: the walk from another aggregate ends at one
            above = above.parent
    return found


def _is_aggregate(node: exp.Expr) -> bool:
    return not isinstance(node, exp.Anonymous) or str(node.this) in _AGGREGATES
