"""Spans of OpenTelemetry around the steps of a load; nothing where the process does not use OpenTelemetry.

Spans go to the tracer provider of the process, which a program sets up as its documentation says, and
`seqstore serve` for itself. A process that has not imported `opentelemetry.trace` has none: then a span costs
a look into `sys.modules`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

_API: Final = "opentelemetry.trace"
_SCOPE: Final = "seqstore"


def span(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """Returns a context manager for a span below the current one; an exception that leaves it is recorded.

    Args:
        attributes: their names get the prefix `seqstore.`.
    """
    api = sys.modules.get(_API)
    if api is None:
        return nullcontext()
    given = {f"{_SCOPE}.{key}": value for key, value in attributes.items()}
    found: AbstractContextManager[Any] = api.get_tracer(_SCOPE).start_as_current_span(name, attributes=given)
    return found


def describe(**attributes: str | int) -> None:
    """Adds attributes to the current span; names get the prefix `seqstore.`."""
    api = sys.modules.get(_API)
    if api is not None:
        api.get_current_span().set_attributes({f"{_SCOPE}.{key}": value for key, value in attributes.items()})


@contextmanager
def caller_of(headers: Mapping[str, str]) -> Iterator[None]:
    """Makes the span that a client names in its header `traceparent` (W3C) the parent of the block's."""
    if _API not in sys.modules or not headers.get("traceparent"):
        yield
        return
    from opentelemetry import context, propagate

    token = context.attach(propagate.extract({name.lower(): value for name, value in headers.items()}))
    try:
        yield
    finally:
        context.detach(token)
