"""The headers of a stream load, read and checked into one value before anything else happens.

Names are matched without regard to case. A bad value is refused with the text Doris answers where it is known
(LR, LH). A header that is not known is ignored, as HTTP clients send many of their own; `unknown_headers`
finds those that were meant for the load.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from seqstore.store.catalog.transaction_record import check_client_label
from seqstore.store.errors import InvalidInputError
from seqstore.store.types.cast import check_zone

CHANGE_FORMATS: Final = ("debezium_json", "canal_json", "maxwell_json")
FORMATS: Final = (
    "csv",
    "csv_with_names",
    "csv_with_names_and_types",
    "json",
    "parquet",
    "orc",
    "arrow",
    *CHANGE_FORMATS,
)
EVOLUTIONS: Final = ("off", "add", "widen")
UPDATE_MODES: Final = ("UPSERT", "UPDATE_FIXED_COLUMNS", "UPDATE_FLEXIBLE_COLUMNS")
DEFAULT_TIME_ZONE: Final = (
    "Asia/Shanghai"  # LH11: what Doris documents, so that the same script loads the same rows
)
_TIMEOUT_MAX: Final = 259_200
_DEFAULT_TIMEOUT: Final = 600
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
_NOT_FLEXIBLE: Final = (
    "columns",
    "jsonpaths",
    "hidden_columns",
    "function_column.sequence_col",
    "merge_type",
    "where",
    "delete",
)
# Headers that say which fields there are, and columns they become.
_NOT_EVOLVING: Final = ("columns", "jsonpaths", "json_root", "hidden_columns")
# Headers that a change stream determines itself: what is a row, where its fields are, and which rows go.
_NOT_OF_CHANGES: Final = (
    "jsonpaths",
    "json_root",
    "strip_outer_array",
    "hidden_columns",
    "function_column.sequence_col",
    "merge_type",
    "delete",
    "where",
)
_REFUSED_COMPRESSIONS: Final = ("lzo", "lzop")
KNOWN_HEADERS: Final = frozenset(
    """
    auto_create auto_create_key auto_create_sequence
    change_position change_table change_time_unit column_separator columns comment compress_type delete
    dead_letters empty_field_as_null enclose escape
    exec_mem_limit format function_column.sequence_col fuzzy_parse group_commit hidden_columns json_root
    jsonpaths label line_delimiter max_filter_ratio merge_type negative num_as_string partial_columns
    partial_update_ignore_null partial_update_new_key_behavior partitions read_json_by_line
    schema_evolution
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
_SIMILAR: Final = 0.8  # of two names, as difflib rates them


@dataclass(frozen=True)
class CsvOptions:
    """The options that cut CSV text into fields.

    Attributes:
        separator, delimiter: between fields and between lines; one or more bytes.
        enclose, escape: one byte each, or empty.
        trim_double_quotes: removes one outermost pair of `"` from every field (V8).
        skip_lines: lines at the start that are no rows.
        empty_field_as_null: LH21.
    """

    separator: bytes = b"\t"
    delimiter: bytes = b"\n"
    enclose: bytes = b""
    escape: bytes = b"\\"
    trim_double_quotes: bool = False
    skip_lines: int = 0
    empty_field_as_null: bool = False


@dataclass(frozen=True)
class JsonOptions:
    """The options that cut JSON text into rows.

    Attributes:
        paths: one JSON path for each field, empty when keys match by name.
        root: path of the part of each document that holds the rows, or empty (J6).
        strip_outer_array, by_line: J1, J2.
        delimiter: between the documents of a body read by line.
        num_as_string: J9.
        fuzzy_parse: read and accepted; the answer is the same, for keys are always looked up by name (J10).
    """

    paths: tuple[str, ...] = ()
    root: str = ""
    strip_outer_array: bool = False
    by_line: bool = True
    delimiter: bytes = b"\n"
    num_as_string: bool = False
    fuzzy_parse: bool = False


@dataclass(frozen=True)
class ChangeOptions:
    """The options of change streams.

    Attributes:
        table: messages of other tables are passed over; named alone or as `db.table`. Empty for all messages.
        position: auto, gtid or ts_ms: the part of a message that is its sequence.
        time_unit: auto, ms, us or ns: of integers for DATETIME columns in messages without a schema.
    """

    table: str = ""
    position: str = "auto"
    time_unit: str = "auto"


