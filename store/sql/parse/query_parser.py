"""Queries, UPDATE, DELETE FROM and MERGE INTO: sqlglot's trees, and the headings as the user wrote them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse import statement_values as st
from seqstore.store.sql.parse.sqlglot_adapter import TokenType, exp, find_all
from seqstore.store.sql.parse.statement_values import EVERY_COLUMN
from seqstore.store.sql.parse.tokens import TokenStream, parse_tree

_SET_VAR: Final = re.compile(r"\bSET_VAR\s*\(((?:[^()'\"]|'[^']*'|\"[^\"]*\")*)\)", re.IGNORECASE)
_PAIR: Final = re.compile(r"`?([\w.]+)`?\s*=\s*(?:('[^']*'|\"[^\"]*\")|([^\s,'\"]+))")
QUERY_STARTS: Final = frozenset(["SELECT", "WITH", "("])
_LIST_ENDS: Final = re.findall(
    r"\w+", "FROM WHERE GROUP HAVING ORDER LIMIT UNION INTERSECT EXCEPT MINUS QUALIFY WINDOW FOR INTO LATERAL"
)


def parse_select(stream: TokenStream) -> Any:
    """Parses a statement that is a query; its first word is part of the query.

    WITH may precede UPDATE and DELETE too.
    """
    stream.at = 0
    if stream.first_word == "WITH" and (change := _change_behind_with(stream)) is not None:
        return change
    place = next((i for i in range(len(stream.tokens)) if _is_outfile(stream, i)), None)
    return parse_query(stream) if place is None else _into_outfile(stream, place)


def _is_outfile(stream: TokenStream, ahead: int) -> bool:
    return stream.word(ahead) == "INTO" and stream.word(ahead + 1) == "OUTFILE"


def _into_outfile(stream: TokenStream, place: int) -> st.IntoOutfile:
    """Parses a query that ends before a token, and what follows INTO OUTFILE."""
    if not place:
        stream.fail("a query")
    before = replace(stream, tokens=stream.tokens[:place], end=stream.tokens[place].start)
    query = parse_query(before)
    stream.at = place + 2
    uri = stream.string("a URI such as file:///directory/prefix")
    form = stream.word_or_string("a format").lower() if stream.take("FORMAT", "AS") else "csv"
    properties = stream.properties() if stream.take("PROPERTIES") else {}
    return st.IntoOutfile(query, uri, form, properties)


def _change_behind_with(stream: TokenStream) -> st.UpdateStatement | st.DeleteStatement | None:
    depth = 0
    for ahead in range(len(stream.tokens)):
        word = stream.word(ahead)
        depth += (word == "(") - (word == ")")
        if depth == 0 and word in ("SELECT", "UPDATE", "DELETE"):
            if word == "SELECT":
                return None
            return parse_update(stream) if word == "UPDATE" else _delete(_change_tree(stream))
    return None


_INNER: Final = ("", "INNER", "CROSS")
# Words of MySQL behind SELECT; those that are not here have no effect.
_REFUSED_MODIFIERS: Final = {
    "SQL_CALC_FOUND_ROWS": "SELECT count(*) of the same query has the number of all rows",
    "STRAIGHT_JOIN": "tables are joined in the order that is fastest",
}


def parse_query(stream: TokenStream) -> st.Query:
    first = stream.at
    tree = stream.rest()
    if not isinstance(tree, exp.Query) or not isinstance(tree.unnest(), exp.Query):
        stream.at = first
        stream.fail("a query")
    headings = _headings(stream, first)
    for table in list(find_all(tree, exp.Table)):
        _drop_dual(table)
    return st.Query(tree, headings, _hinted(tree))


def _drop_dual(table: exp.Table) -> None:
    """Removes FROM DUAL, which stands for no table."""
    source, select = table.parent, table.parent_select
    is_dual = isinstance(table.this, exp.Identifier) and not table.this.quoted and not table.db
    if not isinstance(source, exp.From) or not isinstance(select, exp.Select) or select.args.get("joins"):
        return
    if is_dual and table.name.upper() == "DUAL":
        select.set("from_", None)


def _hinted(tree: exp.Expr) -> tuple[tuple[str, str], ...]:
    """Removes the hints of a query's outermost SELECT and returns the variables that SET_VAR sets.

    Other hints say how Doris plans a query, and are of no effect here.
    """
    first: exp.Expr = tree
    while not isinstance(first, exp.Select) and isinstance(first.this, exp.Expr):
        first = first.this
    hint = first.args.get("hint")
    for select in find_all(tree, exp.Select):
        select.set("hint", None)
    return hinted_variables(hint.sql("doris")) if hint is not None else ()


def hinted_variables(text: str) -> tuple[tuple[str, str], ...]:
    """Returns names and values of the SET_VAR hints in `/*+ SET_VAR(name = value, ..) */`."""
    pairs = []
    for inner in _SET_VAR.findall(text):
        for name, quoted, plain in _PAIR.findall(inner):
            pairs.append((name, quoted[1:-1] if quoted else plain))
    return tuple(pairs)


def _headings(stream: TokenStream, first: int) -> tuple[str, ...] | None:
    """Returns the items of the outermost, leftmost select list as written."""
    begin = _select_list(stream, first)
    if begin is None:
        return None
    stream.at = begin
    if stream.kind() is TokenType.HINT:
        stream.at += 1
    while stream.take_one_of("DISTINCT", "ALL"):
        pass
    if stream.word() in _REFUSED_MODIFIERS and stream.kind(1) not in (TokenType.COMMA, None):
        stream.refuse(f"{stream.word()} is not supported: {_REFUSED_MODIFIERS[stream.word()]}")
    found: list[str] = []
    while not stream.is_done:
        start, end = stream.slice_to(*_LIST_ENDS)
        found.append(stream.text[start:end])
        if not stream.take(","):
            break
    stream.at = len(stream.tokens)
    return tuple(found)


def _select_list(stream: TokenStream, first: int) -> int | None:
    depth = 0
    is_with = stream.tokens[first].text.upper() == "WITH"
    for i in range(first, len(stream.tokens)):
        stream.at = i
        word = stream.word()
        depth += (word == "(") - (word == ")")
        if word == "SELECT" and (depth == 0 or not is_with):
            return i + 1
    return None


def parse_update(stream: TokenStream) -> st.UpdateStatement:
    """Parses `UPDATE t [alias] [JOIN ..] SET .. [FROM ..] [WHERE ..]`."""
    tree = _change_tree(stream)
    if not isinstance(tree, exp.Update) or _is_cut(tree):
        raise InvalidInputError(
            "UPDATE takes SET, FROM and WHERE, on one table also ORDER BY and LIMIT", kind="not_supported"
        )
    return st.UpdateStatement(_target(tree), tree)


def has_sources(tree: exp.Expr) -> bool:
    """Returns whether UPDATE or DELETE reads other tables in FROM or USING, or joins them to its target."""
    target = tree.this.args if isinstance(tree.this, exp.Table) else {}
    return any((tree.args.get("from_"), tree.args.get("using"), target.get("joins"), target.get("laterals")))


def _is_cut(tree: exp.Expr) -> bool:
    """Returns whether a statement on several tables has ORDER BY or LIMIT, as MySQL allows for one only."""
    return has_sources(tree) and bool(tree.args.get("limit") or tree.args.get("order"))


def parse_delete(stream: TokenStream) -> st.DeleteStatement:
    """Parses `DELETE [FROM] t [alias] [USING ..] WHERE ..`, and MySQL's forms with joins.

    Those are `DELETE t FROM t JOIN .. [WHERE ..]` and `DELETE FROM t USING t JOIN .. [WHERE ..]`. Delta's
    documents omit FROM.
    """
    words = (stream.word(i - stream.at) for i in range(len(stream.tokens)))
    head = list(itertools.takewhile(lambda word: word not in ("WHERE", "USING", "JOIN", "("), words))
    tree = _change_tree(_without_stars(stream, head), lacks_from="FROM" not in head)
    stream.at = len(stream.tokens)
    return _delete(tree)


def _without_stars(stream: TokenStream, head: Sequence[str]) -> TokenStream:
    """Blanks `.*` behind the names of MySQL's DELETE, `DELETE t.* FROM ..` and `DELETE FROM t.* USING ..`.

    Args:
        head: the first words of the statement, up to its sources and conditions.
    """
    text = stream.text
    for place, pair in enumerate(itertools.pairwise(head)):
        if pair == (".", "*"):
            start, end = stream.tokens[place].start, stream.tokens[place + 1].end + 1
            text = f"{text[:start]}{' ' * (end - start)}{text[end:]}"
    return replace(stream, text=text) if text != stream.text else stream


def _delete(tree: exp.Expr) -> st.DeleteStatement:
    if isinstance(tree, exp.Delete):
        _settle_target(tree)
    if not isinstance(tree, exp.Delete) or _is_cut(tree):
        raise InvalidInputError(
            "DELETE FROM takes USING and WHERE, on one table also ORDER BY and LIMIT", kind="not_supported"
        )
    return st.DeleteStatement(_target(tree), tree)


def _settle_target(tree: exp.Delete) -> None:
    """Makes the table that MySQL's DELETE with joins names its target.

    1. `DELETE FROM t USING t JOIN ..` names t, and its tables are those of USING.
    2. `DELETE t FROM t JOIN ..`: the first table is the target as it stands.
    3. `DELETE t FROM s JOIN t ON ..` with inner joins only: the other tables go to USING, and ON to WHERE.
    """
    named, target = tree.args.get("tables") or [], tree.this
    if not isinstance(target, exp.Table) and named:  # behind WITH, where FROM may be missing
        tree.set("this", target := named[0])
    tree.set("tables", None)
    using = tree.args.get("using") or []
    is_table = isinstance(target, exp.Table)
    if not named and is_table and any(_is_named(node, target) for node in _joined(using)):
        named = _joined([target])
        tree.set("this", using[0])
        tree.set("using", using[1:] or None)
    if len(named) > 1:
        raise InvalidInputError(
            "DELETE removes rows of one table; run one statement for each, in a transaction",
            kind="not_supported",
        )
    if named:
        _put_first(tree, named[0])


def _joined(nodes: Iterable[exp.Expr]) -> list[exp.Expr]:
    """Returns tables and subqueries with those that are joined to them."""
    found: list[exp.Expr] = []
    for node in nodes:
        found += [node, *(join.this for join in node.args.get("joins") or ())]
    return found


def _is_named(node: exp.Expr, name: exp.Table) -> bool:
    """Returns whether MySQL's DELETE names a table of its FROM, by its alias or as it is written there."""
    if not isinstance(node, exp.Table) or name.alias:
        return False
    if node.alias:
        return node.alias == name.name and not name.db
    return node.name == name.name and (not name.db or node.db == name.db)


