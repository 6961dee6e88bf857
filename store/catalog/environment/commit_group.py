"""Group commit: writers of one process share a commit of the catalog, and many small loads cost one fsync.

LMDB admits one writer at a time, and a commit waits for the disk:

1. The first writer is the leader. It begins LMDB's transaction and runs its block in it. If the block fails,
   the transaction is aborted and nothing is shared.
2. The writers that queued up meanwhile are the followers. Their blocks run one after the other, each in its
   own thread, in a nested transaction of the leader's. A block that fails rolls back its own changes only.
3. The leader commits once for all of them and hands each follower the outcome. The first writer that is still
   queued becomes the next leader.

A writer that is alone shares its transaction with no other one, neither as leader nor as follower: it changes
what the leader has tested for all of its group, such as whether the store ships its commits.

A follower's block reads changes of other followers that are not committed yet
(`CatalogTransaction.is_shared`). No such change may be cached before the commit. An error of its block,
such as "the table exists", is raised after the commit, and the commit's own error instead if that fails.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.errors import CommitUnknownError, StoreError, UnavailableError
from seqstore.store.locks.file_lock import Patience

_FOLLOWERS_MAX: Final = 256
_GROUP_SECONDS: Final = 0.02  # the leader starts no further follower after this time


class QueuedWriter:
    """One writer in the queue.

    Attributes:
        parent: the leader's LMDB transaction, None for the leader itself.
        leader: the same transaction; followers share the table states that it and they have made.
        may_run: the writer is the leader, or its leader runs it.
        has_run: the block of a follower has ended, and its leader continues.
        is_alone: its transaction has no other writer.
    """

    def __init__(self, *, is_alone: bool = False) -> None:
        self.is_alone = is_alone
        self.parent: Any = None
        self.leader: CatalogTransaction | None = None
        self.may_run = threading.Event()
        self.has_run = threading.Event()
        self._is_over = threading.Event()
        self._error: BaseException | None = None

    def outcome(self) -> None:
        """Waits for the commit.

        Raises:
            StoreError: the leader's commit failed, and with it this writer's part.
        """
        self._is_over.wait()
        if self._error is not None:
            raise copy.copy(self._error)

    def await_what_was_read(self, error: Exception) -> None:
        """Waits for the commit of what a follower has read, before its block's own `error` is raised.

        Raises:
            StoreError: that commit failed, so the reason of `error` may never have been there.
        """
        self._is_over.wait()
        if isinstance(self._error, CommitUnknownError):  # unknown for the others; this part was rolled back
            raise UnavailableError(
                f"nothing was stored: a commit that this writer has read failed: {self._error}",
                kind="commit",
            ) from error
        if self._error is not None:
            raise copy.copy(self._error) from error

    def set_outcome(self, error: BaseException | None) -> None:
        """Records how the leader's transaction ended; None for a commit."""
        self._error = error
        self._is_over.set()


class CommitQueue:
    """The queue of writers of one environment; `waiting` has those whose turn is still to come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waiting: deque[QueuedWriter] = deque()
        self._has_leader = False

    def enter(
        self,
        ready: Callable[[], None] | None = None,
        patience: Patience | None = None,
        *,
        is_alone: bool = False,
    ) -> QueuedWriter | None:
        """Queues a writer and waits until it is the leader or may run as a follower.

        Args:
            ready: called first, if another writer is the leader and this one is the next. What more writers
                find then is of the past when they run.
            patience: of the writer, None for no limit.
            is_alone: it waits until it is the leader, and must run no followers.

        Returns:
            The writer, None when its time is over.
        """
        writer = QueuedWriter(is_alone=is_alone)
        if ready is not None and self._has_leader and not self.waiting:
            ready()
        with self._lock:
            if not self._has_leader:
                self._has_leader = True
                return writer
            self.waiting.append(writer)
        if not writer.may_run.wait(None if patience is None else patience.left):
            with self._lock:
                if writer in self.waiting:
                    self.waiting.remove(writer)
                    return None
            writer.may_run.wait()  # it was chosen at the last moment
        return writer

    @contextmanager
    def leading(self) -> Iterator[list[QueuedWriter]]:
        """Wraps the leader's part; its followers get the outcome, and the next queued writer leads.

        Yields:
            The list of the followers, for `run_followers`.
        """
        followers: list[QueuedWriter] = []
        outcome: BaseException | None = None
        try:
            yield followers
        except BaseException as error:
            outcome = error
            if not isinstance(error, StoreError):
                outcome = UnavailableError(
                    f"the commit shared with another writer was aborted: {error!r}", kind="commit"
                )
            raise
        finally:
            for follower in followers:
                follower.set_outcome(outcome)
            with self._lock:
                if self.waiting:
                    self.waiting.popleft().may_run.set()
                else:
                    self._has_leader = False

    def run_followers(self, parent: Any, followers: list[QueuedWriter], leader: CatalogTransaction) -> None:
        """Runs the blocks of queued writers within the leader's transaction, up to one that is alone.

        Args:
            followers: receives the writers that ran.
            leader: the transaction `parent`.
        """
        until = time.monotonic() + _GROUP_SECONDS
        while len(followers) < _FOLLOWERS_MAX and time.monotonic() < until:
            with self._lock:
                if not self.waiting or self.waiting[0].is_alone:
                    return
                writer = self.waiting.popleft()
            followers.append(writer)
            writer.parent, writer.leader = parent, leader
            writer.may_run.set()
            try:
                writer.has_run.wait()
            finally:  # an interrupt must not end the wait: the follower uses the leader's transaction
                writer.has_run.wait()