@dataclass(frozen=True)
class StreamLoadOptions:
    """The options of a stream load; `parse_headers` reads them.

    Attributes:
        label: as the client sent it, or None.
        format: one of `FORMATS`.
        compression: gz, bz2, lz4, zstd, zlib, deflate, lz4_block, snappy_block, or empty.
        columns, where, delete: expressions as written, or empty.
        preceding_filter: a condition on the unconverted fields; broker and routine loads have it.
        hidden_columns: fields at the end of each row that hold hidden columns (SL4).
        sequence: the field of the sequence (SL1), or None.
        time_zone: a name that `types.cast.check_zone` returned.
        update_mode: one of `UPDATE_MODES`; `partial_columns: true` is UPDATE_FIXED_COLUMNS.
        new_key_behavior: APPEND or ERROR.
        ignore_null: in partial updates, a NULL cell means "keep".
        memory_bytes: of a batch with its expressions (`exec_mem_limit`), 0 for no limit (LH24).
        auto_create: the load makes its table where there is none, with the key and the sequence of
            `auto_create_key` and `auto_create_sequence`.
        dead_letters: rejected rows are kept beside the table (loaders.dead_letters).
        schema_evolution: one of `EVOLUTIONS`: what a load may change of the table's schema.
        txn_app_id, txn_version: of an idempotent load (`txnAppId`, `txnVersion`, or with underlines).
    """

    label: str | None = None
    format: str = "csv"
    csv: CsvOptions = CsvOptions()
    json: JsonOptions = JsonOptions()
    changes: ChangeOptions = ChangeOptions()
    compression: str = ""
    columns: str = ""
    where: str = ""
    delete: str = ""
    preceding_filter: str = ""
    hidden_columns: tuple[str, ...] = ()
    sequence: str | None = None
    merge_type: str = "APPEND"
    max_filter_ratio: float = 0.0
    strict_mode: bool = False
    partitions: tuple[str, ...] = ()
    timeout_seconds: int = _DEFAULT_TIMEOUT
    time_zone: str = DEFAULT_TIME_ZONE
    comment: str = ""
    two_phase_commit: bool = False
    group_commit: str = "off_mode"
    update_mode: str = "UPSERT"
    new_key_behavior: str = "APPEND"
    ignore_null: bool = False
    memory_bytes: int = 0
    txn_app_id: str | None = None
    txn_version: int | None = None
    schema_evolution: str = "off"
    auto_create: bool = False
    auto_create_key: tuple[str, ...] = ()
    auto_create_sequence: str = ""
    dead_letters: bool = False

    @property
    def evolves(self) -> bool:
        """Whether the load may change the table's schema."""
        return self.schema_evolution != "off"

    @property
    def is_partial(self) -> bool:
        return self.update_mode != "UPSERT"

    @property
    def is_flexible(self) -> bool:
        return self.update_mode == "UPDATE_FLEXIBLE_COLUMNS"

    @property
    def is_changes(self) -> bool:
        """Whether the body is a change stream."""
        return self.format in CHANGE_FORMATS

    @property
    def is_lines(self) -> bool:
        """Whether rows are lines or messages of text."""
        return self.is_csv or self.format == "json" or self.is_changes

    @property
    def is_csv(self) -> bool:
        return self.format.startswith("csv")


def parse_headers(headers: Mapping[str, str]) -> StreamLoadOptions:
    """Reads the headers of one request.

    Raises:
        InvalidInputError: the first header that cannot be accepted.
    """
    given = {name.strip().lower(): value.strip() for name, value in headers.items()}
    # separators may be blanks themselves, so they stay unchanged
    raw = {name.strip().lower(): value for name, value in headers.items()}
    file_format = _format(given)
    options = StreamLoadOptions(
        label=_label(given),
        format=file_format,
        csv=_csv(given, raw, file_format),
        json=_json(given, raw),
        changes=_changes(given),
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
        two_phase_commit=_flag(given, "two_phase_commit"),
        group_commit=_group_commit(given),
        update_mode=_update_mode(given),
        new_key_behavior=_new_key_behavior(given),
        ignore_null=_flag(given, "partial_update_ignore_null"),
        memory_bytes=_memory_bytes(given),
        txn_app_id=given.get("txnappid") or given.get("txn_app_id") or None,
        txn_version=_txn_version(given),
        schema_evolution=evolution_in(given),
        auto_create=_flag(given, "auto_create"),
        dead_letters=_flag(given, "dead_letters"),
        auto_create_key=_names(given.get("auto_create_key", "")),
        auto_create_sequence=given.get("auto_create_sequence", "").strip("`"),
    )
    _check_unused(given)
    _check_together(options, given)
    return options


