"""Shapes of tables for property tests: key types, sequence types and the few values that make rows meet.

Pools are small on purpose: what is to be found happens when keys and sequences repeat. They hold each
type's extremes and the values at which its coding changes (word boundaries of strings, the int64 that
stands for NULL, the BIGINT that is hashed as NULL is, halves of LARGEINT).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from seqstore import Column, TableSchema, parse_type
from tests.support.equal_codes import AS_NULL

_LONG = "k" * 128
POOLS: Mapping[str, Sequence[Any]] = {
    "BOOLEAN": [False, True],
    "TINYINT": [-128, -1, 0, 1, 127],
    "INT": [-(2**31), -1, 0, 1, 2, 3, 7, 2**31 - 1],
    "BIGINT": [-(2**63), -(2**63) + 1, -1, 0, 1, 2, 2**32, 2**63 - 1, AS_NULL],
    "LARGEINT": [-(2**127), -(2**64), -1, 0, 1, 2**63, 2**64, 2**64 + 1, 2**127 - 1],
    "DATE": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2022, 10, 20), date(9999, 12, 31)],
    "DATETIME(6)": [
        datetime(1, 1, 1),
        datetime(1969, 12, 31, 23, 59, 59, 999999),
        datetime(2024, 2, 29, 12),
        datetime(2024, 2, 29, 12, 0, 0, 1),
        datetime(9999, 12, 31, 23, 59, 59, 999999),
    ],
    "VARCHAR(400)": [
        "",
        "a",
        "b",
        "\0",
        "a\0",
        "12345678",
        "123456789",
        "é",
        _LONG,
        _LONG + "1",
        _LONG + "2",
    ],
    "DECIMAL(20,3)": [Decimal("-99999999999999999.999"), Decimal("-0.001"), Decimal(0), Decimal("0.001")],
    "DECIMAL(50,5)": [Decimal("-9" + "9" * 40), Decimal("1.00001"), Decimal(0), Decimal("8" * 45)],
}


@dataclass(frozen=True)
class Shape:
    """A table: key columns as (name, type, nullable), and where its sequence comes from.

    Attributes:
        sequence: type of the sequence, empty for none.
        hidden: the sequence is `sequence_type` (SD2), not a visible column (SD1).
    """

    name: str
    key: tuple[tuple[str, str, bool], ...]
    sequence: str = ""
    hidden: bool = False

    @property
    def key_names(self) -> list[str]:
        return [name for name, _, _ in self.key]

    @property
    def has_sequence(self) -> bool:
        return bool(self.sequence)

    @property
    def is_mapped(self) -> bool:
        return bool(self.sequence) and not self.hidden

    def keys(self) -> list[tuple[Any, ...]]:
        """A pool of full keys; composite ones share parts, so that no column alone tells them apart."""
        parts = [[*POOLS[kind], None] if nullable else list(POOLS[kind]) for _, kind, nullable in self.key]
        if len(parts) == 1:
            return [(value,) for value in parts[0]]
        first = [tuple(part[i % len(part)] for part in parts) for i in range(6)]
        return [*first, *((a[0], *b[1:]) for a, b in zip(first, [*first[1:], first[0]], strict=True))]

    def sequences(self) -> list[Any]:
        return [None, *POOLS[self.sequence]] if self.sequence else [None]

    def schema(self, storage_format: str = "arrow", compression: str = "default") -> TableSchema:
        columns = [Column(name, parse_type(kind), nullable=nullable) for name, kind, nullable in self.key]
        properties = {"storage_format": storage_format, "compression": compression}
        if self.is_mapped:
            columns.append(Column("s", parse_type(self.sequence)))
            properties["function_column.sequence_col"] = "s"
        elif self.hidden:
            properties["function_column.sequence_type"] = self.sequence
        columns += [
            Column("v", parse_type("INT"), nullable=False),
            Column("w", parse_type("VARCHAR(65533)")),
        ]
        return TableSchema.create(columns, self.key_names, properties=properties)


def _one(kind: str, *, nullable: bool = False) -> tuple[tuple[str, str, bool], ...]:
    return (("k", kind, nullable),)


_COMPOSITE = (("a", "INT", True), ("b", "VARCHAR(400)", False), ("c", "DATE", False))

EXACT_SHAPES = (
    Shape("bigint", _one("BIGINT")),
    Shape("bigint by int", _one("BIGINT"), "INT"),
    Shape("nullable int by hidden bigint", _one("INT", nullable=True), "BIGINT", hidden=True),
    Shape("nullable int by date", _one("INT", nullable=True), "DATE"),
    Shape(
        "nullable datetime by hidden largeint", _one("DATETIME(6)", nullable=True), "LARGEINT", hidden=True
    ),
    Shape("nullable tinyint", _one("TINYINT", nullable=True)),
    Shape("boolean by tinyint", _one("BOOLEAN", nullable=True), "TINYINT"),
    Shape("date by bigint", _one("DATE"), "BIGINT"),
)
HASHED_SHAPES = (
    Shape("nullable bigint by bigint", _one("BIGINT", nullable=True), "BIGINT"),
    Shape("varchar", _one("VARCHAR(400)", nullable=True)),
    Shape("varchar by datetime", _one("VARCHAR(400)"), "DATETIME(6)"),
    Shape("composite", _COMPOSITE),
    Shape("composite by hidden date", _COMPOSITE, "DATE", hidden=True),
    Shape("composite by largeint", _COMPOSITE, "LARGEINT"),
    Shape("decimal by hidden int", _one("DECIMAL(20,3)", nullable=True), "INT", hidden=True),
    Shape("wide decimal by hidden datetime", _one("DECIMAL(50,5)"), "DATETIME(6)", hidden=True),
    Shape("largeint by largeint", _one("LARGEINT", nullable=True), "LARGEINT"),
)
