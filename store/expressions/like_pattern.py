"""LIKE patterns of SHOW statements, labels and hosts: `%` is any text, `_` any character, `\\` escapes.

Regular expressions with several `.*` try every split of a text, under the interpreter lock, and would stop
the process. Here a part of the pattern that does not fit moves only the newest `%`, never an earlier one.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class _Wildcard(Enum):
    ANY_TEXT = auto()
    ANY_CHARACTER = auto()


_WILDCARDS: Final = {"%": _Wildcard.ANY_TEXT, "_": _Wildcard.ANY_CHARACTER}
_Token = str | _Wildcard


class LikePattern:
    """One pattern, parsed once. The time of a match is bounded by the square of the text's length.

    Args:
        ignore_case: upper and lower case are equal, as in names.
    """

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        self._ignore_case = ignore_case
        self._tokens = _tokens(_lowered(pattern) if ignore_case else pattern)
        self._length_min = sum(token is not _Wildcard.ANY_TEXT for token in self._tokens)

    def matches(self, text: str) -> bool:
        """Returns whether the whole text matches."""
        if len(text) < self._length_min:  # so a long pattern costs nothing more than its parse
            return False
        text, tokens = _lowered(text) if self._ignore_case else text, self._tokens
        at = token = 0
        after_any, begun = -1, 0  # behind the newest ANY_TEXT: its next token, and where that began
        while at < len(text):
            wanted = tokens[token] if token < len(tokens) else None
            if wanted is _Wildcard.ANY_TEXT:
                token += 1
                after_any, begun = token, at
            elif wanted is _Wildcard.ANY_CHARACTER or wanted == text[at]:
                at, token = at + 1, token + 1
            elif after_any >= 0:
                begun += 1
                at, token = begun, after_any
            else:
                return False
        return all(rest is _Wildcard.ANY_TEXT for rest in tokens[token:])


def _tokens(pattern: str) -> list[_Token]:
    found: list[_Token] = []
    letters = iter(pattern)
    for letter in letters:
        token = next(letters, "\\") if letter == "\\" else _WILDCARDS.get(letter, letter)
        if token is not _Wildcard.ANY_TEXT or found[-1:] != [token]:
            found.append(token)
    return found


def _lowered(text: str) -> str:
    """Returns a text in lower case, each character as one character."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(c.lower()[:1] for c in text)
