"""Fields of CSV that Arrow parses straight into the types of the columns.

Text that Arrow's reader takes for a value is the same value to the casts of text (`types.cast`), with these
exceptions, for which the field stays text in its block:

1. Arrow reads integers such as 0x1F.
2. Infinity and NaN have more spellings.
3. A name of a column could be a value of it, so that a header row would not be found.

Arrow stops at the first value that it does not take. The field of that value is text from then on, and the
casts decide about each row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

_PARSE_BYTES: Final = 1 << 20  # Arrow parses blocks of this size in parallel
_HEXADECIMAL: Final = tuple(int.from_bytes(text, "little") for text in (b"0x", b"0X"))
_IS_NAME: Final = re.compile(r"[^\W\d]")
_AT_FAULT: Final = re.compile(r"In CSV column #(\d+): ")


class TypedFields:
    """The fields of one body.

    Args:
        names: of all fields, in order.
        types: of those that may be other than text; others are ignored.
    """

    def __init__(self, names: Sequence[str], types: Mapping[str, pa.DataType]) -> None:
        self._names = list(names)
        self._types = {name: types[name] for name in names if name in types and _IS_NAME.match(name)}

    def read(self, data: bytes, separator: bytes, nulls: Sequence[str]) -> pa.Table | None:
        """Returns the rows of a block.

        Args:
            data: whole lines.
            separator: one byte.
            nulls: texts that stand for NULL.

        Returns:
            None if the block has a fault, or no typed field.
        """
        left_out: set[str] = set()
        if any(map(pa.types.is_integer, self._types.values())) and _has_hexadecimals(data):
            left_out = {name for name, kind in self._types.items() if pa.types.is_integer(kind)}
        while types := {name: kind for name, kind in self._types.items() if name not in left_out}:
            try:
                rows = self._read(data, separator, nulls, types)
            except pa.ArrowInvalid as error:
                found = _AT_FAULT.search(str(error))
                name = self._names[int(found[1])] if found is not None else ""
                if name not in types:
                    return None
                del self._types[name]
                continue
            odd = {name for name, kind in types.items() if _has_odd(rows.column(name), kind)}
            if not odd:
                return rows
            left_out |= odd
        return None

    def _read(
        self, data: bytes, separator: bytes, nulls: Sequence[str], types: Mapping[str, pa.DataType]
    ) -> pa.Table:
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(
                column_names=self._names, block_size=_PARSE_BYTES, use_threads=len(data) > _PARSE_BYTES
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=separator.decode("ascii"), quote_char=False, double_quote=False, escape_char=False
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types={name: types.get(name, pa.string()) for name in self._names},
                null_values=list(nulls),
                strings_can_be_null=True,
                check_utf8=not data.isascii(),
            ),
        )


def _has_hexadecimals(data: bytes) -> bool:
    """Returns whether 0x or 0X occurs, in less time than a search for two bytes needs."""
    if b"x" not in data and b"X" not in data:
        return False
    pairs = (np.frombuffer(data, "<u2", (len(data) - at) // 2, at) for at in (0, 1))
    return any(bool((each == text).any()) for each in pairs for text in _HEXADECIMAL)


def _has_odd(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Returns whether a column has infinite numbers, or none that is a number."""
    if not pa.types.is_floating(kind):
        return False
    return not all(np.isfinite(np.asarray(chunk.drop_null())).all() for chunk in column.chunks)
