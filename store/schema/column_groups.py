"""Column groups: value columns that a sequence of their own orders (SM1-SM3, SM7).

`"sequence_mapping.s1" = "c,d"` declares a group: s1 orders c and d, whatever orders the table's other
columns. `"sequence_mapping.s1,s2" = "c,d"` orders them by a pair: s1 first, then s2. Every column outside the
key is in exactly one group, as a sequence or as a cell.

Stored rows refer to a group by its number, its place in `TableSchema.groups`. The place of a dropped group
stays empty, so that no number is reused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from seqstore.store.errors import InvalidInputError, bad_property

if TYPE_CHECKING:
    from seqstore.store.schema.column import Column

PREFIX: Final = "sequence_mapping."
GROUPS_MAX: Final = 63  # bits of the hidden column that lists the groups of a row


@dataclass(frozen=True)
class ColumnGroup:
    """Columns that are replaced together; canonical names.

    Attributes:
        sequence: one or more columns, compared from left to right.
        cells: the columns that the sequence orders; may be empty.
    """

    sequence: tuple[str, ...]
    cells: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The sequence columns, then the cells."""
        return (*self.sequence, *self.cells)

    @property
    def property_name(self) -> str:
        """The property as SHOW CREATE TABLE prints it."""
        return PREFIX + ",".join(self.sequence)


Groups = tuple[ColumnGroup | None, ...]


def parse_groups(columns: Sequence[Column], key: Sequence[str], properties: dict[str, str]) -> Groups:
    """Parses the groups that the properties declare, in their order, and rewrites the properties in canonical
    spelling.

    Raises:
        InvalidInputError: the first rule of SM2 or SM3 that is broken, in the words of Doris.
    """
    declared = {name: value for name, value in properties.items() if name.startswith(PREFIX)}
    if not declared:
        return ()
    if any(name.startswith("function_column.sequence_") for name in properties):
        raise bad_property("column group sequence and sequence column can't apply to both")
    if properties.get("light_schema_change", "true").lower() == "false":
        raise bad_property(
            "sequence mapping needs light_schema_change; leave the property out or set it to true"
        )
    groups = tuple(_parse_group(name, value, columns, key) for name, value in declared.items())
    check_cover(groups, columns, key)
    for name in declared:
        del properties[name]
    properties.update(group_properties(groups))
    return groups


def _parse_group(name: str, value: str, columns: Sequence[Column], key: Sequence[str]) -> ColumnGroup:
    """Parses one property and checks its columns."""
    listed = _names(name.removeprefix(PREFIX))
    if not listed or "." in "".join(listed):
        raise bad_property("sequence column of column group should be specified")
    by_name = {column.name.lower(): column for column in columns}
    keys = {part.lower() for part in key}
    group_name = ",".join(listed)
    for sequence in listed:
        column = by_name.get(sequence.lower())
        if column is not None and not column.type.can_be_sequence:
            raise bad_property("Unsupported data type in sequence column")
        if column is None:
            raise InvalidInputError(
                f"sequence column [{sequence}] in column_group does not exist in schema",
                kind="unknown_column",
            )
        if sequence.lower() in keys:
            raise bad_property(f"sequence column [{sequence}] in column_group can't be key column")
    cells = _names(value)
    for cell in cells:
        where = f"value column [{cell}] in column_group [{group_name}]"
        if cell.lower() not in by_name:
            raise InvalidInputError(f"{where} does not exist in schema", kind="unknown_column")
        if cell.lower() in keys:
            raise bad_property(f"{where} can't be key column")
    return ColumnGroup(
        tuple(by_name[sequence.lower()].name for sequence in listed),
        tuple(by_name[cell.lower()].name for cell in cells),
    )


def _names(text: str) -> list[str]:
    names = [name.strip().strip("`") for name in text.split(",")]
    return [] if names == [""] else names


