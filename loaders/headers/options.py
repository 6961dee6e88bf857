"""What the headers of a load ask for, as values; and the words that some of them take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

CHANGE_FORMATS: Final = ("debezium_json", "canal_json", "maxwell_json")
# The formats of Avro, and those that their decoded rows have.
AVRO_FORMATS: Final = {"avro": "json", "debezium_avro": "debezium_json"}
FORMATS: Final = (
    "csv",
    "csv_with_names",
    "csv_with_names_and_types",
    "json",
    "parquet",
    "orc",
    "arrow",
    *CHANGE_FORMATS,
    *AVRO_FORMATS,
)
EVOLUTIONS: Final = ("off", "add", "widen")
UPDATE_MODES: Final = ("UPSERT", "UPDATE_FIXED_COLUMNS", "UPDATE_FLEXIBLE_COLUMNS")
DEFAULT_TIME_ZONE: Final = (
    "Asia/Shanghai"  # LH11: what Doris documents, so that the same script loads the same rows
)
DEFAULT_TIMEOUT: Final = 600


def text_format(name: str) -> str:
    """Returns the format of rows as lines: that of Avro's decoded ones, every other as it is."""
    return AVRO_FORMATS.get(name.lower(), name.lower())


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
class Registry:
    """A schema registry and how it is reached.

    Attributes:
        url: without a login.
        login: `user:password`, or empty.
        token: of bearer authentication, or empty.
        ca: path of the certificates that the server's must be signed by; empty: those of the system.
        certificate, key: paths of the client's certificate and its key; the key may be in the same file.
    """

    url: str
    login: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    ca: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True)
class AvroOptions:
    """The options of a body of Avro.

    Attributes:
        format: as it was asked for, one of `AVRO_FORMATS`.
        url: the registry that the load names, empty for the only one there is.
        registry: the same as `avro.registry.with_registry` found it in the settings, None without one.
    """

    format: str
    url: str = ""
    registry: Registry | None = None

    @property
    def is_changes(self) -> bool:
        """Whether the records are messages of Debezium."""
        return AVRO_FORMATS[self.format] in CHANGE_FORMATS


@dataclass(frozen=True)
class StreamLoadOptions:
    """The options of a stream load; `parse_headers` reads them.

    Attributes:
        label: as the client sent it, or None.
        format: one of `FORMATS`; of Avro that of its decoded rows.
        avro: of a body of Avro, None for any other.
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
    avro: AvroOptions | None = None
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
    timeout_seconds: int = DEFAULT_TIMEOUT
    time_zone: str = DEFAULT_TIME_ZONE
    comment: str = ""
    two_phase_commit: bool = False
    group_commit: str = ""
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
