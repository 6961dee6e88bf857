"""Values as the texts that the console shows: a number of 64 bits has more digits than one of JavaScript."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import parse_type

_STRING: Final = parse_type("STRING")
CELL_CHARACTERS_MAX: Final = 65_536


def texts(column: pa.ChunkedArray, characters_max: int | None = CELL_CHARACTERS_MAX) -> list[str | None]:
    """Returns the values of a column as texts, as a CAST to STRING returns them.

    Args:
        characters_max: longer texts are cut, None for whole ones.
    """
    found: list[str | None] = []
    for chunk in column.chunks:
        values: list[Any] = try_cast(chunk, _STRING).values.to_pylist()
        found += [value if value is None else value[:characters_max] for value in values]
    return found