def _put_first(tree: exp.Delete, name: exp.Table) -> None:
    """Makes the named table the target of a DELETE."""
    nodes = [tree.this, *(tree.args.get("using") or [])]
    found = [node for node in _joined(nodes) if _is_named(node, name)]
    if len(found) != 1:
        written = f"{name.db}.{name.name}" if name.db else name.name
        raise InvalidInputError(
            f"Unknown table '{written}' in MULTI DELETE; name one table as it is written in FROM, by its "
            "alias if it has one",
            kind="unknown_table",
        )
    if found[0] is tree.this:
        return
    joins = [join for node in nodes for join in node.args.get("joins") or ()]
    if any(join.side or join.method or join.args.get("using") or join.kind not in _INNER for join in joins):
        raise InvalidInputError(
            f"DELETE {name.name} FROM .. takes inner joins with ON; name {name.name} first for others",
            kind="not_supported",
        )
    conditions = [join.args["on"] for join in joins if join.args.get("on") is not None]
    where = tree.args.get("where")
    conditions += [where.this] if where is not None else []
    others = [node for node in _joined(nodes) if node is not found[0]]
    for node in nodes:
        node.set("joins", None)
    tree.set("this", found[0])
    tree.set("using", others)
    tree.set("where", exp.Where(this=exp.and_(*conditions)) if conditions else None)


