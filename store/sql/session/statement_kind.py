"""Kinds of statements, and the parse of a text by the kind that the first words of each statement name.

1. Every module of `sql.statements` is one family of statements and lists its kinds in `KINDS`. A new family
   needs only a new module there. A statement of the words in `HOMES` imports only the families named there;
   any other statement imports all of them.
2. A kind has the words it starts with, the class of its value, a function that parses the rest, and one that
   runs it.
3. Of all kinds whose words a text starts with, the one with the most words parses it. A `*` among the words
   stands for a table name: `"ALTER TABLE * ADD PARTITION"` precedes `"ALTER TABLE"`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, Final, Generic, TypeVar

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.literal_rows import literal_rows
from seqstore.store.sql.parse.nesting import levels_checked
from seqstore.store.sql.parse.statement_templates import StatementTemplates, of_own_shape
from seqstore.store.sql.parse.statement_values import Insert, Query
from seqstore.store.sql.parse.tokens import TokenStream, split_statements
from seqstore.store.sql.result import Result

S = TypeVar("S")
C = TypeVar("C")  # the session, whose module imports this one
# Programs repeat short queries, whose parsing is slower than their evaluation.
_REMEMBERED_LENGTH_MAX: Final = 2000
_KINDS: Final = "seqstore.store.sql.statements"
_known: dict[type, StatementKind[Any, Any]] = {}


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
def _family_names() -> tuple[str, ...]:
    return tuple(module.name for module in pkgutil.iter_modules(importlib.import_module(_KINDS).__path__))


def _families(names: Iterable[str]) -> list[ModuleType]:
    """Imports some modules of `sql.statements`."""
    return [importlib.import_module(f"{_KINDS}.{name}") for name in names]


def _homes() -> dict[str, tuple[str, ...]]:
    homes: dict[str, tuple[str, ...]] = importlib.import_module(_KINDS).HOMES
    return homes


def _names_of(first_word: str) -> tuple[str, ...]:
    """Returns the modules that hold all kinds and wrappers of a first word."""
    return _homes().get(first_word) or _family_names()


@cache
def all_kinds() -> tuple[StatementKind[Any, Any], ...]:
    """Collects the kinds of every module in `sql.statements`, and so imports all of them."""
    return tuple(kind for module in _families(_family_names()) for kind in module.KINDS)


@cache
def _by_first_word(
    families: tuple[str, ...],
) -> dict[str, list[tuple[tuple[str, ...], StatementKind[Any, Any]]]]:
    """Groups word lists and kinds of some modules by their first word, the longest first."""
    found: dict[str, list[tuple[tuple[str, ...], StatementKind[Any, Any]]]] = {}
    for kind in (kind for module in _families(families) for kind in module.KINDS):
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


def kind_of(statement: type) -> StatementKind[Any, Any] | None:
    """Returns the kind of a class of parsed statements, None for any other class."""
    if statement not in _known:
        for name in {name for names in _homes().values() for name in names}:
            module = sys.modules.get(f"{_KINDS}.{name}")
            _known.update({kind.statement: kind for kind in getattr(module, "KINDS", ())})
    if statement not in _known:
        _known.update(kinds_by_class())
    return _known.get(statement)


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
    found = _by_first_word(_family_names()).items()
    return sorted(w for w, kinds_ in found if w.isalpha() and not all(kind.is_refused for _, kind in kinds_))


def parse(text: str) -> list[Any]:
    """Reads a text of statements that are separated by semicolons.

    Raises:
        InvalidInputError: names line and column, with the expected words or the unsupported clause.
    """
    with levels_checked():
        found = _parsed_shortly(text)
        return [found] if found is not None else [parse_statement(each) for each in split_statements(text)]


def _parsed_shortly(text: str) -> Any:
    """Parses a text by what is known of those before it, or as rows of literals; None for other texts."""
    first_word = text.lstrip()[:7].upper()
    if first_word.startswith(("INSERT", "REPLACE")):
        return _insert_of_literals(text)
    if len(text) > _REMEMBERED_LENGTH_MAX:
        return None
    if first_word.startswith(("SELECT", "WITH")):
        return _parsed_query(text)
    return _templates.parsed(text) if first_word.startswith(("UPDATE", "DELETE")) else None


def _insert_of_literals(text: str) -> Insert | None:
    found = literal_rows(text)
    if found is None:
        return None
    try:
        statement = _parsed_frame(found.frame)
    except InvalidInputError:  # the whole statement is parsed for its error
        return None
    # The word VALUES may stand within a query, too.
    if not isinstance(statement, Insert) or statement.query is not None or statement.rows != ((),):
        return None
    assignments = tuple((name, tree.copy()) for name, tree in statement.on_duplicate)
    return replace(statement, rows=found.rows, on_duplicate=assignments)


@lru_cache(maxsize=512)
def _parsed_frame(frame: str) -> Any:
    """Parses an INSERT without its rows."""
    return _parsed_alone(frame)


@lru_cache(maxsize=512)
def _parsed_query(text: str) -> Query | None:
    """Parses a text that is one query, None for any other text; callers must not change the shared tree."""
    statement = _templates.parsed(text)
    if statement is None:
        statement = _parsed_alone(text)
        return of_own_shape(statement) if isinstance(statement, Query) else None
    return statement if isinstance(statement, Query) else None


def _parsed_alone(text: str) -> Any:
    """Parses a text that is one statement, None for any other text."""
    streams = split_statements(text)
    return parse_statement(streams[0]) if len(streams) == 1 else None


_templates: Final = StatementTemplates(_parsed_alone)


def parse_statement(stream: TokenStream) -> Any:
    """Reads one statement to its end, as a value of the class that its kind names."""
    wrapper = _wrappers(_names_of(stream.first_word)).get(stream.first_word)
    statement = wrapper(stream) if wrapper is not None else None
    return statement if statement is not None else parse_plain_statement(stream)


@cache
def _wrappers(families: tuple[str, ...]) -> dict[str, Callable[[TokenStream], Any]]:
    """Collects the `WRAPPERS` of some modules: by first word, the parser of a statement that may stand around
    another; it returns None for one that does not."""
    found = _families(families)
    return {word: parse for module in found for word, parse in getattr(module, "WRAPPERS", {}).items()}


def parse_plain_statement(stream: TokenStream) -> Any:
    """Reads one statement that stands around no other."""
    kinds = _by_first_word(_names_of(stream.first_word)).get(stream.first_word, ())
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
