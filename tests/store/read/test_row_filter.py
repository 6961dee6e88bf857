"""Rows left out of a batch, by whichever way its columns take."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest

from seqstore.store.read.row_filter import rows_where

_ROWS = 3_000
_RANDOM = np.random.default_rng(20261121)


def _texts(low: int, high: int) -> list[str]:
    lengths = _RANDOM.integers(low, high + 1, _ROWS)
    return ["".join(chr(97 + (i + j) % 26) for j in range(length)) for i, length in enumerate(lengths)]


_COLUMNS = {
    "integers": pa.array(_RANDOM.integers(0, 99, _ROWS)),
    "small integers": pa.array(_RANDOM.integers(0, 99, _ROWS), pa.int8()),
    "integers with NULL": pa.array([None if i % 5 == 0 else i for i in range(_ROWS)]),
    "floats": pa.array(_RANDOM.random(_ROWS), pa.float32()),
    "dates": pa.array(_RANDOM.integers(0, 99, _ROWS), pa.int32()).cast(pa.date32()),
    "moments": pa.array(_RANDOM.integers(0, 99, _ROWS)).cast(pa.timestamp("us")),
    "booleans": pa.array(_RANDOM.random(_ROWS) > 0.5),
    "booleans with NULL": pa.array([None if i % 7 == 0 else i % 2 == 0 for i in range(_ROWS)]),
    **{f"texts of {width}": pa.array(_texts(width, width)) for width in (1, 2, 3, 4, 8, 9, 40)},
    "binaries of 16": pa.array([text.encode() for text in _texts(16, 16)], pa.binary()),
    "texts of one length but the last": pa.array([*["ab"] * (_ROWS - 1), "abcd"]),
    "texts of the right sum": pa.array([*["ab"] * (_ROWS - 2), "a", "abc"]),
    "texts of any length": pa.array(_texts(0, 30)),
    "empty texts": pa.array([""] * _ROWS),
    "umlauts": pa.array(["ä" if i % 2 else "ab" for i in range(_ROWS)]),
    "texts with NULL": pa.array([None if i % 5 == 0 else "abc" for i in range(_ROWS)]),
    "decimals": pa.array([decimal.Decimal(i) / 4 for i in range(_ROWS)]),
    "lists": pa.array([[i] * (i % 3) for i in range(_ROWS)]),
}


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("first", [0, 1, 13])
def test_what_is_left_is_what_arrow_leaves(share: float, first: int) -> None:
    whole = pa.RecordBatch.from_pydict(_COLUMNS)
    batch = whole.slice(first, _ROWS - first - 1)
    mask = pa.array(_RANDOM.random(batch.num_rows) < share)
    found = rows_where(batch, mask)
    found.validate(full=True)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        assert found.column(name).equals(column.filter(mask)), name


def test_a_batch_without_columns_keeps_its_count() -> None:
    rows = pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), 5, [None]))
    assert rows_where(rows, pa.array([True, False, True, True, False])).num_rows == 3
