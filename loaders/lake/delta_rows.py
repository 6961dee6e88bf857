"""The live rows of a version of a Delta table: those of its files that no deletion vector hides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from seqstore.loaders.lake.conform import in_zone
from seqstore.loaders.lake.delta_log import DeltaState
from seqstore.loaders.lake.delta_vectors import hidden_rows
from seqstore.loaders.lake.field import LakeField
from seqstore.loaders.lake.file_rows import NONE_HIDDEN, FileRows
from seqstore.loaders.lake.places import Places
from seqstore.store.errors import InvalidInputError


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
        self._zone = zone
        self._files = FileRows(fields, zone, "bad_delta")
        partitioned = set(state.metadata.get("partitionColumns") or ())
        self._partitioned = [field for field in fields if field.name in partitioned]

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
            values = add.get("partitionValues") or {}
            constants = {field.name: self._constant(field, values) for field in self._partitioned}
            yield from self._files.batches(path, hidden, constants, {})

    def _constant(self, field: LakeField, values: Mapping[str, str | None]) -> pa.Scalar:
        """Returns the value of a partition: the log has it as text, and NULL as no or an empty one."""
        text = values.get(field.stored_name)
        if not text:
            return pa.scalar(None, field.type.arrow)
        try:
            return _parsed(text, field, self._zone)
        except pa.ArrowException as error:
            raise InvalidInputError(
                f"partition value {text[:100]!r} of column {field.name}: expected {field.type.sql}",
                kind="bad_delta",
                column=field.name,
            ) from error


def _parsed(text: Any, field: LakeField, zone: str) -> pa.Scalar:
    """Parses a value; a time with a zone is in UTC if it ends in Z, else as the session's clock shows it."""
    if field.is_moment and text.endswith("Z"):
        return in_zone(pa.array([text[:-1]]).cast(pa.timestamp("us")), zone)[0]
    return pa.array([text]).cast(field.type.arrow)[0]
