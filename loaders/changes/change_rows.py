"""The rows that the messages of a block make, before their fields are looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.loaders.changes.field_type import FieldType
from seqstore.loaders.changes.positions import PositionKind
from seqstore.loaders.headers import ChangeOptions

TEXT: Final = pa.string()
NO_SHAPE: Final = -1

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Shapes = npt.NDArray[np.int32]


@dataclass(frozen=True)
class ChangeRows:
    """Rows in the order of their messages.

    Attributes:
        documents: the JSON object of each row: its new image, of a deleted row the old one or the key.
        before: the old image of an updated row, or the part of it that changed; NULL without one.
        origins: the message of each row; ascending.
        deleted: rows that are deletes.
        positions: the sequence of each row, as the text of an integer; NULL where the message has none.
        kinds: the kinds of positions that there are.
        shapes: for each row, the place of its types in `types`; `NO_SHAPE` without a schema.
        types: the types of fields that schemas of the messages declare, by name.
        bad: messages that cannot be rows, with the reason.
        is_document: a field that an image lacks was removed; otherwise it is not known.
        lacks_deletes: rows of a format whose deletes are tombstones alone.
    """

    documents: pa.Array
    before: pa.Array
    origins: Positions
    deleted: Mask
    positions: pa.Array
    kinds: frozenset[PositionKind] = frozenset()
    shapes: Shapes | None = None
    types: Sequence[Mapping[str, FieldType]] = ()
    bad: Mapping[int, str] = field(default_factory=dict)
    is_document: Mask | None = None
    lacks_deletes: bool = False

    def __len__(self) -> int:
        return len(self.origins)

    def filtered(self, kept: Mask) -> ChangeRows:
        """Returns some of the rows."""
        rows = pa.array(kept)
        return replace(
            self,
            documents=self.documents.filter(rows),
            before=self.before.filter(rows),
            origins=self.origins[kept],
            deleted=self.deleted[kept],
            positions=self.positions.filter(rows),
            shapes=None if self.shapes is None else self.shapes[kept],
            is_document=None if self.is_document is None else self.is_document[kept],
        )


@dataclass(frozen=True)
class Messages:
    """Messages of a block, each a JSON object.

    Attributes:
        values: their texts.
        keys: the texts of their keys, NULL without one.
        columns: the columns of the table, in lower case.
    """

    values: pa.Array
    keys: pa.Array
    columns: frozenset[str]


Dialect = Callable[[Messages, ChangeOptions], ChangeRows]


def no_text(count: int) -> pa.Array:
    """Returns `count` texts that are NULL."""
    return pa.nulls(count, TEXT)


def joined(parts: Sequence[ChangeRows]) -> ChangeRows:
    """Returns the rows of several kinds of messages in the order of the messages."""
    if not parts:
        none = np.zeros(0, np.int64)
        return ChangeRows(no_text(0), no_text(0), none, np.zeros(0, np.bool_), no_text(0))
    types: list[Mapping[str, FieldType]] = []
    shapes = []
    for part in parts:
        own = np.full(len(part), NO_SHAPE, np.int32) if part.shapes is None else part.shapes
        shapes.append(np.where(own == NO_SHAPE, own, own + len(types)).astype(np.int32))
        types += part.types
    origins = np.concatenate([part.origins for part in parts])
    order = np.argsort(origins, kind="stable")
    rows = pa.array(order)
    return ChangeRows(
        pa.concat_arrays([part.documents for part in parts]).take(rows),
        pa.concat_arrays([part.before for part in parts]).take(rows),
        origins[order],
        np.concatenate([part.deleted for part in parts])[order],
        pa.concat_arrays([part.positions for part in parts]).take(rows),
        frozenset().union(*(part.kinds for part in parts)),
        np.concatenate(shapes)[order],
        types,
        {message: reason for part in parts for message, reason in part.bad.items()},
        np.concatenate([_documents(part) for part in parts])[order],
        any(part.lacks_deletes for part in parts),
    )


def _documents(part: ChangeRows) -> Mask:
    return np.zeros(len(part), np.bool_) if part.is_document is None else part.is_document
