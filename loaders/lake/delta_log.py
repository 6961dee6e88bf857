"""The log of a Delta table: the files of one of its versions, as the protocol of Delta describes them.

1. The newest complete checkpoint up to the version is read: one file, several parts, or a v2 checkpoint (JSON
   or Parquet) with its sidecars.
2. The commits behind it are replayed. A file is identified by its path and its deletion vector.

What the protocol of a table asks of readers and this one does not know is refused by name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from seqstore.loaders.lake.places import Places
from seqstore.store.errors import InvalidInputError, NotFoundError, VersionExpiredError
from seqstore.store.runtime.arrow_versions import python_rows

LOG: Final = "_delta_log"
_SIDECARS: Final = "_sidecars"
_READER_MAX: Final = 3
# Features of readers that need nothing, or that this package has; names of others are in the refusal.
_FEATURES: Final = frozenset(
    [
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    ]
)
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(
    r"(?P<version>\d{20})\.checkpoint"
    r"(\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<id>[0-9a-fA-F-]{36}))?\.(?P<suffix>parquet|json)"
)
# Of a Parquet checkpoint; statistics and values of other forms are left out.
_READ: Final = ("protocol", "metaData", "sidecar", "add.path", "add.partitionValues", "add.deletionVector")


@dataclass
class DeltaState:
    """A version of a Delta table.

    Attributes:
        version: of the log.
        metadata, protocol: the last action of each kind.
        files: `add` actions, by path and deletion vector.
    """

    version: int = -1
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    files: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def apply(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """Replays the actions of a commit or a checkpoint."""
        for action in actions:
            if action.get("add") is not None:
                self.files[_identity(action["add"])] = action["add"]
            elif action.get("remove") is not None:
                self.files.pop(_identity(action["remove"]), None)
            elif action.get("metaData") is not None:
                self.metadata = action["metaData"]
            elif action.get("protocol") is not None:
                self.protocol = action["protocol"]


def read_log(root: str, places: Places, version: int | None = None) -> DeltaState:
    """Returns a version of the table in a directory, the newest when None.

    Raises:
        NotFoundError: the directory has no log, or a file of it is missing.
        VersionExpiredError: no such version.
        InvalidInputError: the log is damaged, or its table needs a feature that is not known.
    """
    log = os.path.join(root, LOG)
    names = _names(root, places)
    commits = _commits(names)
    checkpoints = _complete(names)
    known = commits | checkpoints.keys()
    if not known:
        raise NotFoundError(f"{root}: no Delta table; its log has no commit", kind="no_files")
    wanted = max(known) if version is None else version
    if not min(known) <= wanted <= max(known):
        raise VersionExpiredError(
            f"{root}: the Delta table has no version {wanted}; its log has {min(known)} to {max(known)}",
            kind="version_expired",
            oldest=min(known),
            latest=max(known),
        )
    start = max((number for number in checkpoints if number <= wanted), default=-1)
    missing = next((number for number in range(start + 1, wanted + 1) if number not in commits), None)
    if missing is not None:
        raise InvalidInputError(
            f"{root}: version {wanted} needs commit {missing}, which the Delta log lacks; no checkpoint "
            "stands for it",
            kind="bad_delta",
        )
    state = DeltaState()
    try:
        if start >= 0:
            state.apply(_checkpoint(log, checkpoints[start], places))
        for number in range(start + 1, wanted + 1):
            state.apply(_lines(places.file(os.path.join(log, f"{number:020}.json"))))
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, (InvalidInputError, NotFoundError)):
            raise
        raise InvalidInputError(
            f"{root}: the Delta log cannot be read: {str(error)[:300]}", kind="bad_delta"
        ) from error
    state.version = wanted
    require_known(root, state.protocol, state.metadata)
    return state


def last_commits(root: str, places: Places) -> range:
    """Returns the versions whose commits the log has without a gap up to the newest one.

    Raises:
        NotFoundError: the directory has no log, or an empty one.
    """
    names = _names(root, places)
    commits = _commits(names)
    newest = max(commits | _complete(names).keys(), default=-1)
    if newest < 0:
        raise NotFoundError(f"{root}: no Delta table; its log has no commit", kind="no_files")
    first = newest + 1
    while first - 1 in commits:
        first -= 1
    return range(first, newest + 1)


def read_commit(root: str, places: Places, version: int) -> list[dict[str, Any]]:
    """Returns the actions of one commit.

    Raises:
        NotFoundError: the log does not have it.
        InvalidInputError: it is damaged.
    """
    path = places.file(os.path.join(root, LOG, f"{version:020}.json"))
    try:
        return list(_lines(path))
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{path}: the commit cannot be read: {str(error)[:300]}", kind="bad_delta"
        ) from error


def _names(root: str, places: Places) -> list[str]:
    """Returns the names of the files of a log."""
    log = os.path.join(root, LOG)
    if not os.path.isdir(log):
        raise NotFoundError(f"{root}: no Delta table; expected a directory {LOG} in it", kind="no_files")
    return os.listdir(places.directory(log))


def _commits(names: Iterable[str]) -> set[int]:
    return {int(match[1]) for match in map(_COMMIT.fullmatch, names) if match}


def _complete(names: Iterable[str]) -> dict[int, list[str]]:
    """Returns the files of one complete checkpoint of each version that has any."""
    found: dict[int, list[str]] = {}
    parts: dict[tuple[int, int], list[str]] = {}
    for name in sorted(names):
        match = _CHECKPOINT.fullmatch(name)
        if match is None or (match["suffix"] == "json" and not match["id"]):
            continue
        number = int(match["version"])
        if match["parts"]:
            group = parts.setdefault((number, int(match["parts"])), [])
            group.append(name)
            if len(group) == int(match["parts"]):
                found.setdefault(number, group)
        else:
            found.setdefault(number, [name])
    return found


def _checkpoint(log: str, names: Iterable[str], places: Places) -> Iterator[dict[str, Any]]:
    for name in names:
        for action in _actions(places.file(os.path.join(log, name))):
            yield action
            if action.get("sidecar"):
                path = action["sidecar"]["path"]
                yield from _actions(places.file(path, os.path.join(log, _SIDECARS)))


def _actions(path: str) -> Iterator[dict[str, Any]]:
    if path.endswith(".json"):
        yield from _lines(path)
        return
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in file.iter_batches(columns=list(_READ)):
            for row in python_rows(batch):
                yield _plain(row)


def _lines(path: str) -> Iterator[dict[str, Any]]:
    with open(path, "rb") as file:
        for line in file:
            if line.strip():
                action = json.loads(line)
                if not isinstance(action, dict):
                    raise ValueError(f"{path}: a line is no action")
                yield action


def _plain(value: Any) -> Any:
    """Returns an action as JSON has it: without what is not set."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if each is not None}
    return value


