"""Macros of numbers, bits and bases; what has no value, such as the root of -1, is NULL."""

from __future__ import annotations

from typing import Final

# Called by translations and other macros, not by name.
HELPERS: Final = r"""
d_logarithm(b, x) AS CASE WHEN b > 0 AND b <> 1 AND x > 0 THEN log(b, x) END;
d_exact_ceil(x, n, step) AS list_transform([{'x': x, 'r': round(x, n)}],
    lambda v: CASE WHEN v['r'] < v['x'] THEN v['r'] + step ELSE v['r'] END)[1];
d_exact_floor(x, n, step) AS list_transform([{'x': x, 'r': round(x, n)}],
    lambda v: CASE WHEN v['r'] > v['x'] THEN v['r'] - step ELSE v['r'] END)[1];
d_ceil_at(x, n) AS CASE WHEN power(10, n) = 0 THEN 0 WHEN NOT isfinite(x * power(10, n)) THEN x
    ELSE round(ceil(x * power(10, n)) / power(10, n), n) END;
d_floor_at(x, n) AS CASE WHEN power(10, n) = 0 THEN 0 WHEN NOT isfinite(x * power(10, n)) THEN x
    ELSE round(floor(x * power(10, n)) / power(10, n), n) END;
d_acos(x) AS CASE WHEN x BETWEEN -1 AND 1 THEN acos(x) END;
d_acosh(x) AS CASE WHEN x >= 1 THEN acosh(x) END;
d_cot(x) AS 1 / tan(x);
d_asin(x) AS CASE WHEN x BETWEEN -1 AND 1 THEN asin(x) END;
d_atanh(x) AS CASE WHEN x > -1 AND x < 1 THEN atanh(x) END;
d_digit_values(x) AS list_transform(string_split(regexp_replace(lower(x), '^[+-]', ''), ''),
    lambda c: CAST(CASE WHEN c = '' THEN -1 ELSE instr('0123456789abcdefghijklmnopqrstuvwxyz', c) - 1 END
        AS HUGEINT));
d_leading(digits, f) AS list_prepend(CAST(0 AS HUGEINT), list_slice(digits, 1, coalesce(
    list_position(list_transform(digits, lambda d: d < 0 OR d >= f), true) - 1, len(digits))));
d_whole_of_digits(x, f) AS list_reduce(d_leading(d_digit_values(x), f),
    lambda a, d: least(a * f + d, 18446744073709551616));
d_unsigned_of(whole, is_negative, f) AS CASE
    WHEN f < 0 AND is_negative THEN (18446744073709551616 - least(whole, 9223372036854775808))
        % 18446744073709551616
    WHEN f < 0 THEN least(whole, 9223372036854775807)
    WHEN is_negative AND whole < 18446744073709551616 THEN (18446744073709551616 - whole)
        % 18446744073709551616
    ELSE least(whole, 18446744073709551615) END;
d_radix(t) AS CASE WHEN abs(t) BETWEEN 2 AND 36 THEN CAST(abs(t) AS INTEGER) END;
d_in_base(u, t) AS CASE WHEN u < t THEN to_base(CAST(u AS BIGINT), t)
    ELSE to_base(CAST(u // t AS BIGINT), t) || to_base(CAST(u % t AS BIGINT), t) END;
d_signed_in_base(u, t) AS CASE WHEN t < 0 AND u > 9223372036854775807
    THEN '-' || d_in_base(18446744073709551616 - u, d_radix(t)) ELSE d_in_base(u, d_radix(t)) END;
d_conv_of(x, f, t) AS CASE WHEN x <> '' AND d_radix(f) IS NOT NULL AND d_radix(t) IS NOT NULL
    THEN upper(list_transform(list_transform([d_whole_of_digits(x, CAST(d_radix(f) AS HUGEINT))],
        lambda w: d_unsigned_of(w, starts_with(x, '-'), f)), lambda u: d_signed_in_base(u, t))[1]) END;
d_random_between(a, b) AS CAST(floor(random() * (b - a)) + a AS BIGINT);
"""
FUNCTIONS: Final = r"""
d_bit_count(x) AS CAST(bit_count(x) AS INTEGER) & 255;
d_sec(x) AS 1 / cos(x);
d_csc|cosec(x) AS 1 / nullif(sin(x), 0);
d_bitand(a, b) AS a & b;
d_bitor(a, b) AS a | b;
d_bitnot(a) AS ~a;
d_e() AS exp(CAST(1 AS DOUBLE));
d_ln|dlog1(x) AS CASE WHEN x > 0 THEN ln(x) END;
d_log10|dlog10(x) AS CASE WHEN x > 0 THEN log10(x) END;
d_log2(x) AS CASE WHEN x > 0 THEN log2(x) END;
d_negative(x) AS -x;
d_mod(a, b) AS a % nullif(b, 0);
d_pmod(a, b) AS ((a % nullif(b, 0)) + b) % nullif(b, 0);
d_fmod(a, b) AS CAST(a AS DOUBLE) % nullif(CAST(b AS DOUBLE), 0);
d_positive(x) AS x;
d_sqrt(x) AS CASE WHEN x >= 0 THEN sqrt(x) END;
d_bit_shift_left(x, n) AS CAST(x AS BIGINT) << n;
d_bit_shift_right(x, n) AS CAST(x AS BIGINT) >> n;
d_bit_test(x, n) AS CAST((x >> n) & 1 AS INTEGER);
d_conv(x, f, t) AS list_transform([trim(CAST(x AS VARCHAR))], lambda v: d_conv_of(v, f, t))[1];
d_round_bankers(x) AS round_even(CAST(x AS DOUBLE), 0),
    (x, n) AS round_even(CAST(x AS DOUBLE), n);
d_width_bucket(x, low, high, n) AS CAST(CASE WHEN x < low THEN 0 WHEN x >= high THEN n + 1
    ELSE floor((x - low) * n / (high - low)) + 1 END AS BIGINT);
"""
