"""`seqstore load`: files into a table, which is made from them where there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from seqstore.cli import output
from seqstore.cli.broker_load import report, show_progress
from seqstore.cli.context import beside_the_data, open_store, server, split_table

if TYPE_CHECKING:
    from seqstore.loaders.broker.job import LoadJob
    from seqstore.loaders.broker.new_table import FilesLoad
    from seqstore.store import Store, TableSchema
    from seqstore.store.sql.parse.load_jobs import CreateTableFrom


class _Target(str):
    """The name of the table, with the context of the command, which would be one parameter more."""

    ctx: typer.Context

    @classmethod
    def of(cls, ctx: typer.Context, name: str) -> _Target:
        """Returns the value of the option."""
        target = cls(name)
        target.ctx = ctx
        return target


def load_files(
    paths: Annotated[
        list[Path], typer.Argument(metavar="FILE|DIR...", help="Files, and directories of files.")
    ],
    into: Annotated[
        str, typer.Option("--into", metavar="DB.TABLE", help="Where the rows go.", callback=_Target.of)
    ],
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="COLUMN", help="A column of a new table's key; may be repeated."),
    ] = None,
    sequence: Annotated[
        str | None,
        typer.Option("--sequence", metavar="COLUMN", help="The column of a new table that orders versions."),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="Of all files; default: by their suffixes.")
    ] = "",
    separator: Annotated[str, typer.Option("--separator", help="Between the fields of CSV.")] = ",",
    timezone: Annotated[str, typer.Option("--timezone", metavar="ZONE", help="Of values with a zone.")] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="A property of a new table; may be repeated.",
        ),
    ] = None,
) -> None:
    """Load files into a table, all or nothing; makes the table of their columns where there is none.

    The directory of a Delta or Iceberg table is imported as a new table."""
    split_table(into)
    from seqstore.loaders.broker.new_table import FilesLoad
    from seqstore.store.settings import registries_of_environment

    if _import(cast(_Target, into), paths, (key or [], sequence, _parsed(properties or [])), form, timezone):
        return
    names, ctx = [str(path) for path in paths], cast(_Target, into).ctx
    named = server(ctx)
    with open_store(ctx, create=True) if named is None else named.connect() as store:
        load = FilesLoad(into, names, form.lower(), separator, timezone, registries_of_environment())
        schema = _schema_of_new(store, load, key or [], sequence, _parsed(properties or []))
        job = _run(store, load) if schema is None else _fill(store, load, schema)
    report(job)


def _fill(store: Store, load: FilesLoad, schema: TableSchema) -> LoadJob:
    """Makes the table of a load, and its database, and prints the statements; without rows both go again."""
    from seqstore.store.catalog.job_record import CANCELLED
    from seqstore.store.errors import StoreError
    from seqstore.store.sql.session.show_output import create_table_text

    database, name = split_table(load.table)
    is_new_database = database not in store.databases()
    if is_new_database:
        store.create_database(database)
    try:
        with _made(store, load.table, schema):
            if is_new_database:
                output.say(f"CREATE DATABASE {database};")
            output.say(create_table_text(name, schema))
            job = _run(store, load)
            if job.state == CANCELLED:
                raise _NoRowsError
    except _NoRowsError:
        is_there = name in store.tables(database)
        output.say(f"-- {load.table} has rows of another load" if is_there else f"DROP TABLE {load.table};")
    except BaseException:
        if is_new_database:
            with suppress(StoreError):  # others have made tables in it
                store.drop_database(database)
        raise
    return job


class _NoRowsError(Exception):
    """The load of a new table ended without rows."""


@contextmanager
def _made(store: Store, name: str, schema: TableSchema) -> Iterator[None]:
    """Makes a table; if the block fails while the table has no rows, drops it again."""
    from seqstore.store.ddl.filled_tables import EMPTY, filled_table
    from seqstore.store.remote.remote_store import RemoteStore

    if not isinstance(store, RemoteStore):
        with filled_table(store, name, schema):
            yield
        return
    table = store.create_table(name, schema)
    try:
        yield
    except BaseException:
        if table.version == EMPTY:
            store.drop_table(name)
        raise


def _run(store: Store, load: FilesLoad) -> LoadJob:
    """Runs the load here, or at the server of a store elsewhere."""
    spec, folders = load.spec(), [os.path.dirname(path) for path in load.files]
    from seqstore.loaders.broker.run import BrokerLoad
    from seqstore.store.remote.remote_store import RemoteStore

    if isinstance(store, RemoteStore):
        from seqstore.cli.elsewhere.loads import broker_load_elsewhere

        return broker_load_elsewhere(store, spec, folders, show_progress)
    return BrokerLoad(store, spec, folders, on_progress=show_progress).run()[1]


def _import(
    into: _Target,
    paths: list[Path],
    made: tuple[list[str], str | None, dict[str, str]],
    form: str,
    timezone: str,
) -> bool:
    """Imports the directory of a Delta or Iceberg table as a new table.

    Args:
        made: key, sequence and properties of the new table.

    Returns:
        Whether the path is such a directory.
    """
    from seqstore.loaders.lake.new_table import lake_format
    from seqstore.store.errors import InvalidInputError
    from seqstore.store.sql.parse.load_jobs import CreateTableFrom
    from seqstore.store.sql.parse.statement_values import TableName

    found = {str(path): lake_format(str(path)) for path in paths}
    if form or not any(found.values()):
        return False
    key, sequence, properties = made
    if server(into.ctx) is not None:
        raise beside_the_data(
            f"{next(iter(found))}: the server reads the files of a table of Delta or Iceberg itself, by "
            "CREATE TABLE .. FROM"
        )
    if len(found) > 1 or not key:
        raise InvalidInputError(
            f"{next(iter(found))}: a table of Delta or Iceberg is imported alone, with --key", kind="bad_load"
        )
    ((path, kind),) = found.items()
    table = TableName(*split_table(into))
    statement = CreateTableFrom(
        table, kind, os.path.abspath(path), tuple(key), sequence or "", None, properties
    )
    with open_store(into.ctx, create=True) as store:
        _create_from(store, into, statement, timezone)
    return True


def _create_from(store: Store, into: str, statement: CreateTableFrom, timezone: str) -> None:
    """Runs the import, and prints the statements."""
    from seqstore.loaders.headers.options import DEFAULT_TIME_ZONE
    from seqstore.loaders.lake.new_table import create_from
    from seqstore.store.errors import AlreadyExistsError
    from seqstore.store.sql.session.show_output import create_table_text

    database, name = split_table(into)
    if database in store.databases() and name in store.tables(database):
        raise AlreadyExistsError(
            f"{into} exists, and a {statement.format} table becomes a new table; a routine load "
            "follows a Delta table (FROM DELTA)",
            kind="table_exists",
        )
    if database not in store.databases():
        store.create_database(database)
        output.say(f"CREATE DATABASE {database};")
    done = create_from(store, into, statement, timezone or DEFAULT_TIME_ZONE, [statement.path])
    output.say(create_table_text(name, store.table(into).schema))
    output.say(f"{done.affected_rows} rows {done.info}")
    for warning in done.warnings:
        output.say(f"warning: {warning}")


def _parsed(properties: list[str]) -> dict[str, str]:
    found = {}
    for each in properties:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"--property: expected NAME=VALUE, found {each!r}")
        found[name.strip()] = value.strip()
    return found


def _schema_of_new(
    store: Store, load: FilesLoad, key: list[str], sequence: str | None, properties: dict[str, str]
) -> TableSchema | None:
    """Returns the schema of the table to make, None where it is there and fits the options."""
    from seqstore.store.errors import InvalidInputError

    database, name = split_table(load.table)
    if database in store.databases() and name in store.tables(database):
        schema = store.table(load.table).schema
        given = [each.lower() for each in key]
        if given and given != [each.lower() for each in schema.key]:
            raise InvalidInputError(
                f"{load.table} has the key {', '.join(schema.key)}, found --key {', '.join(key)}",
                kind="bad_key",
            )
        if sequence and (schema.sequence_column or "").lower() != sequence.lower():
            raise InvalidInputError(
                f"{load.table} has the sequence {schema.sequence_column}, found --sequence {sequence}",
                kind="bad_sequence",
            )
        if properties:
            raise InvalidInputError(
                f"{load.table} exists, and --property is for new tables; set {', '.join(properties)} by "
                "ALTER TABLE .. SET",
                kind="bad_property",
            )
        return None
    return load.declared(key, sequence, properties)
