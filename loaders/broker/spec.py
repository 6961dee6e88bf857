"""The specification of a broker load, from LOAD LABEL or from a TOML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from seqstore.loaders.headers import EVOLUTIONS, UPDATE_MODES, StreamLoadOptions, parse_headers, takes_fields
from seqstore.loaders.jobs.rows_spec import RowsSpec
from seqstore.store.errors import InvalidInputError

PRIORITIES: Final = ("HIGH", "NORMAL", "LOW")
_TIMEOUT_SECONDS: Final = 14_400
_TIMEOUT_MAX: Final = 259_200
_PARALLELISM_MAX: Final = 1024
# Properties of a job that mean to every file what the header of a stream load means.
_HEADERS: Final = {
    "strict_mode": "strict_mode",
    "timezone": "timezone",
    "partial_columns": "partial_columns",
    "unique_key_update_mode": "unique_key_update_mode",
    "partial_update_new_key_behavior": "partial_update_new_key_behavior",
    "partial_update_ignore_null": "partial_update_ignore_null",
    "skip_lines": "skip_lines",
    "trim_double_quotes": "trim_double_quotes",
    "enclose": "enclose",
    "escape": "escape",
    "jsonpaths": "jsonpaths",
    "json_root": "json_root",
    "strip_outer_array": "strip_outer_array",
    "num_as_string": "num_as_string",
    "fuzzy_parse": "fuzzy_parse",
    "change_table": "change_table",
    "change_position": "change_position",
    "change_time_unit": "change_time_unit",
    "schema_registry": "schema_registry",
    "exec_mem_limit": "exec_mem_limit",
    "schema_evolution": "schema_evolution",
    "auto_create": "auto_create",
    "auto_create_key": "auto_create_key",
    "auto_create_sequence": "auto_create_sequence",
    "dead_letters": "dead_letters",
}
_FLAGS: Final = (
    "partial_columns",
    "partial_update_ignore_null",
    "trim_double_quotes",
    "strip_outer_array",
    "num_as_string",
    "fuzzy_parse",
    "auto_create",
    "dead_letters",
)
# Expected values in the error of an empty one; flags have an error of their own.
_EXPECTED: Final = {
    "strict_mode": "true or false",
    "timezone": "a time zone such as Asia/Shanghai or +08:00",
    "unique_key_update_mode": f"one of {', '.join(UPDATE_MODES)}",
    "partial_update_new_key_behavior": "APPEND or ERROR",
    "skip_lines": "a number of lines",
    "enclose": "one character",
    "escape": "one character",
    "jsonpaths": "a list of JSON paths",
    "json_root": "a JSON path",
    "change_table": "the name of a table",
    "change_position": "auto, gtid or ts_ms",
    "change_time_unit": "auto, ms, us or ns",
    "schema_registry": "a URL of the setting schema_registries",
    "schema_evolution": f"one of {', '.join(EVOLUTIONS)}",
    "auto_create_key": "names of columns",
    "auto_create_sequence": "the name of a column",
    "timeout": f"an integer from 1 to {_TIMEOUT_MAX}",
    "max_filter_ratio": "a number from 0 to 1",
    "priority": f"one of {', '.join(PRIORITIES)}",
    "load_parallelism": f"an integer from 1 to {_PARALLELISM_MAX}",
    "engine": "auto, spark or local",
    "winner_test": "auto, executors or host",
}
_CHARACTERS: Final = ("enclose", "escape")
_OF_JOB: Final = frozenset(
    ["timeout", "max_filter_ratio", "priority", "load_parallelism", "engine", "winner_test"]
)
# Known to Doris and of no meaning here: there are no backends whose tablets to divide.
_WITHOUT_EFFECT: Final = frozenset(["send_batch_parallelism", "load_to_single_tablet"])


@dataclass(frozen=True)
class DataDescription(RowsSpec):
    """Some files for one table (B1).

    Attributes:
        table: its name within the database of the job.
        paths: files and patterns.
        columns_from_path: fields of `name=value` parts of the path (B7).
        properties: of this description alone, over those of the job: how its files are read and mapped.
    """

    table: str
    paths: tuple[str, ...]
    format: str = ""
    compression: str = ""
    columns_from_path: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadSpec:
    """A whole job (B1, B4).

    Attributes:
        properties: by lower-case name.
    """

    database: str
    label: str
    descriptions: tuple[DataDescription, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""

    def to_record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> LoadSpec:
        descriptions = tuple(
            DataDescription(**{name: _tupled(value) for name, value in each.items()})
            for each in record["descriptions"]
        )
        return cls(**{**record, "descriptions": descriptions})

    @property
    def timeout_seconds(self) -> int:
        return int(self._given("timeout") or _TIMEOUT_SECONDS)

    @property
    def max_filter_ratio(self) -> float:
        keeps = any(self.options(each).dead_letters for each in self.descriptions)
        return float(self._given("max_filter_ratio") or keeps)  # DL2

    @property
    def priority(self) -> str:
        return (self._given("priority") or "NORMAL").upper()

    @property
    def parallelism(self) -> int:
        """Returns the limit of concurrent tasks; 0 means one per core."""
        return int(self._given("load_parallelism") or 0)

    def _given(self, name: str) -> str:
        """Returns a property without blanks at its ends.

        The value can be empty in jobs that were recorded before empty values were refused.
        """
        return self.properties.get(name, "").strip()

    def check(self) -> None:
        """Checks the specification without a look at files.

        Raises:
            InvalidInputError: names the property or description at fault.
        """
        if not self.descriptions:
            raise InvalidInputError("a load needs at least one data description", kind="bad_load")
        if len({each.merge_type for each in self.descriptions}) > 1:  # B5
            raise InvalidInputError("merge type in all statement must be the same.", kind="bad_load")
        _check_properties(self.properties)
        for each in self.descriptions:
            _check_properties(each.properties)
            for name in each.properties:
                if name in _OF_JOB:
                    raise InvalidInputError(
                        f"{each.table}: property {name} is one of the whole job; set it there",
                        kind="bad_property",
                    )
        self._check_number("timeout", 1, _TIMEOUT_MAX)
        self._check_number("load_parallelism", 1, _PARALLELISM_MAX)
        if self.priority not in PRIORITIES:
            raise InvalidInputError(
                f"priority: expected one of {', '.join(PRIORITIES)}, found {self.priority!r}",
                kind="bad_property",
            )
        engine = self.properties.get("engine", "auto")
        if engine not in ("auto", "spark", "local"):
            raise InvalidInputError(
                f"engine: expected auto, spark or local, found {engine!r}", kind="bad_property"
            )
        self._check_winner_test(engine)
        for each in self.descriptions:
            if not each.paths:
                raise InvalidInputError(f"{each.table}: a description needs a path", kind="bad_load")
            self.options(each)

    def _check_winner_test(self, engine: str) -> None:
        """Checks the choice between the host and executors for the winner test."""
        choice = self.properties.get("winner_test", "auto")
        if choice not in ("auto", "executors", "host"):
            raise InvalidInputError(
                f"winner_test: expected auto, executors or host, found {choice!r}", kind="bad_property"
            )
        if choice == "executors" and engine != "spark":
            raise InvalidInputError(
                f"winner_test: executors need engine spark, found engine {engine}", kind="bad_property"
            )

    def _check_number(self, name: str, low: int, high: int) -> None:
        text = self.properties.get(name)
        if text is not None and not (re.fullmatch(r"[0-9]{1,9}", text) and low <= int(text) <= high):
            raise InvalidInputError(
                f"{name}: expected an integer from {low} to {high}, found {text!r}", kind="bad_property"
            )

    def options(self, description: DataDescription, path: str | None = None) -> StreamLoadOptions:
        """Returns the options of a stream load that reads and maps a file alike.

        Args:
            path: of the file; its suffix is the default of the format (B8). None means the first pattern.

        Raises:
            InvalidInputError: as the stream load would answer.
        """
        headers = self.given(description, path)
        self._check_positions(description, headers)
        options = parse_headers(headers)
        if options.dead_letters and description.columns_from_path:  # DL4
            raise InvalidInputError(
                f"{description.table}: dead_letters does not go with COLUMNS FROM PATH, which a row lacks",
                kind="bad_load",
            )
        return replace(options, preceding_filter=description.preceding_filter)

    def given(self, description: DataDescription, path: str | None = None) -> dict[str, str]:
        """Returns the headers of that stream load."""
        given = {**self.properties, **description.properties}
        headers = {header: given[name] for name, header in _HEADERS.items() if name in given}
        headers |= description.headers()
        file_format, compression = format_of(description.paths[0] if path is None else path)
        if file_format == "csv" and takes_fields(headers):  # EV6
            file_format = "csv_with_names"
        headers["format"] = description.format or file_format
        if description.compression or compression:
            headers["compress_type"] = description.compression or compression
        headers["max_filter_ratio"] = given.get("max_filter_ratio", "0")
        return {name: value for name, value in headers.items() if value}

    def _check_positions(self, description: DataDescription, headers: Mapping[str, str]) -> None:
        """Refuses fields of the path among positional fields of the file (B7)."""
        file_format = headers["format"].lower()
        if not file_format.startswith("csv") and (file_format != "json" or "jsonpaths" not in headers):
            return
        from_path = {name.lower() for name in description.columns_from_path}
        for name in description.columns:
            if name.lower() in from_path:
                raise InvalidInputError(
                    f"{description.table}: column {name!r} is read from the path; remove it from the "
                    "list of columns of the file",
                    kind="bad_load",
                )


def _check_properties(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if name not in _HEADERS and name not in _OF_JOB and name not in _WITHOUT_EFFECT:
            raise InvalidInputError(f"Unknown property: {name}", kind="unknown_property")
        # a blank is empty to all but those that may be one
        if name not in _FLAGS and not (value if name in _CHARACTERS else value.strip()):
            raise InvalidInputError(
                f"{name}: expected {_EXPECTED.get(name, 'a value')}, found {value!r}", kind="bad_property"
            )
        if name in _FLAGS and value.lower() not in ("true", "false"):
            raise InvalidInputError(
                f"Invalid {name} format. Must be bool type: true or false, found {value!r}",
                kind="bad_property",
            )


def format_of(path: str) -> tuple[str, str]:
    """Returns format and compression by the suffixes of a name; CSV without compression by default (B8)."""
    plain = re.sub(r"\?\w+=.*", "", path.lower())  # parameters of a URI
    parts = plain.rsplit("/", 1)[-1].split(".")[1:]
    compressions = {
        "gz": "gz",
        "bz2": "bz2",
        "lz4": "lz4",
        "zst": "zstd",
        "zstd": "zstd",
        "deflate": "deflate",
    }
    compression = ""
    if parts and parts[-1] in compressions:
        compression = compressions[parts.pop()]
    formats = {
        "parquet": "parquet",
        "orc": "orc",
        "json": "json",
        "jsonl": "json",
        "ndjson": "json",
        "arrow": "arrow",
        "avro": "avro",
    }
    return formats.get(parts[-1], "csv") if parts else "csv", compression


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
