"""Texts to statements: a text is split, and the kind that a statement's first words name parses it."""

from __future__ import annotations

from typing import Any, NoReturn

from store.sql.statement_kind import continuations, find_kind, first_words
from store.sql.tokens import TokenStream, split_statements


def parse(text: str) -> list[Any]:
    """Reads a text of statements that are separated by semicolons.

    Raises:
        InvalidInputError: line, column and what was expected there, or what is not supported.
    """
    return [parse_statement(stream) for stream in split_statements(text)]


def parse_statement(stream: TokenStream) -> Any:
    """Reads one statement to its end; a value of one of the classes that the kinds name."""
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
