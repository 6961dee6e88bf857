"""Translates a query's tree from Doris's dialect to DuckDB's, checks it, and renders it.

Only trees are translated, never text. `check` refuses nodes that are no part of a query.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence, Set
from typing import Final

from seqstore.store.catalog.access.user_hosts import user_and_host
from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime import cancellation
from seqstore.store.schema.column import hidden_name
from seqstore.store.sql.parse.nesting import too_deep
from seqstore.store.sql.parse.sqlglot_adapter import ErrorLevel, SqlglotError, exp, find_all, walk
from seqstore.store.sql.translate import implicit
from seqstore.store.sql.translate.calls import EvaluationContext, call
from seqstore.store.sql.translate.computed_once import compute_once
from seqstore.store.sql.translate.conversions import (
    DATETIME_NAMES,
    as_cut_moment,
    as_date,
    as_integer,
    as_moment,
    as_read,
    as_text,
    cast_digits,
)
from seqstore.store.sql.translate.date_functions import add_interval, constant_time, extracted
from seqstore.store.sql.translate.functions import check_known, translate_call, unknown_function
from seqstore.store.sql.translate.lateral_views import join_views
from seqstore.store.sql.translate.macros.unchosen import is_aggregate, settle
from seqstore.store.sql.translate.nested_values import is_nested, nested_cast, nested_text
from seqstore.store.sql.translate.plan_limits import refuse_grown_aliases
from seqstore.store.sql.translate.relations import Relation, rows_bound, shown_name
from seqstore.store.sql.translate.value_types import TEXTS, is_quoted, note_as, note_types, type_of
from seqstore.store.types.column_types import parse_type

_WIDER: Final = {"TINYINT": "SMALLINT", "SMALLINT": "INT", "INT": "BIGINT"}
_FORBIDDEN: Final = (exp.DDL, exp.DML, exp.Command, exp.Into, exp.Lock, exp.Pivot, exp.Placeholder, exp.Set,
                     exp.Show, exp.Drop, exp.Alter, exp.JSONTable, exp.XMLTable)  # fmt: skip
_NO_ROW_LOCKS: Final = (
    "SELECT .. FOR UPDATE, FOR SHARE and LOCK IN SHARE MODE are not supported: rows are not locked; of two "
    "transactions that change what the other one read, the second fails with error 1213 and can run again"
)
_LEVELS: Final = (exp.Binary, exp.Unary, exp.Func)
_LEVELS_MAX: Final = 1_500  # of sqlglot, which has some that DuckDB's 1,000 do not have
_DECIMAL_DIGITS: Final = 20
_ESCAPED: Final = re.compile(r"\\.|\[[^\]]*\]")  # characters that open no group
_GROUP: Final = re.compile(r"\((?!\?)|\(\?P?<")
_HEADING_CHARACTERS: Final = 256  # of the name of a column without alias, as in MySQL
_INTEGER_TYPES: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT", "INT128")
_UNSIGNED_TYPES: Final = ("UTINYINT", "USMALLINT", "UINT", "UBIGINT")
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
    tree: exp.Query, context: EvaluationContext, variables: Variables, relations: Sequence[Relation] = ()
) -> list[str | None]:
    """Rewrites functions, casts, operators and variables of a checked tree to DuckDB's form.

    Args:
        relations: the tables that the tree reads, for the types of their columns.

    Returns:
        The types of the columns of the result, None where one is not known, none when `*` hides them.

    Raises:
        InvalidInputError: no such function, or arguments it does not take.
    """

    def rewrite(node: exp.Expr) -> exp.Expr:
        if isinstance(node, (exp.SessionParameter, exp.Parameter)):
            return _variable(node, variables)
        if isinstance(node, exp.CurrentUser):
            return exp.Literal.string("@".join(user_and_host(context.user)))
        if isinstance(node, exp.Anonymous):
            return translate_call(node, context)
        kind = _LOCAL_TIMES.get(type(node))
        if kind is not None:
            return constant_time(kind, [node.this] if node.this else [], context.moment)
        rewriter = _REWRITERS.get(type(node))
        return rewriter(node) if rewriter is not None else node

    refuse_grown_aliases(tree, relations)
    _expand_aliases(tree, {name.lower() for relation in relations for name in relation.schema.names})
    kinds = note_types(tree, relations)
    if implicit.settle_hexadecimals(tree):
        kinds = note_types(tree, relations)
    # Leaves first: a rewriter's result must not be rewritten again.
    for node in reversed(list(walk(tree))):
        cancellation.check()
        if isinstance(node, (exp.Anonymous, exp.Is)) or node.key in implicit.PARAMETERS:
            implicit.convert_arguments(node)
        new = rewrite(node)
        if new is not node:
            note_as(new, node)
            if node is not tree:
                node.replace(new)
    _move_having(tree)  # aggregates have their names of DuckDB by now
    join_views(tree)
    settle(tree)
    compute_once(tree)
    return kinds


def _check_levels(tree: exp.Expr) -> None:
    """Checks that operators and calls are not nested deeper than DuckDB computes.

    What follows looks along the nodes above each: deep trees took minutes before DuckDB
    refused them. Lists of conditions are no levels of DuckDB.

    Raises:
        InvalidInputError: more than `_LEVELS_MAX` levels.
    """
    levels = {id(tree): 0}
    for node in walk(tree):  # outer ones first
        above = node.parent
        is_level = isinstance(node, _LEVELS) and not isinstance(node, (exp.Connector, exp.Paren))
        level = (levels.get(id(above), 0) if node is not tree else 0) + is_level
        levels[id(node)] = level
        if level > _LEVELS_MAX:
            raise too_deep()


def check(tree: exp.Expr) -> None:
    """Checks that a tree holds only parts of a query on stored tables.

    Raises:
        InvalidInputError: names the part that is refused.
    """
    _check_levels(tree)
    for node in walk(tree):
        if isinstance(node, exp.Query):
            continue
        check_known(node)
        if isinstance(node, _FORBIDDEN):
            if isinstance(node, exp.Lock):
                raise InvalidInputError(_NO_ROW_LOCKS, kind="not_supported")
            raise InvalidInputError(
                f"a query may not hold {type(node).__name__.upper()}", kind="not_supported"
            )
        if isinstance(node, exp.PropertyEQ) and isinstance(node.this, exp.Parameter):
            raise InvalidInputError(
                f"@{node.this.name} := .. is not supported within a statement; assign the variable by "
                f"SET @{node.this.name} = .. before it",
                kind="not_supported",
            )
        if isinstance(node, exp.Group) and node.args.get("totals"):
            raise InvalidInputError("WITH TOTALS is not supported; use WITH ROLLUP", kind="not_supported")
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
            raise unknown_function(f"{node.this.name}.{node.expression.name}")
    for select in find_all(tree, exp.Select):
        if not select.expressions:
            raise InvalidInputError("expected a select list after SELECT", kind="syntax")
        if select.args.get("locks"):
            raise InvalidInputError(_NO_ROW_LOCKS, kind="not_supported")
        if select.args.get("into"):
            raise InvalidInputError("SELECT ... INTO is not supported", kind="not_supported")


def name_columns(tree: exp.Query, relations: list[Relation], *, show_hidden: bool) -> None:
    """Spells hidden columns as the sources do, and leaves hidden columns out of `*` unless they are shown."""
    aliases = {relation.alias.lower() for relation in relations}
    for column in find_all(tree, exp.Column):
        hidden = hidden_name(column.name)
        if hidden is not None and isinstance(column.this, exp.Identifier):
            column.set("this", exp.to_identifier(shown_name(hidden), quoted=True))
        if column.table.lower() in aliases:  # db.t.c: the source is known by its alias alone
            column.set("db", None)
            column.set("catalog", None)
    if show_hidden:
        return
    for relation in relations:
        hidden_read = [shown_name(name) for name in relation.columns if hidden_name(name) == name]
        if relation.is_starred and hidden_read:
            _except_from_stars(relation, hidden_read)


def _except_from_stars(relation: Relation, names: list[str]) -> None:
    """Adds columns to the EXCEPT list of every `*` that selects them."""
    select = relation.node.parent_select
    for item in select.expressions if isinstance(select, exp.Select) else ():
        is_qualified = isinstance(item, exp.Column) and item.table.lower() == relation.alias.lower()
        star = item.this if is_qualified else item
        if isinstance(star, exp.Star):
            given = star.args.get("except_") or []
            known = {identifier.name for identifier in given}
            added = [exp.to_identifier(name, quoted=True) for name in names if name not in known]
            star.set("except_", [*given, *added])


def name_answers(tree: exp.Query, headings: tuple[str, ...] | None) -> None:
    """Labels the items of the outermost select list that have no alias with their text as written."""
    select = tree
    while not isinstance(select, exp.Select):
        inner = select.this
        if not isinstance(inner, exp.Query):
            return
        select = inner
    items = select.expressions
    is_written = headings is not None and len(headings) == len(items)
    named: list[exp.Expr] = []
    for place, item in enumerate(items):
        is_qualified_star = isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
        if isinstance(item, (exp.Alias, exp.Star)) or is_qualified_star:
            named.append(item)
            continue
        if isinstance(item, (exp.Column, exp.Dot)):
            heading = item.name
        else:
            heading = (headings[place] if headings is not None and is_written else _text(item)).strip()
        heading = (heading or item.name)[:_HEADING_CHARACTERS]
        named.append(exp.alias_(item, heading, quoted=True, copy=False))
    select.set("expressions", named)


def _text(item: exp.Expr) -> str:
    """Formats an item where its written text is not known."""
    return str(item.sql("doris", unsupported_level=ErrorLevel.IGNORE))


def render(tree: exp.Expr) -> str:
    """Renders a translated tree as DuckDB's text.

    Raises:
        InvalidInputError: the tree cannot be written in DuckDB's dialect.
    """
    for text in list(find_all(tree, exp.Literal)):
        if "\0" in text.name:
            text.replace(_around_nul(text.name))
    for query in list(find_all(tree, exp.Subquery)):
        if _has_limit(query) and _has_limit(query.unnest()):
            _move_limits(query)
    try:
        return str(
            tree.sql(dialect="duckdb", identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)
        )
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise InvalidInputError(
            f"the query cannot be evaluated: {error or type(error).__name__}", kind="query"
        ) from error


def _has_limit(query: exp.Expr) -> bool:
    return any(query.args.get(name) is not None for name in ("limit", "offset"))


def _move_limits(query: exp.Subquery) -> None:
    """Makes `(SELECT * FROM (q) LIMIT 1)` of `(q) LIMIT 1`: DuckDB 1 refuses that where q has a limit."""
    outer = exp.select("*").from_(
        exp.Subquery(this=query.this, alias=exp.TableAlias(this=exp.to_identifier("q")))
    )
    for name in ("order", "limit", "offset"):
        outer.set(name, query.args.get(name))
        query.set(name, None)
    query.set("this", outer)


def _around_nul(text: str) -> exp.Expr:
    """Converts text with NUL characters, which end a statement before DuckDB 2, to a concatenation."""
    nul = call("chr", exp.Literal.number(0))
    parts = [exp.Literal.string(part) for part in text.split("\0")]
    joined: exp.Expr = parts[0]
    for part in parts[1:]:
        joined = exp.DPipe(this=exp.DPipe(this=joined, expression=nul.copy()), expression=part)
    return exp.paren(joined)


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
    """Translates CAST: NULL for a value of another form; fractions are cut, and VARCHAR(n) cuts."""
    to = node.args["to"]
    name = to.this.name if isinstance(to.this, exp.DataType.Type) else str(to.this)
    if name == "CHARACTER_SET" or isinstance(to, exp.CharacterSet):  # CONVERT(x USING utf8mb4): one encoding
        return as_text(node.this)
    if name in _UNSIGNED_TYPES:  # MySQL's CAST(x AS UNSIGNED)
        name = name[1:]
        to = exp.DataType.build(name)
    if name in DATETIME_NAMES:
        digits = cast_digits(to)
        step = exp.Literal.number(10 ** (6 - digits))
        return call("d_rounded", as_cut_moment(node.this, digits), step)
    if name == "DATE":
        return as_date(node.this)
    if name in _INTEGER_TYPES:
        return exp.TryCast(this=as_integer(node.this), to=to)
    # BINARY and CAST AS BINARY too: texts are compared by their bytes.
    if name in ("CHAR", "VARCHAR", "NCHAR", "NVARCHAR", "TEXT", "BINARY", "VARBINARY"):
        kind = type_of(node.this)
        text = nested_text(node.this, parse_type(str(kind))) if is_nested(kind) else as_text(node.this)
        return call("left", text, to.expressions[0].this) if to.expressions else text
    if name in ("ARRAY", "MAP") and not isinstance(node.this, exp.Null):
        return nested_cast(node.this, parse_type(to.sql("doris")), _plain_cast)
    return exp.TryCast(this=as_read(node.this, name), to=to)


def _plain_cast(value: exp.Expr, to: str) -> exp.Expr:
    return _cast(exp.Cast(this=value, to=exp.DataType.build(to, dialect="doris")))


def _collate(node: exp.Expr) -> exp.Expr:
    """Translates MySQL's collations: `.._ci` compares without case, and `.._ai_ci` without accents too."""
    name = node.expression.name.lower()
    if name == "binary" or name.endswith(("_bin", "_cs")):
        return exp.paren(node.this)
    if not name.endswith("_ci"):
        raise InvalidInputError(
            f"Unknown collation: '{name}'; expected a name that ends in _bin, _cs or _ci",
            kind="unknown_collation",
        )
    node.set("expression", exp.var("NOCASE.NOACCENT" if name.endswith("_ai_ci") else "NOCASE"))
    return node


