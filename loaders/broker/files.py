"""The files of a broker load: patterns resolved, checked against the allow-list, fields of their paths."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from loaders.broker.spec import DataDescription
from store.errors import AccessDeniedError, InvalidInputError, NotFoundError

_PATTERN: Final = re.compile(r"[*?\[{]")
_LOGIN: Final = re.compile(r"(?<=://)[^/@]*@")
_ENDPOINT: Final = "endpoint_override"


@dataclass(frozen=True)
class InputFile:
    """One file.

    Attributes:
        uri: a local path, or a URI that `pyarrow.fs` understands.
        size: bytes.
        path_fields: fields its path tells, in the order of COLUMNS FROM PATH AS.
    """

    uri: str
    size: int
    path_fields: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """What users are told: the URI without the keys that open it."""
        return shown(self.uri)

    def open(self) -> BinaryIO:
        """The file's bytes, from the beginning.

        Raises:
            OSError: it cannot be read.
        """
        if not is_remote(self.uri):
            return open(self.uri, "rb")
        filesystem, path = pafs.FileSystem.from_uri(self.uri)
        return cast(BinaryIO, filesystem.open_input_file(path))


def is_remote(uri: str) -> bool:
    return "://" in uri


def shown(uri: str) -> str:
    """A URI without login and parameters."""
    return _LOGIN.sub("", _parts(uri)[0]) if is_remote(uri) else uri


def find_files(description: DataDescription, allowed: Sequence[str]) -> list[InputFile]:
    """Files that the patterns of a description match (B6), each once, in the order of patterns and names.

    Args:
        allowed: directories and URIs below which files may be read.

    Raises:
        AccessDeniedError: a file is not below any of them.
        NotFoundError: a pattern matches no file.
        InvalidInputError: a path lacks a field of COLUMNS FROM PATH AS.
    """
    found: dict[str, InputFile] = {}
    for given in description.paths:
        pattern = _local_path(given)
        if is_remote(pattern):
            check_allowed(_folder(pattern), allowed)  # before anybody is asked
        matches = _remote(pattern) if is_remote(pattern) else _local(pattern)
        if not matches:
            raise NotFoundError(
                f"{shown(pattern)}: no file matches; expected files, not directories", kind="no_files"
            )
        for uri, size in matches:
            check_allowed(uri, allowed)
            found.setdefault(uri, InputFile(uri, size, _path_fields(uri, description.columns_from_path)))
    return list(found.values())


def _local_path(uri: str) -> str:
    """`file:///a` as `/a`: what is on this host has one spelling, so that nothing slips through."""
    return unquote(urlsplit(uri).path) if uri.lower().startswith("file:") else uri


def _local(pattern: str) -> list[tuple[str, int]]:
    paths = [p for each in _braces(pattern) for p in glob.glob(each, recursive=True)]
    if not paths and os.path.isfile(pattern):  # a name with brackets in it
        paths = [pattern]
    return [(path, os.path.getsize(path)) for path in sorted(set(paths)) if os.path.isfile(path)]


def _parts(uri: str) -> tuple[str, str]:
    """A URI and its parameters; the `?` of a pattern is not followed by `name=`."""
    match = re.search(r"\?(?=\w+=)", uri)
    return (uri, "") if match is None else (uri[: match.start()], uri[match.start() :])


def _folder(pattern: str) -> str:
    """What is below is listed: the pattern up to its first part with a wildcard."""
    plain, query = _parts(pattern)
    wildcard = _PATTERN.search(plain, _after_login(plain))
    return pattern if wildcard is None else plain[: plain.rfind("/", 0, wildcard.start())] + query


def _after_login(uri: str) -> int:
    login = _LOGIN.search(uri)
    return login.end() if login else 0


def _remote(pattern: str) -> list[tuple[str, int]]:
    """Objects of a bucket: those below the part of the pattern that has no wildcard, matched by name."""
    plain, query = _parts(pattern)
    folder, _ = _parts(_folder(pattern))
    try:
        filesystem, root = pafs.FileSystem.from_uri(folder + query)
        if folder == plain:
            found = [filesystem.get_file_info(root)]
        else:
            found = filesystem.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        why = _LOGIN.sub("", str(error))
        raise InvalidInputError(f"{shown(pattern)}: cannot be listed: {why}", kind="bad_uri") from None
    wanted = [root + each for each in _braces(plain[len(folder) :])]
    return [
        (folder + info.path[len(root) :] + query, info.size)
        for info in sorted(found, key=lambda info: str(info.path))
        if info.type == pafs.FileType.File and any(_matches(info.path, each) for each in wanted)
    ]


def _matches(path: str, pattern: str) -> bool:
    """Whether a path is of a pattern, part by part: `*` does not cross a slash."""
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))


def _braces(pattern: str) -> list[str]:
    """`a{b,c}` as `ab` and `ac`."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None:
        return [pattern]
    head, tail = pattern[: match.start()], pattern[match.end() :]
    return [each for choice in match.group(1).split(",") for each in _braces(head + choice + tail)]


def check_allowed(uri: str, allowed: Sequence[str]) -> None:
    """Whether a file, or what is below a directory, may be read.

    A bucket is that of one server: a URI with an endpoint is only below an allowed one with the same.

    Raises:
        AccessDeniedError: it is not below any of the allowed ones.
    """
    place, endpoint = _place(uri)
    for root in allowed:
        if is_remote(root) != is_remote(uri):
            continue
        base, its_endpoint = _place(root)
        if endpoint == its_endpoint and (place == base or place.startswith(base.rstrip("/") + "/")):
            return
    raise AccessDeniedError(
        f"{shown(uri)}: not below a directory or bucket that loads may read "
        f"({', '.join(_told(root) for root in allowed) or 'there is none'}); add it to load_paths in the "
        "configuration" + (f", with ?{_ENDPOINT}={endpoint}" if endpoint else ""),
        kind="path_not_allowed",
    )


def _place(uri: str) -> tuple[str, str]:
    """Where a path really leads, and the server it is on."""
    uri = _local_path(uri)
    if not is_remote(uri):
        return os.path.realpath(uri), ""
    plain, query = _parts(uri)
    if ".." in plain.split("/"):  # what a server makes of it is its business
        raise InvalidInputError(f"{shown(uri)}: '..' cannot be in the URI of a file", kind="bad_uri")
    endpoint = dict(parse_qsl(query[1:])).get(_ENDPOINT, "")
    return _LOGIN.sub("", plain), endpoint


def _told(root: str) -> str:
    endpoint = _place(root)[1]
    return shown(root) + (f" at {endpoint}" if endpoint else "")


def _path_fields(uri: str, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Values of `name=value` parts, escapes kept (B7)."""
    parts = dict(part.split("=", 1) for part in _parts(uri)[0].split("/")[:-1] if "=" in part)
    missing = [name for name in names if name not in parts]
    if missing:
        raise InvalidInputError(
            f"{shown(uri)}: no part {missing[0]}=... in the path, which COLUMNS FROM PATH AS asks for",
            kind="bad_path",
        )
    return tuple((name, parts[name]) for name in names)
