"""Macros of JSON in texts; a text that is none is NULL."""

from __future__ import annotations

from typing import Final

# Called by translations and other macros, not by name.
HELPERS: Final = r"""
d_json_length_of(j) AS list_transform([CASE WHEN json_valid(j) THEN j END], lambda t: CASE json_type(t)
    WHEN 'ARRAY' THEN json_array_length(t) WHEN 'OBJECT' THEN len(json_keys(t))
    ELSE CAST(json_valid(t) AS INTEGER) END)[1];
d_json_type_of(j) AS list_transform([CASE WHEN json_valid(j) THEN j END], lambda t: CASE json_type(t)
    WHEN 'VARCHAR' THEN 'string' WHEN 'BOOLEAN' THEN 'bool' WHEN 'UBIGINT' THEN d_json_integer(t)
    WHEN 'BIGINT' THEN d_json_integer(t) ELSE lower(json_type(t)) END)[1];
d_json_integer(t) AS CASE WHEN TRY_CAST(t AS INTEGER) IS NULL THEN 'bigint' ELSE 'int' END;
d_json_of(j, kind) AS list_transform([CASE WHEN json_valid(j) THEN j END],
    lambda t: CASE WHEN json_type(t) = kind THEN CAST(t AS VARCHAR) END)[1];
d_json_items(j) AS CAST(json_extract_string(d_json_of(j, 'ARRAY'), '$[*]') AS VARCHAR[]);
d_json_names(j) AS CAST(json_keys(d_json_of(j, 'OBJECT')) AS VARCHAR[]);
d_json_values(j) AS CAST(json_extract_string(d_json_of(j, 'OBJECT'), '$.*') AS VARCHAR[]);
d_json_text(j, p) AS coalesce(json_extract_string(j, p), CASE WHEN json_type(j, p) = 'NULL' THEN 'null' END);
d_cut(x) AS TRY_CAST(trunc(TRY_CAST(x AS DECIMAL(38, 9))) AS BIGINT);
d_json_found(j, p) AS CASE WHEN json_valid(j)
    THEN nullif(CAST(to_json(json_extract(j, p)) AS VARCHAR), '[]') END;
d_explode_json_array_double(j) AS CASE WHEN json_valid(j)
    THEN list_transform(CAST(json_extract_string(j, '$[*]') AS VARCHAR[]),
        lambda x: TRY_CAST(x AS DOUBLE)) END;
d_explode_json_array_int(j) AS CASE WHEN json_valid(j)
    THEN list_transform(CAST(json_extract_string(j, '$[*]') AS VARCHAR[]), lambda x: d_cut(x)) END;
d_explode_json_array_json(j) AS CASE WHEN json_valid(j)
    THEN CAST(json_extract(j, '$[*]') AS VARCHAR[]) END;
d_explode_json_array_string(j) AS CASE WHEN json_valid(j) THEN json_extract_string(j, '$[*]') END;
d_json_list(a) AS CASE WHEN len(list_filter(a, lambda x: x IS NOT NULL)) > 0
    THEN '[' || array_to_string(list_filter(a, lambda x: x IS NOT NULL), ',') || ']' END;
"""
FUNCTIONS: Final = r"""
d_get_json_string|json_extract_string|json_value(j, p) AS list_transform(
    [CASE WHEN json_valid(j) THEN j END],
    lambda t: d_json_text(t, CASE WHEN starts_with(p, '$') THEN p ELSE '$.' || p END))[1];
d_get_json_bigint|json_extract_bigint(j, p) AS d_cut(d_get_json_string(j, p));
d_get_json_bool|json_extract_bool(j, p) AS TRY_CAST(d_get_json_string(j, p) AS BOOLEAN);
d_get_json_double|json_extract_double(j, p) AS TRY_CAST(d_get_json_string(j, p) AS DOUBLE);
d_get_json_int|json_extract_int(j, p) AS TRY_CAST(d_cut(d_get_json_string(j, p)) AS INTEGER);
d_json_extract(j, p) AS CASE WHEN json_valid(j) THEN CAST(json_extract(j, p) AS VARCHAR) END;
d_json_unquote(j) AS CASE WHEN j LIKE '"%"' AND json_valid(j) THEN json_extract_string(j, '$') ELSE j END;
d_json_valid(j) AS CAST(json_valid(j) AS INTEGER);
d_json_contains(j, v) AS CASE WHEN json_valid(j) AND json_valid(v) THEN json_contains(j, v) END;
d_json_exists_path(j, p) AS CASE WHEN json_valid(j) THEN json_exists(j, p) END;
d_json_extract_isnull(j, p) AS CASE WHEN json_valid(j) THEN json_type(j, p) = 'NULL' END;
d_json_keys(j) AS CASE WHEN json_valid(j) AND json_type(j) = 'OBJECT' THEN json_keys(j) END,
    (j, p) AS CASE WHEN json_valid(j) AND json_type(j, p) = 'OBJECT' THEN json_keys(j, p) END;
d_json_parse_error_to_null(j) AS CASE WHEN json_valid(j) THEN j END;
d_json_quote(x) AS CAST(to_json(CAST(x AS VARCHAR)) AS VARCHAR);
d_to_json(x) AS CAST(to_json(x) AS VARCHAR);
"""
