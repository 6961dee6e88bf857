"""The JSON answers of the server."""

from __future__ import annotations

import json
from typing import Any, Final

from aiohttp import web


def json_reply(values: Any, *, status: int = 200, indent: int | None = None) -> web.Response:
    """Builds a reply with any value as JSON. Header text that is no Unicode is written as escapes."""
    try:
        body = json.dumps(values, ensure_ascii=False, indent=indent).encode()
    except UnicodeEncodeError:
        body = json.dumps(values, indent=indent).encode()
    return web.Response(status=status, body=body, content_type="application/json", charset="utf-8")


def failure(message: str, *, status: int = 200) -> web.Response:
    """Returns a refusal in the fields that stream load clients read."""
    return json_reply({"Status": "Fail", "Message": message}, status=status, indent=4)


_ICEBERG_TYPES: Final = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NoSuchNamespaceException",
    406: "UnsupportedOperationException",
    429: "SlowDownException",
}


def iceberg_failure(message: str, *, status: int, is_table: bool = False) -> web.Response:
    """Returns a refusal in the error model of Iceberg's REST catalogs."""
    kind = "NoSuchTableException" if is_table else _ICEBERG_TYPES.get(status, "ServiceUnavailableException")
    return json_reply({"error": {"message": message, "type": kind, "code": status}}, status=status)


def manager_reply(data: Any, *, message: str = "success", code: int = 0) -> web.Response:
    """Returns the reply of Doris's management endpoints."""
    return json_reply({"msg": message, "code": code, "data": data, "count": 0})