def _bracket(node: exp.Expr) -> exp.Expr:
    return call("d_element_at", node.this, *node.expressions) if len(node.expressions) == 1 else node


def _add(node: exp.Expr) -> exp.Expr:
    subtract = isinstance(node, exp.Sub)
    if isinstance(node.expression, exp.Interval):
        return add_interval(node.this, node.expression, subtract=subtract)
    if isinstance(node.this, exp.Interval) and not subtract:
        return add_interval(node.expression, node.this, subtract=False)
    return implicit.arithmetic(node)


def _trimmed(node: exp.Expr) -> exp.Expr:
    """Translates TRIM, LTRIM and RTRIM of a text: all of it is removed, not each of its characters."""
    removed = node.args.get("expression")
    if removed is None:
        return node
    position = str(node.args.get("position") or "BOTH").upper()
    return call({"LEADING": "d_ltrim", "TRAILING": "d_rtrim"}.get(position, "d_trim"), node.this, removed)


def _with_room(node: exp.Expr) -> exp.Expr:
    """Translates `-x` and `abs(x)`: the smallest integer of a type has no opposite in it."""
    value = node.this
    wider = _WIDER.get(type_of(value) or "")
    if isinstance(value, exp.Neg) and value.this.name == "2147483648":  # DuckDB reads the whole as an INT
        wider = "BIGINT"
    if wider is not None and not isinstance(value, exp.Literal):
        node.set("this", exp.cast(value, wider))
    return node


