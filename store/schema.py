"""Table schemas: columns, the unique key, where the sequence comes from, and their checks.

A column is known by its id; names may change, ids never do and are never used again. A `TableSchema` is one
immutable revision. Files keep the names of the revision that wrote them and are read through ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from store import properties as props
from store.cast import try_cast
from store.constraints import Constraint
from store.errors import InvalidInputError
from store.features import features_of, protocol_of
from store.groups import ColumnGroup, Groups, groups_from_record, groups_to_record, parse_groups
from store.lazy import cached_property
from store.partitions import Partitioning
from store.partitions import checked as check_partitioning
from store.types import ColumnType, parse_type, type_from_arrow

DELETE_SIGN: Final = "__DELETE_SIGN__"
VERSION_COL: Final = "__VERSION_COL__"
SEQUENCE_COL: Final = "__SEQUENCE_COL__"
GROUPS_COL: Final = "__GROUPS_COL__"  # of tables with column groups: bit n is set where a row has group n
HIDDEN_COLUMNS: Final = (DELETE_SIGN, VERSION_COL, SEQUENCE_COL, GROUPS_COL)
_HIDDEN_ALIASES: Final = {name.replace("__", "__DORIS_", 1): name for name in HIDDEN_COLUMNS}
_NAME_LENGTH_MAX: Final = 64

# Ids of hidden columns in stored files; visible columns count from 1.
DELETE_SIGN_ID: Final = -1
VERSION_ID: Final = -2
SEQUENCE_ID: Final = -3


@lru_cache(maxsize=4096)
def hidden_name(name: str) -> str | None:
    """Canonical name of a hidden column in any spelling and case (T7), None for other names."""
    upper = name.upper()
    return upper if upper in HIDDEN_COLUMNS else _HIDDEN_ALIASES.get(upper)


@dataclass(frozen=True)
class Default:
    """What a column takes when a row does not supply it.

    Attributes:
        kind: `"constant"`, `"null"`, `"current_timestamp"` or `"current_date"`.
        text: the constant as written, empty otherwise.
        precision: fraction digits of CURRENT_TIMESTAMP.
    """

    kind: str
    text: str = ""
    precision: int = 0

    @property
    def is_current_time(self) -> bool:
        """Whether it is the moment of the load rather than a constant."""
        return self.kind in ("current_timestamp", "current_date")

    @property
    def sql(self) -> str:
        """As SHOW CREATE TABLE prints it after the word DEFAULT."""
        if self.kind == "constant":
            escaped = self.text.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"'
        if self.kind == "current_timestamp" and self.precision:
            return f"CURRENT_TIMESTAMP({self.precision})"
        return self.kind.upper()


@dataclass(frozen=True)
class Column:
    """One column of a table. `id` 0 means "not given yet": `TableSchema.create` numbers it."""

    name: str
    type: ColumnType
    nullable: bool = True
    default: Default | None = None
    comment: str = ""
    id: int = 0
    on_update_current_timestamp: bool = False
    auto_increment: int | None = None
    initial: Default | None = None  # of a column added later: what rows older than it read

    @property
    def arrow(self) -> pa.Field:
        """The column as an Arrow field."""
        return pa.field(self.name, self.type.arrow, self.nullable)

    @property
    def can_be_omitted(self) -> bool:
        """A full-row write may leave it out (A1, A6)."""
        return self.nullable or self.default is not None or self.auto_increment is not None


@dataclass(frozen=True)
class TableSchema:
    """One revision of a table's schema.

    Attributes:
        columns: in table order; the key columns come first (T3).
        key: names of the key columns.
        sequence_column: the visible column the sequence mirrors (SD1), or None.
        sequence_type: type of the hidden sequence (SD1, SD2), None when the table has none.
        properties: checked properties, stored spelling.
        distribution: as declared, such as `HASH(user_id) BUCKETS 32`; kept for display.
        revision: grows by one with every change.
        groups: column groups by number, None where one was dropped; empty in tables without (SM1).
        next_column_id: what the next column is numbered, 0 as long as none was dropped or added.
        features: table features a program must know to write the table.
        constraints: CHECKs that rows must not break.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    sequence_column: str | None = None
    sequence_type: ColumnType | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    distribution: str = ""
    comment: str = ""
    revision: int = 1
    groups: Groups = ()
    partitioning: Partitioning | None = None
    next_column_id: int = 0
    features: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def create(
        cls,
        columns: Iterable[Column],
        key: Sequence[str],
        *,
        properties: Mapping[str, str] | None = None,
        distribution: str = "",
        comment: str = "",
        partitioning: Partitioning | None = None,
    ) -> TableSchema:
        """Checks a declaration and numbers its columns.

        Args:
            columns: key columns first, in key order.
            key: one or more names.
            properties: as written by the user; see `store.properties`.
            partitioning: over key columns; see `store.partitions`.

        Raises:
            InvalidInputError: the first rule that is broken, by name (T3, T9, SD3-SD5, SM2, SM3, A5).
        """
        numbered = tuple(replace(column, id=i) for i, column in enumerate(columns, start=1))
        _check_names(numbered)
        key = _check_key(numbered, key)
        checked = props.parse_properties(properties or {})
        sequence_column, sequence_type = _sequence(numbered, key, checked)
        for column in numbered:
            _check_default(column)
            _check_on_update(column)
        groups = parse_groups(numbered, key, checked)
        _check_auto_increment(numbered, has_groups=bool(groups))
        made = cls(
            numbered, key, sequence_column, sequence_type, checked, distribution, comment, groups=groups
        )
        if partitioning is None:
            return made
        return replace(made, partitioning=check_partitioning(made, partitioning))

    @classmethod
    def from_arrow(
        cls, schema: pa.Schema, key: Sequence[str], *, properties: Mapping[str, str] | None = None
    ) -> TableSchema:
        """A declaration taken from an Arrow schema; key columns are moved to the front, other columns may
        be NULL.

        A STRING key column becomes VARCHAR(65533), for STRING may not be a key.
        """
        missing = [name for name in key if name not in schema.names]
        if missing:
            raise InvalidInputError(
                f"key column {missing[0]!r} is not among {schema.names}", kind="unknown_column"
            )
        columns = []
        for name in [*key, *(n for n in schema.names if n not in key)]:
            arrow = schema.field(name)
            column_type = type_from_arrow(arrow.type)
            if name in key and column_type.name == "STRING":
                column_type = parse_type("VARCHAR(65533)")
            columns.append(Column(name, column_type, nullable=arrow.nullable and name not in key))
        return cls.create(columns, key, properties=properties)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The key, in key order."""
        return self.columns[: len(self.key)]

    @property
    def value_columns(self) -> tuple[Column, ...]:
        """The columns behind the key, in table order."""
        return self.columns[len(self.key) :]

    @cached_property
    def names(self) -> list[str]:
        """Visible columns in table order."""
        return [column.name for column in self.columns]

    @cached_property
    def auto_increment_column(self) -> Column | None:
        """The column whose values are made (A5), or None."""
        return next((column for column in self.columns if column.auto_increment is not None), None)

    @property
    def has_sequence(self) -> bool:
        """Whether a sequence, mapped or hidden, decides between rows of a key."""
        return self.sequence_type is not None

    @cached_property
    def column_groups(self) -> dict[int, ColumnGroup]:
        """The column groups that exist, by number."""
        return {number: group for number, group in enumerate(self.groups) if group is not None}

    @property
    def storage_format(self) -> str:
        """`arrow` or `parquet`."""
        return self.properties.get(props.STORAGE_FORMAT, "arrow")

    @property
    def compression(self) -> str:
        """Codec of new segments: none, lz4 or zstd. Arrow defaults to none: it is read in place."""
        chosen = self.properties.get(props.COMPRESSION, "default")
        return chosen if chosen != "default" else ("none" if self.storage_format == "arrow" else "zstd")

    @property
    def isolation_level(self) -> str:
        """What its transactions are checked at."""
        return self.properties.get(props.ISOLATION_LEVEL, "WriteSerializable")

    @property
    def row_level(self) -> bool:
        """Whether conflicts are looked for row by row."""
        return self.properties.get(props.ROW_LEVEL, "true") == "true"

    @property
    def is_append_only(self) -> bool:
        """Rows may come, never change or go."""
        return self.properties.get(props.APPEND_ONLY) == "true"

    @cached_property
    def partition_columns(self) -> tuple[str, ...]:
        """Columns that conflicts are told apart by where rows are not looked at."""
        if self.partitioning is not None:
            return tuple(self.partitioning.columns)
        named = self.properties.get(props.PARTITION_COLUMNS, "")
        return tuple(self.column(name.strip()).name for name in named.split(",") if name.strip())

    @cached_property
    def arrow(self) -> pa.Schema:
        """Visible columns as an Arrow schema, in table order."""
        return pa.schema([column.arrow for column in self.columns])

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name.lower(): column for column in self.columns}

    def find(self, name: str) -> Column | None:
        """The column of that name, without regard to case (P31), or None."""
        return self._by_name.get(name.lower())

    def column(self, name: str) -> Column:
        """The column of that name, without regard to case.

        Raises:
            InvalidInputError: no such column.
        """
        found = self.find(name)
        if found is None:
            raise InvalidInputError(
                f"unknown column {name!r}; the table has {', '.join(self.names)}",
                kind="unknown_column",
                column=name,
            )
        return found

    def hidden_fields(self) -> list[pa.Field]:
        """Hidden columns as readers see them, in the order of T4, which column groups a row has last."""
        fields = [pa.field(DELETE_SIGN, pa.int8(), False), pa.field(VERSION_COL, pa.int64(), False)]
        if self.sequence_type is not None:
            fields.append(pa.field(SEQUENCE_COL, self.sequence_type.arrow, True))
        if self.groups:
            fields.append(pa.field(GROUPS_COL, pa.int64(), False))
        return fields

    def arrow_of(self, names: Sequence[str]) -> pa.Schema:
        """Some columns as an Arrow schema, hidden ones by their canonical names."""
        if list(names) == self.names:
            return self.arrow
        hidden = {field.name: field for field in self.hidden_fields()}
        return pa.schema([hidden.get(name) or self.arrow.field(name) for name in names])

    def to_record(self) -> dict[str, Any]:
        """For the catalog; `from_record` reads it back."""
        return {
            "columns": [_column_to_record(column) for column in self.columns],
            "key": list(self.key),
            "sequence_column": self.sequence_column,
            "sequence_type": self.sequence_type.sql if self.sequence_type else None,
            "properties": dict(self.properties),
            "distribution": self.distribution,
            "comment": self.comment,
            "revision": self.revision,
            "groups": groups_to_record(self.groups),
            "partitioning": self.partitioning.to_record() if self.partitioning is not None else None,
            "next_column_id": self.next_column_id,
            "constraints": [constraint.to_record() for constraint in self.constraints],
            **protocol_of(self.features),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> TableSchema:
        """What `to_record` made.

        Raises:
            FormatError: the table can be read only by programs that know more than this one.
        """
        features = features_of(record)
        sequence_type = record["sequence_type"]
        return cls(
            columns=tuple(_column_from_record(item) for item in record["columns"]),
            key=tuple(record["key"]),
            sequence_column=record["sequence_column"],
            sequence_type=parse_type(sequence_type) if sequence_type else None,
            properties=record["properties"],
            distribution=record["distribution"],
            comment=record["comment"],
            revision=record["revision"],
            groups=groups_from_record(record.get("groups", ())),
            partitioning=Partitioning.from_record(record.get("partitioning")),
            next_column_id=record.get("next_column_id", 0),
            features=features,
            constraints=tuple(Constraint.from_record(item) for item in record.get("constraints", ())),
        )


def check_name(name: str, what: str) -> str:
    """Database, table and column names: 1 to 64 letters, digits, `_`, `-`, `$`; a letter or `_` first.

    Raises:
        InvalidInputError: with the rule that is broken.
    """
    legal = name.replace("_", "a").replace("-", "a").replace("$", "a").isalnum()
    legal = legal and (name[0].isalpha() or name[0] == "_")
    if not legal or len(name) > _NAME_LENGTH_MAX:
        raise InvalidInputError(
            f"{what} name {name[:80]!r}: expected 1 to {_NAME_LENGTH_MAX} letters, digits, '_', '-' or '$', "
            "starting with a letter or '_'",
            kind="bad_name",
        )
    return name


def _check_names(columns: Sequence[Column]) -> None:
    if not columns:
        raise InvalidInputError("a table needs at least one column", kind="no_columns")
    seen: set[str] = set()
    for column in columns:
        name = column.name
        if name.upper().startswith("__DORIS_") or hidden_name(name):
            prefix = "__DORIS_" if name.upper().startswith("__DORIS_") else "__"
            raise InvalidInputError(
                f"Disable to create table column with name start with {prefix}: {name}", kind="bad_name"
            )
        check_name(name, "column")
        if name.lower() in seen:
            raise InvalidInputError(f"duplicate column name {name!r}", kind="duplicate_column", column=name)
        seen.add(name.lower())


def _check_key(columns: Sequence[Column], key: Sequence[str]) -> tuple[str, ...]:
    if not key:
        raise InvalidInputError("a table needs a UNIQUE KEY of at least one column", kind="bad_key")
    by_name = {column.name.lower(): column for column in columns}
    for name in key:
        if name.lower() not in by_name:
            raise InvalidInputError(
                f"key column {name!r} is not a column of the table", kind="unknown_column"
            )
        column = by_name[name.lower()]
        if not column.type.can_be_key:
            hint = "; use VARCHAR" if column.type.name == "STRING" else ""
            raise InvalidInputError(f"column {name!r}: {column.type} cannot be a key{hint}", kind="bad_key")
    leading = [column.name.lower() for column in columns[: len(key)]]
    if leading != [name.lower() for name in key]:
        raise InvalidInputError(
            f"key columns must come first and in key order: UNIQUE KEY({', '.join(key)}), "
            f"but the table starts with {', '.join(leading)}",
            kind="bad_key",
        )
    return tuple(column.name for column in columns[: len(key)])


def _sequence(
    columns: Sequence[Column], key: Sequence[str], properties: dict[str, str]
) -> tuple[str | None, ColumnType | None]:
    """SD1-SD5: the mapped column or the hidden type, with Doris's own error texts."""
    mapped, declared = properties.get(props.SEQUENCE_COL), properties.get(props.SEQUENCE_TYPE)
    if mapped and declared:
        raise InvalidInputError(
            "The sequence_col and sequence_type cannot be set at the same time", kind="bad_property"
        )
    if declared:
        sequence_type = parse_type(declared)
        if not sequence_type.can_be_sequence:
            raise InvalidInputError(
                "sequence type only support integer types and date types", kind="bad_property", found=declared
            )
        return None, sequence_type
    if not mapped:
        return None, None
    column = next((c for c in columns if c.name.lower() == mapped.lower()), None)
    if column is None:
        raise InvalidInputError(f"The specified sequence column[{mapped}] not exists", kind="unknown_column")
    if not column.type.can_be_sequence:
        raise InvalidInputError(
            "Sequence type only support integer types and date types", kind="bad_property"
        )
    if column.name in key:
        raise InvalidInputError(
            f"The sequence column[{column.name}] cannot be a key column", kind="bad_property"
        )
    properties[props.SEQUENCE_COL] = column.name
    return column.name, column.type


