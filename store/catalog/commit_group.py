"""Writers of one process share commits of the catalog, so that many small loads cost one fsync.

LMDB lets one writer in at a time, and a commit waits for the disk. So:

1. The first writer leads: it begins LMDB's transaction and runs its block in it. If the block fails, nothing
   is shared and the transaction is aborted.
2. Writers that came meanwhile run their blocks one after the other, each in its own thread, in a nested
   transaction of the leader's: one that fails takes back only what it did itself.
3. The leader commits, once for all of them, and tells the outcome. The first that is still waiting leads
   next.

A block that ran nested has seen what its companions did although nothing of it was committed yet
(`Transaction.is_shared`): it must not be remembered before the commit.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from seqstore.store.errors import StoreError, UnavailableError

_COMPANIONS_MAX: Final = 256
_GATHER_SECONDS: Final = 0.02  # nobody waits longer for companions to run


class Turn:
    """One writer in the queue.

    Attributes:
        parent: the leader's LMDB transaction, None for the leader itself.
        states: what companions of one leader read and hand on, by table; forgotten with its transaction.
    """

    def __init__(self) -> None:
        self.parent: Any = None
        self.states: dict[int, Any] = {}
        self._may_run = threading.Event()
        self._has_run = threading.Event()
        self._is_over = threading.Event()
        self._error: BaseException | None = None

    def wait(self) -> None:
        self._may_run.wait()

    def lead(self) -> None:
        self._may_run.set()

    def run_within(self, parent: Any, states: dict[int, Any]) -> None:
        """Lets a companion run, and waits until it has."""
        self.parent, self.states = parent, states
        self._may_run.set()
        try:
            self._has_run.wait()
        finally:  # also when interrupted: it works in our transaction
            self._has_run.wait()

    def hand_back(self) -> None:
        """The block has run: the leader goes on."""
        self._has_run.set()

    def outcome(self) -> None:
        """Waits for the commit.

        Raises:
            StoreError: the leader's commit failed, and with it this writer's part.
        """
        self._is_over.wait()
        if self._error is not None:
            raise copy.copy(self._error)

    def tell(self, error: BaseException | None) -> None:
        self._error = error
        self._is_over.set()


class WriteQueue:
    """The writers of one environment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Turn] = deque()
        self._is_led = False

    def enter(self, ready: Callable[[], None] | None = None) -> Turn:
        """Takes a place and waits for the turn to come, as leader or as companion.

        Args:
            ready: called before, when there is somebody to wait for.
        """
        turn = Turn()
        if ready is not None and self._is_led:
            ready()
        with self._lock:
            if self._is_led:
                self._waiting.append(turn)
            else:
                self._is_led = True
                turn.lead()
        turn.wait()
        return turn

    def leave(self) -> None:
        """The leader has ended: the next one leads."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().lead()
            else:
                self._is_led = False

    @contextmanager
    def companions(self, companions: list[Turn]) -> Iterator[None]:
        """Around a leader's transaction: tells its companions how it ended."""
        try:
            yield
        except BaseException as error:
            told = (
                error
                if isinstance(error, StoreError)
                else UnavailableError(
                    f"the commit shared with another writer was given up: {error!r}", kind="commit"
                )
            )
            for turn in companions:
                turn.tell(told)
            raise
        for turn in companions:
            turn.tell(None)

    def run_companions(self, parent: Any, companions: list[Turn], states: dict[int, Any]) -> None:
        """Runs the blocks of those that wait within the leader's transaction.

        Args:
            companions: their turns are added.
            states: what the leader made, to begin with.
        """
        until = time.monotonic() + _GATHER_SECONDS
        while len(companions) < _COMPANIONS_MAX and time.monotonic() < until:
            with self._lock:
                if not self._waiting:
                    return
                turn = self._waiting.popleft()
            companions.append(turn)
            turn.run_within(parent, states)
