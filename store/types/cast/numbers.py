"""Casts to integers, floats, decimals and booleans from text and from each other.

Text follows the rules of a Doris cast that is not ANSI strict (Y12): blanks around a number are ignored, a
fraction is truncated for an integer and rounded half up for a DECIMAL, an integer has no exponent, an
overflowing DOUBLE is infinite. Other sources are rounded half up, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.types.cast.outcome import (
    BLANKS,
    Cast,
    by_slices,
    contains_byte,
    masked,
    merge_masks,
    outcome,
)
from seqstore.store.types.cast.times import in_calendar
from seqstore.store.types.column_types import INTEGER_RANGES, ColumnType, zero_value

_EXACT_WHOLE: Final = 2**53  # whole numbers up to it, and powers of ten up to this one, are doubles
_EXACT_POWER: Final = 22
_CACHED_VALUES: Final = 16_384  # so many doubles, and their copies, stay in the cache of a core
INTEGER_TEXT: Final = r"^[+-]?(\d+(\.\d*)?|\.\d+)$"
NUMBER_TEXT: Final = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
FLOAT_TEXT: Final = r"(?i)^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$|^[+-]?(inf|infinity|nan)$"
_LARGE_EXPONENT: Final = r"[eE][+-]?0*([2-9]\d|1[6-9]|\d{3})"
_TRUE: Final = pa.array(["1", "t", "true", "yes", "on"])
_FALSE: Final = pa.array(["0", "f", "false", "no", "off"])
_WIDE_PRECISION: Final = 76
_SPARE_DIGITS: Final = 12
_NARROW_PRECISION: Final = 37  # one digit below decimal128's own, so that rounding up cannot overflow it


# --------------------------------------------------------------------------------------------------- integers


def to_integer(source: pa.Array, to: ColumnType) -> Cast | None:
    """Casts to TINYINT up to LARGEINT. None when no value of the source type is an integer."""
    if _is_time(source.type):
        return _by_digits(source, to, to_integer)
    source = _as_number(source)
    kind = source.type
    exact = [lambda values: values.cast(to.arrow)]
    if pa.types.is_string(kind):
        return by_slices(
            source, [lambda text: _plain_integers(text, to)], lambda text: _integers_of_text(text, to)
        )
    if pa.types.is_integer(kind):
        return by_slices(source, exact, lambda values: _fit_integer(values, to))
    if pa.types.is_floating(kind):
        # Arrow casts floats without a fraction and refuses the others
        exact = [] if to.name == "LARGEINT" else exact
        return by_slices(source.cast(pa.float64()), exact, lambda values: _integers_of_floats(values, to))
    if pa.types.is_decimal(kind):
        whole = pc.trunc(source.cast(pa.decimal256(_WIDE_PRECISION, kind.scale)))
        return _fit_integer(whole.cast(pa.decimal256(_WIDE_PRECISION, 0)), to)
    return None


def _plain_integers(text: pa.Array, to: ColumnType) -> pa.Array:
    """Parses integers with Arrow; refuses 0x1F and 1e3, which Arrow accepts and Doris does not."""
    if contains_byte(text, b"eE." if to.name == "LARGEINT" else b"xX"):
        raise pa.ArrowInvalid("not plain digits")
    values = text.cast(to.arrow)
    if to.name == "LARGEINT" and not pc.all(_within(values, to)).as_py() and values.null_count < len(values):
        raise pa.ArrowInvalid("outside of 128 bits")
    return values


def _integers_of_text(text: pa.Array, to: ColumnType) -> Cast:
    trimmed = pc.ascii_trim(text, characters=BLANKS)
    well_formed = pc.match_substring_regex(trimmed, INTEGER_TEXT)
    digits = pc.replace_substring_regex(trimmed, r"^\+?(-?)0*(\d*)(\.\d*)?$", r"\10\2")
    short = pc.less_equal(pc.binary_length(digits), 41)
    numbers = masked(digits, pc.and_(well_formed, short)).cast(pa.decimal256(_WIDE_PRECISION, 0))
    return outcome(text, _fit_integer(numbers, to).values)


def _integers_of_floats(values: pa.Array, to: ColumnType) -> Cast:
    low, high = INTEGER_RANGES[to.name]
    whole = pc.trunc(values)
    # high + 1 is a power of two, so it is exact as a float while high itself is not
    fits = pc.and_(pc.greater_equal(whole, float(low)), pc.less(whole, float(high + 1)))
    kept = masked(whole, fits)
    if to.name == "LARGEINT":
        kept = kept.cast(pa.decimal256(_WIDE_PRECISION, 0))
    return outcome(values, kept.cast(to.arrow))


def _fit_integer(values: pa.Array, to: ColumnType) -> Cast:
    return outcome(values, masked(values, _within(values, to)).cast(to.arrow, safe=True))


def _within(values: pa.Array, to: ColumnType) -> pa.BooleanArray:
    low, high = INTEGER_RANGES[to.name]
    if pa.types.is_integer(values.type):
        widest = INTEGER_RANGES["BIGINT"] if pa.types.is_signed_integer(values.type) else (0, 2**64 - 1)
        wide = pa.int64() if pa.types.is_signed_integer(values.type) else pa.uint64()
        values, low, high = values.cast(wide), max(low, widest[0]), min(high, widest[1])
        bounds = pa.scalar(low, wide), pa.scalar(high, wide)
    else:
        bounds = pa.scalar(Decimal(low), values.type), pa.scalar(Decimal(high), values.type)
    return pc.and_(pc.greater_equal(values, bounds[0]), pc.less_equal(values, bounds[1]))


def _as_number(source: pa.Array) -> pa.Array:
    return source.cast(pa.int8()) if pa.types.is_boolean(source.type) else source


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _by_digits(
    source: pa.Array, to: ColumnType, cast: Callable[[pa.Array, ColumnType], Cast | None]
) -> Cast | None:
    """Casts dates and times by the numbers that their digits form; those out of the calendar fail."""
    moments = in_calendar(source)
    if pa.types.is_date(source.type):
        numbers = _digits(moments, (pc.year, pc.month, pc.day))
    else:
        numbers = _digits(moments, (pc.year, pc.month, pc.day, pc.hour, pc.minute, pc.second))
    found = cast(numbers, to)
    return None if found is None else outcome(source, found.values, found.out_of_range)


def _digits(moments: pa.Array, parts: Sequence[Callable[[pa.Array], pa.Array]]) -> pa.Array:
    """Returns numbers of which each part after the first has two digits."""
    numbers = (part(moments) for part in parts)
    return reduce(lambda left, part: pc.add(pc.multiply(left, 100), part), numbers)


# ----------------------------------------------------------------------------------------------------- floats


def to_float(source: pa.Array, to: ColumnType) -> Cast | None:
    """Casts to FLOAT and DOUBLE. None when no value of the source type is a number."""
    if _is_time(source.type):
        return _by_digits(source, to, to_float)
    source, arrow = _as_number(source), to.arrow
    kind = source.type
    if pa.types.is_string(kind):
        return by_slices(source, [lambda text: text.cast(arrow)], lambda text: _floats_of_text(text, arrow))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return Cast(source.cast(arrow, safe=False))
    if pa.types.is_decimal(kind):
        return Cast(_floats_of_decimals(source, arrow))
    return None


def _floats_of_decimals(values: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Returns the nearest floats; Arrow multiplies by a power of ten, which makes another number of 19.99.

    The quotient of two whole doubles is the nearest one. Larger numbers, and FLOAT, which would be rounded
    twice, go by the way of text.
    """
    kind = values.type
    is_short = pa.types.is_decimal128(kind) and 0 <= kind.scale <= _EXACT_POWER
    if len(values) and is_short and arrow == pa.float64():
        words = np.frombuffer(values.buffers()[1], dtype=np.int64).reshape(-1, 2)
        low, high = words[values.offset : values.offset + len(values)].T
        is_whole = (high == low >> 63) & (np.abs(low) <= _EXACT_WHOLE) | np.asarray(values.is_null())
        if is_whole.all():
            quotients = pa.array(low / 10.0**kind.scale)
            return pc.if_else(values.is_valid(), quotients, None) if values.null_count else quotients
    return values.cast(pa.string()).cast(arrow)