def unknown_headers(headers: Mapping[str, str]) -> str:
    """Returns a note on headers that were meant for the load and are not known, empty without one."""
    notes = []
    for name in headers:
        written = name.strip().lower()
        if written in KNOWN_HEADERS | _HTTP_WORDS | _OF_CLUSTERS:
            continue
        similar = get_close_matches(written.replace("-", "_"), sorted(KNOWN_HEADERS), 1, _SIMILAR)
        if similar or "-" not in written:
            meant = f", did you mean {similar[0]}?" if similar else ""
            notes.append(f"header {name.strip()[:100]!r} is not known and was ignored{meant}")
    return "; ".join(notes)


def _bad(message: str, header: str) -> InvalidInputError:
    return InvalidInputError(message, kind="bad_header", header=header)


def _flag(given: Mapping[str, str], name: str) -> bool:
    """Parses a flag: any value but `true` is false (LH27)."""
    return given.get(name, "").lower() == "true"


def _integer(given: Mapping[str, str], name: str, default: int, message: str) -> int:
    text = given.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"[+-]?\d{1,18}", text):
        raise _bad(message.format(text), name)
    return int(text)


def _txn_version(given: Mapping[str, str]) -> int | None:
    text = given.get("txnversion") or given.get("txn_version") or ""
    if text and not re.fullmatch(r"\d{1,18}", text):
        raise _bad(f"Invalid 'txnVersion': {text}; expected a whole number from 0 on", "txnVersion")
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
        raise _bad(f"unknown data format, format={text}", "format")
    return file_format


def _csv(given: Mapping[str, str], raw: Mapping[str, str], file_format: str) -> CsvOptions:
    skip = _integer(given, "skip_lines", 0, "Invalid 'skip_lines': {}")
    if skip < 0:
        raise _bad(f"Invalid 'skip_lines': {given['skip_lines']}", "skip_lines")
    skip = {"csv_with_names": 1, "csv_with_names_and_types": 2}.get(file_format, skip)  # V9
    options = CsvOptions(
        separator=_separator(raw, "column_separator", b"\t"),
        delimiter=_separator(raw, "line_delimiter", b"\n"),
        enclose=_single(raw, "enclose", b""),
        escape=_single(raw, "escape", b"\\"),
        trim_double_quotes=_flag(given, "trim_double_quotes"),
        skip_lines=skip,
        empty_field_as_null=_flag(given, "empty_field_as_null")
        or (not given.get("empty_field_as_null") and _takes_fields(given)),  # EV6
    )
    if options.separator == options.delimiter:
        raise _bad("column_separator and line_delimiter must differ", "column_separator")
    if options.enclose and options.enclose in (options.separator[:1], options.delimiter[:1]):
        raise _bad("enclose must differ from the start of the separators", "enclose")
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
            raise _bad(f"Invalid {name}: {text!r} is no hex text such as \\x01", name)
        return bytes.fromhex(digits)
    for written, meant in (("\\t", "\t"), ("\\n", "\n"), ("\\r", "\r")):
        text = text.replace(written, meant)
    return _encoded(text)


def _encoded(text: str) -> bytes:
    """Converts header text to bytes: HTTP servers pass bytes over 127 on as surrogates."""
    return text.encode("utf-8", "surrogateescape")


def _single(raw: Mapping[str, str], name: str, default: bytes) -> bytes:
    text = raw.get(name, "")
    value = _encoded(text)
    if len(value) > 1:
        raise _bad(f"{name} must be single-char, actually is {text}", name)
    return value or default


def _json(given: Mapping[str, str], raw: Mapping[str, str]) -> JsonOptions:
    strip, by_line = given.get("strip_outer_array"), given.get("read_json_by_line")
    neither = strip is None and by_line is None  # J1
    return JsonOptions(
        paths=_json_paths(given),
        root=given.get("json_root", ""),
        strip_outer_array=_flag(given, "strip_outer_array"),
        by_line=neither or _flag(given, "read_json_by_line"),
        delimiter=_separator(raw, "line_delimiter", b"\n"),
        num_as_string=_flag(given, "num_as_string"),
        fuzzy_parse=_flag(given, "fuzzy_parse"),
    )


def _json_paths(given: Mapping[str, str]) -> tuple[str, ...]:
    text = given.get("jsonpaths", "")
    if not text:
        return ()
    try:
        paths: Any = json.loads(text)
    except (ValueError, RecursionError):
        paths = None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        raise _bad(
            f'Invalid jsonpaths: expected a list such as ["$.k1","$.k2"], found {text[:200]}', "jsonpaths"
        )
    return tuple(paths)


