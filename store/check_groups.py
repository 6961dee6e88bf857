"""From a caller's rows to a delta of a table with column groups: which groups does a row give?

Every load of such a table comes here, whole rows too. A group is given as a whole or not at all, for its
cells and its sequence are replaced together:

1. Whole rows (SM5): a group of which the data has a column is given; its other columns take their default or
   NULL. A group of which it has none is not given.
2. Fixed updates: the same, but a group named in part is refused, for what the rest should be depends on when
   the load arrives. Two parts are enough: the sequence alone in loads that only delete, and all but ON
   UPDATE columns, which take the load's moment (A4).
3. Flexible updates: as fixed ones, but row by row; a row that supplies a group in part is rejected.
4. "NULL means keep" is decided by the sequence: where all of it is NULL the group is not given, else it is,
   its NULLs included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from store.check_partial import PartialChecker
from store.check_rows import Mask, RejectedRow, reject
from store.errors import InvalidInputError
from store.groups import ColumnGroup
from store.schema import Column


@dataclass
class GroupChecker(PartialChecker):
    """Checks the batches of one load of a table with column groups.

    Attributes:
        whole_rows: the load is no partial update.
    """

    whole_rows: bool = False

    def _require_keys(self, given: Mapping[str, pa.ChunkedArray]) -> None:
        if not self.whole_rows:
            super()._require_keys(given)
        for name in self.schema.key:
            if name not in given:
                self._omitted(self.schema.column(name), given, 0, None)

    def _finish(
        self,
        names: list[Column],
        arrays: list[pa.Array],
        masks: dict[str, Mask],
        is_tombstone: Mask | None,
        rejected: dict[int, RejectedRow],
    ) -> None:
        """Completes the given groups; names, arrays and masks are changed in place."""
        rows = len(arrays[0])
        deletes = is_tombstone if is_tombstone is not None else np.zeros(rows, dtype=np.bool_)
        for group in self.schema.column_groups.values():
            given = dict.fromkeys(column.name for column in names)
            missing = [self.schema.column(name) for name in group.columns if name not in given]
            if len(missing) == len(group.columns):
                continue
            if self.whole_rows:
                names += missing
                arrays += [self._omitted(column, given, rows, is_tombstone) for column in missing]
                continue
            self._complete(group, missing, names, arrays, masks, deletes)
            if self.ignore_null:
                self._keep_nulls(group, names, arrays, masks, deletes, rejected)
            elif masks:
                self._reject_parts(group, masks, deletes, rejected)
        order = {name: number for number, name in enumerate(self.schema.names)}
        paired = sorted(zip(names, arrays, strict=True), key=lambda pair: order[pair[0].name])
        names[:], arrays[:] = [name for name, _ in paired], [array for _, array in paired]

    def _complete(
        self,
        group: ColumnGroup,
        missing: Sequence[Column],
        names: list[Column],
        arrays: list[pa.Array],
        masks: dict[str, Mask],
        deletes: npt.NDArray[np.bool_],
    ) -> None:
        """Rule 2: columns of the group that the data does not have."""
        rows = len(deletes)
        for column in missing:
            if column.on_update_current_timestamp:
                names.append(column)
                arrays.append(self._omitted(column, {}, rows, None))
                mask = masks.get(group.sequence[0])
                if mask is not None:
                    masks[column.name] = mask
            elif column.name in group.sequence or not deletes.all():
                raise self._refusal(group, column)

    def _refusal(self, group: ColumnGroup, missing: Column) -> InvalidInputError:
        shown = ", ".join(group.columns)
        return InvalidInputError(
            f"Partial update should include all columns of a column group, missing: {missing.name}; the "
            f"group ({shown}) of {self.table} is replaced as one, ordered by {', '.join(group.sequence)}",
            kind="missing_column",
            column=missing.name,
        )

    def _keep_nulls(
        self,
        group: ColumnGroup,
        names: Sequence[Column],
        arrays: Sequence[pa.Array],
        masks: dict[str, Mask],
        deletes: npt.NDArray[np.bool_],
        rejected: dict[int, RejectedRow],
    ) -> None:
        """Rule 4, and A2 for what is given after all."""
        found = {column.name: array for column, array in zip(names, arrays, strict=True)}
        given = np.zeros(len(deletes), dtype=np.bool_)
        for name in group.sequence:
            given |= np.asarray(found[name].is_valid())
        mask = self._supplied.get(group.sequence[0])
        given = given if mask is None else given & mask
        for name in group.columns:
            if name not in found:
                continue
            masks[name] = given
            column = self.schema.column(name)
            if not column.nullable and found[name].null_count:
                missing = np.asarray(found[name].is_null())
                for row in np.flatnonzero(missing & given & ~deletes):
                    reason = f"column({name}) values is null while columns is not nullable"
                    reject(rejected, int(row), name, reason)

    def _reject_parts(
        self,
        group: ColumnGroup,
        masks: dict[str, Mask],
        deletes: npt.NDArray[np.bool_],
        rejected: dict[int, RejectedRow],
    ) -> None:
        """Rule 3."""
        every = np.ones(len(deletes), dtype=np.bool_)
        supplied = [masks.get(name, every) for name in group.columns]
        some = np.logical_or.reduce(supplied)
        for name, mask in zip(group.columns, supplied, strict=True):
            needed = some if name in group.sequence else some & ~deletes
            for row in np.flatnonzero(needed & ~mask):
                reject(rejected, int(row), name, self._refusal(group, self.schema.column(name)).message)
