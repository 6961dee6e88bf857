"""Macros of dates, times and weeks; a text that is no date is NULL, a DATE moved by whole days stays one."""

from __future__ import annotations

from typing import Final

# Called by translations and other macros, not by name.
HELPERS: Final = r"""
d_moment_of_digits(x) AS d_moment(CAST(TRY_CAST(x AS BIGINT) AS VARCHAR));
d_ts(x TIMESTAMP) AS x,
    (x DATE) AS CAST(x AS TIMESTAMP),
    (x TIME) AS DATE '1970-01-01' + x,
    (x BIGINT) AS d_moment_of_digits(x),
    (x VARCHAR) AS d_moment(x);
d_add_date(x DATE, i INTERVAL) AS CAST(x + i AS DATE),
    (x TIMESTAMP, i INTERVAL) AS x + i,
    (x VARCHAR, i INTERVAL) AS d_moment(x) + i;
d_ts_of(x) AS d_moment(CAST(x AS VARCHAR));
d_add_date_of(x, i) AS d_moment(CAST(x AS VARCHAR)) + i;
d_date_of(x) AS CAST(d_moment(CAST(x AS VARCHAR)) AS DATE);
d_date_trunc_of(u, x) AS CAST(date_trunc(u, d_moment(CAST(x AS VARCHAR))) AS TIMESTAMP);
d_date_trunc(u, x DATE) AS CAST(date_trunc(u, x) AS DATE),
    (u, x TIMESTAMP) AS CAST(date_trunc(u, x) AS TIMESTAMP),
    (u, x VARCHAR) AS CAST(date_trunc(u, d_moment(x)) AS TIMESTAMP);
d_months_apart(x, y) AS datediff('month', y, x)
    + CASE WHEN x = last_day(x) AND y = last_day(y) THEN 0 ELSE (day(x) - day(y)) / 31.0 END;
d_time_of_day(x) AS nullif(regexp_extract(x,
    '^(?:\d{2,4}-\d{1,2}-\d{1,2}(?:[ T]|$))?(-?\d{1,3}:\d{2}:\d{2}(?:\.\d{1,6})?)?', 1), '');
d_weekday_of(x) AS coalesce(TRY_CAST(x AS INTEGER),
    list_position(['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'], lower(left(x, 3))) - 1);
d_year_of_text(y) AS CASE WHEN y = '' THEN '0000' WHEN length(y) > 2 THEN lpad(y, 4, '0')
    WHEN length(y) = 1 THEN '200' || y WHEN y < '70' THEN '20' || y ELSE '19' || y END;
d_month_of_name(m) AS instr('  janfebmaraprmayjunjulaugsepoctnovdec', lower(left(m, 3))) // 3;
d_day_of_texts(y, m, d, is_whole) AS CASE WHEN y || m || d <> '' THEN TRY_CAST(concat(d_year_of_text(y), '-',
    CASE WHEN m = '' AND d = '' AND is_whole THEN '1'
        WHEN m >= 'A' THEN CAST(d_month_of_name(m) AS VARCHAR) ELSE m END,
    '-', CASE WHEN d = '' AND is_whole THEN '1' ELSE d END) AS DATE) END;
d_day_of_year(y, n) AS CASE WHEN TRY_CAST(n AS INTEGER) > 0
    THEN make_date(CAST(d_year_of_text(y) AS INTEGER), 1, 1) + CAST(n AS INTEGER) - 1 END;
d_hour_of_half(h, p) AS CASE WHEN h = '' THEN '' WHEN TRY_CAST(h AS INTEGER) BETWEEN 1 AND 12
    THEN CAST(CAST(h AS INTEGER) % 12 + CASE WHEN lower(p) = 'pm' THEN 12 ELSE 0 END AS VARCHAR) END;
d_at_least_1000(t) AS CASE WHEN year(t) >= 1000 THEN t END;
d_clock_number(x) AS CAST('0' || x AS BIGINT);
d_moment_of_clock(d, h, i, s, f) AS CASE
    WHEN d_clock_number(h) <= 23 AND d_clock_number(i) <= 59 AND d_clock_number(s) <= 59
    THEN CAST(d AS TIMESTAMP) + to_microseconds(1000000 * (d_clock_number(s) + 60 * (d_clock_number(i)
        + 60 * d_clock_number(h))) + CAST(rpad(f, 6, '0') AS BIGINT)) END;
d_week_date_sunday(y, w, d) AS CASE WHEN TRY_CAST(w AS INTEGER) <= 53 THEN
    make_date(TRY_CAST(y AS INTEGER), 1, 1)
    + CAST((7 - dayofweek(make_date(TRY_CAST(y AS INTEGER), 1, 1))) % 7
    + (TRY_CAST(w AS INTEGER) - 1) * 7 + d_weekday_of(d) AS INTEGER) END;
d_week_date_monday(y, w, d) AS CASE WHEN TRY_CAST(w AS INTEGER) <= 53 THEN
    CAST(date_trunc('week', make_date(TRY_CAST(y AS INTEGER), 1, 4)) AS DATE)
    + CAST((TRY_CAST(w AS INTEGER) - 1) * 7 + (d_weekday_of(d) + 6) % 7 AS INTEGER) END;
d_hours_and_less(n) AS printf('%02d:%02d:%02d', n // 3600, n // 60 % 60, n % 60);
d_digits_behind(n) AS CASE WHEN n = 0 THEN '' ELSE '.' || rtrim(printf('%06d', n), '0') END;
d_months_of_period(p) AS list_transform([CAST(p AS BIGINT)], lambda q: CASE
    WHEN q >= 1 AND q % 100 BETWEEN 1 AND 12 THEN
        (q // 100 + CASE WHEN q < 7000 THEN 2000 WHEN q < 10000 THEN 1900 ELSE 0 END) * 12 + q % 100 - 1
    ELSE CAST('expected a period such as 202401 or 2401, found ' || q AS BIGINT) END)[1];
d_part_of_time(part, x) AS list_transform([x], lambda t: CASE part
    WHEN 'hour' THEN coalesce(hour(d_moment(t)), abs(d_time_hours(t)))
    WHEN 'minute' THEN minute(coalesce(d_moment(t), d_clock(t)))
    WHEN 'second' THEN second(coalesce(d_moment(t), d_clock(t)))
    ELSE microsecond(coalesce(d_moment(t), d_clock(t))) % 1000000 END)[1];
d_time_hours(x) AS TRY_CAST(regexp_extract(d_time_of_day(x), '^-?(\d+):', 1) AS BIGINT);
d_clock(x) AS TRY_CAST('1970-01-01 ' || printf('%02d', d_time_hours(x) % 24)
    || regexp_extract(d_time_of_day(x), ':.*$') AS TIMESTAMP);
d_to_days(x) AS date_diff('day', DATE '0001-01-01', x) + 366
    + CASE WHEN x < DATE '0000-03-01' THEN 1 ELSE 0 END;
d_at_least_0(x) AS CASE WHEN x < 0 THEN 0 ELSE x END;
d_bucket_floor(t, i) AS time_bucket(i, t, TIMESTAMP '0001-01-01 00:00:00');
d_bucket_ceil(t, i) AS CASE WHEN d_bucket_floor(t, i) = t THEN t ELSE d_bucket_floor(t, i) + i END;
d_bucket_floor_from(t, i, start) AS list_transform([start - date_trunc('month', start)],
    lambda days: time_bucket(i, t - days, date_trunc('month', start)) + days)[1];
d_bucket_ceil_from(t, i, start) AS list_transform([{'t': t, 'f': d_bucket_floor_from(t, i, start)}],
    lambda b: CASE WHEN b['f'] = b['t'] THEN b['t'] ELSE b['f'] + i END)[1];
d_day_ordinal(t) AS CAST(day(t) AS VARCHAR) || CASE WHEN day(t) IN (11, 12, 13) THEN 'th'
    WHEN day(t) % 10 = 1 THEN 'st' WHEN day(t) % 10 = 2 THEN 'nd' WHEN day(t) % 10 = 3 THEN 'rd'
    ELSE 'th' END;
d_weekday_begun(w) AS CASE WHEN contains(' MO MON MONDAY TU TUE TUESDAY WE WED WEDNESDAY TH THU THURSDAY '
    || 'FR FRI FRIDAY SA SAT SATURDAY SU SUN SUNDAY ', ' ' || upper(w) || ' ')
    THEN list_position(['MO', 'TU', 'WE', 'TH', 'FR', 'SA', 'SU'], upper(left(w, 2))) END;
d_since_1970(n, x, last) AS CASE WHEN n BETWEEN 0 AND last THEN x END;
d_units_since_1970(t, step) AS (epoch_us(t) - epoch_us(t) % step) // step;
d_sec_to_time(n) AS list_transform([CAST(trunc(n) AS BIGINT)], lambda s: CASE WHEN s IS NOT NULL
    THEN CASE WHEN s < 0 THEN '-' ELSE '' END || d_hours_and_less(least(abs(s), 3020399)) END)[1];
d_time_to_sec(x) AS list_transform([regexp_extract(x,
    '^\s*([+-]?)(\d{1,3}):(\d{1,2})(?::(\d{1,2})(?:\.\d*)?)?\s*$',
    ['sign', 'h', 'i', 's'])], lambda t: CASE
    WHEN TRY_CAST(t['h'] AS BIGINT) <= 838 AND CAST(t['i'] AS BIGINT) <= 59 AND d_clock_number(t['s']) <= 59
    THEN CAST(t['sign'] || '1' AS BIGINT)
        * (3600 * CAST(t['h'] AS BIGINT) + 60 * CAST(t['i'] AS BIGINT) + d_clock_number(t['s'])) END)[1];
d_timediff(a, b) AS list_transform([epoch_us(a) - epoch_us(b)], lambda t: CASE WHEN t < 0 THEN '-' ELSE '' END
    || d_hours_and_less(abs(t) // 1000000) || d_digits_behind(abs(t) % 1000000))[1];
d_time_part_to_sec(x) AS d_time_to_sec(regexp_replace(CAST(x AS VARCHAR), '^\d{1,4}-\d{2}-\d{2}[ T]', ''));
d_milliseconds(t) AS CAST(d_units_since_1970(t, 1000) AS DOUBLE) / 1000;
d_exact_seconds(t) AS CAST(epoch_us(t) AS DECIMAL(20, 0)) * CAST(0.000001 AS DECIMAL(7, 6));
d_sec_to_time_exact(n) AS list_transform([CAST(round(n * 1000000) AS BIGINT)], lambda s: CASE
    WHEN s IS NOT NULL THEN CASE WHEN s < 0 THEN '-' ELSE '' END
    || d_hours_and_less(least(abs(s), 3020399999999) // 1000000)
    || printf('.%06d', least(abs(s), 3020399999999) % 1000000) END)[1];
d_shown(t, f) AS CASE WHEN year(t) <= 9999 THEN strftime(t, f) END;
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
"""
FUNCTIONS: Final = r"""
d_maketime(h, i, s) AS CASE WHEN abs(h) <= 838 AND i BETWEEN 0 AND 59 AND s >= 0 AND s < 60
    THEN CASE WHEN h < 0 THEN '-' ELSE '' END || printf('%02d:%02d:%02d', abs(CAST(h AS BIGINT)),
        CAST(i AS BIGINT), CAST(trunc(s) AS BIGINT)) END;
d_date(x DATE) AS x,
    (x TIMESTAMP) AS CAST(x AS DATE),
    (x BIGINT) AS CAST(d_moment_of_digits(x) AS DATE),
    (x VARCHAR) AS CAST(d_moment(x) AS DATE);
d_from_days(n) AS CAST(DATE '0001-01-01' + CAST(n - 366 - CASE WHEN n < 60 THEN 1 ELSE 0 END AS INTEGER)
    AS DATE);
d_makedate(y, n) AS CASE WHEN n > 0 THEN CAST(make_date(y, 1, 1) + CAST(n - 1 AS INTEGER) AS DATE) END;
d_months_between(x, y) AS list_transform([{'x': d_date_of(x), 'y': d_date_of(y)}],
    lambda d: round(d_months_apart(d['x'], d['y']), 8))[1];
d_next_day(d, w) AS list_transform([d_date_of(d)],
    lambda x: x + CAST((d_weekday_begun(w) - isodow(x) + 6) % 7 + 1 AS INTEGER))[1];
d_previous_day(d, w) AS list_transform([d_date_of(d)],
    lambda x: x - CAST((isodow(x) - d_weekday_begun(w) + 6) % 7 + 1 AS INTEGER))[1];
d_period_add(p, n) AS list_transform([d_months_of_period(p) + n],
    lambda m: m // 12 * 100 + m % 12 + 1)[1];
d_period_diff(a, b) AS d_months_of_period(a) - d_months_of_period(b);
d_to_iso8601(x) AS CASE WHEN typeof(x) = 'DATE' THEN CAST(x AS VARCHAR)
    ELSE strftime(d_moment(CAST(x AS VARCHAR)), '%Y-%m-%dT%H:%M:%S.%f') END;
d_to_monday(x) AS list_transform([d_date_of(x)], lambda d: CASE
    WHEN d BETWEEN DATE '1970-01-01' AND DATE '1970-01-04' THEN DATE '1970-01-01'
    ELSE CAST(date_trunc('week', d) AS DATE) END)[1];
d_year_of_week(x) AS isoyear(d_moment(CAST(x AS VARCHAR)));
"""
