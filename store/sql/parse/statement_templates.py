"""Statements that differ in their literals alone are parsed once, then filled with the literals of each.

1. A regular expression takes the numbers and the plain texts out of a statement; what is left is its shape.
   Comments, variables, and texts with escapes or double quotes have no shape.
2. A shape that comes a second time is parsed with a probe for each literal: a value that no other place has.
3. The tree is a template if it consists of nodes whose parsing does not depend on the value of a literal
   (`_PLAIN`), and has each probe exactly once, as a literal.
4. Later statements of the shape are copies of that tree with their own literals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import copy_tree, exp, walk
from seqstore.store.sql.parse.statement_values import DeleteStatement, Query, UpdateStatement

LITERAL: Final = "literal"
_SHAPES: Final = 512
# A quoted name; else a text without escapes, or a number that is no part of a word or of another number.
_LITERAL: Final = re.compile(
    "`[^`]*`|(?<![\\w'])'(?P<text>[^'\\\\\ud800-\udfff]*)'(?!')"
    r"|(?<![\w.$@])(?P<number>[0-9]+(?P<fraction>\.[0-9]+)?)(?![\w.$@])"
)
_SHAPELESS: Final = re.compile("['\"\\\\#;?@\ud800-\udfff]|--|->|/\\*")
_TEXT, _INTEGER, _DECIMAL = "\0t", "\0i", "\0d"
_MARK: Final = re.compile("\0[tid]")
_PLAIN: Final = frozenset(
    [
        exp.Select, exp.Update, exp.Delete, exp.From, exp.Join, exp.Table, exp.TableAlias, exp.Where,
        exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.Distinct, exp.Alias,
        exp.Column, exp.Identifier, exp.Star, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Tuple,
        exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.In,
        exp.Between, exp.Like, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Count, exp.Sum, exp.Avg,
        exp.Min, exp.Max,
    ]
)  # fmt: skip


@dataclass(frozen=True)
class _Template:
    """A parsed statement whose literals are probes.

    Attributes:
        probes: `id` of their nodes in the tree, in the order of the text; `meta` of each has its number.
        shape: what the queries share.
    """

    statement: Any
    probes: tuple[int, ...]
    shape: dict[Hashable, Any] = field(default_factory=dict)

    def filled(self, literals: Sequence[str]) -> Any:
        tree = copy_tree(self.statement.tree, dict(zip(self.probes, literals, strict=True)))
        if isinstance(self.statement, Query):
            return self.statement.of_shape(tree, self.shape, literals)
        return replace(self.statement, tree=tree)


class StatementTemplates:
    """The templates of the shapes that came most recently.

    Args:
        parse: parses a text that is one statement.
    """

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self._parse = parse
        self._template = lru_cache(_SHAPES)(self._made)
        self._came_before = lru_cache(_SHAPES)(lambda _shape: [False])

    def parsed(self, text: str) -> Any:
        """Returns the parsed statement of a text by a template, None where there is none."""
        found = shape_of(text)
        if found is None:
            return None
        shape, literals = found
        came_before = self._came_before(shape)
        if not came_before[0]:
            came_before[0] = True
            return None
        template = self._template(shape)
        return template.filled(literals) if template is not None else None

    def _made(self, shape: str) -> _Template | None:
        marks = [mark.group() for mark in _MARK.finditer(shape)]
        probes = [_probe(mark, number) for number, mark in enumerate(marks)]
        left = iter(probes)
        quote = {_TEXT: "'"}
        try:
            statement = self._parse(
                _MARK.sub(lambda mark: f"{(q := quote.get(mark.group(), ''))}{next(left)}{q}", shape)
            )
        except InvalidInputError:  # the statement itself is parsed for its error
            return None
        return _template(statement, marks, probes)


def of_own_shape(query: Query) -> Query:
    """Returns a query that was parsed alone with a shape of its own, for the next time that it runs."""
    nodes = list(walk(query.tree))
    if not all(type(node) in _PLAIN for node in nodes):
        return query
    literals = [node for node in nodes if isinstance(node, exp.Literal)]
    for number, node in enumerate(literals):
        node.meta[LITERAL] = number
    return query.of_shape(query.tree, {}, [node.this for node in literals])


def shape_of(text: str) -> tuple[str, list[str]] | None:
    """Returns a statement without its literals, and those; None for a text that has no shape."""
    if "\0" in text:
        return None
    parts: list[str] = []
    literals: list[str] = []
    end = 0
    for piece in _LITERAL.finditer(text):
        value = piece["text"]
        if value is not None:
            mark = _TEXT
        elif (value := piece["number"]) is not None:
            mark = _INTEGER if piece["fraction"] is None else _DECIMAL
        else:
            continue
        parts += (text[end : piece.start()], mark)
        literals.append(value)
        end = piece.end()
    parts.append(text[end:])
    shape = "".join(parts)
    return (shape, literals) if literals and _SHAPELESS.search(shape) is None else None


def _probe(mark: str, number: int) -> str:
    """Returns a literal that stands for one place of a shape."""
    if mark == _TEXT:
        return f"probe {number}"
    return f"{7_000_000_000 + number}" + (".5" if mark == _DECIMAL else "")


def _template(statement: Any, marks: Sequence[str], probes: Sequence[str]) -> _Template | None:
    if type(statement) not in (Query, UpdateStatement, DeleteStatement):
        return None
    headings = statement.headings or () if isinstance(statement, Query) else ()
    if any(probe in heading for heading in headings for probe in probes):
        return None
    nodes = list(walk(statement.tree))
    if not all(type(node) in _PLAIN for node in nodes):
        return None
    found: dict[tuple[str, bool], list[exp.Literal]] = {}
    for node in nodes:
        if isinstance(node, exp.Literal):
            found.setdefault((node.this, node.is_string), []).append(node)
    wanted = [found.pop((probe, mark == _TEXT), []) for mark, probe in zip(marks, probes, strict=True)]
    if found or any(len(same) != 1 for same in wanted):
        return None
    for number, [probe] in enumerate(wanted):
        probe.meta[LITERAL] = number
    return _Template(statement, tuple(id(probe) for [probe] in wanted))
