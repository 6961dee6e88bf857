"""Kinds of statements, and the parse of a text by the kind that the first words of each statement name.

1. Every module of `sql.statements` is one family of statements and lists its kinds in `KINDS`. A new family
   needs only a new module there.
2. A kind has the words it starts with, the class of its value, a function that parses the rest, and one that
   runs it.
3. Of all kinds whose words a text starts with, the one with the most words parses it. A `*` among the words
   stands for a table name: `"ALTER TABLE * ADD PARTITION"` precedes `"ALTER TABLE"`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final, Generic, TypeVar

from seqstore.store.sql.parse.nesting import levels_checked
from seqstore.store.sql.parse.statement_values import Query
from seqstore.store.sql.parse.tokens import TokenStream, split_statements
from seqstore.store.sql.result import Result

S = TypeVar("S")
C = TypeVar("C")  # the session, whose module imports this one
# Programs repeat short queries, whose parsing is slower than their evaluation.
_REMEMBERED_LENGTH_MAX: Final = 2000
_KINDS: Final = "seqstore.store.sql.statements"


@dataclass(frozen=True)
class StatementKind(Generic[S, C]):
    """One kind of statement.

    Attributes:
        starts: the words it may start with, upper case, separated by blanks; `*` is a table name.
        statement: class of the parsed value; no two kinds share one.
        parse: reads the rest, from behind the words, or from the first `*` on; it must read all tokens.
        run: runs the statement; None stands for a result without rows or outcome.
        is_refused: the statement is not supported, so errors do not suggest it.
        is_around: the statement stands around another; `WRAPPERS` read it, its words only name it.
    """

    starts: tuple[str, ...]
    statement: type[S]
    parse: Callable[[TokenStream], S]
    run: Callable[[S, C], Result | None]
    is_refused: bool = False
    is_around: bool = False


@cache
def all_kinds() -> tuple[StatementKind[Any, Any], ...]:
    """Collects the kinds of every module in `sql.statements`."""
    found: list[StatementKind[Any, Any]] = []
    for module in pkgutil.iter_modules(importlib.import_module(_KINDS).__path__):
        found += importlib.import_module(f"{_KINDS}.{module.name}").KINDS
    return tuple(found)


@cache
def _by_first_word() -> dict[str, list[tuple[tuple[str, ...], StatementKind[Any, Any]]]]:
    """Groups word lists and kinds by their first word, the longest first."""
    found: dict[str, list[tuple[tuple[str, ...], StatementKind[Any, Any]]]] = {}
    for kind in all_kinds():
        for start in kind.starts if not kind.is_around else ():
            words = tuple(start.split())
            found.setdefault(words[0], []).append((words, kind))
    for entries in found.values():
        entries.sort(key=lambda entry: -len(entry[0]))
    return found


@cache
def kinds_by_class() -> dict[type, StatementKind[Any, Any]]:
    """Returns each kind by the class of its parsed statements."""
    return {kind.statement: kind for kind in all_kinds()}


def _matches(stream: TokenStream, words: tuple[str, ...]) -> bool:
    ahead = 0
    for word in words:
        if word == "*":
            if stream.kind(ahead) is None:
                return False
            ahead += 1
            while stream.word(ahead) == "." and stream.kind(ahead + 1) is not None:
                ahead += 2
        elif stream.word(ahead) == word:
            ahead += 1
        else:
            return False
    return True


def _first_words() -> list[str]:
    found = _by_first_word().items()
    return sorted(w for w, kinds_ in found if w.isalpha() and not all(kind.is_refused for _, kind in kinds_))


def parse(text: str) -> list[Any]:
    """Reads a text of statements that are separated by semicolons.

    Raises:
        InvalidInputError: names line and column, with the expected words or the unsupported clause.
    """
    with levels_checked():
        if len(text) <= _REMEMBERED_LENGTH_MAX and text.lstrip()[:6].upper() == "SELECT":
            remembered = _parsed_query(text)
            if remembered is not None:
                return [remembered]
        return [parse_statement(stream) for stream in split_statements(text)]


@lru_cache(maxsize=512)
def _parsed_query(text: str) -> Query | None:
    """Parses a text that is one query, None for any other text; callers must not change the shared tree."""
    streams = split_statements(text)
    statement = parse_statement(streams[0]) if len(streams) == 1 else None
    return statement if isinstance(statement, Query) else None


def parse_statement(stream: TokenStream) -> Any:
    """Reads one statement to its end, as a value of the class that its kind names."""
    wrapper = _wrappers().get(stream.first_word)
    statement = wrapper(stream) if wrapper is not None else None
    return statement if statement is not None else parse_plain_statement(stream)


@cache
def _wrappers() -> dict[str, Callable[[TokenStream], Any]]:
    """Collects the `WRAPPERS` of the modules: by first word, the parser of a statement that may stand around
    another; it returns None for one that does not."""
    modules = pkgutil.iter_modules(importlib.import_module(_KINDS).__path__)
    found = (importlib.import_module(f"{_KINDS}.{module.name}") for module in modules)
    return {word: parse for module in found for word, parse in getattr(module, "WRAPPERS", {}).items()}


def parse_plain_statement(stream: TokenStream) -> Any:
    """Reads one statement that stands around no other."""
    kinds = _by_first_word().get(stream.first_word, ())
    for words, kind in kinds:
        if len(words) == 1 or _matches(stream, words):
            stream.at += words.index("*") if "*" in words else len(words)
            statement = kind.parse(stream)
            if stream.at < len(stream.tokens):
                stream.need_end()
            return statement
    following = sorted({words[1] for words, kind in kinds if len(words) > 1 and not kind.is_refused})
    if not following:
        known = _first_words()
        stream.fail(f"a statement such as SELECT ({', '.join(known[:-1])} or {known[-1]})")
    stream.at += 1
    stream.fail(" or ".join(following))
