"""The headers of one load, read and checked one after the other."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from seqstore.loaders.headers.combinations import check_together, check_unused
from seqstore.loaders.headers.known import KNOWN_HEADERS
from seqstore.loaders.headers.options import (
    AVRO_FORMATS,
    CHANGE_FORMATS,
    DEFAULT_TIME_ZONE,
    DEFAULT_TIMEOUT,
    FORMATS,
    UPDATE_MODES,
    AvroOptions,
    ChangeOptions,
    CsvOptions,
    JsonOptions,
    StreamLoadOptions,
    text_format,
)
from seqstore.loaders.headers.values import bad_header, by_plain_names, evolution_in, flag, integer
from seqstore.store.catalog.transaction_record import check_client_label
from seqstore.store.schema.properties import GROUP_COMMIT_MODES
from seqstore.store.types.cast import check_zone

_TIMEOUT_MAX: Final = 259_200
_COMPRESSIONS: Final = {
    "gz": "gz",
    "gzip": "gz",
    "bz2": "bz2",
    "lz4": "lz4",
    "lz4frame": "lz4",
    "lz4_frame": "lz4",
    "zstd": "zstd",
    "deflate": "deflate",
    "zlib": "zlib",
    "lz4_block": "lz4_block",
    "lz4block": "lz4_block",
    "snappy_block": "snappy_block",
    "snappyblock": "snappy_block",
}
# Headers whose values may be any bytes; a comment is only told.
_OF_BYTES: Final = ("column_separator", "line_delimiter", "enclose", "escape", "comment")
_REFUSED_COMPRESSIONS: Final = ("lzo", "lzop")


def parse_headers(headers: Mapping[str, str]) -> StreamLoadOptions:
    """Reads the headers of one request.

    Raises:
        InvalidInputError: the first header that cannot be accepted.
    """
    raw = by_plain_names(headers)  # separators may be blanks themselves, so they stay unchanged
    given = {name: value.strip() for name, value in raw.items()}
    _check_text(given)
    asked = _format(given)
    file_format = text_format(asked)
    options = StreamLoadOptions(
        label=_label(given),
        format=file_format,
        csv=_csv(given, raw, file_format),
        json=_json(given, raw),
        changes=_changes(given),
        avro=_avro(given, asked),
        compression=_compression(given, file_format),
        columns=given.get("columns", ""),
        where=given.get("where", ""),
        delete=given.get("delete", ""),
        hidden_columns=_names(given.get("hidden_columns", "")),
        sequence=given.get("function_column.sequence_col", "").strip("`") or None,
        merge_type=_merge_type(given),
        max_filter_ratio=_ratio(given),
        strict_mode=_strict_mode(given) or file_format in CHANGE_FORMATS or evolution_in(given) != "off",
        partitions=_partitions(given),
        timeout_seconds=_timeout(given),
        time_zone=check_zone(given.get("timezone") or given.get("time_zone") or DEFAULT_TIME_ZONE),
        comment=given.get("comment", ""),
        two_phase_commit=flag(given, "two_phase_commit"),
        group_commit=_group_commit(given),
        update_mode=_update_mode(given),
        new_key_behavior=_new_key_behavior(given),
        ignore_null=flag(given, "partial_update_ignore_null"),
        memory_bytes=_memory_bytes(given),
        txn_app_id=given.get("txnappid") or given.get("txn_app_id") or None,
        txn_version=_txn_version(given),
        schema_evolution=evolution_in(given),
        auto_create=flag(given, "auto_create"),
        dead_letters=flag(given, "dead_letters"),
        auto_create_key=_names(given.get("auto_create_key", "")),
        auto_create_sequence=given.get("auto_create_sequence", "").strip("`"),
    )
    check_unused(given)
    check_together(options, given)
    return options


def _check_text(given: Mapping[str, str]) -> None:
    """Checks that headers are Unicode: no name, path or expression is anything else."""
    for name, value in given.items():
        if not _is_text(value) and name in KNOWN_HEADERS and name not in _OF_BYTES:
            raise bad_header(f"{name}: expected text in UTF-8, found {value[:100]!r}", name)


def _is_text(value: str) -> bool:
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:  # half a character, or a byte of a header that is no UTF-8
        return False


def _txn_version(given: Mapping[str, str]) -> int | None:
    text = given.get("txnversion") or given.get("txn_version") or ""
    if text and not re.fullmatch(r"\d{1,18}", text):
        raise bad_header(f"Invalid 'txnVersion': {text}; expected a whole number from 0 on", "txnVersion")
    return int(text) if text else None


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip().strip("`") for name in text.split(",") if name.strip())


def _label(given: Mapping[str, str]) -> str | None:
    label = given.get("label", "")
    return check_client_label(label) if label else None


def _format(given: Mapping[str, str]) -> str:
    text = given.get("format", "")
    file_format = text.lower() or "csv"
    if file_format not in FORMATS:
        raise bad_header(f"unknown data format, format={text}", "format")
    return file_format


def _csv(given: Mapping[str, str], raw: Mapping[str, str], file_format: str) -> CsvOptions:
    skip = integer(given, "skip_lines", 0, "Invalid 'skip_lines': {}")
    if skip < 0:
        raise bad_header(f"Invalid 'skip_lines': {given['skip_lines']}", "skip_lines")
    skip = {"csv_with_names": 1, "csv_with_names_and_types": 2}.get(file_format, skip)  # V9
    options = CsvOptions(
        separator=_separator(raw, "column_separator", b"\t"),
        delimiter=_separator(raw, "line_delimiter", b"\n"),
        enclose=_single(raw, "enclose", b""),
        escape=_single(raw, "escape", b"\\"),
        trim_double_quotes=flag(given, "trim_double_quotes"),
        skip_lines=skip,
        empty_field_as_null=flag(given, "empty_field_as_null")
        or (not given.get("empty_field_as_null") and takes_fields(given)),  # EV6
    )
    if options.separator == options.delimiter:
        raise bad_header("column_separator and line_delimiter must differ", "column_separator")
    if options.enclose and options.enclose in (options.separator[:1], options.delimiter[:1]):
        raise bad_header("enclose must differ from the start of the separators", "enclose")
    return options


def _separator(raw: Mapping[str, str], name: str, default: bytes) -> bytes:
    """Reads a separator as written (LH3, LH4).

    A text such as `\\x01` is hex throughout; `\\t`, `\\n` and `\\r` are the characters they name.
    """
    text = raw.get(name, "")
    if not text:
        return default
    if re.match(r"\\?x[0-9a-fA-F]", text, re.IGNORECASE) and text[0] in "\\":
        digits = text[2:].replace("\\x", "").replace("\\X", "")
        if len(digits) % 2 or not re.fullmatch(r"[0-9a-fA-F]+", digits):
            raise bad_header(f"Invalid {name}: {text!r} is no hex text such as \\x01", name)
        return bytes.fromhex(digits)
    for written, meant in (("\\t", "\t"), ("\\n", "\n"), ("\\r", "\r")):
        text = text.replace(written, meant)
    return _encoded(text, name)


def _encoded(text: str, name: str) -> bytes:
    """Converts header text to bytes: HTTP servers pass bytes over 127 on as surrogates."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise bad_header(f"{name}: expected text or bytes, found {text[:100]!r}", name) from None


