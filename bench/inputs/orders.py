"""The rows of all workloads: orders, about 100 bytes each in Arrow, a BIGINT key and 8 value columns.

One of the value columns is the sequence. Everything is a function of a seed. The base is one row per order,
in random order. A batch updates orders at random:

- 5 % of its rows repeat the key of another row of the batch;
- 10 % are late: their sequence is smaller than any stored one;
- about 5 % are new orders, with keys above those of the base;
- the others have the batch's own minute as sequence, 60 ticks wide, so that equal sequences occur.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore import Column, TableSchema, parse_type

KEY: Final = "order_id"
SEQUENCE: Final = "updated_at"
NEW_KEYS_SHARE: Final = 0.05
LATE_SHARE: Final = 0.10
REPEATED_SHARE: Final = 0.05

_SKUS: Final = 5_000
_NOTE_BYTES: Final = 40
_MINUTE: Final = 60
_FIRST_MINUTE: Final = 1_000_000
_CHUNK_ROWS: Final = 1_000_000

SCHEMA: Final = pa.schema(
    [
        pa.field(KEY, pa.int64(), False),
        pa.field(SEQUENCE, pa.int64(), False),
        pa.field("sku", pa.string(), False),
        pa.field("quantity", pa.int32(), False),
        pa.field("price", pa.float64(), False),
        pa.field("customer_id", pa.int64(), False),
        pa.field("weight", pa.float64(), False),
        pa.field("is_paid", pa.bool_(), False),
        pa.field("note", pa.string(), False),
    ]
)
_TYPES: Final = (
    ("order_id", "bigint"),
    ("updated_at", "bigint"),
    ("sku", "varchar(20)"),
    ("quantity", "int"),
    ("price", "double"),
    ("customer_id", "bigint"),
    ("weight", "double"),
    ("is_paid", "boolean"),
    ("note", "varchar(100)"),
)

Keys = npt.NDArray[np.int64]


def table_schema(**properties: str) -> TableSchema:
    """The table of the orders, its sequence mapped to `updated_at`."""
    columns = [Column(name, parse_type(text), nullable=False) for name, text in _TYPES]
    given = {"function_column.sequence_col": SEQUENCE, **properties}
    return TableSchema.create(columns, [KEY], properties=given)


def key_count(rows: int) -> int:
    """Keys there can be over a base of some rows: 0 to this, exclusive."""
    return rows + max(1, round(rows * NEW_KEYS_SHARE))


def base_rows(rows: int, seed: int) -> pa.Table:
    """Orders 0 to `rows` - 1 in random order, in chunks of a million as a file reader would give them."""
    return pa.Table.from_batches(base_batches(rows, seed), schema=SCHEMA)


def base_batches(rows: int, seed: int) -> Iterator[pa.RecordBatch]:
    """The same rows, one chunk at a time."""
    rng = np.random.default_rng((seed, 0))
    keys = rng.permutation(rows).astype(np.int64)
    for low in range(0, rows, _CHUNK_ROWS):
        part = keys[low : low + _CHUNK_ROWS]
        yield _batch(part, _minute(0, len(part), rng), rng)


def update_batch(base: int, rows: int, number: int, seed: int) -> pa.Table:
    """Batch `number` (1, 2, ...) of updates to a base of `base` rows; see the module."""
    rng = np.random.default_rng((seed, number))
    repeated = int(rows * REPEATED_SHARE)
    keys = rng.choice(key_count(base), rows - repeated, replace=False).astype(np.int64)
    keys = rng.permutation(np.concatenate((keys, rng.choice(keys, repeated))))
    sequence = _minute(number, rows, rng)
    late = rng.random(rows) < LATE_SHARE
    sequence[late] -= (number + 1) * _MINUTE
    return pa.Table.from_batches([_batch(keys, sequence, rng)])


def update_batches(base: int, rows: int, seed: int, *, first: int = 1) -> Iterator[pa.Table]:
    """Batches `first`, `first` + 1, ... without end."""
    number = first
    while True:
        yield update_batch(base, rows, number, seed)
        number += 1


def rows_of_keys(keys: Keys, number: int, seed: int) -> pa.Table:
    """A batch with exactly these keys, each once, none of them late."""
    rng = np.random.default_rng((seed, number))
    return pa.Table.from_batches([_batch(keys, _minute(number, len(keys), rng), rng)])


def fingerprints(rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """One number per row over all its values; rows that differ have, but for chance, different ones."""
    result = np.zeros(rows.num_rows, dtype=np.uint64)
    for field in SCHEMA:
        for word in _words(rows.column(field.name)):
            result ^= word
            result *= np.uint64(0x9E3779B97F4A7C15)
            result ^= result >> np.uint64(29)
    return result


def _minute(number: int, rows: int, rng: np.random.Generator) -> Keys:
    return _FIRST_MINUTE + number * _MINUTE + rng.integers(0, _MINUTE, rows)


def _batch(keys: Keys, sequence: Keys, rng: np.random.Generator) -> pa.RecordBatch:
    rows = len(keys)
    columns = [
        pa.array(keys),
        pa.array(sequence),
        _skus(rng.integers(0, _SKUS, rows)),
        pa.array(rng.integers(0, 100, rows, dtype=np.int32)),
        pa.array(rng.random(rows)),
        pa.array(rng.integers(0, 1 << 40, rows)),
        pa.array(rng.random(rows)),
        pa.array(rng.integers(0, 2, rows, dtype=np.uint8).astype(np.bool_)),
        _fixed_text(rng.integers(ord("a"), ord("z") + 1, (rows, _NOTE_BYTES), dtype=np.uint8)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _skus(numbers: Keys) -> pa.Array:
    digits = numbers[:, None] // 10 ** np.arange(4, -1, -1) % 10 + ord("0")
    prefix = np.broadcast_to(np.frombuffer(b"sku-", dtype=np.uint8), (len(numbers), 4))
    return _fixed_text(np.concatenate((prefix, digits.astype(np.uint8)), axis=1))


def _fixed_text(letters: npt.NDArray[np.uint8]) -> pa.Array:
    """A string column from a matrix of letters, a row each."""
    rows, width = letters.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(letters)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data))


def _words(column: pa.Array) -> Iterator[Any]:
    """A column's values as 64-bit words; for one with NULLs, which no row here has, their count."""
    if column.null_count:
        yield np.full(len(column), column.null_count, dtype=np.uint64)
    elif pa.types.is_string(column.type):
        yield from _text_words(column)
    elif pa.types.is_floating(column.type):
        yield np.asarray(column).view(np.uint64)
    elif pa.types.is_boolean(column.type):
        yield column.to_numpy(zero_copy_only=False).astype(np.uint64)
    else:
        yield np.asarray(column).astype(np.int64).view(np.uint64)


def _text_words(column: pa.Array) -> Iterator[Any]:
    if not len(column):
        return
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(offsets)
    yield lengths.astype(np.uint64)
    width = int(lengths[0])
    if (lengths != width).any() or not width:
        return
    letters = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].reshape(len(column), width)
    padded = np.zeros((len(column), -(-width // 8) * 8), dtype=np.uint8)
    padded[:, :width] = letters
    yield from padded.view(np.uint64).T
