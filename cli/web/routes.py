"""Routes of the HTTP service: method, path with names in it, handler, and event of the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

# Events of the audit log.
LOAD: Final = "load"
STATEMENT: Final = "statement"
REQUEST: Final = "request"
NONE: Final = ""

Handler = Callable[[web.BaseRequest, list[str], str], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Route:
    """One kind of request. `{}` in the path stands for one name.

    Attributes:
        event: that the audit log has of a request; the handler records all but `request`, and a route without
            login has none.
    """

    method: str
    path: tuple[str, ...]
    handler: Handler
    event: str = REQUEST

    @property
    def is_open(self) -> bool:
        """Whether it needs no login."""
        return not self.event

    def match(self, parts: list[str]) -> list[str] | None:
        """Returns the names in the path, None when it is another path."""
        if len(parts) != len(self.path):
            return None
        if any(wanted not in ("{}", part) for wanted, part in zip(self.path, parts, strict=True)):
            return None
        return [part for wanted, part in zip(self.path, parts, strict=True) if wanted == "{}"]


def route(method: str, path: str, handler: Handler, event: str = REQUEST) -> Route:
    return Route(method, tuple(path.strip("/").split("/")), handler, event)
