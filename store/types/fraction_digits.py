"""The fraction digits of DATETIME values in Arrow data, which has microseconds for all of them.

The metadata of a field of a result holds the digits of its DATETIME, unless they are not known.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_KEY: Final = b"seqstore.fraction_digits"
_WHOLE: Final = len("2024-01-01 00:00:00")


def with_fraction_digits(field: pa.Field, digits: int | None) -> pa.Field:
    """Returns the field with the digits in its metadata."""
    if digits is None or not pa.types.is_timestamp(field.type):
        return field
    return field.with_metadata({_KEY: str(digits)})


def fraction_digits_of(field: pa.Field) -> int | None:
    """Returns the digits of a field's DATETIME, None when they are not known."""
    found = (field.metadata or {}).get(_KEY)
    return int(found) if found is not None else None


def datetime_texts(values: pa.Array | pa.ChunkedArray, digits: int | None) -> pa.Array | pa.ChunkedArray:
    """Formats DATETIME values with some fraction digits; if these are not known, with six or none."""
    texts = values.cast(pa.timestamp("us")).cast(pa.string())
    if digits is None:
        return pc.replace_substring_regex(texts, r"\.000000$", "")
    return pc.utf8_slice_codeunits(texts, 0, _WHOLE + 1 + digits if digits else _WHOLE)
