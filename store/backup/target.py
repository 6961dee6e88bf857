"""The place of backups: a local directory, or a URI that `pyarrow.fs` understands.

A file of a local directory has its name when it is whole and durable. An object has its name when the object
store has acknowledged it. A writer that fails removes what it wrote.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from seqstore.store.errors import CorruptionError, InvalidInputError, UnavailableError
from seqstore.store.runtime.durable_directory import make_directory, sync_path
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.runtime.native_file import NativeReader, read_bytes
from seqstore.store.runtime.secrets.words import masked_uri

_PART: Final = ".part"  # the end of the name of a local file that is not whole
_PART_SECONDS: Final = 24 * 3600  # without a write, and its writer has ended


class Target:
    """Files below one place. Names are relative, with `/` between parts.

    Args:
        uri: an absolute path, or a URI such as `file:///backups` or `s3://bucket/prefix`; credentials come
            from the environment or the URI.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.local: Path | None = None
        if uri.lower().startswith("file:"):
            self.local = Path(unquote(urlsplit(uri).path))
        elif "://" not in uri:
            self.local = Path(uri)
        if self.local is not None and (not self.local.is_absolute() or ".." in self.local.parts):
            raise InvalidInputError(
                f"place of backups {uri!r}: expected an absolute path without '..', or a URI such as "
                "s3://bucket/prefix",
                kind="bad_uri",
            )

    @property
    def shown(self) -> str:
        """The place without secrets."""
        return masked_uri(self._uri)

    def refuse_within(self, directory: Path) -> None:
        """Refuses a place in a data directory, whose files belong to the store.

        Raises:
            InvalidInputError: it is there.
        """
        own = os.path.realpath(directory)
        if self.local is not None and f"{os.path.realpath(self.local)}/".startswith(f"{own}/"):
            raise InvalidInputError(
                f"{self.shown} is in the data directory {own}; files for other uses belong elsewhere",
                kind="bad_uri",
            )

    @cached_property
    def _remote(self) -> tuple[Any, str]:
        if self.local is not None:
            return pafs.LocalFileSystem(), str(self.local)
        try:
            filesystem, path = pafs.FileSystem.from_uri(self._uri)
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = str(error).replace(self._uri, self.shown)
            raise InvalidInputError(
                f"place of backups {self.shown!r} cannot be used: {reason}; expected a directory or a URI "
                "such as s3://bucket/prefix",
                kind="bad_uri",
            ) from error
        return filesystem, path.rstrip("/")

    def sizes(self, directory: str) -> dict[str, int]:
        """Returns the files of a directory with their sizes in bytes; empty without such a directory.

        Raises:
            UnavailableError: it cannot be read.
        """
        filesystem, root = self._remote
        with self._translated(directory, "listed"):
            found = filesystem.get_file_info(pafs.FileSelector(f"{root}/{directory}", allow_not_found=True))
        files = [info for info in found if info.type == pafs.FileType.File]
        return {info.base_name: int(info.size) for info in files if not info.base_name.endswith(_PART)}

    def chunks(self, name: str, sizes: Iterable[int]) -> Iterator[memoryview]:
        """Yields the bytes of a file in pieces of some sizes; a last piece is what the sizes leave.

        Raises:
            CorruptionError: the file is missing.
            UnavailableError: it cannot be read.
        """
        filesystem, root = self._remote
        with self._translated(name, "read"):
            file = filesystem.open_input_stream(f"{root}/{name}")
        with file:
            for size in sizes:
                with self._translated(name, "read"):
                    data = read_bytes(file, size)
                yield memoryview(data)
            with self._translated(name, "read"):
                rest = read_bytes(file, 1)
            yield memoryview(rest)

    def read(self, name: str) -> bytes:
        """Returns a whole file; raises as `chunks`."""
        filesystem, root = self._remote
        with self._translated(name, "read"), filesystem.open_input_file(f"{root}/{name}") as file:
            return NativeReader(file).read()

    def write(self, name: str, pieces: Iterable[Any]) -> None:
        """Writes a file of some pieces; an error of `pieces` leaves no file.

        Raises:
            UnavailableError: it cannot be written.
        """
        if self.local is not None:
            self._write_local(self.local / name, pieces)
            return
        filesystem, root = self._remote
        with self._translated(name, "written"):
            file = filesystem.open_output_stream(f"{root}/{name}")
        try:
            for piece in pieces:
                with self._translated(name, "written"):
                    file.write(piece)
            with self._translated(name, "written"):
                file.close()
        except BaseException:
            with suppress(Exception):
                file.close()
            with suppress(Exception):  # the close has given the object its name
                filesystem.delete_file(f"{root}/{name}")
            raise

    def _write_local(self, path: Path, pieces: Iterable[Any]) -> None:
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_PART}")
        try:
            with self._translated(path.name, "written"):
                make_directory(path.parent)
                with part.open("xb") as file:
                    for piece in pieces:
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(path)
                sync_path(path.parent)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        """Removes a file, if it exists.

        Raises:
            UnavailableError: it cannot be removed.
        """
        filesystem, root = self._remote
        with suppress(FileNotFoundError), self._translated(name, "removed", missing_ok=True):
            filesystem.delete_file(f"{root}/{name}")

    def remove_parts(self, directory: str) -> None:
        """Removes what killed writers left in a local directory: parts without a write for a day."""
        if self.local is not None:
            for path in (self.local / directory).glob(f"*{_PART}"):
                with suppress(OSError):
                    if time.time() - path.stat().st_mtime > _PART_SECONDS:
                        path.unlink()

    @contextmanager
    def _translated(self, name: str, verb: str, *, missing_ok: bool = False) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if missing_ok:
                raise
            if verb == "read":
                raise CorruptionError(f"{self.shown}: {name} is missing", path=name) from error
            raise self._unavailable(name, verb, error) from error
        except OSError as error:
            raise self._unavailable(name, verb, error) from error

    def _unavailable(self, name: str, verb: str, error: OSError) -> UnavailableError:
        return UnavailableError(
            f"{self.shown}: {name} cannot be {verb}: {error}", kind="disk", path=f"{self.shown}/{name}"
        )
