"""Bulk ingest of Arrow Flight SQL, as `adbc_ingest` sends it: an upload becomes one version of a table.

append     upserts the rows
replace    replaces all rows of the table; its columns stay
create     is refused, and so are the other modes where there is no table: rows do not say what their key is
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from seqstore.cli.scan.flight_catalog import CATALOG, Asked
from seqstore.cli.scan.flight_messages import listed
from seqstore.store import InvalidInputError, NotFoundError, Store
from seqstore.store.sql.session.privileges import require_visible

COMMAND: Final = "CommandStatementIngest"
_BYTES_MAX: Final = 64 << 20  # that are written at a time
_EXISTS_FAIL, _REPLACE = 1, 3  # of TableExistsOption


@dataclass(frozen=True)
class Ingest:
    """One upload.

    Attributes:
        table: `database.table`.
        replaces: the rows replace those there are.
    """

    table: str
    replaces: bool

    @classmethod
    def of(cls, asked: Asked) -> Ingest:
        """Reads the command.

        Raises:
            InvalidInputError: it needs what ingest does not have here.
        """
        how = asked.values.get(1, (b"",))[-1]
        options = Asked(listed(how if isinstance(how, bytes) else b""))
        name, database = asked.text(2) or "", asked.text(3) or ""
        if asked.text(4) not in (None, "", CATALOG):
            raise _refused(name, f"there is no catalog {asked.text(4)!r}, only {CATALOG!r}")
        if not database:
            raise _refused(name, "name the database, as db_schema_name")
        if asked.is_set(5):
            raise _refused(name, "there are no temporary tables")
        if asked.values.get(6):
            raise _refused(name, "there are no transactions over Flight SQL; each upload is one version")
        exists = options.values.get(2, (0,))[-1]
        if exists == _EXISTS_FAIL:
            raise _refused(name, "mode create: CREATE TABLE names the key of the rows; then use mode append")
        return cls(f"{database}.{name}", exists == _REPLACE)

    def run(self, store: Store, user: str, reader: Any, read: Callable[[], None]) -> int:
        """Loads the rows of an upload and returns their number.

        Args:
            read: is called for each batch that was read.

        Raises:
            AccessDeniedError: the user may not load into the table.
            NotFoundError: there is no such table.
            LoadRejectedError: a row does not fit; nothing was loaded.
        """
        database, _, name = self.table.partition(".")
        require_visible(store.accounts, user, database, name)
        store.accounts.require(user, "LOAD", database, name)
        try:
            table = store.table(self.table)
        except NotFoundError as error:
            if error.kind != "unknown_table":
                raise
            raise NotFoundError(
                f"{error.message}; rows do not name their key: CREATE TABLE first, then use mode append",
                kind=error.kind,
            ) from error
        with table.begin_load(operation="INGEST") as load:
            if self.replaces:
                load.clear()
            for part in _parts(reader, read):
                load.write(part)
            return load.commit(max_filter_ratio=0).rows_loaded


def _parts(reader: Any, read: Callable[[], None]) -> Iterator[pa.Table]:
    """Yields the rows of an upload in parts; their columns at least."""
    gathered: list[pa.RecordBatch] = []
    size, is_first = 0, True
    while True:
        try:
            batch = reader.read_chunk().data
        except StopIteration:
            break
        read()
        batch.validate(full=True)
        gathered.append(batch)
        size += batch.nbytes
        if size >= _BYTES_MAX:
            yield pa.Table.from_batches(gathered, reader.schema)
            gathered, size, is_first = [], 0, False
    if gathered or is_first:
        yield pa.Table.from_batches(gathered, reader.schema)


def _refused(name: str, why: str) -> InvalidInputError:
    return InvalidInputError(f"ingest into {name!r}: {why}", kind="not_supported")
