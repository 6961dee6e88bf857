"""Names of the files that loads stage, and the end of a load that several processes stage.

A file's name contains the process that is responsible for it. Recovery keeps the file while that process
lives; afterwards it removes the file unless a version names it. This rule suffices for files of one process,
which knows its own files.
The tasks of a load may run on any host and longer than the load itself. After the load has failed, or another
attempt has delivered a task's share, that task may still write files that no cleanup expects. Such a load
therefore has a marker: a file of its own beside the segments.

1. `begin`: the load's owner creates the marker before any task runs.
2. A task that creates a file looks for the marker as soon as the file has its name, and again when the file
   is complete (`Disk.guarded`). Without a marker the task removes its file.
3. A publisher of the load's shares looks for the marker within the commit point's transaction, and refuses
   without it.
4. `recovery.end_loads`: the end of the load removes the marker first, waits for a commit that may be under
   way, and then removes every file of the load that the catalog does not name.

A file therefore has its name before step 4 lists the directory, which then finds it, or after the marker was
removed, which step 2 detects. Step 4 removes no file that is published or will be.
Files of a task that was killed before step 2, and of a load whose end was interrupted, are found later: a
file without a marker that the catalog does not name has no owner, even if its process lives.
"""

from __future__ import annotations

import itertools
import re
import secrets
import time
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from seqstore.store.errors import ClosedError
from seqstore.store.runtime.process_identity import this_process
from seqstore.store.segment.disk import Disk

MARKER: Final = "load"  # suffix of marker files
_DIGITS: Final = 16
_SEGMENT_ID: Final = re.compile(r"[0-9a-f]{16}(-[0-9a-f]+){3}")
_serial = itertools.count()


@dataclass(frozen=True)
class StagingId:
    """Names a load that several processes, perhaps of several hosts, stage together, and its marker.

    Attributes:
        owner: process id and start time of the process that will commit; the load ends with that process.
        job: 16 hexadecimal digits, unique to the load.
        purpose: 16 hexadecimal digits by which the load can be found again, or none.
        begun: the time of its creation, in nanoseconds of Unix time.
    """

    owner: tuple[int, int]
    job: str
    purpose: str = ""
    begun: int = field(default_factory=time.time_ns)

    @classmethod
    def of(cls, owner: tuple[int, int], purpose: str = "") -> StagingId:
        """Creates an id.

        Args:
            purpose: any text.
        """
        digits = blake2b(purpose.encode(), digest_size=_DIGITS // 2).hexdigest() if purpose else ""
        return cls(owner, _random_digits(), digits)

    @classmethod
    def marked_by(cls, file_name: str) -> StagingId | None:
        """Returns the id of the load that a marker file names; None when the file, one of a table's, is no
        marker.
        """
        name, _, suffix = file_name.rpartition(".")
        if suffix != MARKER:
            return None
        begun, _, _, digits = name.split("-")
        return cls(maker_of(name), digits[:_DIGITS], digits[_DIGITS:], int(begun, 16))

    @property
    def marker(self) -> str:
        """Name of the load's marker file."""
        return f"{_name(self.begun, self.owner)}-{self.job}{self.purpose}.{MARKER}"

    def attempt(self) -> Attempt:
        return Attempt(self.owner, self.job + _random_digits())

    def begin(self, disk: Disk, directory: str) -> None:
        """Creates the marker.

        Raises:
            UnavailableError: the disk cannot be written.
        """
        with disk.create(f"{directory}/{self.marker}") as file:
            file.write(self.job.encode())  # not every object store keeps empty objects

    def refuse_ended(self, disk: Disk, directory: str) -> None:
        """Checks that the load runs.

        Raises:
            ClosedError: the load has not begun, or has ended.
        """
        if not disk.exists(f"{directory}/{self.marker}"):
            raise ClosedError(
                f"{directory}: load {self.job} has ended, its rows cannot be loaded any more; begin another",
                kind="load_ended",
            )


@dataclass(frozen=True)
class Attempt:
    """Names the files of one run of a task of such a load, by the load's 16 digits and 16 of its own."""

    owner: tuple[int, int]
    digits: str

    def new_segment_id(self) -> str:
        return f"{_name(time.time_ns(), self.owner)}-{self.digits}{next(_serial):x}"

    def remove_files(self, disk: Disk, directory: str) -> None:
        """Removes the attempt's files that exist now."""
        for name in disk.list(directory):
            if _last_part(name).startswith(self.digits):
                disk.delete(f"{directory}/{name}")


def job_of(file_name: str) -> str | None:
    """Returns `StagingId.job` of the load whose task made a file; None when it is no such file."""
    digits = _last_part(file_name)
    is_staged = len(digits) > 2 * _DIGITS and not file_name.endswith(f".{MARKER}")
    return digits[:_DIGITS] if is_staged else None


def new_segment_id() -> str:
    """Returns an id that is unique without coordination and ascends in time.

    It consists of the time, the process id, the process's start time and a serial number.
    """
    return f"{_name(time.time_ns(), this_process())}-{next(_serial):x}"


def is_segment_id(text: str) -> bool:
    """Returns whether a text has the form of the ids made here, of which file names are made."""
    return _SEGMENT_ID.fullmatch(text) is not None


def made_at(segment_id: str) -> float:
    """Returns when a segment was made, in seconds of Unix time."""
    return int(segment_id.partition("-")[0], 16) / 1e9


def maker_of(segment_id: str) -> tuple[int, int]:
    """Returns the process that made a segment, for `transaction.is_alive`."""
    _, pid, started, _ = segment_id.split("-")
    return int(pid, 16), int(started, 16)


def _name(made: int, owner: tuple[int, int]) -> str:
    pid, started = owner
    return f"{made:016x}-{pid:x}-{started:x}"


def _last_part(file_name: str) -> str:
    return file_name.rpartition(".")[0].rpartition("-")[2]


def _random_digits() -> str:
    return secrets.token_hex(_DIGITS // 2)