def _json_path(node: exp.Expr) -> exp.Expr:
    """Translates `j -> '$.a'`; sqlglot keeps the parts of the path."""
    text = node.expression.sql("mysql")
    path = text[1:-1] if text[:1] in ("'", '"') else text
    return call("d_json_extract", node.this, exp.Literal.string(path))


def _like(node: exp.Expr) -> exp.Expr:
    """Translates LIKE: a backslash escapes in every pattern of Doris's, in DuckDB's only with ESCAPE."""
    pattern = node.expression
    is_plain = isinstance(pattern, exp.Literal) and "\\" not in pattern.name
    if is_plain or isinstance(node.parent, exp.Escape):
        return node
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def _time(node: exp.Expr) -> exp.Expr:
    """Translates TIME(x): the time of day of a moment, as text with the digits that it has."""
    kind = type_of(node.this)
    text = as_text(node.this if kind is None or kind in TEXTS else as_moment(node.this))
    return call("d_time_of_day", text)


def _log(node: exp.Expr) -> exp.Expr:
    """Translates a logarithm, which is NULL unless the number is positive."""
    if node.expression is None:
        return call("d_ln", node.this)
    return call("d_logarithm", node.this, node.expression)


def _within_domain(node: exp.Expr) -> exp.Expr:
    """Translates functions that fail in DuckDB where they have no value, such as `acos(2)` and `cot(0)`."""
    return call(f"d_{node.key}", node.this)


