"""The statement that a session runs: its time limit, and its end on request of another thread."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from seqstore.store.errors import StoreError, UnavailableError
from seqstore.store.runtime.cancellation import Cancellation, watched
from seqstore.store.runtime.forks import new_lock
from seqstore.store.sql.parse.nesting import levels_checked
from seqstore.store.sql.session import variables as names

# Characters: what ends a running statement ends the parsing of a longer text, too.
LONG_TEXT: Final = 100_000
_READS: Final = frozenset(["SELECT", "WITH", "(", "EXPLAIN", "DO", "SHOW", "DESC", "DESCRIBE", "SET", "USE"])
_WRITES: Final = frozenset(["INSERT", "UPDATE", "DELETE", "MERGE", "CREATE", "TRUNCATE", "COMMIT"])


@dataclass(frozen=True)
class TimeLimit:
    """The seconds that a statement may take, and the variable that says so; 0 seconds are no limit."""

    seconds: float = 0
    variable: str = ""

    def __str__(self) -> str:
        amount = (
            f"{self.seconds * 1000:g} ms"
            if self.variable == names.EXECUTION_MS
            else f"{self.seconds:g} seconds"
        )
        return f"{self.variable} = {amount}"

    @classmethod
    def of(cls, first_word: str, values: Mapping[str, str]) -> TimeLimit:
        """Returns the limit of a kind of statement; maintenance has none.

        Queries end by the shorter of `query_timeout` and `max_execution_time`. As in Doris, writes may take
        the larger of `insert_timeout` and `query_timeout`. Both end by MariaDB's `max_statement_time`, too.

        Args:
            values: of the session's variables.
        """
        if first_word in _READS:
            limits = [cls(float(values[names.QUERY_TIMEOUT]), names.QUERY_TIMEOUT)]
            limits.append(cls(float(values[names.EXECUTION_MS]) / 1000, names.EXECUTION_MS))
        elif first_word in _WRITES:
            name = max((names.INSERT_TIMEOUT, names.QUERY_TIMEOUT), key=lambda name: float(values[name]))
            limits = [cls(float(values[name]), name)]
        else:
            return cls()
        limits.append(cls(float(values[names.STATEMENT_SECONDS]), names.STATEMENT_SECONDS))
        return min(limits, key=lambda limit: limit.seconds if limit.seconds > 0 else math.inf)


class RunningStatement:
    """The running statement of one session, if there is one.

    Args:
        has_client: called while a statement runs, with whether it was cancelled; returns whether a client
            waits for it.
        user: of the session.
    """

    def __init__(self, has_client: Callable[[bool], bool], user: str = "") -> None:
        self._has_client = has_client
        self._user = user
        self._lock = new_lock()
        self._cancellation: Cancellation | None = None
        self._is_shown = False
        self._early: StoreError | None = None  # why it ends as soon as it begins

    @property
    def is_running(self) -> bool:
        """Whether a statement runs."""
        return self._cancellation is not None

    def cancel(self, error: StoreError) -> None:
        """Ends the running statement; no-op between statements. Another thread calls this."""
        with self._lock:
            running = self._cancellation
            if running is None and self._is_shown:
                self._early = error
        if running is not None:
            running.cancel(error)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Tells that others see a statement of the block, and may end it before it begins."""
        with self._lock:
            self._is_shown = True
        try:
            yield
        finally:
            with self._lock:
                self._is_shown, self._early = False, None

    @contextmanager
    def within(self, limit: TimeLimit) -> Iterator[None]:
        """Runs a statement; one that another statement runs shares the limit of that one."""
        if self._cancellation is not None:
            yield
            return
        deadline = time.monotonic() + limit.seconds if limit.seconds > 0 else None

        def look(running: Cancellation) -> None:
            if not self._has_client(running.error is not None):
                running.cancel(UnavailableError("the client has left", kind="interrupted"))
            elif deadline is not None and time.monotonic() > deadline:
                running.cancel(
                    UnavailableError(
                        f"query timeout: the statement ran longer than {limit}; SET {limit.variable} to more",
                        kind="query_timeout",
                    )
                )

        cancellation = Cancellation(look, self._user)
        with self._lock:
            self._cancellation = cancellation
            early, self._early = self._early, None
        try:
            with watched(cancellation), levels_checked():
                if early is not None:
                    raise early
                yield
        finally:
            self._cancellation = None
