"""Macros of texts, regular expressions and URLs."""

from __future__ import annotations

from typing import Final

# Called by translations and other macros, not by name.
HELPERS: Final = r"""
d_length_joined(pieces, d) AS CAST(
    list_sum(list_transform(pieces, lambda x: length(x) + length(d))) - length(d) AS BIGINT);
d_commas(t) AS CASE WHEN starts_with(t, '-') THEN '-' ELSE '' END || d_thousands(regexp_extract(t, '\d+'))
    || regexp_extract(t, '\..*$');
d_thousands(digits) AS ltrim(reverse(regexp_replace(reverse(digits), '(\d{3})', '\1,', 'g')), ',');
d_apart(x) AS regexp_replace(regexp_replace(x, '(\d)([A-Za-z_])', '\1' || chr(31) || '\2', 'g'),
    '([A-Za-z_])(\d)', '\1' || chr(31) || '\2', 'g');
d_byte_digits(n) AS CASE WHEN length(hex(n & 4294967295)) % 2 = 1 THEN '0' ELSE '' END
    || hex(n & 4294967295);
d_explode_split(x, d) AS CASE WHEN d IS NOT NULL THEN string_split(x, d) END;
"""
FUNCTIONS: Final = r"""
d_find_in_set(s, l) AS CASE WHEN s = '' AND l IS NOT NULL THEN 0
    WHEN s IS NOT NULL AND l IS NOT NULL THEN coalesce(list_position(string_split(l, ','), s), 0) END;
d_to_base64(x) AS to_base64(encode(CAST(x AS VARCHAR)));
d_from_base64(x) AS list_transform([x], lambda y: TRY(decode(from_base64(y))))[1];
d_length|octet_length(x) AS octet_length(encode(CAST(x AS VARCHAR)));
d_locate(s, x) AS instr(x, s),
    (s, x, p) AS CASE WHEN p <= 0 OR p > greatest(length(x), 1) OR instr(substring(x, p), s) = 0
    THEN 0 * instr(x, s) ELSE instr(substring(x, p), s) + p - 1 END;
d_regexp_replace(x, p, r) AS regexp_replace(x, p, r, 'g');
d_initcap(x) AS coalesce(list_aggregate(list_transform(
        regexp_extract_all(x, '[\p{L}\p{N}]+|[^\p{L}\p{N}]+'),
        lambda word: upper(word[1]) || lower(word[2:])), 'string_agg', ''), x);
d_regexp_count(x, pattern) AS CASE WHEN pattern = '' THEN 0 ELSE len(regexp_extract_all(x, pattern)) END;
d_repeat(x, n) AS repeat(x, d_times(n, x));
d_space(n) AS repeat(' ', d_times(n, ' '));
d_split_part(x, d, n) AS string_split(x, d)[n];
d_substring_index(x, d, n) AS CASE
    WHEN x IS NULL OR d IS NULL OR n IS NULL THEN NULL
    WHEN n = 0 OR d = '' THEN ''
    WHEN n > 0 THEN left(x, d_length_joined(list_slice(string_split(x, d), 1, n), d))
    ELSE right(x, d_length_joined(list_slice(string_split(x, d), n, -1), d)) END;
d_strcmp(a, b) AS CASE WHEN a < b THEN -1 WHEN a > b THEN 1 WHEN a = b THEN 0 END;
d_append_trailing_char_if_absent(x, c) AS CASE WHEN x = '' OR ends_with(x, c) THEN x ELSE x || c END;
d_count_substrings(x, s) AS CASE WHEN s = '' THEN 0
    ELSE (length(x) - length(replace(x, s, ''))) // length(s) END;
d_extract_url_parameter(u, n) AS regexp_extract(u, '[?&]' || regexp_escape(n) || '=([^&#]*)', 1);
d_lpad(x, n, p) AS CASE WHEN n < 0 OR n IS NULL OR p IS NULL THEN NULL
    WHEN n <= length(CAST(x AS VARCHAR)) THEN left(CAST(x AS VARCHAR), n)
    WHEN p = '' THEN '' ELSE lpad(CAST(x AS VARCHAR), CAST(d_times(n, '-') AS INTEGER),
        coalesce(nullif(p, ''), ' ')) END;
d_rpad(x, n, p) AS CASE WHEN n < 0 OR n IS NULL OR p IS NULL THEN NULL
    WHEN n <= length(CAST(x AS VARCHAR)) THEN left(CAST(x AS VARCHAR), n)
    WHEN p = '' THEN '' ELSE rpad(CAST(x AS VARCHAR), CAST(d_times(n, '-') AS INTEGER),
        coalesce(nullif(p, ''), ' ')) END;
d_left|strleft(x, n) AS CASE WHEN x IS NULL THEN NULL WHEN n <= 0 THEN ''
    ELSE left(CAST(x AS VARCHAR), n) END;
d_right|strright(x, n) AS CASE WHEN x IS NULL THEN NULL WHEN n = 0 OR n < -length(CAST(x AS VARCHAR)) THEN ''
    WHEN n < 0 THEN substring(CAST(x AS VARCHAR), -n) ELSE right(CAST(x AS VARCHAR), n) END;
d_mask(x) AS regexp_replace(regexp_replace(regexp_replace(x, '[A-Z]', 'X', 'g'), '[a-z]', 'x', 'g'),
    '[0-9]', 'n', 'g');
d_money_format(x) AS list_transform([TRY_CAST(TRY_CAST(x AS DECIMAL(38, 2)) AS VARCHAR)], lambda t:
    CASE WHEN starts_with(t, '-') THEN '-' ELSE '' END
    || d_thousands(regexp_extract(t, '\d+')) || right(t, 3))[1];
d_not_null_or_empty(x) AS x IS NOT NULL AND x <> '';
d_null_or_empty(x) AS x IS NULL OR x = '';
d_parse_url(u, p) AS nullif(CASE upper(p)
    WHEN 'PROTOCOL' THEN regexp_extract(u, '^([A-Za-z][A-Za-z0-9+.-]*)://', 1)
    WHEN 'HOST' THEN regexp_extract(u, '^[A-Za-z][A-Za-z0-9+.-]*://(?:[^@/?#]*@)?([^/:?#]*)', 1)
    WHEN 'PORT' THEN regexp_extract(u, '^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*:([0-9]+)', 1)
    WHEN 'AUTHORITY' THEN regexp_extract(u, '^[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)', 1)
    WHEN 'PATH' THEN regexp_extract(u, '^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*([^?#]*)', 1)
    WHEN 'FILE' THEN regexp_extract(u, '^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*([^#]*)', 1)
    WHEN 'USERINFO' THEN regexp_extract(u, '^[A-Za-z][A-Za-z0-9+.-]*://([^@/?#]*)@', 1)
    WHEN 'QUERY' THEN regexp_extract(u, '\?([^#]*)', 1)
    WHEN 'REF' THEN regexp_extract(u, '#(.*)', 1) END, '');
d_regexp_replace_one(x, p, r) AS regexp_replace(x, p, r);
d_substring|substr|mid(x, p) AS CASE WHEN x IS NULL THEN NULL
    WHEN p = 0 OR p < -length(CAST(x AS VARCHAR)) THEN '' ELSE substring(CAST(x AS VARCHAR), p) END,
    (x, p, n) AS CASE WHEN x IS NULL OR p IS NULL OR n IS NULL THEN NULL
    WHEN p = 0 OR n <= 0 OR p < -length(CAST(x AS VARCHAR)) THEN ''
    ELSE substring(CAST(x AS VARCHAR), p, n) END;
d_unhex(x) AS list_transform([x], lambda y: CASE
    WHEN length(y) % 2 = 1 OR NOT regexp_full_match(y, '[0-9A-Fa-f]*') THEN ''
    ELSE TRY(decode(unhex(y))) END)[1];
d_insert|overlay(x, p, n, y) AS CASE WHEN p < 1 OR p > length(x) THEN CASE WHEN y IS NOT NULL THEN x END
    WHEN n < 0 OR n >= length(x) - p + 1 THEN left(x, p - 1) || y
    ELSE left(x, p - 1) || y || substring(x, p + n) END;
d_split_by_string(x, d) AS CASE WHEN d IS NOT NULL THEN string_split(x, d) END;
d_trim(x, p) AS CASE WHEN p = '' THEN x ELSE
    regexp_replace(x, '^(?:' || regexp_escape(p) || ')+|(?:' || regexp_escape(p) || ')+$', '', 'g') END;
d_ltrim(x, p) AS CASE WHEN p = '' THEN x ELSE regexp_replace(x, '^(?:' || regexp_escape(p) || ')+', '') END;
d_rtrim(x, p) AS CASE WHEN p = '' THEN x ELSE regexp_replace(x, '(?:' || regexp_escape(p) || ')+$', '') END;
d_ascii(x) AS list_transform([x], lambda y:
    CASE WHEN y = '' THEN 0 ELSE CAST('0x' || left(hex(y), 2) AS INTEGER) END)[1];
d_ord(x) AS list_transform([x], lambda y:
    CASE WHEN y = '' THEN 0 ELSE CAST('0x' || hex(left(y, 1)) AS BIGINT) END)[1];
"""
