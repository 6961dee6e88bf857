"""The result of every format reader: batches of unconverted fields, and the place of each row."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa

TEXT_SHOWN_MAX: Final = 2_000
# Of one batch: the others are only counted, for a wrong separator spoils every row.
_BAD_ROWS_DESCRIBED: Final = 1_000
_UNREADABLE: Final = "undecodable message: "
_KEEPS_ALL: Final[ContextVar[bool]] = ContextVar("keeps_all_bad_rows", default=False)


@contextmanager
def keeping_bad_rows() -> Iterator[None]:
    """Describes every bad row of a block, with its whole text: they become dead letters."""
    token = _KEEPS_ALL.set(True)
    try:
        yield
    finally:
        _KEEPS_ALL.reset(token)


def described_max() -> int:
    """Returns how many bad rows of a batch are described."""
    return sys.maxsize if _KEEPS_ALL.get() else _BAD_ROWS_DESCRIBED


@dataclass(frozen=True)
class Place:
    """The place of a row: its line (or row, where a format has no lines), counted from 1, and its text.

    Attributes:
        hint: the likely cause if the row does not fit, or empty.
    """

    line: int
    text: str
    hint: str = ""


Places = Callable[[Sequence[int]], list[Place]]


@dataclass(frozen=True)
class BadRow:
    """A row that is left out of the load."""

    place: Place
    reason: str

    @classmethod
    def at(cls, place: Place, reason: str) -> BadRow:
        """Returns the bad row at a place, with the hint of the place in its reason."""
        return cls(place, f"{reason} ({place.hint})" if place.hint else reason)


@dataclass(frozen=True)
class SourceBatch:
    """Some rows of the body.

    Attributes:
        rows: one column for each field, by its source name; text for CSV and JSON.
        places: maps positions in `rows` to places in the body. Only bad rows need it, so it may be slow.
        bad_count: rows that are not among `rows`, for they could not be read.
        bad: the first of them.
        absent: for a field, the rows that did not have it at all, unlike those that had NULL there (J7).
        held_bytes: memory that `places` keeps.
        passed: messages that are no rows and no faults, such as heartbeats of a change stream (CS6).
    """

    rows: pa.Table
    places: Places
    bad_count: int = 0
    bad: Sequence[BadRow] = ()
    absent: dict[str, pa.BooleanArray] = field(default_factory=dict)
    held_bytes: int = 0
    passed: int = 0

    def located(self, bad: Sequence[tuple[int, str]]) -> list[BadRow]:
        """Returns positions in `rows`, each with a reason, as rows of the body."""
        places = self.places([row for row, _ in bad])
        return [BadRow.at(place, reason) for place, (_, reason) in zip(places, bad, strict=True)]


class Reader(Protocol):
    """A format: cuts a body into batches of a few megabytes each. Close it after use."""

    def batches(self) -> Iterator[SourceBatch]:
        """Reads the body to its end, once."""

    def close(self) -> None:
        """Closes the reader's own resources; the body stays open."""


def unreadable(reason: str, message: bytes) -> bytes:
    """Returns the line of a message that cannot be decoded, which no reader takes for a row."""
    text = one_line(reason.encode()).replace("\t", " ")
    return f"{_UNREADABLE}{text} | {base64.b64encode(message).decode()}".encode()


def why_unreadable(line: str, otherwise: str) -> str:
    """Returns why a line is no row: the reason that `unreadable` wrote, or another one."""
    if not line.startswith(_UNREADABLE):
        return otherwise
    return f"the message cannot be decoded: {line.removeprefix(_UNREADABLE).rpartition(' | ')[0]}"


def shown(text: bytes) -> str:
    """Returns a source line for the error log: readable, on one line, not too long."""
    if _KEEPS_ALL.get():
        return text.decode("utf-8", "backslashreplace")
    return one_line(text)


def one_line(text: bytes) -> str:
    """Returns a source line on one line, not too long."""
    cut = text[:TEXT_SHOWN_MAX].decode("utf-8", "backslashreplace").replace("\n", "\\n").replace("\r", "\\r")
    return cut + ("..." if len(text) > TEXT_SHOWN_MAX else "")
