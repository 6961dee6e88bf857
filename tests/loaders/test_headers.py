"""`loaders.headers`: every header (LH1-LH27), its default, its values and its refusals."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqstore.loaders.broker import spec as broker
from seqstore.loaders.headers import KNOWN_HEADERS, StreamLoadOptions, parse_headers
from seqstore.loaders.routine import properties as routine
from seqstore.store.errors import InvalidInputError


def refusal(**headers: str) -> str:
    given = {name.replace("__", "."): value for name, value in headers.items()}
    with pytest.raises(InvalidInputError) as caught:
        parse_headers(given)
    return caught.value.message


def test_no_header_gives_the_documented_defaults() -> None:
    """LH2-LH4, LH7, LH9-LH12, LH25."""
    options = parse_headers({})
    assert options == StreamLoadOptions()
    assert (options.format, options.csv.separator, options.csv.delimiter) == ("csv", b"\t", b"\n")
    assert (options.max_filter_ratio, options.timeout_seconds, options.strict_mode) == (0.0, 600, False)
    assert (options.time_zone, options.merge_type, options.group_commit) == (
        "Asia/Shanghai",
        "APPEND",
        "",
    )
    assert options.json.by_line


def test_names_and_enumerations_are_read_in_any_case() -> None:
    options = parse_headers(
        {
            "FORMAT": "JSON",
            "Merge_Type": "delete",
            "STRICT_MODE": "True",
            "Label": " l-1 ",
            "Compress_Type": "GZ",
        }
    )
    assert (options.format, options.merge_type, options.strict_mode) == ("json", "DELETE", True)
    assert (options.label, options.compression) == ("l-1", "gz")


_OF_BYTES = {"column_separator", "line_delimiter", "enclose", "escape"}


@pytest.mark.parametrize("name", sorted(KNOWN_HEADERS - _OF_BYTES - {"comment"}))
def test_headers_that_are_no_text_are_refused_by_name(name: str) -> None:
    """The bytes of a header that are no UTF-8 ended a load with a Python exception."""
    assert refusal(**{name: "$.\udcff"}).startswith(f"{name}: expected text in UTF-8, found '$.\\udcff'")


@pytest.mark.parametrize("name", sorted(_OF_BYTES))
def test_separators_may_be_bytes_but_no_half_characters(name: str) -> None:
    """LH3: a byte that is no UTF-8 comes as a character of its own."""
    parse_headers({name: "\udcff"})
    assert refusal(**{name: "\ud800"}).startswith(f"{name}: expected text or bytes")


def test_paths_that_are_no_text_are_refused() -> None:
    """An escape of JSON can hold half a character, which ended a load with a Python exception."""
    assert refusal(jsonpaths='["$.k", "$.\\ud800"]').startswith("Invalid jsonpaths")


def test_headers_of_http_itself_are_ignored() -> None:
    assert parse_headers({"Host": "h", "Expect": "100-continue", "User-Agent": "curl"}) == StreamLoadOptions()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (",", b","),
        ("\\x01", b"\x01"),
        ("\\x01\\x02", b"\x01\x02"),
        ("\\x0102", b"\x01\x02"),
        ("\\t", b"\t"),
        ("||", b"||"),
        ("weizuo", b"weizuo"),
        (" ", b" "),
        ("\t", b"\t"),
        ("ä", "ä".encode()),
    ],
)
def test_column_separators_are_characters_or_hex(written: str, meant: bytes) -> None:
    """LH3."""
    assert parse_headers({"column_separator": written}).csv.separator == meant


@pytest.mark.parametrize(
    ("written", "meant"), [("\\n", b"\n"), ("\\r\\n", b"\r\n"), ("$$$", b"$$$"), ("\\x0a", b"\n")]
)
def test_line_delimiters_are_characters_or_hex(written: str, meant: bytes) -> None:
    """LH4."""
    assert parse_headers({"line_delimiter": written}).csv.delimiter == meant


@pytest.mark.parametrize("text", ["\\x0", "\\x01\\x0"])
def test_hex_separators_with_half_a_byte_are_refused(text: str) -> None:
    assert "hex" in refusal(column_separator=text)


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"format": "xml"}, "unknown data format, format=xml"),
        ({"strict_mode": "yes"}, "Invalid strict mode format. Must be bool type"),
        ({"merge_type": "UPSERT"}, "Invalid merge type UPSERT"),
        ({"merge_type": "MERGE"}, "Excepted DELETE ON clause when merge type is MERGE."),
        ({"delete": "a=1"}, "Not support DELETE ON clause when merge type is not MERGE."),
        ({"enclose": "ab"}, "enclose must be single-char, actually is ab"),
        ({"escape": "ab"}, "escape must be single-char, actually is ab"),
        ({"skip_lines": "-1"}, "Invalid 'skip_lines': -1"),
        ({"skip_lines": "x"}, "Invalid 'skip_lines': x"),
        (
            {"partitions": "p", "temporary_partitions": "q"},
            "Can not specify both partitions and temporary partitions",
        ),
        (
            {"unique_key_update_mode": "SOME"},
            "Invalid unique_key_partial_mode SOME, must be one of 'UPSERT', 'UPDATE_FIXED_COLUMNS' or "
            "'UPDATE_FLEXIBLE_COLUMNS'",
        ),
        (
            {"partial_update_new_key_behavior": "ignore"},
            "Invalid partial_update_new_key_behavior IGNORE, must be one of {'APPEND', 'ERROR'}",
        ),
        (
            {"unique_key_update_mode": "UPDATE_FLEXIBLE_COLUMNS"},
            "flexible partial update only support json format as input file currently",
        ),
    ],
)
def test_refusals_have_the_words_of_doris(headers: dict[str, str], message: str) -> None:
    """LH8, LH10, LH12, LH13, LH19, LH20, LR6, P12, F4, F6."""
    assert refusal(**headers) == message


@pytest.mark.parametrize(
    "name", ["columns", "jsonpaths", "hidden_columns", "function_column__sequence_col", "merge_type", "where"]
)
def test_flexible_updates_refuse_what_they_cannot_go_with(name: str) -> None:
    """F4."""
    value = {"jsonpaths": '["$.a"]', "merge_type": "APPEND"}.get(name, "a")
    headers = {"format": "json", "unique_key_update_mode": "update_flexible_columns", name: value}
    dotted = name.replace("__", ".")
    assert refusal(**headers) == f"Don't support flexible partial update when '{dotted}' is specified"


@pytest.mark.parametrize(
    ("headers", "part"),
    [
        ({"max_filter_ratio": "1.1"}, "0 to 1"),
        ({"max_filter_ratio": "nan"}, "0 to 1"),
        ({"timeout": "0"}, "1 to 259200"),
        ({"timeout": "soon"}, "soon"),
        ({"timezone": "Mars"}, "Mars"),
        ({"compress_type": "lzo"}, "lzo is not supported"),
        ({"compress_type": "LZOP"}, "LZOP is not supported"),
        ({"compress_type": "rar"}, "unknown compress type: rar"),
        ({"compress_type": "gz", "format": "parquet"}, "compresses inside"),
        ({"group_commit": "maybe"}, "sync_mode"),
        ({"exec_mem_limit": "lots"}, "Invalid mem limit format"),
        ({"exec_mem_limit": "0"}, "Invalid mem limit format"),
        ({"negative": "true"}, "negative"),
        ({"sql": "insert"}, "_http_stream"),
        ({"label": "has blank"}, "Label format error"),
        ({"label": "x" * 129}, "Label format error"),
        ({"jsonpaths": "[1]"}, "Invalid jsonpaths"),
        ({"jsonpaths": "[" * 100_000}, "Invalid jsonpaths"),
        ({"column_separator": ",", "line_delimiter": ","}, "must differ"),
        ({"enclose": ",", "column_separator": ","}, "must differ"),
    ],
)
def test_other_refusals_name_header_and_value(headers: dict[str, str], part: str) -> None:
    """LH1, LH7, LH9, LH11, LH15, LH18, LH22-LH26."""
    assert part in refusal(**headers)


@pytest.mark.parametrize(
    ("headers", "by_line", "strip"),
    [
        ({}, True, False),
        ({"read_json_by_line": "true"}, True, False),
        ({"strip_outer_array": "true"}, False, True),
        ({"strip_outer_array": "false"}, False, False),
        ({"read_json_by_line": "true", "strip_outer_array": "true"}, True, True),
    ],
)
def test_json_is_read_by_line_unless_one_of_the_two_headers_is_given(
    headers: dict[str, str], by_line: bool, strip: bool
) -> None:
    """J1."""
    options = parse_headers(headers).json
    assert (options.by_line, options.strip_outer_array) == (by_line, strip)


def test_names_lines_are_skipped_by_the_format_and_skip_lines_is_then_ignored() -> None:
    """V9."""
    assert parse_headers({"skip_lines": "3"}).csv.skip_lines == 3
    assert parse_headers({"format": "csv_with_names", "skip_lines": "3"}).csv.skip_lines == 1
    assert parse_headers({"format": "CSV_WITH_NAMES_AND_TYPES"}).csv.skip_lines == 2


def test_the_update_mode_beats_partial_columns() -> None:
    """P2, LH27."""
    assert parse_headers({"partial_columns": "TRUE"}).update_mode == "UPDATE_FIXED_COLUMNS"
    assert parse_headers({"partial_columns": "yes"}).update_mode == "UPSERT"
    both = {"partial_columns": "true", "unique_key_update_mode": "upsert"}
    assert parse_headers(both).update_mode == "UPSERT"


def test_lists_of_names_and_time_zones_are_read() -> None:
    """LH11, LH15."""
    options = parse_headers(
        {
            "hidden_columns": "__DORIS_DELETE_SIGN__, `__DORIS_SEQUENCE_COL__`",
            "timezone": "utc",
            "partitions": "p, q",
        }
    )
    assert options.hidden_columns == ("__DORIS_DELETE_SIGN__", "__DORIS_SEQUENCE_COL__")
    assert (options.time_zone, options.partitions) == ("+00:00", ("p", "q"))
    assert parse_headers({"time_zone": "Europe/Paris"}).time_zone == "Europe/Paris"


# A value of each header that changes the load, behind the headers that it needs.
SAMPLES: dict[str, tuple[dict[str, str], str]] = {
    **{name: ({}, value) for name, value in (
        ("change_position", "gtid"), ("change_table", "t"), ("change_time_unit", "ms"),
        ("column_separator", "|"), ("columns", "a, b"), ("comment", "c"), ("compress_type", "gz"),
        ("dead_letters", "true"),
        ("empty_field_as_null", "true"), ("enclose", "'"), ("escape", "!"), ("exec_mem_limit", "1000"),
        ("format", "json"), ("function_column.sequence_col", "s"), ("group_commit", "sync_mode"),
        ("hidden_columns", "__DORIS_DELETE_SIGN__"), ("label", "l"), ("line_delimiter", "|"),
        ("max_filter_ratio", "0.5"), ("merge_type", "DELETE"), ("partial_columns", "true"),
        ("partial_update_ignore_null", "true"), ("partitions", "p"), ("skip_lines", "1"),
        ("strict_mode", "true"), ("time_zone", "+01:00"), ("timeout", "7"),
        ("timezone", "+01:00"), ("trim_double_quotes", "true"), ("two_phase_commit", "true"),
        ("unique_key_update_mode", "UPDATE_FIXED_COLUMNS"), ("where", "a > 1"),
    )},
    "delete": ({"merge_type": "MERGE", "delete": "a = 1"}, "a = 2"),
    "partial_update_new_key_behavior": ({"partial_columns": "true"}, "ERROR"),
    "read_json_by_line": ({"format": "json", "strip_outer_array": "true"}, "true"),
    "txn_app_id": ({"txn_version": "1", "txn_app_id": "a"}, "b"),
    "txn_version": ({"txn_version": "1", "txn_app_id": "a"}, "2"),
    "txnappid": ({"txnversion": "1", "txnappid": "a"}, "b"),
    "txnversion": ({"txnversion": "1", "txnappid": "a"}, "2"),
    **{name: ({"format": "json"}, value) for name, value in (
        ("json_root", "$.a"), ("jsonpaths", '["$.a"]'), ("num_as_string", "true"), ("fuzzy_parse", "true"),
        ("strip_outer_array", "true"), ("schema_evolution", "add"), ("auto_create", "true"),
    )},
    **{name: ({"format": "json", "auto_create": "true"}, "a") for name in (
        "auto_create_key", "auto_create_sequence",
    )},
}  # fmt: skip
WITHOUT_EFFECT = {"send_batch_parallelism": "2"}  # LH24: there are no backends that rows are sent to


@pytest.mark.parametrize("name", sorted(KNOWN_HEADERS))
def test_every_header_changes_the_load_or_is_refused(name: str) -> None:
    """`exec_mem_limit` was checked and did nothing."""
    if name in WITHOUT_EFFECT:
        assert parse_headers({name: WITHOUT_EFFECT[name]}) == parse_headers({})
        return
    if name not in SAMPLES:
        assert name in refusal(**{name: "true"})
        return
    before, value = SAMPLES[name]
    assert parse_headers({**before, name: value}) != parse_headers(before)


def test_properties_of_jobs_are_headers_of_stream_loads_or_limits_of_the_job() -> None:
    """Those that divide the work of backends have no effect (R21, B9)."""
    assert {*routine.HEADERS, *broker._HEADERS.values()} <= KNOWN_HEADERS
    assert "exec_mem_limit" in routine.HEADERS
    assert "exec_mem_limit" in broker._HEADERS
    divided = {"send_batch_parallelism", "load_to_single_tablet"}
    assert divided == broker._WITHOUT_EFFECT
    assert set(routine._WITHOUT_EFFECT) == {*divided, "workload_group"}


_NAMES = """label format column_separator line_delimiter columns where max_filter_ratio partitions timeout
    strict_mode timezone merge_type delete function_column.sequence_col hidden_columns
    partial_columns unique_key_update_mode two_phase_commit jsonpaths json_root strip_outer_array
    read_json_by_line num_as_string fuzzy_parse enclose escape trim_double_quotes skip_lines
    compress_type exec_mem_limit send_batch_parallelism group_commit comment sql"""


@given(st.dictionaries(st.sampled_from(re.findall(r"\S+", _NAMES)), st.text(max_size=40), max_size=6))
@settings(max_examples=300, deadline=None)
def test_any_values_give_options_or_one_clear_refusal(headers: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidInputError):
        parse_headers(headers)