def _changes(given: Mapping[str, str]) -> ChangeOptions:
    position = given.get("change_position", "").lower() or "auto"
    if position not in ("auto", "gtid", "ts_ms"):
        raise _bad(f"change_position: expected one of auto, gtid, ts_ms, found {position}", "change_position")
    unit = given.get("change_time_unit", "").lower() or "auto"
    if unit not in ("auto", "ms", "us", "ns"):
        raise _bad(f"change_time_unit: expected one of auto, ms, us, ns, found {unit}", "change_time_unit")
    return ChangeOptions(given.get("change_table", ""), position, unit)


def _compression(given: Mapping[str, str], file_format: str) -> str:
    text = given.get("compress_type", "")
    if not text or text.lower() in ("plain", "none"):
        return ""
    if text.lower() in _REFUSED_COMPRESSIONS:
        raise _bad(f"compress_type {text} is not supported here; use gz, bz2, lz4 or zstd", "compress_type")
    if text.lower() not in _COMPRESSIONS:
        raise _bad(
            f"unknown compress type: {text}; expected one of {', '.join(_COMPRESSIONS)}", "compress_type"
        )
    if file_format in ("parquet", "orc", "arrow"):
        raise _bad(
            f"compress_type does not go with format {file_format}, which compresses inside", "compress_type"
        )
    return _COMPRESSIONS[text.lower()]


def _merge_type(given: Mapping[str, str]) -> str:
    text = given.get("merge_type", "")
    if text and text.upper() not in ("APPEND", "DELETE", "MERGE"):
        raise _bad(f"Invalid merge type {text}", "merge_type")
    return text.upper() or "APPEND"


def _ratio(given: Mapping[str, str]) -> float:
    text = given.get("max_filter_ratio", "")
    if not text:
        return 1.0 if _flag(given, "dead_letters") else 0.0  # DL2
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise _bad(f"Invalid max_filter_ratio: expected 0 to 1, found {text}", "max_filter_ratio")
    return ratio


def _strict_mode(given: Mapping[str, str]) -> bool:
    text = given.get("strict_mode", "false").lower()
    if text not in ("true", "false"):
        raise _bad("Invalid strict mode format. Must be bool type", "strict_mode")
    return text == "true"


def _partitions(given: Mapping[str, str]) -> tuple[str, ...]:
    if "partitions" in given and "temporary_partitions" in given:
        raise _bad("Can not specify both partitions and temporary partitions", "partitions")
    if given.get("temporary_partitions"):
        raise _bad("temporary_partitions: the table has no temporary partitions", "temporary_partitions")
    return _names(given.get("partitions", ""))


def _timeout(given: Mapping[str, str]) -> int:
    message = f"Invalid timeout format, expected 1 to {_TIMEOUT_MAX} seconds, found {{}}"
    seconds = _integer(given, "timeout", _DEFAULT_TIMEOUT, message)
    if not 1 <= seconds <= _TIMEOUT_MAX:
        raise _bad(message.format(given["timeout"]), "timeout")
    return seconds


def _group_commit(given: Mapping[str, str]) -> str:
    mode = given.get("group_commit", "").lower() or "off_mode"
    if mode not in ("off_mode", "sync_mode", "async_mode"):
        raise _bad("group_commit can only be [async_mode, sync_mode, off_mode]", "group_commit")
    return mode


def _update_mode(given: Mapping[str, str]) -> str:
    """Parses the update mode; it has precedence over `partial_columns` (P2)."""
    text = given.get("unique_key_update_mode", "")
    if text and text.upper() not in UPDATE_MODES:
        raise _bad(
            f"Invalid unique_key_partial_mode {text}, must be one of 'UPSERT', 'UPDATE_FIXED_COLUMNS' or "
            "'UPDATE_FLEXIBLE_COLUMNS'",
            "unique_key_update_mode",
        )
    return text.upper() or ("UPDATE_FIXED_COLUMNS" if _flag(given, "partial_columns") else "UPSERT")


def _new_key_behavior(given: Mapping[str, str]) -> str:
    text = given.get("partial_update_new_key_behavior", "").upper()
    if text not in ("", "APPEND", "ERROR"):
        raise _bad(
            f"Invalid partial_update_new_key_behavior {text}, must be one of {{'APPEND', 'ERROR'}}",
            "partial_update_new_key_behavior",
        )
    return text or "APPEND"


def evolution_in(given: Mapping[str, str]) -> str:
    """Returns what a load with some headers, or properties, may change of its table's schema.

    Args:
        given: by name in lower case.

    Raises:
        InvalidInputError: the value is none of `EVOLUTIONS`.
    """
    text = given.get("schema_evolution", "").strip().lower() or "off"
    if text not in EVOLUTIONS:
        raise _bad(
            f"schema_evolution: expected one of {', '.join(EVOLUTIONS)}, found {text[:100]}",
            "schema_evolution",
        )
    return text


