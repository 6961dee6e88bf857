"""Statements that no user should write, made up from a seed: known ones with parts of others in them.

The grammar is that of the statements themselves. A change takes away, doubles, exchanges or nests tokens and
parenthesised parts, or puts in a part of another statement. Few changes are of single characters.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[3]
_PAGES: Final = ("README.md", "docs/*.md")
_BLOCK: Final = re.compile(r"^```sql[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TOKEN: Final = re.compile(
    r"""\s+|\w+|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|<=>|[<>!=]=|.""", re.DOTALL
)
_NASTY: Final = (
    *("NULL", "DEFAULT", "*", "(", ")", ",", ";", "'", '"', "`", "@", "@@", "?", ".", "..", "/*", "--", "\\"),
    *("\0", "0", "-1", "1e999", "9" * 41, "''", "'\\", "x'f'", "0x", "1.", ".5e", "\u00e9", "\U0001f600"),
    *("'2024-02-30'", "'9999-12-31 23:59:59.9999999'", "INTERVAL 1 DAY", "CAST(1 AS DECIMAL(99, 99))"),
    *(
        "`a b`",
        "db.t",
        "information_schema.columns",
        "a.b.c.d",
        "t.*",
        "CASE WHEN 1 THEN",
        "END",
        "USING (k)",
    ),
    *("OVER (PARTITION BY k)", "GROUP BY ROLLUP(k)", "LIMIT 1 OFFSET -1", "FOR VERSION AS OF 99", "IN ()"),
    *(
        "LATERAL",
        "WITH RECURSIVE x AS (SELECT 1)",
        "AS",
        "AND",
        "NOT",
        "BETWEEN",
        "LIKE '%_\\'",
        "::INT",
        "->",
    ),
    *("PROPERTIES ('a' = 'b')", "PARTITION (p1)", "{d '2024-01-01'}", "ARRAY<INT>", "MAP<INT,"),
)
_NESTS: Final = (("(", ")"), ("NOT (", ")"), ("(SELECT ", ")"), ("abs(", ")"), ("CASE WHEN ", " THEN 1 END"))
_LETTERS: Final = ("\0", "\t", "'", "(", "\\", "`", "\ud7ff", "\n", ";", "=", "0", "x")


@cache
def statements_of_the_manual() -> tuple[str, ...]:
    """The statements of all pages."""
    blocks = [block for pattern in _PAGES for page in sorted(_ROOT.glob(pattern))
              for block in _BLOCK.findall(page.read_text())]  # fmt: skip
    return tuple(dict.fromkeys(part.strip() for block in blocks for part in block.split(";") if part.strip()))


def mutated(rng: random.Random, known: Sequence[str]) -> str:
    """Returns a known statement with one to four changes."""
    tokens = _TOKEN.findall(rng.choice(known))
    for _ in range(rng.randrange(1, 5)):
        tokens = rng.choice(_CHANGES)(rng, tokens, _TOKEN.findall(rng.choice(known)))
    return "".join(tokens)[:20_000]


def _part(rng: random.Random, tokens: list[str]) -> slice:
    """Returns some tokens behind each other, at times all that stand in one pair of parentheses."""
    if not tokens:
        return slice(0, 0)
    start = rng.randrange(len(tokens))
    if rng.random() < 0.4 and "(" in tokens:
        start, depth = rng.choice([i for i, token in enumerate(tokens) if token == "("]), 0
        for end in range(start, len(tokens)):
            depth += (tokens[end] == "(") - (tokens[end] == ")")
            if not depth:
                return slice(start, end + 1)
    return slice(start, start + rng.randrange(1, 8))


def _delete(rng: random.Random, tokens: list[str], _others: list[str]) -> list[str]:
    part = _part(rng, tokens)
    return tokens[: part.start] + tokens[part.stop :]


def _double(rng: random.Random, tokens: list[str], _others: list[str]) -> list[str]:
    part = _part(rng, tokens)
    return tokens[: part.stop] + [" ", *tokens[part]] * rng.choice((1, 1, 2, 30)) + tokens[part.stop :]


def _exchange(rng: random.Random, tokens: list[str], others: list[str]) -> list[str]:
    part = _part(rng, tokens)
    return tokens[: part.start] + others[_part(rng, others)] + tokens[part.stop :]


def _insert(rng: random.Random, tokens: list[str], others: list[str]) -> list[str]:
    at = rng.randrange(len(tokens) + 1)
    return [*tokens[:at], " ", *others[_part(rng, others)], " ", *tokens[at:]]


def _spoil(rng: random.Random, tokens: list[str], _others: list[str]) -> list[str]:
    at = rng.randrange(len(tokens) + 1)
    return [*tokens[:at], " ", rng.choice(_NASTY), " ", *tokens[at + rng.randrange(2) :]]


def _nest(rng: random.Random, tokens: list[str], _others: list[str]) -> list[str]:
    part, depth = _part(rng, tokens), rng.choice((1, 2, 20, 200))
    left, right = rng.choice(_NESTS)
    return [*tokens[: part.start], left * depth, *tokens[part], right * depth, *tokens[part.stop :]]


def _letter(rng: random.Random, tokens: list[str], _others: list[str]) -> list[str]:
    text = "".join(tokens)
    at = rng.randrange(len(text) + 1)
    return _TOKEN.findall(text[:at] + rng.choice(_LETTERS) + text[at + 1 :])


_Change = Callable[[random.Random, list[str], list[str]], list[str]]
_CHANGES: Final[tuple[_Change, ...]] = (
    _delete,
    _delete,
    _double,
    _exchange,
    _exchange,
    _insert,
    _spoil,
    _spoil,
    _nest,
    _letter,
)
