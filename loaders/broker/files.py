"""The files of a broker load: patterns resolved, checked against the allow-list, fields of their paths.

The path of a remote URI is used as it is written, like the keys of a bucket: `%3A` is three characters. So a
file system is made of the rest of the URI only, and files are opened by the names it lists.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from typing import BinaryIO, Final, cast
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from seqstore.loaders.broker.spec import DataDescription
from seqstore.store.errors import AccessDeniedError, InvalidInputError, NotFoundError
from seqstore.store.runtime.native_file import NativeReader
from seqstore.store.runtime.secrets.references import check_reference
from seqstore.store.runtime.secrets.words import masked_uri, resolved_uri, uri_references

_WILDCARD: Final = re.compile(r"[*?\[]")
_ESCAPED: Final = re.compile(r"\[([*?\[{])\]")  # as glob.escape does
_BRACES: Final = re.compile(r"(?<!\[)\{([^{}]*)\}")
_SET: Final = re.compile(r"\[\^?\]?[^\]/]*\]")
_ANY_DEPTH: Final = "**"
_ALTERNATIVES_MAX: Final = 1000
_DEPTHS: Final = re.compile(r"(?<![^/])\*\*(/\*\*)+(?![^/])")
_LOGIN: Final = re.compile(r"(?<=://)[^/@]*@")
# Only characters with one meaning in every library that opens the URI: a `#` would end it in some.
_ADDRESS: Final = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<login>[\w.~%!$&'()*+,;=:-]*@)?(?P<bucket>[\w.~:-]*)(/(?P<path>.*))?",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)
_ENDPOINT: Final = "endpoint_override"
_REGION: Final = re.compile(r"[A-Za-z0-9-]*")


@dataclass(frozen=True)
class InputFile:
    """One file.

    Attributes:
        uri: its identity: a local path, or a URI with all parameters that open it.
        size: bytes.
        path_fields: fields of its path, in the order of COLUMNS FROM PATH AS.
        server: of a remote file, the URI without its path, which `pyarrow.fs` understands.
        key: of a remote file, its path on the server, as the server lists it.
    """

    uri: str = field(repr=False)
    size: int
    path_fields: tuple[tuple[str, str], ...] = ()
    server: str = field(default="", repr=False)
    key: str = ""

    @property
    def name(self) -> str:
        """Returns the name in messages: the URI without the keys that open it."""
        return f"{shown(self.server)}/{self.key}" if self.server else shown(self.uri)

    def open(self) -> BinaryIO:
        """Returns the file's bytes, from the beginning.

        Raises:
            OSError: it cannot be read.
        """
        if not self.server:
            return open(self.uri, "rb")
        filesystem, root = pafs.FileSystem.from_uri(self.server)
        return cast(BinaryIO, NativeReader(filesystem.open_input_file(_below(root, self.key))))


@dataclass(frozen=True)
class _Address:
    """A remote URI in its parts.

    Attributes:
        head: scheme, login and bucket.
        path: below the bucket.
        query: parameters as they were written.
        parameters: the same, each once: the read uses the server that the check saw.
    """

    head: str
    path: str
    query: str
    parameters: dict[str, str]

    @property
    def server(self) -> str:
        """Returns the URI without its path."""
        return self.head + (f"?{urlencode(self.parameters, quote_via=quote)}" if self.parameters else "")

    @property
    def endpoint(self) -> str:
        """Returns the server, where it is not the usual one."""
        return self.parameters.get(_ENDPOINT, "")

    def place(self, path: str) -> str:
        """Returns the place of a path on the server, without login and parameters."""
        place = f"{shown(self.head)}/{path}"
        # What a server makes of them is its business, even of escaped ones.
        if ".." in [*place.split("/"), *unquote(place).split("/")]:
            raise InvalidInputError(f"{place}: '..' cannot be in the URI of a file", kind="bad_uri")
        return place


def is_remote(uri: str) -> bool:
    return "://" in uri


def shown(uri: str) -> str:
    """Returns a URI without login and parameters."""
    return _LOGIN.sub("", _parts(uri)[0], count=1) if is_remote(uri) else uri


def without_login(uri: str) -> str:
    """Returns a URI that may be shown, with stars for the keys that open it."""
    return masked_uri(uri)


def identity(uri: str) -> str:
    """Returns what names a file among the files of a job: its URI without the login, which may change."""
    return _LOGIN.sub("", uri, count=1) if is_remote(uri) else uri


def find_files(
    description: DataDescription, allowed: Sequence[str], references: Sequence[str] = ()
) -> list[InputFile]:
    """Finds the files that the patterns of a description match (B6).

    Each file is listed once, in the order of patterns and names.

    Args:
        allowed: directories and URIs below which files may be read.
        references: secrets that URIs may name.

    Raises:
        AccessDeniedError: a pattern or file is not below any of them, or a secret is not allowed.
        NotFoundError: a pattern matches no file.
        InvalidInputError: a path lacks a field of COLUMNS FROM PATH AS, or a secret is missing.
    """
    found: dict[str, InputFile] = {}
    for given in description.paths:
        check_pattern(given, allowed)  # before the first request to a server
        pattern = _rooted(given, allowed)
        files = _remote(pattern, references) if is_remote(pattern) else _local(pattern)
        if not files:
            raise NotFoundError(
                f"{shown(_local_path(given))}: no file matches; expected files, not directories",
                kind="no_files",
            )
        for file in files:
            _check(file.name, *_place_of(file), allowed)  # a link leads elsewhere
            fields = _path_fields(file.name, description.columns_from_path)
            found.setdefault(file.uri, replace(file, path_fields=fields))
    return list(found.values())


def _local_path(uri: str) -> str:
    """Converts `file:///a` to `/a`.

    A file of this host has one spelling, so that no other spelling bypasses the allow-list.
    """
    return unquote(urlsplit(uri).path) if uri.lower().startswith("file:") else uri


def _rooted(pattern: str, allowed: Sequence[str]) -> str:
    """Returns a pattern whose beginning, where it is the name of an allowed directory, is no pattern."""
    pattern = _local_path(pattern)
    roots = [root for root in map(_local_path, allowed) if not is_remote(root)]
    names = [name.rstrip("/") for root in roots for name in (root, os.path.realpath(root))]
    root = max((name for name in names if pattern.startswith(f"{name}/")), key=len, default="")
    return glob.escape(root).replace("{", "[{]") + pattern[len(root) :]


def _local(pattern: str) -> list[InputFile]:
    paths = {p for each in _globs(pattern) for p in glob.glob(each, recursive=True) if os.path.isfile(p)}
    if not paths:  # a name with brackets in it
        paths = set(filter(os.path.isfile, (pattern, _ESCAPED.sub(r"\1", pattern))))
    return [InputFile(path, os.path.getsize(path)) for path in sorted(paths)]


def _parts(uri: str) -> tuple[str, str]:
    """Splits a URI from its parameters.

    Parameters begin at the last `?` before a `name=`; any other `?` belongs to the path.
    """
    starts = [match.start() for match in re.finditer(r"\?(?=\w+=)", uri)]
    return (uri[: starts[-1]], uri[starts[-1] :]) if starts else (uri, "")


def _address(uri: str) -> _Address:
    plain, query = _parts(uri)
    match = _ADDRESS.fullmatch(plain)
    if match is None:
        raise InvalidInputError(
            f"{shown(uri)}: expected a URI such as s3://bucket/path, a bucket without wildcards",
            kind="bad_uri",
        )
    head = plain[: match.end("bucket")]
    parameters = dict(parse_qsl(query[1:], keep_blank_values=True))
    if not _REGION.fullmatch(parameters.get("region", "")):  # a part of the name of the server
        raise InvalidInputError(
            f"{shown(uri)}: expected a region such as eu-west-1, found {parameters['region'][:50]!r}",
            kind="bad_uri",
        )
    return _Address(head, match["path"] or "", query, parameters)


def _remote(pattern: str, references: Sequence[str]) -> list[InputFile]:
    """Objects of a bucket: those below the part of the pattern that has no wildcard, matched by name."""
    address = _address(pattern)
    server = resolved_uri(address.server, references)
    found: dict[str, int] = {}
    try:
        filesystem, root = pafs.FileSystem.from_uri(server)
        for each in _globs(address.path):
            found.update(_objects(filesystem, root, each))
        if not found:  # a name with brackets in it
            found.update(_object(filesystem, root, address.path))
    except (pa.ArrowException, OSError, ValueError) as error:
        why = masked_uri(_LOGIN.sub("", str(error)))
        raise InvalidInputError(f"{shown(pattern)}: cannot be listed: {why}", kind="bad_uri") from None
    return [
        InputFile(f"{address.head}/{key}{address.query}", size, server=server, key=key)
        for key, size in sorted(found.items())
    ]


def _objects(filesystem: pafs.FileSystem, root: str, pattern: str) -> Iterator[tuple[str, int]]:
    """Paths below `root` that a pattern without braces matches, and their sizes."""
    folder, wanted = _split(pattern)
    if not wanted:
        yield from _object(filesystem, root, folder)
        return
    base = _below(root, folder) if folder else root
    is_deep = len(wanted) > 1 or wanted[0] == _ANY_DEPTH
    for info in filesystem.get_file_info(pafs.FileSelector(base, recursive=is_deep, allow_not_found=True)):
        path = info.path.removeprefix(base).removeprefix("/")
        if info.type == pafs.FileType.File and _matches(path.split("/"), wanted):
            yield _below(folder, path), info.size


def _object(filesystem: pafs.FileSystem, root: str, path: str) -> Iterator[tuple[str, int]]:
    info = filesystem.get_file_info(_below(root, path))
    if info.type == pafs.FileType.File:
        yield path, info.size


def _below(folder: str, path: str) -> str:
    return f"{folder}{'' if not folder or folder.endswith('/') else '/'}{path}"


def _split(pattern: str) -> tuple[str, list[str]]:
    """Splits a pattern into the folder to list and the parts below it, from the first with a wildcard on."""
    parts = pattern.split("/")
    plain = list(takewhile(lambda part: not _WILDCARD.search(_ESCAPED.sub("", part)), parts))
    folder = "/".join(_ESCAPED.sub(r"\1", part) for part in plain)
    return folder or ("/" if pattern.startswith("/") else ""), parts[len(plain) :]


def _matches(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Checks a path against a pattern, part by part.

    `*` does not cross a slash; `**` matches any number of folders, including none.

    As on the local disk, `**` leaves out folders whose name begins with a dot.
    """

    @cache  # several `**` meet the same rest of the path again and again
    def matches(at: int, pattern: int) -> bool:
        if pattern == len(patterns) or at == len(parts):
            return pattern == len(patterns) and at == len(parts)
        wanted = patterns[pattern]
        if wanted != _ANY_DEPTH:
            return fnmatch.fnmatchcase(parts[at], wanted) and matches(at + 1, pattern + 1)
        if matches(at, pattern + 1) or (pattern + 1 == len(patterns) and at + 1 == len(parts)):
            return True
        return not parts[at].startswith(".") and matches(at + 1, pattern)

    return matches(0, 0)


