"""A column of a table of another format, as its files name it and as it is here."""

from __future__ import annotations

from dataclasses import dataclass

from seqstore.store.types.column_types import ColumnType


@dataclass(frozen=True)
class LakeField:
    """A column, or a field within one.

    Attributes:
        name: of the column, or of the field of a struct.
        stored_name: its name in files and in the values of partitions.
        number: its field id in files, None where the names count.
        type: the column type for it.
        nullable: whether it may be NULL.
        is_moment: a time with a zone, stored in UTC.
        children: the element of an array, key and value of a map, the fields of a struct.
    """

    name: str
    stored_name: str
    number: int | None
    type: ColumnType
    nullable: bool = True
    is_moment: bool = False
    children: tuple[LakeField, ...] = ()
