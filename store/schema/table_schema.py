"""Table schemas: columns, the unique key, and the source of the sequence.

A `TableSchema` is one immutable revision. Files keep the names of the revision that wrote them; readers match
columns by their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.schema import properties as props
from seqstore.store.schema.column import (
    DELETE_SIGN,
    GROUPS_COL,
    HIDDEN_SPELLINGS,
    HIDDEN_TYPES,
    ROW_ID,
    ROW_ID_COL,
    SEQUENCE_COL,
    VERSION_COL,
    Column,
    is_exact,
)
from seqstore.store.schema.column_groups import (
    ColumnGroup,
    Groups,
    groups_from_record,
    groups_to_record,
    parse_groups,
)
from seqstore.store.schema.constraints import Constraint
from seqstore.store.schema.declaration import (
    check_auto_increment,
    check_cluster_columns,
    check_default,
    check_duplicate,
    check_key,
    check_names,
    check_on_update,
    check_sequence,
    leading_columns,
)
from seqstore.store.schema.features import DUPLICATE_KEY, features_of, protocol_of
from seqstore.store.schema.partitioning import Partitioning, check_bounds
from seqstore.store.schema.properties import IsolationLevel
from seqstore.store.types.column_types import ColumnType, parse_type, type_from_arrow


@dataclass(frozen=True)
class TableSchema:
    """One revision of a table's schema.

    Attributes:
        columns: in table order, key columns first (T3).
        key: names of the key columns; in a duplicate table the hidden row id alone (T10).
        sequence_column: the visible column that the sequence mirrors (SD1), or None.
        sequence_type: type of the hidden sequence (SD1, SD2), None when the table has none.
        properties: checked properties, stored spelling.
        distribution: as declared, such as `HASH(user_id) BUCKETS 32`; only printed.
        revision: grows by one with every change.
        groups: column groups by number, None where one was dropped; empty in tables without groups (SM1).
        next_column_id: the number of the next column; 0 until a column is dropped or added.
        features: table features that a program must know to write the table.
        constraints: CHECKs that rows must not break.
        duplicate_key: the columns of DUPLICATE KEY, by which rows are sorted; None in tables with a unique
            key.
        is_append_only: rows may only be added, never changed or removed.
        row_level: conflicts are detected row by row.
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
    duplicate_key: tuple[str, ...] | None = None
    is_append_only: bool = field(init=False, repr=False, compare=False)
    row_level: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_append_only", self.properties.get(props.APPEND_ONLY) == "true")
        object.__setattr__(self, "row_level", self.properties.get(props.ROW_LEVEL, "true") == "true")

    @classmethod
    def create(
        cls,
        columns: Iterable[Column],
        key: Sequence[str],
        *,
        duplicate_key: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        distribution: str = "",
        comment: str = "",
        partitioning: Partitioning | None = None,
    ) -> TableSchema:
        """Checks a declaration and numbers its columns.

        Args:
            columns: key columns first, in key order.
            key: one or more names; none in a duplicate table.
            duplicate_key: the columns of DUPLICATE KEY, perhaps none, which makes a duplicate table (T10).
            properties: as written by the user; see `schema.properties`.
            partitioning: over key columns; see `schema.partitions`.

        Raises:
            InvalidInputError: the first rule that is broken, by name (T3, T9, T11, SD3-SD5, SM2, SM3, A5).
        """
        numbered = tuple(replace(column, id=i) for i, column in enumerate(columns, start=1))
        check_names(numbered)
        checked = props.parse_properties(properties or {})
        if duplicate_key is not None:
            duplicate_key = check_duplicate(numbered, key, duplicate_key, checked)
        key = check_key(numbered, key) if duplicate_key is None else (ROW_ID_COL,)
        sequence_column, sequence_type = check_sequence(numbered, key, checked)
        for column in numbered:
            check_default(column)
            check_on_update(column)
        check_cluster_columns(numbered, checked)
        groups = parse_groups(numbered, key, checked)
        check_auto_increment(numbered, has_groups=bool(groups))
        made = cls(
            numbered,
            key,
            sequence_column,
            sequence_type,
            checked,
            distribution,
            comment,
            groups=groups,
            features=() if duplicate_key is None else (DUPLICATE_KEY,),
            duplicate_key=duplicate_key,
        )
        return made if partitioning is None else made._partitioned(partitioning)

    def _partitioned(self, partitioning: Partitioning) -> TableSchema:
        """Returns the schema with a checked partitioning; that of a unique key is over key columns."""
        for name in partitioning.columns:
            if self.column(name).name not in self.key and not self.is_duplicate:
                raise InvalidInputError(
                    f"partition column {name!r} must be a key column; the key is {', '.join(self.key)}",
                    kind="bad_partition",
                )
        return replace(self, partitioning=check_bounds(self.column, partitioning))

    @classmethod
    def from_arrow(
        cls, schema: pa.Schema, key: Sequence[str], *, properties: Mapping[str, str] | None = None
    ) -> TableSchema:
        """Derives a declaration from an Arrow schema; key columns move to the front, other columns may be
        NULL.

        A STRING key column becomes VARCHAR(65533), because STRING cannot be a key. Without a key the table is
        a duplicate table (T10).
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
        duplicate_key = None if key else leading_columns(columns)
        return cls.create(columns, key, duplicate_key=duplicate_key, properties=properties)

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The key columns, in key order."""
        return self.columns[: len(self.key)] if self.duplicate_key is None else (ROW_ID,)

    @cached_property
    def value_columns(self) -> tuple[Column, ...]:
        """The columns behind the key, in table order."""
        return self.columns[len(self.key) :] if self.duplicate_key is None else self.columns

    @cached_property
    def has_exact_key(self) -> bool:
        """Whether equal codes of keys prove equal keys (segment.key_codes)."""
        return is_exact(self.key_columns)

    @cached_property
    def is_duplicate(self) -> bool:
        """Whether the table keeps every row, each under a key that the store generates (T10)."""
        return self.duplicate_key is not None

    @property
    def unique_key(self) -> tuple[str, ...]:
        """The columns of UNIQUE KEY; none in a duplicate table."""
        return self.key if self.duplicate_key is None else ()

    @property
    def declared_key(self) -> tuple[str, ...]:
        """The columns that the declaration names as the key: of UNIQUE KEY, or of DUPLICATE KEY."""
        return self.key if self.duplicate_key is None else self.duplicate_key

    @cached_property
    def names(self) -> list[str]:
        """Visible columns in table order."""
        return [column.name for column in self.columns]

    @cached_property
    def auto_increment_column(self) -> Column | None:
        """The column whose values the store generates (A5), or None."""
        return next((column for column in self.columns if column.auto_increment is not None), None)

    @cached_property
    def has_sequence(self) -> bool:
        """Whether a sequence, mapped or hidden, orders the rows of a key."""
        return self.sequence_type is not None

    @cached_property
    def column_groups(self) -> dict[int, ColumnGroup]:
        """The existing column groups, by number."""
        return {number: group for number, group in enumerate(self.groups) if group is not None}

    @cached_property
    def cluster_columns(self) -> tuple[str, ...]:
        """The columns of CLUSTER BY, by which the rows of a segment are sorted; none means by key."""
        return tuple(filter(None, self.properties.get(props.CLUSTER_BY, "").split(",")))

    @cached_property
    def storage_format(self) -> str:
        """`arrow` or `parquet`."""
        return self.properties.get(props.STORAGE_FORMAT, "arrow")

    @cached_property
    def open_formats(self) -> tuple[str, ...]:
        """The formats in which versions of an open table appear; none for other tables."""
        return tuple(filter(None, self.properties.get(props.OPEN_FORMATS, "").split(",")))

    @cached_property
    def maps_columns(self) -> bool:
        """Whether the files of an open table have names of their own, which no rename changes."""
        return bool(self.open_formats) and self.properties.get(props.COLUMN_MAPPING, "id") == "id"

    @property
    def iceberg_version(self) -> int:
        """The version of Iceberg's format in which versions of an open table appear."""
        return int(self.properties.get(props.ICEBERG_VERSION, 3))

    @property
    def open_every_seconds(self) -> int:
        """How long a version of an open table may wait for its appearance; 0 means it appears first."""
        return int(self.properties.get(props.OPEN_EVERY, 1))

    @cached_property
    def compression(self) -> str:
        """Codec of new segments: none, lz4 or zstd. Arrow files default to none: readers map them."""
        chosen = self.properties.get(props.COMPRESSION, "default")
        if chosen in ("default", "auto"):
            return "none" if self.storage_format == "arrow" else "zstd"
        return chosen

    @property
    def compresses_when_cold(self) -> bool:
        """Whether segments are written without compression, and as zstd when they are old."""
        return self.properties.get(props.COMPRESSION) == "auto" and self.storage_format == "arrow"

    @cached_property
    def isolation_level(self) -> IsolationLevel:
        """The isolation level of the table's transactions."""
        return IsolationLevel(self.properties.get(props.ISOLATION_LEVEL, IsolationLevel.WRITE_SERIALIZABLE))

    def with_partitioning(self, partitioning: Partitioning) -> TableSchema:
        """Returns the schema with another partitioning, unchecked; `TableSchema.create` checks."""
        return replace(self, partitioning=partitioning)

    @cached_property
    def refuses_too_late(self) -> bool:
        """Whether a row below the tombstone watermark fails its load instead of being counted."""
        return self.properties.get(props.TOO_LATE_ROWS) == "error"

    @cached_property
    def group_commit(self) -> str:
        """The mode of group commit of loads that name none (G12)."""
        return self.properties.get(props.GROUP_COMMIT_MODE, props.GROUP_COMMIT_OFF)

    @cached_property
    def is_merge_on_read(self) -> bool:
        """Whether the table was declared as merge-on-read: no partial updates, deletes by predicate."""
        return self.properties.get(props.MERGE_ON_WRITE) == "false"

    @cached_property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns whose values separate transactions where conflicts are not detected by rows."""
        if self.partitioning is not None:
            return tuple(self.partitioning.columns)
        named = self.properties.get(props.PARTITION_COLUMNS, "")
        return tuple(self.column(name.strip()).name for name in named.split(",") if name.strip())

    @cached_property
    def arrow(self) -> pa.Schema:
        """The visible columns as an Arrow schema, in table order."""
        return pa.schema([column.arrow for column in self.columns])

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """The columns by their names in lower case."""
        return {column.name.lower(): column for column in self.columns}

    @cached_property
    def types(self) -> Mapping[str, tuple[str, ColumnType]]:
        """Canonical name and type of each column, by its spellings in lower case, two of a hidden one."""
        found = {name: (column.name, column.type) for name, column in self.by_name.items()}
        for hidden in [each.name for each in self.hidden_fields()]:
            kind = HIDDEN_TYPES.get(hidden, self.sequence_type)
            assert kind is not None
            found |= dict.fromkeys(HIDDEN_SPELLINGS[hidden], (hidden, kind))
        return found

    def find(self, name: str) -> Column | None:
        """Returns the column of that name, without regard to case (P31), or None."""
        return self.by_name.get(name.lower())

    def column(self, name: str) -> Column:
        """Returns the column of that name, without regard to case.

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
        """Returns the hidden columns as readers see them: in the order of T4, the column of groups last."""
        fields = [pa.field(DELETE_SIGN, pa.int8(), False), pa.field(VERSION_COL, pa.int64(), False)]
        if self.sequence_type is not None:
            fields.append(pa.field(SEQUENCE_COL, self.sequence_type.arrow, True))
        if self.groups:
            fields.append(pa.field(GROUPS_COL, pa.int64(), False))
        if self.is_duplicate:
            fields.append(pa.field(ROW_ID_COL, pa.int64(), False))
        return fields

    def arrow_of(self, names: Sequence[str]) -> pa.Schema:
        """Returns some columns as an Arrow schema, hidden ones by their canonical names."""
        if list(names) == self.names:
            return self.arrow
        return pa.schema([self.fields[name] for name in names])

    @cached_property
    def fields(self) -> Mapping[str, pa.Field]:
        """The columns in Arrow, hidden ones by their canonical names."""
        return {field.name: field for field in [*self.arrow, *self.hidden_fields()]}

    @cached_property
    def _stored(self) -> dict[tuple[str, ...], pa.Schema]:
        return {}

    def stored_arrow(self, hidden: tuple[str, ...]) -> pa.Schema:
        """Returns the visible columns followed by some hidden ones, as segments store them."""
        known = self._stored.get(hidden)
        if known is None:
            known = self._stored[hidden] = self.arrow_of([*self.names, *hidden])
        return known

    def to_record(self) -> dict[str, Any]:
        """Returns the catalog record; `from_record` reads it."""
        return {
            "columns": [column.to_record() for column in self.columns],
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
            **({} if self.duplicate_key is None else {"duplicate_key": list(self.duplicate_key)}),
            **protocol_of(self.features),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> TableSchema:
        """Reads a record of `to_record`.

        Raises:
            FormatError: only a newer program can read the table.
        """
        features = features_of(record)
        sequence_type, duplicate_key = record["sequence_type"], record.get("duplicate_key")
        return cls(
            columns=tuple(Column.from_record(item) for item in record["columns"]),
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
            duplicate_key=None if duplicate_key is None else tuple(duplicate_key),
        )
