"""Room for the frames of Python calls, taken before the work begins.

Python keeps the frames of a thread in blocks of 16 KiB, and maps another one when a call finds no room. Where
the system refuses it (`memory_limit`), CPython 3.11 fails a specialized call without an exception and drops a
reference of the called function that it does not own. The process ends with SIGSEGV when that is freed.
A thread that another library starts has no block, so this happens at its first call inside a generator.

A call that needs half of a large block leaves the other half to the calls below it: `roomy`,
`RoomyIterator`, and `give_threads_room` for the threads of a server. If the large block is refused, that call
itself fails, with MemoryError. No thread may run without: what it breaks ends the process much later.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any, Final, Generic, ParamSpec, TypeVar

from seqstore.store.runtime import memory_limit

_T = TypeVar("_T")
_P = ParamSpec("_P")

# Of eight bytes each; the block is the next power of two, and half of it stays free.
_ENTRIES: Final = (1 << 15) + 64
_WAIT_SECONDS: Final = 2.0
_FIRST: Final = "_bootstrap"  # the first Python function of a thread
_LOOK_SECONDS: Final = 0.05


def _call(function: Callable[[], _T]) -> _T:
    return function()


_call.__code__ = _call.__code__.replace(co_stacksize=_ENTRIES)


def with_room(function: Callable[[], _T]) -> _T:
    """Calls a function with room for its calls; waits up to two seconds for the memory of that.

    Raises:
        MemoryError: there is none for so long; the function was not called.
    """
    end = time.monotonic() + _WAIT_SECONDS
    has_begun = False

    def begin() -> _T:
        nonlocal has_begun
        has_begun = True
        return function()

    while True:
        try:
            return _call(*(begin,))  # not specialized, so that it fails with MemoryError
        except MemoryError:
            if has_begun or time.monotonic() > end:
                raise
        time.sleep(_LOOK_SECONDS)


def roomy(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Makes a function, which a thread begins with, have room; see `with_room`."""

    @wraps(function)
    def with_its_room(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return with_room(partial(function, *args, **kwargs))

    return with_its_room


class RoomyIterator(Generic[_T]):
    """An iterator for threads of other libraries, such as DuckDB, Arrow and gRPC; each step has room.

    So has the end of a generator that such a thread drops. If there is no memory for that, the next iterator
    that is made ends it.
    """

    def __init__(self, inner: Iterator[_T]) -> None:
        self._inner = inner
        for key, (_, iterator) in list(_inner_of.items()):
            if iterator() is None:
                _end(key)
        _inner_of[id(inner)] = inner, weakref.ref(self)

    def __iter__(self) -> RoomyIterator[_T]:
        return self

    def __next__(self) -> _T:
        return with_room(self._inner.__next__)

    def __del__(self) -> None:
        _end(id(self._inner))


# What the iterators read, by its id: it must not end where the last reference to an iterator is dropped.
_inner_of: Final[dict[int, tuple[Iterator[Any], weakref.ref[RoomyIterator[Any]]]]] = {}


def _end(key: int) -> None:
    found = _inner_of.pop(key, None)
    if found is None or not hasattr(found[0], "close"):
        return
    try:
        with_room(found[0].close)
    except MemoryError:
        _inner_of[key] = found


def give_threads_room() -> None:
    """Gives all threads that begin from now on room, and counts it beside the memory limit.

    The first Python function of a thread takes the large block. Where the system refuses that, the thread
    ends before it runs anything, and `Thread.start` waits for it for ever. So there is more memory beside the
    limit until the thread has begun.
    """
    threading.Thread.start = _start_with_room  # type: ignore[method-assign, assignment]
    setattr(threading.Thread, _FIRST, _bootstrap_with_room)


_start: Final[Callable[[threading.Thread], None]] = threading.Thread.start
_bootstrap: Final[Callable[[threading.Thread], None]] = getattr(threading.Thread, _FIRST)


def _start_with_room(thread: threading.Thread) -> None:
    memory_limit.count_room()
    try:
        with memory_limit.while_a_thread_begins():
            _start(thread)
    except (MemoryError, RuntimeError):
        memory_limit.end_room()
        raise


def _bootstrap_with_room(thread: threading.Thread) -> None:
    try:
        _bootstrap(thread)
    finally:
        memory_limit.end_room()


_bootstrap_with_room.__code__ = _bootstrap_with_room.__code__.replace(co_stacksize=_ENTRIES)
