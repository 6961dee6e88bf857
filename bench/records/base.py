"""What YCSB asks of a store: records of ten texts by a key, requested by clients one at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa

from bench.inputs.ycsb import FIELDS

COLUMNS: Final = ", ".join(("k", *FIELDS))
READ: Final = f"SELECT {COLUMNS} FROM usertable WHERE k = {{mark}}"
SCAN: Final = f"SELECT {COLUMNS} FROM usertable WHERE k >= {{mark}} ORDER BY k LIMIT {{mark}}"
UPDATE: Final = "UPDATE usertable SET {field} = {mark} WHERE k = {mark}"
INSERT: Final = f"INSERT INTO usertable ({COLUMNS}) VALUES ({{marks}})"
Record = tuple[Any, ...]


class Client(ABC):
    """One client's connection; it is used by one thread."""

    retries = 0

    @abstractmethod
    def read(self, key: str) -> Record | None:
        """The key and all fields."""

    @abstractmethod
    def scan(self, key: str, rows: int) -> Sequence[Record]:
        """So many records from a key on, in the order of keys."""

    @abstractmethod
    def update(self, key: str, field: int, value: str) -> None:
        """Replaces one field; durable when it returns."""

    @abstractmethod
    def insert(self, key: str, values: Sequence[str]) -> None:
        """A new record; durable when it returns."""

    def close(self) -> None:  # noqa: B027 - not all have something to close
        """Ends the connection."""


class SqlClient(Client):
    """A client that sends SQL; `mark` is how its driver writes a parameter."""

    mark = "?"

    @abstractmethod
    def run(self, statement: str, parameters: Sequence[Any]) -> Sequence[Record]:
        """The rows of a statement, none for a write."""

    def read(self, key: str) -> Record | None:
        found = self.run(READ.format(mark=self.mark), (key,))
        return found[0] if found else None

    def scan(self, key: str, rows: int) -> Sequence[Record]:
        return self.run(SCAN.format(mark=self.mark), (key, rows))

    def update(self, key: str, field: int, value: str) -> None:
        self.run(UPDATE.format(field=FIELDS[field], mark=self.mark), (value, key))

    def insert(self, key: str, values: Sequence[str]) -> None:
        marks = ", ".join([self.mark] * (len(FIELDS) + 1))
        self.run(INSERT.format(marks=marks), (key, *values))


class RecordStore(ABC):
    """A store with an empty table of records.

    Attributes:
        name, setup, module, package: as of `bench.peers.base.KeyedPeer`.
    """

    name: ClassVar[str]
    setup: ClassVar[str]
    module: ClassVar[str]
    package: ClassVar[str]

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def why_not(cls) -> str | None:
        """Why it cannot run here; None when it can."""
        return None if find_spec(cls.module) is not None else f"not installed: pip install {cls.package}"

    @classmethod
    def version(cls) -> str:
        try:
            return version(cls.package)
        except PackageNotFoundError:
            return "of the sources"

    @abstractmethod
    def load(self, records: pa.Table) -> None:
        """The first records: columns `k` and the fields."""

    @abstractmethod
    def client(self) -> Client:
        """A new client."""

    @abstractmethod
    def records(self) -> Iterator[Record]:
        """All records, in any order."""

    def close(self) -> None:  # noqa: B027 - not all have something to close
        """Ends the store."""
