"""DuckDB macros with the meaning of Doris functions: `d_` and the Doris name, callees before callers.

`|` separates names of one macro, and types of an argument with one body.

The type of the argument chooses one of several bodies: text that is no date becomes NULL, and a DATE moved by
whole days stays a DATE. The types of aggregates and window functions are not known when DuckDB chooses. There
the macro's form without bodies replaces the call (`d_ts` becomes `d_ts_of`) and converts by way of text: such
values are few, one a group. Macros that only align operands (sql.translate.implicit) are dropped, for sums
and counts are wide already.
"""

from __future__ import annotations

import re
from collections.abc import Set
from functools import cache
from typing import Final

from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.translate.cast_macros import CAST_MACROS

# Called by the translation of other functions and operators, not by name.
INTERNAL: Final = frozenset(
    re.findall(
        r"\w+",
        """
        acos acosh asin atanh byte_digits conv_of cot digit_values in_base leading radix signed_in_base
        unsigned_of whole_of_digits
        add_date add_date_of as_number at_least_0 beside branch bucket_ceil bucket_floor ceil_at checked clock
        date_of date_trunc date_trunc_of day_ordinal double elements end explode_json_array_double
        explode_json_array_int explode_json_array_json explode_json_array_string explode_numbers
        explode_split floor_at int_div int_div_of integer integer_of joined json_length_of json_list
        json_type_of length_joined ln logarithm moment moment_of_digits months_apart number random_between
        moment_cut zone_minutes moment_of moment_parts moment_read assembled zoned utc whole_text
        number_text double_text truth_text
        rounded
        numbers since_1970 text text_beside time_of_day times texts
        to_days ts ts_of two_digit_week_0 two_digit_week_1 two_digit_week_2 two_digit_week_3
        week_anchor_0 week_anchor_1 week_anchor_4 week_anchor_5 week_date_monday week_date_sunday
        week_mode_0 week_mode_1 week_mode_2 week_mode_3 week_mode_4 week_mode_5 week_mode_6 week_mode_7
        week_number week_within weekday_of weekday_begun time_hours whole_beside year_and_week
        year_of_week_2 year_of_week_3
        yearweek_mode_2 yearweek_mode_3 yearweek_mode_6 yearweek_mode_7
        """,
    )
)

_BY_TEXT: Final = frozenset(["d_add_date", "d_date", "d_date_trunc", "d_int_div", "d_integer", "d_ts"])
# Name -> the argument that replaces the call.
_LEFT_OUT: Final = {"d_as_number": 0, "d_beside": 0, "d_branch": 0, "d_number": 0, "d_text_beside": 1,
                    "d_whole_beside": 1}  # fmt: skip
