"""The names of headers: those of a load, and those that are of something else."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

KNOWN_HEADERS: Final = frozenset(
    """
    auto_create auto_create_key auto_create_sequence
    change_position change_table change_time_unit column_separator columns comment compress_type delete
    dead_letters empty_field_as_null enclose escape
    exec_mem_limit format function_column.sequence_col fuzzy_parse group_commit hidden_columns json_root
    jsonpaths label line_delimiter max_filter_ratio merge_type negative num_as_string partial_columns
    partial_update_ignore_null partial_update_new_key_behavior partitions read_json_by_line
    schema_evolution schema_registry
    send_batch_parallelism skip_lines sql strict_mode strip_outer_array temporary_partitions time_zone
    timeout timezone trim_double_quotes two_phase_commit txn_app_id txn_version txnappid txnversion
    unique_key_update_mode where
    """.split()  # noqa: SIM905 - one name a line would be long
)
# Headers of HTTP in one word; those of several words have hyphens, headers of a load have underlines.
_HTTP_WORDS: Final = frozenset(
    """
    accept authorization b3 baggage connection cookie date dnt expect forwarded from host origin pragma
    priority range referer te traceparent tracestate trailer upgrade via warning
    """.split()  # noqa: SIM905 - one name a line would be long
)
# Headers of a Doris cluster, without a meaning here.
_OF_CLUSTERS: Final = frozenset(
    """
    auth_code cloud_cluster cluster compute_group enable_profile load_to_single_tablet memtable_on_sink_node
    stream_per_node token
    """.split()  # noqa: SIM905 - one name a line would be long
)
_MEANT_OTHERWISE: Final = KNOWN_HEADERS | _HTTP_WORDS | _OF_CLUSTERS
_NAMED_MAX: Final = 10
_SIMILAR: Final = 0.8  # of two names, as difflib rates them


def unknown_headers(headers: Mapping[str, str]) -> str:
    """Returns a note on headers that were meant for the load and are not known, empty without one.

    It names the first ten.
    """
    notes: list[str] = []
    more = 0
    for name in headers:
        written = name.strip().lower()
        if written in _MEANT_OTHERWISE:
            continue
        if len(notes) == _NAMED_MAX:
            more += 1
            continue
        similar = _similar(written)
        if similar or "-" not in written:
            meant = f", did you mean {similar}?" if similar else ""
            notes.append(f"header {name.strip()[:100]!r} is not known and was ignored{meant}")
    if more:
        notes.append(f"{more} more headers were not looked at")
    return "; ".join(notes)


@lru_cache(maxsize=256)  # clients send the same headers with each load, and a comparison takes 0.3 ms
def _similar(name: str) -> str:
    """Returns the known header that a name is like, empty without one."""
    found = get_close_matches(name.replace("-", "_"), sorted(KNOWN_HEADERS), 1, _SIMILAR)
    return found[0] if found else ""
