"""How often DuckDB binds the arguments of a macro.

It binds an argument once for each use in the macro's body, with the calls in it. Within a body the operands
of CASE x WHEN, BETWEEN and IN are bound once for each comparison, and arguments of other macros as often as
these use them. The count goes through the tokens of a body:

1. An open bracket or CASE begins a part; what is in it is bound as often as its call uses the argument.
2. A parameter counts as often as the parts around it are bound.
3. What stands before BETWEEN or IN counts again for each further comparison.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from typing import Final

from seqstore.store.sql.translate.macros.catalog import bodies

# DuckDB's own macros.
_OF_DUCKDB: Final = {
    "array_pop_back": (2,),
    "array_to_string": (2, 1),
    "fmod": (2, 2),
    "map_contains_entry": (1, 2, 2),
    "nullif": (2, 1),
    "round_even": (3, 3),
    "split_part": (2, 2, 2),
}
_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|\w+|\S")
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


@cache
def argument_copies() -> Mapping[str, Sequence[int]]:
    """Returns how often a call of a macro binds each of its arguments, for macros that bind one repeatedly.

    The arguments of macros with several bodies are bound once more, for their types. Of several bodies the
    one that binds most counts.
    """
    found: dict[str, Sequence[int]] = dict(_OF_DUCKDB)
    for body in bodies():  # callees before callers
        name, _, text = body.partition("(")
        overloads = _overloads(text)
        most: list[int] = []
        for parameters, expression in overloads:
            uses = _Uses(parameters, _TOKEN.findall(expression), found).counted()
            most = [max(pair) for pair in zip_longest(most, uses, fillvalue=0)]
        found[name] = [count + (len(overloads) > 1) for count in most]
    return {name: counts for name, counts in found.items() if max(counts, default=0) > 1}


def _overloads(text: str) -> list[tuple[list[str], str]]:
    """Returns the parameters and the expression of each body of a macro, by its text after the name."""
    found = []
    for one in re.split(r",\n\s+(?=\()", f"({text}"):
        head, _, expression = one.partition(") AS ")
        parameters = re.findall(r"[(,]\s*(\w+)", re.sub(r"\(\d+, \d+\)", "", head))
        found.append((parameters, expression))
    return found


@dataclass
class _Part:
    """A bracket or CASE that is open.

    Attributes:
        name: the call of a bracket.
        number: the argument that the tokens belong to.
        times: how often what is around it is bound.
        before: the uses that were counted before it.
    """

    name: str
    times: int
    before: Counter[str]
    number: int = 0


@dataclass
class _Uses:
    """The uses of parameters in the expression of one body.

    Attributes:
        known: how often calls of other macros bind each argument.
        found: the uses so far.
        last: those of the value that ended last.
    """

    parameters: Sequence[str]
    tokens: Sequence[str]
    known: Mapping[str, Sequence[int]]
    found: Counter[str] = field(default_factory=Counter)
    last: Counter[str] = field(default_factory=Counter)
    times: int = 1
    _parts: list[_Part] = field(default_factory=list)

    def counted(self) -> list[int]:
        """Returns the number of each parameter."""
        for place, token in enumerate(self.tokens):
            word = token.upper()
            if token in _OPEN or word == "CASE":
                self._open(place, word)
            elif token in _CLOSE or word == "END":
                part = self._parts.pop()
                self.times, self.last = part.times, self.found - part.before
            elif token == "," and self._parts:
                self._parts[-1].number += 1
                self.times = self._times_within(self._parts[-1])
            elif word == "WHEN":
                self.times = self._parts[-1].times
            elif token in self.parameters:
                self.last = Counter({token: self.times})
                self.found += self.last
            elif word in ("BETWEEN", "IN"):
                self._repeat(1 if word == "BETWEEN" else max(self._items(place) - 1, 1))
            elif word not in ("NOT", ":"):
                self.last = Counter()
        return [self.found[name] for name in self.parameters]

    def _open(self, place: int, word: str) -> None:
        name = self.tokens[place - 1] if place and word != "CASE" else ""
        self._parts.append(_Part(name, self.times, self.found.copy()))
        if word == "CASE" and self.tokens[place + 1].upper() != "WHEN":
            self.times *= self._conditions(place)
        elif word != "CASE":
            self.times = self._times_within(self._parts[-1])

    def _times_within(self, part: _Part) -> int:
        counts = self.known.get(part.name, ())
        return part.times * (counts[part.number] if part.number < len(counts) else 1)

    def _repeat(self, further: int) -> None:
        for name, count in self.last.items():
            self.found[name] += further * count

    def _conditions(self, case: int) -> int:
        """Returns the number of WHENs of a CASE."""
        depth = found = 0
        for token in map(str.upper, self.tokens[case:]):
            depth += (token == "CASE") - (token == "END")
            found += token == "WHEN" and depth == 1
            if not depth:
                break
        return found

    def _items(self, place: int) -> int:
        """Returns the number of items of the list that follows IN."""
        depth = commas = 0
        for token in self.tokens[place + 1 :]:
            depth += (token in _OPEN) - (token in _CLOSE)
            commas += token == "," and depth == 1
            if not depth:
                break
        return commas + 1
