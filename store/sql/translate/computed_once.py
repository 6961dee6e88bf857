"""Arguments that DuckDB computes once, however often a function uses them.

DuckDB binds an argument of a macro once for each use in the macro's body, and the operand of BETWEEN, IN,
NULLIF and CASE x WHEN once for each comparison, with the calls in it: nested calls would take time and memory
that grow exponentially with their depth. An element of a list is computed once by a lambda, so

    f(g(x))  becomes  list_transform([g(x)], LAMBDA v : f(v))[1]

1. Translations of functions that use an argument several times do so with `once`.
2. `compute_once` goes through a translated tree, outer nodes first, and counts how often each call or
   condition would be bound. Above `_COPIES_WRAPPED` it has the arguments of the one around it computed once.
3. What has no such form, as an aggregate function, and is bound too often, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all, separate_children, walk
from seqstore.store.sql.translate.argument_copies import argument_copies
from seqstore.store.sql.translate.calls import call
from seqstore.store.sql.translate.macros.unchosen import AGGREGATE_MACROS, is_aggregate
from seqstore.store.sql.translate.value_types import note, type_of

_VALUE: Final = "__once__"  # no name of a column or of a lambda's parameter
_COPIES_WRAPPED: Final = 4  # below, a lambda costs more than the copies
_COPIES_MAX: Final = 2_000  # each is bound in 0.1 to 1 ms
_NODES_MAX: Final = 30  # of an argument that `once` copies
_CONSTANTS: Final = (exp.Literal, exp.Null, exp.Boolean)
_VALUES: Final = (exp.Column, exp.AggFunc, exp.Window, exp.Query, exp.Exists)
_GROWING: Final = (exp.Anonymous, exp.Between, exp.In, exp.Nullif, exp.Case)


def once(values: Sequence[exp.Expr], build: Callable[..., exp.Expr], *, in_lambda: bool = False) -> exp.Expr:
    """Builds an expression that uses values several times.

    Args:
        build: makes it of as many expressions, and copies those that it uses again.
        in_lambda: never copies a value. Of copies in a branch of COALESCE or CASE, DuckDB makes one value
            that it computes for all rows, also for those that take another branch.
    """
    large = [place for place, value in enumerate(values) if in_lambda or _is_large(value)]
    if not large:
        return build(*values)
    element, references = _element([values[place] for place in large])
    given = list(values)
    for place, reference in zip(large, references, strict=True):
        given[place] = note(reference, type_of(values[place]))
    return element(build(*given))


def _is_large(value: exp.Expr) -> bool:
    return next(islice(walk(value), _NODES_MAX, None), None) is not None


def compute_once(tree: exp.Expr) -> None:
    """Runs steps 2 and 3 for a translated tree.

    Raises:
        InvalidInputError: a call or condition would be bound more than `_COPIES_MAX` times.
    """
    if next(islice(find_all(tree, *_GROWING), 1, None), None) is None:
        return
    around: dict[int, tuple[exp.Expr | None, int]] = {id(tree): (None, 1)}  # of a node; how often it binds it
    growing: list[exp.Expr] = []
    seen = {id(tree)}
    for node in walk(tree):  # outer ones first
        separate_children(node, seen)  # a parent is right then, even if a translator used a node twice
        above = node.parent
        if node is not tree and above is not None:
            own = (above, _copies(above, node)) if _is_growing(above) else around[id(above)]
            around[id(node)] = own
        if _is_growing(node):
            growing.append(node)
    bound: dict[int, int] = {}
    wrapped: set[int] = set()
    for node in growing:
        near, times = around[id(node)]
        outside = 1 if near is None else bound[id(near)]
        if near is not None and times > 1 and id(near) not in wrapped:
            may_wrap = outside * times > _COPIES_WRAPPED and near is not tree
            if may_wrap and _wrap(near):
                wrapped.add(id(near))
        bound[id(node)] = outside if id(near) in wrapped else outside * times
        if bound[id(node)] > _COPIES_MAX:
            raise InvalidInputError(
                f"calls are nested so deeply that one would be bound {bound[id(node)]} times, more than "
                f"{_COPIES_MAX}; compute a part in a subquery or in another column",
                kind="not_supported",
            )


def _is_growing(node: exp.Expr) -> bool:
    """Returns whether binding a node binds some of the nodes below it repeatedly."""
    if isinstance(node, exp.Anonymous):
        return str(node.this) in argument_copies()
    return isinstance(node, _GROWING)


def _copies(node: exp.Expr, below: exp.Expr) -> int:
    """Returns how often binding a node binds one below it."""
    if isinstance(node, exp.Anonymous):
        counts, place = argument_copies()[str(node.this)], below.index or 0
        return counts[place] if place < len(counts) else 1
    if below.arg_key != "this":
        return 1
    if isinstance(node, exp.Case):
        return len(node.args["ifs"])
    if isinstance(node, exp.In):
        return 1 if node.args.get("query") is not None else max(len(node.expressions), 2)
    return 2


def _wrap(node: exp.Expr) -> bool:
    """Has the arguments of a call, or the operand of a condition, computed once; returns whether it could.

    The lambda reads nothing from outside: older versions of DuckDB lose the tables of a subquery in it.
    """
    if isinstance(node, exp.Anonymous):
        if str(node.this) in AGGREGATE_MACROS:
            return False
        values = [value for value in node.expressions if not _is_constant(value)]
    else:
        others = [child for child in node.iter_expressions() if child is not node.this]
        if any(child.find(exp.Any, exp.All, exp.In) is not None for child in others):
            return False
        values = [node.this, *(value for child in others for value in _values_of(child))]
    place = exp.null()  # where the node was
    node.replace(place)
    references = [exp.null() for _ in values]
    for value, reference in zip(values, references, strict=True):
        value.replace(reference)
    element, elements = _element(values)
    for reference, named in zip(references, elements, strict=True):
        reference.replace(named)
    place.replace(element(node))
    return True


def _is_constant(value: exp.Expr) -> bool:
    return isinstance(value, _CONSTANTS) or (isinstance(value, exp.Interval) and _is_constant(value.this))


def _values_of(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the columns, aggregates, window functions and subqueries of an expression, outer ones alone."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, _VALUES) or (isinstance(node, exp.Anonymous) and is_aggregate(node)):
            yield node
        elif not isinstance(node, exp.Lambda):
            nodes += node.iter_expressions()


def _element(values: Sequence[exp.Expr]) -> tuple[Callable[[exp.Expr], exp.Expr], list[exp.Expr]]:
    """Returns what makes an expression of values the element of a list, and the values' names in it."""
    value = exp.to_identifier(_VALUE, quoted=True)
    listed, references = values[0], list[exp.Expr]([exp.column(value.copy())])
    if len(values) > 1:  # in a struct without names: DuckDB 1 loses those of a subquery's
        listed = call("row", *values)
        references = [
            call("struct_extract", exp.column(value.copy()), exp.Literal.number(place))
            for place in range(1, len(values) + 1)
        ]

    def element(body: exp.Expr) -> exp.Expr:
        function = exp.Lambda(this=body, expressions=[value], colon=True)
        found = call("list_transform", call("list_value", listed), function)
        return call("list_extract", found, exp.Literal.number(1))

    return element, references
