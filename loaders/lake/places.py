"""The files of a table of another format: local ones, below the directories that loads may read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from seqstore.loaders.broker.files import check_allowed, is_remote
from seqstore.store.errors import InvalidInputError, NotFoundError


class Places:
    """The places that an import may read.

    A table names its files, so each of them is checked: an absolute path, `..` or a link may lead elsewhere.

    Args:
        allowed: directories below which files may be read.
    """

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = allowed

    def directory(self, path: str) -> str:
        """Returns the absolute path of a directory.

        Raises:
            AccessDeniedError: it is not below an allowed directory.
            NotFoundError: there is none.
            InvalidInputError: it is no local path.
        """
        found = self._checked(_local(path))
        if not os.path.isdir(found):
            raise NotFoundError(f"{found}: there is no such directory", kind="no_files")
        return found

    def file(self, path: str, base: str = "") -> str:
        """Returns the absolute path of a file.

        Args:
            path: a local path or a `file:` URI, escaped as URIs are if it is a reference of Delta.
            base: the directory of a relative path; the path is escaped then.

        Raises:
            AccessDeniedError: it is not below an allowed directory.
            NotFoundError: there is none, or it is no regular file.
            InvalidInputError: it is no local path.
        """
        plain = _local(path)
        if base:
            plain = plain if plain != path else os.path.join(base, unquote(path))
        found = self._checked(plain)
        if not os.path.isfile(found):
            raise NotFoundError(
                f"{found}: the table names this file, and it is not there; it may have been vacuumed",
                kind="no_files",
            )
        return found

    def _checked(self, path: str) -> str:
        found = os.path.abspath(path)
        check_allowed(found, self._allowed)
        return found


def _local(path: str) -> str:
    """Returns the local path of a path or URI."""
    if path.lower().startswith("file:"):
        return unquote(urlsplit(path).path)
    if is_remote(path):
        raise InvalidInputError(
            f"{path.partition('?')[0]}: tables are imported from local directories; mount or copy the table",
            kind="not_supported",
        )
    return path
