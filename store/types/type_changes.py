"""Changes of a column's type: those that Doris allows, and how values become those of the new type.

`_ALLOWED` is the matrix of Doris: numbers become wider numbers or text, text becomes numbers, dates or JSON,
dates and times become each other, decimals have another precision. A value is cast as in SQL; a value that
has no form in the new type, or is too long for it, fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.types.cast import Cast, try_cast
from seqstore.store.types.cast.outcome import masked, merge_masks
from seqstore.store.types.column_types import ColumnType

_TEXT: Final = ("VARCHAR", "STRING")
_NUMBERS: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT", "FLOAT", "DOUBLE")
_ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "TINYINT": (*_NUMBERS[1:], *_TEXT),
    "SMALLINT": (*_NUMBERS[2:], *_TEXT),
    "INT": (*_NUMBERS[3:], "DATE", *_TEXT),
    "BIGINT": (*_NUMBERS[4:], *_TEXT),
    "LARGEINT": (*_NUMBERS[5:], *_TEXT),
    "FLOAT": ("DOUBLE", *_TEXT),
    "DOUBLE": _TEXT,
    "DECIMAL": ("DECIMAL", *_TEXT),
    "DATE": ("DATETIME",),
    "DATETIME": ("DATETIME", "DATE"),
    "CHAR": (*_NUMBERS, "DATE", "CHAR", *_TEXT),
    "VARCHAR": (*_NUMBERS, "DATE", "JSON", *_TEXT),
    "STRING": ("JSON",),
    "JSON": _TEXT,
}
# The longest text of a number, as Doris counts it.
_TEXT_LENGTHS: Final = {
    "TINYINT": 4,
    "SMALLINT": 6,
    "INT": 11,
    "BIGINT": 20,
    "LARGEINT": 40,
    "FLOAT": 24,
    "DOUBLE": 32,
}
# Two values of the old type never become one value of the new type.
_INJECTIVE: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT"), (*_NUMBERS[:5], *_TEXT)),
    "DATE": ("DATETIME",),
    "CHAR": ("CHAR", *_TEXT),
    "VARCHAR": _TEXT,
}


def is_allowed(old: ColumnType, new: ColumnType) -> bool:
    """Returns whether Doris allows the change, whatever the lengths are."""
    return new.name in _ALLOWED.get(old.name, ())


def refuse_change(name: str, old: ColumnType, new: ColumnType) -> None:
    """Checks that Doris allows a column's type to become another one.

    Raises:
        InvalidInputError: it does not.
    """
    if not is_allowed(old, new):
        raise InvalidInputError(f"Can not change {old} to {new}: column {name!r}", kind="bad_type")
    before = old.byte_length_max
    length = _text_length(old) if before is None else before
    if new.byte_length_max is None or length is None or length <= new.byte_length_max:
        return
    if before is None:
        raise InvalidInputError(
            f"Can not change from wider type {old} to narrower type {new}: column {name!r} needs "
            f"{new.name}({length})",
            kind="bad_type",
        )
    raise InvalidInputError(
        f"Shorten type length is prohibited, srcType={old}, dstType={new}: column {name!r}", kind="bad_type"
    )


def _text_length(old: ColumnType) -> int | None:
    if old.name == "DECIMAL":
        return old.params[0] + 2  # the sign and the point
    return _TEXT_LENGTHS.get(old.name)


def keeps_values_apart(old: ColumnType, new: ColumnType) -> bool:
    """Returns whether different values of the old type stay different, so that keys stay unique."""
    if old.name == new.name and old.name in ("DATETIME", "DECIMAL"):
        digits = -1  # of the fraction
        return new.params[digits] >= old.params[digits]
    return old == new or new.name in _INJECTIVE.get(old.name, ())


def convert(values: pa.Array, old: ColumnType, new: ColumnType) -> Cast:
    """Converts values of a column's type to another one that `refuse_change` allows, or its way back.

    Returns:
        Values of the new type; `failed` are those that have no form in it.
    """
    if values.type.equals(new.arrow) and old.name not in ("DATETIME", "VARCHAR", "CHAR", "STRING"):
        return Cast(values)
    found = try_cast(values, new)
    limit = new.byte_length_max
    if limit is None:
        return found
    fits = pc.fill_null(pc.less_equal(pc.binary_length(found.values), limit), True)
    if fits.true_count == len(fits):
        return found
    return Cast(masked(found.values, fits), merge_masks(found.failed, pc.invert(fits)))
