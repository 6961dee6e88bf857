"""CSV text: any separators, any enclosing character, at the speed of Arrow's own reader.

Arrow reads fields between one byte and lines between `\\n`. So a block of whole lines is rewritten until it
is that:

1. Line delimiters and separators of several bytes become one byte each; a `\\n` or `\\r` that is part of a
   value becomes a byte that does not occur in the block (see `sentinel_bytes.py`).
2. With `enclose`, separators and delimiters between an opening and its closing character become sentinel
   bytes too, and so do escaped characters. Opening is only a character that starts a field (V7); the next
   unescaped one closes (V4, V6).
3. Lines whose number of fields is wrong are removed and counted (V2); Arrow refuses a block that has some,
   and only then are they looked for.
4. Arrow reads the block. Sentinel bytes are reversed, one pair of enclosing characters is removed, `\\N` is
   NULL (V1).
5. A block without sentinel bytes is first read in the types of its columns (`typed_fields`); a small
   one is cut by `short_block`, for Arrow hands each block from thread to thread.

Step 1 and 2 do nothing for the common file, whose blocks reach Arrow unchanged. Blocks end at line ends,
so a block that ends inside an enclosed field grows by the next piece of the body; memory is that of a few
blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv as arrow_csv

from seqstore.loaders.csv.first_line import likely_cause
from seqstore.loaders.csv.sentinel_bytes import SentinelBytes
from seqstore.loaders.csv.short_block import cut
from seqstore.loaders.csv.typed_fields import TypedFields
from seqstore.loaders.headers import CsvOptions
from seqstore.loaders.source import BadRow, Place, SourceBatch, described_max, shown
from seqstore.store.errors import InvalidInputError
from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import ColumnType

BLOCK_BYTES: Final = 4 << 20
LINE_BYTES_MAX: Final = 100 << 20
_NULL: Final = "\\N"
_BOM: Final = b"\xef\xbb\xbf"
_PARSE_BYTES: Final = 1 << 20  # Arrow parses blocks of this size in parallel
_SHORT_BYTES: Final = 256 << 10
_WHOLE_BYTES: Final = 256 << 10  # a piece below it is mostly a whole body, whose last line may have no end

_STRING: Final = ColumnType("STRING")

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Block:
    """Whole lines, rewritten for Arrow.

    Attributes:
        data: rewritten; empty when the piece of the body held no line end.
        sentinel_bytes: restores the meaning.
        tail: the unchanged bytes behind the last line end.
        lines_before: lines of the body before this block.
    """

    data: bytes
    sentinel_bytes: SentinelBytes
    tail: bytes
    lines_before: int

    @cached_property
    def octets(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.data, dtype=np.uint8)

    @cached_property
    def _ends(self) -> Positions:
        ends = np.flatnonzero(self.octets == ord("\n"))
        is_open = len(self.data) and not self.data.endswith(b"\n")
        return np.append(ends, len(self.data)) if is_open else ends

    @cached_property
    def _inner_newlines(self) -> Positions:
        return self.sentinel_bytes.newlines(self.octets)

    @cached_property
    def line_count(self) -> int:
        # NumPy counts a frequent byte several times faster than bytes.count
        ends = int(np.count_nonzero(self.octets == ord("\n")))
        is_open = bool(self.data) and not self.data.endswith(b"\n")
        return ends + is_open + len(self._inner_newlines)

    @cached_property
    def lines(self) -> tuple[Positions, Positions]:
        """Starts and ends of the lines that are not empty: Arrow and Doris skip the others."""
        starts = np.concatenate([[0], self._ends[:-1] + 1]).astype(np.int64)
        lengths = self._ends - starts
        first = self.octets[np.minimum(starts, max(len(self.data) - 1, 0))]
        filled = (lengths > 1) | ((lengths == 1) & (first != ord("\r")))
        return starts[filled], self._ends[filled]

    def place(self, line: int, cause_of: Callable[[bytes, int], str]) -> Place:
        """Returns the place in the body of the n-th line that is not empty.

        Args:
            cause_of: returns the likely cause if a line of the body, given with its number, does not fit.
        """
        start, end = int(self.lines[0][line]), int(self.lines[1][line])
        before = int(np.searchsorted(self._ends, start) + np.searchsorted(self._inner_newlines, start))
        text = self.sentinel_bytes.undo(self.data[start:end].removesuffix(b"\r"))
        number = self.lines_before + before + 1
        return Place(number, shown(text), cause_of(text, number))


class CsvReader:
    """Reads CSV; fields are text columns with the names of the caller.

    Args:
        body: plain bytes.
        names: one for each field of a row, in order; unique.
        options: separators and the rest.
        types: of fields that may come in another type than text.
    """

    def __init__(
        self,
        body: BinaryIO,
        names: Sequence[str],
        options: CsvOptions,
        *,
        types: Mapping[str, pa.DataType] | None = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._body = body
        self._typed = TypedFields(names, types or {})
        self._names = list(names)
        self._options = options
        self._block_bytes = block_bytes
        self._lines_before = 0
        self._skip = options.skip_lines
        self._is_first = True

    def batches(self) -> Iterator[SourceBatch]:
        """Reads to the end.

        Raises:
            InvalidInputError: an enclosed field is never closed (V6), a line is too long, the body is no
                text.
        """
        for block in self._blocks():
            parsed = [self._parse(block)]
            self._lines_before += block.line_count
            del block
            if len(parsed[0].rows) or parsed[0].bad_count:
                yield parsed.pop()  # a local name would hold the batch until the next block

    def close(self) -> None:
        """Holds nothing but memory."""

    def _blocks(self) -> Iterator[_Block]:
        rest = following = b""
        wanted = self._block_bytes
        while True:
            piece = following or self._body.read(wanted)
            may_be_all = 0 < len(piece) < min(wanted, _WHOLE_BYTES)
            following = self._body.read(wanted) if may_be_all else b""
            is_end = not piece or (may_be_all and not following)
            data = self._without_head(rest + piece, is_end=is_end)
            if is_end:
                if data:
                    yield self._block(data, is_end=True)
                return
            block = self._block(data, is_end=False)
            rest = block.tail
            # a line longer than a block: read ever more at once, so that searching its end again stays cheap
            longer = min(len(rest), LINE_BYTES_MAX - len(rest) + 1)
            wanted = self._block_bytes if block.data else max(self._block_bytes, longer)
            del piece, data
            if block.data:
                yield block
            elif len(rest) > LINE_BYTES_MAX:
                raise InvalidInputError(
                    f"line {self._lines_before + 1} is longer than {LINE_BYTES_MAX >> 20} MB; "
                    "is line_delimiter right, and is every enclosed field closed?",
                    kind="data_quality",
                )

    def _without_head(self, data: bytes, *, is_end: bool) -> bytes:
        """Removes a byte order mark and the skipped lines from the start of the body."""
        if self._is_first and (len(data) >= len(_BOM) or is_end):
            data = data.removeprefix(_BOM)
            self._is_first = False
        while self._skip and not self._is_first:
            end = data.find(self._options.delimiter)
            if end < 0 and not is_end:
                return data
            data = data[end + len(self._options.delimiter) :] if end >= 0 else b""
            self._skip -= 1
            self._lines_before += 1
        return data

    def _block(self, data: bytes, *, is_end: bool) -> _Block:
        sentinel_bytes = SentinelBytes(self._options)
        if (self._skip or self._is_first) and not is_end:
            return _Block(b"", sentinel_bytes, data, self._lines_before)
        plain = sentinel_bytes.apply(data)
        if is_end and sentinel_bytes.open_at is not None:
            before = np.frombuffer(plain[: sentinel_bytes.open_at], dtype=np.uint8)
            line = (
                self._lines_before
                + int((before == ord("\n")).sum())
                + len(sentinel_bytes.newlines(before))
                + 1
            )
            raise InvalidInputError(
                f"line {line}: a field that starts with the enclosing character "
                f"{self._options.enclose.decode('latin-1')} is never closed",
                kind="data_quality",
            )
        end = len(plain) if is_end else plain.rfind(b"\n") + 1
        return _Block(plain[:end], sentinel_bytes, sentinel_bytes.undo(plain[end:]), self._lines_before)

    # ------------------------------------------------------------------------------------------ one block

    def _parse(self, block: _Block) -> SourceBatch:
        rows = self._plain(block) if block.sentinel_bytes.is_idle else None
        if rows is not None:

            def lines(rows: Sequence[int]) -> list[Place]:
                return [block.place(row, self._cause) for row in rows]

            return SourceBatch(rows, lines, held_bytes=len(block.data))
        return self._parse_text(block)

    def _plain(self, block: _Block) -> pa.Table | None:
        """Returns the rows of a block without a fault that Arrow or `cut` finds."""
        data, separator = block.data, block.sentinel_bytes.separator
        nulls = self._nulls
        if len(data) <= _SHORT_BYTES:
            columns = cut(data, separator, len(self._names), is_empty_null="" in nulls)
            return None if columns is None else pa.table(columns, names=self._names)
        return self._typed.read(data, separator, nulls)

    def _parse_text(self, block: _Block) -> SourceBatch:
        good: Positions | None = None
        bad: list[BadRow] = []
        bad_count = 0
        try:
            table = self._read(block, block.data, _PARSE_BYTES)
        except pa.ArrowInvalid:
            good, bad, bad_count = self._sort_out(block)
            starts, ends = block.lines
            kept = b"".join(block.data[starts[i] : ends[i] + 1] for i in good)
            table = self._read(block, kept, len(kept) + 1) if len(good) else self._table({})
        columns, not_text = self._as_text(table, block)
        if not_text is not None:
            rows = np.flatnonzero(not_text)
            lines = (rows if good is None else good[rows])[: described_max()]
            bad = [
                *bad,
                *(
                    BadRow.at(block.place(int(i), self._cause), "the row is not encoded in UTF-8")
                    for i in lines
                ),
            ]
            bad_count += len(rows)
            kept_rows = np.flatnonzero(~not_text)
            good = kept_rows if good is None else good[kept_rows]
            columns = {name: column.take(pa.array(kept_rows)) for name, column in columns.items()}

        def places(rows: Sequence[int]) -> list[Place]:
            return [block.place(int(row if good is None else good[row]), self._cause) for row in rows]

        return SourceBatch(self._table(columns), places, bad_count, bad, held_bytes=len(block.data))

    def _cause(self, line: bytes, number: int) -> str:
        """Returns the likely cause if the first line does not fit; a later line has none."""
        is_first = number == self._options.skip_lines + 1
        return likely_cause(line, self._names, self._options) if is_first else ""

    @property
    def _nulls(self) -> list[str]:
        return ["", _NULL] if self._options.empty_field_as_null else [_NULL]

    def _table(self, columns: dict[str, pa.Array]) -> pa.Table:
        empty = pa.array([], pa.string())
        return pa.table([columns.get(name, empty) for name in self._names], names=self._names)

    def _read(self, block: _Block, data: bytes, block_size: int) -> pa.Table:
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(
                column_names=self._names,
                block_size=block_size,
                use_threads=len(data) > block_size,  # handing one block over takes longer than parsing it
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=block.sentinel_bytes.separator.decode("ascii"),
                quote_char=False,
                double_quote=False,
                escape_char=False,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(self._names, pa.binary()),
                null_values=self._nulls,
                strings_can_be_null=True,
                check_utf8=False,
            ),
        )

    def _sort_out(self, block: _Block) -> tuple[Positions, list[BadRow], int]:
        """Returns lines with the right number of fields, the first of the others, and their count (V2)."""
        starts, ends = block.lines
        separators = np.flatnonzero(block.octets == ord(block.sentinel_bytes.separator))
        fields = np.searchsorted(separators, ends) - np.searchsorted(separators, starts) + 1
        is_good = fields == len(self._names)
        bad = [
            BadRow.at(
                block.place(int(i), self._cause), f"expected {len(self._names)} fields, found {fields[i]}"
            )
            for i in np.flatnonzero(~is_good)[: described_max()]
        ]
        return np.flatnonzero(is_good), bad, int((~is_good).sum())

    def _as_text(
        self, table: pa.Table, block: _Block
    ) -> tuple[dict[str, pa.Array], npt.NDArray[np.bool_] | None]:
        """Fields without sentinel bytes and enclosing characters; rows with bytes that are no text (V10)."""
        columns: dict[str, pa.Array] = {}
        not_text: npt.NDArray[np.bool_] | None = None
        for name in table.schema.names:
            text = try_cast(block.sentinel_bytes.finish(table.column(name)), _STRING)
            columns[name] = text.values
            if text.failed is not None:
                flags = np.asarray(text.failed.to_numpy(zero_copy_only=False))
                not_text = flags if not_text is None else not_text | flags
        return columns, not_text
