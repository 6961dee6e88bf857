"""Secrets of jobs, encrypted for the catalog: passwords of brokers, keys of buckets.

AES-256-GCM; the key is in the file `secret.key` of the data directory. The file is made when the first secret
is stored, and only its owner can read it.
"""

from __future__ import annotations

import base64
import importlib.util
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from seqstore.store.errors import UnavailableError
from seqstore.store.runtime.disk_errors import disk_error
from seqstore.store.runtime.durable_directory import sync_path

KEY_FILE: Final = "secret.key"
_PREFIX: Final = "sealed:v1:"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class SecretBox:
    """The secrets of one store.

    Args:
        key_file: made when the first secret is sealed.
    """

    def __init__(self, key_file: Path) -> None:
        self._key_file = key_file

    def seal(self, text: str) -> str:
        """Encrypts a text.

        Raises:
            UnavailableError: the package `cryptography` is missing, or the key cannot be read or written.
        """
        if is_sealed(text) or not text:
            return text
        nonce = os.urandom(_NONCE_BYTES)
        try:
            key = self._key()
            sync_path(self._key_file.parent)  # also where an earlier attempt failed to
        except OSError as error:
            raise disk_error(self._key_file, error) from error
        sealed = nonce + _cipher(key).encrypt(nonce, text.encode(), None)
        return _PREFIX + base64.b64encode(sealed).decode()

    def opened(self, text: str) -> str:
        """Decrypts a text of `seal`. A text of another key stays as it is, so that its job can be listed.

        Raises:
            UnavailableError: the package `cryptography` is missing, or the key cannot be read.
        """
        if not is_sealed(text) or not self._key_file.exists():
            return text
        from cryptography.exceptions import InvalidTag

        data = base64.b64decode(text.removeprefix(_PREFIX))
        try:
            key = self._key()
        except OSError as error:
            raise disk_error(self._key_file, error) from error
        try:
            plain: bytes = _cipher(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], None)
        except InvalidTag:
            return text
        return plain.decode()

    def _key(self) -> bytes:
        if not self._key_file.exists():
            self._make()
        key = self._key_file.read_bytes()
        if len(key) != _KEY_BYTES:
            raise UnavailableError(
                f"{self._key_file}: expected a key of {_KEY_BYTES} bytes, found {len(key)}; restore the file",
                kind="secret_key",
            )
        return key

    def _make(self) -> None:
        """Creates the file with its bytes at once, for other processes read it."""
        made = self._key_file.with_name(f"{self._key_file.name}.{os.getpid()}.{os.urandom(4).hex()}")
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(os.urandom(_KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):  # another process was first
                os.link(made, self._key_file)
        finally:
            made.unlink()


def is_sealed(text: str) -> bool:
    """Returns whether a text is encrypted."""
    return text.startswith(_PREFIX)


def _cipher(key: bytes) -> Any:
    if importlib.util.find_spec("cryptography") is None:
        raise UnavailableError(
            "secrets are stored encrypted, which needs the package 'cryptography'; pip install cryptography",
            kind="missing_extra",
        )
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
