"""The type that a column needs for values which its own type does not take.

| column | needs | becomes |
| --- | --- | --- |
| TINYINT to LARGEINT | a larger integer | the next integer type that takes it |
| TINYINT, SMALLINT, INT | a fraction, also of zeros | DOUBLE |
| BIGINT, LARGEINT | a fraction | DECIMAL with all digits |
| DECIMAL | more digits, of the fraction or before it | DECIMAL of at most 38 digits, or 76 |
| FLOAT | doubles, or texts of more than 9 digits | DOUBLE |
| CHAR, VARCHAR | more bytes | VARCHAR of the next power of two, then STRING |
| DATE | a time | DATETIME |
| DATETIME | more digits of the fraction | DATETIME(6) |

A value that is none of these, such as a word for a number, needs nothing: the load rejects its row.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.inference.text_types import STRING
from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import INTEGER_RANGES, ColumnType, takes_values_of, type_from_arrow

_PLAIN: Final = r"^[+-]?0*(?P<whole>[0-9]*)(?:(?P<point>\.)(?P<fraction>[0-9]*?)0*)?"
_NUMBER: Final = _PLAIN + r"(?P<exponent>(?:[eE][+-]?[0-9]+)?)$"
_DAY: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = _DAY + r"[ T](?P<clock>[0-9:]+)(?:\.(?P<fraction>[0-9]*?)0*)?(?:[Zz+-].*)?$"
_INTEGERS: Final = tuple(INTEGER_RANGES)
_DIGITS: Final = {"BIGINT": 19, "LARGEINT": 39}
_FLOAT_DIGITS: Final = 9
_VARCHAR_MAX: Final = 65533
_FLOAT_MAX: Final = 3.4028235e38


class WiderType:
    """The type of one column, which grows with the values that are seen.

    Args:
        column: the type of the column.
    """

    def __init__(self, column: ColumnType) -> None:
        self.type = column

    def see(self, values: pa.Array) -> None:
        """Widens the type so that it takes some values, where it can."""
        if not pa.types.is_string(values.type):
            if pa.types.is_nested(values.type) or pa.types.is_null(values.type):
                return
            declared = type_from_arrow(values.type)
            if takes_values_of(self.type, declared):
                return
            if declared.name == "DOUBLE" and self.type.name == "FLOAT":
                self.type = declared
                return
            values = try_cast(values, STRING).values
        texts = pc.unique(values.drop_null())
        name = self.type.name
        if not len(texts):
            return
        if name in ("CHAR", "VARCHAR"):
            self._see_lengths(texts)
        elif name in ("DATE", "DATETIME"):
            self._see_moments(texts)
        elif name in (*_INTEGERS, "FLOAT", "DECIMAL"):
            self._see_numbers(pc.utf8_trim_whitespace(texts))

    def _see_lengths(self, texts: pa.Array) -> None:
        longest = pc.max(pc.binary_length(texts)).as_py()
        limit = self.type.byte_length_max
        if limit is None or longest <= limit:
            return
        wanted = min(1 << (longest - 1).bit_length(), _VARCHAR_MAX)
        self.type = ColumnType("VARCHAR", (wanted,)) if longest <= wanted else STRING

    def _see_moments(self, texts: pa.Array) -> None:
        parts = pc.extract_regex(texts, _CLOCK).drop_null()
        if not len(parts):
            return
        fraction = pc.max(pc.utf8_length(pc.struct_field(parts, "fraction"))).as_py()
        if self.type.name == "DATETIME":
            if fraction > self.type.params[0]:
                self.type = ColumnType("DATETIME", (6,))
            return
        has_time = pc.any(pc.match_substring_regex(pc.struct_field(parts, "clock"), "[1-9]")).as_py()
        if has_time or fraction:
            self.type = ColumnType("DATETIME", (6,) if fraction else (0,))

    def _see_numbers(self, texts: pa.Array) -> None:
        parts = pc.extract_regex(texts, _NUMBER)
        is_number = pc.and_(parts.is_valid(), pc.match_substring_regex(texts, "[0-9]"))
        texts, parts = texts.filter(is_number), parts.filter(is_number)
        if not len(texts):
            return
        if self.type.name == "FLOAT":
            self._see_doubles(texts, parts)
            return
        plain = pc.equal(pc.struct_field(parts, "exponent"), "")
        has_exponents = not pc.all(plain).as_py()
        parts = parts.filter(plain)
        whole, fraction = _longest(parts, "whole"), _longest(parts, "fraction")
        if self.type.name == "DECIMAL":
            self._see_decimals(whole, fraction)
            return
        if _longest(parts, "point"):  # a load takes no such text for an integer, such as 7.000
            fraction = max(fraction, 1)
        if self.type.name in _DIGITS:
            if fraction:
                self._see_decimals(max(whole, _DIGITS[self.type.name]), fraction)
            else:
                self._see_integers(texts.filter(plain))
        elif fraction or has_exponents:
            self.type = ColumnType("DOUBLE")
        else:
            self._see_integers(texts)

    def _see_integers(self, texts: pa.Array) -> None:
        """Chooses the first integer type that takes as many values as the largest one."""
        largest = try_cast(texts, ColumnType("LARGEINT")).values.null_count
        for name in _INTEGERS[_INTEGERS.index(self.type.name) :]:
            if try_cast(texts, ColumnType(name)).values.null_count == largest:
                self.type = ColumnType(name)
                return

    def _see_decimals(self, whole: int, fraction: int) -> None:
        digits, scale, most = 0, 0, 38
        if self.type.name == "DECIMAL":
            digits, scale = self.type.params[0] - self.type.params[1], self.type.params[1]
            most = 76 if self.type.params[0] > 38 else 38
        digits, scale = max(digits, whole), max(scale, fraction)
        if digits + scale <= most and digits + scale > 0:
            self.type = ColumnType("DECIMAL", (digits + scale, scale))

    def _see_doubles(self, texts: pa.Array, parts: pa.StructArray) -> None:
        joined = pc.binary_join_element_wise(
            pc.struct_field(parts, "whole"), pc.struct_field(parts, "fraction"), ""
        )
        significant = pc.max(pc.utf8_length(pc.utf8_ltrim(joined, "0"))).as_py()
        largest = pc.max(pc.abs(try_cast(texts, ColumnType("DOUBLE")).values)).as_py()
        if significant > _FLOAT_DIGITS or (largest is not None and largest > _FLOAT_MAX):
            self.type = ColumnType("DOUBLE")


def _longest(parts: pa.StructArray, name: str) -> int:
    return pc.max(pc.utf8_length(pc.struct_field(parts, name))).as_py() or 0
