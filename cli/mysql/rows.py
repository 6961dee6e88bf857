"""Answers on the wire: column definitions, and rows encoded by Arrow and NumPy a batch at a time.

A batch becomes one buffer of packets:

1. Each column turns into byte strings, one a row: text with its length in front (text protocol), or numbers,
   dates and lengths as they are in memory (binary protocol).
2. The columns are joined row by row; the binary protocol has a null bitmap in front.
3. The packet headers, made from the rows' lengths, are joined in front, and the connection sends the buffer
   below the joined array.

Up to `_FEW_ROWS` rows are written one by one, which takes less time than the calls of Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.cli.mysql import wire
from seqstore.store.sql.evaluate.answer_origins import Origin
from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import parse_type
from seqstore.store.types.fraction_digits import datetime_texts, fraction_digits_of

_BATCH_BYTES: Final = 1 << 24
_FEW_ROWS: Final = 16
_BINARY_CHARSET: Final = 63
_UTF8_CHARSET: Final = 45
_NOT_NULL_FLAG: Final = 0x1
_KEY_FLAGS: Final = 0x4002  # of the primary key, and a part of a key
_BINARY_FLAG: Final = 0x80
_GENERATED_FLAG: Final = 0x200
_NUMBER_FLAG: Final = 0x8000
_SOME_MOMENT: Final = datetime(2000, 1, 1)
_STRING: Final = parse_type("STRING")
_LARGEINT: Final = parse_type("LARGEINT").arrow
_ONE_BYTE: Final = pa.array([bytes([n]) for n in range(251)], pa.binary())
_NULL_MARK: Final = pa.scalar(b"\xfb", pa.binary())
_EMPTY: Final = pa.scalar(b"", pa.binary())

# Arrow type -> protocol type, width of the display, NumPy type of the binary protocol.
_NUMBERS: Final[dict[pa.DataType, tuple[int, int, str]]] = {
    pa.bool_(): (0x01, 1, "<i1"),
    pa.int8(): (0x01, 4, "<i1"),
    pa.int16(): (0x02, 6, "<i2"),
    pa.int32(): (0x03, 11, "<i4"),
    pa.int64(): (0x08, 20, "<i8"),
    pa.uint8(): (0x02, 3, "<i2"),
    pa.uint16(): (0x03, 5, "<i4"),
    pa.uint32(): (0x08, 10, "<i8"),
    pa.float32(): (0x04, 12, "<f4"),
    pa.float64(): (0x05, 22, "<f8"),
}
_DECIMAL_TYPE, _DATE_TYPE, _DATETIME_TYPE, _TEXT_TYPE, _BLOB_TYPE = 0xF6, 0x0A, 0x0C, 0xFD, 0xFC


def column_definition(field: pa.Field, origin: Origin | None = None, database: str = "") -> bytes:
    """Returns the packet that describes one column.

    Args:
        origin: of the column, None for one that is computed.
        database: the current one.
    """
    kind, width, decimals, flags, charset = _described(field.type)
    digits = fraction_digits_of(field)
    if digits is not None:
        width, decimals = 19 + (digits + 1 if digits else 0), digits
    if not field.nullable or (origin is not None and origin.is_required):
        flags |= _NOT_NULL_FLAG
    of = ("", "", "")
    own_name = field.name
    if origin is not None:
        of = (origin.database or database if origin.table else "", origin.alias, origin.table)
        own_name = origin.column if origin.table else ""
        flags |= _KEY_FLAGS * origin.is_key | _GENERATED_FLAG * origin.is_generated
    names = (wire.text(part) for part in ("def", *of, field.name, own_name))
    return (
        b"".join(names)
        + b"\x0c"
        + charset.to_bytes(2, "little")
        + width.to_bytes(4, "little")
        + bytes([kind])
        + flags.to_bytes(2, "little")
        + bytes([decimals, 0, 0])
    )


def _described(kind: pa.DataType) -> tuple[int, int, int, int, int]:
    """Returns protocol type, width, decimals, flags and character set of a column."""
    number = _NUMBERS.get(kind)
    flags = _BINARY_FLAG | _NUMBER_FLAG
    if number is not None:
        return number[0], number[1], 31 if pa.types.is_floating(kind) else 0, flags, _BINARY_CHARSET
    if kind == _LARGEINT:  # text, as from Doris: drivers have no decimal of 39 digits
        return _TEXT_TYPE, 40 * 4, 0, 0, _UTF8_CHARSET
    if pa.types.is_decimal(kind):
        return _DECIMAL_TYPE, kind.precision + 2, kind.scale, flags, _BINARY_CHARSET
    if pa.types.is_date(kind):
        return _DATE_TYPE, 10, 0, _BINARY_FLAG, _BINARY_CHARSET
    if pa.types.is_timestamp(kind):
        return _DATETIME_TYPE, 26, 6, _BINARY_FLAG, _BINARY_CHARSET
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _BLOB_TYPE, 0xFFFF, 0, _BINARY_FLAG, _BINARY_CHARSET
    return _TEXT_TYPE, 0xFFFF * 4, 0, 0, _UTF8_CHARSET


def send_rows(channel: wire.Channel, batch: pa.RecordBatch, *, is_binary: bool) -> None:
    """Sends the rows of a batch, in parts whose buffers stay small."""
    if not batch.num_rows:
        return
    if batch.nbytes > _BATCH_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        send_rows(channel, batch.slice(0, half), is_binary=is_binary)
        send_rows(channel, batch.slice(half), is_binary=is_binary)
        return
    if batch.num_rows <= _FEW_ROWS:
        for few in few_payloads(batch, is_binary=is_binary):
            channel.write(few)
        return
    payloads = many_payloads(batch, is_binary=is_binary)
    lengths = pc.binary_length(payloads).to_numpy()
    if lengths.max() >= wire.PAYLOAD_MAX:  # such a row needs several packets
        for payload in payloads:
            channel.write(payload.as_py())
        return
    headers = np.empty((len(lengths), 4), np.uint8)
    headers[:, :3] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3]
    headers[:, 3] = np.arange(channel.sequence, channel.sequence + len(lengths)) & 0xFF
    channel.write_packets(_buffer(_joined([_fixed(headers), payloads])), len(lengths))


def many_payloads(batch: pa.RecordBatch, *, is_binary: bool) -> pa.Array:
    """Returns rows as the protocol writes them; see the module."""
    if is_binary:
        return _binary_payloads(batch)
    return _joined(
        [part for column in map(_text_of, batch.schema, batch.columns) for part in _measured(column)]
    )


def few_payloads(batch: pa.RecordBatch, *, is_binary: bool) -> Iterator[bytes]:
    """Returns what `many_payloads` returns, for so few rows that the calls of Arrow would take longer."""
    if is_binary:
        return _few_binary_payloads(batch)
    return _few_text_payloads(batch)


def _few_text_payloads(batch: pa.RecordBatch) -> Iterator[bytes]:
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_string(field.type):
            columns.append(column.cast(pa.binary()).to_pylist())
        elif pa.types.is_signed_integer(field.type):
            columns.append([None if n is None else b"%d" % n for n in column.to_pylist()])
        else:
            columns.append(_text_of(field, column).to_pylist())
    for row in zip(*columns, strict=True):
        yield b"".join(b"\xfb" if cell is None else wire.lenenc(len(cell)) + cell for cell in row)


def _few_binary_payloads(batch: pa.RecordBatch) -> Iterator[bytes]:
    columns = []
    for column in batch.columns:
        kind = column.type
        if pa.types.is_string(kind):
            texts = column.cast(pa.binary()).to_pylist()
            columns.append([None if text is None else wire.lenenc(len(text)) + text for text in texts])
        elif pa.types.is_signed_integer(kind):
            width = kind.bit_width // 8
            numbers = column.to_pylist()
            columns.append([None if n is None else n.to_bytes(width, "little", signed=True) for n in numbers])
        else:
            cells = _joined(list(_binary(column))).to_pylist()
            columns.append(
                [
                    cell if valid else None
                    for cell, valid in zip(cells, column.is_valid().to_pylist(), strict=True)
                ]
            )
    width = (len(columns) + 2 + 7) // 8
    for row in zip(*columns, strict=True):
        nulls = sum([1 << place for place, cell in enumerate(row, 2) if cell is None])
        yield b"".join([b"\0", nulls.to_bytes(width, "little"), *[cell for cell in row if cell is not None]])


def _text_of(field: pa.Field, column: pa.Array) -> pa.Array:
    digits = fraction_digits_of(field)
    return _text(column) if digits is None else datetime_texts(column, digits).cast(pa.binary())


def _text(column: pa.Array) -> pa.Array:
    """Returns values as the text protocol writes them."""
    kind = column.type
    if pa.types.is_binary(kind):
        return column
    if pa.types.is_timestamp(kind):
        return _moments(column).cast(pa.binary())
    return try_cast(column, _STRING).values.cast(pa.binary())


def _moments(column: pa.Array) -> pa.Array:
    """Dates with times; all of a batch show 0, 3 or 6 digits of a second, as many as they need."""
    column = column.cast(pa.timestamp("us"))
    micros = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    digits = 0 if not (micros % 1_000_000).any() else 3 if not (micros % 1000).any() else 6
    texts = try_cast(column, _STRING).values
    return pc.utf8_slice_codeunits(texts, 0, 19 if not digits else 20 + digits)


def _measured(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns the encoded lengths and the byte strings, which follow them; NULL has a length of its own."""
    lengths = pc.binary_length(values).fill_null(0)
    counts = lengths.to_numpy()
    small = np.minimum(counts, 250)
    prefix = _ONE_BYTE.take(pa.array(small))
    if (counts > 250).any():
        prefix = pc.if_else(pc.greater(lengths, 250), _long_lengths(counts), prefix)
    if values.null_count:
        return pc.if_else(values.is_null(), _NULL_MARK, prefix), values.fill_null(b"")
    return prefix, values


