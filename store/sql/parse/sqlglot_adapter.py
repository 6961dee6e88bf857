"""sqlglot from 28.0 on: the only module that imports it, and the place where its versions are made alike.

sqlglot renames classes and moves grammar between its minor versions. The names below are those of version 30;
where an older version lacks one, its closest equal stands in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import sqlglot.expressions
from sqlglot import parse_one
from sqlglot.dialects.doris import Doris
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError, TokenError
from sqlglot.tokens import Token, TokenType

from seqstore.store.runtime import cancellation

__all__ = ["Doris", "DorisParser", "DorisTokenizer", "ErrorLevel", "ParseError", "SqlglotError", "Token",
           "TokenError", "TokenType", "TooManyStepsError",
           "copy_tree", "exp", "find_all", "parse_one", "version_keywords", "walk"]  # fmt: skip

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.parsers.doris import DorisParser as _DorisParser
else:
    _DorisParser = Doris.Parser


_Node = TypeVar("_Node", bound="exp.Expr")
_STEPS_MAX: Final = 200_000  # DATE of DATE doubles its attempts too, and twelve of them must be read
_STEPS_A_LOOK: Final = 1_000  # between two looks whether the statement was cancelled
_STEPS_A_TOKEN: Final = 20  # the statements of the tests need at most 3
_PLACE: Final = frozenset(["line", "col", "start", "end"])  # what the parser notes in `meta` of a word
_VERSION: Final = tuple(map(int, sqlglot.__version__.split(".")[:2]))


class _Absent:
    """Stands for an expression class that the installed version never makes."""


def _expressions() -> SimpleNamespace:
    """Collects sqlglot's expression classes and builders under the names of version 30."""
    named = vars(sqlglot.expressions)
    older = {"Expr": named["Expression"]}  # before 30
    absent = dict.fromkeys(("CurrentSchemas", "Localtime", "Localtimestamp"), _Absent)  # before 28.10
    return SimpleNamespace(**{**absent, **older, **named})


if not TYPE_CHECKING:
    exp: Final = _expressions()


