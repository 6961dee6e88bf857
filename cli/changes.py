"""`seqstore changes`: the changes of a table as lines, on standard output, in files or in a Kafka topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from seqstore.cli import output, progress
from seqstore.cli.context import open_store, split_table

if TYPE_CHECKING:
    from seqstore.loaders.changes.kafka_out import OutTopic
    from seqstore.loaders.changes.outgoing import OutDirectory, OutgoingChanges

_POLL_SECONDS: Final = 0.5
_VERSIONS_AT_ONCE: Final = 1_000  # of a file or a transaction


class Form(StrEnum):
    """The form of the lines."""

    NDJSON = "ndjson"
    DEBEZIUM_JSON = "debezium_json"


class _Named(str):
    """The name of the table, with the context of the command, which would be one parameter more."""

    ctx: typer.Context

    @classmethod
    def of(cls, ctx: typer.Context, name: str) -> _Named:
        """Returns the value of the argument."""
        named = cls(name)
        named.ctx = ctx
        return named


def changes(
    table: Annotated[str, typer.Argument(metavar="DB.TABLE", callback=_Named.of)],
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
    kafka: Annotated[
        str,
        typer.Option("--kafka", metavar="BROKERS", help="Write messages there, and go on behind the last."),
    ] = "",
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic of --kafka.")] = "",
    kafka_properties: Annotated[
        list[str] | None,
        typer.Option(
            "--kafka-property", metavar="NAME=VALUE", help="A property of the client; may be repeated."
        ),
    ] = None,
) -> None:
    """Print what versions changed, one JSON object a line; a directory or a topic gets each change once."""
    split_table(table)
    if bool(kafka) != bool(topic) or (kafka_properties and not kafka) or (kafka and directory is not None):
        raise typer.BadParameter("expected --kafka together with --topic, and without --out")
    from seqstore.loaders.changes.outgoing import OutForm, OutgoingChanges

    with open_store(cast(_Named, table).ctx, elsewhere=True) as store, ExitStack() as opened:
        outgoing = OutgoingChanges(store.table(table), OutForm(form.value), has_keys=bool(kafka))
        target: OutDirectory | OutTopic | None = None
        if kafka:
            target = opened.enter_context(closing(_topic(outgoing, kafka, topic, kafka_properties or [])))
        elif directory is not None:
            target = _directory(directory)
        done = target.last if target is not None else None
        at = done if done is not None else _begin(outgoing, target, since)
        while True:
            newest = outgoing.table.version
            while newest > at:
                last = newest if target is None else min(newest, at + _VERSIONS_AT_ONCE)
                _put(outgoing.changes(at + 1, last), target, at + 1, last)
                at = last
            if not follow:
                return
            with progress.paused():
                time.sleep(_POLL_SECONDS)


def _directory(path: Path) -> OutDirectory:
    from seqstore.loaders.changes.outgoing import OutDirectory

    path.mkdir(parents=True, exist_ok=True)
    return OutDirectory(path)


def _topic(outgoing: OutgoingChanges, brokers: str, topic: str, given: list[str]) -> OutTopic:
    from seqstore.loaders.changes.kafka_out import OutTopic

    properties = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"--kafka-property: expected NAME=VALUE, found {each!r}")
        properties[name.strip()] = value.strip()
    return OutTopic(outgoing, brokers, topic, properties, progress.doing)


def _begin(outgoing: OutgoingChanges, target: OutDirectory | OutTopic | None, since: int | None) -> int:
    """Writes the rows of now unless a version was named; returns the version before the first change."""
    if since is not None:
        return since - 1
    version = outgoing.table.version
    _put(outgoing.rows(version), target, 1, version)
    return version


def _put(lines: Iterator[str], target: OutDirectory | OutTopic | None, first: int, last: int) -> None:
    progress.doing(f"versions {first} to {last}")
    lines = progress.counting(lines, "lines")
    if target is not None:
        target.write(first, last, lines)
        return
    for line in lines:
        output.say(line)
