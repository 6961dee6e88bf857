"""Where routine loads read from: partitions that are logs, offsets that only grow.

A source keeps nothing of what was read. Offsets are the job's, in the catalog, so they move with the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from seqstore.loaders.source import BadRow
from seqstore.store.errors import UnavailableError


class SourceUnavailable(UnavailableError):
    """The source cannot be asked just now; the job pauses and tries again by itself (R34)."""


@dataclass(frozen=True)
class Bounds:
    """What a partition holds: offsets from `earliest` up to, without it, `latest`."""

    earliest: int
    latest: int


@dataclass(frozen=True)
class Span:
    """Offsets from `start` up to, without it, `end`."""

    partition: str
    start: int
    end: int


@dataclass(frozen=True)
class Body:
    """Rows of one table.

    Attributes:
        open: the rows, one a line or as the format has them; the caller closes it.
        table: as messages name it; empty where the job has one table, and for messages that name none.
        bad_count: messages that are no rows, such as empty ones (R36); they are not in the body.
        bad: the first of them.
        size: bytes, 0 where nobody knows yet.
    """

    open: Callable[[], BinaryIO]
    table: str = ""
    bad_count: int = 0
    bad: Sequence[BadRow] = ()
    size: int = 0


@dataclass(frozen=True)
class Piece:
    """Some offsets of one partition; a task ends between two of them, never within one.

    Attributes:
        span: the offsets.
        bodies: the rows, in order within each table.
        size: bytes.
        path: of the file it is, empty when it is none.
        marks: names to keep beside the job, for the source to know again.
    """

    span: Span
    bodies: Callable[[], Iterable[Body]]
    size: int
    path: str = ""
    marks: tuple[str, ...] = ()


class Source(Protocol):
    """One source of one job. May be used from several threads at once."""

    def identity(self) -> str:
        """What log the last `bounds` were of: another one after it was deleted and made anew.

        Empty where nobody can tell.
        """

    def bounds(self) -> dict[str, Bounds]:
        """What every partition holds now.

        Raises:
            SourceUnavailable: it cannot be asked just now.
            StoreError: what the job asks for cannot be.
        """

    def first_offsets(self, partitions: Sequence[str], bounds: Mapping[str, Bounds]) -> dict[str, int]:
        """Where to begin with partitions that were never read (R24, R26)."""

    def pieces(self, spans: Sequence[Span]) -> Iterator[Piece]:
        """The rows of spans, partition by partition in order of offsets, from the start of each span.

        A span may end early where its rest is not to be had yet.
        """

    def close(self) -> None:
        """Gives back connections."""
