"""Positions in the logs of source databases, as integers whose order is that of the changes.

| kind | of | integer |
| --- | --- | --- |
| lsn | PostgreSQL | the LSN of the change |
| binlog | MySQL, MariaDB | number of the file, position, row: 31, 64 and 32 bits |
| gtid | MySQL, MariaDB, by request | number of the transaction, position, row: 47, 48 and 32 bits |
| change_lsn | SQL Server | the LSN of the change, number of the event: 80 and 16 bits |
| order | MongoDB | second of the change, its place in the second: 32 bits each |
| commit_version | seqstore | the version |
| ts_ms | all others | milliseconds of the change at its source |

A row of a snapshot has the position 0, which is smaller than every other one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.types.cast import evaluate, try_cast
from seqstore.store.types.column_types import ColumnType

SNAPSHOT: Final = "0"
_BIGINT: Final = ColumnType("BIGINT")
_LARGEINT: Final = pa.decimal256(39, 0)
_HOLDS: Final = {"BIGINT": 63, "LARGEINT": 127}

Mask = npt.NDArray[np.bool_]
Whole = npt.NDArray[np.int64]


class PositionKind(StrEnum):
    """The kinds of positions; see the module."""

    LSN = "lsn"
    BINLOG = "file, pos and row"
    GTID = "gtid"
    CHANGE_LSN = "change_lsn"
    ORDER = "order of MongoDB"
    VERSION = "commit_version"
    TS_MS = "ts_ms"

    @property
    def bits(self) -> int:
        """Returns the bits of the largest position."""
        is_wide = self in (
            PositionKind.BINLOG,
            PositionKind.GTID,
            PositionKind.CHANGE_LSN,
            PositionKind.ORDER,
        )
        return 127 if is_wide else 63


def check_sequence_type(table: str, sequence: ColumnType, kinds: frozenset[PositionKind]) -> None:
    """Checks that a sequence holds positions of all kinds.

    Raises:
        InvalidInputError: it does not; names the type to use.
    """
    for kind in sorted(kinds):
        if _HOLDS.get(sequence.name, 0) < kind.bits:
            needed = "LARGEINT" if kind.bits > _HOLDS["BIGINT"] else "BIGINT or LARGEINT"
            raise InvalidInputError(
                f"table {table}: the positions of the change stream ({kind}) need a sequence of type "
                f'{needed}, found {sequence.sql}; create the table with "function_column.sequence_type" = '
                f'"{needed.rpartition(" ")[2]}", or choose the header change_position',
                kind="sequence_type",
            )


def whole(text: pa.Array) -> tuple[Whole, Mask]:
    """Returns texts as integers, and which of them are integers that are not negative."""
    cast = try_cast(text, _BIGINT)
    valid = np.asarray(cast.values.is_valid().to_numpy(zero_copy_only=False))
    values = np.asarray(pc.fill_null(cast.values, 0).to_numpy(zero_copy_only=False))
    return values, valid & (values >= 0)


def lsn(text: pa.Array) -> pa.Array:
    """Returns the positions of PostgreSQL."""
    return _as_text(*whole(text))


def ts_ms(text: pa.Array) -> pa.Array:
    """Returns the moments of changes in milliseconds."""
    return _as_text(*whole(text))


def order(milliseconds: pa.Array, place: pa.Array) -> pa.Array:
    """Returns the positions of MongoDB."""
    moment, has_moment = whole(milliseconds)
    number, has_place = whole(place)
    return _packed(has_moment & has_place, (number, 4), (moment // 1000, 4))


def binlog(file: pa.Array, pos: pa.Array, row: pa.Array) -> pa.Array:
    """Returns the positions of MySQL; a message without a row has row 0."""
    digits = pc.struct_field(pc.extract_regex(file, r"\.(?P<number>[0-9]+)$"), "number")
    number, has_number = whole(digits)
    at, has_at = whole(pos)
    place, _ = whole(row)
    return _packed(has_number & has_at & (number < 2**31), (place, 4), (at, 8), (number, 4))


def gtid(text: pa.Array, pos: pa.Array, row: pa.Array) -> pa.Array:
    """Returns the positions of MySQL and MariaDB by the numbers of their transactions."""
    digits = pc.struct_field(pc.extract_regex(text, r"[:-](?P<number>[0-9]+)$"), "number")
    number, has_number = whole(digits)
    at, _ = whole(pos)
    place, _ = whole(row)
    return _packed(has_number & (number < 2**47), (place, 4), (at, 6), (number, 6))


def change_lsn(text: pa.Array, event: pa.Array) -> pa.Array:
    """Returns the positions of SQL Server: `00000027:00000ac0:0002`, and the number of the event."""
    plain = pc.replace_substring(text, ":", "")
    is_hex = np.asarray(
        pc.fill_null(pc.match_substring_regex(plain, "^[0-9a-fA-F]{20}$"), False).to_numpy(
            zero_copy_only=False
        )
    )
    digits = pc.if_else(pa.array(is_hex), plain, "0" * 20)
    octets = np.frombuffer(b"".join(evaluate(digits, "unhex(c)").to_pylist()), np.uint8).reshape(-1, 10)
    number, _ = whole(event)
    low = number.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :2]
    return _assembled(is_hex & (number < 2**16), np.hstack([low, octets[:, ::-1]]))


def _packed(valid: Mask, *parts: tuple[Whole, int]) -> pa.Array:
    """Joins integers of some bytes each, the least significant one first; one that is too large is none."""
    columns = []
    for values, size in parts:
        valid = valid & (values < 2 ** (8 * size)) if size < 8 else valid
        columns.append(values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :size])
    return _assembled(valid, np.hstack(columns))


def _assembled(valid: Mask, octets: Any) -> pa.Array:
    """Returns little-endian integers as text, NULL where they are not valid."""
    wide = np.zeros((len(octets), 32), np.uint8)
    wide[:, : octets.shape[1]] = octets
    wide[~valid] = 0
    numbers = pa.Array.from_buffers(_LARGEINT, len(wide), [None, pa.py_buffer(wide.tobytes())])
    return pc.if_else(pa.array(valid), numbers.cast(pa.string()), pa.scalar(None, pa.string()))


def _as_text(values: Whole, valid: Mask) -> pa.Array:
    return pc.if_else(pa.array(valid), pa.array(values).cast(pa.string()), pa.scalar(None, pa.string()))
