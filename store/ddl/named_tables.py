"""Tables of the catalog by name: they are listed, found, made, dropped, renamed and exchanged.

Each function works within one transaction of the catalog; the caller removes files after its commit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog import table_records
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.conflict.conflict_errors import CurrentTransaction, creation, recreated_error
from seqstore.store.ddl.views import refuse_view, refuse_view_name
from seqstore.store.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from seqstore.store.schema.declaration import check_name
from seqstore.store.schema.table_schema import TableSchema


class FoundTable(NamedTuple):
    """A table as its record tells it: its id, that of its database, and the record."""

    id: int
    database: int
    record: dict[str, Any]

    @property
    def name(self) -> str:
        """The table's name, with that of its database."""
        return f"{self.record['database']}.{self.record['name']}"


def split_name(name: str) -> tuple[str, str]:
    """Splits `database.table` into its two parts.

    Raises:
        InvalidInputError: not of that form.
    """
    database, dot, table = name.partition(".")
    if not dot or not database or not table or "." in table:
        raise InvalidInputError(f"table name {name!r}: expected database.table", kind="bad_name")
    return database, table


def table_names(tx: CatalogTransaction, database: str) -> list[str]:
    """Returns the names of a database's tables, sorted; raises as `Store.tables`."""
    prefix = records.table_key(records.require_database(tx, database))
    return [key[len(prefix) :].decode() for key, _ in tx.items("names", prefix)]


def find_table(tx: CatalogTransaction, name: str) -> FoundTable:
    """Returns the table of a name; raises as `Store.table`."""
    database, _, table_id = _place_of(tx, name)
    return FoundTable(table_id, database, tx.require("tables", records.table_key(table_id)))


def find_table_by_id(tx: CatalogTransaction, table_id: int) -> FoundTable:
    """Returns the table of an id; raises as `Store.table_of_id`."""
    record = tx.get("tables", records.table_key(table_id))
    if record is None:
        raise NotFoundError("the table was dropped", kind="unknown_table", table=table_id)
    return FoundTable(table_id, records.require_database(tx, record["database"]), record)


def check_new_table(tx: CatalogTransaction, name: str, *, if_not_exists: bool) -> None:
    """Refuses a table that exists when the call to create it begins; raises as `Store.create_table`."""
    database, table = split_name(name)
    check_name(table, "table")
    found = records.find_table(tx, records.require_database(tx, database), table)
    if found is not None and not if_not_exists:
        raise AlreadyExistsError(f"Table '{table}' already exists", table=name)


def create_table(
    tx: CatalogTransaction,
    name: str,
    schema: TableSchema,
    *,
    if_not_exists: bool,
    filler: tuple[int, int] | None,
) -> FoundTable:
    """Makes an empty table, or finds the one there is; raises as `Store.create_table`.

    Args:
        filler: of `ddl.filled_tables`.
    """
    database_name, table_name = split_name(name)
    database = records.require_database(tx, database_name)
    table_id = records.find_table(tx, database, table_name)
    if table_id is None:
        refuse_view_name(tx, database, name)
        table_id = table_records.create_table(tx, database, database_name, table_name, schema, filler)
    elif not if_not_exists:
        raise recreated_error(CurrentTransaction(name, "CREATE TABLE"), creation(tx, table_id))
    return FoundTable(table_id, database, tx.require("tables", records.table_key(table_id)))


def drop_table(tx: CatalogTransaction, name: str, *, if_exists: bool) -> str | None:
    """Forgets a table and returns its directory, None where there is none; raises as `Store.drop_table`."""
    try:
        database, table, _ = _place_of(tx, name)
    except NotFoundError as error:
        if if_exists and error.kind == "unknown_table":
            return None
        raise
    return table_records.forget_table(tx, database, table)


def rename_table(tx: CatalogTransaction, name: str, new_name: str) -> None:
    """Gives a table another name in its database; raises as `Store.rename_table`."""
    check_name(new_name, "table")
    database, table, _ = _place_of(tx, name)
    new = f"{split_name(name)[0]}.{new_name}"
    if records.find_table(tx, database, new_name) is not None:
        raise AlreadyExistsError(f"Table name[{new_name}] is already used", table=new)
    refuse_view_name(tx, database, new)
    table_records.change_name(tx, database, table, new_name)


def replace_table(tx: CatalogTransaction, name: str, other: str, *, swap: bool) -> str | None:
    """Exchanges two tables; without `swap` forgets the one that is named `other` then.

    Returns:
        The directory of the forgotten table, None with `swap`.

    Raises:
        NotFoundError, InvalidInputError: as `Store.replace_table`.
    """
    if split_name(name)[0] != split_name(other)[0] or name == other:
        raise InvalidInputError(
            f"REPLACE of '{name}' with '{other}': expected two tables of one database", kind="bad_table"
        )
    database, one, _ = _place_of(tx, name)
    _, two, _ = _place_of(tx, other)
    table_records.exchange_names(tx, database, one, two)
    return None if swap else table_records.forget_table(tx, database, two)


def _place_of(tx: CatalogTransaction, name: str) -> tuple[int, str, int]:
    """Returns the id of a table's database, its name there, and its own id.

    Raises:
        NotFoundError: no such database or table.
        InvalidInputError: it is a view.
    """
    database_name, table = split_name(name)
    database = records.require_database(tx, database_name)
    table_id = records.find_table(tx, database, table)
    if table_id is None:
        refuse_view(tx, database, name)
        raise NotFoundError(f"Unknown table '{name}'", kind="unknown_table", table=name)
    return database, table, table_id
