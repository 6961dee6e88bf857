"""`auto_create` of a broker load: the tables of its files that are not there (EV10).

They are made before the first row is read, and dropped again by a job that loads nothing into them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from seqstore.loaders.avro.registry import with_registry
from seqstore.loaders.broker.files import InputFile
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.inference.declared_table import Rows, table_of_rows
from seqstore.store.ddl.filled_tables import filled_table
from seqstore.store.errors import NotFoundError
from seqstore.store.sql.session.show_output import create_table_text
from seqstore.store.store import Store


def is_missing(store: Store, spec: LoadSpec, description: DataDescription) -> bool:
    """Returns whether a description is for a table that the job is to make.

    Raises:
        NotFoundError: there is no such table, and it is not to be made.
    """
    try:
        store.table(f"{spec.database}.{description.table}")
    except NotFoundError as error:
        if error.kind != "unknown_table" or not spec.options(description).auto_create:
            raise
        return True
    return False


@contextmanager
def new_tables(store: Store, spec: LoadSpec, files: Sequence[Sequence[InputFile]]) -> Iterator[list[str]]:
    """Makes the tables that are missing for the block that loads them; yields their statements.

    Raises:
        StoreError: a file is none of its format, or nothing names the columns of a table, or its key.
    """
    rows: dict[str, list[Rows]] = {}
    for description, found in zip(spec.descriptions, files, strict=True):
        if is_missing(store, spec, description):
            own = [_rows(store, spec, description, file) for file in found]
            rows.setdefault(description.table, []).extend(own)
    statements = []
    with ExitStack() as filled:
        for name, each in rows.items():
            schema = table_of_rows(each)
            table = filled.enter_context(
                filled_table(store, f"{spec.database}.{name}", schema, if_not_exists=True)
            )
            if table.schema.names == schema.names and table.version == 1:  # else another load was faster
                statements.append(create_table_text(name, schema))
        yield statements


def _rows(store: Store, spec: LoadSpec, description: DataDescription, file: InputFile) -> Rows:
    options = with_registry(spec.options(description, file.name), store.settings.schema_registries)
    return Rows(partial(InputFile.open, file), options, dict(file.path_fields))
