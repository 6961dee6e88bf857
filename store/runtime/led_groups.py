"""Groups of threads in which one does the work of all that wait: group commit, and joined statements.

1. A member joins its group. Where no other one leads, it does.
2. The leader takes what the work needs first, such as a lock; others join meanwhile.
3. It gathers the members that wait, does their work at once, and wakes them. The first of those that joined
   meanwhile leads next. So a member waits for at most one run before its own, and no timer runs.

A member whose statement is ended leaves the group, unless its work is being done already; the end of the
leader's statement is none of the others'.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Final, Generic, TypeVar

from seqstore.store.errors import StoreError, UnavailableError
from seqstore.store.runtime import cancellation

_LOOK_SECONDS: Final = 0.2  # a member that waits looks so often whether its statement was ended


class Member:
    """The work of one thread in a group.

    Attributes:
        error: why its work failed; set by the run, or by the group where the run as a whole failed.
        waits: runs that it waited for before its own.
        woken: it leads, or has its outcome.
        has_run: it has its outcome.
        ended_before: runs of the group that were over when it joined.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.waits = 0
        self.woken = threading.Event()
        self.has_run = False
        self.ended_before = 0


_M = TypeVar("_M", bound=Member)


class LedGroup(Generic[_M]):
    """The members that wait, and their leader.

    Args:
        run: does the work of some members, whose outcomes it sets.
        count: returns how many of the members that wait, the oldest first, fit in one run; at least one.
    """

    def __init__(
        self, run: Callable[[Sequence[_M]], None], count: Callable[[Sequence[_M]], int] = len
    ) -> None:
        self._run = run
        self._count = count
        self._lock = threading.Lock()
        self._waiting: deque[_M] = deque()
        self._is_led = False
        self._begun = self._ended = 0  # runs

    @property
    def waiting(self) -> int:
        """How many members wait."""
        return len(self._waiting)

    def join(self, member: _M, before: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        """Does the member's work together with that of others.

        Args:
            before: what the leader holds during the run; it may wait, and fail for the leader alone.

        Raises:
            StoreError: the member's work failed.
        """
        with self._lock:
            member.ended_before = self._ended
            self._waiting.append(member)
            leads, self._is_led = not self._is_led, True
        if not leads:
            self._wait(member)
        if not member.has_run:
            self._lead(member, before)
        if member.error is not None:
            raise member.error

    def _wait(self, member: _M) -> None:
        """Waits until the member leads or has its outcome."""
        while not member.woken.wait(_LOOK_SECONDS):
            try:
                cancellation.check()
            except StoreError:
                with self._lock:
                    if not member.woken.is_set() and member in self._waiting:
                        self._waiting.remove(member)
                        raise

    def _lead(self, member: _M, before: Callable[[], AbstractContextManager[object]]) -> None:
        with ExitStack() as held:
            try:
                cancellation.check()
                held.enter_context(before())
            except BaseException:
                with self._lock:
                    self._waiting.remove(member)
                self._pass_on()
                raise
            members = self._gather()
            try:
                with cancellation.within(None):
                    self._run(members)
            except BaseException as error:
                told = (
                    error if isinstance(error, StoreError) else UnavailableError(repr(error), kind="commit")
                )
                for each in members:
                    each.error = each.error or told
            finally:
                with self._lock:
                    self._ended += 1
                for each in members:
                    each.has_run = True
                    each.woken.set()
                self._pass_on()

    def _gather(self) -> list[_M]:
        """Takes the members for one run, oldest first: the leader and those behind it."""
        with self._lock:
            members = [self._waiting.popleft() for _ in range(self._count(self._waiting))]
            for member in members:
                member.waits = self._begun - member.ended_before
            self._begun += 1
        return members

    def _pass_on(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting[0].woken.set()
            else:
                self._is_led = False