def check_cover(groups: Groups, columns: Sequence[Column], key: Sequence[str]) -> None:
    """Checks SM3: every column outside the key is in exactly one group.

    Raises:
        InvalidInputError: in the words of Doris.
    """
    named = [name for group in groups if group is not None for name in group.columns]
    if len(set(named)) != len(named):
        raise bad_property("The columns are overlapping")
    if len(named) != len(columns) - len(key):
        raise bad_property("The columns are not equal between the schema and prop")
    if len(groups) > GROUPS_MAX:
        raise bad_property(
            f"a table may have {GROUPS_MAX} column groups in its life, this would be number {len(groups)}; "
            "order more columns by one sequence"
        )


def with_added(
    groups: Groups, columns: Sequence[Column], key: Sequence[str], properties: Mapping[str, str]
) -> Groups:
    """Returns the groups after ADD COLUMN ... PROPERTIES (SM7).

    Args:
        columns: of the table, new columns included.
        properties: of the statement; an existing group accepts no new columns (SM3).

    Raises:
        InvalidInputError: the table has no groups, or a rule of SM3 is broken.
    """
    if not groups:
        raise bad_property("sequence mapping can only be added to a table that was created with one")
    strange = [name for name in properties if not name.startswith(PREFIX)]
    if strange:
        raise bad_property(f"property {strange[0]!r} does not go with ADD COLUMN; expected {PREFIX}<column>")
    grown = (*groups, *(_parse_group(name, value, columns, key) for name, value in properties.items()))
    check_cover(grown, columns, key)
    return grown


def without_column(groups: Groups, name: str) -> Groups:
    """Returns the groups after DROP COLUMN: a group's cells are dropped first, then its sequence (SM7).

    Args:
        name: canonical.

    Raises:
        InvalidInputError: the column orders others.
    """
    return tuple(group if group is None else _shrunk(group, name) for group in groups)


def _shrunk(group: ColumnGroup, name: str) -> ColumnGroup | None:
    if name in group.sequence and group.cells:
        raise InvalidInputError(
            f"Can not drop sequence mapping column[{name}]: it orders {', '.join(group.cells)}; drop these "
            "first",
            kind="bad_alter",
            column=name,
        )
    sequence = tuple(column for column in group.sequence if column != name)
    return ColumnGroup(sequence, tuple(c for c in group.cells if c != name)) if sequence else None


def group_properties(groups: Groups) -> dict[str, str]:
    """Returns the properties that declare some groups."""
    return {group.property_name: ",".join(group.cells) for group in groups if group is not None}


def refuse_rename(groups: Groups, name: str) -> None:
    """Enforces SM2: columns of tables with groups keep their names.

    Raises:
        InvalidInputError: the table has groups.
    """
    if groups:
        raise InvalidInputError(
            f"column {name!r} cannot be renamed: the table has sequence mapping",
            kind="bad_alter",
            column=name,
        )


def refuse_type_change(groups: Groups, name: str) -> None:
    """Enforces SM1: the type of a sequence never changes.

    Raises:
        InvalidInputError: the column orders others.
    """
    if any(group is not None and name in group.sequence for group in groups):
        raise InvalidInputError(
            f"the type of sequence mapping column[{name}] cannot be changed", kind="bad_alter", column=name
        )


def replaced_with(groups: Groups, names: Collection[str]) -> list[str]:
    """Returns the columns that must be written with some columns: the rest of their groups."""
    return [
        name
        for group in groups
        if group is not None and not set(group.columns).isdisjoint(names)
        for name in group.columns
        if name not in names
    ]


def groups_to_record(groups: Groups) -> list[list[list[str]] | None]:
    """Returns the catalog record; `groups_from_record` reads it."""
    return [None if group is None else [list(group.sequence), list(group.cells)] for group in groups]


def groups_from_record(record: Sequence[Sequence[Sequence[str]] | None]) -> Groups:
    return tuple(None if group is None else ColumnGroup(tuple(group[0]), tuple(group[1])) for group in record)