_NAME: Final = re.compile(r"\bd_\w+", re.IGNORECASE)
# Aggregates that the tree knows by name only, as DuckDB calls them.
_AGGREGATES: Final = frozenset([
    "approx_count_distinct", "approx_quantile", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or",
    "d_collect_list", "d_collect_set", "kurtosis", "list", "quantile_cont", "regr_intercept", "regr_slope",
    "stddev_pop", "var_pop",
])  # fmt: skip
AGGREGATE_MACROS: Final = frozenset(
    ["d_collect_list", "d_collect_set", "d_map_agg", "d_percentile_approx", "d_sum0"]
)
# Bounds of one value, whose memory DuckDB does not count: MySQL's packet, and Doris's elements of an array.
_TEXT_BYTES_MAX: Final = 64 << 20
_ELEMENTS_MAX: Final = 1_000_000
_NUMBERS_MAX: Final = 16 << 20
# A conversion that fails has the message; `error()` may not be called within the TRY of load expressions.
_TOO_LONG: Final = f"CAST('expected a text of at most {_TEXT_BYTES_MAX} bytes, found a longer one' AS BIGINT)"
_TOO_MANY: Final = "CAST('expected an array of at most {0} elements, found more' AS BIGINT)"
_ELEMENTS: Final = _TOO_MANY.format(_ELEMENTS_MAX)
_BOUNDS: Final = rf"""
d_checked(x, excess, failing) AS
    CASE WHEN CASE WHEN excess THEN failing = 0 ELSE false END THEN NULL ELSE x END;
d_times(n, x) AS
    d_checked(n, CAST(n AS BIGINT) * strlen(CAST(x AS VARCHAR)) > {_TEXT_BYTES_MAX}, {_TOO_LONG});
d_elements(n) AS d_checked(n, n > {_ELEMENTS_MAX}, {_ELEMENTS});
d_numbers(n) AS d_checked(n, n > {_NUMBERS_MAX}, {_TOO_MANY.format(_NUMBERS_MAX)});
d_double(x) AS TRY_CAST(CAST(x AS VARCHAR) AS DOUBLE);
d_end(a, b) AS d_checked(b, d_double(b) - d_double(a) > {_ELEMENTS_MAX}, {_ELEMENTS}),
    (a, b, s) AS d_checked(b, (d_double(b) - d_double(a)) / d_double(s) > {_ELEMENTS_MAX}, {_ELEMENTS});
d_array_range(n) AS range(d_elements(n)),
    (a, b) AS range(a, d_end(a, b)),
    (a, b, s) AS range(a, d_end(a, b, s), s);
d_sequence(n) AS generate_series(d_elements(n)),
    (a, b) AS generate_series(a, d_end(a, b)),
    (a, b, s) AS generate_series(a, d_end(a, b, s), s);
"""
# TRY takes no subquery or aggregate: the lambdas with it have the value of one as their argument.
_MACROS: Final = (
    _BOUNDS
    + CAST_MACROS
    + r"""
d_moment_of_digits(x) AS d_moment(CAST(TRY_CAST(x AS BIGINT) AS VARCHAR));
d_ts(x TIMESTAMP) AS x,
    (x DATE) AS CAST(x AS TIMESTAMP),
    (x BIGINT) AS d_moment_of_digits(x),
    (x VARCHAR) AS d_moment(x);
d_add_date(x DATE, i INTERVAL) AS CAST(x + i AS DATE),
    (x TIMESTAMP, i INTERVAL) AS x + i,
    (x VARCHAR, i INTERVAL) AS d_moment(x) + i;
d_as_number(x VARCHAR) AS TRY_CAST(x AS DOUBLE),
    (x DATE) AS CAST(strftime(x, '%Y%m%d') AS BIGINT),
    (x TIMESTAMP) AS CAST(strftime(x, '%Y%m%d%H%M%S') AS BIGINT),
    (x BOOLEAN) AS CAST(x AS INTEGER),
    (x) AS x;
d_beside(x VARCHAR, y BIGINT|HUGEINT|DOUBLE) AS TRY_CAST(x AS DOUBLE),
    (x VARCHAR, y DATE|TIMESTAMP) AS d_moment(x),
    (x VARCHAR, y VARCHAR) AS x,
    (x, y) AS x;
d_branch(x TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|DOUBLE) AS CAST(x AS VARCHAR),
    (x BOOLEAN) AS CASE WHEN x THEN '1' WHEN NOT x THEN '0' END,
    (x) AS x;
d_ts_of(x) AS d_moment(CAST(x AS VARCHAR));
d_add_date_of(x, i) AS d_moment(CAST(x AS VARCHAR)) + i;
d_date_of(x) AS CAST(d_moment(CAST(x AS VARCHAR)) AS DATE);
d_date_trunc_of(u, x) AS CAST(date_trunc(u, d_moment(CAST(x AS VARCHAR))) AS TIMESTAMP);
d_integer_of(x) AS regexp_replace(trim(CAST(x AS VARCHAR)), '^([+-]?\d+)\.\d*$', '\1');
d_int_div_of(a, b) AS TRY_CAST(trunc(a / b) AS BIGINT);
d_int_div(a BIGINT, b BIGINT) AS a // b,
    (a HUGEINT, b HUGEINT) AS a // b,
    (a, b) AS TRY_CAST(trunc(a / b) AS BIGINT);
d_number(x TINYINT|SMALLINT|INTEGER|BOOLEAN) AS CAST(x AS BIGINT),
    (x VARCHAR) AS TRY_CAST(x AS DOUBLE),
    (x) AS x;
d_text_beside(x TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|FLOAT|DOUBLE, s) AS TRY_CAST(s AS DOUBLE),
    (x BOOLEAN, s) AS TRY_CAST(s AS BOOLEAN),
    (x DATE|TIMESTAMP, s) AS d_moment(s),
    (x, s) AS s;
d_whole_beside(x TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT, s) AS TRY_CAST(s AS BIGINT),
    (x FLOAT|DOUBLE, s) AS TRY_CAST(s AS DOUBLE),
    (x BOOLEAN, s) AS TRY_CAST(s AS BOOLEAN),
    (x DATE|TIMESTAMP, s) AS d_moment(s),
    (x, s) AS s;
d_texts(a) AS CAST(a AS VARCHAR[]),
    (a, n) AS list_transform(a, lambda x: coalesce(CAST(x AS VARCHAR), n));
d_joined(a, s) AS CASE len(a) WHEN 0 THEN '' ELSE list_aggregate(a, 'string_agg', s) END;
d_array_max(a) AS list_max(a);
d_array_min(a) AS list_min(a);
d_array_sum(a) AS list_sum(a);
d_bitand(a, b) AS a & b;
d_bitor(a, b) AS a | b;
d_bitnot(a) AS ~a;
d_collect_list(x) AS list(x) FILTER (x IS NOT NULL);
d_collect_set(x) AS list(DISTINCT x) FILTER (x IS NOT NULL);
d_date(x DATE) AS x,
    (x TIMESTAMP) AS CAST(x AS DATE),
    (x BIGINT) AS CAST(d_moment_of_digits(x) AS DATE),
    (x VARCHAR) AS CAST(d_moment(x) AS DATE);
d_date_trunc(u, x DATE) AS CAST(date_trunc(u, x) AS DATE),
    (u, x TIMESTAMP) AS CAST(date_trunc(u, x) AS TIMESTAMP),
    (u, x VARCHAR) AS CAST(date_trunc(u, d_moment(x)) AS TIMESTAMP);
d_e() AS exp(CAST(1 AS DOUBLE));
d_element_at(a, k) AS a[k];
d_find_in_set(s, l) AS CASE
    WHEN s IS NOT NULL AND l IS NOT NULL THEN coalesce(list_position(string_split(l, ','), s), 0) END;
d_from_days(n) AS CAST(DATE '0001-01-01' + CAST(n - 366 AS INTEGER) AS DATE);
d_to_base64(x) AS to_base64(encode(CAST(x AS VARCHAR)));
d_from_base64(x) AS list_transform([x], lambda y: TRY(decode(from_base64(y))))[1];
d_get_json_string|json_extract_string|json_value(j, p) AS CASE WHEN json_valid(j)
    THEN json_extract_string(j, CASE WHEN starts_with(p, '$') THEN p ELSE '$.' || p END) END;
d_get_json_bigint|json_extract_bigint(j, p) AS TRY_CAST(d_get_json_string(j, p) AS BIGINT);
d_get_json_bool|json_extract_bool(j, p) AS TRY_CAST(d_get_json_string(j, p) AS BOOLEAN);
d_get_json_double|json_extract_double(j, p) AS TRY_CAST(d_get_json_string(j, p) AS DOUBLE);
d_get_json_int|json_extract_int(j, p) AS TRY_CAST(d_get_json_string(j, p) AS INTEGER);
d_integer(x HUGEINT) AS x,
    (x DOUBLE) AS trunc(x),
    (x DECIMAL(38, 10)) AS trunc(x),
    (x BOOLEAN) AS CAST(x AS INTEGER),
    (x DATE) AS CAST(strftime(x, '%Y%m%d') AS BIGINT),
    (x TIMESTAMP) AS CAST(strftime(x, '%Y%m%d%H%M%S') AS BIGINT),
    (x VARCHAR) AS d_whole_text(x);
d_json_extract(j, p) AS CASE WHEN json_valid(j) THEN CAST(json_extract(j, p) AS VARCHAR) END;
d_json_length_of(j) AS CASE WHEN json_valid(j) THEN CASE json_type(j)
    WHEN 'ARRAY' THEN json_array_length(j) WHEN 'OBJECT' THEN len(json_keys(j)) ELSE 1 END END;
d_json_type_of(j) AS CASE WHEN json_valid(j) THEN CASE json_type(j)
    WHEN 'VARCHAR' THEN 'string' WHEN 'UBIGINT' THEN CASE WHEN TRY_CAST(j AS INTEGER) IS NULL
    THEN 'bigint' ELSE 'int' END
    WHEN 'BIGINT' THEN CASE WHEN TRY_CAST(j AS INTEGER) IS NULL THEN 'bigint' ELSE 'int' END
    WHEN 'BOOLEAN' THEN 'bool' ELSE lower(json_type(j)) END END;
d_json_unquote(j) AS CASE WHEN j LIKE '"%"' AND json_valid(j) THEN json_extract_string(j, '$') ELSE j END;
d_json_valid(j) AS CAST(json_valid(j) AS INTEGER);
d_length(x) AS octet_length(encode(CAST(x AS VARCHAR)));
d_locate(s, x) AS instr(x, s),
    (s, x, p) AS CASE WHEN p <= 0 OR p > length(x) + 1 OR instr(substring(x, p), s) = 0
    THEN 0 * instr(x, s) ELSE instr(substring(x, p), s) + p - 1 END;
d_ln|dlog1(x) AS CASE WHEN x > 0 THEN ln(x) END;
d_log10|dlog10(x) AS CASE WHEN x > 0 THEN log10(x) END;
d_log2(x) AS CASE WHEN x > 0 THEN log2(x) END;
d_logarithm(b, x) AS CASE WHEN b > 0 AND b <> 1 AND x > 0 THEN log(b, x) END;
d_makedate(y, n) AS CASE WHEN n > 0 THEN CAST(make_date(y, 1, 1) + CAST(n - 1 AS INTEGER) AS DATE) END;
d_negative(x) AS -x;
d_mod(a, b) AS a % nullif(b, 0);
d_pmod(a, b) AS ((a % nullif(b, 0)) + b) % nullif(b, 0);
d_fmod(a, b) AS CAST(a AS DOUBLE) % nullif(CAST(b AS DOUBLE), 0);
d_positive(x) AS x;
d_regexp_replace(x, p, r) AS regexp_replace(x, p, r, 'g');
d_ceil_at(x, n) AS CASE WHEN power(10, n) = 0 THEN 0 WHEN NOT isfinite(x * power(10, n)) THEN x
    ELSE round(ceil(x * power(10, n)) / power(10, n), n) END;
d_floor_at(x, n) AS CASE WHEN power(10, n) = 0 THEN 0 WHEN NOT isfinite(x * power(10, n)) THEN x
    ELSE round(floor(x * power(10, n)) / power(10, n), n) END;
d_initcap(x) AS coalesce(list_aggregate(list_transform(
        regexp_extract_all(x, '[\p{L}\p{N}]+|[^\p{L}\p{N}]+'),
        lambda word: upper(word[1]) || lower(word[2:])), 'string_agg', ''), x);
d_months_apart(x, y) AS datediff('month', y, x)
    + CASE WHEN x = last_day(x) AND y = last_day(y) THEN 0 ELSE (day(x) - day(y)) / 31.0 END;
d_months_between(x, y) AS list_transform([{'x': d_date_of(x), 'y': d_date_of(y)}],
    lambda d: round(d_months_apart(d['x'], d['y']), 8))[1];
d_regexp_count(x, pattern) AS CASE WHEN pattern = '' THEN 0 ELSE len(regexp_extract_all(x, pattern)) END;
d_repeat(x, n) AS repeat(x, d_times(n, x));
d_space(n) AS repeat(' ', d_times(n, ' '));
d_split_part(x, d, n) AS string_split(x, d)[n];
d_length_joined(pieces, d) AS CAST(
    list_sum(list_transform(pieces, lambda x: length(x) + length(d))) - length(d) AS BIGINT);
d_substring_index(x, d, n) AS CASE
    WHEN n = 0 OR d = '' THEN ''
    WHEN n > 0 THEN left(x, d_length_joined(list_slice(string_split(x, d), 1, n), d))
    ELSE right(x, d_length_joined(list_slice(string_split(x, d), n, -1), d)) END;
d_sqrt(x) AS CASE WHEN x >= 0 THEN sqrt(x) END;
d_acos(x) AS CASE WHEN x BETWEEN -1 AND 1 THEN acos(x) END;
d_acosh(x) AS CASE WHEN x >= 1 THEN acosh(x) END;
d_cot(x) AS 1 / tan(x);
d_asin(x) AS CASE WHEN x BETWEEN -1 AND 1 THEN asin(x) END;
d_atanh(x) AS CASE WHEN x > -1 AND x < 1 THEN atanh(x) END;
d_strcmp(a, b) AS CASE WHEN a < b THEN -1 WHEN a > b THEN 1 WHEN a = b THEN 0 END;
d_text(x) AS CASE WHEN typeof(x) = 'BOOLEAN'
    THEN replace(replace(CAST(x AS VARCHAR), 'true', '1'), 'false', '0') ELSE CAST(x AS VARCHAR) END;
d_time_of_day(x) AS nullif(regexp_extract(x,
    '^(?:\d{2,4}-\d{1,2}-\d{1,2}(?:[ T]|$))?(-?\d{1,3}:\d{2}:\d{2}(?:\.\d{1,6})?)?', 1), '');
d_weekday_of(x) AS coalesce(TRY_CAST(x AS INTEGER),
    list_position(['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'], lower(left(x, 3))) - 1);
d_week_date_sunday(y, w, d) AS CASE WHEN TRY_CAST(w AS INTEGER) <= 53 THEN
    make_date(TRY_CAST(y AS INTEGER), 1, 1)
    + CAST((7 - dayofweek(make_date(TRY_CAST(y AS INTEGER), 1, 1))) % 7
    + (TRY_CAST(w AS INTEGER) - 1) * 7 + d_weekday_of(d) AS INTEGER) END;
d_week_date_monday(y, w, d) AS CASE WHEN TRY_CAST(w AS INTEGER) <= 53 THEN
    CAST(date_trunc('week', make_date(TRY_CAST(y AS INTEGER), 1, 4)) AS DATE)
    + CAST((TRY_CAST(w AS INTEGER) - 1) * 7 + (d_weekday_of(d) + 6) % 7 AS INTEGER) END;
d_time_hours(x) AS TRY_CAST(regexp_extract(d_time_of_day(x), '^-?(\d+):', 1) AS BIGINT);
d_clock(x) AS TRY_CAST('1970-01-01 ' || printf('%02d', d_time_hours(x) % 24)
    || regexp_extract(d_time_of_day(x), ':.*$') AS TIMESTAMP);
d_time_to_sec(x) AS CAST(epoch(TRY_CAST(x AS TIME)) AS BIGINT);
d_to_days(x) AS date_diff('day', DATE '0001-01-01', x) + 366;
d_append_trailing_char_if_absent(x, c) AS CASE WHEN x = '' OR ends_with(x, c) THEN x ELSE x || c END;
d_array_compact(a) AS list_filter(a, lambda x, i: i = 1 OR x IS DISTINCT FROM a[i - 1]);
d_array_cum_sum(a) AS list_transform(a, lambda x, i: list_sum(a[1:i]));
d_array_difference(a) AS list_transform(a, lambda x, i: CASE WHEN i = 1 THEN 0 ELSE x - a[i - 1] END);
d_array_enumerate(a) AS generate_series(1, len(a));
d_array_distinct(a) AS list_filter(a, lambda x, i: coalesce(list_position(a, x), i) = i);
d_array_except(a, b) AS list_filter(d_array_distinct(a), lambda x: NOT list_contains(b, x));
d_array_intersect(a, b) AS list_filter(d_array_distinct(a), lambda x: list_contains(b, x));
d_array_popback(a) AS list_slice(a, 1, len(a) - 1);
d_array_popfront(a) AS list_slice(a, 2, len(a));
d_array_position(a, x) AS coalesce(list_position(a, x), 0);
d_array_remove(a, x) AS list_filter(a, lambda y: y IS DISTINCT FROM x);
d_array_repeat(x, n) AS list_transform(range(d_elements(n)), lambda i: x);
d_array_slice(a, o) AS list_slice(a, CASE WHEN o < 0 THEN len(a) + o + 1 ELSE o END, len(a)),
    (a, o, n) AS list_slice(a, CASE WHEN o < 0 THEN len(a) + o + 1 ELSE o END,
        CASE WHEN o < 0 THEN len(a) + o + n ELSE o + n - 1 END);
d_array_with_constant(n, x) AS list_transform(range(d_elements(n)), lambda i: x);
d_at_least_0(x) AS CASE WHEN x < 0 THEN 0 ELSE x END;
d_bit_shift_left(x, n) AS CAST(x AS BIGINT) << n;
d_bit_shift_right(x, n) AS CAST(x AS BIGINT) >> n;
d_bit_test(x, n) AS CAST((x >> n) & 1 AS INTEGER);
d_bucket_floor(t, i) AS time_bucket(i, t, TIMESTAMP '0001-01-01 00:00:00');
d_bucket_ceil(t, i) AS CASE WHEN d_bucket_floor(t, i) = t THEN t ELSE d_bucket_floor(t, i) + i END;
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
d_conv(x, f, t) AS list_transform([trim(CAST(x AS VARCHAR))], lambda v: d_conv_of(v, f, t))[1];
d_byte_digits(n) AS CASE WHEN length(hex(n & 4294967295)) % 2 = 1 THEN '0' ELSE '' END
    || hex(n & 4294967295);
d_count_substrings(x, s) AS CASE WHEN s = '' THEN 0
    ELSE (length(x) - length(replace(x, s, ''))) // length(s) END;
d_countequal(a, x) AS len(list_filter(a, lambda y: y IS NOT DISTINCT FROM x));
d_day_ordinal(t) AS CAST(day(t) AS VARCHAR) || CASE WHEN day(t) IN (11, 12, 13) THEN 'th'
    WHEN day(t) % 10 = 1 THEN 'st' WHEN day(t) % 10 = 2 THEN 'nd' WHEN day(t) % 10 = 3 THEN 'rd'
    ELSE 'th' END;
d_explode_json_array_double(j) AS CASE WHEN json_valid(j)
    THEN CAST(json_extract_string(j, '$[*]') AS DOUBLE[]) END;
d_explode_json_array_int(j) AS CASE WHEN json_valid(j)
    THEN CAST(json_extract_string(j, '$[*]') AS BIGINT[]) END;
d_explode_json_array_json(j) AS CASE WHEN json_valid(j)
    THEN CAST(json_extract(j, '$[*]') AS VARCHAR[]) END;
d_explode_json_array_string(j) AS CASE WHEN json_valid(j) THEN json_extract_string(j, '$[*]') END;
d_explode_numbers(n) AS range(d_numbers(n));
d_explode_split(x, d) AS string_split(x, d);
d_extract_url_parameter(u, n) AS regexp_extract(u, '[?&]' || n || '=([^&#]*)', 1);
d_json_contains(j, v) AS CASE WHEN json_valid(j) AND json_valid(v) THEN json_contains(j, v) END;
d_json_exists_path(j, p) AS CASE WHEN json_valid(j) THEN json_exists(j, p) END;
d_json_extract_isnull(j, p) AS CASE WHEN json_valid(j) THEN json_type(j, p) = 'NULL' END;
d_json_keys(j) AS CASE WHEN json_valid(j) AND json_type(j) = 'OBJECT' THEN json_keys(j) END,
    (j, p) AS CASE WHEN json_valid(j) AND json_type(j, p) = 'OBJECT' THEN json_keys(j, p) END;
d_json_list(a) AS CASE WHEN len(list_filter(a, lambda x: x IS NOT NULL)) > 0
    THEN '[' || array_to_string(list_transform(a, lambda x: coalesce(x, 'null')), ',') || ']' END;
d_json_parse_error_to_null(j) AS CASE WHEN json_valid(j) THEN j END;
d_json_quote(x) AS CAST(to_json(CAST(x AS VARCHAR)) AS VARCHAR);
d_lpad(x, n, p) AS CASE WHEN n < 0 THEN NULL WHEN n <= length(CAST(x AS VARCHAR))
    THEN left(CAST(x AS VARCHAR), n)
    WHEN p = '' THEN '' ELSE lpad(CAST(x AS VARCHAR), CAST(d_times(n, '-') AS INTEGER),
        coalesce(nullif(p, ''), ' ')) END;
d_rpad(x, n, p) AS CASE WHEN n < 0 THEN NULL WHEN n <= length(CAST(x AS VARCHAR))
    THEN left(CAST(x AS VARCHAR), n)
    WHEN p = '' THEN '' ELSE rpad(CAST(x AS VARCHAR), CAST(d_times(n, '-') AS INTEGER),
        coalesce(nullif(p, ''), ' ')) END;
d_left|strleft(x, n) AS CASE WHEN n <= 0 THEN '' ELSE left(CAST(x AS VARCHAR), n) END;
d_right|strright(x, n) AS CASE WHEN n <= 0 THEN '' ELSE right(CAST(x AS VARCHAR), n) END;
d_map_agg(k, v) AS map(list(k), list(v));
d_map_contains_key(m, k) AS list_contains(map_keys(m), k);
d_map_contains_value(m, v) AS list_contains(map_values(m), v);
d_mask(x) AS regexp_replace(regexp_replace(regexp_replace(x, '[A-Z]', 'X', 'g'), '[a-z]', 'x', 'g'),
    '[0-9]', 'n', 'g');
d_money_format(x) AS format('{:,.2f}', CAST(x AS DOUBLE));
d_weekday_begun(w) AS list_position(['MO', 'TU', 'WE', 'TH', 'FR', 'SA', 'SU'], upper(left(w, 2)));
d_next_day(d, w) AS list_transform([d_date_of(d)],
    lambda x: x + CAST((d_weekday_begun(w) - isodow(x) + 6) % 7 + 1 AS INTEGER))[1];
d_previous_day(d, w) AS list_transform([d_date_of(d)],
    lambda x: x - CAST((isodow(x) - d_weekday_begun(w) + 6) % 7 + 1 AS INTEGER))[1];
d_not_null_or_empty(x) AS x IS NOT NULL AND x <> '';
d_null_or_empty(x) AS x IS NULL OR x = '';
d_parse_url(u, p) AS nullif(CASE upper(p)
    WHEN 'PROTOCOL' THEN regexp_extract(u, '^([A-Za-z][A-Za-z0-9+.-]*)://', 1)
    WHEN 'HOST' THEN regexp_extract(u, '^[A-Za-z][A-Za-z0-9+.-]*://(?:[^@/?#]*@)?([^/:?#]*)', 1)
    WHEN 'PORT' THEN regexp_extract(u, '^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*:([0-9]+)', 1)
    WHEN 'AUTHORITY' THEN regexp_extract(u, '^[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)', 1)
    WHEN 'PATH' THEN regexp_extract(u, '^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*([^?#]*)', 1)
    WHEN 'QUERY' THEN regexp_extract(u, '\?([^#]*)', 1)
    WHEN 'REF' THEN regexp_extract(u, '#(.*)', 1) END, '');
d_percentile_approx(x, p) AS CAST(approx_quantile(CAST(x AS DOUBLE), p) AS DOUBLE);
d_period_add(p, n) AS (p // 100 * 12 + p % 100 - 1 + n) // 12 * 100 + (p // 100 * 12 + p % 100 - 1 + n)
    % 12 + 1;
d_period_diff(a, b) AS (a // 100 * 12 + a % 100) - (b // 100 * 12 + b % 100);
d_random_between(a, b) AS CAST(floor(random() * (b - a)) + a AS BIGINT);
d_regexp_replace_one(x, p, r) AS regexp_replace(x, p, r);
d_round_bankers(x) AS round_even(CAST(x AS DOUBLE), 0),
    (x, n) AS round_even(CAST(x AS DOUBLE), n);
d_sec_to_time(n) AS printf('%02d:%02d:%02d', CAST(n AS BIGINT) // 3600, CAST(n AS BIGINT) // 60 % 60,
    CAST(n AS BIGINT) % 60);
d_since_1970(n, x, last) AS CASE WHEN n BETWEEN 0 AND last THEN x END;
d_str_to_map(x) AS map_from_entries(list_transform(string_split(x, ','),
    lambda p: {'k': string_split(p, ':')[1], 'v': string_split(p, ':')[2]})),
    (x, d) AS map_from_entries(list_transform(string_split(x, d),
    lambda p: {'k': string_split(p, ':')[1], 'v': string_split(p, ':')[2]})),
    (x, d, e) AS map_from_entries(list_transform(string_split(x, d),
    lambda p: {'k': string_split(p, e)[1], 'v': string_split(p, e)[2]}));
d_substring|substr|mid(x, p) AS CASE WHEN p = 0 OR p < -length(CAST(x AS VARCHAR)) THEN ''
    ELSE substring(CAST(x AS VARCHAR), p) END,
    (x, p, n) AS CASE WHEN p = 0 OR n <= 0 OR p < -length(CAST(x AS VARCHAR)) THEN ''
    ELSE substring(CAST(x AS VARCHAR), p, n) END;
d_sum0(x) AS coalesce(sum(x), 0);
d_timediff(a, b) AS list_transform([{'a': d_ts_of(a), 'b': d_ts_of(b)}], lambda m:
    CASE WHEN m['a'] < m['b'] THEN '-' ELSE '' END
    || d_sec_to_time(abs(date_diff('second', m['b'], m['a']))))[1];
d_to_iso8601(x) AS CASE WHEN typeof(x) = 'DATE' THEN CAST(x AS VARCHAR)
    ELSE strftime(d_moment(CAST(x AS VARCHAR)), '%Y-%m-%dT%H:%M:%S.%f') END;
d_to_json(x) AS CAST(to_json(x) AS VARCHAR);
d_to_monday(x) AS CAST(date_trunc('week', d_moment(CAST(x AS VARCHAR))) AS DATE);
d_week_anchor_0(t) AS CAST(t AS DATE) - CAST(dayofweek(t) AS INTEGER);
d_week_anchor_1(t) AS CAST(t AS DATE) + CAST(4 - isodow(t) AS INTEGER);
d_week_anchor_4(t) AS CAST(t AS DATE) + CAST(3 - dayofweek(t) AS INTEGER);
d_week_anchor_5(t) AS CAST(t AS DATE) + CAST(1 - isodow(t) AS INTEGER);
d_week_number(a) AS CAST((dayofyear(a) + 6) // 7 AS INTEGER);
d_week_within(t, a) AS CASE WHEN year(a) < year(t) THEN 0 WHEN year(a) > year(t) THEN 53
    ELSE d_week_number(a) END;
d_year_and_week(a) AS CAST(year(a) * 100 + d_week_number(a) AS INTEGER);
d_week_mode_0(t) AS d_week_within(t, d_week_anchor_0(t));
d_week_mode_1(t) AS d_week_within(t, d_week_anchor_1(t));
d_week_mode_4(t) AS d_week_within(t, d_week_anchor_4(t));
d_week_mode_5(t) AS d_week_within(t, d_week_anchor_5(t));
d_week_mode_2(t) AS d_week_number(d_week_anchor_0(t));
d_week_mode_3(t) AS d_week_number(d_week_anchor_1(t));
d_week_mode_6(t) AS d_week_number(d_week_anchor_4(t));
d_week_mode_7(t) AS d_week_number(d_week_anchor_5(t));
d_yearweek_mode_2(t) AS d_year_and_week(d_week_anchor_0(t));
d_yearweek_mode_3(t) AS d_year_and_week(d_week_anchor_1(t));
d_yearweek_mode_6(t) AS d_year_and_week(d_week_anchor_4(t));
d_yearweek_mode_7(t) AS d_year_and_week(d_week_anchor_5(t));
d_two_digit_week_0(t) AS printf('%02d', d_week_mode_0(t));
d_two_digit_week_1(t) AS printf('%02d', d_week_mode_1(t));
d_two_digit_week_2(t) AS printf('%02d', d_week_mode_2(t));
d_two_digit_week_3(t) AS printf('%02d', d_week_mode_3(t));
d_year_of_week_2(t) AS printf('%04d', year(d_week_anchor_0(t)));
d_year_of_week_3(t) AS printf('%04d', year(d_week_anchor_1(t)));
d_width_bucket(x, low, high, n) AS CAST(CASE WHEN x < low THEN 0 WHEN x >= high THEN n + 1
    ELSE floor((x - low) * n / (high - low)) + 1 END AS BIGINT);
d_year_of_week(x) AS isoyear(d_moment(CAST(x AS VARCHAR)));
d_unhex(x) AS list_transform([x], lambda y:
    CASE WHEN length(y) % 2 = 1 THEN '' ELSE TRY(decode(unhex(y))) END)[1];
d_array_sort(x) AS list_sort(x, 'ASC', 'NULLS FIRST');
d_array_contains(a, x) AS CASE WHEN x IS NULL THEN len(list_filter(a, lambda e: e IS NULL)) > 0
    ELSE list_contains(a, x) END;
d_arrays_overlap(a, b) AS CASE WHEN list_has_any(a, b) THEN true
    WHEN len(list_filter(a, lambda e: e IS NULL)) + len(list_filter(b, lambda e: e IS NULL)) = 0
    THEN false END;
d_trim(x, p) AS CASE WHEN p = '' THEN x ELSE
    regexp_replace(x, '^(?:' || regexp_escape(p) || ')+|(?:' || regexp_escape(p) || ')+$', '', 'g') END;
d_ltrim(x, p) AS CASE WHEN p = '' THEN x ELSE regexp_replace(x, '^(?:' || regexp_escape(p) || ')+', '') END;
d_rtrim(x, p) AS CASE WHEN p = '' THEN x ELSE regexp_replace(x, '(?:' || regexp_escape(p) || ')+$', '') END;
d_ascii(x) AS list_transform([x], lambda y:
    CASE WHEN y = '' THEN 0 ELSE CAST('0x' || left(hex(y), 2) AS INTEGER) END)[1];
d_ord(x) AS list_transform([x], lambda y:
    CASE WHEN y = '' THEN 0 ELSE CAST('0x' || hex(left(y, 1)) AS BIGINT) END)[1];
"""
)


