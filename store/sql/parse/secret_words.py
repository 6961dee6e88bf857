"""Secrets in statements and properties, which nothing that is shown may hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

MASK: Final = "******"
_SHOWN_MAX: Final = 65_536
_SECRET: Final = re.compile(
    r"pass(word|wd|phrase|code)|secret|jaas|token|credential|user[._-]?info|signature|bearer|oauth.*assertion"
    r"|(private|access|api|account|shared|encryption|ssl|sas|keystore|truststore)[._-]?key(?!store|[._-]?(location|type|file))"
    r"|(keystore|key|truststore)[._-]?(pem|certificates?)",
    re.IGNORECASE,
)
_LITERAL: Final = r"""(?:'(?:[^'\\]++|\\.|'')*+'?|"(?:[^"\\]++|\\.|"")*+"?)"""
_PASSWORD: Final = re.compile(
    rf"(?P<before>\bIDENTIFIED\s++BY\s++(?:PASSWORD\s++)?|\bPASSWORD\s*+\(\s*+|\bPASSWORD\b[^'\"=;]{{0,200}}+=\s*+)"
    # A literal without a value behind it matches too: so each one is read once.
    rf"{_LITERAL}|(?P<name>{_LITERAL})(?:(?P<equals>\s*+=\s*+){_LITERAL})?",
    re.IGNORECASE | re.DOTALL,
)


def is_secret(name: str) -> bool:
    """Returns whether the value of a property of this name must not be shown."""
    return _SECRET.search(name) is not None


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns properties as they may be shown."""
    return {name: MASK if is_secret(name) else value for name, value in properties.items()}


def masked_statement(text: str) -> str:
    """Returns the beginning of a statement as it may be shown: passwords and secret properties are masked."""
    return _PASSWORD.sub(_masked, text[:_SHOWN_MAX])


def _masked(found: re.Match[str]) -> str:
    if found["before"] is not None:
        return f"{found['before']}'{MASK}'"
    if found["equals"] is not None and is_secret(found["name"]):
        return f"{found['name']}{found['equals']}'{MASK}'"
    return found[0]
