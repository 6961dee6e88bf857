"""From a caller's rows to a delta of a table with column groups: the groups that each row supplies.

Every load of such a table is checked here, whole rows too. A group is given as a whole or not at all, for its
cells and its sequence are replaced together:

1. Whole rows (SM5): a group of which the data has a column is given; its other columns get their default or
   NULL. A group of which it has none is not given, nor is one of which a row says nothing but NULLs: wide
   rows of another stream look like that.
2. Fixed updates: the same, but a group named in part is refused, for what the rest should be depends on when
   the load arrives. Two parts are enough: the sequence alone in loads that only delete, and all but ON
   UPDATE columns, which get the load's moment (A4).
3. Flexible updates: as fixed ones, but row by row; a row that supplies a group in part is rejected.
4. "NULL means keep" is decided by the sequence: where all of it is NULL the group is not given, else it is,
   its NULLs included.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.check.partial_checker import PartialChecker
from seqstore.store.check.row_checker import Mask, RejectedRow, reject
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import Column
from seqstore.store.schema.column_groups import ColumnGroup


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
                self._leave_out_nulls(group, names, arrays, masks, deletes)
                continue
            self._stamp(group, names, arrays, masks)
            if not self.flexible:
                self._refuse_part(group, [column.name for column in missing], deletes)
            if self.ignore_null:
                self._keep_nulls(group, names, arrays, masks, deletes, rejected)
            elif self.flexible:
                self._reject_parts(group, given, masks, deletes, rejected)
        order = {name: number for number, name in enumerate(self.schema.names)}
        paired = sorted(zip(names, arrays, strict=True), key=lambda pair: order[pair[0].name])
        names[:], arrays[:] = [name for name, _ in paired], [array for _, array in paired]

    def _leave_out_nulls(
        self,
        group: ColumnGroup,
        names: Sequence[Column],
        arrays: Sequence[pa.Array],
        masks: dict[str, Mask],
        deletes: Mask,
    ) -> None:
        """Applies rule 1. A row that deletes supplies the sequences it has, NULL too."""
        own = [array for column, array in zip(names, arrays, strict=True) if column.name in group.columns]
        if not all(array.null_count for array in own):
            return
        given = deletes.copy()
        for array in own:
            given |= np.asarray(array.is_valid())
        for name in group.columns:
            masks[name] = given

    def _stamp(
        self, group: ColumnGroup, names: list[Column], arrays: list[pa.Array], masks: dict[str, Mask]
    ) -> None:
        """Sets ON UPDATE columns of a given group to the load's moment where a row lacks them (A4, F24)."""
        for column in (self.schema.column(name) for name in group.cells):
            if not column.on_update_current_timestamp:
                continue
            moment = self._omitted(column, {}, len(arrays[0]), None)
            known = [number for number, other in enumerate(names) if other.name == column.name]
            if not known:
                names.append(column)
                arrays.append(moment)
            elif column.name in self._supplied:
                mask = pa.array(self._supplied[column.name])
                arrays[known[0]] = pc.if_else(mask, arrays[known[0]], moment)
            masks.pop(column.name, None)
            if group.sequence[0] in masks:
                masks[column.name] = masks[group.sequence[0]]

    def _refuse_part(self, group: ColumnGroup, missing: Sequence[str], deletes: Mask) -> None:
        """Raises for a group named in part (rule 2).

        Rows that delete need no cells, and no sequence of a group that is removed as it stands.
        """
        if deletes.all():
            missing = [name for name in missing if name in group.sequence]
            missing = missing if len(missing) < len(group.sequence) else []
        for column in (self.schema.column(name) for name in missing):
            if not column.on_update_current_timestamp:
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
        deletes: Mask,
        rejected: dict[int, RejectedRow],
    ) -> None:
        """Applies rule 4, and A2 for the cells that are supplied after all."""
        found = {column.name: array for column, array in zip(names, arrays, strict=True)}
        given = np.zeros(len(deletes), dtype=np.bool_)
        for name in group.sequence:
            if name in found:
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
        columns: Collection[str],
        masks: Mapping[str, Mask],
        deletes: Mask,
        rejected: dict[int, RejectedRow],
    ) -> None:
        """Rejects rows that supply a group in part (rule 3)."""
        every = np.ones(len(deletes), dtype=np.bool_)
        supplied = {name: masks.get(name, every) if name in columns else ~every for name in group.columns}
        ordered = np.logical_or.reduce([supplied[name] for name in group.sequence])
        some = np.logical_or.reduce(list(supplied.values()))
        for name, mask in supplied.items():
            column = self.schema.column(name)
            if column.on_update_current_timestamp:
                continue
            needed = some & ~deletes
            if name in group.sequence:
                needed |= ordered
            for row in np.flatnonzero(needed & ~mask):
                reject(rejected, int(row), name, self._refusal(group, column).message)
