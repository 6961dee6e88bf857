"""Loads that the tasks of a distributed job stage at the server, such as a Spark job's.

The processes of a job come and go: one plans it, others run its tasks, again another one commits it. So its
load belongs to no session of a client. It ends when the job ends it, or when no process of the job was
connected for `idle_seconds`; also with the server. Its files go then, except those that a version names
(store.segment.load_marker).
"""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from seqstore.store import InvalidInputError, NotFoundError, Store, StoreError, Table, UnavailableError
from seqstore.store.errors import ClosedError
from seqstore.store.load.write_task import StagedRows, WriteTask
from seqstore.store.maintenance.recovery import end_loads

_LOG: Final = logging.getLogger(__name__)
_USER_LOADS_MAX: Final = 500
_LOOKS: Final = 4  # for idle loads, within their time


class Staging:
    """One load. Safe to share between threads.

    Attributes:
        token: a secret by which the processes of the job name it.
        task: stages its rows.
        purpose: by which later processes of the job find it; empty for none.
    """

    def __init__(self, user: str, task: WriteTask, purpose: str) -> None:
        self.token = secrets.token_urlsafe(24)
        self.user = user
        self.task = task
        self.purpose = purpose
        self.begun = time.monotonic_ns()
        self._parts: dict[int, StagedRows] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._connected = 0
        self._heard = time.monotonic()

    def join(self) -> Staging:
        """Counts a process of the job as connected, until `leave`."""
        with self._lock:
            self._connected += 1
        return self

    def leave(self) -> None:
        """Ends `join`."""
        with self._lock:
            self._connected -= 1
            self._heard = time.monotonic()

    def is_idle(self, seconds: float) -> bool:
        """Returns whether no process of the job was connected for so long."""
        with self._lock:
            return not self._connected and time.monotonic() - self._heard >= seconds

    def check_columns(self, data: pa.Schema) -> None:
        """Checks that rows with such columns would fit; InvalidInputError when they do not."""
        self.task.check_columns(data.empty_table())

    def write(self, data: pa.Table) -> int:
        """Stages rows of one task; returns the number of the part.

        Raises:
            InvalidInputError: the columns do not fit the table.
            ClosedError: the load has ended.
        """
        staged = self.task.run(data)
        with self._lock:
            number = next(self._numbers)
            self._parts[number] = staged
        return number

    def rows(self, numbers: Sequence[int]) -> StagedRows:
        """Returns the parts of one task, in its order, as one.

        Raises:
            ClosedError: there is no such part.
        """
        found = StagedRows()
        with self._lock:
            self._heard = time.monotonic()
            parts = [self._parts.get(number) for number in numbers]
        most = self.task.stager.settings.rejected_rows_max
        for part in parts:
            if part is None:
                raise ClosedError("a part of this load is not known to the server", kind="load_ended")
            before, left = found.rows_total, max(most - len(found.rejected), 0)
            rejected = [replace(row, row=row.row + before) for row in part.rejected[:left]]
            found += replace(part, rejected=rejected)
        return found


class Stagings:
    """The loads of one server; a thread ends the idle ones.

    Args:
        idle_seconds: the time after which a load has ended whose job is not connected.
    """

    def __init__(self, store: Store, idle_seconds: float) -> None:
        self._store = store
        self._idle_seconds = idle_seconds
        self._loads: dict[str, Staging] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="staged loads", daemon=True)
        self._thread.start()

    def begin(
        self, user: str, table: Table, options: Any, *, supplied: str | None = None, purpose: str = ""
    ) -> str:
        """Begins a load and returns its token; see `Table.write_task`.

        Raises:
            UnavailableError: the user has too many, or the server is stopping.
        """
        made = Staging(user, table.write_task(None, options, supplied=supplied, purpose=purpose), purpose)
        with self._lock:
            if self._stop.is_set():
                raise UnavailableError("the server is stopping", kind="stopping")
            if sum(each.user == user for each in self._loads.values()) >= _USER_LOADS_MAX:
                raise UnavailableError(
                    f"user {user} has {_USER_LOADS_MAX} loads that jobs stage; end those that are done with",
                    kind="too_many_user_loads",
                )
            self._loads[made.token] = made
        try:
            made.task.begin()
        except StoreError:
            self._take([made.token], user)
            raise
        return made.token

    def find(self, token: Any, user: str, table: int | None = None) -> Staging:
        """Returns a load of a user.

        Args:
            table: the id of its table, None for any.

        Raises:
            ClosedError: it has ended, or is of another user or table.
        """
        with self._lock:
            found = self._loads.get(token) if isinstance(token, str) else None
        if found is None or found.user != user or table not in (None, found.task.table_id):
            raise ClosedError(
                "this load has ended: its job ended it, was not heard of for flight_staging_seconds, or the "
                "server began anew; run the job again",
                kind="load_ended",
            )
        return found

    def begun(self, token: Any, user: str, table: int) -> list[str]:
        """Returns a load and the earlier ones of the same purpose, by their tokens."""
        newest = self.find(token, user, table)
        with self._lock:
            return [
                each.token
                for each in self._loads.values()
                if (each.user, each.task.table_id, each.purpose) == (user, table, newest.purpose)
                and (each is newest or (newest.purpose and each.begun <= newest.begun))
            ]

    def end(self, tokens: Sequence[Any], user: str, table: Table) -> list[str]:
        """Ends loads of a user and removes their files that no version names; returns the names.

        Those that have ended already count as ended.

        Raises:
            StoreError: a file could not be removed; a later sweep finds it.
        """
        if not isinstance(tokens, (list, tuple)) or not all(isinstance(each, str) for each in tokens):
            raise InvalidInputError("expected the loads to be ended", kind="bad_message")
        ended = self._take(tokens, user, table.id)
        return end_loads(table, [each.task.load for each in ended]) if ended else []

    def end_idle(self) -> None:
        """Ends the loads whose jobs are not connected."""
        with self._lock:
            idle = [each for each in self._loads.values() if each.is_idle(self._idle_seconds)]
        for each in idle:
            _LOG.info("a job of user %s was not heard of for %g seconds", each.user, self._idle_seconds)
            self._end(each)

    def stop(self) -> None:
        """Ends all loads."""
        self._stop.set()
        self._thread.join()
        with self._lock:
            left = list(self._loads.values())
        for each in left:
            self._end(each)

    def _end(self, staging: Staging) -> None:
        try:
            self.end([staging.token], staging.user, self._store.table_of_id(staging.task.table_id))
        except NotFoundError:
            self._take([staging.token], staging.user)  # the files went with the table
        except StoreError as error:
            _LOG.warning("staged files of a job are left to the next sweep: %s", error)

    def _take(self, tokens: Sequence[str], user: str, table: int | None = None) -> list[Staging]:
        with self._lock:
            found = [
                each
                for each in map(self._loads.get, tokens)
                if each is not None and each.user == user and table in (None, each.task.table_id)
            ]
            for each in found:
                self._loads.pop(each.token, None)
        return found

    def _watch(self) -> None:
        while not self._stop.wait(self._idle_seconds / _LOOKS):
            self.end_idle()
