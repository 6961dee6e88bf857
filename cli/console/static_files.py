"""The files of the console, read once; pages may load nothing from elsewhere, and no page may frame them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from aiohttp import web

from seqstore.cli.console.replies import refusal

_FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


async def page(request: web.BaseRequest, names: list[str], user: str) -> web.Response:
    """Serves GET /: the page that holds all views."""
    return _file(request, "index.html")


async def static_file(request: web.BaseRequest, names: list[str], user: str) -> web.Response:
    """Serves GET /console/{file}."""
    return _file(request, names[0])


def _file(request: web.BaseRequest, name: str) -> web.Response:
    found = _files().get(name)
    if found is None:
        return refusal(f"there is no file {name[:100]!r} of the console", 404, "unknown_file")
    body, tag = found
    headers = {**_HEADERS, "ETag": tag}
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, headers=headers, content_type=_TYPES[Path(name).suffix], charset="utf-8")


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """Returns content and tag of each file, by name; a name of a request is never a path."""
    found = {path.name: path.read_bytes() for path in _FOLDER.iterdir() if path.suffix in _TYPES}
    return {name: (data, f'"{hashlib.sha256(data).hexdigest()[:32]}"') for name, data in found.items()}
