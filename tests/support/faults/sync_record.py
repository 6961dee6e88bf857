"""The order in which a process writes, syncs, names and removes files, recorded while a store works.

SIGKILL keeps the page cache, so tests that kill processes cannot miss a sync. This record can: it holds every
`write`, `fsync`, `rename` and `unlink` below a directory, and every commit and sync of LMDB, in their order.
`faults` compares the order with these rules:

1. When a commit names a file, the bytes of the file are synced, and so is its name in its directory.
2. When a call returns, the last commit is synced. Files that it hands to another process are synced as well.
3. A file that a commit has named is removed only when everything that was read before is synced.
4. A file that is put in place by a rename (the Iceberg copy) follows the bytes of all files beside it. The
   hint that readers follow is put in place after their names, too.
5. A file that gets another name by a link (commits of Delta, metadata of Iceberg) has synced bytes, and
   so have the files that it names: they were written before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

import lmdb

_HINT: Final = "version-hint.text"
_CATALOG: Final = ("catalog", "locks")


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        kind: "create", "write", "sync", "rename", "link", "unlink"; "begin", "commit", "commit is synced" of
            the catalog; "return" or "hand over".
        path: of the file or directory, or the call that returned.
        names: of files that a commit names.
        beside: files that were there at a rename, in its directory and those next to it.
    """

    kind: str
    path: str = ""
    names: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()


@dataclass
class SyncRecord:
    """The steps of this process below one directory.

    Attributes:
        named: files that a commit has named so far.
    """

    root: Path
    steps: list[Step] = field(default_factory=list)
    created: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)

    def returned(self, call: str) -> None:
        """Notes that a call has returned: its effect is acknowledged."""
        self.steps.append(Step("return", call))

    def handed_over(self, call: str) -> None:
        """Notes that a call has returned, whose files another process will name."""
        self.steps.append(Step("hand over", call))

    def below(self, path: Any) -> str | None:
        """Returns a path below the root, None for others and those of the catalog."""
        full = Path(os.fsdecode(path)).absolute()
        if not full.is_relative_to(self.root):
            return None
        found = full.relative_to(self.root)
        return None if found.parts[:1] and found.parts[0] in _CATALOG else str(found)

    def add(self, kind: str, path: Any) -> None:
        found = self.below(path)
        if found is not None:
            self.steps.append(Step(kind, found))

    def commit(self, names: frozenset[str]) -> None:
        self.named |= names
        self.steps.append(Step("commit", names=names))

    def files_in(self, *records: bytes) -> frozenset[str]:
        """Returns the created files that a record of the catalog names by their id."""
        return frozenset(
            name for name in self.created if any(Path(name).stem.encode() in record for record in records)
        )

    def faults(self) -> list[str]:
        """Returns the steps that break a rule, in words."""
        state = _State()
        for step in self.steps:
            state.take(step)
        return state.faults


@dataclass
class _State:
    """What is durable after some steps."""

    bytes_open: set[str] = field(default_factory=set)
    names_open: set[str] = field(default_factory=set)
    synced: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    is_committed: bool = True
    is_current: bool = False
    faults: list[str] = field(default_factory=list)

    def take(self, step: Step) -> None:
        path = step.path
        if step.kind in ("create", "write"):
            self.bytes_open.add(path)
            if step.kind == "create":
                self.names_open.add(path)
        elif step.kind == "sync":
            self.bytes_open.discard(path)
            self.synced.add(path)
            self.names_open = {name for name in self.names_open if str(Path(name).parent) != path}
        elif step.kind == "commit":
            self.require_synced(step.names, "a commit names it")
            self.named |= step.names
            self.is_committed = self.is_current = False
        elif step.kind == "commit is synced":
            self.is_committed = self.is_current = True
        elif step.kind == "begin":
            self.is_current = False
        elif step.kind == "rename":
            self.rename(step)
        elif step.kind == "link":
            self.link(step)
        elif step.kind == "unlink":
            if path in self.named and not self.is_current:
                self.faults.append(f"{path} is removed before the catalog that was read is synced")
            self.bytes_open.discard(path)
            self.names_open.discard(path)
        elif step.kind == "hand over":
            files = frozenset(name for name in self.bytes_open | self.names_open if not _is_marker(name))
            self.require_synced(files, f"{path} hands it over")
        elif not self.is_committed:
            self.faults.append(f"{path} returns before its commit is synced")

    def require_synced(self, names: frozenset[str], because: str) -> None:
        self.faults += [
            f"bytes of {name} are not synced, and {because}" for name in sorted(names & self.bytes_open)
        ]
        self.faults += [
            f"the name {name} is not synced, and {because}" for name in sorted(names & self.names_open)
        ]

    def rename(self, step: Step) -> None:
        (source,) = step.names
        for name in sorted(step.beside - self.synced - {source}):
            self.faults.append(f"bytes of {name} were never synced, and {step.path} follows")
        self.require_synced(frozenset([source]) & self.bytes_open, f"it becomes {step.path}")
        if Path(step.path).name == _HINT:
            self.require_synced(step.beside - {source}, f"{step.path} follows")
        self.names_open.discard(source)
        self.synced.add(step.path)
        self.names_open.add(step.path)

    def link(self, step: Step) -> None:
        (source,) = step.names
        written = frozenset(name for name in self.bytes_open if not _is_marker(name))
        self.require_synced(written & self.bytes_open, f"{step.path} follows")
        others = frozenset(name for name in self.names_open if not name.endswith(".tmp"))
        self.require_synced(others - {source}, f"{step.path} follows")
        self.synced.add(step.path)
        self.names_open.add(step.path)


