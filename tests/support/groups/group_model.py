"""Tables with column groups, kept as plain dictionaries of registers: what the engine must agree with.

A register is one group of one key: its sequence (a tuple), its cells, and whether it is there. Rows are
applied one at a time, in order; a load is its rows in order, a history its loads in the order of their
versions. The model shares no code with the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Key = tuple[Any, ...]
DELETE_SIGN = "__DELETE_SIGN__"


@dataclass(frozen=True)
class Group:
    """Names of a group's columns."""

    sequence: tuple[str, ...]
    cells: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.sequence, *self.cells)


@dataclass(frozen=True)
class Register:
    """One group of one key; a sequence of NULLs is that of a group that was never written."""

    sequence: tuple[Any, ...]
    cells: Mapping[str, Any]
    is_there: bool = False

    @property
    def rank(self) -> tuple[tuple[bool, Any], ...]:
        """Compares as sequences do: from left to right, NULL lowest."""
        return tuple((value is not None, 0 if value is None else value) for value in self.sequence)


@dataclass
class GroupModel:
    """One table.

    Attributes:
        key: names of the key columns.
        defaults: column -> what it holds when nobody gives it; NULL where it is not named.
    """

    key: Sequence[str]
    groups: Sequence[Group]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    rows: dict[Key, list[Register]] = field(default_factory=dict)

    def apply(self, rows: Iterable[Mapping[str, Any]], *, whole_rows: bool = False) -> None:
        """Applies rows that hold the cells they supply and, if they delete, the sign.

        Args:
            whole_rows: groups of NULLs are not given.
        """
        for row in rows:
            self._apply(row, whole_rows=whole_rows)

    def _apply(self, row: Mapping[str, Any], *, whole_rows: bool) -> None:
        key = tuple(row[name] for name in self.key)
        registers = self.rows.setdefault(key, [self._empty(group) for group in self.groups])
        deletes = bool(row.get(DELETE_SIGN))
        proposals: dict[int, Register] = {}
        for i, group in enumerate(self.groups):
            if whole_rows and not deletes and all(row.get(name) is None for name in group.columns):
                continue
            proposal = self._proposal(group, row, deletes=deletes)
            if proposal is not None:
                proposals[i] = proposal
        for i, proposal in proposals.items():
            if proposal.rank >= registers[i].rank:
                registers[i] = proposal
        if proposals:
            return
        for i, register in enumerate(registers):
            if deletes:
                cells = self._empty(self.groups[i]).cells
                registers[i] = Register(register.sequence, cells)
            elif not register.is_there and not any(value is not None for value in register.sequence):
                registers[i] = replace(register, is_there=True)

    def _empty(self, group: Group) -> Register:
        nulls = tuple(None for _ in group.sequence)
        return Register(nulls, {name: self.defaults.get(name) for name in group.cells})

    def _proposal(self, group: Group, row: Mapping[str, Any], *, deletes: bool) -> Register | None:
        if any(name not in row for name in group.sequence):
            return None
        sequence = tuple(row[name] for name in group.sequence)
        if deletes:
            return Register(sequence, self._empty(group).cells)
        return Register(sequence, {name: row[name] for name in group.cells}, is_there=True)

    def live(self) -> dict[Key, dict[str, Any]]:
        """What a reader sees: key -> the other columns."""
        return {
            key: self._columns(registers)
            for key, registers in self.rows.items()
            if any(register.is_there for register in registers)
        }

    def hidden(self) -> dict[Key, tuple[Any, ...]]:
        """Every key with its sign, the sequences of its groups and the groups that are there, as bits."""
        found = {}
        for key, registers in self.rows.items():
            bits = sum(1 << i for i, register in enumerate(registers) if register.is_there)
            found[key] = (int(bits == 0), tuple(register.sequence for register in registers), bits)
        return found

    def _columns(self, registers: Sequence[Register]) -> dict[str, Any]:
        columns: dict[str, Any] = {}
        for group, register in zip(self.groups, registers, strict=True):
            columns |= dict(zip(group.sequence, register.sequence, strict=True)) | dict(register.cells)
        return columns
