"""A session: texts of statements in, results out. The current database and the variables live here."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa

from seqstore.store.catalog.accounts import PRIVILEGES, ROOT
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.evaluate import table_functions
from seqstore.store.sql.evaluate.select import QueryContext, log_relation, open_query
from seqstore.store.sql.parse import statement_values as st
from seqstore.store.sql.parse.load_jobs import LoadJobs
from seqstore.store.sql.result import Result
from seqstore.store.sql.session import privileges, system_tables
from seqstore.store.sql.session import variables as names
from seqstore.store.sql.session.parser import parse
from seqstore.store.sql.session.processes import Processes
from seqstore.store.sql.session.statement_kind import StatementKind, kind_of
from seqstore.store.sql.session.variables import Variables
from seqstore.store.sql.translate.calls import EvaluationContext, Moment
from seqstore.store.sql.translate.relations import Readable, Relation, Version
from seqstore.store.sql.write.dml import Ask
from seqstore.store.store import Store
from seqstore.store.table import Table
from seqstore.store.transaction.transaction import Transaction
from seqstore.store.transaction.transaction_table import TransactionTable

if TYPE_CHECKING:
    import duckdb

Clock = Callable[[], datetime]
# First words of what may be said between BEGIN and COMMIT (X12), and of what changes nothing.
_IN_TRANSACTION: Final = frozenset(
    re.findall(
        r"[\w(]+",
        "BEGIN START COMMIT ROLLBACK INSERT UPDATE DELETE MERGE SELECT WITH ( SHOW SET USE DESC DESCRIBE "
        "EXPLAIN KILL",
    )
)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def refused_in_transaction() -> InvalidInputError:
    """X12."""
    return InvalidInputError(
        "This is in a transaction, only insert, update, delete, commit, rollback is acceptable",
        kind="in_transaction",
    )


class Session:
    """Runs Doris SQL on a store.

        with Session(store) as session:
            for result in session.execute("USE db; SELECT * FROM t"):
                ...

    One thread at a time. Every statement reads one version of each table, writers do not disturb it.

    Attributes:
        database: the current one, None before USE.
        variables: of this session; `user_variables` are those with `@`.
        warnings: of the statement before.
    """

    def __init__(
        self,
        store: Store,
        database: str | None = None,
        *,
        global_variables: dict[str, str] | None = None,
        clock: Clock = _utc_now,
        user: str | None = None,
        connection_id: int = 0,
        processes: Processes | None = None,
        load_jobs: LoadJobs | None = None,
    ) -> None:
        """Args:
        global_variables: what SET GLOBAL writes; pass one dict to all sessions of a server.
        clock: gives the time with a zone.
        user: whose privileges are checked; None may do everything.
        connection_id: the session's number among the processes of a server.
        processes: of the server, for SHOW PROCESSLIST and KILL.
        load_jobs: runs broker and routine loads; without it their statements are refused.
        """
        self.store = store
        self.database = database
        self.variables = Variables(global_variables)
        self.user_variables: dict[str, str | None] = {}
        self.warnings: tuple[str, ...] = ()
        self.user = user
        self.connection_id = connection_id
        self.processes = processes if processes is not None else Processes()
        self.load_jobs = load_jobs
        self._clock = clock
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._databases_ended = 0  # when it was made
        self.transaction: Transaction | None = None

    def execute(self, text: str) -> Iterator[Result]:
        """Runs the statements of a text one after another; each runs when its result is asked for.

        The whole text is read first: one with a syntax error runs nothing.

        Raises:
            StoreError: of the class that tells what to do; statements before it stay done.
        """
        statements = parse(text)
        return (self.run(statement) for statement in statements)

    def run(self, statement: object) -> Result:
        """Runs one statement."""
        kind = kind_of(statement)
        if kind is None:
            raise InvalidInputError(
                f"{type(statement).__name__} statements cannot be run", kind="not_supported"
            )
        self._check_privilege(kind, statement)
        if self.transaction is not None and kind.starts[0].split()[0] not in _IN_TRANSACTION:
            raise refused_in_transaction()
        result = kind.run(statement, self)
        if not isinstance(statement, st.ShowWarnings):
            self.warnings = result.warnings
        return result

    @contextmanager
    def stream(self, query: st.Query) -> Iterator[pa.RecordBatchReader]:
        """The rows of a query as they are read; the versions it reads are held until the block is left."""
        with self.query_context() as context, open_query(query, context) as reader:
            yield reader

    @contextmanager
    def query_context(self, target: TransactionTable | None = None) -> Iterator[QueryContext]:
        """What queries of one statement read in: versions opened in it are held until the block is left.

        Args:
            target: the table the statement writes, as it sees it.
        """
        with ExitStack() as held:
            yield self._query_context(held, target)

    @contextmanager
    def running(self, text: str) -> Iterator[None]:
        """Shows a text in SHOW PROCESSLIST for as long as the block lasts."""
        self._tell_processes(text)
        try:
            yield
        finally:
            self._tell_processes("")

    def _tell_processes(self, text: str) -> None:
        user, database = self.user or "root", self.database or ""
        self.processes.change(self.connection_id, user=user, database=database, text=text)

    @property
    def in_transaction(self) -> bool:
        """Whether BEGIN was said and neither COMMIT nor ROLLBACK yet."""
        return self.transaction is not None

    @contextmanager
    def within(self, target: TransactionTable) -> Iterator[Ask]:
        """Runs the queries of one statement that writes `target`; what they read of it is remembered."""
        with self.query_context(target) as context:
            yield lambda query: open_query(query, context)

    def new_label(self, prefix: str) -> str:
        """A label nobody else has."""
        return f"{prefix}_{uuid.uuid4().hex}"

    def interrupt(self) -> None:
        """Called from another thread: ends the query that runs."""
        import duckdb

        connection = self._connection
        if connection is not None:
            with suppress(duckdb.ConnectionException):  # it is just being closed
                connection.interrupt()

    def close(self) -> None:
        """Ends the session, rolling its transaction back (X10); the store stays open."""
        if self.transaction is not None:
            self.transaction.rollback("the session was closed")
            self.transaction = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_privilege(self, kind: StatementKind[Any, Any], statement: object) -> None:
        if self.user is None:
            return
        first, _, rest = kind.starts[0].partition(" ")
        privilege = privileges.needed(first, rest.partition(" ")[0])
        if isinstance(statement, st.SetVariables) and any(a.scope == "global" for a in statement.assignments):
            privilege = "ADMIN"
        if privilege:
            privileges.check(self.store.accounts, self.user, privilege, statement, self.database)

    def lock_seconds(self) -> float | None:
        """How long to wait for other updates of a table; None is the setting."""
        seconds = self.variables.number(names.UPDATE_LOCK_SECONDS)
        return None if seconds < 0 else seconds

    def current_database(self) -> str:
        """The name behind USE.

        Raises:
            InvalidInputError: there is none.
        """
        if self.database is None:
            raise InvalidInputError("No database selected; say USE db, or db.table", kind="no_database")
        return self.database

    def visible_databases(self) -> list[str]:
        """Databases the user holds any privilege on; all of them where none is checked."""
        found = self.store.databases()
        if self.user is None:
            return found
        account = self.store.accounts.find(self.user)
        if account is None:
            return []
        return [name for name in found if any(account.may(privilege, name) for privilege in PRIVILEGES)]

    def full_name(self, table: st.TableName) -> str:
        """`db.table`, the current database where none is written."""
        return f"{table.database or self.current_database()}.{table.name}"

    def table(self, table: st.TableName) -> Table:
        """The named table; NotFoundError when there is none."""
        return self.store.table(self.full_name(table))

    def writable(self, table: st.TableName) -> Table | TransactionTable:
        """The named table to write to, as the session's transaction sees it if there is one."""
        name = self.full_name(table)
        return self.store.table(name) if self.transaction is None else self.transaction.table(name)

    def schema(self, table: st.TableName) -> TableSchema:
        """Columns of a stored or a system table."""
        if (table.database or self.database or "").lower() == system_tables.DATABASE:
            return system_tables.system_schema(table.name)
        return self.table(table).schema

    def _query_context(self, held: ExitStack, target: TransactionTable | None = None) -> QueryContext:
        opened: dict[tuple[str, Version], Readable] = {}
        logging: dict[int, TransactionTable] = {}

        def open_stored(name: str, version: int | None) -> Readable:
            table = target if target is not None and target.name == name else None
            if table is None and self.transaction is not None:
                table = self.transaction.table(name)
            if table is None:
                return held.enter_context(self.store.table(name).snapshot(version))
            snapshot = table.snapshot(version)
            if version is None:
                logging[id(snapshot)] = table
            return snapshot

        def log_read(relation: Relation) -> None:
            table = logging.get(id(relation.snapshot))
            if table is not None:
                log_relation(table, relation)

        def open_snapshot(table: st.TableName, version: Version) -> Readable:
            if (table.database or self.database or "").lower() == system_tables.DATABASE:
                return system_tables.open_system_table(table.name, self)
            key = (self.full_name(table), version)
            if self.user is not None:
                self.store.accounts.require(self.user, "SELECT", key[0].partition(".")[0])
            if key not in opened:
                if isinstance(version, datetime):
                    version = self.store.table(key[0]).version_as_of(self.in_zone(version))
                opened[key] = open_stored(key[0], version)
            return opened[key]

        return QueryContext(
            open_snapshot,
            lambda node: table_functions.call(node, self._readable_table),
            self._connect,
            EvaluationContext(self.moment(), self.database, self.user or ROOT, self.connection_id),
            self._variable,
            show_hidden=self.variables.flag(names.SHOW_HIDDEN_COLUMNS),
            log_read=log_read,
        )

    def _connect(self) -> duckdb.DuckDBPyConnection:
        from seqstore.store.sql.evaluate import duck

        if self._connection is None or self._databases_ended != duck.databases_ended():
            self._databases_ended = duck.databases_ended()
            self._connection = duck.connect()
        return self._connection

    def _variable(self, name: str, scope: str) -> str | None:
        if scope == "user":
            return self.user_variables.get(name.lower())
        value = self.variables.get(name, is_global=scope == "global")
        if value is None:
            raise InvalidInputError(f"Unknown system variable '{name}'", kind="unknown_variable")
        return {"true": "1", "false": "0"}.get(value, value)

    def _readable_table(self, name: str) -> Table:
        """A table named in a text, such as `'db.t'`, that the user may read."""
        full = name if "." in name else f"{self.current_database()}.{name}"
        if self.user is not None:
            self.store.accounts.require(self.user, "SELECT", full.partition(".")[0])
        return self.store.table(full)

    def in_zone(self, moment: datetime) -> datetime:
        """A time without a zone as one of the session's."""
        if moment.tzinfo is not None:
            return moment
        zone = self.variables.zone
        if zone[0] in "+-":
            minutes = int(zone[1:3]) * 60 + int(zone[4:6])
            return moment.replace(tzinfo=timezone(timedelta(minutes=-minutes if zone[0] == "-" else minutes)))
        return moment.replace(tzinfo=ZoneInfo(zone))

    def moment(self) -> Moment:
        """The clock, as of now, in the session's time zone."""
        now = self._clock()
        utc = now.astimezone(UTC).replace(tzinfo=None)
        zone = self.variables.zone
        if zone[0] in "+-":
            minutes = int(zone[1:3]) * 60 + int(zone[4:6])
            local = utc + timedelta(minutes=-minutes if zone[0] == "-" else minutes)
        else:
            local = now.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        return Moment(local, utc, zone)
