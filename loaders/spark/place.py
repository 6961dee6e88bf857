"""Where the store of a Spark job is: in a directory that driver and executors share, or behind a server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from seqstore.store import InvalidInputError, Store, Table
from seqstore.store.errors import CommitUnknownError, StoreError
from seqstore.store.maintenance import recovery
from seqstore.store.remote.address import Address, is_url
from seqstore.store.remote.remote_store import RemoteStore
from seqstore.store.remote.remote_table import RemoteTable

PASSWORD: Final = "SEQSTORE_PASSWORD"
USER: Final = "SEQSTORE_USER"


@dataclass(frozen=True)
class StoreAt:
    """A store elsewhere, for the functions that also take the path of a directory.

    Attributes:
        url: `seqstore://host:port`, or `seqstore+tls://host:port`.
        user: None for the variable SEQSTORE_USER, and root without it.
        password: None for the variable SEQSTORE_PASSWORD of the driver; it is in no repr.
        certificates: file of the authorities that the job trusts, in PEM, on the driver's host.
    """

    url: str
    user: str | None = None
    password: str | None = None
    certificates: str | Path | None = None

    def __repr__(self) -> str:
        return f"StoreAt({self.url!r}, user={self.user!r})"

    @property
    def options(self) -> dict[str, str]:
        """Returns it as options of the data source."""
        given = {"url": self.url, "user": self.user, "password": self.password}
        given["certificates"] = None if self.certificates is None else str(self.certificates)
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Place:
    """One of both.

    Attributes:
        path: of the directory, None for a store elsewhere.
        address: of the server, None for a directory.
    """

    path: Path | None = None
    address: Address | None = None

    @classmethod
    def of(cls, given: str | Path | StoreAt) -> Place:
        """Returns the place of a directory, of a URL, or of a store elsewhere.

        Raises:
            InvalidInputError: the URL names no store.
        """
        if isinstance(given, str) and is_url(given):
            given = StoreAt(given)
        if not isinstance(given, StoreAt):
            return cls(local_path(given))
        user = given.user if given.user is not None else os.environ.get(USER, "root")
        password = given.password if given.password is not None else os.environ.get(PASSWORD, "")
        return cls(address=Address.of(given.url, user, password, given.certificates))

    def open(self) -> Store:
        """Opens the store; the directory has to be there."""
        if self.address is not None:
            return RemoteStore(self.address)
        assert self.path is not None
        return Store.open(self.path, create=False)

    def of_job(self, store: Store) -> Place:
        """Returns the place for the other processes of a job: they get a token, never the password.

        Args:
            store: opened here.
        """
        if self.address is None or not isinstance(store, RemoteStore):
            return self
        return replace(self, address=store.connection.task_address())

    def without_password(self) -> Place:
        """Returns the place for processes that do not connect by it."""
        return self if self.address is None else replace(self, address=replace(self.address, password=""))


def local_path(given: str | Path) -> Path:
    """Returns the path of a directory that may be written as a `file:` URI, as for Spark's own sources.

    Raises:
        InvalidInputError: the URI names another host.
    """
    if not isinstance(given, str) or not given.lower().startswith("file:/"):
        return Path(given)
    parts = urlsplit(given)
    if parts.netloc not in ("", "localhost"):
        raise InvalidInputError(
            f"option path: expected a directory of this host, found {given!r}", kind="bad_option"
        )
    return Path(unquote(parts.path))


def options_of(at: str | Path | StoreAt) -> dict[str, str]:
    """Returns the options of the data source for a directory, a URL, or a store elsewhere."""
    if isinstance(at, StoreAt):
        return at.options
    is_elsewhere = isinstance(at, str) and is_url(at)
    return {"path": str(at) if is_elsewhere else str(local_path(at))}


def place_of(given: Mapping[str, str]) -> Place:
    """Returns the place that options name, in lower case: `path`, which may be a URL, or `url`.

    Raises:
        InvalidInputError: none, or both, or a login without a URL.
    """
    path, url = given.get("path"), given.get("url")
    if url is None and path is not None and is_url(path):
        path, url = None, path
    if bool(path) == bool(url):
        raise InvalidInputError(
            "format seqstore needs the option path (a directory) or url (seqstore://host:port of its "
            f"server), and table (db.table); {'path and url are both set' if path else 'path is missing'}",
            kind="bad_option" if path else "missing_option",
        )
    if url is not None:
        return Place.of(StoreAt(url, given.get("user"), given.get("password"), given.get("certificates")))
    for name in ("user", "password", "certificates"):
        if name in given:
            raise InvalidInputError(
                f"option {name!r} is for a store elsewhere (url); a directory has no logins",
                kind="bad_option",
            )
    assert path is not None
    return Place(local_path(path))


def end_loads(table: Table, loads: Sequence[Any]) -> None:
    """Ends loads that tasks stage, published or not, and removes their files; see `recovery.end_loads`.

    Args:
        loads: the attribute `load` of their tasks.

    Raises:
        StoreError: a file could not be removed, or the server cannot be reached.
    """
    if isinstance(table, RemoteTable):
        table.end_stagings(loads)
    else:
        recovery.end_loads(table, loads)


def begun_loads(table: Table, newest: Any) -> Sequence[Any]:
    """Returns a load and earlier ones of the same purpose that have not ended; see `recovery.begun_loads`."""
    if isinstance(table, RemoteTable):
        return table.begun_stagings(newest)
    return recovery.begun_loads(table.loader.disk, table.loader.directory, newest)


@contextmanager
def ending(table: Table, *loads: Any) -> Iterator[None]:
    """Ends loads at the end of the block that publishes them; see `recovery.ending`."""
    if not isinstance(table, RemoteTable):
        with recovery.ending(table, *loads):
            yield
        return
    try:
        yield
    except CommitUnknownError:
        raise  # the version may exist: the server sorts it out once the load is idle
    except BaseException:
        _end_quietly(table, loads)
        raise
    _end_quietly(table, loads)


def _end_quietly(table: RemoteTable, loads: Sequence[Any]) -> None:
    try:
        table.end_stagings(loads)
    except StoreError:
        return  # the server ends them once they are idle