def _is_marker(name: str) -> bool:
    """Whether a file only tells that a load runs: none runs after a loss of power."""
    return name.endswith(".load")


@contextmanager
def recorded(root: Path) -> Iterator[SyncRecord]:
    """Records the steps below a directory; stores are opened within the block."""
    record = SyncRecord(root.absolute())
    real_open, real_link, real_lmdb = os.open, os.link, lmdb.open

    def by_path(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(path: Any, *arguments: Any, **options: Any) -> Any:
            record.add(kind, path)
            return call(path, *arguments, **options)

        return run

    def by_descriptor(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(descriptor: int, *arguments: Any) -> Any:
            result = call(descriptor, *arguments)
            record.add(kind, os.readlink(f"/proc/self/fd/{descriptor}"))
            return result

        return run

    def opened(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & os.O_CREAT and (found := record.below(path)) is not None:
            record.created.add(found)
            record.steps.append(Step("create", found))
        return real_open(path, flags, *arguments, **options)

    def linked(source: Any, target: Any, **options: Any) -> None:
        real_link(source, target, **options)
        names = record.below(source), record.below(target)
        if names[0] is not None and names[1] is not None:
            record.steps.append(Step("link", names[1], frozenset([names[0]])))

    def replaced(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(source: Any, target: Any) -> Any:
            names = record.below(source), record.below(target)
            if names[0] is not None and names[1] is not None:
                folder = Path(target).parent.parent
                beside = {record.below(each) for each in folder.glob("*/*") if each.is_file()} - {None}
                files = frozenset(name for name in beside if name is not None)
                record.steps.append(Step("rename", names[1], frozenset([names[0]]), files))
            return call(source, target)

        return run

    patches: dict[str, Any] = {
        "open": opened,
        "link": linked,
        "write": by_descriptor("write", os.write),
        "ftruncate": by_descriptor("write", os.ftruncate),
        "fsync": by_descriptor("sync", os.fsync),
        "fdatasync": by_descriptor("sync", os.fdatasync),
        "unlink": by_path("unlink", os.unlink),
        "remove": by_path("unlink", os.remove),
        "rename": replaced(os.rename),
        "replace": replaced(os.replace),
    }
    with (
        mock.patch.multiple(os, **patches),
        mock.patch.object(lmdb, "open", lambda *a, **o: _Environment(real_lmdb(*a, **o), record, o)),
    ):
        yield record


class _Environment:
    """LMDB's environment with a record of its commits."""

    def __init__(self, env: Any, record: SyncRecord, options: dict[str, Any]) -> None:
        assert options.get("sync", True), "LMDB would not sync the pages of a commit"
        self._env = env
        self._record = record
        self._commit_syncs = options.get("metasync", True)

    def begin(self, *arguments: Any, parent: Any = None, **options: Any) -> Any:
        self._record.steps.append(Step("begin"))
        inner = parent._txn if isinstance(parent, _Transaction) else parent
        txn = self._env.begin(*arguments, parent=inner, **options)
        return _Transaction(txn, self._record, parent, commit_syncs=self._commit_syncs)

    def sync(self, force: bool = False) -> None:
        self._env.sync(force)
        if force:
            self._record.steps.append(Step("commit is synced"))

    def open_db(self, key: Any = None, txn: Any = None, *arguments: Any, **options: Any) -> Any:
        return self._env.open_db(key, getattr(txn, "_txn", txn), *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


class _Transaction:
    """LMDB's transaction with a record of the files that its records name."""

    def __init__(self, txn: Any, record: SyncRecord, parent: Any, *, commit_syncs: bool) -> None:
        self._txn = txn
        self._record = record
        self._parent = parent
        self._commit_syncs = commit_syncs
        self._names: frozenset[str] = frozenset()
        self._is_changed = False

    def put(self, key: Any, value: Any, **options: Any) -> Any:
        self._names |= self._record.files_in(bytes(key), bytes(value))
        self._is_changed = True
        return self._txn.put(key, value, **options)

    def delete(self, key: Any, *arguments: Any, **options: Any) -> Any:
        self._is_changed = True
        return self._txn.delete(key, *arguments, **options)

    def commit(self) -> None:
        self._txn.commit()
        if self._parent is not None:
            self._parent._names |= self._names
            self._parent._is_changed |= self._is_changed
        elif self._is_changed:
            self._record.commit(self._names)
            if self._commit_syncs:
                self._record.steps.append(Step("commit is synced"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._txn, name)

    def __enter__(self) -> Any:
        self._txn.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        if kind is None and self._is_changed:
            self.commit()
            return None
        return self._txn.__exit__(kind, error, trace)


@dataclass
class NameRecord:
    """The names that a process made below a directory: directories, links, renamed files and catalogs.

    Attributes:
        made: in their order.
        unsynced: links that were made to files whose bytes were not synced.
    """

    root: Path
    made: list[str] = field(default_factory=list)
    unsynced: list[str] = field(default_factory=list)
    _open: set[str] = field(default_factory=set)
    _synced: set[int] = field(default_factory=set)

    @property
    def lost(self) -> set[str]:
        """The names that a failure of the host would lose now."""
        return {name for name in self._open if (self.root / name).exists()}

    def make(self, path: Any) -> None:
        full = Path(os.fsdecode(path)).absolute()
        if full.is_relative_to(self.root):
            name = str(full.relative_to(self.root))
            self.made.append(name)
            self._open.add(name)

    def link(self, source: Any, target: Any) -> None:
        if os.stat(source).st_ino not in self._synced:
            self.unsynced.append(Path(target).name)
        self.make(target)

    def sync(self, descriptor: int) -> None:
        self._synced.add(os.fstat(descriptor).st_ino)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        self._open = {name for name in self._open if (self.root / name).parent != path}


@contextmanager
def names_recorded(root: Path) -> Iterator[NameRecord]:
    """Records the names that are made below a directory."""
    record = NameRecord(root.absolute())
    mkdir, link, replace, rename, fsync, lmdb_open = (
        os.mkdir,
        os.link,
        os.replace,
        os.rename,
        os.fsync,
        lmdb.open,
    )

    def making(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(source: Any, target: Any, **options: Any) -> None:
            call(source, target, **options)
            record.make(target)

        return run

    def made_directory(path: Any, *arguments: Any, **options: Any) -> None:
        mkdir(path, *arguments, **options)
        record.make(path)

    def linked(source: Any, target: Any, **options: Any) -> None:
        record.link(source, target)
        link(source, target, **options)

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        record.sync(descriptor)

    def opened(path: str, *arguments: Any, **options: Any) -> Any:
        is_new = not Path(path, "data.mdb").exists()
        environment = lmdb_open(path, *arguments, **options)
        if is_new:
            record.make(Path(path, "data.mdb"))
        return environment

    patches: dict[str, Any] = {
        "mkdir": made_directory,
        "link": linked,
        "replace": making(replace),
        "rename": making(rename),
        "fsync": synced,
    }
    with mock.patch.multiple(os, **patches), mock.patch.object(lmdb, "open", opened):
        yield record
