"""The live rows of a version of a Delta table: those of its files that no deletion vector hides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from seqstore.loaders.lake.delta_log import DeltaState
from seqstore.loaders.lake.delta_partitions import PartitionValues
from seqstore.loaders.lake.delta_vectors import hidden_rows
from seqstore.loaders.lake.field import LakeField
from seqstore.loaders.lake.file_rows import NONE_HIDDEN, FileRows
from seqstore.loaders.lake.places import Places


class DeltaRows:
    """The rows of one version.

    Args:
        zone: to which times with a zone are converted: a name, or an offset such as `+02:00`.
    """

    def __init__(
        self, root: str, places: Places, state: DeltaState, fields: Sequence[LakeField], zone: str
    ) -> None:
        self._root = root
        self._places = places
        self._state = state
        self._files = FileRows(fields, zone, "bad_delta")
        self._partitions = PartitionValues(state.metadata, fields, zone)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows of all files.

        Raises:
            InvalidInputError: a file is damaged, or does not have the types of the table.
            NotFoundError: a file is missing.
            AccessDeniedError: a file is not below an allowed directory.
        """
        for add in self._state.files.values():
            path = self._places.file(add["path"], self._root)
            vector = add.get("deletionVector")
            hidden = hidden_rows(vector, self._root, self._places) if vector else NONE_HIDDEN
            yield from self._files.batches(path, hidden, self._partitions.of(add), {})
