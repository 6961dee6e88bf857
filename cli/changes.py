"""`seqstore changes`: the changes of a table as lines, on standard output or in files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from seqstore.cli import output
from seqstore.cli.context import open_store, split_table

if TYPE_CHECKING:
    from seqstore.loaders.changes.outgoing import OutDirectory, OutgoingChanges

_POLL_SECONDS: Final = 0.5


class Form(StrEnum):
    """The form of the lines."""

    NDJSON = "ndjson"
    DEBEZIUM_JSON = "debezium_json"


def changes(
    ctx: typer.Context,
    table: Annotated[str, typer.Argument(metavar="DB.TABLE")],
    since: Annotated[
        int | None,
        typer.Option("--since", metavar="VERSION", help="The first version; default: the rows of now first."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for further versions.")] = False,
    form: Annotated[Form, typer.Option("--format", help="The form of the lines.")] = Form.NDJSON,
    directory: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write files there, and go on behind the last one."),
    ] = None,
) -> None:
    """Print what versions changed, one JSON object a line; a directory gets each change once."""
    split_table(table)
    from seqstore.loaders.changes.outgoing import OutDirectory, OutForm, OutgoingChanges

    target = None
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        target = OutDirectory(directory)
    with open_store(ctx, elsewhere=True) as store:
        outgoing = OutgoingChanges(store.table(table), OutForm(form.value))
        done = target.last if target is not None else None
        at = done if done is not None else _begin(outgoing, target, since)
        while True:
            newest = outgoing.table.version
            if newest > at:
                _put(outgoing.changes(at + 1, newest), target, at + 1, newest)
                at = newest
            if not follow:
                return
            time.sleep(_POLL_SECONDS)


def _begin(outgoing: OutgoingChanges, target: OutDirectory | None, since: int | None) -> int:
    """Writes the rows of now unless a version was named; returns the version before the first change."""
    if since is not None:
        return since - 1
    version = outgoing.table.version
    _put(outgoing.rows(version), target, 1, version)
    return version


def _put(lines: Iterator[str], target: OutDirectory | None, first: int, last: int) -> None:
    if target is not None:
        target.write(first, last, lines)
        return
    for line in lines:
        output.say(line)