def _globs(pattern: str) -> list[str]:
    """Returns a pattern of Hadoop as those of `glob`: braces resolved, `[^b]` as `[!b]`, `**/**` as `**`."""
    return [_DEPTHS.sub(_ANY_DEPTH, _SET.sub(_negated, each)) for each in _braces(pattern)]


def _negated(found: re.Match[str]) -> str:
    return re.sub(r"^\[\^", "[!", found[0])


def _braces(pattern: str) -> list[str]:
    """Expands `a{b,c}` to `ab` and `ac`.

    Raises:
        InvalidInputError: every further pair of braces may double the number of patterns.
    """
    found = [pattern]
    while match := next(filter(None, map(_BRACES.search, found)), None):
        found = [changed for each in found for changed in _first_braces(each)]
        if len(found) > _ALTERNATIVES_MAX:
            raise InvalidInputError(
                f"{match.string[:100]!r}: expected at most {_ALTERNATIVES_MAX:,} paths from the braces of a "
                "pattern; use fewer, or '*'",
                kind="bad_uri",
            )
    return found


def _first_braces(pattern: str) -> list[str]:
    match = _BRACES.search(pattern)
    if match is None:
        return [pattern]
    head, tail = pattern[: match.start()], pattern[match.end() :]
    return [head + choice + tail for choice in match.group(1).split(",")]


