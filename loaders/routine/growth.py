"""`schema_evolution` of a routine load: the schemas that the rows of a piece need (EV9)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.inference.field_values import field_values
from seqstore.loaders.inference.needed_schema import NeededSchema
from seqstore.loaders.routine.destination import Destination
from seqstore.loaders.routine.source import Body, Piece
from seqstore.loaders.routine.spec import RoutineSpec
from seqstore.store.errors import NotFoundError
from seqstore.store.publish.evolution import Evolution
from seqstore.store.store import Store
from seqstore.store.table import Table


class Growth:
    """Finds what the pieces of a task need.

    Args:
        table: None where the messages name their tables.

    Attributes:
        is_on: the job may change schemas.
    """

    def __init__(self, store: Store, spec: RoutineSpec, table: Table | None) -> None:
        self._store, self._spec, self._table = store, spec, table
        self.is_on = spec.options("").evolves

    def needed_by(self, pieces: Sequence[Piece], to: Destination | None = None) -> dict[str, Evolution]:
        """Returns the new schemas that pieces need, by table; none without the property.

        Args:
            to: the task's tables, whose schemas may be newer than the stored ones; None before it began.

        Raises:
            StoreError: a piece is none of its format, or a field cannot be a column.
        """
        if not self.is_on:
            return {}
        needed: dict[str, NeededSchema] = {}
        for piece in pieces:
            for body in piece.bodies():
                if body.table or not self._spec.is_multi:
                    self._see(needed, piece, body, to)
        evolutions = {}
        for name, schema in needed.items():
            evolution = schema.evolution(self._named(name))
            if evolution is not None:
                evolutions[name] = evolution
        return evolutions

    def _see(self, needed: dict[str, NeededSchema], piece: Piece, body: Body, to: Destination | None) -> None:
        options = self._options(piece, body)
        if body.table not in needed:
            try:
                schema = self._named(body.table).schema if to is None else to.of(body.table)[0].schema
            except NotFoundError:
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
