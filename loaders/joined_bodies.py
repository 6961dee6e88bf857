"""Group commit before parsing: bodies of one table and one header set are read as one.

1. The first load of a header set leads. Once it may work it takes the bodies that wait behind it.
2. Their text is one body: it is parsed, mapped and checked once, and joins the group of the table as one
   member (`group_commit`). The first load that arrives meanwhile leads next, once those rows are published.
3. Every load receives the transaction's id and label, and the number of its own rows.

Only rows without any fault are loaded so. If one row is filtered, or a body may be another text alone than
between others, nothing is stored, and each load reads its own body. So each has its own counts, errors and
ratio.
"""

from __future__ import annotations

import io
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from seqstore.loaders.csv.first_line import is_header_row
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.reply import Progress
from seqstore.store.errors import StoreError, UnavailableError
from seqstore.store.runtime.forks import new_lock
from seqstore.store.table import Table

_BODY_BYTES_MAX: Final = 256 << 10
_JOINED_BYTES_MAX: Final = 2 << 20  # one block of the reader, and less than a group takes from one member
_QUEUES_MAX: Final = 64
_BOM: Final = b"\xef\xbb\xbf"

_queues: weakref.WeakKeyDictionary[Table, dict[StreamLoadOptions, _Queue]] = weakref.WeakKeyDictionary()
_queues_lock = new_lock()


class UnlikeOneBodyError(Exception):
    """The joined bodies must be read one by one. Never leaves the loaders."""


def text_of(body: BinaryIO, options: StreamLoadOptions) -> bytes | None:
    """Returns the text of a body that may be joined with others, None for one that must be read alone.

    Expressions are computed at the moment of their own load.
    """
    csv = options.csv
    is_plain = options.format == "csv" and not (options.compression or csv.skip_lines or csv.enclose)
    has_one_end = len(csv.delimiter) == 1 and csv.delimiter != b"\r"
    if not is_plain or not has_one_end or "=" in options.columns or options.where or options.delete:
        return None
    if not isinstance(body, io.BytesIO) or body.tell() or not 0 < body.getbuffer().nbytes <= _BODY_BYTES_MAX:
        return None
    text = body.getvalue()
    return None if text.startswith(_BOM) or text.endswith(b"\r") else text


class JoinedBodies:
    """One body or several that are read as one.

    Args:
        texts: the bodies, in the order of their rows.
        delimiter: one byte, the end of each line.

    Attributes:
        counts: the lines of each body.
        is_begun: the rows may be published from now on.
    """

    def __init__(self, texts: Sequence[bytes], delimiter: bytes) -> None:
        self._texts = texts
        self._delimiter = delimiter
        self.is_begun = False
        self.counts = [_lines(text, delimiter) for text in texts]

    @property
    def is_one(self) -> bool:
        """Returns whether there is one body only."""
        return len(self._texts) == 1

    def body(self) -> BinaryIO:
        """Returns the one body."""
        end = self._delimiter
        return io.BytesIO(b"".join(text if text.endswith(end) else text + end for text in self._texts))

    def require_rows(self, rows: pa.Table) -> None:
        """Checks the rows that were read from several bodies.

        Raises:
            UnlikeOneBodyError: they are not one for each line, or the first row of a body has the names of
                the columns, for which its reply has a warning.
        """
        if self.is_one:
            return
        if len(rows) != sum(self.counts):
            raise UnlikeOneBodyError
        starts = np.cumsum([0, *self.counts[:-1]]).tolist()
        if any(is_header_row(rows.slice(start, 1)) for start in starts):
            raise UnlikeOneBodyError

    def require_clean(self, progress: Progress) -> None:
        """Checks the counts of several bodies, whose rows may be published then.

        Raises:
            UnlikeOneBodyError: a row was left out, or the rows do not fit into a group.
        """
        if not self.is_one and (progress.loaded != sum(self.counts) or not progress.is_grouped):
            raise UnlikeOneBodyError
        self.is_begun = True


