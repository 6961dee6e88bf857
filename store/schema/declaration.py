"""Checks of a table's declaration: names, key, sequence, defaults, AUTO_INCREMENT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from seqstore.store.errors import InvalidInputError, bad_property
from seqstore.store.schema import column_groups as groups
from seqstore.store.schema import properties as props
from seqstore.store.schema.column import Column, default_scalar, hidden_name
from seqstore.store.types.column_types import ColumnType, parse_type

_NAME_LENGTH_MAX: Final = 64
_SHORT_KEY_COLUMNS_MAX: Final = 3
_SHORT_KEY_BYTES_MAX: Final = 36
_SHORT_KEY_BYTES: Final = {
    "BOOLEAN": 1,
    "TINYINT": 1,
    "SMALLINT": 2,
    "INT": 4,
    "DATE": 4,
    "BIGINT": 8,
    "DATETIME": 8,
    "LARGEINT": 16,
    "DECIMAL": 16,
    "VARCHAR": 20,
}


def check_name(name: str, what: str) -> str:
    """Checks the name of a database, table or column: 1 to 64 letters, digits, `_`, `-`, `$`; a letter or `_`
    first.

    Raises:
        InvalidInputError: names the broken rule.
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


def check_names(columns: Sequence[Column]) -> None:
    """Checks the names of columns: well formed, none hidden, none twice in any case (T7)."""
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


def check_key(columns: Sequence[Column], key: Sequence[str], clause: str = "UNIQUE KEY") -> tuple[str, ...]:
    """Returns the key in the table's spelling: the first columns, in key order, of types that can be a key
    (T3).
    """
    if not key:
        raise InvalidInputError("a table needs a UNIQUE KEY of at least one column", kind="bad_key")
    by_name = {column.name.lower(): column for column in columns}
    for name in key:
        column = by_name.get(name.lower())
        if column is None:
            raise InvalidInputError(
                f"key column {name!r} is not a column of the table", kind="unknown_column"
            )
        if not column.type.can_be_key:
            hint = "; use VARCHAR" if column.type.name == "STRING" else ""
            raise InvalidInputError(f"column {name!r}: {column.type} cannot be a key{hint}", kind="bad_key")
    leading = [column.name.lower() for column in columns[: len(key)]]
    if leading != [name.lower() for name in key]:
        raise InvalidInputError(
            f"key columns must come first and in key order: {clause}({', '.join(key)}), "
            f"but the table starts with {', '.join(leading)}",
            kind="bad_key",
        )
    return tuple(column.name for column in columns[: len(key)])


def leading_columns(columns: Sequence[Column]) -> tuple[str, ...]:
    """Returns the columns that Doris takes as the key of a table without one (T11).

    They are the first columns, up to three of together 36 bytes; a VARCHAR is the last. A column whose type
    cannot be a key ends them, so there may be none.
    """
    names: list[str] = []
    size = 0
    for column in columns[:_SHORT_KEY_COLUMNS_MAX]:
        kind = column.type
        size += _SHORT_KEY_BYTES.get(kind.name, kind.byte_length_max or _SHORT_KEY_BYTES_MAX)
        is_text = kind.name in ("CHAR", "VARCHAR")
        if not kind.can_be_key or (size > _SHORT_KEY_BYTES_MAX and not (is_text and not names)):
            break
        names.append(column.name)
        if kind.name == "VARCHAR":
            break
    return tuple(names)


def check_duplicate(
    columns: Sequence[Column], key: Sequence[str], duplicate_key: Sequence[str], properties: Mapping[str, str]
) -> tuple[str, ...]:
    """Returns the columns of DUPLICATE KEY in the table's spelling.

    Raises:
        InvalidInputError: a unique key too, or a property of tables with a unique key (T11).
    """
    if key:
        raise InvalidInputError("a table has either UNIQUE KEY or DUPLICATE KEY", kind="bad_key")
    refuse_unique_properties(properties)
    return check_key(columns, duplicate_key, "DUPLICATE KEY") if duplicate_key else ()


