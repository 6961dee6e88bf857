"""JSON paths as people write them for Doris, and as DuckDB reads them.

`$.a.b[0]`, `$."a b"`, `$["a"]`, `$.a[*]`, `$` and `$.` for the root (J12). A path is parsed and written
anew with every key in quotes, so nothing of the user's text reaches DuckDB as syntax.
"""

from __future__ import annotations

import re
from typing import Final

from seqstore.store.errors import InvalidInputError

_STEP: Final = re.compile(
    r"""\.\s*"(?P<quoted>[^"]+)" | \.(?P<plain>[^.\[\]"]+) | \[\s*(?P<index>\d{1,9}|\*)\s*\]
      | \[\s*(?P<mark>["'])(?P<bracketed>.+?)(?P=mark)\s*\]""",
    re.VERBOSE,
)
_STEPS_MAX: Final = 64
_KEY: Final = re.compile(r'\$\."(?P<key>[^"]+)"')


def duckdb_path(path: str) -> str:
    """Returns the path for DuckDB.

    Raises:
        InvalidInputError: not a path.
    """
    text = path.strip()
    if text in ("$", "$."):
        return "$"
    if not text.startswith("$"):
        raise _bad(path)
    at, steps = 1, ["$"]
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None or len(steps) > _STEPS_MAX:
            raise _bad(path)
        key = match["quoted"] or match["plain"] or match["bracketed"]
        steps.append(f"[{match['index']}]" if key is None else _quoted(key.strip()))
        at = match.end()
    return "".join(steps)


def key_of(path: str) -> str | None:
    """Returns the key that a path of `duckdb_path` names; None for the root, and for something deeper."""
    match = _KEY.fullmatch(path)
    return match["key"] if match is not None else None


def key_path(key: str) -> str:
    """Returns the path of a key of the document itself."""
    return "$" + _quoted(key)


def _quoted(key: str) -> str:
    if any(mark in key for mark in '"\\*'):  # a star is a wildcard even in quotes
        raise InvalidInputError(
            f"JSON key {key!r} holds a quote, backslash or star, which a path cannot name", kind="bad_header"
        )
    return f'."{key}"'


def _bad(path: str) -> InvalidInputError:
    return InvalidInputError(
        f"Invalid json path: {path[:200]!r}; expected one such as $.key.other[0]", kind="bad_header"
    )
