"""Values that several headers share: flags, integers, the change of a schema; and the error of a bad one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from seqstore.loaders.headers.options import EVOLUTIONS
from seqstore.store.errors import InvalidInputError


def bad_header(message: str, header: str) -> InvalidInputError:
    return InvalidInputError(message, kind="bad_header", header=header)


def by_plain_names(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns headers by the names as which they take effect: in lower case, without blanks around them.

    A check of a header, such as for a privilege, reads it by this name, as the load does. Of several headers
    with one such name the last one counts.
    """
    return {name.strip().lower(): value for name, value in headers.items()}


def flag(given: Mapping[str, str], name: str) -> bool:
    """Parses a flag: any value but `true` is false (LH27)."""
    return given.get(name, "").lower() == "true"


def integer(given: Mapping[str, str], name: str, default: int, message: str) -> int:
    text = given.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"[+-]?\d{1,18}", text):
        raise bad_header(message.format(text), name)
    return int(text)


def evolution_in(given: Mapping[str, str]) -> str:
    """Returns what a load with some headers, or properties, may change of its table's schema.

    Args:
        given: by name in lower case.

    Raises:
        InvalidInputError: the value is none of `EVOLUTIONS`.
    """
    text = given.get("schema_evolution", "").strip().lower() or "off"
    if text not in EVOLUTIONS:
        raise bad_header(
            f"schema_evolution: expected one of {', '.join(EVOLUTIONS)}, found {text[:100]}",
            "schema_evolution",
        )
    return text
