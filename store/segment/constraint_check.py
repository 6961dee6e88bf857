"""The test of rows against a table's CHECK constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.predicate import text_of
from seqstore.store.schema.constraints import Constraint

if TYPE_CHECKING:
    from seqstore.store.schema.table_schema import TableSchema
    from seqstore.store.segment.checked_rows import CheckedRows


def refuse_violations(schema: TableSchema, pieces: Sequence[CheckedRows]) -> None:
    """Checks rows against the constraints of a schema.

    Raises:
        InvalidInputError: names the constraint and the first row's key.
    """
    for constraint in schema.constraints:
        for piece in pieces:
            rows = piece.visible
            if piece.signs is not None:
                rows = rows.filter(pa.array(np.asarray(piece.signs) == 0))
            _refuse(constraint, rows, schema)


def _refuse(constraint: Constraint, rows: pa.Table, schema: TableSchema) -> None:
    broken = broken_rows(constraint.expression, rows)
    if not len(broken):
        return
    key = ", ".join(f"{name}={broken.column(name)[0].as_py()}" for name in schema.key)
    raise InvalidInputError(
        f"CHECK constraint {constraint.name} ({constraint.sql}) is broken by {len(broken)} rows, first "
        f"({key})",
        kind="check_constraint",
        constraint=constraint.name,
    )


def broken_rows(expression: pc.Expression, rows: pa.Table) -> pa.Table:
    """Returns the rows for which a condition is false."""
    try:
        return ds.dataset(rows).scanner(filter=~expression, use_threads=False).to_table()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
        raise InvalidInputError(
            f"condition {text_of(expression) or ''} does not fit: {error}", kind="bad_filter"
        ) from error
