"""Macros that cast texts as loads do (types.cast): to moments, numbers and truth values.

A text without such a value is NULL. A moment with an offset is converted to the session's zone, which
`catalog.zone_setting` sets. A lambda computes its argument once, where a macro would copy it.
`//` rounds towards 0, so `d_rounded` counts from the year 0.
"""

from __future__ import annotations

import re
from typing import Final

from seqstore.store.types.cast.numbers import FLOAT_TEXT, NUMBER_TEXT
from seqstore.store.types.cast.times import END_MICROSECOND, FIRST_MICROSECOND, MOMENT_TEXT

_BLANKS: Final = r"E' \t\n\r\f\x0B'"
_PLAIN_MOMENT: Final = r"\d{4}-\d{2}-\d{2}(?:[ T](?:[01]\d|2[0-3]):\d{2}:\d{2}(?:\.\d{1,6})?)?"
_PARTS: Final = str(re.findall(r"\(\?P<(\w+)>", MOMENT_TEXT))
_ZONE_OFFSET: Final = r"(?i)^(?:GMT|UTC)?([+-])(\d{1,2}?):?([0-5]\d)?$"
_ZONE_NAME: Final = (  # DuckDB knows others, such as PST
    r"(?i).*/.*|CET|CST6CDT|Cuba|EET|EST|EST5EDT|Egypt|Eire|GB|GB-Eire|GMT[+-]?0|Greenwich|HST|Hongkong|"
    r"Iceland|Iran|Israel|Jamaica|Japan|Kwajalein|Libya|MET|MST|MST7MDT|NZ|NZ-CHAT|Navajo|PRC|PST8PDT|Poland|"
    r"Portugal|ROC|ROK|Singapore|Turkey|UCT|Universal|W-SU|WET"
)
HELPERS: Final = rf"""
d_assembled(y, m, d, h, i, s, f, half) AS CASE WHEN TRY_CAST('0' || h AS INTEGER) <= 23 THEN
    TRY_CAST(concat(CASE WHEN length(y) > 2 THEN '' WHEN y < '70' THEN '20' ELSE '19' END, y, '-', m, '-', d,
        ' ', lpad(h, 2, '0'), ':', lpad(i, 2, '0'), ':', lpad(s, 2, '0'), '.', rpad(left(f, 6), 6, '0'))
        AS TIMESTAMP)
    + to_microseconds(CASE WHEN substring(f, 7, 1) >= half THEN 1 ELSE 0 END) END;
d_moment_parts(p, half) AS d_assembled(p['y1'] || p['y2'] || p['y3'], p['m1'] || p['m2'] || p['m3'],
    p['d1'] || p['d2'] || p['d3'], p['h1'] || p['h2'] || p['h3'], p['i1'] || p['i2'] || p['i3'],
    p['s1'] || p['s2'] || p['s3'], p['f1'] || p['f2'] || p['f3'], half);
d_zone_minutes(z) AS CASE lower(z) WHEN 'z' THEN 0 WHEN 'utc' THEN 0 WHEN 'gmt' THEN 0 WHEN 'zulu' THEN 0
    WHEN 'cst' THEN 480 ELSE list_transform([regexp_extract(z, '{_ZONE_OFFSET}', ['sign', 'h', 'm'])],
    lambda o: CASE WHEN TRY_CAST(o['h'] AS INTEGER) < 24 THEN CAST(o['sign'] || '1' AS INTEGER)
        * (CAST(o['h'] AS INTEGER) * 60 + CAST('0' || o['m'] AS INTEGER)) END)[1] END;
d_utc(t, z) AS coalesce(t - to_minutes(d_zone_minutes(z)), CASE WHEN regexp_full_match(z, '{_ZONE_NAME}')
    THEN list_transform([timezone('UTC', TRY_CAST(CAST(t AS VARCHAR) || ' ' || z AS TIMESTAMPTZ))],
    lambda u: CASE WHEN timezone(z, timezone('UTC', u - INTERVAL 1 HOUR)) = t
        THEN u - INTERVAL 1 HOUR ELSE u END)[1] END);
d_zoned(t, z) AS CASE WHEN z = '' THEN t
    ELSE timezone(coalesce(getvariable('zone'), 'UTC'), timezone('UTC', d_utc(t, z)))
    + to_minutes(coalesce(getvariable('zone_minutes'), 0)) END;
d_moment_of(x, half) AS list_transform(list_transform(list_transform(
    [regexp_extract(trim(x, {_BLANKS}), '{MOMENT_TEXT}', {_PARTS})],
    lambda p: {{'t': d_moment_parts(p, half), 'z': p['zone1'] || p['zone2']}}),
    lambda q: d_zoned(q['t'], q['z'])),
    lambda t: CASE WHEN t BETWEEN make_timestamp({FIRST_MICROSECOND})
        AND make_timestamp({END_MICROSECOND - 1}) THEN t END)[1];
d_rounded(x, step) AS make_timestamp(
    (epoch_us(x) - {FIRST_MICROSECOND} + step // 2) // step * step + {FIRST_MICROSECOND});
d_moment_read(x, half) AS list_transform([CAST(x AS VARCHAR)], lambda s: CASE
    WHEN regexp_full_match(s, '{_PLAIN_MOMENT}') THEN TRY_CAST(s AS TIMESTAMP)
    WHEN regexp_full_match(s, '\d{{8}}') THEN try_strptime(s, '%Y%m%d')
    ELSE d_moment_of(s, half) END)[1];
d_moment(x) AS d_moment_read(x, '5');
d_moment_cut(x) AS d_moment_read(x, ':');
d_whole_text(x) AS regexp_extract(regexp_replace(trim(x, {_BLANKS}), '^([+-]?)(\.\d+)$', '\10\2'),
    '^([+-]?\d+)(\.\d*)?$', 1);
d_number_text(x) AS regexp_extract(trim(x, {_BLANKS}), '{NUMBER_TEXT}', 0);
d_double_text(x) AS regexp_extract(trim(x, {_BLANKS}), '{FLOAT_TEXT}', 0);
d_truth_text(x) AS CASE lower(trim(x, {_BLANKS})) WHEN '1' THEN true WHEN 't' THEN true WHEN 'true' THEN true
    WHEN 'yes' THEN true WHEN 'on' THEN true WHEN '0' THEN false WHEN 'f' THEN false WHEN 'false' THEN false
    WHEN 'no' THEN false WHEN 'off' THEN false END;
"""
