"""A mark for members of public classes that are no part of the public surface.

The engine calls such members across modules, so their names have no underscore. Users must not: they may
change or disappear with any version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def internal(function: _Function) -> _Function:
    """Marks a function, or a method below its other decorators; costs nothing at a call."""
    function.__internal__ = True  # type: ignore[attr-defined]
    return function


def is_internal(member: object) -> bool:
    """Returns whether a member of a class has the mark."""
    for attribute in ("fget", "__func__", "func"):
        member = getattr(member, attribute, None) or member
    return getattr(member, "__internal__", False) is True
