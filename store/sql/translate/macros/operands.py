"""Macros that read the operands of operators as one type.

The type of the argument chooses one of several bodies. The types of aggregates and window functions are not
known when DuckDB chooses (sql.translate.macros.unchosen).
"""

from __future__ import annotations

from typing import Final

# Called by translations and other macros, not by name.
HELPERS: Final = r"""
d_as_number(x VARCHAR) AS TRY_CAST(x AS DOUBLE),
    (x DATE) AS CAST(strftime(x, '%Y%m%d') AS BIGINT),
    (x TIMESTAMP) AS CAST(strftime(x, '%Y%m%d%H%M%S') AS BIGINT),
    (x BOOLEAN) AS CAST(x AS INTEGER),
    (x) AS x;
d_beside(x VARCHAR, y BIGINT|HUGEINT|DOUBLE) AS TRY_CAST(x AS DOUBLE),
    (x VARCHAR, y DATE|TIMESTAMP) AS d_moment(x),
    (x VARCHAR, y VARCHAR) AS x,
    (x, y) AS x;
d_double_shown(x) AS list_transform([x], lambda y: CASE WHEN y <> trunc(y) THEN CAST(y AS VARCHAR)
    WHEN abs(y) < 1e15 AND y <> 0 THEN CAST(CAST(y AS BIGINT) AS VARCHAR)
    ELSE regexp_replace(CAST(y AS VARCHAR), '\.0$', '') END)[1];
d_text(x) AS CASE typeof(x)
    WHEN 'BOOLEAN' THEN replace(replace(CAST(x AS VARCHAR), 'true', '1'), 'false', '0')
    WHEN 'DATE' THEN regexp_replace(CAST(x AS VARCHAR), '^0001(-.{5}) \(BC\)', '0000\1')
    WHEN 'TIMESTAMP' THEN regexp_replace(CAST(x AS VARCHAR), '^0001(-.{5}) \(BC\)', '0000\1')
    WHEN 'DOUBLE' THEN regexp_replace(CAST(x AS VARCHAR), '\.0$', '')
    WHEN 'FLOAT' THEN regexp_replace(CAST(x AS VARCHAR), '\.0$', '') ELSE CAST(x AS VARCHAR) END;
d_branch(x TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT) AS CAST(x AS VARCHAR),
    (x FLOAT|DOUBLE) AS d_double_shown(x),
    (x BOOLEAN) AS CASE WHEN x THEN '1' WHEN NOT x THEN '0' END,
    (x) AS x;
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
d_integer(x HUGEINT) AS x,
    (x DOUBLE) AS trunc(x),
    (x DECIMAL(38, 10)) AS trunc(x),
    (x BOOLEAN) AS CAST(x AS INTEGER),
    (x DATE) AS CAST(strftime(x, '%Y%m%d') AS BIGINT),
    (x TIMESTAMP) AS CAST(strftime(x, '%Y%m%d%H%M%S') AS BIGINT),
    (x VARCHAR) AS d_whole_text(x);
"""
