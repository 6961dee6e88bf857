"""The place that receives a shipped catalog: a directory of another disk, or a bucket of an object store.

Both refuse to create a name that exists, and to replace a file that is not the expected one. A directory does
so by a hard link and by a lock file; an object store by `If-None-Match: *` and `If-Match`. A store that does
not honour them is refused by `check_conditions`.

A directory may be the mount point of a file system that is away. It is used only while it has the file that
was created first. Otherwise what is shipped would go to the disk of the host, and what was shipped would look
as if it had never been.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import xxhash

from seqstore.store.errors import InvalidInputError, UnavailableError
from seqstore.store.runtime.durable_directory import make_directory, sync_path
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.runtime.secrets.words import masked_uri

FIRST_FILE: Final = "lease"  # created first, never removed
_used_by: Final[set[int]] = set()  # processes with connections: this one, and those it was forked from
_PART: Final = ".part"  # the end of the name of a local file that is not whole
_REQUEST_SECONDS: Final = "20s"
_TRIES: Final = 3
_QUERY: Final = ("endpoint_override", "scheme", "region")


class Place(ABC):
    """Files below one place. Names are relative, with `/` between parts.

    Attributes:
        shown: the place without secrets.
    """

    shown: str

    @abstractmethod
    def read(self, name: str) -> tuple[bytes, str] | None:
        """Returns the bytes of a file and its tag, for `replace`; None when there is no such file."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Creates a file durably; returns False, without a change, when the name exists."""

    @abstractmethod
    def replace(self, name: str, data: bytes, tag: str) -> bool:
        """Replaces a file durably; returns False, without a change, when its tag is another one."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Writes a file, whatever was there."""

    @abstractmethod
    def list(self, directory: str, after: str = "") -> list[str]:
        """Returns the names of all files below a directory, relative to it, in order.

        Args:
            after: only names that are larger.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Removes a file, if it exists."""

    def check_conditions(self) -> None:
        """Tries whether the place refuses what it must refuse.

        Raises:
            InvalidInputError: it does not.
            UnavailableError: it cannot be used.
        """
        name = f"probe/{uuid.uuid4().hex}"
        try:
            first, second = self.create(name, b"1"), self.create(name, b"2")
            found = self.read(name)
            tag = "" if found is None else found[1]
            wrong = self.replace(name, b"3", "0" * 32)
            right, stale = self.replace(name, b"4", tag), self.replace(name, b"5", tag)
        finally:
            with suppress(UnavailableError):
                self.delete(name)
        if (first, second, wrong, right, stale) != (True, False, False, True, False):
            raise InvalidInputError(
                f"{self.shown} does not honour conditional writes (If-None-Match, If-Match), which keep two "
                "hosts from writing one log; name a place that does, such as a directory or Amazon S3",
                kind="no_conditional_writes",
            )

    def _unavailable(self, name: str, verb: str, error: Exception) -> UnavailableError:
        reason = str(error).partition("\n")[0]
        path = f"{self.shown}/{name}"
        return UnavailableError(f"{self.shown}: {name} cannot be {verb}: {reason}", kind="disk", path=path)


def open_place(uri: str, *, is_new: bool = False) -> Place:
    """Returns the place of a URI.

    Args:
        uri: an absolute path, `file:///path`, or `s3://bucket/prefix?endpoint_override=host:port&scheme=http`
            as for segments; credentials come from the environment or the URI.
        is_new: no store has shipped to it, and it is made when it does not exist.

    Raises:
        InvalidInputError: it is none of these, or the package for object stores is missing.
    """
    parts = urlsplit(uri)
    if parts.scheme == "s3":
        return _ObjectStore(uri)
    path = Path(unquote(parts.path) if parts.scheme == "file" else uri)
    if parts.scheme not in ("", "file") or not path.is_absolute() or ".." in path.parts:
        raise InvalidInputError(
            f"{masked_uri(uri)!r} cannot receive a catalog: expected an absolute path without '..', or a URI "
            "such as s3://bucket/prefix",
            kind="bad_uri",
        )
    return _Directory(path, is_new=is_new)


