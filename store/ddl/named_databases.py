"""Databases of the catalog: their names are listed, made and dropped within one transaction of it."""

from __future__ import annotations

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog import table_records
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.ddl.views import forget_views
from seqstore.store.errors import AlreadyExistsError, NotFoundError
from seqstore.store.schema.declaration import check_name


def database_names(tx: CatalogTransaction) -> list[str]:
    """Returns the names of the databases, sorted."""
    return [key.decode() for key, _ in tx.items("databases")]


def create_database(tx: CatalogTransaction, name: str, *, if_not_exists: bool) -> None:
    """Makes a database; raises as `Store.create_database`."""
    check_name(name, "database")
    if records.find_database(tx, name) is None:
        tx.put("databases", name.encode(), {"id": tx.next_id("database")})
    elif not if_not_exists:
        raise AlreadyExistsError(f"Can't create database '{name}'; database exists", database=name)


def drop_database(tx: CatalogTransaction, name: str, *, if_exists: bool) -> list[str]:
    """Removes a database with its tables, views and labels; raises as `Store.drop_database`.

    Returns:
        The directories of its tables, whose files may go after the commit.
    """
    database = records.find_database(tx, name)
    if database is None:
        if if_exists:
            return []
        raise NotFoundError(f"Can't drop database '{name}'; database doesn't exist", database=name)
    of_database = records.table_key(database)
    tables = [key[len(of_database) :].decode() for key, _ in list(tx.items("names", of_database))]
    directories = [table_records.forget_table(tx, database, table) for table in tables]
    forget_views(tx, database)
    for label, _ in list(tx.items("labels", of_database)):
        tx.delete("labels", label)
    tx.delete("databases", name.encode())
    return directories
