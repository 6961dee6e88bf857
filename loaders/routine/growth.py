"""`schema_evolution` and `auto_create` of a routine load: what the rows of a piece need (EV9, EV10)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from seqstore.loaders.dead_letters.letters import SUFFIX, check_target, letters_schema
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.inference.declared_table import table_of
from seqstore.loaders.inference.field_values import field_values
from seqstore.loaders.inference.needed_schema import NeededSchema
from seqstore.loaders.routine.destination import Destination
from seqstore.loaders.routine.source import Body, Piece
from seqstore.loaders.routine.spec import RoutineSpec
from seqstore.store.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from seqstore.store.publish.evolution import Evolution
from seqstore.store.schema.declaration import check_name
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.session.show_output import create_table_text
from seqstore.store.store import Store
from seqstore.store.table import Table

_log: Final = logging.getLogger(__name__)


class Growth:
    """Finds what the pieces of a task need.

    Args:
        table: None where the messages name their tables.

    Attributes:
        is_on: the job may change schemas or make tables, or has tables of dead letters.
        refused: tables that cannot be made, with the reason; their messages are bad rows.
        left_out: tables and fields of theirs that can be no column, with the reason; other fields are loaded.
    """

    def __init__(self, store: Store, spec: RoutineSpec, table: Table | None) -> None:
        self._store, self._spec, self._table = store, spec, table
        options = spec.options("")
        self._evolves, self._creates = options.evolves, options.auto_create
        self._keeps = options.dead_letters and spec.is_multi
        self.refused: dict[str, str] = {}
        self.left_out: dict[tuple[str, str], str] = {}
        self._undeclared: set[str] = set()  # refused tables that other rows may declare
        self.is_on = self._evolves or self._creates or self._keeps

    def begin(self, pieces: Sequence[Piece]) -> dict[str, Evolution]:
        """Makes the tables that the pieces of a new task need; returns their new schemas."""
        for piece in pieces if self._creates else ():
            for body in piece.bodies():
                if body.table and body.has_rows and self._is_to_make(body.table):
                    self._create(piece, body)
        for name in self._tables(pieces) if self._keeps else ():
            if self._lacks_letters(name):
                full = f"{self._spec.database}.{name}{SUFFIX}"
                self._store.create_table(full, letters_schema(), if_not_exists=True)
        return self.needed_by(pieces)

    def _create(self, piece: Piece, body: Body) -> None:
        """Makes a table, or refuses it: one table that cannot be holds up no other one (R17)."""
        name = body.table
        schema = self._declared(piece, body)
        if schema is None:
            return
        try:
            check_name(name, "table")
            self._store.create_table(f"{self._spec.database}.{name}", schema, if_not_exists=True)
        except (InvalidInputError, AlreadyExistsError) as error:
            self.refused[name] = error.message
            return
        self.refused.pop(name, None)
        self._undeclared.discard(name)
        _log.info("routine load %s: %s", self._spec.name, create_table_text(name, schema))

    def _declared(self, piece: Piece, body: Body) -> TableSchema | None:
        """Returns the declaration of a table for a body; None, and refuses the table, where there is none."""
        left_out: dict[str, str] = {}
        try:
            with body.open() as opened:
                schema = table_of(opened, self._options(piece, body), left_out)
        except InvalidInputError as error:
            self.refused[body.table] = error.message
            self._undeclared.add(body.table)
            return None
        self._leave_out(body.table, left_out)
        return schema

    def _leave_out(self, table: str, fields: Mapping[str, str]) -> None:
        self.left_out |= {(table, name): reason for name, reason in fields.items()}

    def _is_to_make(self, table: str) -> bool:
        """Returns whether a table is missing, or was refused because rows before did not declare it."""
        try:
            return self._is_missing(table)
        except InvalidInputError as error:  # a view, or a name that no table can have
            self.refused[table] = error.message
            return False

    def _tables(self, pieces: Sequence[Piece], *, with_rows: bool = False) -> list[str]:
        """Returns the tables that pieces name, of rows alone or of bad messages too."""
        bodies = [body for piece in pieces for body in piece.bodies() if body.table]
        names = [body.table for body in bodies if body.has_rows or not with_rows]
        return [name for name in dict.fromkeys(names) if name not in self.refused]

    def is_needed_by(self, piece: Piece, to: Destination) -> bool:
        """Returns whether a piece needs a table or a schema that a task does not have."""
        if self._creates and any(map(self._is_to_make, self._tables([piece], with_rows=True))):
            return True
        if self._creates and self._declares_refused(piece):
            return True
        if self._keeps and any(map(self._lacks_letters, self._tables([piece]))):
            return True
        return bool(self.needed_by([piece], to))

    def _declares_refused(self, piece: Piece) -> bool:
        """Returns whether a piece has rows that declare a table which those of an earlier piece did not."""
        bodies = [body for body in piece.bodies() if body.has_rows and body.table in self._undeclared]
        return any(self._declared(piece, body) is not None for body in bodies)

    def _lacks_letters(self, table: str) -> bool:
        """Returns whether a table has no dead letters; those of another table have none, and are refused."""
        try:
            if self._is_missing(table) or not self._is_missing(f"{table}{SUFFIX}"):
                return False
            check_target(table)
        except InvalidInputError as error:
            self.refused[table] = error.message
            return False
        return True

    def _is_missing(self, table: str) -> bool:
        try:
            self._named(table)
        except NotFoundError as error:
            if error.kind != "unknown_table":
                raise
            return True
        return False

    def needed_by(self, pieces: Sequence[Piece], to: Destination | None = None) -> dict[str, Evolution]:
        """Returns the new schemas that pieces need, by table; none without the property.

        Args:
            to: the task's tables, whose schemas may be newer than the stored ones; None before it began.

        Raises:
            StoreError: a piece is none of its format.
        """
        if not self._evolves:
            return {}
        needed: dict[str, NeededSchema] = {}
        for piece in pieces:
            for body in piece.bodies():
                is_named = bool(body.table) or not self._spec.is_multi
                if is_named and body.has_rows and body.table not in self.refused:
                    self._see(needed, piece, body, to)
        evolutions = {}
        for name, schema in needed.items():
            left_out: dict[str, str] = {}
            evolution = schema.evolution(self._named(name), left_out)
            self._leave_out(name, left_out)
            if evolution is not None:
                evolutions[name] = evolution
        return evolutions

    def _see(self, needed: dict[str, NeededSchema], piece: Piece, body: Body, to: Destination | None) -> None:
        options = self._options(piece, body)
        if body.table not in needed:
            try:
                schema = self._named(body.table).schema if to is None else to.of(body.table)[0].schema
            except (NotFoundError, InvalidInputError):
                return  # the task says what is missing
            needed[body.table] = NeededSchema(schema, options.schema_evolution)
        known = needed[body.table]
        with ExitStack() as opened:
            known.see(field_values(opened.enter_context(body.open()), options, known.columns))

    def _options(self, piece: Piece, body: Body) -> StreamLoadOptions:
        options = self._spec.options(piece.path)
        return replace(options, compression="") if body.table else options

    def _named(self, name: str) -> Table:
        return self._table or self._store.table(f"{self._spec.database}.{name}")
