"""A version of a table of another format, ready to be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from seqstore.store.schema.column import Column


@dataclass(frozen=True)
class LakeTable:
    """A version of a table of another format.

    Attributes:
        identity: of the table.
        version: of Delta's log, or the id of Iceberg's snapshot.
        columns: in their order.
        batches: yields the live rows, with those columns.
        comment: of the table.
    """

    identity: str
    version: int
    columns: Sequence[Column]
    batches: Callable[[], Iterator[pa.RecordBatch]]
    comment: str = ""
