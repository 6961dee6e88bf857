"""Names of the files that loads stage, and how a load that several processes stage comes to its end.

A file is named after the process that answers for it: while that lives the file is left alone, and when it is
gone whatever no version names is removed (store.recovery). That does for the files of one process, which
knows what it makes. A load's tasks may run anywhere and longer than the load does: one that is still writing
when its load has failed, or whose share another attempt has brought, makes files behind the back of those who
clean up. So such a load is announced by a file of its own beside the segments:

1. `begin`: its owner makes the announcement before any task runs.
2. A task that makes a file looks for the announcement as soon as the file has its name (`Disk.guarded`), and
   takes the file away when there is none any more.
3. `end`: whoever ends the load removes the announcement first, and then every file of the load that was not
   adopted.

A file has its name before 3 lists the directory, which finds it, or after the announcement was gone, which 2
sees. What outlasts both is the empty file of a task that was killed between its making and its look.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final

from store.disk import Disk
from store.errors import ClosedError
from store.transaction import this_process

ANNOUNCED: Final = "load"  # suffix of announcements
_DIGITS: Final = 16
_serial = itertools.count()


@dataclass(frozen=True)
class StagingId:
    """Names the files of a load that several processes, perhaps of several hosts, stage together.

    Attributes:
        owner: process id and start time of the process that will commit; while it lives the files are left
            alone.
        job: 16 hexadecimal digits, the load's own; those of an attempt are followed by 16 more.
        purpose: 16 hexadecimal digits that whoever wants to find the load again knows, or none.
        begun: when it was made, in nanoseconds of Unix time.
    """

    owner: tuple[int, int]
    job: str
    purpose: str = ""
    begun: int = field(default_factory=time.time_ns)

    @classmethod
    def of(cls, owner: tuple[int, int], purpose: str = "") -> StagingId:
        """A new one.

        Args:
            purpose: any text.
        """
        return cls(owner, _random_digits(), _digits_of(purpose) if purpose else "")

    @classmethod
    def announced_by(cls, file_name: str) -> StagingId | None:
        """Of the load that a file announces; None when the file is none of those."""
        name, _, suffix = file_name.rpartition(".")
        if suffix != ANNOUNCED:
            return None
        begun, _, _, digits = name.split("-")
        return cls(maker_of(name), digits[:_DIGITS], digits[_DIGITS:], int(begun, 16))

    @property
    def announcement(self) -> str:
        """Name of the file that announces the load."""
        return f"{self._name(self.begun)}{self.purpose}.{ANNOUNCED}"

    def attempt(self) -> StagingId:
        """For the files of one task that runs once: of the load, and told apart from those of others."""
        return replace(self, job=self.job + _random_digits())

    def new_segment_id(self) -> str:
        """Unique when this is an attempt."""
        return f"{self._name(time.time_ns())}{next(_serial):x}"

    def owns(self, file_name: str) -> bool:
        """Whether a file was staged for this load, or attempt."""
        return file_name.rpartition(".")[0].rpartition("-")[2].startswith(self.job)

    def begin(self, disk: Disk, directory: str) -> None:
        """Announces the load: shares can be staged from now on, until `end`.

        Raises:
            UnavailableError: the disk cannot be written.
        """
        with disk.create(f"{directory}/{self.announcement}") as file:
            file.write(self.job.encode())  # not every object store keeps empty objects

    def refuse_ended(self, disk: Disk, directory: str) -> None:
        """Raises:
        ClosedError: the load has not begun, or has ended.
        """
        if not disk.exists(f"{directory}/{self.announcement}"):
            raise ClosedError(
                f"{directory}: load {self.job} has ended, nobody would take these rows; begin another",
                kind="load_ended",
            )

    def end(self, disk: Disk, directory: str, *, keep: Collection[str] = ()) -> None:
        """Removes the files of the load, but for those of the segments named."""
        disk.delete(f"{directory}/{self.announcement}")
        self.remove_files(disk, directory, keep=keep)

    def remove_files(self, disk: Disk, directory: str, *, keep: Collection[str] = ()) -> None:
        """Those of this load, or attempt, there are now."""
        for name in disk.list(directory):
            if self.owns(name) and name.rpartition(".")[0] not in keep:
                disk.delete(f"{directory}/{name}")

    def _name(self, made: int) -> str:
        pid, started = self.owner
        return f"{made:016x}-{pid:x}-{started:x}-{self.job}"


def new_segment_id() -> str:
    """Unique without coordination, ascending in time, and it names its maker: time, process id, its start,
    serial."""
    pid, started = this_process()
    return f"{time.time_ns():016x}-{pid:x}-{started:x}-{next(_serial):x}"


def made_at(segment_id: str) -> float:
    """When a segment was made, in seconds of Unix time."""
    return int(segment_id.partition("-")[0], 16) / 1e9


def maker_of(segment_id: str) -> tuple[int, int]:
    """The process that made a segment, for `transaction.is_alive`."""
    _, pid, started, _ = segment_id.split("-")
    return int(pid, 16), int(started, 16)


def _random_digits() -> str:
    return secrets.token_hex(_DIGITS // 2)


def _digits_of(text: str) -> str:
    return blake2b(text.encode(), digest_size=_DIGITS // 2).hexdigest()
