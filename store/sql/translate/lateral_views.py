"""LATERAL VIEW with an outer function, or with several arrays, as a join with a subquery.

sqlglot writes LATERAL VIEW as `CROSS JOIN UNNEST(a)`, which has no row for an empty array. The others become

    LEFT JOIN LATERAL (SELECT UNNEST(RANGE(LEN(a))) AS p, UNNEST(a) AS x, UNNEST(b) AS y) AS v ON TRUE

DuckDB fills the shorter of several arrays with NULL, as Doris does. Where one view of a SELECT has this form,
all have it: a view may name the columns of the views before it.
"""

from __future__ import annotations

from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.translate.calls import call

OUTER: Final = "outer"  # note at the function of a view


def join_views(tree: exp.Expr) -> None:
    """Rewrites the views of a translated tree that need it.

    Raises:
        InvalidInputError: a view names another number of columns than its function has.
    """
    for select in list(find_all(tree, exp.Select)):
        views = select.args.get("laterals") or []
        if not any(_is_outer(view) or view.this.args.get("expressions") for view in views):
            continue
        joins = select.args.get("joins") or []
        select.set("joins", [*joins, *map(_joined, views)])
        select.set("laterals", None)


def _is_outer(view: exp.Expr) -> bool:
    function = view.this
    return bool(view.args.get("outer") or function.meta.get(OUTER) or "outer" in function.key)


def _joined(view: exp.Expr) -> exp.Join:
    function = view.this
    alias = view.args["alias"]
    columns = list(alias.args.get("columns") or ())
    arrays = [function.this, *(function.args.get("expressions") or ())]
    values = list(arrays)
    if "posexplode" in function.key:
        longest = call("greatest", *(call("len", array.copy()) for array in arrays))
        values.insert(0, call("range", longest))
    if len(columns) != len(values):
        raise InvalidInputError(
            f"LATERAL VIEW {alias.name}: expected {len(values)} column "
            f"{'name' if len(values) == 1 else 'names'} behind AS, found {len(columns)}",
            kind="column_count",
        )
    items = [exp.alias_(call("unnest", value), column) for value, column in zip(values, columns, strict=True)]
    inner = exp.Lateral(this=exp.select(*items).subquery(), alias=exp.TableAlias(this=alias.this))
    if _is_outer(view):
        return exp.Join(this=inner, side="LEFT", on=exp.true())
    return exp.Join(this=inner, kind="CROSS")
