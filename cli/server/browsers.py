"""Requests that a web page makes a browser send: refused before anything of them is looked at.

1. A server on a loopback address answers only names of this machine (Host). The name of a web site can be
   made to resolve to 127.0.0.1 (DNS rebinding), and its pages would read the answers of the server.
2. A page of another origin is refused by Origin and Sec-Fetch-Site, which browsers set and pages cannot
   change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from seqstore.cli.server.settings import ServerSettings
from seqstore.store import AccessDeniedError
from seqstore.store.runtime.addresses import is_loopback


def check_browser(headers: Mapping[str, str], settings: ServerSettings) -> None:
    """Refuses the request of a page of another origin.

    Raises:
        AccessDeniedError: the Host is none of this server, or the Origin another.
    """
    host = headers.get("Host", "")
    if host and is_loopback(settings.host) and not _is_local(host, settings):
        raise AccessDeniedError(
            f"Host {host[:100]!r} is none of this server, which listens on {settings.host}; expected a name "
            "of this machine, or one of the setting http_hosts",
            kind="bad_host",
        )
    origin = headers.get("Origin")
    is_foreign = origin is not None and _host_and_port(origin) != _host_and_port(f"//{host}")
    if is_foreign or headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise AccessDeniedError(
            f"requests of web pages of another origin ({(origin or 'unknown')[:100]}) are refused",
            kind="bad_origin",
        )


def _is_local(host: str, settings: ServerSettings) -> bool:
    name, _ = _host_and_port(f"//{host}")
    known: Sequence[str] = (settings.host, *settings.http_hosts)
    if settings.advertised_address:
        known = (*known, _host_and_port(f"//{settings.advertised_address}")[0])
    return is_loopback(name) or name in [each.lower() for each in known]


def _host_and_port(url: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(url)
        return (parts.hostname or "").removesuffix("."), parts.port
    except ValueError:
        return "", None
