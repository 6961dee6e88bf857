"""The Delta log of an open table: writes an appearance as the next commit.

1. `refresh` replays the commits since the last one that is known, from a checkpoint in a new process. A
   commit that another program wrote is moved to `_delta_log/_foreign/`, with all that follows it, and named
   in the program's log.
2. `show` compares the files of an appearance with those of the log. It writes the new deletion vectors into
   one file, then the commit, which appears as a whole.
3. Every tenth commit has a checkpoint. Then commits older than the retention are removed, and deletion
   vectors that only they name.

The protocol lists the writer feature `seqstoreManaged`, which no other program knows. So Delta's writers
refuse the table, and its readers do not.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from seqstore.store.errors import CorruptionError, UnavailableError
from seqstore.store.open_table.appearance import Appearance, OpenFile
from seqstore.store.open_table.delta_files import LogFiles
from seqstore.store.open_table.delta_schema import largest_id, schema_string
from seqstore.store.open_table.delta_state import LogState
from seqstore.store.open_table.delta_statistics import statistics
from seqstore.store.open_table.delta_vectors import file_name, pack_vectors, packed_name
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.disk import Disk

DOMAIN: Final = "seqstore"
MANAGED: Final = "seqstoreManaged"  # a writer feature that no writer of Delta has
_READER_FEATURES: Final = ("deletionVectors", "timestampNtz")
_WRITER_FEATURES: Final = ("domainMetadata", "invariants", MANAGED)  # NOT NULL counts as an invariant
_VERSION: Final = "seqstoreVersion"
_TABLE: Final = "seqstoreTable"
_LARGEST: Final = "delta.columnMapping.maxColumnId"
_SEGMENT: Final = "seqstore.segment"
_CHECKPOINT_EVERY: Final = 10
_TRIES: Final = 5
_LOG: Final = logging.getLogger(__name__)


class DeltaLog:
    """The log of one table; its caller holds the lock of the open table.

    Args:
        directory: of the table's files.
        identity: of the table, which our commits carry.
    """

    def __init__(self, disk: Disk, directory: str, identity: str) -> None:
        self.files = LogFiles(disk, directory)
        self._identity = identity
        self._state: LogState | None = None
        self._durable = -1  # the last commit whose name is known to be durable

    @property
    def shown(self) -> int:
        """The version of the table that the newest commit shows, 0 for none."""
        domain = (self._state or LogState()).domains.get(DOMAIN)
        return int(json.loads(domain["configuration"])["version"]) if domain else 0

    def refresh(self) -> None:
        """Reads what other processes have shown, and moves commits of other programs aside.

        A process that was killed between a commit and the sync of its name leaves one that a loss of power
        would take back. So what is found is made durable before it counts as shown.
        """
        self._replay()
        state = self._state
        if state is not None and state.number > self._durable:
            self.files.sync()
            self._durable = state.number

    def _replay(self) -> None:
        if self._state is None or (self._state.number >= 0 and not self.files.has(self._state.number)):
            self._state = self._read_newest()  # another process has removed old commits, or the log
        state = self._state
        while True:
            number = state.number + 1
            try:
                actions = self.files.actions(number)
                is_ours = actions is not None and self._is_ours(actions)
            except ValueError:
                actions, is_ours = [], False
            if actions is None:
                return
            if not is_ours or not self._is_applied(state, number, actions):
                self._move_aside(state)
                return

    def _is_applied(self, state: LogState, number: int, actions: list[dict[str, Any]]) -> bool:
        """Replays a commit; states whether its actions and our version in them could be read."""
        before = state.domains.get(DOMAIN)
        try:
            state.apply(number, actions)
            _ = self.shown if state is self._state else 0
        except (ValueError, KeyError, TypeError) as error:
            _LOG.error("%s: commit %d is damaged: %s", self.files.directory, number, error)
            state.number = number - 1
            if before is not None:
                state.domains[DOMAIN] = before
            else:
                state.domains.pop(DOMAIN, None)
            return False
        return True

    def _read_newest(self) -> LogState:
        """Reads the newest checkpoint and what precedes the first commit that is not ours."""
        if not self.files.exists():
            return LogState()
        self.files.remove_unfinished()
        commits = self.files.commits()
        for number in reversed(self.files.checkpoints()):
            if number in commits and self._shows(number):
                try:
                    return LogState.from_checkpoint(self.files.checkpoint_path(number), number)
                except CorruptionError as error:
                    _LOG.error("%s; the one before it is read", error)
        if commits and commits[0] > 0:
            _LOG.error("%s: the log has no beginning, and is begun anew", self.files.directory)
            self.files.move_aside(-1)
        return LogState()

    def _shows(self, number: int) -> bool:
        """Returns whether a commit is ours."""
        try:
            actions = self.files.actions(number)
        except ValueError:
            return False
        return actions is not None and self._is_ours(actions)

    def _is_ours(self, actions: list[dict[str, Any]]) -> bool:
        infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
        info: dict[str, Any] = infos[0] if infos and isinstance(infos[0], dict) else {}
        return bool(info.get(_TABLE) == self._identity)

    def _move_aside(self, state: LogState) -> None:
        moved = self.files.move_aside(state.number)
        _LOG.warning(
            "%s: another program wrote %s into the Delta log, which only this store may write; moved to "
            "_delta_log/_foreign, and versions of the store appear further on",
            self.files.directory,
            ", ".join(moved),
        )
        if state.number >= 0:
            self._put_checkpoint(state)  # the hint may have named a foreign one

    def show(self, appearance: Appearance) -> int:
        """Writes an appearance as the next commit; returns its number.

        Raises:
            UnavailableError: the disk fails, or another program writes the log without end.
        """
        for _ in range(_TRIES):
            self.refresh()
            state = self._state
            assert state is not None
            number = state.number + 1
            actions = list(self._actions(appearance, state, number))
            if self.files.put_commit(number, actions):
                state.apply(number, actions)
                self._durable = number
                if number % _CHECKPOINT_EVERY == 0:
                    self._put_checkpoint(state)
                    self._forget(appearance.retention_seconds)
                return number
        raise UnavailableError(
            f"{appearance.name}: another program writes its Delta log; stop it, only this store may write",
            kind="open_table",
        )

    def _actions(self, appearance: Appearance, state: LogState, number: int) -> Iterator[dict[str, Any]]:
        now = round(time.time() * 1000)
        yield {"commitInfo": self._commit_info(appearance, now)}
        protocol = _protocol(appearance.schema)
        if protocol != state.protocol:
            yield {"protocol": protocol}
        metadata = self._metadata(appearance, state.metadata, now)
        if metadata != state.metadata:
            yield {"metaData": metadata}
        shown = json.dumps({"version": appearance.version, "revision": appearance.schema.revision})
        yield {"domainMetadata": {"domain": DOMAIN, "configuration": shown, "removed": False}}
        for app, app_version in appearance.app_versions.items():
            yield {"txn": {"appId": app, "version": app_version, "lastUpdated": now}}
        yield from self._file_actions(appearance, state, number, now)

    def _file_actions(
        self, appearance: Appearance, state: LogState, number: int, now: int
    ) -> Iterator[dict[str, Any]]:
        wanted = {file.path: file for file in appearance.files}
        stale = {
            path: add
            for path, add in state.files.items()
            if path not in wanted or not _is_same(add, wanted[path])
        }
        fresh = [file for path, file in wanted.items() if path not in state.files or path in stale]
        for path, add in stale.items():
            if path in wanted and not wanted[path].hidden and "deletionVector" not in add:
                continue  # RESTORE gave the file another segment; one commit may not remove and add one file
            yield {"remove": _removed(path, add, now, changes=appearance.has_data_change)}
        vectors = self._put_vectors([file for file in fresh if file.hidden], number)
        for file in fresh:
            yield {"add": _added(file, vectors.get(file.path), now, changes=appearance.has_data_change)}

    def _put_vectors(self, files: list[OpenFile], number: int) -> dict[str, dict[str, Any]]:
        """Writes the deletion vectors of a commit; returns their descriptors by path."""
        if not files:
            return {}
        identity = self._vectors_of(number)
        data, descriptors = pack_vectors(identity, [file.hidden for file in files])
        self.files.put_vectors(file_name(identity), data)
        return {file.path: found for file, found in zip(files, descriptors, strict=True)}

    def _vectors_of(self, number: int) -> uuid.UUID:
        """Returns the UUID of the deletion vectors of a commit.

        The number decides it, so the retry of a commit that failed replaces the file that it had left.
        """
        return uuid.uuid5(uuid.UUID(self._identity), str(number))

    def _commit_info(self, appearance: Appearance, now: int) -> dict[str, Any]:
        records = [record for _, record in appearance.commits]
        labels = [record.label for record in records if record.label]
        versions = [number for number, _ in appearance.commits]
        return {
            "timestamp": records[-1].time_ms if records else now,
            "operation": ", ".join(dict.fromkeys(record.operation for record in records)) or "OPEN",
            "operationParameters": {"versions": json.dumps(versions), "labels": json.dumps(labels)},
            "operationMetrics": {name: str(value) for name, value in appearance.metrics().items()},
            "isBlindAppend": False,
            "engineInfo": f"seqstore/{_program_version()}",
            "txnId": str(uuid.uuid4()),
            _TABLE: self._identity,
            _VERSION: appearance.version,
        }

    def _metadata(self, appearance: Appearance, known: Mapping[str, Any], now: int) -> dict[str, Any]:
        schema, interval = appearance.schema, f"interval {appearance.retention_seconds} seconds"
        metadata = {
            "id": self._identity,
            "name": appearance.name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_string(schema),
            "partitionColumns": [],
            "configuration": {
                **_mapping(schema, known),
                "delta.enableDeletionVectors": "true",
                "delta.logRetentionDuration": interval,
                "delta.deletedFileRetentionDuration": interval,
            },
            "createdTime": known.get("createdTime", now),
        }
        if schema.comment:
            metadata["description"] = schema.comment
        return metadata

    def _put_checkpoint(self, state: LogState) -> None:
        data, size = state.checkpoint()
        self.files.put_checkpoint(state.number, data, {"version": state.number, "size": size})

    def _forget(self, retention_seconds: int) -> None:
        """Removes commits before the newest checkpoint that is older than the retention."""
        old = self.files.commits()
        checkpoint = self.newest_before(retention_seconds, self.files.checkpoints())
        gone = [number for number in old if number < checkpoint]
        if not gone:
            return
        try:
            state = LogState.from_checkpoint(self.files.checkpoint_path(checkpoint), checkpoint)
        except CorruptionError as error:
            _LOG.error("%s; older commits stay", error)
            return
        used = {add.get("deletionVector", {}).get("pathOrInlineDv") for add in state.files.values()}
        self.files.remove_before(checkpoint, sorted({*gone, *self.files.checkpoints()}))
        for number in gone:
            identity = self._vectors_of(number)
            if packed_name(identity) not in used:
                self.files.disk.delete(f"{self.files.directory}/{file_name(identity)}")

    def newest_before(self, seconds: float, numbers: list[int]) -> int:
        """Returns the newest of some commits that was written so many seconds ago, -1 for none."""
        limit = time.time() * 1000 - seconds * 1000
        low, high = 0, len(numbers)
        while low < high:
            middle = (low + high) // 2
            if self.files.shown_ms(numbers[middle]) <= limit:
                low = middle + 1
            else:
                high = middle
        return numbers[low - 1] if low else -1

    def needed_version(self, retention_seconds: float) -> int | None:
        """Returns the oldest version that readers of the log may still need, None where nothing was shown.

        That is the version that was the newest one shown so many seconds ago.
        """
        commits = self.files.commits()
        for number in (self.newest_before(retention_seconds, commits), *commits):
            try:
                actions = self.files.actions(number) if number >= 0 else None
                for action in actions or ():
                    if action.get("commitInfo", {}).get(_TABLE) == self._identity:
                        return int(action["commitInfo"][_VERSION])
            except (ValueError, KeyError, TypeError, AttributeError):  # a damaged one
                continue
        return None


def _is_same(add: Mapping[str, Any], file: OpenFile) -> bool:
    """Returns whether an action of the log shows a file as it is now.

    Rows of a segment are only ever hidden, so their number tells whether they are the same ones.
    """
    cardinality = add.get("deletionVector", {}).get("cardinality", 0)
    is_segment = add.get("tags", {}).get(_SEGMENT) == file.segment.meta.id
    return bool(is_segment and cardinality == len(file.hidden))


def _added(file: OpenFile, vector: dict[str, Any] | None, now: int, *, changes: bool) -> dict[str, Any]:
    add = {
        "path": file.path,
        "partitionValues": {},
        "size": file.bytes,
        "modificationTime": now,
        "dataChange": changes,
        "stats": statistics(file),
        "tags": {_SEGMENT: file.segment.meta.id},
    }
    return add if vector is None else {**add, "deletionVector": vector}


def _removed(path: str, add: Mapping[str, Any], now: int, *, changes: bool) -> dict[str, Any]:
    remove = {
        "path": path,
        "deletionTimestamp": now,
        "dataChange": changes,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": add["size"],
    }
    vector = add.get("deletionVector")
    return remove if vector is None else {**remove, "deletionVector": vector}


def _protocol(schema: TableSchema) -> dict[str, Any]:
    features = ["columnMapping", *_READER_FEATURES] if schema.maps_columns else [*_READER_FEATURES]
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, *_WRITER_FEATURES],
    }


def _mapping(schema: TableSchema, known: Mapping[str, Any]) -> dict[str, str]:
    """Returns the configuration of column mapping; its largest id never shrinks."""
    if not schema.maps_columns:
        return {}
    largest = int(known.get("configuration", {}).get(_LARGEST, 0))
    return {"delta.columnMapping.mode": "id", _LARGEST: str(max(largest_id(schema), largest))}


@cache
def _program_version() -> str:
    try:
        return version("seqstore")
    except PackageNotFoundError:
        return "0"
