"""Messages as bodies of rows: a line each; in a job of many tables, grouped by the table they name.

There a message is `table|data` (R3): the text before the first `|` is the name of a table of the job's
database, the rest is a row in the job's format. A message without a name is a bad row. Messages of one table
keep their order.

A message decides about no other one. CSV that is no text, or that leaves an enclosed field open, would do so
once the messages are joined: it would take in those behind it, or end the task. Such a message is a bad row.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.csv.open_field import LEFT_OPEN, left_open
from seqstore.loaders.error_log import ROWS_MAX
from seqstore.loaders.headers import CsvOptions, StreamLoadOptions
from seqstore.loaders.routine.source import Body
from seqstore.loaders.source import BadRow, Place, shown
from seqstore.store.errors import InvalidInputError

_SIGN: Final = b"|"
_EMPTY: Final = BadRow(Place(0, ""), "the message is empty")
_NO_TEXT: Final = "the message is not encoded in UTF-8"
_NAMELESS: Final = "the message names no table: expected table|data"
_BLOCK_BYTES: Final = 16 << 20
_LINE_BYTES_MAX: Final = 100 << 20
_MARK: Final = b"\xef\xbb\xbf"  # of UTF-8, which some editors begin files with


def bodies_of(messages: pa.Array, options: StreamLoadOptions, *, is_multi: bool) -> Iterator[Body]:
    """Bodies of messages, which are empty, NULL, or bytes.

    Args:
        options: that the bodies are read by, CSV or JSON.
        is_multi: the messages name their tables.
    """
    texts = pc.fill_null(messages.cast(pa.large_binary()), b"")
    if not is_multi:
        yield _body("", texts, options)
        return
    for table, rows in _by_table(texts):
        if table:
            yield _body(table, rows, options)
        else:
            bad = [_nameless(row.as_py()) for row in rows[:ROWS_MAX]]
            yield Body(BytesIO, bad_count=len(rows), bad=bad)


def bodies_of_lines(file: BinaryIO, options: StreamLoadOptions) -> Iterator[Body]:
    """Bodies of a file whose lines are messages of many tables; blank lines are none.

    Args:
        file: plain bytes.
        options: that the bodies are read by, CSV or JSON.

    Raises:
        InvalidInputError: a line is too long.
    """
    line_end = line_end_of(options)
    rest = file.read(len(_MARK)).removeprefix(_MARK)
    while piece := file.read(_BLOCK_BYTES):
        whole, found, rest = (rest + piece).rpartition(line_end)
        if len(rest) > _LINE_BYTES_MAX:
            raise InvalidInputError(
                f"a line is longer than {_LINE_BYTES_MAX >> 20} MB; is {line_end!r} the line delimiter?",
                kind="data_quality",
            )
        if found:
            yield from _bodies_of_block(whole, options)
    yield from _bodies_of_block(rest, options)


def line_end_of(options: StreamLoadOptions) -> bytes:
    """Returns the bytes that end a line of bodies that are CSV or JSON."""
    return options.csv.delimiter if options.is_csv else options.json.delimiter


def _bodies_of_block(block: bytes, options: StreamLoadOptions) -> Iterator[Body]:
    lines = pa.array(block.split(line_end_of(options)), pa.large_binary())
    kept = lines.filter(pc.invert(pc.is_in(lines, pa.array([b"", b"\r"], lines.type))))
    yield from bodies_of(kept, options, is_multi=True)


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


def _body(table: str, texts: pa.Array, options: StreamLoadOptions) -> Body:
    line_end = line_end_of(options)
    reasons = dict.fromkeys(_blank(texts, options), _EMPTY.reason)
    if options.is_csv:
        reasons |= _disturbing(texts, options.csv)
    if not reasons:
        lines = lines_of(texts, is_json=not options.is_csv, line_end=line_end)[0]
        return Body(lambda: BytesIO(lines), table, size=len(lines))
    wrong = sorted(reasons)
    kept = np.delete(np.arange(len(texts)), wrong)
    lines = lines_of(texts.take(pa.array(kept)), is_json=not options.is_csv, line_end=line_end)[0]
    listed = wrong if options.dead_letters else wrong[:ROWS_MAX]
    bad = [BadRow(Place(0, _whole(texts[row].as_py(), options)), reasons[row]) for row in listed]
    return Body(lambda: BytesIO(lines), table, len(wrong), bad, len(lines))


def _blank(texts: pa.Array, options: StreamLoadOptions) -> list[int]:
    """Returns the positions of messages without a line that is read as a row (R36)."""
    line_end = line_end_of(options)
    begins = pc.equal(pc.binary_length(texts), 0)
    for blank in (line_end, b"\r") if options.is_csv else (b" ", b"\t", b"\r", b"\n"):
        begins = pc.or_(begins, pc.starts_with(texts, blank))
    chosen = np.flatnonzero(begins.to_numpy(zero_copy_only=False)).tolist()
    found = zip(chosen, texts.take(pa.array(chosen, pa.int64())).to_pylist(), strict=True)
    if not options.is_csv:
        return [row for row, text in found if not text.strip()]
    passed = (b"", b"\r") if line_end == b"\n" else (b"",)
    return [row for row, text in found if all(line in passed for line in text.split(line_end))]


def _disturbing(texts: pa.Array, csv: CsvOptions) -> dict[int, str]:
    """Returns the positions of CSV messages that would change the rows of others, each with the reason."""
    rows = np.arange(len(texts))
    found: dict[int, str] = {}
    try:
        texts.cast(pa.large_string())
    except pa.ArrowInvalid:
        is_text = np.fromiter((_is_text(each.as_py()) for each in texts), bool, len(texts))
        found = dict.fromkeys(rows[~is_text].tolist(), _NO_TEXT)
        rows = rows[is_text]
        texts = texts.take(pa.array(rows))
    reason = LEFT_OPEN.format(csv.enclose.decode("latin-1"))
    return found | dict.fromkeys(rows[left_open(texts, csv)].tolist(), reason)


def _is_text(message: bytes) -> bool:
    try:
        message.decode()
    except UnicodeDecodeError:
        return False
    return True


def _whole(message: bytes, options: StreamLoadOptions) -> str:
    """Returns the text of a bad message; dead letters keep the whole one."""
    return message.decode("utf-8", "backslashreplace") if options.dead_letters else shown(message)


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
