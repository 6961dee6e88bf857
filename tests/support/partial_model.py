"""Partial updates of tables without column groups, kept as plain dictionaries, one row at a time.

A load is its rows in order, a history its loads in the order of their versions. Rules, by id: whole rows SO1,
SO2, SO10; cells that are not supplied P6, P7, P25; the sequence P20-P23, P26, F15-F19, F22; deletes D8, D9,
P28, F12, F23. The model shares no code with the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqstore import Table

Key = tuple[Any, ...]
DELETE_SIGN, SEQUENCE_COL = "__DELETE_SIGN__", "__SEQUENCE_COL__"
ROWS, FIXED, FLEXIBLE = "UPSERT", "UPDATE_FIXED_COLUMNS", "UPDATE_FLEXIBLE_COLUMNS"


@dataclass(frozen=True)
class Stored:
    """One row; `values` are the columns beside the key."""

    values: Mapping[str, Any]
    sequence: Any = None
    is_tombstone: bool = False


@dataclass
class PartialModel:
    """One table.

    Attributes:
        key, columns: names of the key columns and of the others.
        sequence: the mapped column, `__SEQUENCE_COL__`, or None.
        defaults: column -> what it holds when nobody gives it; NULL where it is not named.
    """

    key: Sequence[str]
    columns: Sequence[str]
    sequence: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    rows: dict[Key, Stored] = field(default_factory=dict)

    def apply(self, rows: Iterable[Mapping[str, Any]], mode: str) -> None:
        """Applies rows that hold the cells they supply and, if they delete, the sign."""
        for row in rows:
            key = tuple(row[name] for name in self.key)
            self._apply(key, row, mode)

    def _apply(self, key: Key, row: Mapping[str, Any], mode: str) -> None:
        stored = self.rows.get(key)
        gives = self.sequence is not None and self.sequence in row
        if stored is not None and gives and _is_smaller(row[str(self.sequence)], stored.sequence):
            return
        deletes = bool(row.get(DELETE_SIGN))
        base = {name: self.defaults.get(name) for name in self.columns}
        if stored is not None and mode != ROWS:
            if not stored.is_tombstone:
                base = dict(stored.values)
            elif mode == FLEXIBLE and self.sequence in base:
                base[self.sequence] = stored.sequence
        values = base | {name: row[name] for name in self.columns if name in row}
        self.rows[key] = Stored(values, self._sequence(row, stored, gives=gives), deletes)

    def _sequence(self, row: Mapping[str, Any], stored: Stored | None, *, gives: bool) -> Any:
        if self.sequence is None:
            return None
        if gives:
            return row[self.sequence]
        return stored.sequence if stored is not None else self.defaults.get(self.sequence)

    def live(self) -> dict[Key, dict[str, Any]]:
        """What a reader sees: key -> the other columns."""
        return {key: dict(row.values) for key, row in self.rows.items() if not row.is_tombstone}

    def hidden(self) -> dict[Key, tuple[int, Any]]:
        """Every key with its sign and sequence."""
        return {key: (int(row.is_tombstone), row.sequence) for key, row in self.rows.items()}


def assert_partial(table: Table, model: PartialModel) -> None:
    """The table's rows, signs and sequences are the model's."""
    key = list(model.key)
    live = {tuple(row.pop(name) for name in key): row for row in table.scan().read_all().to_pylist()}
    assert live == model.live()
    names = [*key, DELETE_SIGN, *([SEQUENCE_COL] if model.sequence else [])]
    rows = table.scan(names, deleted=True).read_all().to_pylist()
    hidden = {tuple(row[name] for name in key): (row[DELETE_SIGN], row.get(SEQUENCE_COL)) for row in rows}
    assert len(hidden) == len(rows), "a key has two rows"
    assert hidden == model.hidden()
    assert table.check() == []


def _is_smaller(left: Any, right: Any) -> bool:
    """Strictly smaller, NULL below everything (SO4)."""
    if left is None or right is None:
        return left is None and right is not None
    return bool(left < right)
