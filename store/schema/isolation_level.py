"""The isolation levels of tables and transactions."""

from __future__ import annotations

from enum import StrEnum

from seqstore.store.errors import InvalidInputError


class IsolationLevel(StrEnum):
    """An isolation level, with its name in Delta Lake."""

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"


_BY_NAME = {level.lower(): level for level in IsolationLevel}


def parse_isolation_level(level: str) -> IsolationLevel:
    """Returns an isolation level, read without regard to case.

    Raises:
        InvalidInputError: any other name, `SnapshotIsolation` included, which is internal.
    """
    known = _BY_NAME.get(level.lower())
    if known is None:
        raise InvalidInputError(
            f"isolation level {level!r}: expected Serializable or WriteSerializable",
            kind="DELTA_INVALID_ISOLATION_LEVEL",
        )
    return known


def stricter(one: IsolationLevel, other: IsolationLevel) -> IsolationLevel:
    """Returns the level of two that allows fewer histories."""
    return IsolationLevel.SERIALIZABLE if IsolationLevel.SERIALIZABLE in (one, other) else one