def _long_lengths(counts: npt.NDArray[Any]) -> pa.Array:
    """Lengths of more than 250 bytes: a mark and two bytes, or a mark and three or eight."""
    octets = counts.astype("<u8").view(np.uint8).reshape(-1, 8)
    parts = []
    for mark, width in ((0xFC, 2), (0xFD, 3), (0xFE, 8)):
        cells = np.empty((len(counts), width + 1), np.uint8)
        cells[:, 0] = mark
        cells[:, 1:] = octets[:, :width]
        parts.append(_fixed(cells))
    two, three, eight = parts
    longer = pc.if_else(pa.array(counts < 1 << 24), three, eight)
    return pc.if_else(pa.array(counts < 1 << 16), two, longer)


def _binary_payloads(batch: pa.RecordBatch) -> pa.Array:
    nulls = np.zeros((batch.num_rows, batch.num_columns + 2), np.uint8)
    for i, column in enumerate(batch.columns):
        if column.null_count:
            nulls[:, i + 2] = column.is_null().to_numpy(zero_copy_only=False)
    bitmap = np.packbits(nulls, axis=1, bitorder="little")
    head = np.zeros((batch.num_rows, bitmap.shape[1] + 1), np.uint8)
    head[:, 1:] = bitmap
    return _joined([_fixed(head), *(part for column in batch.columns for part in _binary(column))])


