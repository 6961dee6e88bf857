"""The table of a stream load, which makes it where there is none and the header `auto_create` is true (EV10).

A new table whose load fails is dropped, unless another load has written it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.inference.declared_table import table_of
from seqstore.loaders.inference.needed_schema import kept_body, with_fields
from seqstore.store.ddl.filled_tables import filled_table
from seqstore.store.errors import NotFoundError
from seqstore.store.sql.session.show_output import create_table_text
from seqstore.store.store import Store
from seqstore.store.table import Table


@dataclass(frozen=True)
class LoadedTable:
    """What a load needs.

    Attributes:
        created: the statement of a new table, else empty.
    """

    table: Table
    body: BinaryIO
    options: StreamLoadOptions
    created: str = ""


@contextmanager
def loaded_table(
    store: Store, name: str, options: StreamLoadOptions, body: BinaryIO
) -> Iterator[LoadedTable]:
    """Yields the table of a load, its body and its options.

    Args:
        name: `db.table`.

    Raises:
        NotFoundError: there is no such table, and it is not to be made.
        InvalidInputError: nothing names the columns of a new one.
    """
    if not options.auto_create:
        yield LoadedTable(store.table(name), body, options)
        return
    with kept_body(body) as kept, ExitStack() as filled:
        created = _created(store, name, options, kept, filled)
        named = with_fields(options, kept)
        kept.seek(0)
        yield LoadedTable(store.table(name), kept, options if options.evolves else named, created)


def _created(store: Store, name: str, options: StreamLoadOptions, body: BinaryIO, filled: ExitStack) -> str:
    """Makes the table where there is none; returns its statement, empty where another load was faster.

    Args:
        filled: drops the table where the load fails.
    """
    try:
        store.table(name)
        return ""
    except NotFoundError as error:
        if error.kind != "unknown_table":
            raise
    schema = table_of(body, options)
    table = filled.enter_context(filled_table(store, name, schema, if_not_exists=True))
    is_ours = table.schema.names == schema.names and table.version == 1
    return create_table_text(name.partition(".")[2], schema) if is_ours else ""