def _check_default(column: Column) -> None:
    default = column.default
    if default is None:
        return
    where = f"column {column.name!r}: default {default.sql}"
    if default.kind == "null" and not column.nullable:
        raise InvalidInputError(f"{where} on a NOT NULL column", kind="bad_default")
    if default.kind == "current_timestamp":
        if column.type.name != "DATETIME" or default.precision > column.type.params[0]:
            raise InvalidInputError(f"{where} does not fit {column.type}", kind="bad_default")
    elif default.kind == "current_date" and column.type.name != "DATE":
        raise InvalidInputError(f"{where} does not fit {column.type}", kind="bad_default")
    elif default.kind == "constant":
        default_scalar(column, datetime.min)


def _check_on_update(column: Column) -> None:
    """A4: what a partial update sets must be what a new row takes."""
    default = column.default
    if column.on_update_current_timestamp and (default is None or default.kind != "current_timestamp"):
        raise InvalidInputError(
            f"column {column.name!r}: ON UPDATE CURRENT_TIMESTAMP needs DEFAULT CURRENT_TIMESTAMP",
            kind="bad_default",
        )


def _check_auto_increment(columns: Sequence[Column], *, has_groups: bool) -> None:
    """A5."""
    counted = [column for column in columns if column.auto_increment is not None]
    if len(counted) > 1:
        raise InvalidInputError(
            f"there can not be more than one auto increment column, found {counted[0].name} and "
            f"{counted[1].name}",
            kind="bad_auto_increment",
        )
    for column in counted:
        broken = ""
        if column.type.name != "BIGINT":
            broken = f"must be BIGINT, is {column.type}"
        elif column.nullable:
            broken = "must be NOT NULL"
        elif column.default is not None:
            broken = "cannot have a default"
        elif not 0 <= (column.auto_increment or 0) < 2**63:
            broken = f"must start at 0 or above, starts at {column.auto_increment}"
        elif has_groups:
            broken = "does not go with sequence_mapping"
        if broken:
            raise InvalidInputError(
                f"the auto increment column {column.name} {broken}", kind="bad_auto_increment"
            )


