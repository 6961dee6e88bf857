"""Macro calls for which DuckDB can choose no body.

The types of aggregates and window functions are not known when DuckDB chooses among the bodies of a macro.
There the macro's form without bodies replaces the call (`d_ts` becomes `d_ts_of`) and converts by way of
text: such values are few, one a group. Macros that only align operands (sql.translate.implicit) are dropped,
for sums and counts are wide already.
"""

from __future__ import annotations

from typing import Final

from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all

_BY_TEXT: Final = frozenset(["d_add_date", "d_date", "d_date_trunc", "d_int_div", "d_integer", "d_ts"])
# Name -> the argument that replaces the call.
_LEFT_OUT: Final = {"d_as_number": 0, "d_beside": 0, "d_branch": 0, "d_number": 0, "d_text_beside": 1,
                    "d_whole_beside": 1}  # fmt: skip
# Aggregates that the tree knows by name only, as DuckDB calls them.
_AGGREGATES: Final = frozenset([
    "approx_count_distinct", "approx_quantile", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or",
    "d_collect_list", "d_collect_set", "kurtosis_pop", "list", "quantile_cont", "regr_intercept",
    "regr_slope", "stddev_pop", "var_pop",
])  # fmt: skip
AGGREGATE_MACROS: Final = frozenset(
    ["d_collect_list", "d_collect_set", "d_map_agg", "d_percentile_approx", "d_sum0"]
)


def settle(tree: exp.Expr, *, all_calls: bool = False) -> None:
    """Replaces the macro calls in a translated tree for which DuckDB can choose no body, or all of them."""
    unchosen = _calls_on_aggregates(tree)
    for node in reversed(list(find_all(tree, exp.Anonymous))):
        name = str(node.this)
        if (name not in _BY_TEXT and name not in _LEFT_OUT) or not (all_calls or id(node) in unchosen):
            continue
        if name in _BY_TEXT:
            node.set("this", f"{name}_of")
        else:
            node.replace(node.expressions[_LEFT_OUT[name]])


def _calls_on_aggregates(tree: exp.Expr) -> set[int]:
    """Returns, by `id`, the calls on an aggregate or window function of the same SELECT."""
    found: set[int] = set()
    for node in find_all(tree, exp.AggFunc, exp.Window, exp.Anonymous):
        above = node.parent if is_aggregate(node) else None
        while above is not None and not isinstance(above, exp.Select) and id(above) not in found:
            found.add(id(above))  # other nodes too: the walk from another aggregate ends at one
            above = above.parent
    return found


def is_aggregate(node: exp.Expr) -> bool:
    """Returns whether a translated call, AggFunc or Window is an aggregate."""
    return not isinstance(node, exp.Anonymous) or str(node.this) in _AGGREGATES
