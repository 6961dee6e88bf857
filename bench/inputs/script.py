"""A workload as data: a table, its first rows, then steps, and what the table must hold after each step.

The expectation is worked out with NumPy alone. Keys get whole numbers; by number it is kept where the value
of each column comes from. It shares no code and no idea with the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

Kind = Literal["upsert", "insert", "update", "delete"]
Numbers = npt.NDArray[np.int64]
_NOWHERE: Final = -1
_FIRST: Final = np.iinfo(np.int64).min


@dataclass(frozen=True)
class TableSpec:
    """A table that every contender makes in its own way.

    Attributes:
        schema: columns and types, the key's first.
        key: names of the key's columns.
        sequence: of two rows of a key the larger one stays, then the later one; None: the later one.
    """

    schema: pa.Schema
    key: tuple[str, ...]
    sequence: str | None = None

    @property
    def values(self) -> list[str]:
        """The columns that are not of the key."""
        return [name for name in self.schema.names if name not in self.key]


@dataclass(frozen=True)
class Step:
    """One timed call.

    Attributes:
        kind: `upsert` new and known keys; `insert` keys known to be new, each once; `update` some columns of
            stored keys, each once; `delete` keys.
        rows: of an update the key and the columns that change, of a deletion the key.
    """

    kind: Kind
    rows: pa.Table


@dataclass(frozen=True)
class Script:
    """A base, loaded at once, and the steps that follow."""

    spec: TableSpec
    base: pa.Table
    steps: Sequence[Step]

    def expected(self, steps: int) -> pa.Table:
        """The rows after so many steps, in no particular order."""
        return _State(self.spec, [Step("upsert", self.base), *self.steps[:steps]]).rows()

    def input_bytes(self, steps: int) -> int:
        """Bytes given in so many steps, in Arrow's format."""
        return sum(int(step.rows.nbytes) for step in self.steps[:steps])


class _State:
    """Where each value of each key comes from, after some steps."""

    def __init__(self, spec: TableSpec, steps: Sequence[Step]) -> None:
        self._spec, self._steps = spec, steps
        ids, count = _numbered([step.rows.select(list(spec.key)) for step in steps])
        self._largest = np.full(count, _FIRST)
        self._source = {name: np.full(count, _NOWHERE) for name in spec.schema.names}
        offsets = dict.fromkeys(spec.schema.names, 0)
        for step, keys in zip(steps, ids, strict=True):
            self._apply(step, keys, offsets)
            for name in step.rows.column_names:
                offsets[name] += len(step.rows)

    def _apply(self, step: Step, keys: Numbers, offsets: dict[str, int]) -> None:
        if step.kind == "delete":
            for source in self._source.values():
                source[keys] = _NOWHERE
            self._largest[keys] = _FIRST
            return
        rows = np.arange(len(keys))
        if step.kind == "upsert":
            rows = self._winners(step.rows, keys)
        for name in step.rows.column_names:
            self._source[name][keys[rows]] = rows + offsets[name]

    def _winners(self, rows: pa.Table, keys: Numbers) -> Numbers:
        """Row numbers of those that stay; notes their sequences."""
        if self._spec.sequence is None:
            sequence = np.zeros(len(keys), dtype=np.int64)
        else:
            sequence = whole_numbers(rows.column(self._spec.sequence))
        order = np.lexsort((sequence, keys))  # stable: of equal ones the last to come is last
        ordered = keys[order]
        last = order[np.append(ordered[1:] != ordered[:-1], True)] if len(order) else order
        kept = last[sequence[last] >= self._largest[keys[last]]]
        self._largest[keys[kept]] = sequence[kept]
        return kept

    def rows(self) -> pa.Table:
        live = np.flatnonzero(self._source[self._spec.key[0]] != _NOWHERE)
        columns = []
        for field in self._spec.schema:
            parts = [step.rows.column(field.name) for step in self._steps if _gives(step, field.name)]
            chunks = [chunk.cast(field.type) for part in parts for chunk in part.chunks]
            every = pa.chunked_array(chunks, field.type)
            columns.append(every.take(pa.array(self._source[field.name][live])))
        return pa.table(columns, schema=self._spec.schema)


def _gives(step: Step, name: str) -> bool:
    return name in step.rows.column_names


def whole_numbers(column: pa.ChunkedArray) -> Numbers:
    """A sequence column as 64-bit numbers; times by their ticks."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int64())
    return np.asarray(column).astype(np.int64, copy=False)


def winners(spec: TableSpec, rows: pa.Table) -> pa.Table:
    """One row per key, for stores that accept no more: the largest sequence, then the last to come."""
    [keys], _ = _numbered([rows.select(list(spec.key))])
    sequence = whole_numbers(rows.column(spec.sequence)) if spec.sequence else np.zeros(len(rows), np.int64)
    order = np.lexsort((sequence, keys))
    ordered = keys[order]
    if not len(order) or (ordered[1:] != ordered[:-1]).all():
        return rows
    return rows.take(pa.array(order[np.append(ordered[1:] != ordered[:-1], True)]))


def _numbered(tables: Sequence[pa.Table]) -> tuple[list[Numbers], int]:
    """Keys as whole numbers from 0 on, the same for the same key, by table; and how many there are."""
    total: Any = np.zeros(sum(len(table) for table in tables), dtype=np.int64)
    for name in tables[0].column_names:
        chunks = [chunk for table in tables for chunk in table.column(name).chunks]
        codes = _codes(pa.chunked_array(chunks, chunks[0].type if chunks else tables[0].column(name).type))
        total = total * (int(codes.max(initial=0)) + 1) + codes
        total = np.unique(total, return_inverse=True)[1].reshape(-1).astype(np.int64)
    ends = np.cumsum([len(table) for table in tables])[:-1]
    return np.split(total, ends), int(total.max(initial=-1)) + 1


def _codes(column: pa.ChunkedArray) -> Numbers:
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return np.asarray(encoded.indices).astype(np.int64)


def differences(expected: pa.Table, found: Iterable[pa.RecordBatch]) -> list[str]:
    """Compares rows in any order, all values of them, by a hash of each; empty means equal."""
    names, schema = expected.schema.names, expected.schema
    reader = pa.RecordBatchReader.from_batches(schema, _conformed(found, schema))
    wanted, seen = (_hashes(rows, names) for rows in (expected, reader))
    numbers = np.unique(np.concatenate((wanted, seen)), return_inverse=True)[1].reshape(-1)
    many = int(numbers.max(initial=-1)) + 1
    balance = np.bincount(numbers[: len(wanted)], minlength=many)
    balance = balance - np.bincount(numbers[len(wanted) :], minlength=many)
    missing, other = int(balance[balance > 0].sum()), int(-balance[balance < 0].sum())
    counts = {"rows missing or with other values": missing, "rows that should not be there": other}
    return [f"{count} {what}" for what, count in counts.items() if count]


def _conformed(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [batch.column(field.name).cast(field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _hashes(rows: pa.Table | pa.RecordBatchReader, names: Sequence[str]) -> npt.NDArray[np.uint64]:
    listed = ", ".join(f'"{name}"' for name in names)
    with duckdb.connect() as connection:
        connection.register("given", rows)
        result = connection.execute(f"SELECT hash({listed}) AS h FROM given").fetchnumpy()["h"]
    return np.asarray(result, dtype=np.uint64)
