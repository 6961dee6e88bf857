"""Secrets in statements and properties, which nothing that is shown may hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from seqstore.store.runtime.secrets.references import is_reference, read_secret

MASK: Final = "******"
SECRET_WORDS: Final = (
    r"pass(word|wd|phrase|code)|secret|jaas|token|credential|user[._-]?info|signature|bearer|assertion"
    r"|(private|access|api|account|shared|encryption|ssl|sas|keystore|truststore)[._-]?key(?!store|[._-]?(location|type|file))"
    r"|(keystore|key|truststore)[._-]?(pem|certificates?)"
)
_SECRET: Final = re.compile(SECRET_WORDS, re.IGNORECASE)
# The secrets of a URI: user and password before its host, and parameters.
_LOGIN: Final = re.compile(r"(?P<before>://)(?P<value>[^/@?]*)(?P<after>@)")
_PARAMETER: Final = re.compile(r"(?P<before>[?&](?P<name>[\w.-]+)=)(?P<value>[^&]*)(?P<after>)")
_LOGIN_PARTS: Final = ("access key", "secret key")
_QUOTED: Final = re.compile(r"[\"']([^\"']+)[\"']")
_VALUE_LENGTH_MIN: Final = 4


def is_secret(name: str) -> bool:
    """Returns whether the value of a property of this name must not be shown."""
    return _SECRET.search(name) is not None


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns properties as they may be shown."""
    return {
        name: MASK if is_secret(name) and not is_reference(value) else value
        for name, value in properties.items()
    }


def resolved(properties: Mapping[str, str], allowed: Sequence[str]) -> dict[str, str]:
    """Returns properties with the secrets that their references name.

    Raises:
        StoreError: as `read_secret`.
    """
    references = {
        name: value for name, value in properties.items() if is_secret(name) and is_reference(value)
    }
    return {**properties, **{name: read_secret(name, value, allowed) for name, value in references.items()}}


def references_in(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the references of secrets in properties and in URIs among them, by the name of the property."""
    found = {}
    for name, value in properties.items():
        if is_secret(name) and is_reference(value):
            found[name] = value
        found |= {f"{name} ({part})": text for part, text in uri_references(value).items()}
    return found


def has_login(uri: str) -> bool:
    """Returns whether a URI holds a key: a user and password, or a secret parameter, that is no reference."""
    return any(not is_reference(unquote(part)) for _, part in _uri_secrets(uri))


def masked_uri(uri: str) -> str:
    """Returns a URI as it may be shown, with stars for its keys."""
    if "://" not in uri or not has_login(uri):
        return uri
    plain = _LOGIN.sub(rf"\g<before>{MASK}@", uri, count=1)
    return _PARAMETER.sub(lambda m: f"{m['before']}{MASK}" if is_secret(m["name"]) else m[0], plain)


def uri_references(uri: str) -> dict[str, str]:
    """Returns the references of secrets in a URI, by the part that they stand for."""
    texts = {part: unquote(text) for part, text in _uri_secrets(uri)}
    return {part: text for part, text in texts.items() if is_reference(text)}


def resolved_uri(uri: str, allowed: Sequence[str]) -> str:
    """Returns a URI with the secrets that its references name.

    Raises:
        StoreError: as `read_secret`.
    """

    def secret(owner: str, text: str) -> str:
        plain = unquote(text)
        return quote(read_secret(owner, plain, allowed), safe="") if is_reference(plain) else text

    def login(found: re.Match[str]) -> str:
        parts = found["value"].split(":", 1)
        return ":".join(secret(name, part) for name, part in zip(_LOGIN_PARTS, parts, strict=False)).join(
            (found["before"], found["after"])
        )

    def parameter(found: re.Match[str]) -> str:
        name, text = found["name"], found["value"]
        return f"{found['before']}{secret(name, text) if is_secret(name) else text}"

    return _PARAMETER.sub(parameter, _LOGIN.sub(login, uri, count=1))


def _uri_secrets(uri: str) -> list[tuple[str, str]]:
    """Returns the secrets of a URI as they are written, with the names of their parts."""
    login = _LOGIN.search(uri)
    parts = login["value"].split(":", 1) if login is not None else []
    named = list(zip(_LOGIN_PARTS, parts, strict=False))
    return named + [(m["name"], m["value"]) for m in _PARAMETER.finditer(uri) if is_secret(m["name"])]


def changed_secrets(record: Any, change: Callable[[str], str], name: str = "") -> Any:
    """Returns a record with another text for each secret: a property with such a name, a URI with keys.

    Texts that `change` made before are changed too, wherever they are.
    """
    if isinstance(record, Mapping):
        return {key: changed_secrets(value, change, str(key)) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [changed_secrets(value, change, name) for value in record]
    if not isinstance(record, str):
        return record
    is_plain = is_secret(name) and not is_reference(record)
    return change(record) if is_plain or has_login(record) or record.startswith("sealed:") else record


def without_values(text: str, properties: Mapping[str, str]) -> str:
    """Returns a message without the values of secret properties, which other programs repeat in theirs."""
    secrets = {
        name: value for name, value in properties.items() if is_secret(name) and not is_reference(value)
    }
    for value in secrets.values():
        if len(value) >= _VALUE_LENGTH_MIN:
            text = text.replace(value, MASK)
        for quoted in _QUOTED.findall(value):
            text = text.replace(quoted, MASK) if len(quoted) >= _VALUE_LENGTH_MIN else text
    return text