def check_pattern(pattern: str, allowed: Sequence[str]) -> None:
    """Checks every folder that a pattern could match, without access to the files.

    Raises:
        AccessDeniedError: a folder that the pattern reads is not below any of the allowed ones.
        InvalidInputError: `..` leads out of the folders that its wildcards match.
    """
    name = shown(_local_path(pattern))
    pattern = _rooted(pattern, allowed)
    if is_remote(pattern):
        address = _address(pattern)
        for each in _globs(address.path):
            place = address.place(_split(each)[0])
            _check(name, place, address.endpoint, allowed)
        return
    for each in _globs(pattern):
        folder, wanted = _split(each)
        _check(name, os.path.realpath(folder), "", allowed)
        if ".." in wanted:
            raise InvalidInputError(f"{name}: '..' cannot follow a wildcard", kind="bad_uri")


def check_secrets(uri: str, references: Sequence[str]) -> None:
    """Refuses secrets of a URI that are references and not allowed.

    Raises:
        AccessDeniedError: names the reference.
    """
    for part, reference in uri_references(uri).items() if is_remote(uri) else ():
        check_reference(f"{shown(uri)}: {part}", reference, references)


def check_allowed(uri: str, allowed: Sequence[str]) -> None:
    """Checks that a file, or the content of a directory, may be read.

    A bucket belongs to one server: a URI with an endpoint is only below an allowed URI with the same
    endpoint.

    Raises:
        AccessDeniedError: it is not below any of the allowed ones.
    """
    _check(shown(uri), *_place(uri), allowed)