def default_scalar(column: Column, now: datetime) -> pa.Scalar:
    """The value a column takes when it is not supplied.

    Args:
        now: one moment per load, local to the load's time zone (A3).

    Returns:
        A scalar of the column's Arrow type, null when there is no default.

    Raises:
        InvalidInputError: the constant does not fit the type (found when the table is made).
    """
    default, arrow = column.default, column.type.arrow
    if default is None or default.kind == "null":
        return pa.scalar(None, arrow)
    if default.kind == "current_date":
        return pa.scalar(now.date(), arrow)
    if default.kind == "current_timestamp":
        step = 10 ** (6 - default.precision)
        return pa.scalar(now.replace(microsecond=now.microsecond // step * step), arrow)
    try:
        return _constant(column.type, default.text)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"column {column.name!r}: default {default.sql} is no {column.type}", kind="bad_default"
        ) from error


def _constant(column_type: ColumnType, text: str) -> pa.Scalar:
    if column_type.is_nested:
        if text.strip() != "[]" or column_type.name != "ARRAY":
            raise ValueError(text)
        return pa.scalar([], column_type.arrow)
    if column_type.name == "BOOLEAN":
        return pa.scalar({"1": True, "true": True, "0": False, "false": False}[text.lower()])
    limit = column_type.byte_length_max
    if limit is not None and len(text.encode()) > limit:
        raise ValueError(text)
    converted = try_cast(pa.array([text]), column_type)  # Arrow's own text to decimal reads past its tables
    if converted.failed is not None:
        raise ValueError(text)
    return converted.values[0]


def _column_to_record(column: Column) -> dict[str, Any]:
    record: dict[str, Any] = {"id": column.id, "name": column.name, "type": column.type.sql}
    record["nullable"] = column.nullable
    if column.default is not None:
        record["default"] = [column.default.kind, column.default.text, column.default.precision]
    if column.comment:
        record["comment"] = column.comment
    if column.on_update_current_timestamp:
        record["on_update"] = True
    if column.auto_increment is not None:
        record["auto_increment"] = column.auto_increment
    if column.initial is not None:
        record["initial"] = [column.initial.kind, column.initial.text, column.initial.precision]
    return record


def _column_from_record(record: Mapping[str, Any]) -> Column:
    default, initial = record.get("default"), record.get("initial")
    return Column(
        name=record["name"],
        type=parse_type(record["type"]),
        nullable=record["nullable"],
        default=Default(*default) if default else None,
        comment=record.get("comment", ""),
        id=record["id"],
        on_update_current_timestamp=record.get("on_update", False),
        auto_increment=record.get("auto_increment"),
        initial=Default(*initial) if initial else None,
    )