def called_macros(sql: str, known: Set[str] = frozenset()) -> dict[str, str]:
    """Returns the CREATE MACRO statements that a rendered statement needs, by name, callees before callers.

    Names within texts count as calls.

    Args:
        known: macros that need not be created.
    """
    wanted = {name.lower() for name in _NAME.findall(sql)} - known
    if not wanted:
        return {}
    found: dict[str, str] = {}
    for body in reversed(bodies()):  # callers before callees
        name, _, text = body.partition("(")
        if name in wanted:
            found[name] = f"CREATE MACRO {body}"
            wanted.update(set(_NAME.findall(text)) - known)
    return dict(reversed(found.items()))


@cache
def _zone_readers() -> frozenset[str]:
    """Macros that read the session's time zone, directly or through others."""
    found = {"d_zoned"}
    for body in bodies():  # callees before callers
        name, _, text = body.partition("(")
        if not found.isdisjoint(_NAME.findall(text)):
            found.add(name)
    return frozenset(found)


def reads_zone(sql: str) -> bool:
    """Returns whether a statement calls a macro that reads the session's time zone."""
    return not _zone_readers().isdisjoint(name.lower() for name in _NAME.findall(sql))


def zone_setting(zone: str) -> str:
    """Returns the statement that sets the time zone for the macros, on a connection that has none.

    Args:
        zone: a name, or an offset such as `+08:00`, which DuckDB 1.4 does not take for a time zone.
    """
    if zone[0] not in "+-":
        return f"SET VARIABLE zone = '{zone}'"
    minutes = int(zone[1:3]) * 60 + int(zone[4:])
    return f"SET VARIABLE zone_minutes = {-minutes if zone[0] == '-' else minutes}"


