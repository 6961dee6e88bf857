"""`schema_evolution`: the schema that the rows of a load need, beside the one that the table has.

1. The fields of the bodies are read with their values before anything is loaded.
2. With `add` and `widen`, a field that is no column becomes one at the end of the table: nullable, of the
   type that the body declares, else of the narrowest type that takes all values. A field without a value
   waits for its first one, unless the body declares its type.
3. With `widen`, a column whose type does not take a value becomes wider (wider_type), unless it must stay as
   it is, such as a key column.

The new schema is stored in the commit of the rows (`store.ddl.evolution`). What it does not take either is
rejected by the load. The names in the first line of CSV are its fields.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final, cast

from seqstore.loaders.compress import open_compressed
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.inference.field_values import FieldValues, field_values
from seqstore.loaders.inference.file_columns import first_line, joined_columns
from seqstore.loaders.inference.text_types import TextType
from seqstore.loaders.inference.wider_type import WiderType
from seqstore.store.ddl.evolution import can_widen, evolve
from seqstore.store.errors import InvalidInputError, StoreError
from seqstore.store.publish.evolution import Evolution
from seqstore.store.schema.column import Column, Default
from seqstore.store.schema.declaration import check_default
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.table import Table
from seqstore.store.types.column_types import ColumnType

_IN_MEMORY_BYTES: Final = 16 << 20


@dataclass
class _NewColumn:
    """A field that is no column."""

    name: str
    declared: ColumnType | None = None
    default: str | None = None
    seen: TextType = field(default_factory=TextType)

    def see(self, values: FieldValues) -> None:
        if values.declared is None:
            self.seen.see(values.values)
        elif self.declared is None:
            self.declared = values.declared
        else:
            self.declared = joined_columns([{"": self.declared}, {"": values.declared}])[""]
        if self.default is None:
            self.default = values.default

    @property
    def column(self) -> Column | None:
        """The column, None while nothing tells its type."""
        if self.declared is None and not self.seen.has_value:
            return None
        column = Column(self.name, self.declared or self.seen.type)
        return column if self.default is None else _with_default(column, self.default)


def _with_default(column: Column, text: str) -> Column:
    """Returns a column with a default, without it where its type takes none such."""
    changed = replace(column, default=Default("constant", text))
    try:
        check_default(changed)
    except StoreError:
        return column
    return changed


class NeededSchema:
    """Collects what the fields of some bodies need of a table.

    Args:
        base: the table's schema, None where there is no table.
        mode: `add` or `widen`.
    """

    def __init__(self, base: TableSchema | None, mode: str) -> None:
        self._base = base
        known = () if base is None else base.columns
        self.columns = {column.name.lower(): column.type for column in known}
        self._names = {column.name.lower(): column.name for column in known}
        widens = self.columns if mode == "widen" else {}
        self._wider = {name: WiderType(kind) for name, kind in widens.items()}
        self._new: dict[str, _NewColumn] = {}

    def see(self, fields: Iterable[FieldValues]) -> None:
        """Takes the fields of one body."""
        for each in fields:
            name = each.name.lower()
            if name not in self.columns:
                self._new.setdefault(name, _NewColumn(each.name)).see(each)
            elif name in self._wider:
                self._wider[name].see(each.values)

    def added(self) -> list[Column]:
        """Returns the columns that fields without one need, in the order of the fields."""
        return [column for each in self._new.values() if (column := each.column) is not None]

    def evolution(self, table: Table, left_out: dict[str, str] | None = None) -> Evolution | None:
        """Returns the next schema of the table, None where it has all that is needed.

        Args:
            left_out: gets the fields that can be no column, or no wider one, with their reasons; None: such a
                field is an error.

        Raises:
            InvalidInputError: a field cannot be a column.
        """
        assert self._base is not None
        base = self._base
        added = self.added()
        widened = {
            self._names[name]: wider.type
            for name, wider in self._wider.items()
            if wider.type != self.columns[name] and can_widen(base, self._names[name], wider.type)
        }
        if left_out is not None:
            reasons = {column.name: _refusal(table, base, [column], {}) for column in added}
            reasons |= {name: _refusal(table, base, [], {name: kind}) for name, kind in widened.items()}
            left_out |= {name: reason for name, reason in reasons.items() if reason}
            added = [column for column in added if not reasons[column.name]]
            widened = {name: kind for name, kind in widened.items() if not reasons[name]}
        return evolve(table, base, added, widened) if added or widened else None


def _refusal(
    table: Table, base: TableSchema, added: Sequence[Column], widened: Mapping[str, ColumnType]
) -> str:
    """Returns why a table cannot get a schema, empty where it can."""
    try:
        evolve(table, base, added, widened)
    except InvalidInputError as error:
        return error.message
    return ""


def needed_evolution(
    table: Table, base: TableSchema, options: StreamLoadOptions, body: BinaryIO
) -> Evolution | None:
    """Returns the schema that a body needs of a table, None where the table has it.

    Args:
        base: the schema of the table.

    Raises:
        InvalidInputError: the body is none of its format, or a field cannot be a column.
    """
    needed = NeededSchema(base, options.schema_evolution)
    needed.see(field_values(body, options, needed.columns))
    return needed.evolution(table)


def with_fields(options: StreamLoadOptions, body: BinaryIO) -> StreamLoadOptions:
    """Returns the options of a load of a body, whose fields are those of its first line if it is CSV."""
    if not options.is_csv:
        return options
    names, _ = first_line(open_compressed(body, options.compression), options, "the body")
    return replace(options, columns=", ".join(f"`{name}`" for name in names))


def kept_body(body: BinaryIO) -> BinaryIO:
    """Returns the bytes of a body in a temporary file, which can be read several times."""
    kept = cast(BinaryIO, tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES))  # noqa: SIM115 - the caller closes it
    shutil.copyfileobj(body, kept, 1 << 20)
    kept.seek(0)
    return kept
