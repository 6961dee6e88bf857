"""`caching_sha2_password`, the method of MySQL 8 and later clients.

1. The client hides SHA256(password) by SHA256(SHA256(SHA256(password)) + nonce). The server compares it with
   the hash that it remembered when the password matched before.
2. Otherwise it requests the password itself: as it is through TLS, else encrypted by the server's RSA key,
   which the client requests or has. The password is compared with the hash of the catalog, and its hash
   remembered.

The key is made when the first client needs it, and ends with the process.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import itertools
import threading
from functools import cache
from typing import Any, Final

from seqstore.cli.mysql.wire import Channel, ProtocolError
from seqstore.store.catalog.accounts import Account, matches_password
from seqstore.store.errors import AccessDeniedError

PLUGIN: Final = b"caching_sha2_password"
_SCRAMBLE_BYTES: Final = 32
_RSA_BITS: Final = 2048
_KNOWN_MAX: Final = 1024
_REQUESTS_KEY: Final = b"\x02"
_MORE: Final = b"\x01"
_IS_KNOWN: Final = b"\x03"
_SEND_PASSWORD: Final = b"\x04"


class KnownPasswords:
    """Hashes of passwords that matched in this process; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[bytes, bytes]] = {}

    def matches(self, account: Account, scramble: bytes, nonce: bytes) -> bool:
        """Returns whether a scramble is that of the remembered password of a user."""
        with self._lock:
            slow_hash, twice = self._known.get(account.name, (b"", b""))
        if not twice or slow_hash != account.slow_hash or len(scramble) != _SCRAMBLE_BYTES:
            return False
        mask = hashlib.sha256(twice + nonce).digest()
        once = bytes(a ^ b for a, b in zip(scramble, mask, strict=True))
        return hmac.compare_digest(hashlib.sha256(once).digest(), twice)

    def remember(self, account: Account, password: bytes) -> None:
        with self._lock:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            twice = hashlib.sha256(hashlib.sha256(password).digest()).digest()
            self._known[account.name] = account.slow_hash, twice


class Sha2Login:
    """One login by this method.

    Args:
        scramble: that of the client, empty for an empty password.
        is_encrypted: the connection uses TLS.
    """

    def __init__(
        self, channel: Channel, known: KnownPasswords, scramble: bytes, nonce: bytes, *, is_encrypted: bool
    ) -> None:
        self._channel = channel
        self._known = known
        self._scramble = scramble
        self._nonce = nonce
        self._is_encrypted = is_encrypted

    def is_quick(self, account: Account | None) -> bool:
        """Returns whether the scramble is enough to decide."""
        if not self._scramble or account is None or not account.has_password:
            return not self._scramble
        return self._known.matches(account, self._scramble, self._nonce)

    def matches(self, account: Account) -> bool:
        """Checks the scramble alone."""
        if not account.has_password or not self._scramble:
            return not account.has_password and not self._scramble
        if not self._known.matches(account, self._scramble, self._nonce):
            return False
        self._channel.write(_MORE + _IS_KNOWN)
        return True

    def read_password(self) -> bytes:
        """Requests the password of the client.

        Raises:
            AccessDeniedError: the connection is not encrypted, and there is no RSA key.
            ProtocolError: the client sends something else.
        """
        self._channel.write(_MORE + _SEND_PASSWORD)
        answer = self._channel.read()
        if self._is_encrypted:
            return answer.removesuffix(b"\0")
        if importlib.util.find_spec("cryptography") is None:
            raise AccessDeniedError(
                "caching_sha2_password without TLS needs the package 'cryptography' in the server; use TLS, "
                "or mysql_native_password",
                kind="bad_password",
            )
        if answer == _REQUESTS_KEY:
            self._channel.write(_MORE + _public_key())
            answer = self._channel.read()
        hidden = _decrypted(answer)
        plain = bytes(a ^ b for a, b in zip(hidden, itertools.cycle(self._nonce), strict=False))
        return plain.removesuffix(b"\0")

    def has_password(self, account: Account, password: bytes) -> bool:
        """Compares a password with the hash of the catalog, and remembers it if it matches."""
        if not matches_password(account, password):
            return False
        self._known.remember(account, password)
        return True


@cache
def _rsa_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import rsa

    return rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)


def _public_key() -> bytes:
    from cryptography.hazmat.primitives import serialization

    form = serialization.PublicFormat.SubjectPublicKeyInfo
    found: bytes = _rsa_key().public_key().public_bytes(serialization.Encoding.PEM, form)
    return found


def _decrypted(data: bytes) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    oaep = padding.OAEP(mgf=padding.MGF1(hashes.SHA1()), algorithm=hashes.SHA1(), label=None)
    try:
        found: bytes = _rsa_key().decrypt(data, oaep)
    except ValueError as error:
        raise ProtocolError("a password that the key of this server did not encrypt") from error
    return found
