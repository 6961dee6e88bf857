"""Python on threads of gRPC: each call has room for those below it (`runtime.call_room`), or is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from pyarrow import flight

from seqstore.store.runtime.call_room import RoomyIterator, with_room
from seqstore.store.runtime.memory_limit import out_of_memory

_T = TypeVar("_T")
_P = ParamSpec("_P")


def in_call(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """Makes a method that gRPC calls have room; without memory it raises FlightServerError."""

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with _memory_errors():
            return with_room(partial(method, *args, **kwargs))

    return call


class SentRows(RoomyIterator[Any]):
    """The rows of a call, which gRPC asks for."""

    def __next__(self) -> Any:
        with _memory_errors():
            return super().__next__()


@contextmanager
def _memory_errors() -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise flight.FlightServerError(out_of_memory("the call found no memory").message) from error
