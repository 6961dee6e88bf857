"""Classes of a client that stand for objects of a server: their calls, and what they refuse.

`remote` makes the calls of a class from the members of the engine's class: a call has the name, the arguments
and the errors of the member that it overrides.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.remote.connection import Connection, Request
from seqstore.store.remote.link import Link
from seqstore.store.remote.surface import CALLS, REFUSED

_Class = TypeVar("_Class", bound=type)
_CALLED: Final = "__called__"


class Handle:
    """One object of a server. Subclasses come before the class of the engine that they stand for.

    Attributes:
        connection: to the server.
        address: of the object there: the name and the id of a table, the number of another handle.
        link: the session that has the object; None for objects that every session has.
    """

    kind: str
    connection: Connection
    address: Any = None
    link: Link | None = None

    def bind(self, connection: Connection, made: Mapping[str, Any]) -> None:
        """Binds the handle to an object that a call made in the connection's session.

        Args:
            made: its `handle`, a number, and its attributes.
        """
        self.connection = connection
        self.link = connection.link()
        self.address = made["handle"]
        weakref.finalize(self, self.link.release, self.address).atexit = False

    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Runs a call at the server and returns its value."""
        return self.connection.run(self.request(name, arguments))

    def request(
        self, name: str, arguments: Mapping[str, Any] | None = None, rows: pa.Table | None = None
    ) -> Request:
        """Returns the request of a call."""
        return Request(self.kind, name, self.address, arguments or {}, self.link, rows)

    def made_by(self, name: str, arguments: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Runs a call that makes an object at the server; returns its number and attributes."""
        made: Mapping[str, Any] = self.call(name, arguments)
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"{self.kind}.{name}: a store elsewhere does not have it")


def remote(kind: str) -> Callable[[_Class], _Class]:
    """Completes a class: members that it does not define are calls, or refuse by name."""

    def complete(cls: _Class) -> _Class:
        base = next(each for each in cls.__mro__ if each.__name__ == kind)
        own = {name for each in cls.__mro__ if "remote" in each.__module__.split(".") for name in vars(each)}
        for name in dir(base):
            if name.startswith("_") or name in own:
                continue
            member = inspect.getattr_static(base, name)
            if name in CALLS[kind]:
                setattr(cls, name, _called(kind, name, member))
            else:
                setattr(cls, name, _refused(kind, name, member))
        setattr(cls, "kind", kind)  # noqa: B010 - a class of any type
        return cls

    return complete


def arguments_of(member: Any, *given: Any, **named: Any) -> dict[str, Any]:
    """Returns the arguments of a call by their names, without those that were not given.

    Raises:
        TypeError: the member takes no such arguments.
    """
    signature = inspect.signature(member)
    bound = signature.bind(None, *given, **named).arguments
    found: dict[str, Any] = {}
    for name, value in list(bound.items())[1:]:
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            found.update(value)
        else:
            found[name] = value
    return found


def _called(kind: str, name: str, member: Any) -> Any:
    if isinstance(member, property):

        def read(self: Handle) -> Any:
            return self.call(name)

        read.__doc__ = member.__doc__
        return property(read)

    def call(self: Handle, *given: Any, **named: Any) -> Any:
        return self.call(name, arguments_of(member, *given, **named))

    call.__name__, call.__qualname__, call.__doc__ = name, f"{kind}.{name}", member.__doc__
    call.__signature__ = inspect.signature(member)  # type: ignore[attr-defined]
    return call


def _refused(kind: str, name: str, member: Any) -> Any:
    reason = REFUSED.get(kind, {}).get(name, "call it where the store is")

    def refuse(*_given: Any, **_named: Any) -> NoReturn:
        raise refusal(kind, name, reason)

    refuse.__name__, refuse.__qualname__, refuse.__doc__ = name, f"{kind}.{name}", f"Refuses: {reason}."
    if isinstance(member, classmethod):
        return classmethod(refuse)
    is_function = inspect.isfunction(member) or isinstance(member, staticmethod)
    return refuse if is_function else property(refuse)


def refusal(kind: str, name: str, reason: str) -> InvalidInputError:
    """Returns the error of a member that a store elsewhere does not have."""
    return InvalidInputError(f"{kind}.{name} is not there for a store elsewhere: {reason}", kind="not_remote")
