"""Macros with a body for each type, where DuckDB cannot choose one: on aggregates and window functions.

The type of such an argument is not known when the body is chosen. There the macro's form without bodies
stands in (`d_ts` becomes `d_ts_of`), which goes by way of text: such values are few, one a group. What only
brings operands together (sql.translate.implicit) is left out, for sums and counts are wide already.
"""

from __future__ import annotations

import re
from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.macros import growing_names

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
_DEPTH_MAX: Final = 8
# Aggregates that the tree knows by name only, as DuckDB calls them.
_AGGREGATES: Final = frozenset(
    re.findall(
        r"\w+",
        """
        approx_count_distinct approx_quantile bit_and bit_or bit_xor bool_and bool_or d_collect_list
        d_collect_set kurtosis list quantile_cont regr_intercept regr_slope stddev_pop var_pop
        """,
    )
)


def settle(tree: exp.Expr, *, all_calls: bool = False) -> None:
    """Replaces the calls in a translated tree of which DuckDB could not choose the body, or all of them."""
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
    """Refuses calls so deep within each other that binding them would take for ever.

    Raises:
        InvalidInputError: more than `_DEPTH_MAX` of them.
    """
    growing = growing_names()
    depths: dict[int, int] = {}
    for node in tree.find_all(exp.Anonymous):  # from the root: a call comes behind what it stands in
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
    """The calls, by `id`, with an aggregate or window function of the same SELECT among their arguments."""
    found: set[int] = set()
    for node in tree.find_all(exp.AggFunc, exp.Window, exp.Anonymous):
        above = node.parent if _is_aggregate(node) else None
        while above is not None and not isinstance(above, exp.Select) and id(above) not in found:
            found.add(id(above))  # other nodes than calls too: whoever meets one goes no higher
            above = above.parent
    return found


def _is_aggregate(node: exp.Expr) -> bool:
    return not isinstance(node, exp.Anonymous) or str(node.this) in _AGGREGATES
