"""Rows of literals behind VALUES, read by one regular expression: programs insert thousands at once.

1. The text before the first row, the head, is parsed as any other statement, with one row without values.
2. What follows is divided into literals and punctuation. Each row has as many literals as the first one, so
   the parentheses and commas have known places, and the literals stand between them.
3. What stands behind the rows, ON DUPLICATE KEY UPDATE, is parsed with the head.
4. A text that is divided otherwise, such as one with an expression or a comment, is left to the parser.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple

from seqstore.store.sql.parse.statement_values import Cell, Word
from seqstore.store.sql.parse.tokens import is_unicode, unquoted

# Without comments, and without quotes other than those of names.
_HEAD: Final = re.compile(
    r"\s*(?:INSERT|REPLACE)\s(?:[^'\"`#/;\\()-]|`[^`]*`|\([^'\"#/;\\()-]*\))*?(?<=[\s)`])VALUES?\s*(?=\()",
    re.IGNORECASE,
)
_TAIL: Final = re.compile(r"\s(?:AS\s+\S+\s+)?ON\s+DUPLICATE\s+KEY\s+UPDATE\s", re.IGNORECASE)
_TAIL_WORDS_MAX: Final = 100  # characters on each side of the word DUPLICATE
_FRAME_LENGTH_MAX: Final = 2_000  # of what stands before the rows, and of what stands behind them
# Each piece takes all that it can, so that any text is divided in one pass. A text without an end takes the
# rest.
_LITERAL_OR_SIGN: Final = re.compile(
    r"""[ \t\r\n]*+(
    -?[0-9]++(?:\.[0-9]++)?+(?:e[+-]?[0-9]++)?+(?![\w.])
    |'[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+'?+
    |"[^"\\]*+(?:(?:\\.|"")[^"\\]*+)*+"?+
    |[\w.]++
    |[^ \t\r\n])""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS: Final[dict[str, Cell]] = {"NULL": None, "TRUE": True, "FALSE": False, "DEFAULT": Word.DEFAULT}
_NUMBER_STARTS: Final = frozenset("-0123456789")


class LiteralRows(NamedTuple):
    """An INSERT or REPLACE of literals.

    Attributes:
        frame: the statement with one row, which has no values.
    """

    frame: str
    rows: tuple[tuple[Cell, ...], ...]


def literal_rows(text: str) -> LiteralRows | None:
    """Reads the rows of one INSERT or REPLACE; None for other texts, for expressions, and for rows of
    several lengths."""
    head = _HEAD.match(text, 0, _FRAME_LENGTH_MAX)
    if head is None or not is_unicode(text):
        return None
    tail = _tail(text, head.end())
    if len(text) - tail > _FRAME_LENGTH_MAX:
        return None
    # Blanks at the end would be tried one by one.
    pieces = _LITERAL_OR_SIGN.findall(text[head.end() : tail].rstrip(" \t\r\n"))
    if pieces[-1] == ";" and tail == len(text):
        pieces.pop()
    if ")" not in pieces:
        return None
    width = pieces.index(")")  # of a row: `(`, literals with commas between them, `)`
    stride = width + 2  # with the comma behind it
    places = ((0, "("), *((place, ",") for place in range(2, width, 2)), (width, ")"), (width + 1, ","))
    is_whole = width % 2 == 0 and len(pieces) % stride == width + 1
    if not is_whole or any(set(pieces[place::stride]) - {sign} for place, sign in places):
        return None
    try:
        columns = [list(map(_cell, pieces[place::stride])) for place in range(1, width, 2)]
    except (ValueError, KeyError, InvalidOperation):  # no literal, or more digits than Python reads
        return None
    return LiteralRows(f"{text[: head.end()]} () {text[tail:]}", tuple(zip(*columns, strict=True)))


def _tail(text: str, start: int) -> int:
    """Returns where the rows end. ON DUPLICATE KEY UPDATE is found in upper case and in lower case."""
    word = max(text.rfind(word, start) for word in ("DUPLICATE", "duplicate"))
    if word < 0:
        return len(text)
    found = _TAIL.search(text, max(start, word - _TAIL_WORDS_MAX), word + _TAIL_WORDS_MAX)
    return found.start() if found is not None else len(text)


def _cell(piece: str) -> Cell:
    first = piece[0]
    if first in _NUMBER_STARTS:
        digits = piece.removeprefix("-")
        if digits.isdigit() and digits.isascii():
            return int(piece)
        if _NUMBER.fullmatch(piece) is None:  # such as 1_0, which Python reads
            raise ValueError(piece)
        return Decimal(piece)
    if first in "'\"":  # it has an end, for a parenthesis follows
        inner = piece[1:-1]
        return unquoted(piece) if "\\" in inner or first in inner else inner
    return _WORDS[piece.upper()]
