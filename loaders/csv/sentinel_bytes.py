"""Sentinel bytes: they replace others while Arrow reads a CSV block.

`apply` rewrites a block so that `separator` and `\\n` cut it. `finish` restores the meaning of a column's
fields, `undo` restores the original bytes. A sentinel byte never occurs in the original block.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.headers import CsvOptions
from seqstore.store.errors import InvalidInputError

# no UTF-8 text has the first ones; the others are control characters
_CANDIDATES: Final = (
    *range(0xFF, 0xF4, -1),
    0xC0,
    0xC1,
    *range(1, 9),
    11,
    12,
    *range(14, 32),
    127,
    *range(128, 0xC0),
)

Positions = npt.NDArray[np.int64]


class SentinelBytes:
    """The sentinel bytes of one block.

    Attributes:
        separator: the byte between fields of the rewritten block.
        open_at: where an enclosed field begins that the block does not close, or None.
    """

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self.separator = options.separator
        self.open_at: int | None = None
        self._meanings: dict[bytes, bytes] = {}  # sentinel -> original bytes, in the order of undoing
        self._newline = b""  # stands for a line end inside an enclosed field
        self._escaped: dict[bytes, bytes] = {}  # sentinel -> what it means inside an enclosed field
        self._line_end = b"\n"  # what `\n` stands for
        self._has_enclosed = False
        self._unused: list[int] | None = None
        self._data = b""

    @property
    def is_idle(self) -> bool:
        """Returns whether the fields of the block are the bytes between its separators and line ends."""
        return not (self._meanings or self._has_enclosed or self._options.trim_double_quotes)

    # ------------------------------------------------------------------------------------------ rewriting

    def apply(self, data: bytes) -> bytes:
        """Returns the block as Arrow can read it. What follows `open_at` is not cut."""
        self._data = data
        data = self._one_line_end(data)
        data = self._one_separator(data)
        if self._options.enclose and self._options.enclose in data:
            data = self._protect_enclosed(self._hide_escaped(data))
        self._data = b""
        return data

    def _sentinel(self, meaning: bytes, *, ascii_only: bool = False) -> bytes:
        if self._unused is None:
            counts = np.bincount(np.frombuffer(self._data, dtype=np.uint8), minlength=256)
            used = (
                self._options.separator
                + self._options.delimiter
                + self._options.enclose
                + self._options.escape
            )
            self._unused = [byte for byte in _CANDIDATES if not counts[byte] and byte not in used]
        chosen = next((byte for byte in self._unused if byte < 0x80 or not ascii_only), None)
        if chosen is None:
            raise InvalidInputError(
                "the body is no text: it uses every byte value there is; is compress_type missing?",
                kind="data_quality",
            )
        self._unused.remove(chosen)
        sentinel = bytes([chosen])
        self._meanings = {sentinel: meaning, **self._meanings}
        return sentinel

    def _one_line_end(self, data: bytes) -> bytes:
        delimiter = self._options.delimiter
        returns = data.count(b"\r") if b"\r" in data else 0
        if delimiter == b"\n":
            # V11: Arrow ends lines at \r\n too, but also at a lone \r, which is part of a value here
            is_plain = not returns or returns == data.count(b"\r\n")
            return data if is_plain else re.sub(rb"\r(?!\n)", self._sentinel(b"\r"), data)
        if delimiter == b"\r\n" and returns == data.count(b"\n") == data.count(delimiter):
            return data
        ends = self._sentinel(b"")  # for a moment only
        data = data.replace(delimiter, ends)
        for character in (b"\n", b"\r"):
            if character in data:
                data = data.replace(character, self._sentinel(character))
        self._line_end = delimiter
        del self._meanings[ends]
        return data.replace(ends, b"\n")

    def _one_separator(self, data: bytes) -> bytes:
        wanted = self._options.separator
        if len(wanted) == 1 and wanted < b"\x80" and wanted not in b"\0\r\n":  # Arrow refuses NUL
            return data
        rewritten = wanted
        for sentinel, meaning in self._meanings.items():
            if meaning in (b"\n", b"\r"):  # already rewritten in the data, so in what to look for as well
                rewritten = rewritten.replace(meaning, sentinel)
        self.separator = self._sentinel(wanted, ascii_only=True)
        return data.replace(rewritten, self.separator)

    # -------------------------------------------------------------------------------------- enclosed fields

    def _hide_escaped(self, data: bytes) -> bytes:
        escape, enclose = self._options.escape, self._options.enclose
        if escape == enclose:  # a doubled enclosing character, which `_protect_enclosed` finds
            return data
        for meaning in (enclose, escape):
            if escape + meaning in data:
                self._escaped[self._sentinel(escape + meaning)] = meaning
        if not self._escaped:
            return data
        sentinel_bytes = {escape + meaning: sentinel for sentinel, meaning in self._escaped.items()}
        pairs = b"|".join(
            re.escape(pair) for pair in sorted(sentinel_bytes, key=lambda pair: pair[1:] != escape)
        )
        return re.sub(pairs, lambda match: sentinel_bytes[match.group()], data)

    def _protect_enclosed(self, data: bytes) -> bytes:
        view = np.frombuffer(data, dtype=np.uint8)
        opens, closes = self._enclosed(view)
        if not len(opens):
            return data
        self._has_enclosed = True
        writable = view.copy()
        for special, meaning in (
            (self.separator, self._options.separator),
            (b"\n", self._line_end),
            (b"\r", b"\r"),
        ):
            found = np.flatnonzero(view == special[0])
            region = np.searchsorted(opens, found) - 1
            inside = found[(region >= 0) & (found < closes[region])]
            if len(inside):
                sentinel = self._sentinel(meaning)
                writable[inside] = sentinel[0]
                if special == b"\n":
                    self._newline = sentinel
        return self._with_single(writable, opens, closes)

    def _with_single(self, data: npt.NDArray[np.uint8], opens: Positions, closes: Positions) -> bytes:
        """Replaces each doubled enclosing character inside a field by a sentinel byte for one."""
        doubled = closes[:-1][closes[:-1] + 1 == opens[1:]]
        if not len(doubled):
            return data.tobytes()
        enclose = self._options.enclose
        sentinel = self._sentinel(enclose * 2)
        self._escaped[sentinel] = enclose
        data[doubled] = sentinel[0]
        if self.open_at is not None:
            self.open_at -= int(np.searchsorted(doubled, self.open_at))
        return np.delete(data, doubled + 1).tobytes()

    def _enclosed(self, view: npt.NDArray[np.uint8]) -> tuple[Positions, Positions]:
        """Returns both ends of the parts of enclosed fields.

        A character at a field's start opens (V7), the next one closes. One directly behind opens again: the
        two stand for one.
        """
        marks = np.flatnonzero(view == self._options.enclose[0])
        before = view[np.maximum(marks - 1, 0)]
        starts = (marks == 0) | (before == self.separator[0]) | (before == ord("\n"))
        follows = np.append(False, np.diff(marks) == 1)
        if len(marks) % 2 == 0 and (starts | follows)[0::2].all() and starts[:1].all():
            return marks[0::2], marks[1::2]
        opening: list[int] = []
        at = 0
        candidates = np.flatnonzero(starts | follows)
        for i in candidates.tolist():
            if i >= at and (starts[i] or (i == at and opening)):
                opening.append(i)
                at = i + 2
        chosen = np.array(opening, dtype=np.int64)
        if len(chosen) and chosen[-1] + 1 == len(marks):
            self.open_at = int(marks[-1])
        return marks[chosen], np.append(marks, len(view))[chosen + 1]

    # ------------------------------------------------------------------------------------------ turning back

    def undo(self, data: bytes) -> bytes:
        """Restores the original bytes."""
        if self._line_end != b"\n":
            data = data.replace(b"\n", self._line_end)
        for sentinel, meaning in self._meanings.items():
            data = data.replace(sentinel, meaning)
        return data

    def newlines(self, data: npt.NDArray[np.uint8]) -> Positions:
        """Returns the positions of line ends inside enclosed fields in rewritten bytes."""
        return np.flatnonzero(data == self._newline[0]) if self._newline else np.array([], dtype=np.int64)

    def finish(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Returns the fields of a column (bytes) without sentinel bytes and enclosing characters."""
        enclose, trim = self._options.enclose, self._options.trim_double_quotes
        if self._has_enclosed:
            enclosed = pc.starts_with(column, enclose)
            if enclose != b'"' or trim:  # V5: double quotes stay unless they are to be trimmed
                column = _without_pair(column, enclose)
            if self._escaped:
                column = pc.if_else(enclosed, _replaced(column, self._escaped), column)
        column = _replaced(column, self._meanings)
        return _without_pair(column, b'"') if trim and enclose != b'"' else column


def _replaced(column: pa.ChunkedArray, meanings: dict[bytes, bytes]) -> pa.ChunkedArray:
    for sentinel, meaning in meanings.items():
        column = pc.replace_substring(column, sentinel, meaning)
    return column


def _without_pair(column: pa.ChunkedArray, mark: bytes) -> pa.ChunkedArray:
    """Removes one outermost pair of the character from each value (V8)."""
    has_pair = pc.and_(
        pc.and_(pc.starts_with(column, mark), pc.ends_with(column, mark)),
        pc.greater_equal(pc.binary_length(column), 2),
    )
    if not pc.any(has_pair).as_py():
        return column
    return pc.if_else(has_pair, pc.binary_slice(column, 1, -1), column)