def _rounded_away(node: exp.Expr) -> exp.Expr:
    """Translates `ceil(x, digits)` and `floor(x, digits)`; DuckDB's functions have no digits."""
    digits = node.args.get("decimals")
    if digits is None:
        return node
    way = "ceil" if isinstance(node, exp.Ceil) else "floor"
    places = _whole_number(digits)
    if type_of(node.this) == "DECIMAL" and places is not None and abs(places) < _DECIMAL_DIGITS:
        step = f"1e{-places}" if places < 0 else f"0.{'0' * (places - 1)}1" if places else "1"
        exact = exp.cast(exp.Literal.string(step), f"DECIMAL(38, {max(places, 0)})")
        return call(f"d_exact_{way}", node.this, digits, exact)
    return call(f"d_{way}_at", node.this, digits)


def _whole_number(node: exp.Expr) -> int | None:
    """Returns the value of a literal such as 2 or -2."""
    sign, literal = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    is_whole = isinstance(literal, exp.Literal) and not literal.is_string and literal.name.isdigit()
    return sign * int(literal.name) if is_whole else None


def _all_extracted(node: exp.Expr) -> exp.Expr:
    """Translates `regexp_extract_all`: what the first group of each match has, nothing without a group."""
    pattern = node.expression
    if is_quoted(pattern):
        plain = _ESCAPED.sub("", pattern.name)
        if not _GROUP.search(plain):
            return exp.cast(call("list_value"), "TEXT[]")
    return call("regexp_extract_all", node.this, pattern, exp.Literal.number(1))


