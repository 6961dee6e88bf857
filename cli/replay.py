"""`seqstore replay`: loads dead letters again."""

from __future__ import annotations

import json
from typing import Annotated, Final

import typer

from seqstore.cli import output, progress
from seqstore.cli.context import open_store, server, split_table

_SHOWN: Final = 20


def replay_letters(
    ctx: typer.Context,
    table: Annotated[str, typer.Argument(metavar="DB.TABLE", help="The table that the rows are for.")],
    where: Annotated[
        str, typer.Option("--where", metavar="CONDITION", help="Of the dead letters, in SQL; default: all.")
    ] = "",
) -> None:
    """Load dead letters of a table again, in one commit; those that succeed are removed."""
    split_table(table)
    from seqstore.loaders.dead_letters.replay import Replayed, replay

    progress.doing(f"dead letters of {table}")
    named = server(ctx)
    if named is not None:
        with named.connect() as remote:
            done = Replayed(**remote.call("replay", {"table": table, "where": where}))
    else:
        with open_store(ctx) as store:
            done = replay(store, table, where)
    left = [{"id": key, "reason": reason} for key, reason in done.left[:_SHOWN]]
    answer = {"LoadedRows": done.loaded, "LeftRows": len(done.left), "Left": left}
    output.say(json.dumps(answer, ensure_ascii=False, indent=4))