def parse_merge(stream: TokenStream) -> st.MergeStatement:
    """Parses `MERGE INTO t USING s ON .. WHEN ..`."""
    tree = _change_tree(stream)
    if not isinstance(tree, exp.Merge):
        raise InvalidInputError("expected MERGE INTO .. USING .. ON .. WHEN ..", kind="syntax")
    return st.MergeStatement(_target(tree), tree)


def _change_tree(stream: TokenStream, *, lacks_from: bool = False) -> exp.Expr:
    text, tokens = stream.text, stream.tokens
    start, end = tokens[0].start, tokens[-1].end + 1
    if lacks_from:
        text, end = f"{text[:start]}DELETE FROM{text[start + len('DELETE') :]}", end + len(" FROM")
    inserts = [
        after.start
        for before, after in itertools.pairwise(tokens)
        if before.text.upper() == "INSERT" and after.text.upper() == "VALUES"
    ]
    for offset in reversed(inserts):  # sqlglot needs a column list in INSERT VALUES of a MERGE
        text, end = f"{text[:offset]} ({EVERY_COLUMN}) {text[offset:end]}", end + len(f" ({EVERY_COLUMN}) ")
    stream.at = len(tokens)
    return parse_tree(text, start, end)


def _target(tree: exp.Expr) -> st.TableName:
    target = tree.this
    if not isinstance(target, exp.Table) or not isinstance(target.this, exp.Identifier):
        raise InvalidInputError("target table in update command should be an olapTable", kind="bad_target")
    return st.TableName(target.db or None, target.name)
