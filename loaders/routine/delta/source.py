"""FROM DELTA: the commits of a Delta table, each once, in their order.

The source is a log of one partition, "0", whose offsets are the versions of the Delta table. Offset -1 is the
start of a job that begins with all rows: it reads those of the newest version as one piece and goes on behind
it. Any other piece is the changes of one commit.

Commits behind one that the job's table cannot take, such as a column that it does not have, wait: everything
before is read, then the job pauses with the reason, and goes on by itself once the table has the column.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from seqstore.loaders.lake.arrow_stream import ArrowStream
from seqstore.loaders.lake.delta_changes import DeltaChanges
from seqstore.loaders.lake.delta_log import (
    last_commits,
    read_commit,
    read_log,
    require_known,
)
from seqstore.loaders.lake.delta_rows import DeltaRows
from seqstore.loaders.lake.delta_schema import delta_fields
from seqstore.loaders.lake.places import Places
from seqstore.loaders.routine.delta.properties import PATH, STARTING_VERSION, TABLE_ID
from seqstore.loaders.routine.source import Body, Bounds, Piece, Span
from seqstore.store.errors import InvalidInputError, NotFoundError, StoreError, VersionExpiredError

PARTITION: Final = "0"
ROWS_FIRST: Final = -1


class DeltaSource:
    """See the module.

    Args:
        properties: of the job, complete.
        zone: to which times with a zone are converted.
        progress: the offset of the job, None before it began.
        takes: the columns that the job's table can take; None where the job maps them itself.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        places: Places,
        zone: str,
        progress: Callable[[], int | None],
        takes: Callable[[], Collection[str]] | None,
    ) -> None:
        self._root = properties[PATH]
        self._id = properties[TABLE_ID]
        self._start = int(properties.get(STARTING_VERSION, ROWS_FIRST))
        self._places = places
        self._zone = zone
        self._progress = progress
        self._takes = takes
        self._schemas: dict[int, dict[str, Any]] = {}  # by the first version that has them
        self._seen = -1  # the schemas of commits up to it are known
        self._oldest: tuple[int, ...] = ()  # a file of the log, as it was when the table's id was read

    def identity(self) -> str:
        """Implements `Source.identity`: always empty, because `bounds` compares the id of the table."""
        return ""

    def bounds(self) -> dict[str, Bounds]:
        """Implements `Source.bounds`."""
        commits = last_commits(self._root, self._places)
        self._require_same_table(commits)
        read = self._progress()
        start = self._start if read is None else read
        if start > commits.stop or ROWS_FIRST < start < commits.start:
            return {PARTITION: Bounds(commits.start, commits.stop)}  # the job says what is wrong
        end = self._readable(start, commits.stop)
        return {PARTITION: Bounds(ROWS_FIRST if start == ROWS_FIRST else commits.start, end)}

    def first_offsets(self, partitions: Sequence[str], bounds: Mapping[str, Bounds]) -> dict[str, int]:
        """Implements `Source.first_offsets`."""
        return dict.fromkeys(partitions, self._start)

    def pieces(self, spans: Sequence[Span]) -> Iterator[Piece]:
        """Implements `Source.pieces`."""
        for span in spans:
            if span.start == ROWS_FIRST:
                yield self._rows()
                return
            for version in range(span.start, span.end):
                actions = read_commit(self._root, self._places, version)
                changes = self._changes(self._metadata(version))
                make = partial(changes.batches, version, actions)
                yield _piece(span.partition, version, version + 1, changes, make, _size(actions))

    def close(self) -> None:
        """Holds nothing."""

    def _rows(self) -> Piece:
        """Returns all rows of the newest version as a piece."""
        state = read_log(self._root, self._places)
        self._check(state.metadata)
        changes = self._changes(state.metadata)
        fields = delta_fields(state.metadata)
        rows = DeltaRows(self._root, self._places, state, fields, self._zone)

        def made() -> Iterator[Any]:
            return (changes.rows(state.version, batch) for batch in rows.batches())

        size = _size([{"add": add} for add in state.files.values()])
        return _piece(PARTITION, ROWS_FIRST, state.version + 1, changes, made, size)

    def _changes(self, metadata: Mapping[str, Any]) -> DeltaChanges:
        return DeltaChanges(self._root, self._places, metadata, self._zone)

    def _require_same_table(self, commits: range) -> None:
        log = os.path.join(self._root, "_delta_log")
        try:
            found = os.stat(os.path.join(log, f"{commits.start:020}.json"))
            oldest: tuple[int, ...] = (found.st_ino, found.st_mtime_ns, found.st_size)
        except OSError:  # a checkpoint alone, or a log that is being cleaned
            oldest = ()
        if oldest and oldest == self._oldest:
            return
        self._require_id(read_log(self._root, self._places).metadata)
        if oldest != self._oldest:
            self._schemas, self._seen, self._oldest = {}, -1, oldest

    def _require_id(self, metadata: Mapping[str, Any]) -> None:
        if metadata.get("id") != self._id:
            raise InvalidInputError(
                f"{self._root}: the Delta table was replaced: its id is {metadata.get('id')}, expected "
                f"{self._id}; STOP the job and make a new one",
                kind="replaced",
            )

    def _readable(self, start: int, end: int) -> int:
        """Returns the end of the commits from `start` on that the job's table can take, at most `end`.

        Raises:
            StoreError: it cannot take the first one; the reason.
        """
        if start == ROWS_FIRST:
            return end
        if not self._schemas or start < min(self._schemas):
            self._schemas, self._seen = {start: self._metadata_before(start, end)}, start - 1
        for version in range(self._seen + 1, end):
            actions = read_commit(self._root, self._places, version)
            for metadata in _of_kind(actions, "metaData"):
                self._schemas[version] = metadata
            for protocol in _of_kind(actions, "protocol"):
                require_known(self._root, protocol, self._metadata(version))
            self._seen = version
        try:
            self._check(self._metadata(start))
            for version in sorted(self._schemas):
                if start < version < end:
                    try:
                        self._check(self._schemas[version])
                    except StoreError:
                        return version
        except StoreError:
            if start == end:
                return end
            raise
        return end

    def _metadata_before(self, start: int, end: int) -> dict[str, Any]:
        """Returns the schema of the version before a commit."""
        if not start:
            return {}  # the first commit has it
        try:
            return read_log(self._root, self._places, start - 1).metadata
        except (InvalidInputError, VersionExpiredError, NotFoundError):
            later = (read_commit(self._root, self._places, each) for each in range(start, end))
            if any(_of_kind(actions, "metaData") for actions in later):
                raise
        return read_log(self._root, self._places).metadata  # none has changed since

    def _metadata(self, version: int) -> dict[str, Any]:
        return self._schemas[max(first for first in self._schemas if first <= version)]

    def _check(self, metadata: Mapping[str, Any]) -> None:
        """Checks that the job's table can take rows of a schema."""
        if not metadata:
            return
        self._require_id(metadata)
        fields = delta_fields(metadata)
        if self._takes is None:
            return
        known = {name.lower() for name in self._takes()}
        missing = [field for field in fields if field.name.lower() not in known]
        if missing:
            raise InvalidInputError(
                f"{self._root}: the Delta table has the column {missing[0].name} ({missing[0].type.sql}), "
                "which the table of the job does not have; add the column and the job goes on, or make a job "
                "with COLUMNS (..)",
                kind="unknown_column",
                column=missing[0].name,
            )


def _piece(
    partition: str, start: int, end: int, changes: DeltaChanges, made: Callable[[], Iterator[Any]], size: int
) -> Piece:
    def bodies() -> Iterator[Body]:
        yield Body(lambda: ArrowStream(changes.schema, made()))  # type: ignore[arg-type,return-value]

    return Piece(Span(partition, start, end), bodies, size)


def _of_kind(actions: Sequence[Mapping[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [action[kind] for action in actions if action.get(kind) is not None]


def _size(actions: Sequence[Mapping[str, Any]]) -> int:
    return sum(
        int((action.get(kind) or {}).get("size") or 0) for action in actions for kind in ("add", "cdc")
    )
