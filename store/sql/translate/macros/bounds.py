"""Macros that bound the memory of one value, and those of ranges of numbers."""

from __future__ import annotations

from typing import Final

# Bounds of one value, whose memory DuckDB does not count: MySQL's packet, and Doris's elements of an array.
_TEXT_BYTES_MAX: Final = 64 << 20
_ELEMENTS_MAX: Final = 1_000_000
_NUMBERS_MAX: Final = 16 << 20
# A conversion that fails has the message; `error()` may not be called within the TRY of load expressions.
_TOO_LONG: Final = f"CAST('expected a text of at most {_TEXT_BYTES_MAX} bytes, found a longer one' AS BIGINT)"
_TOO_MANY: Final = "CAST('expected an array of at most {0} elements, found more' AS BIGINT)"
_ELEMENTS: Final = _TOO_MANY.format(_ELEMENTS_MAX)
HELPERS: Final = rf"""
d_checked(x, excess, failing) AS
    CASE WHEN CASE WHEN excess THEN failing = 0 ELSE false END THEN NULL ELSE x END;
d_times(n, x) AS
    d_checked(n, CAST(n AS BIGINT) * strlen(CAST(x AS VARCHAR)) > {_TEXT_BYTES_MAX}, {_TOO_LONG});
d_elements(n) AS d_checked(n, n > {_ELEMENTS_MAX}, {_ELEMENTS});
d_numbers(n) AS d_checked(n, n > {_NUMBERS_MAX}, {_TOO_MANY.format(_NUMBERS_MAX)});
d_double(x) AS TRY_CAST(CAST(x AS VARCHAR) AS DOUBLE);
d_end(a, b) AS d_checked(b, d_double(b) - d_double(a) > {_ELEMENTS_MAX}, {_ELEMENTS}),
    (a, b, s) AS d_checked(b, (d_double(b) - d_double(a)) / d_double(s) > {_ELEMENTS_MAX}, {_ELEMENTS});
d_array_range(n) AS CASE WHEN n >= 0 THEN range(d_elements(n)) END,
    (a, b) AS CASE WHEN a >= 0 AND b >= 0 THEN range(a, d_end(a, b)) END,
    (a, b, s) AS CASE WHEN a >= 0 AND b >= 0 AND s > 0
        THEN range(a, d_end(a, b, greatest(s, 1)), greatest(s, 1)) END;
d_moment_range(a, b, i) AS range(a, d_checked(b,
    (epoch(b) - epoch(a)) / greatest(epoch(i), 1) > {_ELEMENTS_MAX}, {_ELEMENTS}), i);
"""