def _binary(column: pa.Array) -> tuple[pa.Array, ...]:
    """Returns values as the binary protocol writes them, nothing at all for NULL."""
    kind = column.type
    number = _NUMBERS.get(kind)
    if number is not None:
        filled = column.cast(pa.int8()) if pa.types.is_boolean(kind) else column
        cells = np.ascontiguousarray(filled.fill_null(0).to_numpy(zero_copy_only=False).astype(number[2]))
        part = _fixed(cells.view(np.uint8).reshape(len(cells), -1))
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        part = _calendar(column)
    else:
        prefix, values = _measured(_text(column))
        return (pc.if_else(column.is_null(), _EMPTY, prefix) if column.null_count else prefix), values
    return (pc.if_else(column.is_null(), _EMPTY, part) if column.null_count else part,)


def _calendar(column: pa.Array) -> pa.Array:
    """Dates in 4 bytes, moments in 7, and in 11 those with a part of a second, with that length in front."""
    filled = column.fill_null(pa.scalar(_SOME_MOMENT, column.type)) if column.null_count else column
    is_date = pa.types.is_date(column.type)
    cells = np.zeros((len(column), 5 if is_date else 12), np.uint8)
    cells[:, 0] = cells.shape[1] - 1
    years = pc.year(filled).to_numpy().astype("<u2")
    cells[:, 1:3] = years.view(np.uint8).reshape(-1, 2)
    cells[:, 3] = pc.month(filled).to_numpy()
    cells[:, 4] = pc.day(filled).to_numpy()
    if not is_date:
        for place, part in ((5, pc.hour), (6, pc.minute), (7, pc.second)):
            cells[:, place] = part(filled).to_numpy()
        micros = filled.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() % 1_000_000
        whole = cells[:, :8].copy()  # of one row a contiguous array would be a view
        whole[:, 0] = 7
        if not micros.any():
            return _fixed(whole)
        cells[:, 8:12] = micros.astype("<u4").view(np.uint8).reshape(-1, 4)
        return pc.if_else(pa.array(micros == 0), _fixed(whole), _fixed(cells))
    return _fixed(cells)


def _fixed(cells: npt.NDArray[np.uint8]) -> pa.Array:
    """Returns rows of equally many bytes as byte strings."""
    count, width = cells.shape
    buffer = pa.py_buffer(np.ascontiguousarray(cells))
    return pa.Array.from_buffers(pa.binary(width), count, [None, buffer]).cast(pa.binary())


def _joined(parts: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _EMPTY)


def _buffer(array: pa.Array) -> memoryview:
    """Returns the bytes of all strings of an array, one behind the other."""
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    found: memoryview = memoryview(data)[int(bounds[0]) : int(bounds[-1])]
    return found
