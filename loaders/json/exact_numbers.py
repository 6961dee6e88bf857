"""Numbers of JSON documents that a double would change, put in quotes before DuckDB parses them (J9)."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_TOKENS: Final = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"?|([\[{])|([\]}])|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)', re.DOTALL
)
_DOUBLE_DIGITS: Final = 15  # more than these may change when a number with a point becomes a double
_LONG_NUMBER: Final = r"[0-9.]{16}|[0-9][eE][+-]?[0-9]"  # for Arrow, which searches many times faster
_FRACTION: Final = r"[0-9](\.[0-9]|[eE][+-]?[0-9])"


def with_exact_numbers(texts: pa.Array, field_depth: int, *, every_fraction: bool = False) -> pa.Array:
    """Returns the documents, with the numbers in quotes that would change otherwise; few have any.

    Args:
        texts: documents as bytes.
        field_depth: how deep the fields are; 0 for fields at any depth.
        every_fraction: quotes all numbers with a point or an exponent.
    """
    risky = _FRACTION if every_fraction else _LONG_NUMBER
    is_risky = pc.match_substring_regex(texts, risky)
    if not pc.any(is_risky).as_py():
        return texts
    quote = partial(_quote_numbers, field_depth=field_depth, every_fraction=every_fraction)
    exact = [quote(text) for text in texts.filter(is_risky).to_pylist()]
    return pc.replace_with_mask(texts, is_risky, pa.array(exact, pa.binary()))


def _quote_numbers(text: bytes, *, field_depth: int, every_fraction: bool) -> bytes:
    """Quotes numbers that a double would change; inside of a nested value they stay numbers."""
    depth = 0

    def replaced(match: re.Match[bytes]) -> bytes:
        nonlocal depth
        opened, closed, number = match.groups()
        depth += bool(opened) - bool(closed)
        if number is None or (field_depth and depth != field_depth):
            return match[0]
        has_exponent = b"e" in number.lower()
        if not has_exponent and b"." not in number:
            return match[0]
        is_exact = not has_exponent and len(number) <= _DOUBLE_DIGITS + 1
        return match[0] if is_exact and not every_fraction else b'"' + number + b'"'

    return _TOKENS.sub(replaced, text)