def _identity(action: Mapping[str, Any]) -> tuple[str, str]:
    vector = action.get("deletionVector")
    if not isinstance(action["path"], str):
        raise ValueError(f"a path is {action['path']!r}")
    if not vector:
        return action["path"], ""
    return action["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def require_known(root: str, protocol: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Checks that a table needs no reader that this one is not.

    Raises:
        InvalidInputError: names what it needs.
    """
    if not protocol or not metadata:
        raise InvalidInputError(f"{root}: the Delta log has no protocol or no schema", kind="bad_delta")
    needed = int(protocol.get("minReaderVersion", 1))
    if needed > _READER_MAX:
        raise InvalidInputError(
            f"{root}: the Delta table needs reader version {needed}; expected at most {_READER_MAX}",
            kind="not_supported",
        )
    features = set(protocol.get("readerFeatures") or ()) - _FEATURES if needed == _READER_MAX else set()
    if features:
        raise InvalidInputError(
            f"{root}: the Delta table needs the reader feature {', '.join(sorted(features))}, which the "
            f"import does not have; it has {', '.join(sorted(_FEATURES))}",
            kind="not_supported",
        )
    provider = (metadata.get("format") or {}).get("provider", "parquet")
    if provider != "parquet":
        raise InvalidInputError(
            f"{root}: the files of the Delta table are {provider}; expected parquet", kind="not_supported"
        )
