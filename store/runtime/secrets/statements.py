"""Statements as they may be shown: without passwords, values of secret properties and keys of URIs.

1. A text without a part of the words that announce secrets keeps its literals. Most statements are such.
2. Else the text is read as quoted texts, comments and words, as the tokenizer of SQL reads it. The literals
   behind IDENTIFIED and PASSWORD are masked to the end of their statement, and so are secret properties.
3. A text that the tokenizer reads in a way of its own, as hints, is shown up to the first such word.
4. Of a text that is no statement, all literals are masked, and what follows the first such word is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from seqstore.store.runtime.secrets.words import MASK, SECRET_WORDS, is_secret, masked_uri

_SHOWN_MAX: Final = 65_536
# One of them is in each of `SECRET_WORDS`. Searching for them is quick, which the words themselves are not.
_PARTS: Final = (
    "identified", "pass", "secret", "jaas", "token", "credential", "info", "signature", "bearer", "assertion",
    "key", "pem", "certificate",
)  # fmt: skip
_ANNOUNCED: Final = re.compile(rf"identified|{SECRET_WORDS}", re.IGNORECASE)
_USER_STATEMENT: Final = re.compile(
    r"\b(?:identified|password)\b|\b(?:create|alter)\s++user\b", re.IGNORECASE
)
# Hints, executable comments, marks of Jinja, and what may be a number in quotes, which knows no escapes.
_UNCLEAR: Final = re.compile(r"/\*[+!mM]|\{[#{%]|[bBxX]'[^'\\]*+(?:\\|'')")
_TOKEN: Final = re.compile(
    r"""(?P<comment>--[^\n\r]*+|\#[^\n\r]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?)
    |(?P<literal>'(?:[^'\\]++|\\.|'')*+(?:'|\\?\Z)|"(?:[^"\\]++|\\.|"")*+(?:"|\\?\Z))
    |(?P<quoted>`[^`]*+`?)
    |(?P<word>[\w$]++)
    |(?P<mark>[=;,.@)-])""",
    re.DOTALL | re.VERBOSE,
)
_URI: Final = re.compile(r"://[^\s'\"]++")
_CUT_URI: Final = re.compile(r"://[^\s'\"/?@]*+\Z")


def masked_statement(text: str, *, length: int = _SHOWN_MAX, is_parsed: bool = True) -> str:
    """Returns the beginning of a statement as it may be shown.

    Args:
        length: of the beginning, in characters of the text.
        is_parsed: the text may be a statement; False for one that the parser refused.
    """
    shown, rest = text[:length], ""
    if not is_parsed and (found := _USER_STATEMENT.search(shown)) is not None:
        shown, rest = shown[: found.end()], f" {MASK}"
    if rest or _may_announce(shown, is_parsed=is_parsed):
        is_clear = _UNCLEAR.search(shown) is None
        shown = "".join(_shown_parts(shown, is_parsed=is_parsed)) if is_clear else _head(shown)
        shown += rest
    if "://" not in shown:
        return shown
    shown = _URI.sub(lambda found: masked_uri(found[0]), shown)
    return _CUT_URI.sub(f"://{MASK}", shown) if len(text) > length else shown


def _may_announce(text: str, *, is_parsed: bool) -> bool:
    """Returns whether a text may hold a secret; of one that is no statement, all literals would be masked."""
    lowered = text.lower()
    lowered = lowered.replace("\\", "") if "\\" in lowered else lowered  # an escape in a property's name
    return any(part in lowered for part in _PARTS) and (is_parsed or _ANNOUNCED.search(lowered) is not None)


def _head(text: str) -> str:
    """Returns a text up to the first word that announces a secret."""
    found = _ANNOUNCED.search(text)
    if found is not None:
        return text[: found.end()] + MASK
    return MASK if "\\" in text and _ANNOUNCED.search(text.replace("\\", "")) else text


def _shown_parts(text: str, *, is_parsed: bool) -> Iterator[str]:
    """Yields a text in parts, with stars for its secrets."""
    place, end = _Place(), 0
    for found in _TOKEN.finditer(text):
        kind, value = found.lastgroup, found[0]
        if kind == "literal" and (place.is_secret or not is_parsed):
            stars = f"'{MASK}'"
        elif kind == "comment" and (place.is_secret or _ANNOUNCED.search(value)):
            stars = f"{value[:2] if value[0] != '#' else '#'} {MASK}{' */' if value.startswith('/*') else ''}"
        else:
            stars = ""
        if stars:
            yield text[end : found.start()]
            yield stars
            end = found.end()
        place.step(kind or "", value)
        if place.is_value and not is_parsed:  # a value without quotes is a secret too
            yield f"{text[end : found.end()]} {MASK}"
            return
    yield text[end:]


class _Place:
    """What the tokens of a statement so far say of the next literal.

    Attributes:
        is_value: it is the value of a secret property.
    """

    def __init__(self) -> None:
        self.is_value = False
        self._is_password = False
        self._is_owner = False  # behind PASSWORD FOR, up to the equals sign
        self._name: list[str] = []  # the last words, joined by dots
        self._last = ""

    @property
    def is_secret(self) -> bool:
        is_name = self._is_owner and self._last in ("FOR", "@")
        return self.is_value or (self._is_password and not is_name)

    def step(self, kind: str, value: str) -> None:
        """Steps over a token."""
        if kind == "comment":
            return
        if kind == "mark":
            self._mark(value)
            self._last = value
            return
        self.is_value = self.is_value and kind == "literal"  # literals side by side are one value
        if kind == "literal":
            self._name, self._last = [value.replace("\\", "")], ""
            return
        word = value.upper()
        self._is_owner = self._is_owner or (word == "FOR" and self._last == "PASSWORD")
        if word in ("IDENTIFIED", "PASSWORD"):
            self._is_password, self._is_owner = True, False
        if self._last not in (".", "-"):
            self._name.clear()
        self._name.append(value)
        self._last = word

    def _mark(self, value: str) -> None:
        if value in ".-":
            self._name.append(value)
        elif value == "=":
            self.is_value = is_secret("".join(self._name).replace("`", ""))
            self._is_owner = False
            self._name.clear()
        elif value == ";":
            self.is_value = self._is_password = self._is_owner = False
            self._name.clear()
        elif value != "@":
            self.is_value = False
            self._name.clear()