def _array(node: exp.Expr) -> exp.Expr:
    """Translates `[1, 'a']`, whose elements become of one type."""
    if len(node.expressions) > 1 and any(type_of(each) in TEXTS for each in node.expressions):
        node.set("expressions", implicit.unified(node.expressions))
    return node


def _struct(node: exp.Expr) -> exp.Expr:
    """Translates `struct(1, 'a')`, whose fields are col1 and so on."""
    if not any(isinstance(each, (exp.PropertyEQ, exp.Alias)) for each in node.expressions):
        named = [
            exp.PropertyEQ(this=exp.to_identifier(f"col{place}"), expression=each)
            for place, each in enumerate(node.expressions, 1)
        ]
        node.set("expressions", named)
    return node


def _reversed(node: exp.Expr) -> exp.Expr:
    is_array = isinstance(node.this, exp.Array) or (type_of(node.this) or "").startswith("ARRAY")
    return call("list_reverse", node.this) if is_array else node


def _characters(node: exp.Expr) -> exp.Expr:
    """Translates `char(65, 66)`: numbers are the bytes of UTF-8 text, NULL if there is no such text."""
    bytes_of = (exp.TryCast(this=code, to=exp.DataType.build("BIGINT")) for code in node.expressions)
    return call("d_unhex", call("concat", *[call("d_byte_digits", code) for code in bytes_of]))


def _expand_aliases(tree: exp.Query, columns: Set[str]) -> None:
    """Writes out aliases in GROUP BY, HAVING, QUALIFY and ORDER BY; an alias alone in ORDER BY stays.

    DuckDB resolves such aliases, but does not know their types when it chooses the body of a macro. In GROUP
    BY names of `columns` precede aliases.
    """
    given = Counter(item.alias.lower() for item in find_all(tree, exp.Alias))
    columns = columns | {name for name, count in given.items() if count > 1}
    for select in find_all(tree, exp.Select):
        # The tables of a subquery are placed once: DuckDB resolves the alias of one.
        known = {
            item.alias.lower(): item.this
            for item in select.expressions
            if isinstance(item, exp.Alias) and item.find(exp.Query) is None
        }
        if not known:
            continue
        kept = _expand_group(select, known, columns)
        for clause in ("having", "qualify", "order"):
            node = select.args.get(clause)
            for column in list(find_all(node, exp.Column)) if node is not None else ():
                name = column.name.lower()
                if not column.table and name in known and name not in kept and _is_part(column, select):
                    column.replace(exp.paren(known[name].copy()))


