"""`seqstore stream-load`: one file, the same headers and the same reply as over HTTP."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer

from seqstore.cli import output, progress
from seqstore.cli.context import open_store, quick_imports, server, split_table

_DONE: Final = ("Success", "Publish Timeout")
_FAILED: Final = 1
_REJECTED: Final = 4


def stream_load(
    ctx: typer.Context,
    table: Annotated[str, typer.Argument(metavar="DB.TABLE", help="Where the rows go.")],
    file: Annotated[
        str, typer.Option("--upload-file", "-T", metavar="FILE", help="The rows; - is standard input.")
    ],
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="'NAME: VALUE'", help="A stream load header; may be repeated."
        ),
    ] = None,
) -> None:
    """Load a file of CSV, JSON, Parquet, ORC or Arrow; prints the reply."""
    database, name = split_table(table)
    headers: dict[str, str] = {}
    for text in header or []:
        given, value = _parse_header(text)
        headers.setdefault(given, value)  # of one that is repeated the first counts, as over HTTP
    progress.doing(f"{file} into {table}")
    named = server(ctx)
    with quick_imports():
        if named is not None:
            from seqstore.cli.elsewhere.loads import stream_load_elsewhere
        else:
            from seqstore.loaders.stream_load import stream_load as load
    reply: dict[str, Any]
    if named is not None:
        with named.connect() as remote, _open(file) as body:
            reply = stream_load_elsewhere(remote, database, name, body, headers)
    else:
        with open_store(ctx) as store, _open(file) as body:
            reply = load(store, database, name, body, headers)
    output.reply(reply)
    if reply["Status"] not in _DONE:
        raise typer.Exit(_REJECTED if reply.get("NumberFilteredRows") else _FAILED)


def _parse_header(text: str) -> tuple[str, str]:
    """Splits a header into name and value.

    One blank after the colon belongs to neither; more may be a separator.
    """
    name, colon, value = text.partition(":")
    if not (name.strip() and colon):
        raise typer.BadParameter(f"expected -H 'name: value', found {text!r}")
    return name.strip().lower(), value.removeprefix(" ")


@contextmanager
def _open(file: str) -> Iterator[Any]:
    """Opens the body, and counts what is read of it."""
    with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as body:
        counted = _Counted(body)
        progress.counted(counted.amount)
        yield counted


class _Counted:
    """A body that knows how far it was read."""

    closed = False

    def __init__(self, body: BinaryIO) -> None:
        self._body = body
        self._read = 0
        status = os.fstat(body.fileno())
        self._size = status.st_size if stat.S_ISREG(status.st_mode) else None  # a pipe has no length

    def amount(self) -> str:
        """Returns how much was read."""
        return f"{progress.size(self._read, self._size)} read"

    def read(self, size: int = -1) -> bytes:
        data = self._body.read(size)
        self._read += len(data)
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
