"""Lines of JSON objects, cut into the spans of their values by NumPy and Arrow.

No step works value by value. Given whole lines:

1. The tokens of a block are its quotes, and the structural characters outside of strings.
2. Tokens within nested values are dropped. The others of a line must form `{"key":value,...}`.
3. Each spelling of a key is looked up once; then the place of a value is its line and its column.
4. Numbers are checked against the grammar of JSON, all at once, and keep their digits.
5. DuckDB parses nested values, strings with escapes, and the numbers that it writes in another way, each as a
   document of its own.

A line that deviates anywhere is left to the caller, which parses it as a document and knows the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.types.cast import evaluate, try_cast
from seqstore.store.types.column_types import ColumnType

_QUOTE, _COLON, _COMMA, _OPEN, _CLOSE, _END = b'":,{}\n'
_BACKSLASH: Final = ord("\\")
_CASE: Final = 0x20  # of a bracket and a brace
_BLANK: Final = np.isin(np.arange(256), np.frombuffer(b" \t\r", dtype=np.uint8))
_BLANKS_MAX: Final = 32  # in a row; more are left to the caller
_CACHED_BYTES: Final = 1 << 18  # so many, and their masks, stay in the cache of a core
_PAD: Final = 4  # line ends before the first token and behind the last one
_DIGIT: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789", dtype=np.uint8))
_NUMBER: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_REWRITTEN: Final = r"^-?[0-9]+\.[0-9]+$|^-0$"
_REWRITTEN_BYTES_MAX: Final = 16  # a longer number with a point keeps its digits
_RISKY_NESTED: Final = r"[0-9.]{16}|[0-9][eE][+-]?[0-9]"
_STRING, _NUMBER_KIND, _NESTED, _NULL, _TRUE, _FALSE, _OTHER = range(7)
_TEXT: Final = ColumnType("STRING")

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Wanted:
    """The values to look for.

    Attributes:
        columns: the number of columns.
        column_of: returns the column of a key, -1 for a key that is not wanted.
        json_columns: columns in which true and false stay.
        double_columns: columns of which only the doubles count: they are not given as text if all values of a
            block are numbers.
        keeps_digits: numbers with a fraction keep their text, too.
        any_depth: digits within nested values are kept as well, which is left to the caller.
    """

    columns: int
    column_of: Callable[[str], int]
    json_columns: frozenset[int]
    double_columns: frozenset[int]
    keeps_digits: bool
    any_depth: bool


@dataclass(frozen=True)
class FlatLines:
    """The values of a block of lines.

    Attributes:
        rows: numbers of the lines that were read, from 0; ascending.
        columns: their values as text or doubles, for each column.
        present: for each column, the rows that have it, NULL or not.
        left: numbers of the lines that are left to the caller; ascending.
        ends: positions of all line ends, with -1 before the first.
    """

    rows: Positions
    columns: list[pa.Array]
    present: list[Mask]
    left: Positions
    ends: Positions

    def line(self, block: bytes, number: int) -> bytes:
        """Returns a line of the block without its end."""
        return block[int(self.ends[number]) + 1 : int(self.ends[number + 1])]


def read_lines(block: bytes, wanted: Wanted) -> FlatLines:
    """Reads lines of one object each.

    Args:
        block: whole lines, the last one with its end.
    """
    lines = _Lines(block, wanted)
    lines.find_members()
    lines.check_text()
    lines.check_scalars()
    lines.parse_with_duckdb()
    return lines.result()


def has_negative_zero(values: npt.NDArray[np.floating]) -> bool:
    """Returns whether some of the numbers are zeros with a sign."""
    return bool(np.signbit(values[values == 0]).any())


def are_utf8(text: bytes | pa.Buffer) -> bool:
    """Returns whether bytes are UTF-8."""
    buffer = text if isinstance(text, pa.Buffer) else pa.py_buffer(text)
    offsets = pa.py_buffer(np.array([0, buffer.size], dtype=np.int32))
    try:
        pa.Array.from_buffers(pa.string(), 1, [None, offsets, buffer]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


@dataclass(frozen=True)
class _Tokens:
    """Tokens of the block in their order, and `_PAD` line ends before and behind them.

    The last of those before the first token stands for the start of the block.
    """

    at: Positions
    kinds: Octets

    def are(self, kind: int) -> Mask:
        mask: Mask = self.kinds == kind
        return mask


def _shifted(mask: Mask, by: int) -> Mask:
    """Returns, for each token from the start of the block on, the mask of the token `by` places behind it."""
    start = _PAD - 1 + by
    return mask[start : len(mask) - _PAD + by]


class _Lines:
    """The lines of a block while they are read. `wrong` marks those that are left to the caller."""

    def __init__(self, block: bytes, wanted: Wanted) -> None:
        self._wanted = wanted
        self._buffer = pa.py_buffer(block)
        self._octets = np.frombuffer(block, dtype=np.uint8)
        self._ends = np.concatenate([[-1], np.flatnonzero(self._octets == _END)])
        self._count = len(self._ends) - 1
        self._wrong = np.zeros(self._count, dtype=np.bool_)
        self._has_object = np.zeros(self._count, dtype=np.bool_)
        self._backslashes = _NO_POSITIONS
        self._quotes = _NO_POSITIONS
        if b"\\" in block:
            self._backslashes = np.flatnonzero(self._octets == _BACKSLASH)
        # of each value: its line, key, kind and span
        self._line = self._key = self._start = self._stop = _NO_POSITIONS
        self._kind: Octets = np.zeros(0, dtype=np.uint8)
        self._column = _NO_POSITIONS
        self._spellings: list[bytes] = []
        self._parsed: pa.Array = pa.array([], pa.string())
        self._parsed_at = _NO_POSITIONS  # of each value: its text in `_parsed`, -1 for that of the block
        self._doubles: pa.Array | None = None  # of all numbers

    # ------------------------------------------------------------------------------------------ tokens

    def find_members(self) -> None:
        """Finds keys and values."""
        tokens = self._tokens(self._octets)
        quote, colon, comma = tokens.are(_QUOTE), tokens.are(_COLON), tokens.are(_COMMA)
        opened, closed, end = tokens.are(_OPEN), tokens.are(_CLOSE), tokens.are(_END)
        ends_value, starts_key = comma | closed, comma | opened
        is_string = _shifted(quote, 1)
        follows = is_string & _shifted(quote, 2) & _shifted(ends_value, 3) | _shifted(ends_value, 1)
        leads = _shifted(quote, -1) & _shifted(quote, -2) & _shifted(starts_key, -3)
        next_colon, after_end, before_end = _shifted(colon, 3), _shifted(end, -1), _shifted(end, 1)
        here = {
            kind: _shifted(mask, 0) for kind, mask in enumerate((quote, colon, comma, opened, closed, end))
        }
        is_quote, is_colon, is_comma, is_open, is_close, is_end = here.values()
        wrong = is_colon & ~(leads & follows) | is_comma & ~next_colon
        wrong |= is_open & ~(after_end & (_shifted(closed, 1) | next_colon)) | is_close & ~before_end
        wrong |= before_end & ~(is_close | is_end) | after_end & ~(is_open | is_end)
        wrong |= ~(is_quote | is_colon | is_comma | is_open | is_close | is_end)
        holds_text = is_quote & ~_shifted(quote, -1) | is_colon & ~is_string
        at = tokens.at[_PAD - 1 : len(tokens.at) - _PAD + 3]
        wrong |= self._has_text_between(at, ~holds_text)
        line = np.cumsum(is_end, dtype=np.int64) - 1
        self._wrong[line[wrong & (line < self._count)]] = True
        self._has_object[line[is_open]] = True
        self._cut(at, np.flatnonzero(is_colon), line, is_string)

    def _tokens(self, octets: Octets) -> _Tokens:
        at = self._candidates(octets)
        kinds = octets[at]
        is_quote = kinds == _QUOTE
        inside = np.bitwise_xor.accumulate(is_quote.view(np.uint8)).view(np.bool_)
        odd = inside[kinds == _END]
        if odd.any():
            return self._tokens(self._without(octets, np.diff(odd.view(np.int8), prepend=0) != 0))
        self._quotes = at[is_quote]
        is_within = inside & ~is_quote
        if is_within.any():
            at, kinds = at[~is_within], kinds[~is_within]
        folded = kinds | _CASE
        is_open, is_close = folded == _OPEN, folded == _CLOSE
        if max(np.count_nonzero(is_open), np.count_nonzero(is_close)) > self._count:
            depth = np.cumsum(is_open.view(np.int8) - is_close.view(np.int8), dtype=np.int32)
            left_open = np.diff(depth[kinds == _END], prepend=0) != 0
            if left_open.any():
                return self._tokens(self._without(octets, left_open))
            is_flat = (depth < 2) & ~(is_close & (depth == 1))
            at, kinds = at[is_flat], kinds[is_flat]
        before, behind = np.full(_PAD, -1), np.full(_PAD, len(octets))
        pads = np.full(_PAD, _END, dtype=np.uint8)
        return _Tokens(np.concatenate([before, at, behind]), np.concatenate([pads, kinds, pads]))

    def _candidates(self, octets: Octets) -> Positions:
        """Returns the positions of quotes, structural characters and line ends that no backslash escapes."""
        escaped = _behind_odd_runs(self._backslashes, len(octets))
        escaped = escaped[octets[escaped] == _QUOTE]
        found = []
        for start in range(0, len(octets), _CACHED_BYTES):
            piece = octets[start : start + _CACHED_BYTES]
            folded = piece | _CASE
            is_token = piece == _QUOTE
            for kind in (_COLON, _COMMA, _END):
                is_token |= piece == kind
            for kind in (_OPEN, _CLOSE):
                is_token |= folded == kind
            if len(escaped):
                within = escaped[
                    np.searchsorted(escaped, start) : np.searchsorted(escaped, start + len(piece))
                ]
                is_token[within - start] = False
            found.append(np.flatnonzero(is_token) + start)
        return np.concatenate(found) if found else _NO_POSITIONS

    def _without(self, octets: Octets, lines: Mask) -> Octets:
        """Returns the block with some lines blanked, which the caller has to parse."""
        self._wrong |= lines
        cleared = octets.copy()
        for number in np.flatnonzero(lines).tolist():
            cleared[self._ends[number] + 1 : self._ends[number + 1]] = ord(" ")
        self._backslashes = np.flatnonzero(cleared == _BACKSLASH)
        self._octets = cleared
        self._buffer = pa.py_buffer(cleared)
        return cleared

    def _has_text_between(self, at: Positions, is_blank: Mask) -> Mask:
        """Marks the tokens that something else than blanks follows where only blanks may follow."""
        count = len(is_blank)
        gaps = at[1 : count + 1] - at[:count] - 1
        found = np.zeros(count, dtype=np.bool_)
        tokens = np.flatnonzero(is_blank & (gaps > 0))
        gaps = gaps[tokens]
        for offset in range(_BLANKS_MAX):
            if not len(tokens):
                return found
            found[tokens[~_BLANK[self._octets[at[tokens] + 1 + offset]]]] = True
            goes_on = gaps > offset + 1
            tokens, gaps = tokens[goes_on], gaps[goes_on]
        found[tokens] = True
        return found

    def _cut(self, at: Positions, colons: Positions, line: Positions, is_string: Mask) -> None:
        """Keeps the key and the value of each colon of the lines that are not wrong."""
        of_line = line[colons]
        if self._wrong.any():
            kept = ~self._wrong[of_line]
            colons, of_line = colons[kept], of_line[kept]
        texts = is_string[colons]
        self._line = of_line
        self._start = np.where(texts, at[np.minimum(colons + 1, len(at) - 1)], at[colons]) + 1
        self._stop = at[colons + 1 + texts]
        self._kind = np.where(texts, _STRING, _OTHER).astype(np.uint8)
        keys = self._texts(at[colons - 2] + 1, at[colons - 1]).dictionary_encode()
        self._key = np.asarray(keys.indices).astype(np.int64)
        self._spellings = keys.dictionary.to_pylist()

    def _texts(self, starts: Positions, stops: Positions) -> pa.Array:
        """Returns spans of the block, which follow each other."""
        count = len(starts)
        offsets = np.empty(2 * count + 1, dtype=np.int32)
        offsets[0 : 2 * count : 2], offsets[1 : 2 * count : 2] = starts, stops
        offsets[2 * count] = stops[-1] if count else 0
        spans = pa.Array.from_buffers(
            pa.binary(), 2 * count, [None, pa.py_buffer(offsets), self._buffer], null_count=0
        )
        return spans.take(pa.array(np.arange(0, 2 * count, 2)))

    # ------------------------------------------------------------------------------------------ checks

    def check_text(self) -> None:
        """Leaves lines with control characters in strings, bytes that are no text, or escapes in keys."""
        low = self._octets < _CASE
        if np.count_nonzero(low) > self._count:
            control = np.flatnonzero(low & (self._octets != _END))
            in_string = np.searchsorted(self._quotes, control) % 2 == 1
            self._leave_positions(control[in_string])
        if len(self._octets) and self._octets.max() > 127 and not are_utf8(self._buffer):
            lines = pa.Array.from_buffers(
                pa.binary(),
                self._count,
                [None, pa.py_buffer((self._ends + 1).astype(np.int32)), self._buffer],
                null_count=0,
            )
            failed = try_cast(lines, _TEXT).failed
            if failed is not None:
                self._wrong |= np.asarray(failed.to_numpy(zero_copy_only=False))
        escaped = [number for number, key in enumerate(self._spellings) if b"\\" in key]
        if escaped:
            self._leave(np.isin(self._key, escaped))

    def _leave(self, members: Mask | Positions) -> None:
        """Leaves the lines of some values to the caller."""
        self._wrong[self._line[members]] = True

    def _leave_positions(self, positions: Positions) -> None:
        self._wrong[np.searchsorted(self._ends, positions) - 1] = True

    def check_scalars(self) -> None:
        """Finds the kind of each value that is no string, and leaves lines with something else."""
        members = np.flatnonzero(self._kind == _OTHER)
        self._strip(members)
        is_empty = self._start[members] >= self._stop[members]
        self._leave(members[is_empty])
        members = members[~is_empty]
        first = self._octets[self._start[members]]
        self._kind[members[(first | _CASE) == _OPEN]] = _NESTED
        is_number = _DIGIT[first] | (first == ord("-"))
        self._kind[members[is_number]] = _NUMBER_KIND
        for word, kind in ((b"null", _NULL), (b"true", _TRUE), (b"false", _FALSE)):
            candidates = members[first == word[0]]
            matches = self._stop[candidates] - self._start[candidates] == len(word)
            candidates = candidates[matches]
            for offset, letter in enumerate(word):
                candidates = candidates[self._octets[self._start[candidates] + offset] == letter]
            self._kind[candidates] = kind
        self._leave(members[self._kind[members] == _OTHER])

    def _strip(self, members: Positions) -> None:
        """Removes blanks around values."""
        for side, step in ((self._start, 1), (self._stop, -1)):
            left = members
            for _ in range(_BLANKS_MAX):
                edge = side[left] if step > 0 else side[left] - 1
                left = left[(self._start[left] < self._stop[left]) & _BLANK[self._octets[edge]]]
                if not len(left):
                    break
                side[left] += step
            else:
                self._leave(left)

    # ------------------------------------------------------------------------------------------ values

    def parse_with_duckdb(self) -> None:
        """Lets DuckDB parse the values whose text in the block is not their text in the result."""
        self._parsed_at = np.full(len(self._line), -1, dtype=np.int64)
        parts = [self._escaped_strings(), self._nested(), self._rewritten_numbers()]
        members = np.concatenate([found for found, _ in parts])
        if not len(members):
            return
        documents = pa.concat_arrays([texts for _, texts in parts])
        texts = evaluate(documents, "CASE WHEN json_valid(c) THEN json_extract_string(c, '$') END")
        self._leave(members[np.asarray(texts.is_null().to_numpy(zero_copy_only=False))])
        self._parsed_at[members] = np.arange(len(members))
        self._parsed = texts.cast(pa.string())

    def _escaped_strings(self) -> tuple[Positions, pa.Array]:
        """Returns the strings with a backslash; a backslash anywhere else is left to the caller."""
        if not len(self._backslashes) or not len(self._start):
            self._leave_positions(self._backslashes)
            return _NO_POSITIONS, pa.array([], pa.string())
        members = np.searchsorted(self._start, self._backslashes, side="right") - 1
        is_within = (members >= 0) & (self._backslashes < self._stop[members])
        self._leave_positions(self._backslashes[~is_within])
        members = np.unique(members[is_within])
        kinds = self._kind[members]
        self._leave(members[(kinds != _STRING) & (kinds != _NESTED)])
        members = members[(kinds == _STRING) & ~self._wrong[self._line[members]]]
        return members, self._texts(self._start[members] - 1, self._stop[members] + 1).view(pa.string())

    def _nested(self) -> tuple[Positions, pa.Array]:
        members = np.flatnonzero((self._kind == _NESTED) & ~self._wrong[self._line])
        texts = self._texts(self._start[members], self._stop[members])
        if self._wanted.any_depth and len(members):
            risky = _FRACTION if self._wanted.keeps_digits else _RISKY_NESTED
            is_plain = ~np.asarray(pc.match_substring_regex(texts, risky).to_numpy(zero_copy_only=False))
            self._leave(members[~is_plain])
            members, texts = members[is_plain], texts.filter(pa.array(is_plain))
        return members, texts.view(pa.string())

    def _rewritten_numbers(self) -> tuple[Positions, pa.Array]:
        """Checks the numbers, and returns those that DuckDB writes with other digits, such as 1.10."""
        members = np.flatnonzero(self._kind == _NUMBER_KIND)
        texts = self._texts(self._start[members], self._stop[members]).view(pa.string())
        self._leave(members[~self._are_numbers(members, texts)])
        start, stop, octets = self._start[members], self._stop[members], self._octets
        length = stop - start
        has_minus = octets[start] == ord("-")
        start = start + has_minus
        zeros = [octets[np.minimum(start + offset, stop - 1)] == ord("0") for offset in (0, 2, 3)]
        is_candidate = (octets[stop - 1] == ord("0")) & (octets[stop - 2] != ord("."))
        is_candidate |= zeros[0] & (zeros[1] & zeros[2] | has_minus & (length <= 4))
        is_candidate &= length <= _REWRITTEN_BYTES_MAX
        is_candidate &= ~self._wrong[self._line[members]]
        rows = np.flatnonzero(is_candidate)
        texts = texts.take(pa.array(rows))
        pattern = r"^-0$" if self._wanted.keeps_digits else _REWRITTEN
        is_rewritten = pc.match_substring_regex(texts, pattern)
        chosen = np.asarray(is_rewritten.to_numpy(zero_copy_only=False))
        return members[rows[chosen]], texts.filter(is_rewritten)

    def _are_numbers(self, members: Positions, texts: pa.Array) -> Mask:
        """Marks the texts that are numbers of JSON; each starts with a digit or a minus."""
        if len(texts) and self._parse_as_doubles(members, texts):
            return np.ones(len(texts), dtype=np.bool_)
        return np.asarray(pc.match_substring_regex(texts, _NUMBER).to_numpy(zero_copy_only=False))

    def _parse_as_doubles(self, members: Positions, texts: pa.Array) -> bool:
        """Returns whether all texts are numbers of JSON, and keeps them as doubles.

        Arrow reads more than those: leading zeros, and a point without a digit on either side.
        """
        start, stop, octets = self._start[members], self._stop[members], self._octets
        start = start + (octets[start] == ord("-"))
        second = octets[np.minimum(start + 1, stop - 1)]
        leads_with_zero = (octets[start] == ord("0")) & (stop - start > 1) & _DIGIT[second]
        if leads_with_zero.any() or not (_DIGIT[octets[start]] & _DIGIT[octets[stop - 1]]).all():
            return False
        _, offsets, data = texts.buffers()
        size = int(np.frombuffer(offsets, dtype=np.int32)[len(texts)])
        content = np.frombuffer(data, dtype=np.uint8)[:size]
        points = np.flatnonzero(content == ord("."))
        if not (_DIGIT[content[points - 1]] & _DIGIT[content[points + 1]]).all():
            return False
        try:
            self._doubles = texts.cast(pa.float64())
        except pa.ArrowInvalid:
            return False
        return True

    # ------------------------------------------------------------------------------------------ result

    def result(self) -> FlatLines:
        """Returns the values of the lines that are not wrong."""
        places = self._places()
        rows = np.flatnonzero(self._has_object & ~self._wrong)
        columns, present = [], []
        for column in range(self._wanted.columns):
            members = places[rows, column]
            present.append(members >= 0)
            doubles = self._doubles_of(column, members)
            columns.append(doubles if doubles is not None else self._values(rows, members, column))
        return FlatLines(rows, columns, present, np.flatnonzero(self._wrong), self._ends)

    def _places(self) -> Positions:
        """Returns the value of each line and column, -1 for none. A line with two for a column is left."""
        columns = self._wanted.columns
        found = [self._wanted.column_of(_decoded(key)) for key in self._spellings]
        column = np.array(found, dtype=np.int64)[self._key] if found else _NO_POSITIONS
        members = np.flatnonzero(column >= 0)
        cells = self._line[members] * columns + column[members]
        counts = np.bincount(cells, minlength=self._count * columns)
        if len(cells) and counts.max() > 1:
            self._wrong |= (counts.reshape(self._count, columns) > 1).any(axis=1)
        places = np.full(self._count * columns, -1, dtype=np.int64)
        places[cells] = members
        return places.reshape(self._count, columns)

    def _doubles_of(self, column: int, members: Positions) -> pa.Array | None:
        """Returns the numbers of one column; None where text is wanted, or something is no number."""
        if column not in self._wanted.double_columns or self._doubles is None or self._wrong.any():
            return None
        is_null = (members < 0) | (self._kind[members] == _NULL)
        if not (is_null | (self._kind[members] == _NUMBER_KIND)).all():
            return None
        order = np.cumsum(self._kind == _NUMBER_KIND) - 1
        values = np.asarray(self._doubles)[order[members]]
        if has_negative_zero(values):  # -0 has the text 0
            return None
        return pa.array(values, mask=is_null if is_null.any() else None)

    def _values(self, rows: Positions, members: Positions, column: int) -> pa.Array:
        """Returns the texts of one column; a member of -1 is NULL."""
        if not len(self._line):
            return pa.nulls(len(rows), pa.string())
        kinds = np.where(members >= 0, self._kind[members], _NULL)
        is_null = kinds == _NULL
        starts, stops = self._start[members], self._stop[members]
        if is_null.any():
            nowhere = self._ends[rows] + 1
            starts, stops = np.where(is_null, nowhere, starts), np.where(is_null, nowhere, stops)
        values = self._texts(starts, stops).view(pa.string())
        if column not in self._wanted.json_columns:
            for kind, digit in ((_TRUE, "1"), (_FALSE, "0")):
                is_kind = kinds == kind
                if is_kind.any():
                    values = pc.if_else(pa.array(is_kind), digit, values)
        parsed = np.where(members >= 0, self._parsed_at[members], -1)
        is_parsed = parsed >= 0
        if is_parsed.any():
            texts = self._parsed.take(pa.array(parsed[is_parsed]))
            values = pc.replace_with_mask(values, pa.array(is_parsed), texts)
        return (
            pc.if_else(pa.array(is_null), pa.scalar(None, pa.string()), values) if is_null.any() else values
        )


_NO_POSITIONS: Final[Positions] = np.array([], dtype=np.int64)
_FRACTION: Final = r"[0-9](\.[0-9]|[eE][+-]?[0-9])"


def _behind_odd_runs(backslashes: Positions, count: int) -> Positions:
    """Returns the positions of escaped characters: those behind an odd number of backslashes."""
    if not len(backslashes):
        return backslashes
    first = np.flatnonzero(np.diff(backslashes, prepend=-2) != 1)
    lengths = np.diff(np.append(first, len(backslashes)))
    behind: Positions = (backslashes[first] + lengths)[lengths % 2 == 1]
    return behind[behind < count]


def _decoded(key: bytes) -> str:
    return key.decode("utf-8", "replace")
