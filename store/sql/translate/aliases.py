"""Aliases of the select list in expressions of GROUP BY, HAVING, QUALIFY and ORDER BY, written out.

DuckDB resolves such aliases, but does not know their types when it chooses the body of a macro.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from seqstore.store.sql.parse.sqlglot_adapter import exp


def expand_aliases(tree: exp.Query, columns: Set[str]) -> None:
    """Replaces aliases in every SELECT of a query; an alias alone in ORDER BY stays.

    Args:
        columns: names of columns of the tables read, lower case; in GROUP BY they precede aliases.
    """
    given = Counter(item.alias.lower() for item in tree.find_all(exp.Alias))
    columns = columns | {name for name, count in given.items() if count > 1}
    for select in tree.find_all(exp.Select):
        known = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
        if not known:
            continue
        kept = _grouped(select, known, columns)
        for clause in ("having", "qualify", "order"):
            node = select.args.get(clause)
            for column in list(node.find_all(exp.Column)) if node is not None else ():
                name = column.name.lower()
                if not column.table and name in known and name not in kept and _is_computed(column, select):
                    column.replace(exp.paren(known[name].copy()))


def _grouped(select: exp.Select, known: dict[str, exp.Expr], columns: Set[str]) -> set[str]:
    """Replaces the aliases of GROUP BY, and returns the names that stay there."""
    group = select.args.get("group")
    kept = set()
    for item in list(group.expressions) if group is not None else ():
        name = item.name.lower() if isinstance(item, exp.Column) and not item.table else ""
        value = known.get(name)
        if value is None or name in columns or value.find(exp.AggFunc):
            kept.add(item.name.lower())
        elif isinstance(value, exp.Literal):
            kept.add(name)
        else:
            item.replace(value.copy())
    return kept


def _is_computed(column: exp.Column, select: exp.Select) -> bool:
    """Returns whether a name is part of an expression of this very SELECT, outside of aggregates."""
    if isinstance(column.parent, exp.Ordered):
        return False
    return column.find_ancestor(exp.AggFunc, exp.Select) is select
