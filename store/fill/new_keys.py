"""New keys of partial updates: the two refusals, in the words of Doris (P7, P10, F25)."""

from __future__ import annotations

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import Column
from seqstore.store.schema.table_schema import TableSchema


def new_key_refused(rows: pa.Table, row: int, schema: TableSchema) -> InvalidInputError:
    """Builds the error for a key without a live row, where new keys are refused (P10)."""
    shown = ", ".join(str(rows.column(name)[row].as_py()) for name in schema.key)
    return InvalidInputError(
        "[E-7003]Can't append new rows in partial update when partial_update_new_key_behavior is ERROR. "
        f"Row with key=[{shown}] is not in table.",
        kind="new_key",
    )


def unmentioned_column(column: Column, *, flexible: bool) -> InvalidInputError:
    """Builds the error for a new key that leaves a NOT NULL column without default unsupplied (P7, F25)."""
    mode = "flexible partial update" if flexible else "partial update"
    return InvalidInputError(
        f"the unmentioned column `{column.name}` should have default value or be nullable for newly "
        f"inserted rows in non-strict mode {mode}",
        kind="missing_column",
        column=column.name,
    )
