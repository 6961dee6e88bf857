"""A query in Doris's dialect to the same query in DuckDB's: what is allowed, what differs, and names.

Only a tree is translated, never text. What the tree may hold is checked first; the tables in it are replaced
by sources that `sql.evaluate.duck` registers, so nothing but stored tables can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.read.marked_scan import LIVE
from seqstore.store.schema.column import hidden_name
from seqstore.store.sql.parse.sqlglot_adapter import ErrorLevel, SqlglotError, exp
from seqstore.store.sql.translate import implicit
from seqstore.store.sql.translate.aliases import expand_aliases
from seqstore.store.sql.translate.calls import Surroundings, call
from seqstore.store.sql.translate.date_functions import add_interval, constant_time
from seqstore.store.sql.translate.functions import translate_call, unknown_function
from seqstore.store.sql.translate.overloads import check_depth, settle
from seqstore.store.sql.translate.relations import Relation, shown_name

_FORBIDDEN: Final = (
    exp.DDL,
    exp.DML,
    exp.Command,
    exp.Into,
    exp.Lock,
    exp.Pivot,
    exp.Placeholder,
    exp.Set,
    exp.Show,
    exp.Drop,
    exp.Alter,
    exp.JSONTable,
    exp.XMLTable,
)
_INTEGER_TYPES: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT", "INT128")
_LOCAL_TIMES: Final[dict[type[exp.Expr], str]] = {
    exp.CurrentTimestamp: "now",
    exp.CurrentDate: "current_date",
    exp.CurrentDatetime: "now",
    exp.Localtime: "now",
    exp.Localtimestamp: "now",
}

# Name and scope ("session", "global" or "user") of a variable to its value, None for NULL.
Variables = Callable[[str, str], "str | None"]


def translate(
    tree: exp.Query, around: Surroundings, variables: Variables, columns: Set[str] = frozenset()
) -> None:
    """Gives functions, casts, operators and variables of a checked tree the form DuckDB needs.

    Args:
        columns: names of columns of the tables read, lower case.

    Raises:
        InvalidInputError: no such function, or arguments it does not take.
    """

    def rewrite(node: exp.Expr) -> exp.Expr:
        if isinstance(node, (exp.SessionParameter, exp.Parameter)):
            return _variable(node, variables)
        if isinstance(node, exp.CurrentUser):
            return exp.Literal.string(f"{around.user}@%")
        if isinstance(node, exp.Anonymous):
            return translate_call(node, around)
        kind = _LOCAL_TIMES.get(type(node))
        if kind is not None:
            return constant_time(kind, [node.this] if node.this else [], around.moment)
        rewriter = _REWRITERS.get(type(node))
        return rewriter(node) if rewriter is not None else node

    expand_aliases(tree, columns)
    # Leaves first: what a rewriter returns must not be rewritten again.
    for node in reversed(list(tree.walk(bfs=True))):
        new = rewrite(node)
        if new is not node and node is not tree:
            node.replace(new)
    settle(tree)
    check_depth(tree)


def check(tree: exp.Expr) -> None:
    """Refuses what is no part of a query on stored tables.

    Raises:
        InvalidInputError: names it.
    """
    for node in tree.walk():
        if isinstance(node, exp.Query):
            continue
        if isinstance(node, (exp.ReadCSV, exp.ReadParquet, exp.CurrentSchema, exp.CurrentSchemas)):
            raise unknown_function(node.sql_name())
        if isinstance(node, _FORBIDDEN):
            what = "FOR UPDATE" if isinstance(node, exp.Lock) else type(node).__name__.upper()
            raise InvalidInputError(f"a query may not hold {what}", kind="not_supported")
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
            raise unknown_function(f"{node.this.name}.{node.expression.name}")
    for select in tree.find_all(exp.Select):
        if not select.expressions:
            raise InvalidInputError("expected something to select behind SELECT", kind="syntax")
        if select.args.get("into") or select.args.get("locks"):
            raise InvalidInputError("SELECT ... INTO and FOR UPDATE are not supported", kind="not_supported")


def place_sources(
    relations: list[Relation], largeint: Mapping[int, list[str]], marked: Set[int] = frozenset()
) -> None:
    """Puts the registered source of each relation in its place in the tree.

    Args:
        largeint: columns to read as HUGEINT, by the relation's number.
        marked: numbers of the relations of which only rows marked as live count.
    """
    for number, relation in enumerate(relations):
        alias = exp.to_identifier(relation.alias, quoted=True)
        source = exp.Table(
            this=exp.to_identifier(source_name(number), quoted=True),
            db=exp.to_identifier("main"),
            catalog=exp.to_identifier("temp"),
        )
        if not largeint[number] and number not in marked:
            source.set("alias", exp.TableAlias(this=alias))
            replacement: exp.Expr = source
        else:
            wide = set(largeint[number])
            items = [
                exp.alias_(exp.cast(exp.column(name, quoted=True), "INT128"), name, quoted=True)
                if name in wide
                else exp.column(name, quoted=True)
                for name in map(source_column, relation.columns)
            ]
            inner = exp.select(*items).from_(source)
            if number in marked:
                inner = inner.where(exp.column(LIVE, quoted=True), copy=False)
            replacement = inner.subquery(alias=exp.TableAlias(this=alias), copy=False)
        for argument in ("joins", "laterals"):
            if relation.node.args.get(argument):
                replacement.set(argument, relation.node.args[argument])
        relation.node.replace(replacement)
        relation.node = replacement if isinstance(replacement, exp.Table) else relation.node


def source_name(number: int) -> str:
    return f"__source_{number}"


def source_column(name: str) -> str:
    """A column's name in the registered source: its own, the Doris spelling for hidden ones."""
    return shown_name(name) if hidden_name(name) == name else name


