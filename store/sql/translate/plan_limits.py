"""The refusal of statements that DuckDB would plan for minutes, which no interrupt ends.

- CTEs: DuckDB plans one anew for each time it is named. Each of 19 CTEs that named the one before twice made
  half a million plans of the first, in twelve seconds; one more takes twice as long and twice the memory.
- Joins: 60 tables in one SELECT took a third of a second, 120 six seconds.
- Correlated subqueries: DuckDB joins each to the tables around it. 40 in one SELECT took a second, 80 more
  than a minute. Those that read nothing of the SELECT around them are planned in no time.
- Grouping sets: DuckDB makes a hash table for each of them before it reads a row. The 4,096 sets of a CUBE of
  twelve columns took half a minute and 9 GB for a table of two rows.
- Aliases that items of a select list use: DuckDB writes each out. 16 items that each used the one before
  twice took half a minute and a gigabyte.

What a CTE has counts as often as the CTE is planned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime import cancellation
from seqstore.store.sql.parse.sqlglot_adapter import Ancestors, exp, find_all, walk
from seqstore.store.sql.translate.relations import Relation, cte_of
from seqstore.store.sql.translate.scopes import Scopes

_READS_MAX: Final = 1_000
_JOINED_MAX: Final = 100
_CORRELATED_MAX: Final = 40
_GROWTH: Final = 4  # the power of their number by which planning takes longer, at least
_SETS_MAX: Final = 1_024
_ALIASED_MAX: Final = 10_000  # nodes of a SELECT; each takes 0.05 to 0.5 ms
_WITH_ALIASES: Final = ("where", "group", "having", "qualify", "order")
_SETS: Final = (exp.Cube, exp.Rollup, exp.GroupingSets)


def refuse_long_plans(tree: exp.Query, scopes: Scopes) -> None:
    """Refuses what DuckDB would plan for minutes.

    Raises:
        InvalidInputError: more than 1,000 reads of tables, 100 joined tables in one SELECT, 40 correlated
            subqueries in one, or 1,024 grouping sets; or several SELECTs that together take as long.
    """
    nodes = list(walk(tree))
    selects = [node for node in nodes if isinstance(node, exp.Select)]
    tables = [node for node in nodes if isinstance(node, exp.Table)]
    plans = _Plans([node for node in nodes if isinstance(node, exp.CTE)], tables)
    reads = sum(plans.of(table) for table in tables)
    if reads > _READS_MAX:
        raise InvalidInputError(
            f"expected a query that reads at most {_READS_MAX:,} tables, found {reads:,}: each name of a CTE "
            "counts with all that the CTE reads; keep its rows in a table",
            kind="query",
        )
    sets = sum(_grouping_sets(select) * plans.of(select) for select in selects)
    if sets > _SETS_MAX:
        raise InvalidInputError(
            f"expected at most {_SETS_MAX:,} grouping sets in a statement, found {sets:,}: CUBE of n columns "
            "makes 2 to the power of n; name those that are needed by GROUPING SETS, or split the statement",
            kind="query",
        )
    joins = Counter(id(scopes.around(node)) for node in nodes if isinstance(node, exp.Join))
    joined = [_Load(joins[id(select)] + 1, plans.of(select)) for select in selects]
    _refuse_costly(joined, _JOINED_MAX, "joined tables", "keep the rows of some joins in a table")
    laterals = {id(select): len(select.args.get("laterals") or ()) for select in selects}
    if sum((1 + laterals[id(select)]) * plans.of(select) for select in selects) > _CORRELATED_MAX:
        counts = Counter(laterals)
        counts.update(id(scopes.around(select)) for select in _correlated(tree, scopes))
        loads = [_Load(counts[id(select)], plans.of(select)) for select in selects]
        remedy = "join the tables they read, or split the statement"
        _refuse_costly(loads, _CORRELATED_MAX, "correlated subqueries", remedy)


def refuse_grown_aliases(tree: exp.Query, relations: Sequence[Relation]) -> None:
    """Refuses a SELECT whose aliases, written out where others use them, DuckDB would plan for minutes.

    Names of the columns of its tables precede aliases.

    Raises:
        InvalidInputError: it would have more than 10,000 values, operators and calls, and twice as many as
            are written.
    """
    columns_of: defaultdict[int, set[str]] = defaultdict(set)
    for relation in relations:
        columns_of[id(relation.node.parent_select)].update(map(str.lower, relation.schema.names))
    for select in find_all(tree, exp.Select):
        columns = columns_of[id(select)]
        sizes: dict[str, int] = {}
        written = total = 0
        clauses = (select.args.get(name) for name in _WITH_ALIASES)
        for part in (*select.expressions, *(clause for clause in clauses if clause is not None)):
            own = size = 0
            for node in walk(part):
                own += 1
                is_name = isinstance(node, exp.Column) and not node.table
                size += sizes.get(node.name.lower(), 1) if is_name else 1
            written, total = written + own, total + size
            if isinstance(part, exp.Alias) and part.alias.lower() not in columns:
                sizes.setdefault(part.alias.lower(), size)
        most = max(_ALIASED_MAX, 2 * written)  # a long text takes its time
        if total > most:
            raise InvalidInputError(
                f"expected a SELECT of at most {most:,} values, operators and calls, found {total:,}: each "
                "use of an alias counts with all that it stands for; compute it in a subquery",
                kind="query",
            )


@dataclass(frozen=True)
class _Load:
    """What a SELECT has of one kind, and how often it is planned."""

    count: int
    plans: int

    @property
    def cost(self) -> int:
        return self.plans * self.count**_GROWTH


def _refuse_costly(loads: list[_Load], most: int, what: str, remedy: str) -> None:
    if sum(load.cost for load in loads) <= most**_GROWTH:
        return
    largest = max(loads, key=lambda load: load.cost)
    found = f"found {largest.count}"
    if largest.plans > 1:
        found += f" in one that is planned {largest.plans:,} times"
    elif largest.count <= most:
        found += " in one of several"
    raise InvalidInputError(
        f"expected at most {most} {what} in one SELECT, {found}: planning them takes minutes; {remedy}",
        kind="query",
    )


class _Plans:
    """How often DuckDB plans what stands in a tree.

    Args:
        ctes, tables: of the tree.
    """

    def __init__(self, ctes: list[exp.CTE], tables: list[exp.Table]) -> None:
        self._around = Ancestors(exp.CTE)
        self._named: dict[int, list[exp.Expr | None]] = {}
        self._found: dict[int, int] = {}
        for table in tables if ctes else ():
            cancellation.check()
            cte = cte_of(table)
            if cte is not None:
                self._named.setdefault(id(cte), []).append(self._around.above(table))
        for cte in reversed(ctes):  # one is named by later ones, so none waits for many others
            self._of_cte(cte)

    def of(self, node: exp.Expr) -> int:
        return self._of_cte(self._around.above(node))

    def _of_cte(self, cte: exp.Expr | None) -> int:
        if cte is None:
            return 1
        if id(cte) not in self._found:
            self._found[id(cte)] = 0  # a recursive one names itself
            self._found[id(cte)] = max(1, sum(map(self._of_cte, self._named.get(id(cte), ()))))
        return self._found[id(cte)]


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
