"""Columns: hidden columns by their names; visible columns with type, default and id.

The id identifies a column. Names may change; ids never change and are never reused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import ColumnType, parse_type

DELETE_SIGN: Final = "__DELETE_SIGN__"
VERSION_COL: Final = "__VERSION_COL__"
SEQUENCE_COL: Final = "__SEQUENCE_COL__"
GROUPS_COL: Final = "__GROUPS_COL__"  # in tables with column groups: bit n is set if a row has group n
ROW_ID_COL: Final = "__ROW_ID_COL__"  # in duplicate tables: the key that the store generates
HIDDEN_COLUMNS: Final = (DELETE_SIGN, VERSION_COL, SEQUENCE_COL, GROUPS_COL, ROW_ID_COL)
_HIDDEN_ALIASES: Final = {name.replace("__", "__DORIS_", 1): name for name in HIDDEN_COLUMNS}
# Both spellings of hidden columns in lower case, by canonical name.
HIDDEN_SPELLINGS: Final = {name: (name.lower(), alias.lower()) for alias, name in _HIDDEN_ALIASES.items()}
# The types of hidden columns; the sequence has one of its table.
HIDDEN_TYPES: Final = {
    DELETE_SIGN: parse_type("TINYINT"),
    VERSION_COL: parse_type("BIGINT"),
    GROUPS_COL: parse_type("BIGINT"),
    ROW_ID_COL: parse_type("BIGINT"),
}

# The id of the hidden sequence in stored files; visible columns count from 1, -1 and -2 are reserved.
SEQUENCE_ID: Final = -3
VERSION_ID: Final = -4  # no file has it: as a column that was read, any write of the row changes it
ROW_ID_ID: Final = -5
ROW_IDS_COUNTER: Final = 0  # numbers a table's counter of row ids; visible columns count from 1


# Types of which a 64-bit code holds every value.
_EXACT_TYPES: Final = frozenset(["BOOLEAN", "TINYINT", "SMALLINT", "INT", "DATE", "BIGINT", "DATETIME"])


@lru_cache(maxsize=4096)
def hidden_name(name: str) -> str | None:
    """Returns the canonical name of a hidden column in any spelling and case (T7), None for other names."""
    upper = name.upper()
    return upper if upper in HIDDEN_COLUMNS else _HIDDEN_ALIASES.get(upper)


@dataclass(frozen=True)
class Default:
    """The value of a column in rows that do not supply it.

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
        """Whether the default is the moment of the load rather than a constant."""
        return self.kind in ("current_timestamp", "current_date")

    @property
    def sql(self) -> str:
        """The default as SHOW CREATE TABLE prints it after the word DEFAULT."""
        if self.kind == "constant":
            escaped = self.text.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"'
        if self.kind == "current_timestamp" and self.precision:
            return f"CURRENT_TIMESTAMP({self.precision})"
        return self.kind.upper()


@dataclass(frozen=True)
class Column:
    """One column of a table. `id` 0 means "not numbered yet": `TableSchema.create` numbers it."""

    name: str
    type: ColumnType
    nullable: bool = True
    default: Default | None = None
    comment: str = ""
    id: int = 0
    on_update_current_timestamp: bool = False
    auto_increment: int | None = None
    initial: Default | None = None  # of a column added later: its value in older rows

    @property
    def arrow(self) -> pa.Field:
        """The column as an Arrow field."""
        return pa.field(self.name, self.type.arrow, self.nullable)

    @property
    def can_be_omitted(self) -> bool:
        """Whether a full-row write may omit the column (A1, A6)."""
        return self.nullable or self.default is not None or self.auto_increment is not None

    def to_record(self) -> dict[str, Any]:
        """Returns the catalog record; `from_record` reads it."""
        record: dict[str, Any] = {"id": self.id, "name": self.name, "type": self.type.sql}
        record["nullable"] = self.nullable
        if self.default is not None:
            record["default"] = [self.default.kind, self.default.text, self.default.precision]
        if self.comment:
            record["comment"] = self.comment
        if self.on_update_current_timestamp:
            record["on_update"] = True
        if self.auto_increment is not None:
            record["auto_increment"] = self.auto_increment
        if self.initial is not None:
            record["initial"] = [self.initial.kind, self.initial.text, self.initial.precision]
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Column:
        """Reads a record of `to_record`."""
        default, initial = record.get("default"), record.get("initial")
        return cls(
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


def default_scalar(column: Column, now: datetime) -> pa.Scalar:
    """Returns the value of a column in rows that do not supply it.

    Args:
        now: one moment per load, local to the load's time zone (A3).

    Returns:
        A scalar of the column's Arrow type, null when there is no default.

    Raises:
        InvalidInputError: the constant does not fit the type (found when the table is created).
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


def initial_values(column: Column, rows: int) -> pa.Array:
    """Returns the values of a column in rows that are older than it."""
    initial = replace(column, default=column.initial or column.default)
    value = default_scalar(initial, datetime.now())
    return pa.repeat(value, rows) if value.is_valid else pa.nulls(rows, column.type.arrow)


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
    converted = try_cast(pa.array([text]), column_type)  # Arrow's cast of text to decimal can end the process
    if converted.failed is not None:
        raise ValueError(text)
    return converted.values[0]


ROW_ID: Final = Column(ROW_ID_COL, parse_type("BIGINT"), nullable=False, id=ROW_ID_ID, auto_increment=1)


def is_exact(key_columns: Sequence[Column]) -> bool:
    """Returns whether equal codes of a key prove equal keys (segment.key_codes)."""
    if len(key_columns) != 1:
        return False
    column = key_columns[0]
    # A nullable BIGINT has 2**64 values and NULL, one too many for 64 bits.
    return column.type.name in _EXACT_TYPES and not (column.nullable and column.type.name == "BIGINT")