def _floats_of_text(text: pa.Array, arrow: pa.DataType) -> Cast:
    trimmed = pc.ascii_trim(text, characters=BLANKS)
    return outcome(text, masked(trimmed, pc.match_substring_regex(trimmed, FLOAT_TEXT)).cast(arrow))


# --------------------------------------------------------------------------------------------------- decimals


def to_decimal(source: pa.Array, to: ColumnType) -> Cast | None:
    """Casts to DECIMAL(p, s): rounds half up to s digits; too many digits before the point are out of range
    (Y4).
    """
    kind, arrow = source.type, to.arrow
    exact = [lambda values: values.cast(arrow)]
    if pa.types.is_string(kind):
        return by_slices(
            source,
            [lambda text: _readable(text).cast(arrow), lambda text: _round_wide(text, to)],
            lambda text: _decimals_of_text(text, to),
        )
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _fit_decimal(_as_number(source).cast(pa.decimal256(20, 0)), to)
    if pa.types.is_floating(kind):
        doubles = _ties_away_from_zero(source.cast(pa.float64()), to.params[1])
        return by_slices(doubles, exact, lambda values: _decimals_of_floats(values, to))
    if pa.types.is_decimal(kind):
        return by_slices(source, exact, lambda values: _fit_decimal(values, to))
    return None


