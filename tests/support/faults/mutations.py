"""One-line faults of a module: what `make mutants` changes, and the text of the module with each change."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}  # fmt: skip
_Path = tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class Mutant:
    """One changed place of a module.

    Attributes:
        lines: first and last line of the statement, or of its head, that has the place.
        function: the outermost function around it, by its name within the module.
        before, after: the statement or expression, in the words of `ast.unparse`.
        number: of the place among those with the same words.
    """

    module: str
    lines: tuple[int, int]
    function: str
    before: str
    after: str
    number: int = 0

    @property
    def name(self) -> str:
        """What identifies it when lines have moved."""
        return f"{self.module}: {self.before} -> {self.after}" + (f" #{self.number}" if self.number else "")


def mutants_of(root: Path, module: str) -> Iterator[tuple[Mutant, Callable[[], str]]]:
    """Yields the mutants of a module, with functions that return the text of the module with each."""
    tree = ast.parse((root / module).read_text())
    seen: dict[str, int] = {}
    for path in _places(tree):
        for changed in _changes(_at(tree, path)):
            place = _at(tree, path)
            found = Mutant(module, _lines(tree, path), _function(tree, path), _words(place), _words(changed))
            number = seen[found.name] = seen.get(found.name, -1) + 1
            yield replace(found, number=number), partial(_text, tree, path, changed)


def _text(tree: ast.AST, path: _Path, changed: ast.AST) -> str:
    """Returns the text of a module with one change."""
    other = copy.deepcopy(tree)
    _put(other, path, changed)
    return ast.unparse(ast.fix_missing_locations(other))


def _places(node: ast.AST, path: _Path = (), *, is_inside: bool = False) -> Iterator[_Path]:
    """Yields the paths of the places that may be changed: bodies of functions without messages and types."""
    if is_inside and path and hasattr(node, "lineno"):
        yield path
    if isinstance(node, (ast.JoinedStr, ast.Raise, ast.Assert)):
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        for i, child in enumerate(node.body):
            yield from _places(child, (*path, ("body", i)), is_inside=True)
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "decorator_list", "returns", "bases"):
            continue
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for at, child in children:
            if isinstance(child, ast.AST):
                yield from _places(child, (*path, (name, at)), is_inside=is_inside)


def _at(tree: ast.AST, path: _Path) -> Any:
    node: Any = tree
    for name, i in path:
        node = getattr(node, name) if i is None else getattr(node, name)[i]
    return node


def _lines(tree: ast.AST, path: _Path) -> tuple[int, int]:
    """Returns the lines of the innermost statement on a path; of a compound statement those of its head."""
    nodes = [_at(tree, path[:depth]) for depth in range(1, len(path) + 1)]
    statement = next(node for node in reversed(nodes) if isinstance(node, ast.stmt))
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if body else statement.end_lineno or statement.lineno
    return statement.lineno, max(statement.lineno, last)


def _function(tree: ast.AST, path: _Path) -> str:
    """Returns the name of the outermost function on a path, with the classes around it."""
    names: list[str] = []
    for depth in range(1, len(path) + 1):
        node = _at(tree, path[:depth])
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.append(node.name)
            if not isinstance(node, ast.ClassDef):
                break
    return ".".join(names)


def without_effect(text: str) -> str:
    """Returns the text of a module whose functions fail as soon as they are called."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = [*ast.parse("raise SystemError").body, *node.body]
    return ast.unparse(ast.fix_missing_locations(tree))


def lines_of_functions(text: str) -> set[int]:
    """Returns the lines of a module that run only when a function of it is called."""
    functions = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    return {
        line
        for node in functions
        for line in range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
    }


def _put(tree: ast.AST, path: _Path, changed: ast.AST) -> None:
    parent, (name, i) = _at(tree, path[:-1]), path[-1]
    if i is None:
        setattr(parent, name, changed)
    else:
        getattr(parent, name)[i] = changed


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields what may stand in place of a statement or an expression."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED:
        yield ast.Compare(node.left, [_COMPARED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        for i in range(len(node.values)):
            rest = [value for j, value in enumerate(node.values) if j != i]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        yield ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, (ast.If, ast.While)):
        changed = copy.copy(node)
        changed.test = ast.UnaryOp(ast.Not(), node.test)
        yield changed
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        yield from _without_condition(node)
    elif _is_removable(node):
        yield ast.Pass()


def _without_condition(node: Any) -> Iterator[ast.AST]:
    for i, generator in enumerate(node.generators):
        for j in range(len(generator.ifs)):
            changed = copy.deepcopy(node)
            del changed.generators[i].ifs[j]
            yield changed


def _is_removable(node: ast.AST) -> bool:
    """Whether a statement may be left out without a name that is missing behind it."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, (ast.Call, ast.Await))
    if isinstance(node, ast.Assign):
        return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
    return isinstance(node, (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete))


def _words(node: ast.AST) -> str:
    text = ast.unparse(ast.fix_missing_locations(copy.deepcopy(node)))
    return text.splitlines()[0]
