"""The sources of routine loads: partitions are logs, offsets only grow.

A source keeps no offsets. The job has them in the catalog, so they move with the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from seqstore.loaders.source import BadRow
from seqstore.store.errors import UnavailableError


class SourceUnavailable(UnavailableError):
    """The source does not answer now; the job pauses and tries again by itself (R34)."""


@dataclass(frozen=True)
class Bounds:
    """The offsets of a partition: from `earliest` up to, without it, `latest`."""

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
        size: bytes, 0 while unknown.
        passed: messages that are neither rows nor faults, such as heartbeats; they are not in the body.
        has_rows: false where the body is empty because none of its messages is a row.
    """

    open: Callable[[], BinaryIO]
    table: str = ""
    bad_count: int = 0
    bad: Sequence[BadRow] = ()
    size: int = 0
    passed: int = 0
    has_rows: bool = True


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
        """Returns the identity of the log that the last `bounds` belong to, empty where it has none.

        A log that was deleted and created again has another one.
        """

    def bounds(self) -> dict[str, Bounds]:
        """Returns the bounds of every partition now.

        Raises:
            SourceUnavailable: the source does not answer now.
            StoreError: the source cannot serve the job.
        """

    def first_offsets(self, partitions: Sequence[str], bounds: Mapping[str, Bounds]) -> dict[str, int]:
        """Returns the first offsets of partitions that were never read (R24, R26)."""

    def pieces(self, spans: Sequence[Span]) -> Iterator[Piece]:
        """Yields the rows of spans, partition by partition in order of offsets, from the start of each span.

        A span may end early where its rest is not available yet.
        """

    def close(self) -> None:
        """Closes connections."""
