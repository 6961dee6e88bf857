"""Values of the partitions of Delta files: the log has them as text, the files do not have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from seqstore.loaders.lake.conform import in_zone
from seqstore.loaders.lake.field import LakeField
from seqstore.store.errors import InvalidInputError


class PartitionValues:
    """The partitions of one table.

    Args:
        metadata: its `metaData` action.
        zone: to which times with a zone are converted: a name, or an offset such as `+02:00`.
    """

    def __init__(self, metadata: Mapping[str, Any], fields: Sequence[LakeField], zone: str) -> None:
        partitioned = set(metadata.get("partitionColumns") or ())
        self._fields = [field for field in fields if field.name in partitioned]
        self._zone = zone

    def of(self, action: Mapping[str, Any]) -> dict[str, pa.Scalar]:
        """Returns the values of a file, by column.

        Raises:
            InvalidInputError: the action does not tell them, or one is none of its type.
        """
        values = action.get("partitionValues")
        if values is None and self._fields:
            raise InvalidInputError(
                f"the Delta log tells no partition of file {action['path'][:200]}, which a commit removes",
                kind="not_supported",
            )
        return {field.name: self._constant(field, values or {}) for field in self._fields}

    def _constant(self, field: LakeField, values: Mapping[str, str | None]) -> pa.Scalar:
        """Returns the value of a partition: NULL is no text, or an empty one."""
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
