"""The JSON answers of the console: values, or an error with its kind."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final

from aiohttp import web

from seqstore.cli.web.bodies import bytes_in, login_bytes_in
from seqstore.store import (
    AccessDeniedError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    UnavailableError,
)

_BODY_BYTES_MAX: Final = 1 << 20
_LOGIN_BYTES_MAX: Final = 1 << 16
_STATUSES: Final = (
    (AccessDeniedError, 403),
    (NotFoundError, 404),
    (InvalidInputError, 400),
    (UnavailableError, 503),
)

Handler = Callable[..., Awaitable[web.StreamResponse]]


def reply(values: Any, *, status: int = 200) -> web.Response:
    """Builds an answer that no cache keeps."""
    body = json.dumps(values, default=str, separators=(",", ":")).encode()
    return web.Response(
        status=status,
        body=body,
        content_type="application/json",
        charset="utf-8",
        headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
    )


def refusal(message: str, status: int, kind: str = "", place: dict[str, int] | None = None) -> web.Response:
    """Builds the answer of an error; `place` is that of a fault of syntax in a statement."""
    return reply({"error": message, "kind": kind, "place": place}, status=status)


def answered(handler: Handler) -> Handler:
    """Wraps a handler: its refusals become answers of the console."""

    @wraps(handler)
    async def answer(*arguments: Any) -> web.StreamResponse:
        try:
            return await handler(*arguments)
        except StoreError as error:
            status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 400)
            return refusal(error.message, status, error.kind, _place(error))

    return answer


def _place(error: StoreError) -> dict[str, int] | None:
    if error.kind != "syntax" or "offset" not in error.fields:
        return None
    return {name: error.fields[name] for name in ("line", "column", "offset")}


async def object_in(request: web.BaseRequest) -> dict[str, Any]:
    """Reads the JSON object in a body.

    Raises:
        InvalidInputError: it is something else, or too large.
        UnavailableError: it does not arrive in time.
    """
    return _object(await bytes_in(request, _BODY_BYTES_MAX))


async def login_in(request: web.BaseRequest) -> dict[str, Any]:
    """Reads the JSON object in the body of a login, as `object_in`."""
    return _object(await login_bytes_in(request, _LOGIN_BYTES_MAX))


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise InvalidInputError(f"the body is no JSON: {error}", kind="bad_request") from error
    if not isinstance(found, dict):
        raise InvalidInputError("the body is no JSON object", kind="bad_request")
    return found


def number_in(request: web.BaseRequest, name: str, default: int, most: int) -> int:
    """Returns a whole number of the query string.

    Raises:
        InvalidInputError: it is none from 0 to `most`.
    """
    text = request.query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > most:
        raise InvalidInputError(f"{name}: expected 0 to {most}, found {text[:40]!r}", kind="bad_request")
    return int(text)
