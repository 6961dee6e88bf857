"""Building calls: what translations of functions share, and what a statement knows of its session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import exp


@dataclass(frozen=True)
class Moment:
    """What clocks show during one statement.

    Attributes:
        local: the time in the session's zone, without a zone.
        utc: the same moment in UTC, without a zone.
        zone: name or offset of the session's zone.
    """

    local: datetime
    utc: datetime
    zone: str


def system_zone() -> str:
    """Returns the offset of the machine's time zone, as `+hh:mm`."""
    offset = datetime.now().astimezone().utcoffset()
    minutes = int(offset.total_seconds()) // 60 if offset else 0
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


@dataclass(frozen=True)
class Surroundings:
    """What functions about the session answer."""

    moment: Moment
    database: str | None = None
    user: str = "root"
    connection_id: int = 0


def call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """A call by its DuckDB name."""
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
Builder = Callable[[str, list[exp.Expr], Surroundings], exp.Expr]