class _Directory(Place):
    """A directory; a tag is the checksum of the bytes."""

    def __init__(self, root: Path, *, is_new: bool) -> None:
        self._root = root
        self._is_new = is_new
        self.shown = str(root)

    def _require_there(self, name: str, verb: str) -> None:
        """Raises when the file system of the place is away."""
        try:
            if self._is_new or (self._root / FIRST_FILE).exists():
                return
        except OSError as error:
            raise self._unavailable(name, verb, error) from error
        raise UnavailableError(
            f"{self.shown}: {name} cannot be {verb}: the directory has no file '{FIRST_FILE}', which a place "
            "of a shipped catalog has; mount its file system",
            kind="disk",
            path=f"{self.shown}/{name}",
        )

    def read(self, name: str) -> tuple[bytes, str] | None:
        try:
            data = (self._root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            if name != FIRST_FILE:
                self._require_there(name, "read")
            return None
        except OSError as error:
            raise self._unavailable(name, "read", error) from error
        return data, xxhash.xxh3_128_hexdigest(data)

    def create(self, name: str, data: bytes) -> bool:
        with self._part(name, data) as part:
            try:
                os.link(part, self._root / name)
            except FileExistsError:
                return False
            sync_path(part.parent)
        return True

    def replace(self, name: str, data: bytes, tag: str) -> bool:
        with self._part(name, data) as part, (part.parent / ".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = self.read(name)
            if found is None or found[1] != tag:
                return False
            part.replace(self._root / name)
            sync_path(part.parent)
        return True

    def write(self, name: str, data: bytes) -> None:
        with self._part(name, data) as part:
            part.replace(self._root / name)
            sync_path(part.parent)

    @contextmanager
    def _part(self, name: str, data: bytes) -> Iterator[Path]:
        """Yields a durable file with the bytes, in the directory of the named one."""
        path = self._root / name
        part = path.with_name(f".{uuid.uuid4().hex}{_PART}")
        self._require_there(name, "written")
        try:
            make_directory(path.parent)
            with part.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            # The same file system has both, or it was replaced meanwhile.
            self._require_there(name, "written")
            yield part
        except OSError as error:
            raise self._unavailable(name, "written", error) from error
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)

    def list(self, directory: str, after: str = "") -> list[str]:
        root = self._root / directory
        self._require_there(directory, "listed")
        try:
            found = [path for path in root.rglob("*") if not path.name.startswith(".") and path.is_file()]
        except OSError as error:
            raise self._unavailable(directory, "listed", error) from error
        return sorted(name for path in found if (name := str(path.relative_to(root))) > after)

    def delete(self, name: str) -> None:
        path = self._root / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise self._unavailable(name, "removed", error) from error
        with suppress(OSError):
            path.parent.rmdir()  # an empty one


class _ObjectStore(Place):
    """A bucket; a tag is the ETag.

    A child of a process that has used any bucket can use none. The threads of the client are not there, and
    it shares the event queue of the parent: requests of both would wait for ever.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.shown = masked_uri(uri).partition("?")[0]

    @cached_property
    def _store(self) -> Any:
        try:
            from obstore.store import S3Store
        except ImportError as error:
            raise InvalidInputError(
                "shipping to an object store needs the package 'obstore'; pip install 'seqstore[ship]'",
                kind="missing_extra",
            ) from error
        parts = urlsplit(self._uri)
        query = dict(parse_qsl(parts.query))
        if unknown := sorted(query.keys() - set(_QUERY)):
            raise InvalidInputError(
                f"{self.shown}: unknown parameter {unknown[0]!r}; expected {', '.join(_QUERY)}",
                kind="bad_uri",
            )
        options: dict[str, Any] = {}
        if "endpoint_override" in query:
            scheme = query.get("scheme", "https")
            options = {"endpoint": f"{scheme}://{query['endpoint_override']}"}
            options["virtual_hosted_style_request"] = False
        if parts.username and parts.password:
            options["access_key_id"] = unquote(parts.username)
            options["secret_access_key"] = unquote(parts.password)
        if "region" in query:
            options["region"] = query["region"]
        _used_by.add(os.getpid())
        return S3Store(
            parts.netloc.rpartition("@")[2],
            prefix=parts.path.strip("/"),
            client_options={"allow_http": query.get("scheme") == "http", "timeout": _REQUEST_SECONDS},
            retry_config={"max_retries": _TRIES},
            **options,
        )

    @contextmanager
    def _request(self, name: str, verb: str, *, may_miss: bool = False) -> Iterator[Any]:
        """Yields the client for one request; its errors name the place.

        Args:
            may_miss: FileNotFoundError is an answer. Otherwise it means that the bucket does not exist.
        """
        if _used_by and os.getpid() not in _used_by:
            raise UnavailableError(
                f"{self.shown}: this process was forked from one that has used an object store for a shipped "
                "catalog; start it afresh (spawn)",
                kind="forked",
            )
        store = self._store  # first: its error names the package when that is missing
        from obstore.exceptions import BaseError

        try:
            yield store
        except (BaseError, OSError, ValueError) as error:
            if may_miss and isinstance(error, FileNotFoundError):
                raise
            raise self._unavailable(name, verb, error) from error

    def read(self, name: str) -> tuple[bytes, str] | None:
        try:
            with self._request(name, "read", may_miss=True) as store:
                found = store.get(name)
                return bytes(found.bytes()), str(found.meta["e_tag"] or "")
        except FileNotFoundError:
            return None

    def create(self, name: str, data: bytes) -> bool:
        with self._request(name, "written") as store:
            from obstore.exceptions import AlreadyExistsError

            try:
                store.put(name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def replace(self, name: str, data: bytes, tag: str) -> bool:
        with self._request(name, "written") as store:
            from obstore.exceptions import NotFoundError, PreconditionError

            try:
                store.put(name, data, mode={"e_tag": tag}, use_multipart=False)
            except (PreconditionError, NotFoundError, FileNotFoundError):
                return False
        return True

    def write(self, name: str, data: bytes) -> None:
        with self._request(name, "written") as store:
            store.put(name, data)

    def list(self, directory: str, after: str = "") -> list[str]:
        prefix = f"{directory}/"
        with self._request(directory, "listed") as store:
            pages = store.list(prefix, offset=f"{prefix}{after}" if after else None)
            found = [str(each["path"]) for page in pages for each in page]
        names = sorted(name[name.index(prefix) + len(prefix) :] for name in found)
        return [name for name in names if name > after]

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError), self._request(name, "removed", may_miss=True) as store:
            store.delete(name)
