"""The files of a broker load: patterns resolved, checked against the allow-list, fields of their paths."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.fs as pafs

from loaders.broker.spec import DataDescription
from store.errors import AccessDeniedError, InvalidInputError, NotFoundError

_PATTERN: Final = re.compile(r"[*?\[{]")


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

    def open(self) -> BinaryIO:
        """The file's bytes, from the beginning.

        Raises:
            OSError: it cannot be read.
        """
        if "://" not in self.uri:
            return open(self.uri, "rb")
        filesystem, path = pafs.FileSystem.from_uri(self.uri)
        return cast(BinaryIO, filesystem.open_input_file(path))


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
    for pattern in description.paths:
        matches = _remote(pattern) if "://" in pattern else _local(pattern)
        if not matches:
            raise NotFoundError(
                f"{pattern}: no file matches; expected files, not directories", kind="no_files"
            )
        for uri, size in matches:
            check_allowed(uri, allowed)
            found.setdefault(uri, InputFile(uri, size, _path_fields(uri, description.columns_from_path)))
    return list(found.values())


def _local(pattern: str) -> list[tuple[str, int]]:
    paths = [p for each in _braces(pattern) for p in glob.glob(each, recursive=True)]
    if not paths and os.path.isfile(pattern):  # a name with brackets in it
        paths = [pattern]
    return [(path, os.path.getsize(path)) for path in sorted(set(paths)) if os.path.isfile(path)]


def _remote(pattern: str) -> list[tuple[str, int]]:
    """Objects of a bucket: those below the part of the pattern that has no wildcard, matched by name."""
    plain, question, query = pattern.partition("?") if "=" in pattern.partition("?")[2] else (pattern, "", "")
    start = _PATTERN.search(plain)
    folder = plain if start is None else plain[: plain.rfind("/", 0, start.start())]
    try:
        filesystem, root = pafs.FileSystem.from_uri(folder + question + query)
        if start is None:
            found = [filesystem.get_file_info(root)]
        else:
            found = filesystem.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInputError(f"{folder}: cannot be listed: {error}", kind="bad_uri") from error
    rest = plain[len(folder) :]
    wanted = [root + each for each in _braces(rest)]
    return [
        (folder + info.path[len(root) :] + question + query, info.size)
        for info in sorted(found, key=lambda info: info.path)
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

    Raises:
        AccessDeniedError: it is not below any of the allowed ones.
    """
    is_local = "://" not in uri
    real = os.path.realpath(uri) if is_local else uri
    for root in allowed:
        base = os.path.realpath(root) if is_local and "://" not in root else root
        if real == base or real.startswith(base.rstrip("/") + "/"):
            return
    raise AccessDeniedError(
        f"{uri}: not below a directory or bucket that loads may read "
        f"({', '.join(allowed) or 'there is none'}); add it to load_paths in the configuration",
        kind="path_not_allowed",
    )


def _path_fields(uri: str, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Values of `name=value` parts, escapes kept (B7)."""
    parts = dict(part.split("=", 1) for part in uri.split("/")[:-1] if "=" in part)
    missing = [name for name in names if name not in parts]
    if missing:
        raise InvalidInputError(
            f"{uri}: no part {missing[0]}=... in the path, which COLUMNS FROM PATH AS asks for",
            kind="bad_path",
        )
    return tuple((name, parts[name]) for name in names)
