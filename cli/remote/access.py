"""The privileges of the calls of a client, checked for each call as for a statement of SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqstore.cli.remote.load_calls import LOAD_CALLS
from seqstore.store import (
    AccessDeniedError,
    InvalidInputError,
    NotFoundError,
    Store,
    Table,
    TransactionOptions,
)
from seqstore.store.catalog.access.grants import ALL_DATABASES
from seqstore.store.catalog.accounts import Accounts
from seqstore.store.catalog.transaction_record import TransactionRecord
from seqstore.store.ddl.named_tables import split_name
from seqstore.store.remote.surface import Call
from seqstore.store.sql.session.privileges import require_visible

_ON_NAME = {"create_table": "CREATE", "drop_table": "DROP", "rename_table": "ALTER"}
_ON_DATABASE = {"create_database": "CREATE", "drop_database": "DROP"}
_ADMIN = ("clean_labels", "maintain", "overview", "set_config")
_ON_DATABASE_LOADS = ("abort_transaction", "commit_transaction", "find_transaction", "load_job", "upload")


class Access:
    """The privileges of one user of a store, as of each call."""

    def __init__(self, store: Store, user: str) -> None:
        self._store = store
        self._accounts: Accounts = store.accounts
        self._user = user

    def require(self, privilege: str, table: str) -> None:
        """Checks a privilege on `db.table`.

        Raises:
            AccessDeniedError: the user does not hold it.
        """
        self._accounts.require(self._user, privilege, *split_name(table))

    def check(self, call: Call, table: str) -> None:
        """Checks the privileges of a call on a table."""
        for privilege in call.privileges:
            self.require(privilege, table)

    def table(self, given: Any, call: Call) -> Table:
        """Returns the table of a call: the one with its id, whatever its name is now.

        Args:
            given: name and id, as the client has them.

        Raises:
            AccessDeniedError: the user lacks a privilege of the call.
            NotFoundError: the table was dropped, or has a name on which the user holds none.
        """
        if not isinstance(given, list) or [type(each) for each in given] != [str, int]:
            raise InvalidInputError("a call without its table", kind="bad_message")
        name, number = given
        self.check(call, name)
        found = self._store.table_of_id(number)
        if found.name != name:
            try:
                self.check(call, found.name)
            except AccessDeniedError as error:
                raise NotFoundError(f"Unknown table '{name}'", kind="unknown_table", table=name) from error
        return found

    def visible(self, name: str) -> None:
        """Checks that the user holds any privilege on `db.table`.

        Raises:
            NotFoundError: none; the text is that of an unknown name.
        """
        require_visible(self._accounts, self._user, *split_name(name))

    def sees(self, database: str, table: str = "") -> bool:
        """Returns whether the user holds any privilege on a database or a table."""
        account = self._accounts.find(self._user)
        if account is None:
            return False
        return account.sees_table(database, table) if table else account.sees(database)

    def may(self, privilege: str, table: str) -> bool:
        """Returns whether the user holds a privilege on `db.table`."""
        account = self._accounts.find(self._user)
        return account is not None and account.may(privilege, *split_name(table))

    def check_store_call(self, name: str, given: Mapping[str, Any]) -> None:
        """Checks the privileges of a call of `Store`, on what its arguments name.

        Raises:
            AccessDeniedError: the user lacks one.
            NotFoundError: it needs none, and the user sees nothing of what is named.
        """
        if name in _ON_NAME:
            self.require(_ON_NAME[name], str(given.get("name", "")))
            if name == "rename_table":
                database, _ = split_name(str(given["name"]))
                self._accounts.require(self._user, "ALTER", database, str(given.get("new_name", "")))
        elif name == "replace_table":
            self.require("ALTER", str(given.get("name", "")))
            self.require("ALTER", str(given.get("other", "")))
        elif name in _ON_DATABASE:
            self._accounts.require(self._user, _ON_DATABASE[name], str(given.get("name", "")))
        elif name in _ADMIN:
            self._accounts.require(self._user, "ADMIN", ALL_DATABASES)
        elif name in LOAD_CALLS:
            for needed, *on in LOAD_CALLS[name].privileges(given):
                self._accounts.require(self._user, needed, *on)
        elif name in _ON_DATABASE_LOADS:
            self._accounts.require(self._user, "LOAD", str(given.get("database", "")), within=True)
        elif name == "tables":
            require_visible(self._accounts, self._user, str(given.get("database", "")))
        elif name == "table":
            self.visible(str(given.get("name", "")))
        elif name in ("session", "transaction"):
            named = given.get("database") if name == "session" else _options(given).database
            if named is not None:
                require_visible(self._accounts, self._user, str(named))

    def may_end(self, database: str, record: TransactionRecord) -> bool:
        """Returns whether a transaction is there for the user: it holds LOAD on each of its tables."""
        account = self._accounts.find(self._user)
        names = {record.table, *record.versions}
        return account is not None and all(
            account.may("LOAD", database, name.partition(".")[2]) for name in names
        )


def _options(given: Mapping[str, Any]) -> TransactionOptions:
    found = given.get("options")
    if found is None:
        return TransactionOptions()
    if not isinstance(found, TransactionOptions):
        raise InvalidInputError("transaction: expected its options", kind="bad_message")
    return found
