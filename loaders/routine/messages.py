"""Messages as bodies of rows: a line each; in a job of many tables, grouped by the table they name.

There a message is `table|data` (R3): the text before the first `|` is the name of a table of the job's
database, the rest is a row in the job's format. A message without a name is a bad row. Messages of one table
keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.error_log import ROWS_MAX
from seqstore.loaders.routine.source import Body
from seqstore.loaders.source import BadRow, Place, shown
from seqstore.store.errors import InvalidInputError

_SIGN: Final = b"|"
_EMPTY: Final = BadRow(Place(0, ""), "the message is empty")
_NAMELESS: Final = "the message names no table: expected table|data"
_BLOCK_BYTES: Final = 16 << 20
_LINE_BYTES_MAX: Final = 100 << 20
_MARK: Final = b"\xef\xbb\xbf"  # of UTF-8, which some editors begin files with


def bodies_of(
    messages: pa.Array, *, is_json: bool, is_multi: bool, line_end: bytes = b"\n"
) -> Iterator[Body]:
    """Bodies of messages, which are empty, NULL, or bytes.

    Args:
        is_multi: they name their tables.
        line_end: the bytes that end a line of the bodies.
    """
    texts = pc.fill_null(messages.cast(pa.large_binary()), b"")
    if not is_multi:
        yield _body("", texts, is_json=is_json, line_end=line_end)
        return
    for table, rows in _by_table(texts):
        if table:
            yield _body(table, rows, is_json=is_json, line_end=line_end)
        else:
            bad = [_nameless(row.as_py()) for row in rows[:ROWS_MAX]]
            yield Body(BytesIO, bad_count=len(rows), bad=bad)


def bodies_of_lines(file: BinaryIO, *, is_json: bool, line_end: bytes) -> Iterator[Body]:
    """Bodies of a file whose lines are messages of many tables; blank lines are none.

    Args:
        file: plain bytes.

    Raises:
        InvalidInputError: a line is too long.
    """
    rest = file.read(len(_MARK)).removeprefix(_MARK)
    while piece := file.read(_BLOCK_BYTES):
        whole, found, rest = (rest + piece).rpartition(line_end)
        if len(rest) > _LINE_BYTES_MAX:
            raise InvalidInputError(
                f"a line is longer than {_LINE_BYTES_MAX >> 20} MB; is {line_end!r} the line delimiter?",
                kind="data_quality",
            )
        if found:
            yield from _bodies_of_block(whole, is_json=is_json, line_end=line_end)
    yield from _bodies_of_block(rest, is_json=is_json, line_end=line_end)


def _bodies_of_block(block: bytes, *, is_json: bool, line_end: bytes) -> Iterator[Body]:
    lines = pa.array(block.split(line_end), pa.large_binary())
    kept = lines.filter(pc.invert(pc.is_in(lines, pa.array([b"", b"\r"], lines.type))))
    yield from bodies_of(kept, is_json=is_json, is_multi=True, line_end=line_end)


def _by_table(texts: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yields names of tables, each with the rest of its messages; nameless messages are whole.

    Each message is cut in three in place: name, sign, rest.
    """
    at = np.maximum(pc.find_substring(texts, _SIGN).to_numpy(zero_copy_only=False), 0)
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    cuts = np.zeros(3 * len(texts) + 1, dtype=np.int64)
    cuts[3::3] = np.cumsum(lengths)
    cuts[1::3] = cuts[0:-1:3] + at
    cuts[2::3] = cuts[1::3] + (at > 0)
    buffers = [None, pa.py_buffer(cuts), pa.py_buffer(_joined(texts, b""))]
    parts = pa.Array.from_buffers(pa.large_binary(), 3 * len(texts), buffers, null_count=0)
    firsts = np.arange(0, len(parts), 3)
    names = parts.take(pa.array(firsts)).dictionary_encode()
    order = np.argsort(names.indices.to_numpy(), kind="stable")
    counts = np.bincount(names.indices.to_numpy(), minlength=len(names.dictionary))
    rests = parts.take(pa.array(firsts[order] + 2))
    begin = 0
    for name, count in zip(names.dictionary.to_pylist(), counts.tolist(), strict=True):
        yield name.decode("utf-8", "backslashreplace"), rests.slice(begin, count)
        begin += count


def _body(table: str, texts: pa.Array, *, is_json: bool, line_end: bytes) -> Body:
    lines, empty = lines_of(texts, is_json=is_json, line_end=line_end)
    return Body(lambda: BytesIO(lines), table, empty, [_EMPTY] * min(empty, ROWS_MAX), len(lines))


def _nameless(message: bytes) -> BadRow:
    return BadRow(Place(0, shown(message)), _NAMELESS if message else _EMPTY.reason)


def lines_of(texts: pa.Array, *, is_json: bool, line_end: bytes = b"\n") -> tuple[bytes, int]:
    """Messages as lines, and how many are empty (R36)."""
    texts = pc.fill_null(texts.cast(pa.large_binary()), b"")
    if is_json:  # line ends between the tokens of a document mean nothing, within them there are none
        for end in (b"\n", b"\r"):
            texts = pc.replace_substring(texts, end, b" ")
    kept = texts.filter(pc.greater(pc.binary_length(texts), 0))
    if not len(kept):
        return b"", len(texts)
    return _joined(kept, line_end) + line_end, len(texts) - len(kept)


def _joined(texts: pa.Array, between: bytes) -> bytes:
    """Returns all texts in a row, with `between` between two of them."""
    lists = pa.ListArray.from_arrays([0, len(texts)], texts)
    joined: bytes = pc.binary_join(lists, pa.scalar(between, texts.type))[0].as_py()
    return joined
