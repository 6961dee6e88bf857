"""An array of JSON objects as lines, one for each object.

The lines are what a client would send by `read_json_by_line`: the commas between the objects are line ends,
blanks around them are left out, and a line end within an object is a blank. The text is passed through in
pieces, and no step works value by value. The brackets are counted and not matched, so each line must still be
parsed as an object; a document that is no array of objects is left to the caller.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

_QUOTE, _BACKSLASH, _COMMA, _OPEN, _CLOSE, _END, _BLANK = b'"\\,{}\n '
_PIECE_BYTES: Final = 1 << 20  # the positions of a piece need ten times its memory
_STEP: Final = np.zeros(256, dtype=np.int8)
_STEP[np.frombuffer(b"[{", dtype=np.uint8)] = 1
_STEP[np.frombuffer(b"]}", dtype=np.uint8)] = -1
_IS_BLANK: Final = np.isin(np.arange(256), np.frombuffer(b" \t\r\n", dtype=np.uint8))
_IS_TOKEN: Final = _IS_BLANK | (_STEP != 0) | (np.arange(256) == _COMMA)

Octets = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]


def lines_of(document: bytes) -> bytes | None:
    """Returns a line for each object of an array, each with its end; None for any other text."""
    cutter = _Cutter()
    octets = np.frombuffer(document, dtype=np.uint8)
    pieces = []
    for start in range(0, len(octets), _PIECE_BYTES):
        piece = cutter.cut(octets[start : start + _PIECE_BYTES])
        if piece is None:
            return None
        pieces.append(piece)
    text = b"".join(pieces)
    is_array = cutter.is_closed and text.startswith(b"[{") and text.endswith(b"}]")
    if not is_array:
        return None
    text = text[1:-1] + b"\n"
    return text if _are_objects(text) else None


class _Cutter:
    """Cuts a text that comes in pieces.

    Attributes:
        is_closed: the array is closed, and nothing but blanks follows it.
    """

    def __init__(self) -> None:
        self.is_closed = False
        self._in_string = False
        self._backslashes = 0  # at the end of the piece before
        self._depth = 0

    def cut(self, octets: Octets) -> bytes | None:
        """Returns a piece with its line ends; None if there is no such text."""
        quotes = self._quotes(octets)
        tokens = np.flatnonzero(_IS_TOKEN[octets])
        is_inside = (np.searchsorted(quotes, tokens) + self._in_string) % 2 == 1
        self._in_string ^= bool(len(quotes) % 2)
        if (octets[tokens[is_inside]] == _END).any():
            return None
        tokens = tokens[~is_inside]
        kinds = octets[tokens]
        depths = self._depth + np.cumsum(_STEP[kinds], dtype=np.int64)
        is_blank = _IS_BLANK[kinds]
        counted = depths[~is_blank]
        if len(counted):
            # The array is closed by the last bracket of the text; its opening one is checked by the caller.
            if self.is_closed or (counted[:-1] <= 0).any() or counted[-1] < 0:
                return None
            self._depth = int(counted[-1])
            self.is_closed = not self._depth
        result = octets.copy()
        result[tokens[kinds == _END]] = _BLANK
        result[tokens[(kinds == _COMMA) & (depths == 1)]] = _END
        return np.delete(result, tokens[is_blank & (depths <= 1)]).tobytes()

    def _quotes(self, octets: Octets) -> Positions:
        """Returns the quotes that begin or end a string."""
        quotes: Positions = np.flatnonzero(octets == _QUOTE)
        is_backslash = octets == _BACKSLASH
        before, self._backslashes = self._backslashes, 0
        if not before and not is_backslash.any():
            return quotes
        others = np.where(is_backslash, -1, np.arange(len(octets)))
        last = np.maximum.accumulate(others)  # the last byte that is no backslash, up to each byte
        runs = np.arange(len(octets)) - last
        runs[last < 0] += before
        self._backslashes = int(runs[-1])
        ahead = np.where(quotes > 0, runs[np.maximum(quotes - 1, 0)], before)
        ends: Positions = quotes[ahead % 2 == 0]
        return ends


def _are_objects(text: bytes) -> bool:
    """Returns whether every line begins and ends with a brace."""
    octets = np.frombuffer(text, dtype=np.uint8)
    ends = np.flatnonzero(octets == _END)
    return bool((octets[ends - 1] == _CLOSE).all() and (octets[ends[:-1] + 1] == _OPEN).all())