def macro_names() -> frozenset[str]:
    """Doris names that are macros."""
    return frozenset(body.partition("(")[0].removeprefix("d_") for body in bodies()) - INTERNAL


@cache
def bodies() -> list[str]:
    """Returns the text of each macro behind CREATE MACRO, callees before callers.

    The names and types that `|` separates in the texts above are written out.
    """
    found = []
    for macro in filter(None, map(str.strip, _MACROS.split(";"))):
        names, _, text = macro.partition("(")
        overloads = [each for one in re.split(r",\n\s+(?=\()", f"({text}") for each in _typed(one)]
        joined = ",\n    ".join(overloads)
        found += [f"d_{name}{joined}" for name in names.removeprefix("d_").split("|")]
    return found


def _typed(overload: str) -> list[str]:
    head, _, text = overload.partition(") AS ")
    types = re.search(r"\w+(\|\w+)+", head)
    if types is None:
        return [overload]
    return [f"{head.replace(types[0], each)}) AS {text}" for each in types[0].split("|")]


def settle(tree: exp.Expr, *, all_calls: bool = False) -> None:
    """Replaces the macro calls in a translated tree for which DuckDB can choose no body, or all of them."""
    unchosen = _calls_on_aggregates(tree)
    for node in reversed(list(find_all(tree, exp.Anonymous))):
        name = str(node.this)
        if (name not in _BY_TEXT and name not in _LEFT_OUT) or not (all_calls or id(node) in unchosen):
            continue
        if name in _BY_TEXT:
            node.set("this", f"{name}_of")
        else:
            node.replace(node.expressions[_LEFT_OUT[name]])


def _calls_on_aggregates(tree: exp.Expr) -> set[int]:
    """Returns, by `id`, the calls on an aggregate or window function of the same SELECT."""
    found: set[int] = set()
    for node in find_all(tree, exp.AggFunc, exp.Window, exp.Anonymous):
        above = node.parent if is_aggregate(node) else None
        while above is not None and not isinstance(above, exp.Select) and id(above) not in found:
            found.add(id(above))  # other nodes too: the walk from another aggregate ends at one
            above = above.parent
    return found


def is_aggregate(node: exp.Expr) -> bool:
    """Returns whether a translated call, AggFunc or Window is an aggregate."""
    return not isinstance(node, exp.Anonymous) or str(node.this) in _AGGREGATES