def _check(name: str, place: str, endpoint: str, allowed: Sequence[str]) -> None:
    for root in allowed:
        if is_remote(_local_path(root)) != is_remote(place):
            continue
        base, its_endpoint = _place(root)
        if endpoint == its_endpoint and f"{place.rstrip('/')}/".startswith(f"{base.rstrip('/')}/"):
            return
    raise AccessDeniedError(
        f"{name}: not below a directory or bucket that loads may read "
        f"({', '.join(_told(root) for root in allowed) or 'there is none'}); add it to load_paths in the "
        "configuration, or to --allow of a command" + (f", with ?{_ENDPOINT}={endpoint}" if endpoint else ""),
        kind="path_not_allowed",
    )


def _place(uri: str) -> tuple[str, str]:
    """Returns the resolved place of a path, and its server."""
    uri = _local_path(uri)
    if not is_remote(uri):
        return os.path.realpath(uri), ""
    address = _address(uri)
    return address.place(address.path), address.endpoint


def _place_of(file: InputFile) -> tuple[str, str]:
    if not file.server:
        return _place(file.uri)
    address = _address(file.server)
    return address.place(file.key), address.endpoint


def _told(root: str) -> str:
    endpoint = _place(root)[1]
    return shown(root) + (f" at {endpoint}" if endpoint else "")


def _path_fields(name: str, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Returns values of `name=value` parts, escapes kept (B7)."""
    parts = dict(part.split("=", 1) for part in name.split("/")[:-1] if "=" in part)
    missing = [each for each in names if each not in parts]
    if missing:
        raise InvalidInputError(
            f"{name}: no part {missing[0]}=... in the path, which COLUMNS FROM PATH AS asks for",
            kind="bad_path",
        )
    return tuple((each, parts[each]) for each in names)
