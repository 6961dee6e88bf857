"""Views: names that stand for queries; one record of the catalog for each.

A view and a table of one database cannot have the same name. The text of the query names its tables with
their databases, so that it means the same in every session. `sql.translate.views` replaces the name by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from seqstore.store.runtime.internal import internal

IS_VIEW: Final = "is_view"  # of the error for a view where a table is expected


@dataclass(frozen=True)
class ViewColumn:
    """A column of a view.

    Attributes:
        source: the heading of the query's column, unless the view renames it.
        type: as DESC prints it, when the view was created.
        nullable: whether it could be NULL then.
    """

    name: str
    source: str
    type: str
    nullable: bool = True
    comment: str = ""


@dataclass(frozen=True)
class View:
    """A view as stored.

    Attributes:
        name: within its database.
        query: text of the query.
        columns: fixed when the view was created.
        is_named: the statement named the columns.
        created_ms: when it was created or altered.
    """

    name: str
    query: str
    columns: tuple[ViewColumn, ...]
    is_named: bool = False
    comment: str = ""
    created_ms: int = 0

    def to_record(self) -> dict[str, Any]:
        """Returns the catalog record; `from_record` reads it."""
        columns = [[c.name, c.source, c.type, c.nullable, c.comment] for c in self.columns]
        fields = {key: value for key, value in self.__dict__.items() if key != "name"}
        return {**fields, "columns": columns}

    @classmethod
    def from_record(cls, name: str, record: dict[str, Any]) -> View:
        """Reads a record of `to_record`."""
        columns = tuple(ViewColumn(*fields) for fields in record["columns"])
        return cls(name, **{**record, "columns": columns})


class Views:
    """The views of one store. Threads may share it; every result reflects the current catalog."""

    @internal
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def of(self, database: str) -> list[View]:
        """Returns the views of a database by name, sorted.

        Raises:
            NotFoundError: no such database.
        """
        with self._catalog.read() as tx:
            prefix = records.table_key(records.require_database(tx, database))
            return [View.from_record(key[8:].decode(), record) for key, record in tx.records("views", prefix)]

    def find(self, database: str, name: str) -> View | None:
        """Returns one view; None when there is none of that name."""

        def read(tx: CatalogTransaction) -> View | None:
            found = records.find_database(tx, database)
            return None if found is None else _find(tx, found, name)

        return self._catalog.recall((View, database, name), read)

    def put(self, database: str, view: View, *, if_not_exists: bool = False, replace: bool = False) -> None:
        """Stores a view.

        Args:
            if_not_exists: an existing view of that name stays as it is.
            replace: the view takes the place of an existing one.

        Raises:
            NotFoundError: no such database.
            AlreadyExistsError: a table or view of that name exists.
        """
        with self._catalog.write() as tx:
            found = records.require_database(tx, database)
            if records.find_table(tx, found, view.name) is not None:
                raise _exists(database, view.name, "a table")
            if _find(tx, found, view.name) is not None and not replace:
                if if_not_exists:
                    return
                raise _exists(database, view.name, "a view")
            _put(tx, found, view)

    def alter(self, database: str, view: View) -> None:
        """Replaces a view that exists.

        Raises:
            NotFoundError: no such view.
            InvalidInputError: it is a table.
        """
        with self._catalog.write() as tx:
            found = records.require_database(tx, database)
            _require(tx, found, database, view.name)
            _put(tx, found, view)

    def require(self, database: str, name: str) -> View:
        """Returns one view.

        Raises:
            NotFoundError: no such view.
            InvalidInputError: it is a table.
        """
        with self._catalog.read() as tx:
            return _require(tx, records.require_database(tx, database), database, name)

    def drop(self, database: str, name: str, *, if_exists: bool = False) -> None:
        """Removes a view.

        Raises:
            NotFoundError: no such view, and `if_exists` is False.
            InvalidInputError: it is a table.
        """
        with self._catalog.write() as tx:
            found = records.require_database(tx, database)
            if if_exists and _find(tx, found, name) is None and records.find_table(tx, found, name) is None:
                return
            _require(tx, found, database, name)
            tx.delete("views", records.name_key(found, name))


def refuse_view(tx: CatalogTransaction, database: int, name: str) -> None:
    """Checks that a name is none of a view.

    Args:
        name: `database.table`.

    Raises:
        InvalidInputError: it is a view.
    """
    if _find(tx, database, name.partition(".")[2]) is not None:
        raise InvalidInputError(
            f"'{name}' is not BASE TABLE: it is a view, which SELECT reads; name a table of its query "
            "instead "
            f"(SHOW CREATE VIEW {name})",
            kind=IS_VIEW,
        )


def refuse_view_name(tx: CatalogTransaction, database: int, name: str) -> None:
    """Checks that a new table does not take the name of a view, `database.table`.

    Raises:
        AlreadyExistsError: it does.
    """
    database_name, _, table = name.partition(".")
    if _find(tx, database, table) is not None:
        raise _exists(database_name, table, "a view")


def forget_views(tx: CatalogTransaction, database: int) -> None:
    """Removes all views of a database."""
    for key, _ in list(tx.items("views", records.table_key(database))):
        tx.delete("views", key)


def _find(tx: CatalogTransaction, database: int, name: str) -> View | None:
    record = tx.get("views", records.name_key(database, name))
    return None if record is None else View.from_record(name, record)


def _put(tx: CatalogTransaction, database: int, view: View) -> None:
    tx.put("views", records.name_key(database, view.name), {**view.to_record(), "created_ms": now_ms()})


def _require(tx: CatalogTransaction, found: int, database: str, name: str) -> View:
    view = _find(tx, found, name)
    if view is not None:
        return view
    full = f"{database}.{name}"
    if records.find_table(tx, found, name) is not None:
        raise InvalidInputError(f"'{full}' is not VIEW: it is a table", kind="is_table", table=full)
    raise NotFoundError(f"Unknown view '{full}'", kind="unknown_table", table=full)


def _exists(database: str, name: str, kind: str) -> AlreadyExistsError:
    return AlreadyExistsError(f"Table '{name}' already exists: it is {kind}", table=f"{database}.{name}")
