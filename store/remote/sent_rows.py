"""Rows that a client sends: tables of bounded size, each of which can be sent again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from seqstore.store.check.input_rows import tables_of

BYTES_MAX: Final = 128 << 20


def parts_of(data: Any) -> Iterator[pa.Table]:
    """Yields the rows of a caller in parts of at most `BYTES_MAX`, or one row; at least one part.

    Raises:
        InvalidInputError: the data are no rows.
    """
    for table in tables_of(data):
        pieces = -(-table.nbytes // BYTES_MAX) or 1
        step = max(-(-table.num_rows // pieces), 1)
        yield table.slice(0, step)
        for start in range(step, table.num_rows, step):
            yield table.slice(start, step)