def _memory_bytes(given: Mapping[str, str]) -> int:
    memory = _integer(given, "exec_mem_limit", 0, "Invalid mem limit format, {}")
    if memory <= 0 and given.get("exec_mem_limit"):
        raise _bad(f"Invalid mem limit format, {given['exec_mem_limit']}", "exec_mem_limit")
    return memory


def _check_unused(given: Mapping[str, str]) -> None:
    """Headers of a distributed Doris that mean nothing here are checked all the same (LH24, LH26, LH23)."""
    _integer(given, "send_batch_parallelism", 1, "Invalid send_batch_parallelism format, {}")
    if _flag(given, "negative"):
        raise _bad("negative: only for SUM columns of aggregate tables, which there are none of", "negative")
    if "sql" in given:
        raise _bad("sql: belongs to /api/_http_stream, not to a stream load", "sql")


def _check_together(options: StreamLoadOptions, given: Mapping[str, str]) -> None:
    if options.is_flexible:
        _check_flexible(options, given)
    if options.is_changes:
        _check_changes(options, given)
    if options.evolves or options.auto_create:
        _check_evolving(options, given, "schema_evolution" if options.evolves else "auto_create")
    if options.dead_letters and not options.is_lines:  # DL4
        raise _bad(
            f"dead_letters: expected a format whose rows are lines of text, found {options.format}", "format"
        )
    if options.dead_letters and options.two_phase_commit:
        raise _bad("two_phase_commit does not go with dead_letters", "two_phase_commit")
    for name in ("auto_create_key", "auto_create_sequence"):
        if given.get(name) and not options.auto_create:
            raise _bad(f"{name}: only for a load with auto_create: true", name)
    if options.merge_type == "MERGE" and not options.delete:
        raise _bad("Excepted DELETE ON clause when merge type is MERGE.", "delete")
    if options.merge_type != "MERGE" and options.delete:
        raise _bad("Not support DELETE ON clause when merge type is not MERGE.", "delete")


def _check_flexible(options: StreamLoadOptions, given: Mapping[str, str]) -> None:
    """Checks that no header contradicts a flexible partial update (F4)."""
    if options.format != "json" and not options.is_changes:
        raise _bad("flexible partial update only support json format as input file currently", "format")
    for name in _NOT_FLEXIBLE:
        if given.get(name):
            raise _bad(f"Don't support flexible partial update when '{name}' is specified", name)
    if options.group_commit != "off_mode":  # F5
        raise _bad("Don't support flexible partial update when 'group_commit' is specified", "group_commit")
    if options.json.fuzzy_parse:
        raise _bad("Don't support flexible partial update when 'fuzzy_parse' is enabled", "fuzzy_parse")


def _takes_fields(given: Mapping[str, str]) -> bool:
    """Returns whether each field is the column of its name."""
    return evolution_in(given) != "off" or _flag(given, "auto_create")


def _check_evolving(options: StreamLoadOptions, given: Mapping[str, str], by: str) -> None:
    """Checks that no header contradicts fields that become columns (EV7)."""
    for name in _NOT_EVOLVING:
        if given.get(name):
            raise _bad(f"{name} does not go with {by}: a field is the column of its name", name)
    if options.format == "csv":
        raise _bad(f"{by}: CSV needs names of its fields; use format csv_with_names", "format")
    if options.json.strip_outer_array and given.get("read_json_by_line", "").lower() == "true":
        raise _bad(f"{by}: expected lines of objects, or one array of them", "strip_outer_array")
    if options.two_phase_commit:
        raise _bad(
            f"two_phase_commit does not go with {by}: rows and columns come in one commit",
            "two_phase_commit",
        )


def _check_changes(options: StreamLoadOptions, given: Mapping[str, str]) -> None:
    """Checks that no header contradicts a change stream (CS2)."""
    for name in _NOT_OF_CHANGES:
        if given.get(name) and given[name].lower() not in ("false", "append"):
            raise _bad(f"{name} does not go with format {options.format}: its messages determine it", name)
    if options.update_mode == "UPDATE_FIXED_COLUMNS":
        raise _bad(
            f"unique_key_update_mode: expected UPSERT or UPDATE_FLEXIBLE_COLUMNS for format "
            f"{options.format}, found UPDATE_FIXED_COLUMNS",
            "unique_key_update_mode",
        )