def _move_having(tree: exp.Query) -> None:
    """Moves HAVING to WHERE where a SELECT has no groups, as drivers send it for conditions on aliases."""
    for select in find_all(tree, exp.Select):
        having = select.args.get("having")
        if having is None or select.args.get("group") is not None or _is_aggregated(select):
            continue
        select.set("having", None)
        if having.find(exp.Window) is None:
            select.where(having.this, copy=False)
        else:
            select.set("qualify", exp.Qualify(this=having.this))


def _is_aggregated(select: exp.Select) -> bool:
    """Returns whether a SELECT has an aggregate of its own, other than over a window."""
    found = (node for node in find_all(select, exp.AggFunc, exp.Anonymous) if is_aggregate(node))
    return any(
        node.find_ancestor(exp.Select) is select and not isinstance(node.parent, exp.Window) for node in found
    )


def _expand_group(select: exp.Select, known: dict[str, exp.Expr], columns: Set[str]) -> set[str]:
    """Replaces the aliases of GROUP BY, and returns the names that stay there."""
    group = select.args.get("group")
    kept = set()
    items = list(group.expressions) if group is not None else []
    for each in find_all(group, exp.Rollup, exp.Cube) if group is not None else ():
        items += each.expressions
    for item in items:
        name = item.name.lower() if isinstance(item, exp.Column) and not item.table else ""
        value = known.get(name)
        if value is None or name in columns or value.find(exp.AggFunc):
            kept.add(item.name.lower())
        elif isinstance(value, exp.Literal):
            kept.add(name)
        else:
            item.replace(value.copy())
    return kept


def _is_part(column: exp.Column, select: exp.Select) -> bool:
    """Returns whether a name is part of an expression of this very SELECT, outside of aggregates."""
    if isinstance(column.parent, exp.Ordered):
        return False
    return column.find_ancestor(exp.AggFunc, exp.Select) is select


def _bounded(node: exp.Expr) -> exp.Expr:
    """Gives LIMIT and OFFSET a number that DuckDB takes: 2^64 - 1 is MySQL's word for all rows."""
    count = node.expression
    if isinstance(count, exp.Literal) and not count.is_string and str(count.this).isdigit():
        count.set("this", str(rows_bound(count.this)))
    return node


_REWRITERS: Final[dict[type[exp.Expr], Callable[[exp.Expr], exp.Expr]]] = {
    **dict.fromkeys(
        (exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.BitwiseLeftShift, exp.BitwiseRightShift),
        implicit.arithmetic,
    ),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ), implicit.comparison),
    **dict.fromkeys((exp.Ceil, exp.Floor), _rounded_away),
    **dict.fromkeys((exp.Greatest, exp.Least), implicit.extreme),
    **dict.fromkeys((exp.Acos, exp.Acosh, exp.Asin, exp.Atanh, exp.Cot, exp.Sqrt), _within_domain),
    exp.Abs: _with_room,
    exp.Add: _add,
    exp.Array: _array,
    exp.Ascii: lambda node: call("d_ascii", node.this),
    exp.Between: implicit.between,
    exp.Bracket: _bracket,
    exp.Case: implicit.case,
    exp.Cast: _cast,
    exp.Chr: _characters,
    exp.Collate: _collate,
    exp.Coalesce: implicit.coalesced,
    exp.Concat: implicit.concatenated,
    exp.Extract: extracted,
    exp.If: implicit.conditional,
    exp.In: implicit.listed,
    exp.JSONExtract: _json_path,
    exp.Like: _like,
    exp.Limit: _bounded,
    exp.Neg: _with_room,
    exp.Nullif: implicit.nullif,
    exp.Ln: lambda node: call("d_ln", node.this),
    exp.Offset: _bounded,
    exp.RegexpExtractAll: _all_extracted,
    exp.Reverse: _reversed,
    exp.Log: _log,
    exp.FromBase64: lambda node: call("d_from_base64", node.this),
    exp.ToBase64: lambda node: call("d_to_base64", node.this),
    exp.Repeat: lambda node: call("d_repeat", node.this, node.args["times"]),
    exp.Struct: _struct,
    exp.Sub: _add,
    exp.Time: _time,
    exp.Trim: _trimmed,
    exp.TryCast: _cast,
}
