"""Macros of arrays and maps."""

from __future__ import annotations

from typing import Final

# Called by translations and other macros, not by name.
HELPERS: Final = r"""
d_map_of_texts(pairs, e) AS d_map_of(list_transform(pairs, lambda p: string_split(p, e)[1]),
    list_transform(pairs, lambda p: string_split(p, e)[2]));
d_every(f) AS CASE WHEN list_contains(f, false) THEN false
    WHEN len(list_filter(f, lambda x: x IS NULL)) = 0 THEN true END;
d_some(f) AS CASE WHEN list_contains(f, true) THEN true
    WHEN len(list_filter(f, lambda x: x IS NULL)) = 0 THEN false END;
d_map_of(k, v) AS CASE WHEN len(list_distinct(k)) = len(k) THEN map(k, v)
    ELSE map_from_entries(list_filter(list_transform(k, lambda x, i: {'k': x, 'v': v[i]}),
        lambda e, i: NOT list_contains(list_slice(k, i + 1, len(k)), e['k']))) END;
d_texts(a) AS list_transform(a, lambda x: d_text(x)),
    (a, n) AS list_transform(a, lambda x: coalesce(d_text(x), n));
d_joined(a, s) AS coalesce(list_aggregate(a, 'string_agg', s), CASE WHEN a IS NOT NULL THEN '' END);
d_explode_numbers(n) AS range(d_numbers(n));
"""
FUNCTIONS: Final = r"""
d_array_contains_all(a, b) AS CASE WHEN a IS NOT NULL AND b IS NOT NULL THEN len(b) = 0
    OR list_contains(list_transform(range(1, len(a) - len(b) + 2),
        lambda i: a[i:i + len(b) - 1] = b), true) END;
d_array_pushback(a, x) AS CASE WHEN a IS NOT NULL THEN list_append(a, x) END;
d_array_pushfront(a, x) AS CASE WHEN a IS NOT NULL THEN list_prepend(x, a) END;
d_array_max(a) AS list_max(a);
d_array_min(a) AS list_min(a);
d_array_sum(a) AS list_sum(a);
d_element_at(a, k) AS a[k];
d_array_compact(a) AS list_filter(a, lambda x, i: i = 1 OR x IS DISTINCT FROM a[i - 1]);
d_array_cum_sum(a) AS list_transform(a, lambda x, i: list_sum(a[1:i]));
d_array_difference(a) AS list_transform(a,
    lambda x, i: CASE WHEN i > 1 THEN x - a[i - 1] WHEN x IS NOT NULL THEN 0 END);
d_array_enumerate(a) AS generate_series(1, len(a));
d_array_distinct(a) AS list_filter(a, lambda x, i: coalesce(list_position(a, x), i) = i);
d_array_except(a, b) AS CASE WHEN b IS NOT NULL
    THEN list_filter(d_array_distinct(a), lambda x: NOT coalesce(d_array_contains(b, x), false)) END;
d_array_intersect(a, b) AS CASE WHEN b IS NOT NULL
    THEN list_filter(d_array_distinct(a), lambda x: coalesce(d_array_contains(b, x), false)) END;
d_array_popback(a) AS list_slice(a, 1, len(a) - 1);
d_array_popfront(a) AS list_slice(a, 2, len(a));
d_array_position(a, x) AS CASE WHEN a IS NOT NULL THEN coalesce(list_position(a, x), 0) END;
d_array_remove(a, x) AS list_filter(a, lambda y: y IS DISTINCT FROM x);
d_array_repeat(x, n) AS list_transform(range(d_elements(n)), lambda i: x);
d_array_slice(a, o) AS list_slice(a, CASE WHEN o < 0 THEN len(a) + o + 1 ELSE o END, len(a)),
    (a, o, n) AS list_slice(a, CASE WHEN o < 0 THEN len(a) + o + 1 ELSE o END,
        CASE WHEN o < 0 THEN len(a) + o + n ELSE o + n - 1 END);
d_array_with_constant(n, x) AS list_transform(range(coalesce(d_elements(n), 0)), lambda i: x);
d_countequal(a, x) AS len(list_filter(a, lambda y: y IS NOT DISTINCT FROM x));
d_map_contains_key(m, k) AS list_contains(map_keys(m), k);
d_map_contains_value(m, v) AS d_array_contains(map_values(m), v);
d_str_to_map(x) AS d_map_of_texts(string_split(x, ','), ':'),
    (x, d) AS d_map_of_texts(string_split(x, d), ':'),
    (x, d, e) AS d_map_of_texts(string_split(x, d), e);
d_array_sort(x) AS list_sort(x, 'ASC', 'NULLS FIRST');
d_array_contains(a, x) AS CASE WHEN x IS NULL THEN len(list_filter(a, lambda e: e IS NULL)) > 0
    ELSE list_contains(a, x) END;
d_arrays_overlap(a, b) AS CASE WHEN list_has_any(a, b) THEN true
    WHEN len(list_filter(a, lambda e: e IS NULL)) + len(list_filter(b, lambda e: e IS NULL)) = 0
    THEN false END;
"""
