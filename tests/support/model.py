"""The rules of a unique-key table, kept in plain dictionaries: what the engine must agree with.

A `Model` holds one dictionary per version: key -> `ModelRow`. It shares no code with the engine and is as
slow as it is plain. Rules, by id:

- within a load the largest sequence wins, NULL lowest, ties and tables without a sequence by arrival (SO3,
  SO4, SO9);
- the winner of a load beats the stored row unless its sequence is strictly smaller (SO1, SO2, D2-D6);
- signs are looked at only by readers: a tombstone is a row (D1, D4, D7);
- versions are dense, the first load makes 2 (X3, X4); a load without accepted rows makes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Key = tuple[Any, ...]


@dataclass(frozen=True)
class ModelRow:
    """One row as a reader with hidden columns sees it; `version` is the one that wrote it."""

    values: Mapping[str, Any]
    sequence: Any = None
    sign: int = 0
    version: int = 0


@dataclass(frozen=True)
class ModelResult:
    """What a load result must say."""

    version: int
    rows_loaded: int
    rows_superseded: int
    rows_late: int
    rows_replaced: int
    rows_deleted: int


def is_smaller(left: Any, right: Any) -> bool:
    """Strictly smaller, NULL below everything and tied with NULL (SO4)."""
    if left is None or right is None:
        return left is None and right is not None
    return bool(left < right)


@dataclass
class Model:
    """One table.

    Attributes:
        key: names of the key columns.
        has_sequence: without one, arrival decides alone.
        versions: state of version i + 1 at index i; index 0 is the empty table.
    """

    key: Sequence[str]
    has_sequence: bool
    versions: list[dict[Key, ModelRow]] = field(default_factory=lambda: [{}])

    @property
    def version(self) -> int:
        return len(self.versions)

    def at(self, version: int) -> dict[Key, ModelRow]:
        return self.versions[version - 1]

    def key_of(self, row: ModelRow) -> Key:
        return tuple(row.values[name] for name in self.key)

    def load(self, rows: Iterable[ModelRow]) -> ModelResult:
        """Applies one load: all its writes, in order."""
        accepted = list(rows)
        if not accepted:
            return ModelResult(self.version, 0, 0, 0, 0, 0)
        best: dict[Key, ModelRow] = {}
        for row in accepted:
            key = self.key_of(row)
            if key not in best or not self._loses(row, best[key]):
                best[key] = row
        before = self.at(self.version)
        after = dict(before)
        late = replaced = deleted = 0
        for key, row in best.items():
            stored = before.get(key)
            if stored is not None and self._loses(row, stored):
                late += 1
                continue
            after[key] = ModelRow(row.values, row.sequence, row.sign, self.version + 1)
            if stored is not None and not stored.sign:
                deleted += row.sign
                replaced += 1 - row.sign
        self.versions.append(after)
        return ModelResult(self.version, len(accepted), len(accepted) - len(best), late, replaced, deleted)

    def delete(self, keys: Iterable[Key]) -> int:
        """Deletes by key without a sequence: each tombstone inherits the stored one's (D8); returns its
        version.

        A key that is not there gets a tombstone too (D9).
        """
        distinct = list(dict.fromkeys(keys))
        if distinct:
            before = self.at(self.version)
            after = dict(before)
            for key in distinct:
                sequence = before[key].sequence if key in before else None
                values = dict(zip(self.key, key, strict=True))
                after[key] = ModelRow(values, sequence, 1, self.version + 1)
            self.versions.append(after)
        return self.version

    def live(self, version: int) -> dict[Key, ModelRow]:
        """What a reader sees."""
        return {key: row for key, row in self.at(version).items() if not row.sign}

    def _loses(self, row: ModelRow, other: ModelRow) -> bool:
        return self.has_sequence and is_smaller(row.sequence, other.sequence)
