"""The DuckDB macros with the meaning of Doris functions: `d_` and the Doris name.

The modules beside this one have their texts, by what they work on. `|` separates names of one macro, and
types of an argument with one body. The type of the argument chooses one of several bodies: text that is no
date becomes NULL, and a DATE moved by whole days stays a DATE. A database creates the macros that a statement
calls, directly or through others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from functools import cache
from graphlib import TopologicalSorter
from typing import Final

from seqstore.store.sql.translate.macros import (
    aggregates,
    arrays,
    bounds,
    casts,
    dates,
    json,
    numbers,
    operands,
    texts,
)

_NAME: Final = re.compile(r"\bd_\w+", re.IGNORECASE)
_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|\w+|\s+|.", re.DOTALL)
_HELPERS: Final = (
    *(bounds.HELPERS, casts.HELPERS, operands.HELPERS, dates.HELPERS, texts.HELPERS, numbers.HELPERS),
    *(arrays.HELPERS, json.HELPERS),
)
_FUNCTIONS: Final = (
    *(dates.FUNCTIONS, texts.FUNCTIONS, numbers.FUNCTIONS, arrays.FUNCTIONS),
    *(json.FUNCTIONS, aggregates.FUNCTIONS),
)


def called_macros(sql: str, known: Set[str] = frozenset()) -> dict[str, str]:
    """Returns the CREATE MACRO statements that a rendered statement needs, by name, callees before callers.

    Names within texts count as calls.

    Args:
        known: macros that need not be created.
    """
    wanted = {name.lower() for name in _NAME.findall(sql)} - known
    if not wanted:
        return {}
    found: dict[str, str] = {}
    for body in reversed(bodies()):  # callers before callees
        name, _, text = body.partition("(")
        if name in wanted:
            found[name] = f"CREATE MACRO {body}"
            wanted.update(set(_NAME.findall(text)) - known)
    return dict(reversed(found.items()))


@cache
def _zone_readers() -> frozenset[str]:
    """Macros that read the session's time zone, directly or through others."""
    found = {"d_zoned"}
    for body in bodies():  # callees before callers
        name, _, text = body.partition("(")
        if not found.isdisjoint(_NAME.findall(text)):
            found.add(name)
    return frozenset(found)


def reads_zone(sql: str) -> bool:
    """Returns whether a statement calls a macro that reads the session's time zone."""
    return not _zone_readers().isdisjoint(name.lower() for name in _NAME.findall(sql))


def zone_setting(zone: str) -> str:
    """Returns the statement that sets the time zone for the macros, on a connection that has none.

    Args:
        zone: a name, or an offset such as `+08:00`, which DuckDB 1.4 does not take for a time zone.
    """
    if zone[0] not in "+-":
        return f"SET VARIABLE zone = '{zone}'"
    minutes = int(zone[1:3]) * 60 + int(zone[4:])
    return f"SET VARIABLE zone_minutes = {-minutes if zone[0] == '-' else minutes}"


@cache
def internal_names() -> frozenset[str]:
    """Returns the names of the macros that translations and other macros call, not users by their names."""
    return frozenset(_names(_HELPERS))


def macro_names() -> frozenset[str]:
    """Doris names that are macros."""
    return frozenset(_names(_FUNCTIONS))


@cache
def bodies() -> Sequence[str]:
    """Returns the text of each macro behind CREATE MACRO, callees before callers.

    The names and types that `|` separates are written out.
    """
    found: dict[str, str] = {}
    for names, text in _macros((*_HELPERS, *_FUNCTIONS)):
        overloads = [each for one in re.split(r",\n\s+(?=\()", f"({text}") for each in _typed(one)]
        joined = ",\n    ".join(overloads)
        found |= {f"d_{name}": f"d_{name}{_own_parameters(name, joined)}" for name in names}
    return [found[name] for name in TopologicalSorter(_calls(found)).static_order()]


def _own_parameters(name: str, text: str) -> str:
    """Gives the lambdas of a macro parameters with names of their own.

    DuckDB puts the arguments of a macro into the bodies of its lambdas, where a column `t` would be their
    parameter `t`.

    1. A lambda's body ends at the bracket or comma that ends the argument.
    2. The words of the body that are a parameter, outside of texts, are renamed; inner lambdas come first.
    """
    tokens = _TOKEN.findall(text)
    for start in reversed([at for at, token in enumerate(tokens) if token.lower() == "lambda"]):
        colon = tokens.index(":", start)
        end, depth = colon + 1, 0
        while depth > 0 or tokens[end] not in (")", ","):
            depth += (tokens[end] in "([{") - (tokens[end] in ")]}")
            end += 1
        parameters = {token for token in tokens[start + 1 : colon] if token.isidentifier()}
        for at in range(start + 1, end):
            if tokens[at] in parameters:
                tokens[at] = f"__{name}_{tokens[at]}__"
    return "".join(tokens)


def _calls(found: Mapping[str, str]) -> dict[str, set[str]]:
    """Returns the macros that each macro calls."""
    return {name: set(_NAME.findall(body.partition("(")[2])) & found.keys() for name, body in found.items()}


def _names(sources: Sequence[str]) -> list[str]:
    return [name for names, _ in _macros(sources) for name in names]


def _macros(sources: Sequence[str]) -> list[tuple[list[str], str]]:
    """Returns the names of each macro, without `d_`, and its text behind the first bracket."""
    parts = [
        macro.partition("(") for source in sources for macro in map(str.strip, source.split(";")) if macro
    ]
    return [(names.removeprefix("d_").split("|"), text) for names, _, text in parts]


def _typed(overload: str) -> list[str]:
    head, _, text = overload.partition(") AS ")
    types = re.search(r"\w+(\|\w+)+", head)
    if types is None:
        return [overload]
    return [f"{head.replace(types[0], each)}) AS {text}" for each in types[0].split("|")]