def _single(raw: Mapping[str, str], name: str, default: bytes) -> bytes:
    text = raw.get(name, "")
    value = _encoded(text, name)
    if len(value) > 1:
        raise bad_header(f"{name} must be single-char, actually is {text}", name)
    return value or default


def _json(given: Mapping[str, str], raw: Mapping[str, str]) -> JsonOptions:
    strip, by_line = given.get("strip_outer_array"), given.get("read_json_by_line")
    neither = strip is None and by_line is None  # J1
    return JsonOptions(
        paths=_json_paths(given),
        root=given.get("json_root", ""),
        strip_outer_array=flag(given, "strip_outer_array"),
        by_line=neither or flag(given, "read_json_by_line"),
        delimiter=_separator(raw, "line_delimiter", b"\n"),
        num_as_string=flag(given, "num_as_string"),
        fuzzy_parse=flag(given, "fuzzy_parse"),
    )


def _json_paths(given: Mapping[str, str]) -> tuple[str, ...]:
    text = given.get("jsonpaths", "")
    if not text:
        return ()
    try:
        paths: Any = json.loads(text)
    except (ValueError, RecursionError):
        paths = None
    is_list = isinstance(paths, list) and all(isinstance(path, str) and _is_text(path) for path in paths)
    if not is_list or not paths:
        raise bad_header(
            f'Invalid jsonpaths: expected a list such as ["$.k1","$.k2"], found {text[:200]}', "jsonpaths"
        )
    return tuple(paths)


def _changes(given: Mapping[str, str]) -> ChangeOptions:
    position = given.get("change_position", "").lower() or "auto"
    if position not in ("auto", "gtid", "ts_ms"):
        raise bad_header(
            f"change_position: expected one of auto, gtid, ts_ms, found {position}", "change_position"
        )
    unit = given.get("change_time_unit", "").lower() or "auto"
    if unit not in ("auto", "ms", "us", "ns"):
        raise bad_header(
            f"change_time_unit: expected one of auto, ms, us, ns, found {unit}", "change_time_unit"
        )
    return ChangeOptions(given.get("change_table", ""), position, unit)


