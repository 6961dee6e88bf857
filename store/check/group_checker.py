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
from seqstore.store.check.row_checker import Batch, Mask
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

    def _require_keys(self, given: dict[str, pa.ChunkedArray]) -> None:
        if not self.whole_rows:
            super()._require_keys(given)
        for name in self.schema.key:
            if name not in given:
                self._omitted(self.schema.column(name), Batch(dict(given), 0))

    def _finished(
        self, batch: Batch, cells: dict[str, pa.Array], masks: dict[str, Mask]
    ) -> dict[str, pa.Array]:
        """Completes the given groups; returns the cells in table order."""
        deletes = batch.is_tombstone
        deletes = deletes if deletes is not None else np.zeros(batch.rows, dtype=np.bool_)
        for group in self.schema.column_groups.values():
            given = [name for name in group.columns if name in cells]
            missing = [name for name in group.columns if name not in cells]
            if not given:
                continue
            if self.whole_rows:
                cells |= {name: self._omitted(self.schema.column(name), batch) for name in missing}
                self._leave_out_nulls(group, cells, masks, deletes)
                continue
            self._stamp(group, batch, cells, masks)
            if not self.flexible:
                self._refuse_part(group, missing, deletes)
            if self.ignore_null:
                self._keep_nulls(group, batch, cells, masks, deletes)
            if self.flexible:
                self._reject_parts(group, batch, given, masks, deletes)
        return {name: cells[name] for name in self.schema.names if name in cells}

    def _leave_out_nulls(
        self, group: ColumnGroup, cells: Mapping[str, pa.Array], masks: dict[str, Mask], deletes: Mask
    ) -> None:
        """Applies rule 1. A row that deletes supplies the sequences it has, NULL too."""
        own = [cells[name] for name in group.columns]
        if all(array.null_count for array in own):
            given: Mask = np.logical_or.reduce([deletes, *(np.asarray(array.is_valid()) for array in own)])
            masks.update(dict.fromkeys(group.columns, given))

    def _stamp(
        self, group: ColumnGroup, batch: Batch, cells: dict[str, pa.Array], masks: dict[str, Mask]
    ) -> None:
        """Sets ON UPDATE columns of a given group to the load's moment where a row lacks them (A4, F24)."""
        for name in group.cells:
            column = self.schema.column(name)
            if not column.on_update_current_timestamp:
                continue
            moment = self._omitted(column, batch)
            if name not in cells:
                cells[name] = moment
            elif name in batch.supplied:
                cells[name] = pc.if_else(pa.array(batch.supplied[name]), cells[name], moment)
            masks.pop(name, None)
            if group.sequence[0] in masks:
                masks[name] = masks[group.sequence[0]]

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
        batch: Batch,
        cells: Mapping[str, pa.Array],
        masks: dict[str, Mask],
        deletes: Mask,
    ) -> None:
        """Applies rule 4, and A2 for the cells that are supplied after all."""
        given = np.zeros(len(deletes), dtype=np.bool_)
        for name in group.sequence:
            if name in cells:
                given |= np.asarray(cells[name].is_valid())
        mask = batch.supplied.get(group.sequence[0])
        given = given if mask is None else given & mask
        for name in group.columns:
            if name not in cells:
                continue
            masks[name] = given
            if not self.schema.column(name).nullable and cells[name].null_count:
                missing = np.asarray(cells[name].is_null())
                batch.reject_nulls(missing & given & ~deletes, name)

    def _reject_parts(
        self,
        group: ColumnGroup,
        batch: Batch,
        columns: Collection[str],
        masks: Mapping[str, Mask],
        deletes: Mask,
    ) -> None:
        """Rejects rows that supply a group in part (rule 3)."""
        every = np.ones(len(deletes), dtype=np.bool_)
        supplied = {name: masks.get(name, every) if name in columns else ~every for name in group.columns}
        ordered = np.logical_or.reduce([supplied[name] for name in group.sequence])
        some = np.logical_or.reduce(list(supplied.values()))
        for name, mask in supplied.items():
            column = self.schema.column(name)
            if not column.on_update_current_timestamp:
                needed = some & ~deletes
                needed = needed | ordered if name in group.sequence else needed
                batch.reject(needed & ~mask, name, self._refusal(group, column).message)
