"""Segment files on an object store, such as S3, with a local cache.

Segment files never change, so a local copy never becomes stale:

1. A new file is written into the cache, checked and synced like any other, then uploaded. It is durable when
   the object store has acknowledged it. No file is renamed.
2. A file is read from its copy. A missing copy is fetched first, under a temporary name, and moved into place
   when it is complete.
3. When copies exceed `cache_bytes_max`, the least recently used ones are removed; a mapping of a removed copy
   stays valid.

The catalog stays on the local disk of the host that commits. Other hosts, Spark's executors among them, keep
their cache in their directory for temporary files.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from seqstore.store.errors import CorruptionError, InvalidInputError, UnavailableError
from seqstore.store.runtime.durable_directory import make_directory, sync_path
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.runtime.native_file import NativeReader
from seqstore.store.segment.disk import Disk, NewFile

_COPY_BYTES = 8 * 2**20


class ObjectDisk(Disk):
    """Files below a URI that `pyarrow.fs` understands; picklable.

    Args:
        uri: such as `s3://bucket/prefix?endpoint_override=localhost:8333&scheme=http`; credentials come from
            the environment or the URI.
        data_dir: of the store; it contains the cache, where it exists.
        cache_bytes_max: size limit of the cache.
        mapped_reads: copies are mapped; see `Disk`.
    """

    has_copies: ClassVar[bool] = True

    def __init__(self, uri: str, data_dir: Path, cache_bytes_max: int, *, mapped_reads: bool = True) -> None:
        self.uri = uri
        self._data_dir = data_dir
        self._cache_bytes_max = cache_bytes_max
        super().__init__(self._cache_root(), mapped_reads=mapped_reads)

    def _cache_root(self) -> Path:
        if self._data_dir.is_dir():
            return self._data_dir / "cache"
        own = blake2b(self.uri.encode(), digest_size=8).hexdigest()
        return Path(tempfile.gettempdir()) / f"seqstore-cache-{own}"

    def __getstate__(self) -> dict[str, Any]:
        kept = ("uri", "_data_dir", "_cache_bytes_max", "mapped_reads")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.root = self._cache_root()  # another host may have no data directory

    @cached_property
    def _remote(self) -> tuple[Any, str]:
        """The file system and the path on it."""
        try:
            filesystem, path = pafs.FileSystem.from_uri(self.uri)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InvalidInputError(
                f"segments URI {self._public_uri!r} cannot be used: {error}; expected one such as s3://bucket/prefix",
                kind="bad_uri",
            ) from error
        return filesystem, path.rstrip("/")

    @property
    def _public_uri(self) -> str:
        """The URI without the secrets it may hold."""
        parts = urlsplit(self.uri)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def _unavailable(self, name: str, verb: str, error: OSError) -> UnavailableError:
        message = f"{self._public_uri}: {name} cannot be {verb}: {error}"
        return UnavailableError(message, kind="disk", path=name)

    def _object(self, name: str) -> str:
        return f"{self._remote[1]}/{name}"

    @contextmanager
    def create(self, name: str) -> Iterator[NewFile]:
        with self._written(name) as file:
            yield file
        self._look(name)
        try:
            self._upload(name)
        except OSError as error:
            self.path(name).unlink(missing_ok=True)
            raise self._unavailable(name, "written", error) from error
        self._evict(keep=self.path(name))
        self._look(name)

    def _look(self, name: str) -> None:
        """Runs the check of `guarded`, if there is one.

        An object has its name when it is uploaded. The check also runs before the upload, to avoid a needless
        upload.
        """
        try:
            if self._check is not None:
                self._check()
        except BaseException:
            self.delete(name)
            raise

    def _upload(self, name: str) -> None:
        filesystem, _ = self._remote
        target, is_local = self._object(name), filesystem.type_name == "local"
        if is_local:  # object stores have no directories
            make_directory(Path(target).parent)
        with self.path(name).open("rb") as source, filesystem.open_output_stream(target) as sink:
            shutil.copyfileobj(source, sink, _COPY_BYTES)
        if is_local:  # they acknowledge what is durable
            sync_path(Path(target))
            sync_path(Path(target).parent)

    def sync_directory(self, name: str) -> None:
        """Does nothing: an acknowledged object has its name."""

    def map(self, name: str) -> pa.Buffer:
        path = self.path(name)
        if path.exists():
            os.utime(path)
        else:
            self._fetch(name)
        try:
            return self._bytes(path)
        except FileNotFoundError:  # another process evicted it between the two steps
            self._fetch(name)
            return self._bytes(path)

    def _fetch(self, name: str) -> None:
        filesystem, _ = self._remote
        path = self.path(name)
        make_directory(path.parent)
        partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.fetching")
        try:
            opened = NativeReader(filesystem.open_input_stream(self._object(name)))
            with opened as source, partial.open("wb") as sink:
                shutil.copyfileobj(source, sink, _COPY_BYTES)
            partial.replace(path)
        except FileNotFoundError as error:
            raise CorruptionError(
                f"{self._public_uri}: the catalog names {name}, but it is missing", path=name
            ) from error
        except OSError as error:
            raise self._unavailable(name, "read", error) from error
        finally:
            partial.unlink(missing_ok=True)
        self._evict(keep=path)

    def _evict(self, *, keep: Path) -> None:
        """Removes the least recently used copies until the cache is within its limit."""
        copies = []
        for path in self.root.rglob("*"):
            with suppress(FileNotFoundError):  # another process may remove it
                status = path.stat()
                if path.is_file():
                    copies.append((status.st_mtime_ns, status.st_size, path))
        excess = sum(size for _, size, _ in copies) - self._cache_bytes_max
        for _, size, path in sorted(copies):
            if excess <= 0:
                return
            if path != keep:
                path.unlink(missing_ok=True)
                excess -= size

    def exists(self, name: str) -> bool:
        """Returns whether the object store has the file; copies do not count."""
        filesystem, _ = self._remote
        try:
            found = filesystem.get_file_info(self._object(name))
        except OSError as error:
            raise self._unavailable(name, "read", error) from error
        return bool(found.type == pafs.FileType.File)

    def list(self, directory: str) -> list[str]:
        filesystem, _ = self._remote
        selector = pafs.FileSelector(self._object(directory), allow_not_found=True)
        return sorted(info.base_name for info in filesystem.get_file_info(selector))

    def age_seconds(self, name: str, now: float) -> float:
        info = self._remote[0].get_file_info(self._object(name))
        return now - info.mtime.timestamp() if info.mtime is not None else 0.0

    def move(self, name: str, to: str) -> None:
        super().delete(name)
        filesystem, _ = self._remote
        try:
            if filesystem.type_name == "local":  # object stores have no directories
                filesystem.create_dir(self._object(to).rpartition("/")[0])
            filesystem.copy_file(self._object(name), self._object(to))
            filesystem.delete_file(self._object(name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unavailable(name, "moved", error) from error

    def delete(self, name: str) -> None:
        super().delete(name)
        try:
            self._remote[0].delete_file(self._object(name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unavailable(name, "removed", error) from error
