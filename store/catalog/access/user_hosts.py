"""Users at hosts: `'ann'@'10.%'` is another user than `'ann'@'%'`, with a password and privileges of its own.

The name of a user in the catalog is `ann` for the host `%`, and `ann:10.%` for another; names of users hold
no colon. A host is an address, a pattern with `%` and `_`, a network such as `10.0.0.0/8`, or `localhost`,
which is every loopback address. Host names are not resolved. At a login the most specific host counts, as in
MySQL: addresses, then networks with the longest prefix, then patterns whose first wildcard stands last.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.like_pattern import LikePattern

ANY_HOST: Final = "%"
LOCALHOST: Final = "localhost"
HOST_BYTES_MAX: Final = 64
_SEPARATOR: Final = ":"
_PATTERN: Final = re.compile(r"[0-9a-f.:%_]{1,64}")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Rank = tuple[int, int]  # of a host that matches an address: the larger, the more specific


def name_at(user: str, host: str) -> str:
    """Returns the name in the catalog of a user at a host."""
    return user if host == ANY_HOST else f"{user}{_SEPARATOR}{host}"


def user_and_host(name: str) -> tuple[str, str]:
    """Returns the two parts of a name in the catalog."""
    user, _, host = name.partition(_SEPARATOR)
    return user, host or ANY_HOST


def quoted_user(name: str) -> str:
    """Returns a name in the catalog as statements write it, such as `'ann'@'%'`."""
    user, host = user_and_host(name)
    return f"'{user}'@'{host}'"


def plain_user(name: str) -> str:
    """Returns a name in the catalog for lists: `ann`, or `ann@10.%`."""
    user, host = user_and_host(name)
    return user if host == ANY_HOST else f"{user}@{host}"


def check_host(host: str) -> str:
    """Returns a host as the catalog stores it.

    Raises:
        InvalidInputError: it is no address, pattern, network or `localhost`.
    """
    lowered = host.strip().lower()
    if lowered in (ANY_HOST, LOCALHOST):
        return lowered
    try:
        if "/" in lowered:
            return str(ipaddress.ip_network(lowered))
        return str(ipaddress.ip_address(lowered))
    except ValueError:
        if _PATTERN.fullmatch(lowered) and _first_wildcard(lowered) < len(lowered):
            return lowered
    raise InvalidInputError(
        f"host {host[:80]!r} of a user: expected an address, a pattern such as '10.%', a network such as "
        "'10.0.0.0/8' without bits behind its prefix, or 'localhost'; host names are not resolved",
        kind="bad_user",
    )


def rank_of(host: str, address: str) -> Rank | None:
    """Returns how specific a host is for an address, None when it does not match."""
    if host == ANY_HOST:
        return 0, 0
    try:
        client = _plain(ipaddress.ip_address(address.partition("%")[0]))  # without a scope of IPv6
    except ValueError:
        return None
    if host == LOCALHOST:
        return (3, 0) if client.is_loopback else None
    if "/" in host:
        network = ipaddress.ip_network(host)
        return (2, network.prefixlen) if client in network else None
    if (first := _first_wildcard(host)) < len(host):
        return (1, first) if LikePattern(host).matches(str(client)) else None
    return (4, 0) if _plain(ipaddress.ip_address(host)) == client else None


def _plain(address: _Address) -> _Address:
    """Returns the IPv4 address of one that is mapped into IPv6."""
    return getattr(address, "ipv4_mapped", None) or address


def _first_wildcard(host: str) -> int:
    return min((host.find(sign) for sign in "%_" if sign in host), default=len(host))
