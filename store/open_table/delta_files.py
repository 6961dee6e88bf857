"""The directory `_delta_log` of a table: names, durable writes, commits of other programs.

A commit appears by a hard link from a complete, synced file: it is whole or absent, and never replaces
another one. Checkpoints and `_last_checkpoint` appear by a rename.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterable
from typing import Any, Final

from seqstore.store.errors import UnavailableError
from seqstore.store.runtime import failpoint
from seqstore.store.segment.disk import Disk

LOG: Final = "_delta_log"
_FOREIGN: Final = "_foreign"
_HINT: Final = "_last_checkpoint"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")
_NUMBERED: Final = re.compile(r"(\d{20})\..+")
_UNFINISHED: Final = re.compile(r"\..+\.tmp")


class LogFiles:
    """The files of the log of one table.

    Args:
        directory: of the table's files, below the root of the disk.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self._log = f"{directory}/{LOG}"
        self._vectors: list[str] = []

    def exists(self) -> bool:
        """Returns whether the table has a log."""
        return self.disk.path(self._log).is_dir()

    def has(self, number: int) -> bool:
        """Returns whether a commit exists."""
        return self.disk.path(f"{self._log}/{_commit(number)}").exists()

    def commits(self) -> list[int]:
        """Returns the numbers of the commits, ascending."""
        return self._numbers(_COMMIT)

    def checkpoints(self) -> list[int]:
        """Returns the numbers of the checkpoints, ascending."""
        return self._numbers(_CHECKPOINT)

    def _numbers(self, pattern: re.Pattern[str]) -> list[int]:
        found = (pattern.fullmatch(name) for name in self.disk.list(self._log))
        return [int(match[1]) for match in found if match]

    def checkpoint_path(self, number: int) -> str:
        """Returns the local path of a checkpoint."""
        return str(self.disk.path(f"{self._log}/{_checkpoint(number)}"))

    def actions(self, number: int) -> list[dict[str, Any]] | None:
        """Returns the actions of a commit, None where there is none of that number.

        Raises:
            ValueError: the file is no commit.
            UnavailableError: it cannot be read.
        """
        path = self.disk.path(f"{self._log}/{_commit(number)}")
        try:
            lines = path.read_text().splitlines()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnavailableError(f"{path}: cannot be read: {error}", kind="disk", path=str(path)) from error
        actions = [json.loads(line) for line in lines if line.strip()]
        if not all(isinstance(action, dict) for action in actions):
            raise ValueError(f"{path}: a line is no action")
        return actions

    def shown_ms(self, number: int) -> float:
        """Returns the Unix time at which a commit was written, in milliseconds."""
        return self.disk.path(f"{self._log}/{_commit(number)}").stat().st_mtime * 1000

    def put_commit(self, number: int, actions: Iterable[dict[str, Any]]) -> bool:
        """Writes a commit unless one of that number exists; returns whether it did.

        Raises:
            UnavailableError: it cannot be written.
        """
        text = "".join(json.dumps(action) + "\n" for action in actions)
        unfinished = self._write(text.encode())
        final = self.disk.path(f"{self._log}/{_commit(number)}")
        try:
            self._sync_before(unfinished)
            failpoint.hit("open.before_commit")
            os.link(self.disk.path(unfinished), final)
        except FileExistsError:
            return False
        except OSError as error:
            raise UnavailableError(
                f"{final}: cannot be written: {error}", kind="disk", path=str(final)
            ) from error
        finally:
            self.disk.discard(unfinished)
        self.sync()
        failpoint.hit("open.after_commit")
        return True

    def sync(self) -> None:
        """Makes the names of the commits durable."""
        self.disk.sync_directory(self._log)

    def _sync_before(self, unfinished: str) -> None:
        """Makes everything that a commit names durable, its own bytes too, in one go."""
        vectors, self._vectors = self._vectors, []
        self.disk.sync_files([unfinished, *vectors])
        if vectors:
            self.disk.sync_directory(self.directory)

    def put_checkpoint(self, number: int, data: bytes, hint: dict[str, Any]) -> None:
        """Writes a checkpoint, and the file that names it."""
        for name, content in ((_checkpoint(number), data), (_HINT, json.dumps(hint).encode())):
            unfinished = self._write(content)
            self.disk.sync_file(unfinished)
            self._rename(unfinished, f"{self._log}/{name}")
            self.disk.sync_directory(self._log)

    def put_vectors(self, name: str, data: bytes) -> None:
        """Writes a file of deletion vectors beside the segments; the next commit makes it durable."""
        path = f"{self.directory}/{name}"
        with self.disk.create_unsynced(path) as file:
            file.write(data)
        self._vectors.append(path)

    def _write(self, data: bytes) -> str:
        name = f"{self._log}/.{secrets.token_hex(8)}.tmp"
        with self.disk.create_unsynced(name) as file:
            file.write(data)
        return name

    def _rename(self, name: str, to: str) -> None:
        path, target = self.disk.path(name), self.disk.path(to)
        try:
            path.replace(target)
        except OSError as error:
            self.disk.discard(name)
            raise UnavailableError(
                f"{target}: cannot be written: {error}", kind="disk", path=str(target)
            ) from error

    def remove_unfinished(self) -> None:
        """Removes what a process that was killed had begun to write; its lock is held here now."""
        for name in self.disk.list(self._log):
            if _UNFINISHED.fullmatch(name):
                self.disk.delete(f"{self._log}/{name}")

    def move_aside(self, after: int) -> list[str]:
        """Moves everything of other programs after a commit out of the log; returns the names.

        A foreign checkpoint, and a hint at one, would lead readers past our commits.
        """
        moved = []
        for name in self.disk.list(self._log):
            match = _NUMBERED.fullmatch(name)
            if match and int(match[1]) > after:
                self.disk.move(f"{self._log}/{name}", f"{self._log}/{_FOREIGN}/{name}.{secrets.token_hex(4)}")
                moved.append(name)
        if moved:
            hint = self.disk.path(f"{self._log}/{_HINT}")
            if hint.exists():
                self.disk.move(
                    f"{self._log}/{_HINT}", f"{self._log}/{_FOREIGN}/{_HINT}.{secrets.token_hex(4)}"
                )
            self.disk.sync_directory(self._log)
        return moved

    def remove_before(self, checkpoint: int, numbers: Iterable[int]) -> None:
        """Removes commits and checkpoints that are older than a checkpoint."""
        for number in numbers:
            if number < checkpoint:
                self.disk.delete(f"{self._log}/{_commit(number)}")
                self.disk.delete(f"{self._log}/{_checkpoint(number)}")


def _commit(number: int) -> str:
    return f"{number:020}.json"


def _checkpoint(number: int) -> str:
    return f"{number:020}.checkpoint.parquet"
