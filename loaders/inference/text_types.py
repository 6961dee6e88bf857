"""The narrowest column type that takes every value of a text column.

A type is a candidate while each value has its form and converts to it. The order is BOOLEAN, BIGINT,
LARGEINT, DOUBLE, DATE, DATETIME, STRING. Digits with a leading zero are text, such as those of postcodes.
In a column that is no STRING an empty text is NULL.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import ColumnType

STRING: Final = ColumnType("STRING")
_NUMBER: Final = r"^-?(0|[1-9][0-9]*)"
_DAY: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})?"
_FORMS: Final = (
    (ColumnType("BOOLEAN"), "^(?i:true|false)$"),
    (ColumnType("BIGINT"), f"{_NUMBER}$"),
    (ColumnType("LARGEINT"), f"{_NUMBER}$"),
    (ColumnType("DOUBLE"), rf"{_NUMBER}(\.[0-9]+)?([eE][+-]?[0-9]+)?$"),
    (ColumnType("DATE"), f"{_DAY}$"),
    (ColumnType("DATETIME", (6,)), f"{_DAY}({_CLOCK})?$"),
)


class TextType:
    """The type of a column whose values arrive in batches.

    Attributes:
        has_value: a value was seen that is neither NULL nor empty.
    """

    def __init__(self) -> None:
        self._left = list(_FORMS)
        self.has_value = False

    def see(self, values: pa.Array | pa.ChunkedArray) -> None:
        """Removes the candidates that do not take some of the values."""
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        values = pc.unique(values.drop_null())
        values = values.filter(pc.not_equal(values, ""))
        if len(values):
            self.has_value = True
            self._left = [(kind, form) for kind, form in self._left if _takes(kind, form, values)]

    @property
    def type(self) -> ColumnType:
        """The type; STRING for a column without values."""
        return self._left[0][0] if self._left and self.has_value else STRING


def _takes(kind: ColumnType, form: str, values: pa.Array) -> bool:
    if not pc.all(pc.match_substring_regex(values, form)).as_py():
        return False
    cast = try_cast(values, kind)
    return not cast.values.null_count
