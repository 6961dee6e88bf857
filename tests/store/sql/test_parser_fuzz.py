"""Damaged statements: whatever the damage, the parser reads them or raises its own error."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql import parse
from seqstore.store.sql.parse.tokens import is_complete
from seqstore.store.sql.session.statement_kind import all_kinds, kinds_by_class
from tests.seeds import new_seed
from tests.weight import by_form

STATEMENTS = (Path(__file__).parent / "fuzz_statements.sql").read_text(encoding="utf-8").splitlines()
PIECES = [
    *"()[]{}<>,;.'\"`\\@#*/-=+:?!$%^&|~\n\0",
    *("SELECT", "FROM", "VALUES", "KEY", "NULL", "DEFAULT", "CAST", "AS", "ORDER", "BY", "INTERVAL", "CASE"),
    *("END", "ARRAY", "MAP", "1", "1e", "0x", "@@", "/*", "*/", "--", "你"),
]


@some.composite
def damaged(draw: some.DrawFn) -> str:
    """A valid statement with a few pieces cut, doubled or put in."""
    text = draw(some.sampled_from(STATEMENTS))
    for _ in range(draw(some.integers(1, 4))):
        start = draw(some.integers(0, len(text)))
        end = min(len(text), start + draw(some.integers(0, 12)))
        piece = draw(
            some.one_of(some.sampled_from(PIECES), some.text(max_size=3), some.just(text[start:end] * 2))
        )
        text = text[:start] + piece + text[end:]
    return text


def complaint(text: str) -> InvalidInputError | None:
    """The parser's error, None when the text is read; anything else it raises fails the test."""
    try:
        parse(text)
    except InvalidInputError as error:
        return error
    return None


@settings(max_examples=by_form(200, 600), deadline=None)
@given(damaged())
def test_a_damaged_statement_is_read_or_refused_in_our_own_words(text: str) -> None:
    is_complete(text)
    error = complaint(text)
    assert error is None or str(error)
    if error is not None and "line" in error.fields:
        assert 1 <= error.line <= text.count("\n") + 1


def mutated(choose: random.Random) -> str:
    """A valid statement with one to three pieces cut, doubled or put in."""
    text = choose.choice(STATEMENTS)
    for _ in range(choose.randint(1, 3)):
        start = choose.randint(0, len(text))
        end = min(len(text), start + choose.randint(0, 12))
        piece = choose.choice([choose.choice(PIECES), text[start:end] * 2, ""])
        text = text[:start] + piece + text[end:]
    return text


def test_thousands_of_damaged_statements_raise_nothing_but_our_own() -> None:
    seed, statements = new_seed(), by_form(3_000, 20_000)
    print(f"seed {seed}")  # shown when it fails
    choose = random.Random(seed)
    refused = sum(complaint(mutated(choose)) is not None for _ in range(statements))
    assert refused > statements // 2  # most damage is seen


@pytest.mark.torture
def test_two_million_damaged_statements_raise_nothing_but_our_own() -> None:
    seed = new_seed()
    print(f"seed {seed}")
    choose = random.Random(seed)
    refused = sum(complaint(mutated(choose)) is not None for _ in range(2_000_000))
    assert refused > 1_000_000


def test_every_kind_of_statement_is_among_those_that_are_damaged() -> None:
    readable = [statement for text in STATEMENTS if complaint(text) is None for statement in parse(text)]
    kinds = {kinds_by_class()[type(statement)] for statement in readable}
    assert [kind.starts[0] for kind in all_kinds() if kind not in kinds and not kind.is_refused] == []


@settings(max_examples=200, deadline=None)
@given(some.text(max_size=40))
def test_any_text_is_read_or_refused_in_our_own_words(text: str) -> None:
    error = complaint(text)
    assert error is None or str(error)
