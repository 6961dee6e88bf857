"""Headers that do not go together, or mean nothing here, are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from seqstore.loaders.headers.options import AvroOptions, StreamLoadOptions
from seqstore.loaders.headers.values import bad_header, flag, integer
from seqstore.store.schema.properties import GROUP_COMMIT_OFF

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
# Headers that say how the text of JSON is cut into rows.
_NOT_OF_AVRO: Final = ("json_root", "strip_outer_array", "line_delimiter", "fuzzy_parse")
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


def check_unused(given: Mapping[str, str]) -> None:
    """Headers of a distributed Doris that mean nothing here are checked all the same (LH24, LH26, LH23)."""
    integer(given, "send_batch_parallelism", 1, "Invalid send_batch_parallelism format, {}")
    if flag(given, "negative"):
        raise bad_header(
            "negative: only for SUM columns of aggregate tables, which there are none of", "negative"
        )
    if "sql" in given:
        raise bad_header("sql: belongs to /api/_http_stream, not to a stream load", "sql")


def check_together(options: StreamLoadOptions, given: Mapping[str, str]) -> None:
    if options.is_flexible:
        _check_flexible(options, given)
    if options.is_changes:
        _check_changes(options, given)
    if options.evolves or options.auto_create:
        _check_evolving(options, given, "schema_evolution" if options.evolves else "auto_create")
    if options.avro is not None:
        _check_avro(options.avro, given)
    if options.dead_letters and not options.is_lines:  # DL4
        raise bad_header(
            f"dead_letters: expected a format whose rows are lines of text, found {options.format}", "format"
        )
    if options.dead_letters and options.two_phase_commit:
        raise bad_header("two_phase_commit does not go with dead_letters", "two_phase_commit")
    for name in ("auto_create_key", "auto_create_sequence"):
        if given.get(name) and not options.auto_create:
            raise bad_header(f"{name}: only for a load with auto_create: true", name)
    if options.merge_type == "MERGE" and not options.delete:
        raise bad_header("Excepted DELETE ON clause when merge type is MERGE.", "delete")
    if options.merge_type != "MERGE" and options.delete:
        raise bad_header("Not support DELETE ON clause when merge type is not MERGE.", "delete")


def _check_flexible(options: StreamLoadOptions, given: Mapping[str, str]) -> None:
    """Checks that no header contradicts a flexible partial update (F4)."""
    if options.format != "json" and not options.is_changes:
        raise bad_header("flexible partial update only support json format as input file currently", "format")
    for name in _NOT_FLEXIBLE:
        if given.get(name):
            raise bad_header(f"Don't support flexible partial update when '{name}' is specified", name)
    if options.group_commit not in ("", GROUP_COMMIT_OFF):  # F5
        raise bad_header(
            "Don't support flexible partial update when 'group_commit' is specified", "group_commit"
        )
    if options.json.fuzzy_parse:
        raise bad_header("Don't support flexible partial update when 'fuzzy_parse' is enabled", "fuzzy_parse")


def _check_evolving(options: StreamLoadOptions, given: Mapping[str, str], by: str) -> None:
    """Checks that no header contradicts fields that become columns (EV7)."""
    for name in _NOT_EVOLVING:
        if given.get(name):
            raise bad_header(f"{name} does not go with {by}: a field is the column of its name", name)
    if options.format == "csv":
        raise bad_header(f"{by}: CSV needs names of its fields; use format csv_with_names", "format")
    if options.json.strip_outer_array and given.get("read_json_by_line", "").lower() == "true":
        raise bad_header(f"{by}: expected lines of objects, or one array of them", "strip_outer_array")
    if options.two_phase_commit:
        raise bad_header(
            f"two_phase_commit does not go with {by}: rows and columns come in one commit",
            "two_phase_commit",
        )


def _check_avro(avro: AvroOptions, given: Mapping[str, str]) -> None:
    """Checks that no header speaks of the text of JSON (AV1)."""
    for name in _NOT_OF_AVRO:
        if given.get(name) and given[name].lower() != "false":
            raise bad_header(f"{name} does not go with format {avro.format}, whose rows are records", name)


def _check_changes(options: StreamLoadOptions, given: Mapping[str, str]) -> None:
    """Checks that no header contradicts a change stream (CS2)."""
    for name in _NOT_OF_CHANGES:
        if given.get(name) and given[name].lower() not in ("false", "append"):
            raise bad_header(
                f"{name} does not go with format {options.format}: its messages determine it", name
            )
    if options.update_mode == "UPDATE_FIXED_COLUMNS":
        raise bad_header(
            f"unique_key_update_mode: expected UPSERT or UPDATE_FLEXIBLE_COLUMNS for format "
            f"{options.format}, found UPDATE_FIXED_COLUMNS",
            "unique_key_update_mode",
        )
