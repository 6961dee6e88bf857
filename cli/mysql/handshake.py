"""The handshake of a client: the server's greeting, the client's answer, and the proof of its password.

1. The server greets with 20 random bytes, the nonce.
2. The client answers with its name, its capabilities, and SHA1(password) hidden by those bytes. It may choose
   `caching_sha2_password` instead (cli.mysql.caching_sha2); the server switches others to SHA1.
"""

from __future__ import annotations

import secrets
import ssl
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from seqstore.cli.mysql import caching_sha2, wire
from seqstore.cli.mysql.caching_sha2 import Sha2Login
from seqstore.cli.mysql.wire import Channel, Payload
from seqstore.store.catalog.accounts import Account, matches_scramble
from seqstore.store.sql.translate.functions import SERVER_VERSION

NATIVE: Final = b"mysql_native_password"
_NONCE_LETTERS: Final = (string.ascii_letters + string.digits).encode()
_SCRAMBLE_BYTES: Final = 20
_SHA2_SCRAMBLE_BYTES: Final = 32
_UTF8: Final = 45


@dataclass
class HandshakeResponse:
    """The answer of a client to the greeting, or its request for another user."""

    capabilities: int
    name: str
    scramble: bytes
    database: str
    plugin: bytes

    @classmethod
    def parse(cls, data: bytes) -> HandshakeResponse:
        """Reads a packet.

        Raises:
            ProtocolError: it is none.
        """
        payload = Payload(data)
        capabilities = payload.integer(4)
        payload.take(28)  # its largest packet, its character set, nothing
        name = payload.zero_ended().decode("utf-8", "replace")
        if capabilities & wire.PLUGIN_AUTH_LENENC:
            scramble = payload.lenenc_bytes()
        elif capabilities & wire.SECURE_CONNECTION:
            scramble = payload.take(payload.integer(1))
        else:
            scramble = payload.zero_ended()
        database = plugin = b""
        if capabilities & wire.CONNECT_WITH_DB and not payload.is_done:
            database = payload.zero_ended()
        if capabilities & wire.PLUGIN_AUTH and not payload.is_done:
            plugin = payload.zero_ended()
        return cls(capabilities, name, scramble, database.decode("utf-8", "replace"), plugin)


def new_nonce() -> bytes:
    """Returns the random bytes of one connection."""
    return bytes(secrets.choice(_NONCE_LETTERS) for _ in range(20))


def greeting(number: int, nonce: bytes, *, has_tls: bool) -> bytes:
    """Returns the packet that begins a connection.

    Args:
        number: of the connection.
        has_tls: the client may request encryption.
    """
    capabilities = wire.CAPABILITIES | (wire.SSL if has_tls else 0)
    return (
        b"\x0a"
        + SERVER_VERSION.encode()
        + b"\0"
        + number.to_bytes(4, "little")
        + nonce[:8]
        + b"\0"
        + (capabilities & 0xFFFF).to_bytes(2, "little")
        + bytes([_UTF8])
        + wire.STATUS_AUTOCOMMIT.to_bytes(2, "little")
        + (capabilities >> 16).to_bytes(2, "little")
        + bytes([len(nonce) + 1])
        + bytes(10)
        + nonce[8:]
        + b"\0"
        + NATIVE
        + b"\0"
    )


@dataclass(frozen=True)
class PasswordExchange:
    """Has a client prove its password, by its method or the one that it is switched to.

    Attributes:
        nonce: that the client was greeted with.
        known: the passwords that matched `caching_sha2_password`.
        find: finds the user that a name means, as the client's address has it.
        is_quick: whether a user and the check of its scramble may do without the whole password.
    """

    channel: Channel
    nonce: bytes
    known: caching_sha2.KnownPasswords
    find: Callable[[str], Account | None]
    is_quick: Callable[[str, Callable[[], bool | None]], bool]

    def check_of(self, client: HandshakeResponse) -> Callable[[Account], bool]:
        """Returns the check of the client's password; it may ask the client for more first."""
        scramble = client.scramble
        if client.capabilities & wire.PLUGIN_AUTH and client.plugin == caching_sha2.PLUGIN:
            return self._sha2_check(client.name, scramble)
        if client.capabilities & wire.PLUGIN_AUTH and client.plugin != NATIVE:
            scramble = self._switched(NATIVE)
        native = _without_end(scramble)
        return lambda account: matches_scramble(account, native, self.nonce)

    def _sha2_check(self, name: str, scramble: bytes) -> Callable[[Account], bool]:
        if scramble not in (b"", b"\0") and len(scramble) != _SHA2_SCRAMBLE_BYTES:  # of another method
            scramble = self._switched(caching_sha2.PLUGIN)
        scramble = b"" if scramble == b"\0" else scramble
        is_encrypted = isinstance(self.channel.socket, ssl.SSLSocket)
        login = Sha2Login(self.channel, self.known, scramble, self.nonce, is_encrypted=is_encrypted)
        account = self.find(name)
        # The next packet tells whether the scramble was right, and no guard counts a client that leaves then.
        if not scramble or self.is_quick(name, lambda: login.is_quick(account) or None):
            return login.matches
        password = login.read_password()
        return lambda account: login.has_password(account, password)

    def _switched(self, plugin: bytes) -> bytes:
        """Switches the client to a method; returns its scramble."""
        self.channel.write(b"\xfe" + plugin + b"\0" + self.nonce + b"\0")
        return self.channel.read()


def _without_end(scramble: bytes) -> bytes:
    """Drops the zero byte that some clients send behind a scramble; a scramble itself may end in zeros."""
    return b"" if scramble == b"\0" else scramble[:_SCRAMBLE_BYTES]
