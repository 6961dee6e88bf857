"""`seqstore stream-load`: one file, the same headers and the same reply as over HTTP."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli import output
from cli.context import open_store, split_table

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
    """Load a file of CSV or JSON lines; prints the reply."""
    database, name = split_table(table)
    headers = dict(_parse_header(text) for text in header or [])
    from loaders.stream_load import stream_load as load

    with open_store(ctx) as store, _open(file) as body:
        reply = load(store, database, name, body, headers)
    output.reply(reply)
    if reply["Status"] not in _DONE:
        raise typer.Exit(_REJECTED if reply.get("NumberFilteredRows") else _FAILED)


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not (name.strip() and colon):
        raise typer.BadParameter(f"expected -H 'name: value', found {text!r}")
    return name.strip(), value.strip()


def _open(file: str) -> Any:
    return nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb")
