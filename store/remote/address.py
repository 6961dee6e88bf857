"""Where a store is that is elsewhere: `seqstore://host:port`, with encryption `seqstore+tls://host:port`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from seqstore.store.errors import InvalidInputError

SCHEMES: Final = {"seqstore": "grpc+tcp", "seqstore+tls": "grpc+tls"}


@dataclass(frozen=True)
class Address:
    """A server, and the user that connects to it.

    Attributes:
        url: as given.
        location: as Arrow Flight has it.
        certificates: of authorities that the client trusts, in PEM; None means those of the system.
        token: of a login of the user; with it there is no password.
    """

    url: str
    location: str
    user: str = "root"
    password: str = field(default="", repr=False)
    certificates: bytes | None = None
    token: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: str, user: str, password: str, certificates: str | Path | None = None) -> Address:
        """Reads a URL.

        Raises:
            InvalidInputError: it is none of a store, or the file of certificates cannot be read.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme not in SCHEMES or not host or not port or parts.username is not None:
            raise InvalidInputError(
                f"{url!r}: expected seqstore://host:port or seqstore+tls://host:port, with the port that the "
                "setting flight_port of the server names; the user and the password are arguments",
                kind="bad_url",
            )
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise InvalidInputError(f"{url!r}: expected nothing behind the port", kind="bad_url")
        shown = f"[{host}]" if ":" in host else host
        pem = None
        if certificates is not None:
            try:
                pem = Path(certificates).read_bytes()
            except OSError as error:
                raise InvalidInputError(f"{certificates}: {error.strerror}", kind="bad_path") from error
        return cls(url, f"{SCHEMES[parts.scheme]}://{shown}:{port}", user, password, pem)


def is_url(text: str) -> bool:
    """Returns whether a text names a store elsewhere rather than a directory."""
    return text.partition("://")[0] in SCHEMES and "://" in text