def _lines(text: bytes, delimiter: bytes) -> int:
    octets = np.frombuffer(text, dtype=np.uint8)
    return int(np.count_nonzero(octets == delimiter[0])) + (not text.endswith(delimiter))


class _Member:
    """One load, which waits for its leader or leads."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.woken = threading.Event()
        self.is_over = False
        self.progress: Progress | None = None  # its share, None after its leader if it must read its own body
        self.error: StoreError | None = None


class _Queue:
    """The loads of one table and header set that wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_Member] = deque()
        self._is_led = False

    def enter(self, member: _Member) -> None:
        """Waits until the load leads, or its leader has ended."""
        with self._lock:
            if not self._is_led:
                self._is_led = True
                return
            self._waiting.append(member)
        member.woken.wait()

    def take(self, leader: _Member) -> list[_Member]:
        """Returns the leader and the loads behind it, as many as fit."""
        members, size = [leader], len(leader.text)
        with self._lock:
            while self._waiting and size + len(self._waiting[0].text) < _JOINED_BYTES_MAX:
                members.append(self._waiting.popleft())
                size += len(members[-1].text)
        return members

    def pass_on(self) -> None:
        """Makes the first load that waits the leader."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().woken.set()
            else:
                self._is_led = False


class _Taken:
    """A turn that is taken; the first `with` block that is left ends it."""

    def __init__(self, turn: AbstractContextManager[Any]) -> None:
        self._turn: AbstractContextManager[Any] | None = turn
        turn.__enter__()

    def __enter__(self) -> _Taken:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.__exit__(kind, error, trace)


Run = Callable[[JoinedBodies, AbstractContextManager[Any]], Progress]


def run_joined(
    table: Table, options: StreamLoadOptions, text: bytes, turn: AbstractContextManager[Any], run: Run
) -> Progress | None:
    """Loads a body together with others that wait.

    Args:
        turn: taken before the bodies are joined, and given to `run`.
        run: loads one body or several, and returns their counts; for the body of this load alone, its own.

    Returns:
        The counts of the load; None if it must read its own body.

    Raises:
        StoreError: nothing of the load is visible.
    """
    queue, own = _queue_of(table, options), _Member(text)
    queue.enter(own)
    if not own.is_over:
        try:
            with _Taken(turn) as taken:
                _lead(queue.take(own), options.csv.delimiter, lambda bodies: run(bodies, taken))
        finally:
            queue.pass_on()
    if own.error is not None:
        raise own.error
    return own.progress


def _lead(members: Sequence[_Member], delimiter: bytes, run: Callable[[JoinedBodies], Progress]) -> None:
    """Loads the bodies of the leader, which is the first member, and of its followers."""
    bodies = JoinedBodies([member.text for member in members], delimiter)
    try:
        if bodies.is_one:
            members[0].progress = run(bodies)
            return
        _share(run(bodies), members, bodies.counts)
    except UnlikeOneBodyError:
        return
    except (StoreError, OSError, pa.ArrowException) as error:
        if bodies.is_one:
            raise
        if bodies.is_begun:  # else each load finds its own error
            _fail(members, error)
    except BaseException as error:
        if bodies.is_begun:
            _fail(members, error)
        raise
    finally:
        for member in members:
            member.is_over = True
            member.woken.set()


def _share(progress: Progress, members: Sequence[_Member], counts: Sequence[int]) -> None:
    for member, count in zip(members, counts, strict=True):
        member.progress = replace(progress, loaded=count, body_bytes=len(member.text))


def _fail(members: Sequence[_Member], error: BaseException) -> None:
    for member in members:
        member.error = (
            error if isinstance(error, StoreError) else UnavailableError(repr(error), kind="commit")
        )


def _queue_of(table: Table, options: StreamLoadOptions) -> _Queue:
    key = replace(options, comment="") if options.comment else options
    with _queues_lock:
        queues = _queues.setdefault(table, {})
        if key not in queues and len(queues) >= _QUEUES_MAX:
            queues.clear()  # loads in a queue of before end there
        return queues.setdefault(key, _Queue())
