"""Writes rows to files below a path: each is whole and durable, or absent."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

import pyarrow as pa

from seqstore.store.backup.target import Target
from seqstore.store.errors import InvalidInputError, StoreError
from seqstore.store.export.form import SUFFIXES, Form, small_batches
from seqstore.store.runtime.secrets.words import masked_uri

FILE_BYTES_MAX: Final = 2**30
_FILE_BYTES: Final = (5 * 2**20, 2 * 2**30)  # least and largest `max_file_size`, as in Doris
_SIZES: Final = {"KB": 2**10, "MB": 2**20, "GB": 2**30, "B": 1}
_CODECS: Final = ("snappy", "zstd", "lz4", "gzip", "none")
_S3_QUERY: Final = {"s3.endpoint": "endpoint_override", "s3.region": "region"}
_S3_LOGIN: Final = ("s3.access_key", "s3.secret_key")
PROPERTIES: Final = ("column_separator", "line_delimiter", "enclose", "max_file_size", "compression",
                     *_S3_QUERY, *_S3_LOGIN)  # fmt: skip
_ESCAPES: Final = {"\\t": "\t", "\\n": "\n", "\\r": "\r"}
_ESCAPED: Final = re.compile(r"\\(?:[tnr]|x(?P<code>[0-7][0-9a-fA-F]))")


@dataclass(frozen=True)
class OutFile:
    """Where rows go and in which form.

    Attributes:
        uri: of the files without number and suffix, keys included.
        form: of the rows.
        bytes_max: a file is ended behind the batch that reaches it.
    """

    uri: str = field(repr=False)
    form: Form
    bytes_max: int = FILE_BYTES_MAX

    @classmethod
    def of(cls, uri: str, form: str, properties: Mapping[str, str]) -> OutFile:
        """Builds it from the parts of a statement.

        Raises:
            InvalidInputError: an unknown form or property, a bad value, or a path without a scheme.
        """
        given = {name.lower(): value for name, value in properties.items()}
        unknown = sorted(set(given) - set(PROPERTIES))
        if unknown:
            raise InvalidInputError(
                f"property {unknown[0]!r} is not known here; expected {', '.join(PROPERTIES)}",
                kind="bad_property",
            )
        if form not in SUFFIXES:
            raise InvalidInputError(
                f"format {form!r} cannot be written; expected {', '.join(SUFFIXES)}", kind="bad_property"
            )
        if not uri.startswith(("file:///", "s3://")):
            raise InvalidInputError(
                f"{masked_uri(uri)!r}: expected file:///directory/prefix or s3://bucket/prefix",
                kind="bad_uri",
            )
        options = Form(
            form,
            _unescaped(given.get("column_separator", "\t")),
            _unescaped(given.get("line_delimiter", "\n")),
            _one_of_one(given.get("enclose", "")),
            _codec(given.get("compression", _CODECS[0])),
        )
        return cls(_with_s3(uri, given), options, _bytes(given.get("max_file_size", "1GB")))

    @property
    def directory(self) -> str:
        """The URI of the directory of the files."""
        directory, _, query = _split(self.uri)
        return directory + query

    @property
    def suffix(self) -> str:
        """The end of the files' names."""
        return SUFFIXES[self.form.name]


@dataclass(frozen=True)
class Written:
    """The files that were written.

    Attributes:
        url: a pattern of their names, without keys.
        names: in the directory of the `OutFile`.
    """

    files: int
    rows: int
    bytes: int
    url: str
    names: tuple[str, ...] = ()


