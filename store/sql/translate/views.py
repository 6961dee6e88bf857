"""Views in a query: each mention becomes the view's query, before the tables of the query are opened.

1. A name that a CTE declares is no view, whatever the database holds.
2. The columns of a view are fixed when it is created: the query is read by its headings, under the names of
   the view. A column that a table has received since is not among them.
3. Tables that the view's query names are marked with the view (`relations.VIEW`). The privilege on the view
   is enough to read them, as in Doris, and an error names the view.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from seqstore.store.ddl.views import View
from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.query_parser import parse_query
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.parse.statement_values import Query, TableName
from seqstore.store.sql.parse.tokens import split_statements
from seqstore.store.sql.translate.relations import VIEW, cte_of, mentioned_tables, refuse_unsupported
from seqstore.store.sql.translate.translate import check, name_answers

_VIEWS_MAX: Final = 256  # views that join each other double at every level
COLUMNS: Final = "columns"  # of the `meta` of a subquery that is a view: the view's columns
VIEW_NAME: Final = "view_name"  # likewise: its name, `db.view`

# Finds the view of a name; the text is the view that names it, empty for the statement itself. Returns the
# view's database and the view, None for any other name.
FindView = Callable[[TableName, str], "tuple[str, View] | None"]


def expand_views(tree: exp.Query, find_view: FindView) -> list[str]:
    """Replaces every view in a tree by its query, those that its query names included.

    Returns:
        The views, as `db.view`, a view before the ones that it names.

    Raises:
        InvalidInputError: a view reads itself, or a clause stands behind it that only a table can have.
    """
    expanded: list[str] = []
    aliases: set[str] = set()
    waiting: list[tuple[exp.Table, tuple[str, ...]]] = [(node, ()) for node in find_all(tree, exp.Table)]
    while waiting:
        node, chain = waiting.pop()
        within = chain[-1] if chain else ""
        found = None if _is_no_view(node) else find_view(TableName(node.db or None, node.name), within)
        if found is None:
            if within:
                node.meta[VIEW] = within
            continue
        name = f"{found[0]}.{found[1].name}"
        if name in chain:
            raise InvalidInputError(
                f"View '{chain[0]}' reads itself: {' reads '.join((*chain, name))}; ALTER VIEW one of them",
                kind="invalid_view",
            )
        expanded.append(name)
        if len(expanded) > _VIEWS_MAX:
            raise InvalidInputError(
                f"the query reads more than {_VIEWS_MAX} views, through the views that they name; "
                "keep the rows of some of them in tables",
                kind="too_many_views",
            )
        aliases.add((node.alias or node.name).lower())
        inner = _placed(node, name, found[1])
        waiting += [(inside, (*chain, name)) for inside in find_all(inner, exp.Table)]
    for column in find_all(tree, exp.Column) if aliases else ():
        if column.args.get("db") and column.table.lower() in aliases:  # db.v.c: known by its alias alone
            column.set("db", None)
            column.set("catalog", None)
    return expanded


def tables_behind(tree: exp.Expr, find_view: FindView) -> set[TableName]:
    """Returns the stored tables that a tree names, and those that its views read."""
    tables: set[TableName] = set()
    seen: set[str] = set()
    waiting: list[tuple[exp.Expr, str]] = [(tree, "")]
    while waiting:
        current, within = waiting.pop()
        for name in mentioned_tables(current):
            found = find_view(name, within)
            if found is None:
                tables.add(name)
                continue
            view = f"{found[0]}.{found[1].name}"
            if view not in seen:
                seen.add(view)
                waiting.append((_parsed(found[1].query).tree, view))
    return tables


def _is_no_view(node: exp.Table) -> bool:
    if not isinstance(node.this, exp.Identifier) or cte_of(node) is not None:
        return True
    return bool(node.catalog) and node.catalog.lower() != "internal"


def _placed(node: exp.Table, name: str, view: View) -> exp.Expr:
    """Puts the query of a view in the place of its name, and returns it."""
    refuse_unsupported(node)
    if node.args.get("version") or node.args.get("partition"):
        raise InvalidInputError(
            f"'{name}' is a view: a version or a partition is named behind the tables of its query",
            kind="not_supported",
        )
    query = _parsed(view.query)
    inner = query.tree.copy()
    check(inner)
    name_answers(inner, query.headings)
    items = (
        exp.alias_(exp.column(column.source, quoted=True), column.name, quoted=True)
        for column in view.columns
    )
    select = exp.select(*items).from_(inner.subquery("__view", copy=False), copy=False)
    given = node.args.get("alias")
    alias = exp.TableAlias(this=exp.to_identifier(node.alias or node.name, quoted=True))
    if given is not None and given.columns:
        alias.set("columns", given.columns)
    placed = exp.Subquery(this=select, alias=alias)
    placed.meta[COLUMNS], placed.meta[VIEW_NAME] = view.columns, name
    for argument in ("joins", "laterals"):
        if node.args.get(argument):
            placed.set(argument, node.args[argument])
    node.replace(placed)
    return select


@lru_cache(maxsize=512)
def _parsed(text: str) -> Query:
    """Parses the query of a view; callers must not change the shared tree."""
    (stream,) = split_statements(text)
    return parse_query(stream)


def qualified_text(text: str, tree: exp.Query, database: Callable[[], str]) -> str:
    """Adds a database to each table in the text of a query that has none.

    Args:
        tree: of this text.
        database: returns the current one.

    Raises:
        InvalidInputError: the query depends on the session: a variable, or a table function whose table
            has no database.
    """
    if tree.find(exp.SessionParameter, exp.Parameter) is not None:
        raise InvalidInputError("View's SELECT contains a variable or parameter", kind="not_supported")
    places = []
    for node in find_all(tree, exp.Table):
        if isinstance(node.this, exp.Anonymous):
            first = next(iter(node.this.expressions), None)
            if isinstance(first, exp.Literal) and "." not in first.name:
                raise InvalidInputError(
                    f"{node.this.name}: a view names the table with its database, "
                    f"'{database()}.{first.name}'",
                    kind="bad_argument",
                )
        elif isinstance(node.this, exp.Identifier) and not node.args.get("db") and cte_of(node) is None:
            places.append(int(node.this.meta["start"]))
    for place in sorted(places, reverse=True):
        text = f"{text[:place]}`{database()}`.{text[place:]}"
    return text
