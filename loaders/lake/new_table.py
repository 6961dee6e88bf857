"""CREATE TABLE .. FROM DELTA | ICEBERG: a table of the columns of another one, and its rows as one load.

The rows are streamed from the files into the load. Without its commit the new table is dropped again.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from seqstore.loaders.lake.delta_log import LOG, read_log
from seqstore.loaders.lake.delta_rows import DeltaRows
from seqstore.loaders.lake.delta_schema import delta_fields
from seqstore.loaders.lake.places import Places
from seqstore.loaders.lake.source import LakeTable
from seqstore.store.ddl.filled_tables import drop_abandoned, filled_table
from seqstore.store.errors import AlreadyExistsError, InvalidInputError, ProtocolChangedException
from seqstore.store.load.load import LoadResult
from seqstore.store.runtime import cancellation
from seqstore.store.schema.column import Column
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.load_jobs import CreateTableFrom
from seqstore.store.sql.result import Result
from seqstore.store.sql.translate.calls import resolve_zone
from seqstore.store.store import Store
from seqstore.store.types.column_types import ColumnType

SEQUENCE: Final = "function_column.sequence_col"
_KEY_TEXT: Final = ColumnType("VARCHAR", (65533,))
_APP: Final = "delta"


def lake_format(directory: str) -> str:
    """Returns DELTA or ICEBERG for the directory of such a table, else an empty text.

    A table of both is read as DELTA.
    """
    if os.path.isdir(os.path.join(directory, LOG)):
        return "DELTA"
    return (
        "ICEBERG" if glob.glob(os.path.join(glob.escape(directory), "metadata", "*.metadata.json*")) else ""
    )


def create_from(
    store: Store, name: str, statement: CreateTableFrom, zone: str, allowed: Sequence[str] = ()
) -> Result:
    """Runs the statement.

    Args:
        name: `db.table` of the new table.
        zone: of the session.
        allowed: directories below which files may be read, beside those of the settings.

    Raises:
        AccessDeniedError: a file is not below a directory that loads may read.
        InvalidInputError: the table of the other format cannot be read as it is, or the key does not fit.
        LoadRejectedError: a row cannot be stored.
    """
    database, _, table = name.partition(".")
    drop_abandoned(store.catalog)
    if statement.if_not_exists and table in store.tables(database):
        return Result()
    places = Places([*store.settings.load_paths, *allowed])
    source = _opened(places, statement, resolve_zone(zone))
    schema = _declared(source, statement)
    with ExitStack() as filled:
        try:
            filled.enter_context(filled_table(store, name, schema))
        except (AlreadyExistsError, ProtocolChangedException):  # by another session, since the look above
            if statement.if_not_exists:
                return Result()
            raise
        done = _load(store, name, source, statement.format)
    info = (
        f"{{'label':'{done.label}', 'status':'{done.status}', 'txnId':'{done.txn_id}', "
        f"'source':'{statement.format}', 'sourceVersion':'{source.version}', 'version':'{done.version}'}}"
    )
    return Result(
        affected_rows=done.rows_loaded - done.rows_superseded, info=info, warnings=_warnings(done, statement)
    )


def _opened(places: Places, statement: CreateTableFrom, zone: str) -> LakeTable:
    if statement.format == "ICEBERG":
        from seqstore.loaders.lake.iceberg import open_iceberg  # pyiceberg is an extra

        return open_iceberg(statement.path, places, statement.version, zone)
    return _open_delta(statement.path, places, statement.version, zone)


def _open_delta(path: str, places: Places, version: int | None, zone: str) -> LakeTable:
    root = places.directory(path)
    state = read_log(root, places, version)
    fields = delta_fields(state.metadata)
    return LakeTable(
        str(state.metadata.get("id", "")),
        state.version,
        [Column(field.name, field.type, nullable=field.nullable) for field in fields],
        DeltaRows(root, places, state, fields, zone).batches,
        state.metadata.get("description") or "",
    )


def _declared(source: LakeTable, statement: CreateTableFrom) -> TableSchema:
    """Returns the declaration of the new table; the columns of the key come first."""
    known = {column.name.lower(): column for column in source.columns}
    for name in (*statement.key, *([statement.sequence] if statement.sequence else [])):
        if name.lower() not in known:
            raise InvalidInputError(
                f"column {name!r} is not among the columns of the {statement.format} table: "
                f"{', '.join(column.name for column in source.columns)[:500]}",
                kind="unknown_column",
                column=name,
            )
    key = [known[name.lower()] for name in statement.key]
    columns = [_key_column(column) for column in key]
    columns += [column for column in source.columns if column not in key]
    names = [column.name for column in key]
    properties = dict(statement.properties)
    if statement.sequence:
        properties[SEQUENCE] = known[statement.sequence.lower()].name
    return TableSchema.create(
        columns,
        names,
        properties=properties,
        distribution=f"HASH({', '.join(f'`{name}`' for name in names)}) BUCKETS AUTO",
        comment=source.comment,
    )


def _key_column(column: Column) -> Column:
    """Returns a column of the key: a STRING cannot be one."""
    kind = _KEY_TEXT if column.type.name == "STRING" else column.type
    return Column(column.name, kind, nullable=column.nullable)


def _load(store: Store, name: str, source: LakeTable, form: str) -> LoadResult:
    # The last version of a source, as writers of Delta tell theirs: a later import may go on from there.
    app = {"txn_app_id": f"{_APP}:{source.identity}", "txn_version": source.version}
    with store.table(name).begin_load(
        operation=f"CREATE TABLE FROM {form}",
        label_prefix=f"{form.lower()}-{source.version}-",
        **(app if form == "DELTA" and source.identity else {}),  # type: ignore[arg-type]
    ) as load:
        for batch in source.batches():
            cancellation.check()
            if batch.num_rows:
                load.write(batch)
        return load.commit(max_filter_ratio=0.0)


def _warnings(done: LoadResult, statement: CreateTableFrom) -> tuple[str, ...]:
    if not done.rows_superseded:
        return ()
    kept = "the largest sequence" if statement.sequence else "the row that was read last"
    return (
        f"{done.rows_superseded} rows of the {statement.format} table have the key of another one; of each "
        f"key {kept} was kept",
    )
