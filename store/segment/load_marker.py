"""Names of the files that loads stage, and how a load that several processes stage comes to its end.

A file is named after the process that answers for it: while that lives the file is left alone, and when it is
gone whatever no version names is removed (recovery). That does for the files of one process, which
knows what it makes. A load's tasks may run anywhere and longer than the load does: one that is still writing
when its load has failed, or whose share another attempt has brought, makes files behind the back of those who
clean up. So such a load is announced by a file of its own beside the segments:

1. `begin`: its owner makes the announcement before any task runs.
2. A task that makes a file looks for the announcement as soon as the file has its name, and when it is
   written (`Disk.guarded`); the file goes when there is none any more.
3. Whoever publishes shares of the load looks for it within the switch, and refuses when it is gone.
4. `recovery.end_loads`: whoever ends the load removes the announcement first, waits for the switch that may
   be on its way, and then removes every file of the load that the catalog does not name.

So a file has its name before 4 lists the directory, which finds it, or after the announcement was gone, which
2 sees; and 4 removes nothing that is, or will be, published. Files of a task that was killed before its look,
and those of a load whose end was cut short, are found later: a file without an announcement that the catalog
does not name belongs to nobody, though its owner lives.
"""

from __future__ import annotations

import itertools
import secrets
import time
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from seqstore.store.errors import ClosedError
from seqstore.store.runtime.process_identity import this_process
from seqstore.store.segment.disk import Disk

MARKER: Final = "load"  # suffix of announcements
_DIGITS: Final = 16
_serial = itertools.count()


@dataclass(frozen=True)
class StagingId:
    """Names a load that several processes, perhaps of several hosts, stage together, and its announcement.

    Attributes:
        owner: process id and start time of the process that will commit; when it is gone, so is the load.
        job: 16 hexadecimal digits, the load's own.
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
    def marked_by(cls, file_name: str) -> StagingId | None:
        """Of the load that a file announces; None when the file, one of a table's, announces none."""
        name, _, suffix = file_name.rpartition(".")
        if suffix != MARKER:
            return None
        begun, _, _, digits = name.split("-")
        return cls(maker_of(name), digits[:_DIGITS], digits[_DIGITS:], int(begun, 16))

    @property
    def marker(self) -> str:
        """Name of the file that announces the load."""
        return f"{_name(self.begun, self.owner)}-{self.job}{self.purpose}.{MARKER}"

    def attempt(self) -> Attempt:
        return Attempt(self.owner, self.job + _random_digits())

    def begin(self, disk: Disk, directory: str) -> None:
        """Announces the load.

        Raises:
            UnavailableError: the disk cannot be written.
        """
        with disk.create(f"{directory}/{self.marker}") as file:
            file.write(self.job.encode())  # not every object store keeps empty objects

    def refuse_ended(self, disk: Disk, directory: str) -> None:
        """Raises:
        ClosedError: the load has not begun, or has ended.
        """
        if not disk.exists(f"{directory}/{self.marker}"):
            raise ClosedError(
                f"{directory}: load {self.job} has ended, nobody takes these rows any more; begin another",
                kind="load_ended",
            )


@dataclass(frozen=True)
class Attempt:
    """Names the files of a task of such a load that runs once.

    Attributes:
        owner: as of the load.
        digits: hexadecimal: the load's 16 and 16 of its own.
    """

    owner: tuple[int, int]
    digits: str

    def new_segment_id(self) -> str:
        return f"{_name(time.time_ns(), self.owner)}-{self.digits}{next(_serial):x}"

    def remove_files(self, disk: Disk, directory: str) -> None:
        """Those there are now."""
        for name in disk.list(directory):
            if _last_part(name).startswith(self.digits):
                disk.delete(f"{directory}/{name}")


def job_of(file_name: str) -> str | None:
    """`StagingId.job` of the load whose task made a file; None when it is no such file."""
    digits = _last_part(file_name)
    is_staged = len(digits) > 2 * _DIGITS and not file_name.endswith(f".{MARKER}")
    return digits[:_DIGITS] if is_staged else None


def new_segment_id() -> str:
    """Unique without coordination, ascending in time, and it names its maker: time, process id, its start,
    serial."""
    return f"{_name(time.time_ns(), this_process())}-{next(_serial):x}"


def made_at(segment_id: str) -> float:
    """When a segment was made, in seconds of Unix time."""
    return int(segment_id.partition("-")[0], 16) / 1e9


def maker_of(segment_id: str) -> tuple[int, int]:
    """The process that made a segment, for `transaction.is_alive`."""
    _, pid, started, _ = segment_id.split("-")
    return int(pid, 16), int(started, 16)


def _name(made: int, owner: tuple[int, int]) -> str:
    pid, started = owner
    return f"{made:016x}-{pid:x}-{started:x}"


def _last_part(file_name: str) -> str:
    return file_name.rpartition(".")[0].rpartition("-")[2]


def _random_digits() -> str:
    return secrets.token_hex(_DIGITS // 2)


def _digits_of(text: str) -> str:
    return blake2b(text.encode(), digest_size=_DIGITS // 2).hexdigest()
