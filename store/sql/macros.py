"""DuckDB macros that give Doris functions their meaning: `d_` and the Doris name, callees before callers.

Where a macro has several bodies the type of the argument chooses one: text that is no date gives NULL, and
what is computed from a DATE by whole days stays a DATE.
"""

from __future__ import annotations

from typing import Final

# Called by the translation of other functions and operators, not by name.
INTERNAL: Final = frozenset(["add_date", "date_trunc", "integer", "ln", "logarithm", "text", "to_days", "ts"])

_MACROS: Final = r"""
d_add_date(x DATE, i INTERVAL) AS CAST(x + i AS DATE),
    (x TIMESTAMP, i INTERVAL) AS x + i,
    (x VARCHAR, i INTERVAL) AS TRY_CAST(x AS TIMESTAMP) + i;
d_array_join(a, s) AS array_to_string(a, s);
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
    (x VARCHAR) AS TRY_CAST(x AS DATE);
d_date_trunc(u, x DATE) AS CAST(date_trunc(u, x) AS DATE),
    (u, x TIMESTAMP) AS date_trunc(u, x),
    (u, x VARCHAR) AS date_trunc(u, TRY_CAST(x AS TIMESTAMP));
d_e() AS exp(CAST(1 AS DOUBLE));
d_element_at(a, k) AS a[k];
d_find_in_set(s, l) AS CASE
    WHEN s IS NOT NULL AND l IS NOT NULL THEN coalesce(list_position(string_split(l, ','), s), 0) END;
d_from_days(n) AS CAST(DATE '0001-01-01' + CAST(n - 366 AS INTEGER) AS DATE);
d_from_base64(x) AS TRY(decode(from_base64(x)));
d_get_json_string(j, p) AS CASE WHEN json_valid(j)
    THEN json_extract_string(j, CASE WHEN starts_with(p, '$') THEN p ELSE '$.' || p END) END;
d_get_json_bigint(j, p) AS TRY_CAST(d_get_json_string(j, p) AS BIGINT);
d_get_json_bool(j, p) AS TRY_CAST(d_get_json_string(j, p) AS BOOLEAN);
d_get_json_double(j, p) AS TRY_CAST(d_get_json_string(j, p) AS DOUBLE);
d_get_json_int(j, p) AS TRY_CAST(d_get_json_string(j, p) AS INTEGER);
d_integer(x HUGEINT) AS x,
    (x DOUBLE) AS trunc(x),
    (x DECIMAL(38, 10)) AS trunc(x),
    (x BOOLEAN) AS CAST(x AS INTEGER),
    (x DATE) AS CAST(strftime(x, '%Y%m%d') AS BIGINT),
    (x TIMESTAMP) AS CAST(strftime(x, '%Y%m%d%H%M%S') AS BIGINT),
    (x VARCHAR) AS regexp_replace(trim(x), '^([+-]?\d+)\.\d*$', '\1');
d_json_extract(j, p) AS CASE WHEN json_valid(j) THEN CAST(json_extract(j, p) AS VARCHAR) END;
d_json_length(j) AS CASE WHEN json_valid(j) THEN CASE json_type(j)
    WHEN 'ARRAY' THEN json_array_length(j) WHEN 'OBJECT' THEN len(json_keys(j)) ELSE 1 END END;
d_json_type(j) AS CASE WHEN json_valid(j) THEN lower(json_type(j)) END;
d_json_unquote(j) AS CASE WHEN j LIKE '"%"' AND json_valid(j) THEN json_extract_string(j, '$') ELSE j END;
d_json_valid(j) AS CAST(json_valid(j) AS INTEGER);
d_length(x) AS octet_length(encode(CAST(x AS VARCHAR)));
d_locate(s, x) AS instr(x, s),
    (s, x, p) AS CASE WHEN instr(substring(x, p), s) = 0 THEN 0 ELSE instr(substring(x, p), s) + p - 1 END;
d_ln(x) AS CASE WHEN x > 0 THEN ln(x) END;
d_log10(x) AS CASE WHEN x > 0 THEN log10(x) END;
d_log2(x) AS CASE WHEN x > 0 THEN log2(x) END;
d_logarithm(b, x) AS CASE WHEN b > 0 AND b <> 1 AND x > 0 THEN log(b, x) END;
d_makedate(y, n) AS CASE WHEN n > 0 THEN CAST(make_date(y, 1, 1) + CAST(n - 1 AS INTEGER) AS DATE) END;
d_negative(x) AS -x;
d_pmod(a, b) AS ((a % b) + b) % b;
d_positive(x) AS x;
d_regexp_replace(x, p, r) AS regexp_replace(x, p, r, 'g');
d_space(n) AS repeat(' ', n);
d_split_part(x, d, n) AS string_split(x, d)[n];
d_substring_index(x, d, n) AS CASE
    WHEN n = 0 THEN ''
    WHEN n > 0 THEN array_to_string(list_slice(string_split(x, d), 1, n), d)
    ELSE array_to_string(list_slice(string_split(x, d), n, -1), d) END;
d_sqrt(x) AS CASE WHEN x >= 0 THEN sqrt(x) END;
d_strcmp(a, b) AS CASE WHEN a < b THEN -1 WHEN a > b THEN 1 WHEN a = b THEN 0 END;
d_text(x) AS CASE WHEN typeof(x) = 'BOOLEAN'
    THEN replace(replace(CAST(x AS VARCHAR), 'true', '1'), 'false', '0') ELSE CAST(x AS VARCHAR) END;
d_time_to_sec(x) AS CAST(epoch(TRY_CAST(x AS TIME)) AS BIGINT);
d_to_days(x) AS date_diff('day', DATE '0001-01-01', x) + 366;
d_ts(x TIMESTAMP) AS x,
    (x DATE) AS CAST(x AS TIMESTAMP),
    (x VARCHAR) AS TRY_CAST(x AS TIMESTAMP);
d_unhex(x) AS TRY(decode(unhex(x)));
"""


def macro_statements() -> list[str]:
    """CREATE MACRO statements for a DuckDB connection."""
    return [f"CREATE MACRO {body}" for body in _bodies()]


def macro_names() -> frozenset[str]:
    """Doris names that are macros."""
    return frozenset(body.partition("(")[0].removeprefix("d_") for body in _bodies()) - INTERNAL


def _bodies() -> list[str]:
    return [body.strip() for body in _MACROS.split(";") if body.strip()]