def _readable(text: pa.Array) -> pa.Array:
    """Returns the text unless it has more digits or larger exponents than Arrow can parse safely.

    Arrow 26 looks up the power of ten between the text's scale and the type's without a check of its table's
    end: 1e-99 may become 0, and 1e-999999999 ends the process.
    """
    longest = pc.max(pc.binary_length(text)).as_py() or 0
    if contains_byte(text, b"eE"):
        safe = longest <= 24 and not pc.any(pc.match_substring_regex(text, _LARGE_EXPONENT)).as_py()
    else:
        safe = longest <= 38
    if not safe:
        raise pa.ArrowInvalid("more digits than Arrow parses safely")
    return text


def _reading_type(to: ColumnType, scale: int) -> pa.DataType:
    """Returns the type in which text is parsed before it is rounded.

    It has `scale` fraction digits and all integer digits of `to`.
    """
    narrow = to.params[0] + _SPARE_DIGITS <= _NARROW_PRECISION
    return pa.decimal128(_NARROW_PRECISION, scale) if narrow else pa.decimal256(_WIDE_PRECISION, scale)


def _round_wide(text: pa.Array, to: ColumnType) -> pa.Array:
    """Parses numbers with excess fraction digits in a wider type, then rounds. Arrow refuses the rest."""
    scale = to.params[1] + _SPARE_DIGITS
    if scale >= _WIDE_PRECISION:
        raise pa.ArrowInvalid("no room to read wide")
    trimmed = _readable(pc.ascii_trim(text, characters=BLANKS))
    return _rounded(trimmed.cast(_reading_type(to, scale)), to).cast(to.arrow)


def _rounded(values: pa.Array, to: ColumnType) -> pa.Array:
    scale = to.params[1]
    return pc.round(values, scale, "half_towards_infinity") if values.type.scale > scale else values


def _fit_decimal(values: pa.Array, to: ColumnType) -> Cast:
    """Rounds decimals that may be out of range.

    One more digit has room for rounding up; 128 bits, where they suffice, are much faster.
    """
    narrow, scale = values.type.precision <= _NARROW_PRECISION, values.type.scale
    wide = pa.decimal128(38, scale) if narrow else pa.decimal256(_WIDE_PRECISION, scale)
    try:
        rounded = _rounded(values.cast(wide), to)
    except pa.ArrowInvalid:  # 76 digits, and rounding adds one
        return _exact_decimals(values, to)
    digits_max = to.params[0] - to.params[1]
    if digits_max >= rounded.type.precision - rounded.type.scale:
        return outcome(values, rounded.cast(to.arrow))
    bound = pa.scalar(Decimal(10) ** digits_max, rounded.type)
    fits = pc.less(pc.abs(rounded), bound)
    return outcome(values, masked(rounded, fits).cast(to.arrow), pc.fill_null(pc.invert(fits), False))


def _decimals_of_floats(values: pa.Array, to: ColumnType) -> Cast:
    precision, scale = to.params
    digits = np.asarray(values, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        # from half of the last kept digit below the bound on, rounding reaches the bound
        fits = np.abs(digits) < float(10 ** (precision - scale)) - 0.5 * 10.0**-scale
        too_large = np.isfinite(digits) & ~fits
    kept = masked(values, fits & np.isfinite(digits))
    try:
        converted = kept.cast(to.arrow)
    except pa.ArrowInvalid:  # too close to the bound for the float comparison above
        return _exact_decimals(values, to)
    return outcome(values, converted, pc.and_(pa.array(too_large), pc.is_valid(values)))


def _ties_away_from_zero(values: pa.Array, scale: int) -> pa.Array:
    """Returns doubles, rounded to `scale` digits where half of the last one follows: Arrow rounds to even."""
    digits, unit = np.asarray(values, dtype=np.float64), 10.0**scale
    found = []
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(digits), _CACHED_VALUES):
            scaled = digits[start : start + _CACHED_VALUES] * unit
            scaled -= np.floor(scaled)
            found.append(start + np.flatnonzero(scaled == 0.5))
    ties = np.concatenate(found) if found else ()
    if not len(ties):
        return values
    rounded, scaled = digits.copy(), digits[ties] * unit
    rounded[ties] = (np.trunc(scaled) + np.copysign(1, scaled)) / unit
    return pa.array(rounded, pa.float64(), mask=np.asarray(values.is_null()))