def name_columns(tree: exp.Query, relations: list[Relation], *, show_hidden: bool) -> None:
    """Brings hidden names to one spelling, and keeps hidden columns that were only named out of `*`."""
    for column in tree.find_all(exp.Column):
        hidden = hidden_name(column.name)
        if hidden is not None and isinstance(column.this, exp.Identifier):
            column.set("this", exp.to_identifier(shown_name(hidden), quoted=True))
        for argument in ("db", "catalog"):  # db.t.c: the source is known by its alias alone
            if column.args.get(argument) and any(r.alias.lower() == column.table.lower() for r in relations):
                column.set(argument, None)
    if show_hidden:
        return
    for relation in relations:
        named = [name for name in relation.columns if hidden_name(name) == name]
        select = relation.node.parent_select
        if not (relation.is_starred and named and isinstance(select, exp.Select)):
            continue
        for item in select.expressions:
            star = (
                item.this
                if isinstance(item, exp.Column) and item.table.lower() == relation.alias.lower()
                else item
            )
            if isinstance(star, exp.Star):
                known = {identifier.name for identifier in star.args.get("except_") or []}
                new = [
                    exp.to_identifier(shown_name(n), quoted=True) for n in named if shown_name(n) not in known
                ]
                star.set("except_", [*(star.args.get("except_") or []), *new])


def name_answers(tree: exp.Query, headings: tuple[str, ...] | None) -> None:
    """Gives the items of the outermost select list that have no alias the text the user wrote."""
    select = tree
    while not isinstance(select, exp.Select):
        inner = select.this
        if not isinstance(inner, exp.Query):
            return
        select = inner
    items = select.expressions
    written = headings if headings is not None and len(headings) == len(items) else tuple(map(_text, items))
    named: list[exp.Expr] = []
    for item, text in zip(items, written, strict=True):
        if isinstance(item, (exp.Alias, exp.Star)) or (
            isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
        ):
            named.append(item)
            continue
        shown = item.name if isinstance(item, (exp.Column, exp.Dot)) else text.strip()
        named.append(exp.alias_(item, shown or item.name, quoted=True))
    select.set("expressions", named)


def _text(item: exp.Expr) -> str:
    """An item of which the written text is not at hand."""
    return str(item.sql("doris", unsupported_level=ErrorLevel.IGNORE))


def render(tree: exp.Expr) -> str:
    """DuckDB's text of a translated tree.

    Raises:
        InvalidInputError: the tree cannot be written in DuckDB's dialect.
    """
    try:
        return str(
            tree.sql(dialect="duckdb", identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)
        )
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise InvalidInputError(
            f"the query cannot be evaluated: {error or type(error).__name__}", kind="query"
        ) from error


def _variable(node: exp.Expr, variables: Variables) -> exp.Expr:
    if isinstance(node, exp.Parameter):
        value = variables(node.name, "user")
    else:
        scope = str(node.args.get("kind") or "session").lower()
        value = variables(node.name, "global" if scope == "global" else "session")
    if value is None:
        return exp.null()
    is_number = value.removeprefix("-").isdigit()
    return exp.Literal.number(value) if is_number else exp.Literal.string(value)


