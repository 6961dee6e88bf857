"""Equality deletes of Iceberg: files of values; older rows that equal one of them are deleted.

Values are compared column by column, NULL equal to NULL. A file applies to data files of a smaller sequence
number, and of its own partition unless it has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from seqstore.loaders.lake.field import LakeField
from seqstore.loaders.lake.file_rows import NONE_HIDDEN, FileRows
from seqstore.store.errors import InvalidInputError


@dataclass(frozen=True)
class EqualityDelete:
    """A file of deleted values.

    Attributes:
        path: local.
        ids: field ids of the columns that count.
    """

    path: str
    ids: tuple[int, ...]


class EqualityDeletes:
    """Applies files of deleted values to rows; reads each file once.

    Args:
        fields: the columns of the rows.
        zone: as of the rows.
        kind: of errors of files.
    """

    def __init__(self, fields: Sequence[LakeField], zone: str, kind: str) -> None:
        self._by_id = {field.number: field for field in fields}
        self._zone = zone
        self._kind = kind
        self._values: dict[EqualityDelete, pa.Table] = {}

    def check(self, delete: EqualityDelete) -> None:
        """Checks that the columns of a file are columns of the table.

        Raises:
            InvalidInputError: names the field id.
        """
        missing = [number for number in delete.ids if number not in self._by_id]
        if missing or not delete.ids:
            raise InvalidInputError(
                f"{delete.path}: it deletes by the field ids {list(delete.ids)}; expected ids of columns of "
                f"the table, {list(self._by_id)}; compact the table with its own engine first",
                kind="not_supported",
            )

    def live(self, batch: pa.RecordBatch, deletes: Sequence[EqualityDelete]) -> pa.RecordBatch:
        """Returns the rows that equal none of the values."""
        groups: dict[tuple[int, ...], list[pa.Table]] = {}
        for delete in deletes:
            groups.setdefault(delete.ids, []).append(self._read(delete))
        for ids, values in groups.items():
            batch = _unequal(batch, [self._by_id[number].name for number in ids], pa.concat_tables(values))
        return batch

    def _read(self, delete: EqualityDelete) -> pa.Table:
        if delete not in self._values:
            fields = [self._by_id[number] for number in delete.ids]
            needed: Mapping[str, str] = {
                field.name: f"lacks column {field.name}, by which it deletes" for field in fields
            }
            rows = FileRows(fields, self._zone, self._kind).batches(delete.path, NONE_HIDDEN, {}, needed)
            schema = pa.schema([pa.field(field.name, field.type.arrow) for field in fields])
            self._values[delete] = pa.Table.from_batches([batch.cast(schema) for batch in rows], schema)
        return self._values[delete]


def _unequal(batch: pa.RecordBatch, names: Sequence[str], values: pa.Table) -> pa.RecordBatch:
    short = [f"c{number}" for number in range(len(names))]
    rows = pa.table([batch.column(name) for name in names], names=short)
    rows = rows.append_column("place", pa.array(range(batch.num_rows), pa.int64()))
    same = " AND ".join(f"rows.{name} IS NOT DISTINCT FROM gone.{name}" for name in short)
    with closing(duckdb.connect()) as connection:
        connection.register("rows", rows)
        connection.register("gone", values.rename_columns(short))
        found = connection.sql(f"SELECT place FROM rows ANTI JOIN gone ON {same} ORDER BY place")
        return batch.take(found.to_arrow_table().column(0).combine_chunks())