def _avro(given: Mapping[str, str], asked: str) -> AvroOptions | None:
    url = given.get("schema_registry", "")
    if asked in AVRO_FORMATS:
        return AvroOptions(asked, url)
    if url:
        raise bad_header(
            f"schema_registry: expected format {' or '.join(AVRO_FORMATS)}, found {asked}", "schema_registry"
        )
    return None


def _compression(given: Mapping[str, str], file_format: str) -> str:
    text = given.get("compress_type", "")
    if not text or text.lower() in ("plain", "none"):
        return ""
    if text.lower() in _REFUSED_COMPRESSIONS:
        raise bad_header(
            f"compress_type {text} is not supported here; use gz, bz2, lz4 or zstd", "compress_type"
        )
    if text.lower() not in _COMPRESSIONS:
        raise bad_header(
            f"unknown compress type: {text}; expected one of {', '.join(_COMPRESSIONS)}", "compress_type"
        )
    if file_format in ("parquet", "orc", "arrow"):
        raise bad_header(
            f"compress_type does not go with format {file_format}, which compresses inside", "compress_type"
        )
    return _COMPRESSIONS[text.lower()]


def _merge_type(given: Mapping[str, str]) -> str:
    text = given.get("merge_type", "")
    if text and text.upper() not in ("APPEND", "DELETE", "MERGE"):
        raise bad_header(f"Invalid merge type {text}", "merge_type")
    return text.upper() or "APPEND"


def _ratio(given: Mapping[str, str]) -> float:
    text = given.get("max_filter_ratio", "")
    if not text:
        return 1.0 if flag(given, "dead_letters") else 0.0  # DL2
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise bad_header(f"Invalid max_filter_ratio: expected 0 to 1, found {text}", "max_filter_ratio")
    return ratio


def _strict_mode(given: Mapping[str, str]) -> bool:
    text = given.get("strict_mode", "false").lower()
    if text not in ("true", "false"):
        raise bad_header("Invalid strict mode format. Must be bool type", "strict_mode")
    return text == "true"


def _partitions(given: Mapping[str, str]) -> tuple[str, ...]:
    if "partitions" in given and "temporary_partitions" in given:
        raise bad_header("Can not specify both partitions and temporary partitions", "partitions")
    if given.get("temporary_partitions"):
        raise bad_header(
            "temporary_partitions: the table has no temporary partitions", "temporary_partitions"
        )
    return _names(given.get("partitions", ""))


def _timeout(given: Mapping[str, str]) -> int:
    message = f"Invalid timeout format, expected 1 to {_TIMEOUT_MAX} seconds, found {{}}"
    seconds = integer(given, "timeout", DEFAULT_TIMEOUT, message)
    if not 1 <= seconds <= _TIMEOUT_MAX:
        raise bad_header(message.format(given["timeout"]), "timeout")
    return seconds


def _group_commit(given: Mapping[str, str]) -> str:
    mode = given.get("group_commit", "").lower()
    if mode and mode not in GROUP_COMMIT_MODES:
        raise bad_header("group_commit can only be [async_mode, sync_mode, off_mode]", "group_commit")
    return mode


def _update_mode(given: Mapping[str, str]) -> str:
    """Parses the update mode; it has precedence over `partial_columns` (P2)."""
    text = given.get("unique_key_update_mode", "")
    if text and text.upper() not in UPDATE_MODES:
        raise bad_header(
            f"Invalid unique_key_partial_mode {text}, must be one of 'UPSERT', 'UPDATE_FIXED_COLUMNS' or "
            "'UPDATE_FLEXIBLE_COLUMNS'",
            "unique_key_update_mode",
        )
    return text.upper() or ("UPDATE_FIXED_COLUMNS" if flag(given, "partial_columns") else "UPSERT")


def _new_key_behavior(given: Mapping[str, str]) -> str:
    text = given.get("partial_update_new_key_behavior", "").upper()
    if text not in ("", "APPEND", "ERROR"):
        raise bad_header(
            f"Invalid partial_update_new_key_behavior {text}, must be one of {{'APPEND', 'ERROR'}}",
            "partial_update_new_key_behavior",
        )
    return text or "APPEND"


def _memory_bytes(given: Mapping[str, str]) -> int:
    memory = integer(given, "exec_mem_limit", 0, "Invalid mem limit format, {}")
    if memory <= 0 and given.get("exec_mem_limit"):
        raise bad_header(f"Invalid mem limit format, {given['exec_mem_limit']}", "exec_mem_limit")
    return memory


def takes_fields(given: Mapping[str, str]) -> bool:
    """Returns whether each field is the column of its name."""
    return evolution_in(given) != "off" or flag(given, "auto_create")