def _cast(node: exp.Expr) -> exp.Expr:
    """A value that cannot be converted gives NULL; fractions are cut, not rounded; VARCHAR(n) cuts."""
    to = node.args["to"]
    name = to.this.name if isinstance(to.this, exp.DataType.Type) else str(to.this)
    if name.startswith("U") and name[1:] in (
        "INT",
        "BIGINT",
        "SMALLINT",
        "TINYINT",
    ):  # MySQL's CAST(x AS UNSIGNED)
        name = name[1:]
        to = exp.DataType.build(name)
    if name in ("TIMESTAMPTZ", "DATETIME", "TIMESTAMP"):
        digits = min(int(to.expressions[0].name), 6) if to.expressions else 0
        return call("d_rounded", call("d_ts", node.this), exp.Literal.number(10 ** (6 - digits)))
    if name == "DATE":
        return call("d_date", node.this)
    if name in _INTEGER_TYPES:
        return exp.TryCast(this=call("d_integer", node.this), to=to)
    if name in ("CHAR", "VARCHAR", "NCHAR", "NVARCHAR", "TEXT"):
        return _text_cast(node.this, to)
    return exp.TryCast(this=node.this, to=to)


def _text_cast(value: exp.Expr, to: exp.Expr) -> exp.Expr:
    text = call("d_text", value)
    if not to.expressions:
        return text
    return call("left", text, to.expressions[0].this)


def _bracket(node: exp.Expr) -> exp.Expr:
    return call("d_element_at", node.this, *node.expressions) if len(node.expressions) == 1 else node


def _add(node: exp.Expr) -> exp.Expr:
    subtract = isinstance(node, exp.Sub)
    if isinstance(node.expression, exp.Interval):
        return add_interval(node.this, node.expression, subtract=subtract)
    if isinstance(node.this, exp.Interval) and not subtract:
        return add_interval(node.expression, node.this, subtract=False)
    return implicit.arithmetic(node)


def _extract(node: exp.Expr) -> exp.Expr:
    node.set("expression", call("d_ts", node.expression))
    return node


def _json_path(node: exp.Expr) -> exp.Expr:
    """`j -> '$.a'`; sqlglot keeps the path taken apart."""
    return call("d_json_extract", node.this, exp.Literal.string(_path_text(node.expression)))


def _path_text(path: exp.Expr) -> str:
    text = path.sql("mysql")
    return text[1:-1] if text[:1] in ("'", '"') else text


def _like(node: exp.Expr) -> exp.Expr:
    """A backslash escapes in every pattern; DuckDB must be told so, and is only where one may be."""
    pattern = node.expression
    is_plain = isinstance(pattern, exp.Literal) and "\\" not in pattern.name
    if is_plain or isinstance(node.parent, exp.Escape):
        return node
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def _log(node: exp.Expr) -> exp.Expr:
    """Of no positive number there is no logarithm: NULL."""
    if node.expression is None:
        return call("d_ln", node.this)
    return call("d_logarithm", node.this, node.expression)


def _rounded_away(node: exp.Expr) -> exp.Expr:
    """`ceil(x, digits)` and `floor(x, digits)`; DuckDB takes no digits."""
    digits = node.args.get("decimals")
    if digits is None:
        return node
    name = "d_ceil_at" if isinstance(node, exp.Ceil) else "d_floor_at"
    return call(name, node.this, digits)


def _characters(node: exp.Expr) -> exp.Expr:
    """`char(65, 66)`; DuckDB takes one code."""
    return call("concat", *[call("chr", exp.cast(code, "INT")) for code in node.expressions])


_REWRITERS: Final[dict[type[exp.Expr], Callable[[exp.Expr], exp.Expr]]] = {
    **dict.fromkeys(
        (exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.BitwiseLeftShift, exp.BitwiseRightShift),
        implicit.arithmetic,
    ),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ), implicit.comparison),
    **dict.fromkeys((exp.Ceil, exp.Floor), _rounded_away),
    **dict.fromkeys((exp.Greatest, exp.Least), implicit.extreme),
    exp.Add: _add,
    exp.Between: implicit.between,
    exp.Bracket: _bracket,
    exp.Case: implicit.case,
    exp.Cast: _cast,
    exp.Chr: _characters,
    exp.Coalesce: implicit.coalesced,
    exp.Concat: implicit.concatenated,
    exp.Extract: _extract,
    exp.If: implicit.conditional,
    exp.In: implicit.listed,
    exp.JSONExtract: _json_path,
    exp.Like: _like,
    exp.Ln: lambda node: call("d_ln", node.this),
    exp.Log: _log,
    exp.Sqrt: lambda node: call("d_sqrt", node.this),
    exp.Sub: _add,
    exp.TryCast: _cast,
}
