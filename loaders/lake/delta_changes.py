"""The changes of one commit of a Delta table: first its rows that went, then those that came.

1. Where the commit has files of the change data feed, they have the changes.
2. Else they follow from its files: the rows of added files came, those of removed files went; of a file whose
   deletion vector was replaced, the rows by which the vectors differ. A row that was only rewritten goes and
   comes.
3. A commit that only moves rows changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seqstore.loaders.lake.delta_partitions import PartitionValues
from seqstore.loaders.lake.delta_schema import delta_fields
from seqstore.loaders.lake.delta_vectors import hidden_rows
from seqstore.loaders.lake.field import LakeField
from seqstore.loaders.lake.file_rows import NONE_HIDDEN, FileRows, Positions
from seqstore.loaders.lake.places import Places
from seqstore.store.errors import InvalidInputError
from seqstore.store.types.column_types import ColumnType

KIND: Final = "_change_type"
VERSION: Final = "_commit_version"
GONE: Final = ("delete", "update_preimage")
_CAME: Final = ("insert", "update_postimage")
Action = Mapping[str, Any]


class DeltaChanges:
    """Reads the changes of commits that have one schema.

    Args:
        metadata: the table's `metaData` action as of these commits.
        zone: to which times with a zone are converted: a name, or an offset such as `+02:00`.

    Raises:
        InvalidInputError: a column has no type here, or the name of a column of the changes.
    """

    def __init__(self, root: str, places: Places, metadata: Mapping[str, Any], zone: str) -> None:
        self._root = root
        self._places = places
        fields = delta_fields(metadata)
        for field in fields:
            if field.name.lower() in (KIND, VERSION):
                raise InvalidInputError(
                    f"{root}: its column {field.name} has the name of a column of the changes",
                    kind="not_supported",
                    column=field.name,
                )
        self._partitions = PartitionValues(metadata, fields, zone)
        self._files = FileRows(fields, zone, "bad_delta")
        self._feed = FileRows([*fields, LakeField(KIND, KIND, None, ColumnType("STRING"))], zone, "bad_delta")
        self.schema = pa.schema(
            [
                *(pa.field(field.name, field.type.arrow) for field in fields),
                (KIND, pa.string()),
                (VERSION, pa.int64()),
            ]
        )

    def batches(self, version: int, actions: Sequence[Action]) -> Iterator[pa.RecordBatch]:
        """Yields the changes of a commit, with the columns of `schema`.

        Raises:
            InvalidInputError: a file is damaged, or does not have the types of the table.
            NotFoundError: a file is missing.
            AccessDeniedError: a file is not below an allowed directory.
        """
        feed = [action["cdc"] for action in actions if action.get("cdc") is not None]
        if feed:
            yield from self._told(version, feed)
        else:
            yield from self._derived(version, actions)

    def rows(self, version: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows of the table as ones that came."""
        return self._change(version, batch, _CAME[0])

    def _told(self, version: int, feed: Sequence[Action]) -> Iterator[pa.RecordBatch]:
        for kinds in (GONE, _CAME):
            wanted = pa.array(kinds)
            for action in feed:
                path = self._places.file(action["path"], self._root)
                for batch in self._feed.batches(path, NONE_HIDDEN, self._partitions.of(action), {}):
                    found = batch.filter(pc.is_in(batch.column(KIND), wanted))
                    columns = [*found.columns, _all(version, pa.int64(), found.num_rows)]
                    yield pa.record_batch(columns, schema=self.schema)

    def _derived(self, version: int, actions: Sequence[Action]) -> Iterator[pa.RecordBatch]:
        added, removed = _by_path(actions, "add"), _by_path(actions, "remove")
        for files, others, kind in ((removed, added, GONE[0]), (added, removed, _CAME[0])):
            for name, action in files.items():
                path = self._places.file(name, self._root)
                hidden = self._hidden(action)
                if name in others:
                    hidden = _all_but(np.setdiff1d(self._hidden(others[name]), hidden), path)
                for batch in self._files.batches(path, hidden, self._partitions.of(action), {}):
                    yield self._change(version, batch, kind)

    def _hidden(self, action: Action) -> Positions:
        vector = action.get("deletionVector")
        return hidden_rows(vector, self._root, self._places) if vector else NONE_HIDDEN

    def _change(self, version: int, batch: pa.RecordBatch, kind: str) -> pa.RecordBatch:
        count = batch.num_rows
        columns = [*batch.columns, _all(kind, pa.string(), count), _all(version, pa.int64(), count)]
        return pa.record_batch(columns, schema=self.schema)


def _by_path(actions: Sequence[Action], kind: str) -> dict[str, Action]:
    """Returns the actions of a kind that change rows."""
    found = [action[kind] for action in actions if action.get(kind) is not None]
    return {action["path"]: action for action in found if action.get("dataChange", True)}


def _all_but(rows: Positions, path: str) -> Positions:
    """Returns the places of all other rows of a file."""
    count = pq.read_metadata(path).num_rows
    return np.setdiff1d(np.arange(count, dtype=np.uint32), rows)


def _all(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)
