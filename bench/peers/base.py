"""What a contender of a script can do. A peer that lacks something says so by `kinds` and `rows_max`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Final

import pyarrow as pa

from bench.inputs.script import Kind, Script, Step, TableSpec

EVERY_KIND: Final[frozenset[Kind]] = frozenset({"upsert", "insert", "update", "delete"})


class KeyedPeer(ABC):
    """A table of one store, made empty.

    Args:
        path: for its files; does not exist yet.
        spec: the table.

    Attributes:
        name: for `--peers` and reports.
        setup: the settings it runs with, for people.
        is_durable: does a call return only when its rows would survive a power cut?
        module, package: what has to be installed; its version is printed.
        kinds: steps it can do.
        takes_many: may several threads call it at a time?
        rows_max: with a larger base it would need hours; None means there is no limit.
        step_rows_max: the same for the rows of a step.
    """

    name: ClassVar[str]
    setup: ClassVar[str]
    is_durable: ClassVar[bool] = True
    module: ClassVar[str]
    package: ClassVar[str]
    kinds: ClassVar[frozenset[Kind]] = EVERY_KIND
    takes_many: ClassVar[bool] = False
    rows_max: ClassVar[int | None] = None
    step_rows_max: ClassVar[int | None] = None

    def __init__(self, path: Path, spec: TableSpec) -> None:
        self.path, self.spec = path, spec

    @classmethod
    def is_installed(cls) -> bool:
        return find_spec(cls.module) is not None

    @classmethod
    def version(cls) -> str:
        """Of the package; of the sources where it is not installed as one."""
        try:
            return version(cls.package)
        except PackageNotFoundError:
            return "of the sources"

    @classmethod
    def why_not(cls, script: Script) -> str | None:
        """Why it cannot run a script; None when it can."""
        if not cls.is_installed():
            return f"not installed: pip install {cls.package}"
        missing = sorted({step.kind for step in script.steps} - cls.kinds)
        if missing:
            return f"has no {missing[0]}"
        if cls.rows_max is not None and len(script.base) > cls.rows_max:
            return f"not run above {cls.rows_max:,} rows: too slow"
        largest = max((len(step.rows) for step in script.steps), default=0)
        if cls.step_rows_max is not None and largest > cls.step_rows_max:
            return f"not run with more than {cls.step_rows_max:,} rows a step: too slow"
        return None

    def apply(self, step: Step) -> None:
        """Does one step."""
        getattr(self, step.kind)(step.rows)

    @abstractmethod
    def load(self, rows: pa.Table) -> None:
        """The base, into the empty table; each key once."""

    @abstractmethod
    def upsert(self, rows: pa.Table) -> None:
        """See `Step`."""

    def insert(self, rows: pa.Table) -> None:
        """Rows of keys known to be new."""
        self.upsert(rows)

    def update(self, rows: pa.Table) -> None:
        raise NotImplementedError(f"{self.name} has no update of some columns")

    def delete(self, rows: pa.Table) -> None:
        raise NotImplementedError(f"{self.name} has no deletion by key")

    def settle(self) -> None:  # noqa: B027 - most have nothing to wait for
        """Waits for work of its own that goes on behind the calls; not part of their time, but told."""

    def another(self) -> KeyedPeer:
        """The same table for one more client: a connection of its own where it needs one."""
        return self

    @abstractmethod
    def scan(self) -> Iterator[pa.RecordBatch]:
        """All rows."""

    def close(self) -> None:  # noqa: B027 - nor to let go of
        """Lets go of files and connections."""


def quoted(names: list[str] | tuple[str, ...], before: str = "") -> str:
    """Column names for SQL, with a comma between."""
    return ", ".join(f'{before}"{name}"' for name in names)


def sql_type(kind: pa.DataType, types: dict[str, str]) -> str:
    """A type by the first name that an Arrow type's begins with.

    Raises:
        NotImplementedError: there is none.
    """
    text = str(kind)
    for name, result in types.items():
        if text.startswith(name):
            return result
    raise NotImplementedError(f"no type for {text}")
