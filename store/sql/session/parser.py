"""Texts to statements: the first words of each statement name the kind that parses it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NoReturn

from seqstore.store.sql.parse.statement_values import Query
from seqstore.store.sql.parse.tokens import TokenStream, split_statements
from seqstore.store.sql.session.statement_kind import continuations, find_kind, first_words

# Programs repeat short queries, whose parsing is slower than their evaluation.
_REMEMBERED_LENGTH_MAX: Final = 2000


def parse(text: str) -> list[Any]:
    """Reads a text of statements that are separated by semicolons.

    Raises:
        InvalidInputError: names line and column, with the expected words or the unsupported clause.
    """
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
    kind = find_kind(stream)
    if kind is None:
        _fail(stream)
    statement = kind.parse(stream)
    stream.need_end()
    return statement


def _fail(stream: TokenStream) -> NoReturn:
    following = continuations(stream.word())
    if not following:
        known = first_words()
        stream.fail(f"a statement such as SELECT ({', '.join(known[:-1])} or {known[-1]})")
    stream.at += 1
    stream.fail(" or ".join(following))
