"""The refusal of statements that DuckDB would plan for minutes, which no interrupt ends.

- Correlated subqueries: DuckDB joins each to the tables around it. 40 in one SELECT took a second, 80 more
  than a minute: each doubling takes some twenty times as long at least. Those that read nothing of the SELECT
  around them are planned in no time.
- Grouping sets: DuckDB makes a hash table for each of them before it reads a row. The 4,096 sets of a CUBE of
  twelve columns took half a minute and 9 GB for a table of two rows.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime import cancellation
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.translate.scopes import Scopes

_CORRELATED_MAX: Final = 40
_GROWTH: Final = 4  # the power of their number by which planning takes longer
_SETS_MAX: Final = 1_024
_SETS: Final = (exp.Cube, exp.Rollup, exp.GroupingSets)


def refuse_long_plans(tree: exp.Query, scopes: Scopes) -> None:
    """Refuses what DuckDB would plan for minutes.

    Raises:
        InvalidInputError: more than 40 correlated subqueries in one SELECT, or several SELECTs that together
            take as long; or more than 1,024 grouping sets.
    """
    selects = list(find_all(tree, exp.Select))
    sets = sum(_grouping_sets(select) for select in selects)
    if sets > _SETS_MAX:
        raise InvalidInputError(
            f"expected at most {_SETS_MAX:,} grouping sets in a statement, found {sets:,}: CUBE of n columns "
            "makes 2 to the power of n; name those that are needed by GROUPING SETS, or split the statement",
            kind="query",
        )
    laterals = {id(select): len(select.args.get("laterals") or ()) for select in selects}
    if len(selects) + sum(laterals.values()) <= _CORRELATED_MAX:
        return
    counts = Counter(laterals)
    counts.update(id(scopes.around(select)) for select in _correlated(tree, scopes))
    if sum(count**_GROWTH for count in counts.values()) > _CORRELATED_MAX**_GROWTH:
        raise InvalidInputError(
            f"expected at most {_CORRELATED_MAX} correlated subqueries in one SELECT, found "
            f"{max(counts.values())}: planning them takes minutes; join the tables they read, or split the "
            "statement",
            kind="query",
        )


def _correlated(tree: exp.Query, scopes: Scopes) -> list[exp.Select]:
    """Returns the SELECTs that read a column of one around them."""
    found: dict[int, exp.Select] = {}
    for column in find_all(tree, exp.Column):
        cancellation.check()
        passed: list[exp.Select] = []
        select = scopes.around(column)
        while select is not None and not scopes.of(select).may_have(column):
            passed.append(select)
            select = scopes.around(select)
        if select is not None:
            found.update((id(each), each) for each in passed)
    return list(found.values())


def _grouping_sets(select: exp.Select) -> int:
    """Returns the number of sets of GROUPING SETS, CUBE and ROLLUP; 0 without them."""
    group = select.args.get("group")
    if group is None:
        return 0
    # Older sqlglot has each kind in an argument of its own.
    parts = [part for given in group.args.values() if isinstance(given, list) for part in given]
    parts = [part for part in parts if isinstance(part, _SETS)]
    return prod(_sets_of(part, group) for part in parts) if parts else 0


def _sets_of(part: exp.Expr, group: exp.Expr) -> int:
    names = part.expressions or group.expressions  # WITH ROLLUP is about all columns before it
    if isinstance(part, exp.Cube):
        return 1 << len(names)
    if isinstance(part, exp.Rollup):
        return len(names) + 1
    if isinstance(part, exp.GroupingSets):
        return sum(_sets_of(each, group) for each in part.expressions)
    return 1
