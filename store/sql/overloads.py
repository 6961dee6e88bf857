"""Macros with a body for each type, where DuckDB cannot choose one: on aggregates and window functions.

The type of such an argument is not known when the body is chosen. There the macro's form without bodies
stands in (`d_ts` becomes `d_ts_of`), which goes by way of text: such values are few, one a group. What only
brings operands together (store.sql.implicit) is left out, for sums and counts are wide already.
"""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

_BY_TEXT: Final = frozenset(["d_add_date", "d_date", "d_date_trunc", "d_int_div", "d_integer", "d_ts"])
# Name -> which argument is left in its place.
_LEFT_OUT: Final = {
    "d_as_number": 0,
    "d_beside": 0,
    "d_branch": 0,
    "d_number": 0,
    "d_text_beside": 1,
    "d_whole_beside": 1,
}
# Aggregates that the tree knows by name only, as DuckDB calls them.
_AGGREGATES: Final = frozenset(
    re.findall(
        r"\w+",
        """
        approx_count_distinct approx_quantile bit_and bit_or bit_xor bool_and bool_or d_collect_list
        d_collect_set list quantile_cont stddev_pop var_pop
        """,
    )
)


def settle(tree: exp.Expr, *, all_calls: bool = False) -> None:
    """Replaces the calls in a translated tree of which DuckDB could not choose the body, or all of them."""
    for node in reversed(list(tree.find_all(exp.Anonymous))):
        name = str(node.this)
        if (name not in _BY_TEXT and name not in _LEFT_OUT) or not (all_calls or _is_open(node)):
            continue
        if name in _BY_TEXT:
            node.set("this", f"{name}_of")
        else:
            node.replace(node.expressions[_LEFT_OUT[name]])


def _is_open(node: exp.Anonymous) -> bool:
    """Whether an aggregate or window function of the same SELECT is among the arguments."""
    scope = node.find_ancestor(exp.Select)
    return any(
        found is not node and found.find_ancestor(exp.Select) is scope and _is_aggregate(found)
        for found in node.find_all(exp.AggFunc, exp.Window, exp.Anonymous)
    )


def _is_aggregate(node: exp.Expr) -> bool:
    return not isinstance(node, exp.Anonymous) or str(node.this) in _AGGREGATES
