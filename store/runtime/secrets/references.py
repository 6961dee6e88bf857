"""Secrets by reference: `env:NAME` is a variable of the environment, `file:/path` the content of a file.

A job stores and shows the reference. The process that opens its source reads the secret then.

The process that runs a job reads references with its own rights, and sends the secrets to a server that the
job names. So a reference counts only if it is allowed: by the setting `secret_references`, or because the
local user that runs the command `seqstore` named it in a job file.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Sequence
from typing import Final

from seqstore.store.errors import AccessDeniedError, InvalidInputError

_REFERENCE: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/[^\x00-\x1f]*")
_FILE_BYTES_MAX: Final = 64 << 10


def is_reference(text: str) -> bool:
    """Returns whether a secret is the reference of one."""
    return _REFERENCE.fullmatch(text) is not None


def check_reference(owner: str, reference: str, allowed: Sequence[str]) -> None:
    """Refuses a reference that is not allowed.

    Args:
        owner: the property, for messages.
        allowed: references and patterns; a `*` stands for a part of one name.

    Raises:
        AccessDeniedError: names the property and the reference; a missing secret reads the same.
    """
    if ".." in reference.split("/") or not any(_matches(reference, each) for each in allowed):
        raise AccessDeniedError(
            f"{owner}: {reference!r} is not among the secrets that jobs may use; an administrator of the "
            "host adds it to the setting secret_references",
            kind="not_allowed",
        )


def read_secret(owner: str, reference: str, allowed: Sequence[str]) -> str:
    """Returns the secret of a reference.

    Raises:
        AccessDeniedError: as `check_reference`.
        InvalidInputError: there is no such variable or file, or it is empty.
    """
    check_reference(owner, reference, allowed)
    scheme, _, name = reference.partition(":")
    found = os.environ.get(name) if scheme == "env" else _content(owner, reference, name)
    if not found:
        what = "the environment of this process has no such variable" if scheme == "env" else "it is empty"
        raise _missing(owner, reference, what)
    return found


def _matches(reference: str, pattern: str) -> bool:
    parts, wanted = reference.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _content(owner: str, reference: str, path: str) -> str:
    """Reads the file, without the line end behind its last line."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _missing(owner, reference, "it is no file")
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _missing(owner, reference, f"it cannot be read: {error.strerror}") from error
    if len(data) > _FILE_BYTES_MAX:
        raise _missing(owner, reference, f"it has more than {_FILE_BYTES_MAX} bytes")
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise _missing(owner, reference, "it is no UTF-8 text") from error


def _missing(owner: str, reference: str, found: str) -> InvalidInputError:
    return InvalidInputError(
        f"{owner}: the secret {reference!r} was not found: {found}; set it for the process that runs the job",
        kind="missing_secret",
    )
