"""New certificates without a restart: the files are read again when they change, and at SIGHUP."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from seqstore.cli.server.settings import ServerSettings
from seqstore.store import InvalidInputError

LOOK_SECONDS: Final = 2.0
_log: Final = logging.getLogger("seqstore.serve")


class Certificates:
    """The certificate of a server and the contexts that use it.

    Args:
        contexts: of the services; connections that begin later have the new certificate.
    """

    def __init__(self, settings: ServerSettings, contexts: Sequence[ssl.SSLContext]) -> None:
        self._settings = settings
        self._contexts = contexts
        self._seen = self._state()

    def look(self) -> None:
        """Reads the files again if one of them changed."""
        state = self._state()
        if state != self._seen:
            self._seen = state
            self.reload()

    def reload(self) -> None:
        """Reads the files; a certificate that cannot be used leaves the one before, and a line in the log."""
        if not self._contexts:
            return
        try:
            self._settings.tls_context()  # a context keeps half of a pair that does not belong together
        except InvalidInputError as error:
            _log.warning("the certificate of before stays in use: %s", error.message)
            return
        for context in self._contexts:
            context.load_cert_chain(self._settings.tls_certificate_file, self._settings.tls_key_file)
        _log.warning("read the certificate %s again", self._settings.tls_certificate_file)

    def _state(self) -> list[tuple[int, int, int]]:
        found = []
        for name in (self._settings.tls_certificate_file, self._settings.tls_key_file):
            with contextlib.suppress(OSError):
                status = Path(name).stat() if name else None
                found += [(status.st_ino, status.st_mtime_ns, status.st_size)] if status is not None else []
        return found