def write_rows(rows: pa.RecordBatchReader, out: OutFile, check: Callable[[], None] = lambda: None) -> Written:
    """Writes all rows, at least one file; after an error there is none.

    Args:
        check: called between two batches; raises to end it.

    Raises:
        InvalidInputError: a value that the form cannot have.
        UnavailableError: a file cannot be written.
    """
    directory, prefix, query = _split(out.uri)
    target = Target(directory + query)
    start = f"{prefix}{uuid.uuid4().hex}_"
    names: list[str] = []
    counts = _Counts()
    batches = counts.of(small_batches(iter(rows)), check)
    first: pa.RecordBatch | None = next(batches, None)
    try:
        while first is not None or not names:
            name = f"{start}{len(names)}.{out.suffix}"
            names.append(name)
            part = _Part(first, batches, out.bytes_max)
            target.write(name, part.sized(out.form.pieces(part.batches(), rows.schema)))
            counts.bytes += part.bytes
            first = next(batches, None)
    except BaseException:
        discard(out, names)
        raise
    url = masked_uri(f"{directory}/{start}*{query}")
    return Written(len(names), counts.rows, counts.bytes, url, tuple(names))


def discard(out: OutFile, names: Iterable[str]) -> None:
    """Removes files that were written, as far as that is possible."""
    target = Target(out.directory)
    for name in names:
        with suppress(StoreError):
            target.delete(name)


@dataclass
class _Counts:
    rows: int = 0
    bytes: int = 0

    def of(self, batches: Iterator[pa.RecordBatch], check: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            check()
            self.rows += batch.num_rows
            yield batch


class _Part:
    """The batches of one file: its first, and others until it has its size."""

    def __init__(
        self, first: pa.RecordBatch | None, batches: Iterator[pa.RecordBatch], bytes_max: int
    ) -> None:
        self.bytes = 0
        self._first, self._batches, self._bytes_max = first, batches, bytes_max

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the batches, as long as the pieces made of them leave room."""
        if self._first is not None:
            yield self._first
        while self.bytes < self._bytes_max:
            batch = next(self._batches, None)
            if batch is None:
                return
            yield batch

    def sized(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yields pieces and adds their sizes."""
        for piece in pieces:
            self.bytes += len(piece)
            yield piece


def _split(uri: str) -> tuple[str, str, str]:
    """Returns directory, prefix of names and parameters of a URI."""
    path, mark, query = uri.partition("?")
    directory, _, prefix = path.rpartition("/")
    return directory, prefix, mark + query


def _with_s3(uri: str, given: Mapping[str, str]) -> str:
    query = {_S3_QUERY[name]: given[name] for name in _S3_QUERY if name in given}
    key, secret = (given.get(name, "") for name in _S3_LOGIN)
    if not query and not key and not secret:
        return uri
    if not uri.startswith("s3://") or "?" in uri:
        raise InvalidInputError(
            "properties s3.* belong to a URI s3://bucket/prefix without parameters", kind="bad_property"
        )
    parts = urlsplit(query.get("endpoint_override", ""))
    if parts.netloc:
        query = {**query, "scheme": parts.scheme, "endpoint_override": parts.netloc}
    login = f"{quote(key, safe='')}:{quote(secret, safe='')}@" if key else ""
    return f"s3://{login}{uri.removeprefix('s3://')}" + (f"?{urlencode(query)}" if query else "")


def _unescaped(text: str) -> str:
    found = _ESCAPED.sub(lambda each: chr(int(each["code"], 16)) if each["code"] else _ESCAPES[each[0]], text)
    if not found:
        raise InvalidInputError("a separator or line delimiter is empty", kind="bad_property")
    return found


def _one_of_one(text: str) -> str:
    if len(text) > 1 or text == "\\":
        raise InvalidInputError(
            f"enclose is {text!r}; expected one character, no backslash", kind="bad_property"
        )
    return text


def _codec(text: str) -> str:
    if text.lower() not in _CODECS:
        raise InvalidInputError(
            f"compression is {text!r}; expected {', '.join(_CODECS)}", kind="bad_property"
        )
    return text.lower()


def _bytes(text: str) -> int:
    upper = text.upper().strip()
    unit = next((name for name in _SIZES if upper.endswith(name)), "")
    number = upper.removesuffix(unit).strip()
    size = int(number) * _SIZES.get(unit, 1) if number.isascii() and number.isdigit() else 0
    if not _FILE_BYTES[0] <= size <= _FILE_BYTES[1]:
        raise InvalidInputError(f"max_file_size is {text!r}; expected 5MB to 2GB", kind="bad_property")
    return size
