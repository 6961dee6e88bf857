"""DuckDB calls in a tree, and the session's values that translations of functions need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import exp

SYSTEM_ZONE: Final = "SYSTEM"


def zone_of(name: str) -> tzinfo:
    """Returns the time zone of a name, an offset such as `+02:00`, or SYSTEM."""
    name = resolve_zone(name)
    if name[0] not in "+-":
        return ZoneInfo(name)
    minutes = int(name[1:3]) * 60 + int(name[4:6])
    return timezone(timedelta(minutes=-minutes if name[0] == "-" else minutes))


def resolve_zone(name: str) -> str:
    """Replaces SYSTEM by the offset of the machine's time zone, as `+hh:mm`."""
    if name.upper() != SYSTEM_ZONE:
        return name
    offset = datetime.now().astimezone().utcoffset()
    minutes = int(offset.total_seconds()) // 60 if offset else 0
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


@dataclass(frozen=True)
class Moment:
    """The time that all clocks show during one statement.

    Attributes:
        local: the time in the session's zone, without a zone.
        utc: the same moment in UTC, without a zone.
        zone: name or offset of the session's zone.
    """

    local: datetime
    utc: datetime
    zone: str

    @classmethod
    def at(cls, now: datetime, zone: str = SYSTEM_ZONE) -> Moment:
        """Converts `now`, a moment with a zone, to another zone."""
        zone = resolve_zone(zone)
        local, utc = (now.astimezone(each).replace(tzinfo=None) for each in (zone_of(zone), UTC))
        return cls(local, utc, zone)


@dataclass(frozen=True)
class EvaluationContext:
    """The session's values that functions return."""

    moment: Moment
    database: str | None = None
    user: str = "root"
    connection_id: int = 0
    last_insert_id: int = 0
    row_count: int = -1
    found_rows: int = 0


def call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """Builds a call by its DuckDB name."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def check_count(name: str, arguments: Sequence[exp.Expr], *counts: int) -> None:
    if len(arguments) not in counts:
        expected = " or ".join(map(str, counts))
        raise InvalidInputError(
            f"function {name!r}: expected {expected} arguments, found {len(arguments)}", kind="bad_argument"
        )


def literal_integer(name: str, node: exp.Expr) -> int:
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        return int(node.this)
    raise InvalidInputError(
        f"function {name!r}: expected a whole number, found {node.sql()}", kind="bad_argument"
    )


# Builds the DuckDB form of a call from its name and arguments.
Builder = Callable[[str, list[exp.Expr], EvaluationContext], exp.Expr]
# A builder, and the numbers of arguments that it takes; without any it checks them itself.
Counted = tuple[Builder, tuple[int, ...]]
