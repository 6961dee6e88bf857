"""The specification of a routine load, from SQL or from a TOML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from seqstore.loaders.broker.spec import format_of
from seqstore.loaders.column_list import parse_columns
from seqstore.loaders.headers import (
    CHANGE_FORMATS,
    StreamLoadOptions,
    evolution_in,
    parse_headers,
    text_format,
)
from seqstore.loaders.jobs.rows_spec import RowsSpec, lower_names
from seqstore.loaders.lake.delta_changes import GONE, KIND
from seqstore.loaders.routine.properties import HEADERS, LIMITS, Limits, check_properties, limits_of
from seqstore.loaders.row_source import Target
from seqstore.store.check.partial_checker import check_flexible
from seqstore.store.errors import InvalidInputError

KAFKA: Final = "KAFKA"
FILES: Final = "FILES"
DELTA: Final = "DELTA"
SOURCES: Final = (KAFKA, FILES, DELTA)
_NAME: Final = re.compile(r"[A-Za-z][-_A-Za-z0-9]{0,63}")
# Rows of a Delta table have names and types, and say whether they came or went.
_OF_DELTA: Final = (*LIMITS, "strict_mode", "timezone", "exec_mem_limit")
_GONE: Final = f"{KIND} IN ({', '.join(repr(kind) for kind in GONE)})"
_LISTS: Final = ("partitions", "columns", "assignments")


@dataclass(frozen=True)
class RoutineSpec(RowsSpec):
    """One job (R1).

    Attributes:
        name: unique among the jobs of the database that have not ended (R2).
        table: its name within the database; empty where the messages name their tables (R3).
        source: KAFKA, FILES or DELTA.
        source_properties: of the source, by name.
    """

    database: str
    name: str
    table: str
    source: str = FILES
    source_properties: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""

    def to_record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RoutineSpec:
        return cls(**{**record, **{name: tuple(record[name]) for name in _LISTS}})

    @property
    def limits(self) -> Limits:
        return limits_of(self.properties)

    @property
    def is_multi(self) -> bool:
        """Whether it has many tables (R3)."""
        return not self.table

    def check(self, target: Target | None) -> None:
        """Checks the specification without access to the source.

        Args:
            target: None where it has many tables.

        Raises:
            InvalidInputError: names the property or clause at fault.
        """
        if not _NAME.fullmatch(self.name):  # R2
            raise InvalidInputError(
                f"Incorrect job name {self.name[:80]!r}: expected a letter, then at most 63 letters, digits, "
                "'_' and '-'",
                kind="bad_name",
            )
        if self.source not in SOURCES:
            raise _bad(f"source: expected KAFKA, FILES or DELTA, found {self.source}")
        if self.source == DELTA:
            self._check_delta(target)
        if self.merge_type != "MERGE" and self.delete_on:  # R23
            raise _bad("not support DELETE ON clause when merge type is not MERGE.")
        if self.merge_type == "MERGE" and not self.delete_on:
            raise _bad("Excepted DELETE ON clause when merge type is MERGE.")
        mode = check_properties(self.properties)
        if target is None:
            self._check_multi(mode)
        elif mode != "UPSERT" and (target.schema.is_merge_on_read or target.schema.is_duplicate):
            raise _bad("load by PARTIAL_COLUMNS is only supported in unique table MoW")  # P1
        elif mode == "UPDATE_FLEXIBLE_COLUMNS":
            self._check_flexible(target)
        if target is not None and target.schema.is_duplicate and self.merge_type != "APPEND":
            raise _bad("load by MERGE or DELETE is only supported in unique tables.")  # T12
        if target is not None:
            target.check_partitions(self.partitions)
        options = self.options("")
        if options.auto_create and not (self.is_multi and options.is_changes):  # EV10
            raise _bad("auto_create: expected a job of many tables in the format of a change stream")
        parse_columns(options.columns)
        if (self.source == KAFKA or target is None) and not (
            options.format in ("csv", "json") or options.is_changes
        ):
            where = "from Kafka" if self.source == KAFKA else "for many tables"
            raise InvalidInputError(
                f"format: expected csv, json or a change stream {where}, found {options.format}",
                kind="bad_property",
            )
        if self.line_delimiter and (self.source == KAFKA or options.is_changes):
            self._check_line_delimiter(options)

    def _check_line_delimiter(self, options: StreamLoadOptions) -> None:
        """Checks that the end of a message is where its bytes end (R36)."""
        if not options.is_csv:
            raise _bad(
                f"LINES TERMINATED BY: a message of format {self.properties['format']} is one document; "
                "leave the clause out"
            )
        end = options.csv.delimiter
        if any(end.startswith(end[at:]) for at in range(1, len(end))):
            raise _bad(
                f"LINES TERMINATED BY {self.line_delimiter!r} FROM KAFKA: expected a text that does not end "
                "as it begins, else the end of a message may be taken for a part of it"
            )

    def _check_delta(self, target: Target | None) -> None:
        """Checks a job that follows a Delta table: its changes tell what is deleted."""
        for name in self.properties:
            if name not in _OF_DELTA:
                raise InvalidInputError(
                    f"{name} is invalid property of a job FROM DELTA, which has {', '.join(_OF_DELTA)}",
                    kind="bad_property",
                )
        if target is None or target.schema.is_duplicate:
            raise _bad("FROM DELTA: expected ON and a table with a unique key")
        if self.merge_type != "APPEND" or self.column_separator or self.line_delimiter:
            raise _bad(
                "FROM DELTA: the changes tell which rows are deleted; expected neither WITH nor TERMINATED BY"
            )

    def _check_multi(self, mode: str) -> None:
        """Checks a multi-table load: it has no columns or conditions, which belong to one table (R3)."""
        is_changes = text_format(self.properties.get("format", "")) in CHANGE_FORMATS
        if mode != "UPSERT" and not (mode == "UPDATE_FLEXIBLE_COLUMNS" and is_changes):
            raise _bad("Partial update is not supported in multi-table load.")  # F27
        if self.columns or self.assignments or self.where or self.preceding_filter:
            raise _bad("Multi-table load does not support setting columns info")

    def _check_flexible(self, target: Target) -> None:
        """Checks that no setting contradicts a flexible partial update (F27)."""
        check_flexible(target.name, target.schema)
        file_format = self.properties.get("format", "csv")
        if text_format(file_format) not in ("json", *CHANGE_FORMATS):
            raise _bad(f"Flexible partial update only supports JSON format, but found: {file_format}")
        if self.properties.get("fuzzy_parse", "").lower() == "true":
            raise _bad("Flexible partial update does not support fuzzy_parse")
        if self.properties.get("jsonpaths"):
            raise _bad("Flexible partial update does not support jsonpaths")
        if self.columns or self.assignments:
            raise _bad("Flexible partial update does not support COLUMNS specification")
        if self.where:
            raise _bad("Flexible partial update does not support WHERE")

    def options(self, path: str) -> StreamLoadOptions:
        """Returns the options of a stream load that reads and maps a body alike.

        Args:
            path: of the file the body is; its suffix is the default of the format; empty when
                it is none.

        Raises:
            InvalidInputError: as the stream load would answer.
        """
        given = replace(parse_headers(self.given(path)), preceding_filter=self.preceding_filter)
        # The source decodes Avro: only it knows where a message ends.
        return given if given.avro is None else replace(given, avro=None, compression="")

    def avro_options(self, path: str) -> StreamLoadOptions | None:
        """Returns the options by which the source decodes a body, None where it is no Avro."""
        given = parse_headers(self.given(path))
        return None if given.avro is None else given

    def given(self, path: str) -> dict[str, str]:
        """Returns the headers of that stream load."""
        headers = {name: self.properties[name] for name in HEADERS if name in self.properties}
        headers |= self.headers()
        if path:
            file_format, headers["compress_type"] = format_of(path)
            headers.setdefault("format", self._default_format(file_format))
        elif self.source == FILES:
            headers.setdefault("format", self._default_format("csv"))
        if self.source == DELTA:
            headers |= {"format": "arrow", "merge_type": "MERGE", "delete": _GONE}
            headers.setdefault("strict_mode", "true")
            if self.columns:
                listed = [f"`{name}`" for name in (*self.columns, KIND)]
                headers["columns"] = ", ".join([*listed, *self.assignments])
        elif self.is_multi or self.source == KAFKA:
            headers["read_json_by_line"] = "true"  # R36: a message is a document, whatever its parts
        file_format = text_format(headers.get("format", "csv"))
        if file_format in CHANGE_FORMATS or (self.source == KAFKA and file_format == "json"):
            headers["line_delimiter"] = ""  # jobs of before may have the clause
        return {name: value for name, value in headers.items() if value}

    def _default_format(self, by_suffix: str) -> str:
        """Returns the format of a file: CSV whose fields may be columns has names in its first line (EV6)."""
        is_named = by_suffix == "csv" and evolution_in(lower_names(self.properties)) != "off"
        return "csv_with_names" if is_named else by_suffix


def _bad(message: str) -> InvalidInputError:
    return InvalidInputError(message, kind="bad_load")
