"""Secrets in statements and properties, which nothing that is shown may hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

MASK: Final = "******"
_SHOWN_MAX: Final = 65_536
_SECRET: Final = re.compile(
    r"pass(word|wd|phrase|code)|secret|jaas|token|credential|user[._-]?info|signature|bearer|oauth.*assertion"
    r"|(private|access|api|account|shared|encryption|ssl|sas|keystore|truststore)[._-]?key(?!store|[._-]?(location|type|file))"
    r"|(keystore|key|truststore)[._-]?(pem|certificates?)",
    re.IGNORECASE,
)
_LOGIN: Final = re.compile(r"://[^/@?]*@")
_PARAMETER: Final = re.compile(r"[?&]([\w.-]+)=")
_PARAMETER_VALUE: Final = re.compile(r"([?&])([\w.-]+)=[^&]*")
_QUOTED: Final = re.compile(r"[\"']([^\"']+)[\"']")
_VALUE_LENGTH_MIN: Final = 4
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


def has_login(uri: str) -> bool:
    """Returns whether a URI holds a key: a user and password, or a secret parameter."""
    return _LOGIN.search(uri) is not None or any(is_secret(name) for name in _PARAMETER.findall(uri))


def masked_uri(uri: str) -> str:
    """Returns a URI as it may be shown, with stars for its keys."""
    if "://" not in uri:
        return uri
    plain = _LOGIN.sub(f"://{MASK}@", uri, count=1)
    return _PARAMETER_VALUE.sub(lambda m: f"{m[1]}{m[2]}={MASK}" if is_secret(m[2]) else m[0], plain)


def changed_secrets(record: Any, change: Callable[[str], str], name: str = "") -> Any:
    """Returns a record with another text for each secret: a property with such a name, a URI with keys.

    Texts that `change` made before are changed too, wherever they are.
    """
    if isinstance(record, Mapping):
        return {key: changed_secrets(value, change, str(key)) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [changed_secrets(value, change, name) for value in record]
    if isinstance(record, str) and (is_secret(name) or has_login(record) or record.startswith("sealed:")):
        return change(record)
    return record


def without_values(text: str, properties: Mapping[str, str]) -> str:
    """Returns a message without the values of secret properties, which other programs repeat in theirs."""
    for name, value in properties.items():
        if len(value) >= _VALUE_LENGTH_MIN and is_secret(name):
            text = text.replace(value, MASK)
        for quoted in _QUOTED.findall(value) if is_secret(name) else ():
            text = text.replace(quoted, MASK) if len(quoted) >= _VALUE_LENGTH_MIN else text
    return text


def masked_statement(text: str) -> str:
    """Returns the beginning of a statement as it may be shown: passwords and secret properties are masked."""
    return _PASSWORD.sub(_masked, text[:_SHOWN_MAX])


def _masked(found: re.Match[str]) -> str:
    if found["before"] is not None:
        return f"{found['before']}'{MASK}'"
    if found["equals"] is not None and is_secret(found["name"]):
        return f"{found['name']}{found['equals']}'{MASK}'"
    return found[0]
