"""A load at a server, and one within a transaction there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from seqstore.store.check.row_checker import RejectedRow
from seqstore.store.errors import StoreError
from seqstore.store.load.load import Load, LoadResult, WriteResult
from seqstore.store.load.write_task import StagedRows
from seqstore.store.remote.connection import Connection
from seqstore.store.remote.handles import Handle, refusal, remote
from seqstore.store.remote.outcomes import Labelled, run_load
from seqstore.store.remote.remote_tasks import RemoteRows
from seqstore.store.remote.sent_rows import parts_of


@remote("Load")
class RemoteLoad(Handle, Load):
    """A load of a store elsewhere; made by `RemoteTable.begin_load`.

    Args:
        table: whose labels meet a lost reply; None in a transaction, whose load is not published alone.
    """

    def __init__(self, connection: Connection, made: Mapping[str, Any], table: Labelled | None) -> None:
        self.bind(connection, made)
        self.label: str = made["label"]
        self._revision: int = made["revision"]
        self._why_skipped: str = made["skipped"]
        self._labels = table
        self._has_ended = False

    @property
    def revision(self) -> int:
        """The schema revision that rows are checked against."""
        return self._revision

    @property
    def skipped(self) -> str:
        """Why the load's rows will be left out; see `Load.skipped`."""
        return self._why_skipped

    def write(self, data: Any, *, supplied: Mapping[str, Any] | None = None) -> WriteResult:
        """Checks and stages rows at the server; see `Load.write`."""
        given = 0
        rejected: list[RejectedRow] = []
        for part in parts_of(data):
            masks = None
            if supplied is not None:
                masks = {name: pa.array(mask)[given : given + len(part)] for name, mask in supplied.items()}
            done: WriteResult = self.connection.run(self.request("write", {"supplied": masks}, part))
            rejected += [replace(row, row=row.row + given) for row in done.rejected]
            given += len(part)
        return WriteResult(given, rejected)

    def adopt(self, staged: StagedRows | RemoteRows) -> None:
        """Takes over the rows that a task has staged (`RemoteTable.write_task`); see `Load.adopt`."""
        if isinstance(staged, RemoteRows):
            if staged.load is not None:
                self.call("adopt", {"staging": staged.load, "parts": staged.parts})
        elif staged.load is not None:
            raise refusal("Load", "adopt", "tasks of RemoteTable.write_task stage its rows")

    def commit(self, *, max_filter_ratio: float = 1.0, also: Any = None) -> LoadResult:
        """Publishes the rows written as one version; see `Load.commit`.

        Raises:
            InvalidInputError: `also`, which runs where the store is.
        """
        if also is not None:
            raise refusal("Load", "commit(also=..)", "a function cannot be sent")
        return self._finish("commit", max_filter_ratio)

    def precommit(self, *, max_filter_ratio: float = 1.0) -> LoadResult:
        """Runs the first phase of a two-phase commit; see `Load.precommit`."""
        return self._finish("precommit", max_filter_ratio)

    def _finish(self, name: str, max_filter_ratio: float) -> LoadResult:
        request = self.request(name, {"max_filter_ratio": max_filter_ratio})
        if self._labels is None or name != "commit":
            done: LoadResult = self.connection.run(request)
        else:
            done = run_load(self._labels, request, self.label)
        self._has_ended = True
        return done

    def abort(self, reason: str) -> None:
        """Ends the load without a version; see `Load.abort`. The end of the session does the same."""
        if not self._has_ended:
            self._has_ended = True
            with suppress(StoreError):
                self.call("abort", {"reason": reason})

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.abort(str(error) if error else "left without commit")
