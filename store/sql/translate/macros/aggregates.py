"""Macros that are aggregate functions."""

from __future__ import annotations

from typing import Final

FUNCTIONS: Final = r"""
d_collect_list(x) AS coalesce(list(x) FILTER (x IS NOT NULL), []);
d_collect_set(x) AS coalesce(list(DISTINCT x) FILTER (x IS NOT NULL), []);
d_map_agg(k, v) AS list_transform([{'k': list(k), 'v': list(v)}],
    lambda pair: d_map_of(pair['k'], pair['v']))[1];
d_percentile_approx(x, p) AS CAST(approx_quantile(CAST(x AS DOUBLE), p) AS DOUBLE);
d_sum0(x) AS coalesce(sum(x), 0);
"""