def walk(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the nodes of a tree, outer ones first, as the method of sqlglot does; faster.

    A node may be changed while it is the newest one: its children are looked up afterwards.
    """
    nodes = [tree]
    for node in nodes:  # grows
        yield node
        for value in node.args.values():
            if isinstance(value, exp.Expr):
                nodes.append(value)
            elif isinstance(value, list):
                nodes += [child for child in value if isinstance(child, exp.Expr)]


def find_all(tree: exp.Expr, *kinds: type[_Node]) -> Iterator[_Node]:
    """Yields the nodes of some kinds as `walk` does."""
    return (node for node in walk(tree) if isinstance(node, kinds))


def separate_children(node: exp.Expr, seen: set[int]) -> None:
    """Gives each child of a node its place here and no other one: a child that has another is copied.

    Args:
        seen: ids of the nodes that have a place; those of the children are added.
    """
    for name, value in node.args.items():
        if isinstance(value, exp.Expr):
            node.args[name] = _placed(value, node, name, None, seen)
        elif isinstance(value, list):
            for index, child in enumerate(value):
                if isinstance(child, exp.Expr):
                    value[index] = _placed(child, node, name, index, seen)


def _placed(child: exp.Expr, node: exp.Expr, name: str, index: int | None, seen: set[int]) -> exp.Expr:
    own = child.copy() if id(child) in seen else child
    own.parent, own.arg_key, own.index = node, name, index
    seen.add(id(own))
    return own


class Ancestors:
    """The nearest nodes of some kinds above others, in a tree whose nodes stay where they are.

    Each node is passed once, so that thousands of conditions in one chain take linear time.
    """

    def __init__(self, *kinds: type[exp.Expr]) -> None:
        self._kinds = kinds
        self._nearest: dict[int, tuple[exp.Expr, exp.Expr | None]] = {}  # of a node or above it; keeps its id

    def above(self, node: exp.Expr) -> exp.Expr | None:
        """Returns the nearest node above one, None where there is none."""
        passed: list[exp.Expr] = []
        place, nearest = node.parent, None
        while place is not None:
            if id(place) in self._nearest:
                nearest = self._nearest[id(place)][1]
                break
            passed.append(place)
            if isinstance(place, self._kinds):
                nearest = place
                break
            place = place.parent
        self._nearest.update((id(each), (each, nearest)) for each in passed)
        return nearest


def copy_tree(tree: _Node, values: Mapping[int, str] | None = None) -> _Node:
    """Copies a tree as it was parsed, without the places of its words, whose copies take half of the time.

    Args:
        values: other texts for literals, by `id` of the node.
    """
    made: dict[int, exp.Expr] = {}
    for node in reversed(list(walk(tree))):  # inner nodes first
        args: dict[str, Any] = {}
        for name, value in node.args.items():
            if isinstance(value, exp.Expr):
                args[name] = made[id(value)]
            elif type(value) is list:
                args[name] = [made[id(item)] if isinstance(item, exp.Expr) else item for item in value]
            else:
                args[name] = value
        if values is not None and id(node) in values:
            args["this"] = values[id(node)]
        copy = made[id(node)] = type(node)(**args)
        if node.meta and not node.meta.keys() <= _PLACE:
            copy.meta.update(node.meta)
    return made[id(tree)]  # type: ignore[return-value]


class DorisTokenizer(Doris.Tokenizer):
    """sqlglot's tokenizer of Doris; before 28.10 it read backslashes of quoted names as escapes."""

    if not TYPE_CHECKING and _VERSION < (28, 10):

        def _scan_identifier(self, identifier_end: str) -> None:
            self._advance()
            name = self._extract_string(identifier_end, escapes={identifier_end}, raw_string=True)
            self._add(TokenType.IDENTIFIER, name)


class TooManyStepsError(Exception):
    """The parser tries ways through a statement whose number doubles with each word of some kind."""


class DorisParser(_DorisParser):
    """sqlglot's parser of Doris with the hooks of version 30, and with an end to its attempts.

    sqlglot goes back where an attempt fails. Joins without ON or USING that follow each other, for example,
    make two attempts each, so that thirty of them take hours. No statement needs many steps for each token.

    Attributes:
        VERSION_PHRASES: words before a moment or version to read, and which of both they mean.
    """

    # Before 30.10 `UPDATE t, s SET ..` gave s the alias SET, a reserved word of MySQL.
    TABLE_ALIAS_TOKENS: ClassVar[set[TokenType]] = _DorisParser.TABLE_ALIAS_TOKENS - {TokenType.SET}

    VERSION_PHRASES: ClassVar[dict[tuple[str, ...], str]] = getattr(_DorisParser, "VERSION_PHRASES", {})

    _steps = 0
    _steps_max = _STEPS_MAX

    def _advance(self, times: int = 1) -> None:
        self._steps += 1
        if not self._steps % _STEPS_A_LOOK:
            cancellation.check()
        if self._steps > self._steps_max:
            self._steps_max = _STEPS_MAX + _STEPS_A_TOKEN * len(self._tokens)
            if self._steps > self._steps_max:
                raise TooManyStepsError
        super()._advance(times)

    if not TYPE_CHECKING and not hasattr(_DorisParser, "_parse_update_assignment"):  # before 30.22

        def _parse_update_assignment(self) -> exp.Expr | None:
            this = self._parse_comparison()
            if self._match(TokenType.EQ):
                this = exp.EQ(this=this, expression=self._parse_disjunction())
            return this

        def _parse_csv(self, parse_method: Callable[[], Any], *separator: Any, **named: Any) -> list[Any]:
            """Reads assignments, the one list of `_parse_equality`, by their own method."""
            if parse_method == self._parse_equality:
                parse_method = self._parse_update_assignment
            return super()._parse_csv(parse_method, *separator, **named)

    if not TYPE_CHECKING and "order" not in exp.Delete.arg_types:  # before 28.1

        def _parse_delete(self) -> exp.Delete:
            tree = super()._parse_delete()
            if self._match(TokenType.ORDER_BY, advance=False):
                tree.set("order", self._parse_order())
                tree.set("limit", self._parse_limit())
            return tree


def _check_extensible() -> None:
    """Refuses the compiled sqlglot at once: each statement would fail with a misleading syntax error."""
    try:
        DorisParser(dialect=Doris())
    except TypeError as error:
        raise ImportError(
            "SQL needs the interpreted sqlglot: the compiled parser of sqlglotc cannot be extended; "
            "pip uninstall sqlglotc, then pip install --force-reinstall --no-deps sqlglot"
        ) from error


def version_keywords(phrases: dict[tuple[str, ...], str]) -> dict[str, TokenType]:
    """Maps version phrases to token types.

    Before sqlglot 30.15 the tokenizer reads these phrases; since then the parser does.
    """
    if hasattr(_DorisParser, "VERSION_PHRASES"):
        return {}
    kinds = {name: getattr(TokenType, f"{name}_SNAPSHOT") for name in ("TIMESTAMP", "VERSION")}
    return {" ".join(words): kinds[kind] for words, kind in phrases.items()}


_check_extensible()
