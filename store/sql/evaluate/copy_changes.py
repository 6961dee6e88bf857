"""The rows of a copy of columns in DuckDB: how they come, and how they follow the versions of their table.

A copy has a column with the numbers of its rows (`store.read.numbered_scan`), in their order. So

1. the rows of a segment that went are a range, which DuckDB finds by its bounds,
2. other rows that went are removed by a join with their numbers,
3. and rows that came are appended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from seqstore.store.read.numbered_scan import NUMBER, RowChanges

if TYPE_CHECKING:
    import duckdb

CHANGED_SHARE: Final = 0.125  # of the rows of a version, up to which a copy follows
_USED: Final = (
    "SELECT coalesce(sum(memory_usage_bytes), 0) FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
)


class RowsToCopy(NamedTuple):
    """What a copy needs for the rows of a version.

    Attributes:
        added: the rows that come, with a column `NUMBER`.
        changes: which rows come and go.
    """

    added: pa.RecordBatchReader
    changes: RowChanges


def change_rows(
    cursor: duckdb.DuckDBPyConnection,
    table: str,
    rows: RowsToCopy,
    bytes_a_step: int,
    *,
    is_new: bool = False,
) -> Iterator[None]:
    """Removes and inserts rows of a copy, step by step.

    Args:
        bytes_a_step: of the rows that come, uncompressed.
        is_new: the copy has no table yet.
    """
    number = _quoted(NUMBER)
    for first, end in rows.changes.gone:
        cursor.execute(f"DELETE FROM {table} WHERE {number} >= {first} AND {number} < {end}")
    if len(rows.changes.hidden):
        cursor.register("__hidden__", pa.table({"number": rows.changes.hidden}))
        cursor.execute(f"DELETE FROM {table} WHERE {number} IN (SELECT number FROM __hidden__)")
        cursor.unregister("__hidden__")
    columns = ", ".join(map(_quoted, rows.added.schema.names))
    into = f"CREATE TABLE {table} AS" if is_new else f"INSERT INTO {table}"
    for part in _steps(rows.added, bytes_a_step):
        cursor.register("__rows__", part)
        cursor.execute(f"{into} SELECT {columns} FROM __rows__")
        cursor.unregister("__rows__")
        into = f"INSERT INTO {table}"
        yield


def compress(cursor: duckdb.DuckDBPyConnection, database: str) -> None:
    """Compresses the rows of a copy that came since."""
    cursor.execute(f"CHECKPOINT {database}")


def used_bytes(cursor: duckdb.DuckDBPyConnection) -> int:
    """Returns the memory of all tables of a database."""
    return int(cursor.execute(_USED).fetchall()[0][0])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _steps(rows: pa.RecordBatchReader, bytes_max: int) -> Iterator[pa.Table]:
    """Joins batches to parts of about `bytes_max`, at least to one."""
    joined: list[pa.RecordBatch] = []
    held, has_part = 0, False
    for batch in rows:
        joined.append(batch)
        held += batch.nbytes
        if held >= bytes_max:
            yield pa.Table.from_batches(joined)
            joined, held, has_part = [], 0, True
    if joined or not has_part:
        yield pa.Table.from_batches(joined, rows.schema)