def refuse_unique_properties(names: Iterable[str]) -> None:
    """Refuses the properties of tables with a unique key, for a duplicate table (T11).

    Raises:
        InvalidInputError: with the texts of Doris.
    """
    for name in names:
        if name in (props.SEQUENCE_COL, props.SEQUENCE_TYPE):
            raise bad_property("sequence column only support UNIQUE_KEYS")
        if name.startswith(groups.PREFIX):
            raise bad_property("sequence_mapping only support UNIQUE_KEYS")
        if name in (props.MERGE_ON_WRITE, props.SKIP_BITMAP):
            raise bad_property(f"{name} property only support unique key table")


def check_cluster_columns(columns: Sequence[Column], properties: dict[str, str]) -> None:
    """Checks the columns of CLUSTER BY, and spells them as they are declared.

    Raises:
        InvalidInputError: an unknown column, one that is named twice, or one whose values have no order.
    """
    if props.CLUSTER_BY not in properties:
        return
    known = {column.name.lower(): column for column in columns}
    found: list[str] = []
    for name in map(str.strip, properties[props.CLUSTER_BY].split(",")):
        column = known.get(name.lower())
        if column is None:
            raise InvalidInputError(f"CLUSTER BY names an unknown column {name!r}", kind="unknown_column")
        if column.name in found or column.type.is_nested or column.type.name == "JSON":
            raise InvalidInputError(
                f"CLUSTER BY column {column.name!r} is {column.type}; expected a column of a type with an "
                "order, named once",
                kind="cluster_column",
            )
        found.append(column.name)
    properties[props.CLUSTER_BY] = ",".join(found)


def check_sequence(
    columns: Sequence[Column], key: Sequence[str], properties: dict[str, str]
) -> tuple[str | None, ColumnType | None]:
    """Returns the mapped column or the hidden type (SD1-SD5); errors have Doris's own texts."""
    mapped, declared = properties.get(props.SEQUENCE_COL), properties.get(props.SEQUENCE_TYPE)
    if mapped and declared:
        raise bad_property("The sequence_col and sequence_type cannot be set at the same time")
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
        raise bad_property("Sequence type only support integer types and date types")
    if column.name in key:
        raise bad_property(f"The sequence column[{column.name}] cannot be a key column")
    properties[props.SEQUENCE_COL] = column.name
    return column.name, column.type


def check_default(column: Column) -> None:
    """Checks that a default fits its column."""
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


def check_on_update(column: Column) -> None:
    """Checks A4: the value that a partial update sets must be the value of a new row."""
    default = column.default
    if column.on_update_current_timestamp and (default is None or default.kind != "current_timestamp"):
        raise InvalidInputError(
            f"column {column.name!r}: ON UPDATE CURRENT_TIMESTAMP needs DEFAULT CURRENT_TIMESTAMP",
            kind="bad_default",
        )


def check_auto_increment(columns: Sequence[Column], *, has_groups: bool) -> None:
    """Checks A5: one BIGINT NOT NULL column without a default that starts at 0 or above."""
    counted = [column for column in columns if column.auto_increment is not None]
    if len(counted) > 1:
        raise InvalidInputError(
            f"there can not be more than one auto increment column, found {counted[0].name} and "
            f"{counted[1].name}",
            kind="bad_auto_increment",
        )
    for column in counted:
        rules = {
            f"must be BIGINT, is {column.type}": column.type.name == "BIGINT",
            "must be NOT NULL": not column.nullable,
            "cannot have a default": column.default is None,
            f"must start at 0 or above, starts at {column.auto_increment}": (
                0 <= (column.auto_increment or 0) < 2**63
            ),
            "does not go with sequence_mapping": not has_groups,
        }
        broken = next((rule for rule, is_kept in rules.items() if not is_kept), None)
        if broken is not None:
            raise InvalidInputError(
                f"the auto increment column {column.name} {broken}", kind="bad_auto_increment"
            )
