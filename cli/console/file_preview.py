"""First rows of a Parquet or ORC file of which the browser sends some ranges.

The footer is at the end of the file. The browser sends the end; as long as the first rows need other bytes,
the answer names their ranges, and the browser asks again with these too. So a Parquet file of any size costs
some pages of each column. A column whose first page is beyond the limit has no values. ORC is needed whole.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset
import pyarrow.orc
import pyarrow.parquet as pq
from aiohttp import web

from seqstore.cli.console.value_texts import texts
from seqstore.store import InvalidInputError
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.types.column_types import INTEGER_RANGES, type_from_arrow

SENT_BYTES_MAX: Final = 8 << 20
FORMATS: Final = ("parquet", "orc")
_ROWS: Final = 12
_COLUMNS_MAX: Final = 200  # with values; all have a name, a type and a target
_PIECE_BYTES: Final = 64 << 10  # of a column, read at once
_CELL_CHARACTERS: Final = 200
_NUMBERS: Final = (*INTEGER_RANGES, "FLOAT", "DOUBLE", "DECIMAL")
Range = tuple[int, int]


class SentParts(io.RawIOBase):
    """A file of which some ranges are here; a read of others fails, and `missing` has what it wanted.

    Args:
        size: of the whole file.
        ranges: of the parts, first byte and the byte behind the last one.
        body: the parts, one behind the other.

    Raises:
        InvalidInputError: the ranges are not in order, or not those of the body.
    """

    def __init__(self, size: int, ranges: Sequence[Range], body: bytes) -> None:
        ends = [0, *(end for each in ranges for end in each), size]
        if any(a > b for a, b in pairwise(ends)) or sum(b - a for a, b in ranges) != len(body):
            raise InvalidInputError(
                f"parts: expected ranges in order, of {len(body)} bytes together, in a file of {size} bytes",
                kind="bad_request",
            )
        self._size = size
        self._at = 0
        self._parts: list[tuple[int, bytes]] = []
        start = 0
        for first, behind in ranges:
            self._parts.append((first, body[start : start + behind - first]))
            start += behind - first
        self.missing: list[Range] = []

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._at + size, self._size)
        for first, part in self._parts:
            if first <= self._at and end <= first + len(part):
                found = part[self._at - first : end - first]
                self._at = max(end, self._at)
                return found
        self.missing.append((self._at, end))
        raise OSError(f"the bytes from {self._at} to {end} were not sent")

    def whole(self) -> bytes:
        """Returns all bytes, from one part.

        Raises:
            OSError: they were not sent.
        """
        self.seek(0)
        return self.read()


def parts_in(request: web.BaseRequest, size: int) -> list[Range]:
    """Reads `parts=0-100,900-1000` of the query string.

    Raises:
        InvalidInputError: it is no list of ranges within the file.
    """
    found: list[Range] = []
    for text in request.query.get("parts", "").split(",")[:10_000]:
        first, _, behind = text.partition("-")
        if not (first.isdecimal() and behind.isdecimal() and len(text) < 40 and int(behind) <= size):
            raise InvalidInputError(
                f"parts: expected ranges such as 0-100,900-1000 up to {size}, found {text[:40]!r}",
                kind="bad_request",
            )
        found.append((int(first), int(behind)))
    return found


def preview(
    form: str, size: int, ranges: list[Range], body: bytes, schema: TableSchema, *, is_last: bool
) -> dict[str, Any]:
    """Returns columns with their types and targets, the first rows, and the ranges that more rows need.

    Args:
        is_last: the browser does not ask again: what is here is shown.

    Raises:
        InvalidInputError: the file cannot be read, or its table of contents is beyond the limit.
    """
    file = SentParts(size, ranges, body)
    try:
        found, values = (_parquet if form == "parquet" else _orc)(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        if (needs := _needs(file, ranges, is_last=is_last)) is not None:
            return {"needs": needs}
        if file.missing:
            raise InvalidInputError(
                f"{form}: the first rows need more than {SENT_BYTES_MAX >> 20} MiB of the file, so they are "
                "not shown; its columns are matched by their names",
                kind="too_large",
            ) from error
        first = str(error).split("\n")[0][:300]
        raise InvalidInputError(f"the file cannot be read as {form}: {first}", kind="data_quality") from error
    needs = _needs(file, ranges, is_last=is_last)
    rows_shown = max((len(each) for each in values.values()), default=0)
    targets = mapped(found["schema"], schema)
    columns = [
        {"name": field.name, "type": str(field.type)[:200], "target": targets[i], "has_values": i in values}
        for i, field in enumerate(found["schema"])
    ]
    rows = [
        [values[i][row] if i in values else None for i in range(len(columns))] for row in range(rows_shown)
    ]
    return {"columns": columns, "rows": rows, "rows_total": found["rows"], "needs": needs}


def _needs(file: SentParts, ranges: list[Range], *, is_last: bool) -> list[Range] | None:
    """Returns the ranges to send the next time, merged and in order; None where nothing is missing, where the
    limit is reached, or where nothing is asked for again."""
    if not file.missing or is_last:
        return None
    joined: list[Range] = []
    for first, behind in sorted([*ranges, *file.missing]):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], behind))
        else:
            joined.append((first, behind))
    return joined if sum(behind - first for first, behind in joined) <= SENT_BYTES_MAX else None


def _parquet(file: SentParts) -> tuple[dict[str, Any], dict[int, list[str | None]]]:
    opened = pq.ParquetFile(pa.PythonFile(file, mode="r"), pre_buffer=False, buffer_size=_PIECE_BYTES)
    schema, about = opened.schema_arrow, opened.metadata
    filled = [group for group in range(about.num_row_groups) if about.row_group(group).num_rows]
    values = {}
    for i, name in enumerate(schema.names[:_COLUMNS_MAX] if filled else ()):
        batches = opened.iter_batches(_ROWS, row_groups=filled[:1], columns=[name], use_threads=False)
        column = _first(file, batches)
        if column is not None:
            values[i] = column
    return {"schema": schema, "rows": about.num_rows}, values


def _orc(file: SentParts) -> tuple[dict[str, Any], dict[int, list[str | None]]]:
    whole = io.BytesIO(file.whole())  # Arrow's reader of ORC waits for ever if a read of its file fails
    rows = pa.orc.ORCFile(whole).nrows
    whole.seek(0)
    fragment = pa.dataset.OrcFileFormat().make_fragment(whole)
    schema = fragment.physical_schema
    scanner = fragment.scanner(batch_size=_ROWS, batch_readahead=1, fragment_readahead=0, use_threads=False)
    first = next((batch for batch in scanner.to_batches() if batch.num_rows), None)
    columns = first.columns[:_COLUMNS_MAX] if first is not None else []
    return {"schema": schema, "rows": rows}, {i: _texts(column) for i, column in enumerate(columns)}


def _first(file: SentParts, batches: Iterator[pa.RecordBatch]) -> list[str | None] | None:
    """Returns the first values of one column, None where its bytes are not here."""
    before = len(file.missing)
    try:
        batch = next(iter(batches))
        return _texts(batch.column(0))
    except (pa.ArrowException, OSError):
        if len(file.missing) == before:
            raise
        return None


def _texts(column: pa.Array) -> list[str | None]:
    return texts(pa.chunked_array([column.slice(0, _ROWS)]), _CELL_CHARACTERS)


def mapped(file: pa.Schema, table: TableSchema) -> list[str]:
    """Returns the column of the table for each of the file, empty for none: the one of its name, letters and
    digits alone; else the only one of its kind that is left, where no other of the file is of this kind."""
    known = {_plain(name): name for name in table.names}
    found = [known.pop(_plain(name), "") for name in file.names]
    kinds = [_kind_of_arrow(field.type) if not name else "" for field, name in zip(file, found, strict=True)]
    left: dict[str, list[str]] = {}
    for column in table.columns:
        if column.name not in found:
            left.setdefault(_kind(column.type.name), []).append(column.name)
    for i, kind in enumerate(kinds):
        if kind and kinds.count(kind) == 1 and len(left.get(kind, ())) == 1:
            found[i] = left[kind][0]
    return found


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _kind_of_arrow(arrow: pa.DataType) -> str:
    if pa.types.is_timestamp(arrow):
        return "time"
    try:
        return _kind(type_from_arrow(arrow).name)
    except InvalidInputError:
        return ""


def _kind(name: str) -> str:
    if name in _NUMBERS:
        return "number"
    return {"DATE": "time", "DATETIME": "time", "CHAR": "text", "VARCHAR": "text", "STRING": "text"}.get(
        name, name
    )
