"""`seqstore demo`: hands over to `cli.demo`, which is loaded only then."""

from __future__ import annotations

from typing import Annotated

import typer

from seqstore.cli.context import data_dir


def demo(
    ctx: typer.Context,
    flights: Annotated[
        int | None, typer.Option(min=1, help="So many of the 336,776 flights; all without it.")
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="With or without the PySpark part.")
    ] = True,
) -> None:
    """Show the worked example of the documentation, then a year of flights as late and repeated events."""
    directory = data_dir(ctx)
    from seqstore.cli.demo import run

    run(directory, flights=flights, with_spark=spark)