def _decimals_of_text(text: pa.Array, to: ColumnType) -> Cast:
    """Truncates digits to one more than the scale, so that any length parses; Python parses exponents."""
    precision, scale = to.params
    trimmed = pc.ascii_trim(text, characters=BLANKS)
    number = masked(trimmed, pc.match_substring_regex(trimmed, NUMBER_TEXT))
    if precision == _WIDE_PRECISION or contains_byte(text, b"eE"):
        exact = _exact_decimals(number, to)
        return outcome(text, exact.values, exact.out_of_range)
    digits = rf"^([+-]?)0*(\d*)\.?(\d{{0,{scale + 1}}})\d*$"
    cut = pc.replace_substring_regex(number, digits, r"\10\2.\3")
    unsigned = pc.ascii_ltrim(cut, characters="+-")
    reading = _reading_type(to, scale + 1)
    # the integer digits and the 0 before them; a number with more digits exceeds the column's range
    readable = pc.less_equal(pc.find_substring(unsigned, "."), reading.precision - reading.scale + 1)
    fitted = _fit_decimal(masked(cut, readable).cast(reading), to)
    unreadable = pc.fill_null(pc.invert(readable), False)
    return outcome(text, fitted.values, merge_masks(unreadable, fitted.out_of_range))


def _exact_decimals(values: pa.Array, to: ColumnType) -> Cast:
    """Converts row by row with Python's decimals the few values that exceed Arrow's widest type."""
    precision, scale = to.params
    unit, bound = Decimal(1).scaleb(-scale), Decimal(10) ** (precision - scale)
    results: list[Decimal | None] = []
    beyond: list[bool] = []
    with localcontext(prec=200, Emax=10**9, Emin=-(10**9)):
        for value in values.to_pylist():
            number = None if value is None else Decimal(value)
            if number is not None and number.is_finite() and (not number or number.adjusted() < precision):
                number = number.quantize(unit, rounding=ROUND_HALF_UP)
            results.append(
                number if number is not None and number.is_finite() and abs(number) < bound else None
            )
            beyond.append(number is not None and number.is_finite() and results[-1] is None)
    return outcome(values, pa.array(results, to.arrow), pa.array(beyond, pa.bool_()))


def decimal_texts(values: pa.Array) -> pa.Array:
    """Formats decimals with all digits of their scale, such as 0.000000100, where Arrow writes 1.00E-7."""
    if values.type.bit_width < 128:
        values = values.cast(pa.decimal128(values.type.precision, values.type.scale))
    texts, kind = values.cast(pa.string()), values.type
    has_exponent = pc.match_substring(texts, "E")
    if not pc.any(has_exponent).as_py():
        return texts
    if kind.scale < 0:
        return pa.array(
            [None if value is None else f"{value:f}" for value in values.to_pylist()], pa.string()
        )
    # Such values are below 1: their digits as a whole number, with zeros in front, are the fraction.
    whole = pa.decimal256(kind.precision, 0) if kind.bit_width == 256 else pa.decimal128(kind.precision, 0)
    few = values.filter(has_exponent)
    digits = pa.Array.from_buffers(whole, len(few), few.buffers(), few.null_count, few.offset)
    fraction = pc.utf8_lpad(pc.utf8_ltrim(digits.cast(pa.string()), characters="-"), kind.scale, padding="0")
    sign = pc.if_else(pc.starts_with(texts.filter(has_exponent), "-"), "-0.", "0.")
    plain = pc.binary_join_element_wise(sign, fraction, "")
    return pc.replace_with_mask(texts, pc.fill_null(has_exponent, False), plain)


# --------------------------------------------------------------------------------------------------- booleans


def to_boolean(source: pa.Array, _to: ColumnType) -> Cast | None:
    """Casts to BOOLEAN. None when no value of the source type is true or false."""
    kind = source.type
    if pa.types.is_string(kind):
        return by_slices(source, [lambda text: text.cast(pa.bool_())], _booleans_of_text)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return Cast(pc.not_equal(source, zero_value(kind)))
    return None


def _booleans_of_text(text: pa.Array) -> Cast:
    word = pc.ascii_lower(pc.ascii_trim(text, characters=BLANKS))
    is_true = pc.is_in(word, value_set=_TRUE)
    return outcome(text, masked(is_true, pc.or_(is_true, pc.is_in(word, value_set=_FALSE))))
