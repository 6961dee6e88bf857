"""A session: runs the statements of a text, and holds their current database, variables and transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final

import pyarrow as pa

from seqstore.store.catalog.accounts import ROOT
from seqstore.store.catalog.workload_groups import NORMAL, USER_GROUP, USER_MEMORY, WorkloadGroup
from seqstore.store.ddl.views import View
from seqstore.store.errors import AccessDeniedError, InvalidInputError, StoreError
from seqstore.store.read.store_snapshot import StoreSnapshot
from seqstore.store.runtime.cancellation import interrupted
from seqstore.store.runtime.held_memory import HeldMemory
from seqstore.store.runtime.internal import internal
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.evaluate import table_functions
from seqstore.store.sql.evaluate.answer_origins import Origin
from seqstore.store.sql.evaluate.connections import MemoryShare, QueryConnection
from seqstore.store.sql.evaluate.select import QueryContext, open_query
from seqstore.store.sql.parse import statement_values as st
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.result import Result
from seqstore.store.sql.session import privileges, system_tables
from seqstore.store.sql.session import variables as names
from seqstore.store.sql.session.running_statement import LONG_TEXT, RunningStatement, TimeLimit
from seqstore.store.sql.session.server_context import ServerContext
from seqstore.store.sql.session.session_transaction import SessionTransaction
from seqstore.store.sql.session.statement_kind import kind_of, parse
from seqstore.store.sql.session.statement_versions import StatementVersions
from seqstore.store.sql.session.system_tables import view_schema
from seqstore.store.sql.session.variables import Variables
from seqstore.store.sql.session.workload import LIMITED
from seqstore.store.sql.translate.calls import EvaluationContext, Moment, zone_of
from seqstore.store.sql.translate.relations import mentioned_tables
from seqstore.store.sql.translate.views import tables_behind
from seqstore.store.sql.write.changed_rows import OpenQuery
from seqstore.store.store import Store
from seqstore.store.table import Table
from seqstore.store.transaction.transaction import Transaction
from seqstore.store.transaction.transaction_table import TransactionTable

Clock = Callable[[], datetime]
_utc_now: Final = partial(datetime.now, UTC)
# First words of the statements that may stand in a transaction (X12), with those that change nothing.
_IN_TRANSACTION: Final = ("BEGIN", "START", "COMMIT", "ROLLBACK", "INSERT", "UPDATE", "DELETE", "MERGE", "(",
                          "SELECT", "WITH", "DO", "SHOW", "SET", "USE", "DESC", "DESCRIBE", "EXPLAIN",
                          "KILL", "LOCK", "UNLOCK", "SAVEPOINT", "RELEASE")  # fmt: skip
_CHANGES: Final = (
    "CREATE",
    "DROP",
    "ALTER",
    "RENAME",
    "TRUNCATE",
    "INSERT",
    "RESTORE",
    "LOAD",
)  # of those that may not


class Session:
    """Runs Doris SQL on a store.

        with Session(store) as session:
            for result in session.execute("USE db; SELECT * FROM t"):
                ...

    One thread at a time may use it. Every statement reads one version of each table, undisturbed by writers.

    Attributes:
        database: the current one, None before USE.
        variables: of this session; `user_variables` are those with `@`.
        warnings: of the statement before.
        last_insert_id: LAST_INSERT_ID() of MySQL: the first value that the last INSERT which generated any
            gave to the AUTO_INCREMENT column.
        row_count: ROW_COUNT() of MySQL: the rows that the last statement changed, -1 if it returned rows.
        found_rows: FOUND_ROWS() of MySQL: the rows of the last answer.
        transactions: begins and ends the session's transactions.
        held: what the session keeps between statements.
    """

    def __new__(cls, store: Store, *_given: Any, **_named: Any) -> Session:
        """Makes a session here, or for a store elsewhere one at its server."""
        elsewhere: type[Session] | None = getattr(type(store), "session_type", None)
        if elsewhere is None or issubclass(cls, elsewhere):
            return object.__new__(cls)
        if cls is not Session:
            raise InvalidInputError(
                f"{cls.__name__} runs statements where the store is; for a store elsewhere there is Session",
                kind="not_remote",
            )
        return object.__new__(elsewhere)

    def __init__(
        self,
        store: Store,
        database: str | None = None,
        *,
        clock: Clock = _utc_now,
        user: str | None = None,
        server: ServerContext | None = None,
    ) -> None:
        """Args:
        clock: returns the time with a zone.
        user: whose privileges are checked; None has all privileges.
        server: the server that the session belongs to, None for a session that stands alone.
        """
        self.store = store
        self.database = database
        self.user = user
        self.server = server if server is not None else ServerContext()
        self.variables = Variables(self.server.global_variables)
        self.user_variables: dict[str, str | None] = {}
        self.held = HeldMemory(user)
        self.warnings: tuple[str, ...] = ()
        self.last_insert_id = 0
        self.row_count = -1
        self.found_rows = 0
        self.transactions = SessionTransaction(store, self.variables)
        self._clock = clock
        self._group: WorkloadGroup | None = None  # of the running statement
        self._user_properties: dict[str, str] = {}
        self._connection = QueryConnection(self._memory_share)
        self._running = RunningStatement(self.server.has_client, user or ROOT)

    def execute(self, text: str) -> Iterator[Result]:
        """Runs the statements of a text one after another, each when its result is requested.

        A text with a syntax error runs no statement at all.

        Raises:
            StoreError: its class names the remedy; earlier statements keep their effect.
        """
        statements = self.parse(text)
        return (self.run(statement) for statement in statements)

    @internal
    def parse(self, text: str) -> list[Any]:
        """Returns the statements of a text. What ends a running statement ends the parsing of a long one.

        Raises:
            InvalidInputError: a syntax error, with its position.
            UnavailableError: the parsing was ended.
        """
        with self._running.within(TimeLimit()) if len(text) > LONG_TEXT else nullcontext():
            return parse(text)

    def run(self, statement: object) -> Result:
        """Runs one statement."""
        try:
            result = self._result_of(statement)
        except StoreError:
            self.note_failure()
            raise
        if result.rows is not None:
            self.note_answer(len(result.rows))
        else:
            self.row_count = result.affected_rows
        return result

    def _result_of(self, statement: object) -> Result:
        kind = kind_of(type(statement))
        if kind is None:
            raise InvalidInputError(
                f"{type(statement).__name__} statements cannot be run", kind="not_supported"
            )
        if self.user is not None:
            privileges.check(self.store.accounts, self.user, kind.starts[0], statement, self.database)
        first_word = kind.starts[0].partition(" ")[0]
        if isinstance(statement, st.Query):  # `stream` begins its transaction, and limits its time
            result = kind.run(statement, self) or Result()
        else:
            self._enter(statement, first_word)
            settings = statement.settings if isinstance(statement, st.HintedChange) else ()
            start = kind.starts[0] if kind.starts[0] in LIMITED else first_word
            with self._changed(settings), self._run_within(start, first_word):
                result = kind.run(statement, self) or Result()
        shown = getattr(statement, "statement", statement)  # perhaps with WHERE
        if not isinstance(shown, (st.ShowWarnings, st.Query)):
            self.warnings = result.warnings
        self.last_insert_id = result.generated_id or self.last_insert_id
        return result

    @internal
    def note_failure(self) -> None:
        """Remembers that a statement changed no rows, because it failed."""
        self.row_count = -1

    @internal
    def note_answer(self, rows: int) -> None:
        """Remembers the number of rows of an answer."""
        self.row_count, self.found_rows = -1, rows

    def _enter(self, statement: object, first_word: str) -> None:
        """Begins or commits the session's transaction, as a statement requires."""
        transactions = self.transactions
        if first_word not in _IN_TRANSACTION or (isinstance(statement, st.Insert) and statement.is_overwrite):
            transactions.end_for()
            if first_word in _CHANGES:
                transactions.check_writable()
        elif isinstance(statement, (st.Insert, st.DmlStatement)):
            transactions.check_writable()
            transactions.begin_implicitly()
        elif isinstance(statement, st.Query) and not self.variables.autocommit and self._reads(statement):
            transactions.begin_implicitly()

    @contextmanager
    def _run_within(self, start: str, first_word: str) -> Iterator[None]:
        """Runs a statement within its time limit and in its workload group.

        A statement that another one runs has the limit and the place of that one.
        """
        is_inner = self._running.is_running
        with self._running.within(TimeLimit.of(first_word, self.variables.values)):
            if is_inner:
                yield
                return
            self._group = None  # those of statements that no group limits are found when they query
            if start not in LIMITED:
                yield
                return
            self._group = self.workload_group()
            with self.server.queues.admitted(self._group, self.workload_group):
                yield

    @contextmanager
    @internal
    def reading(self) -> Iterator[None]:
        """Gives a read that is no statement the time limit, the group and the end by KILL of a query."""
        with self.working("SELECT"):
            yield

    @contextmanager
    @internal
    def working(self, first_word: str) -> Iterator[None]:
        """Gives a call that is no statement the time limit, the group and the end by KILL of one.

        Args:
            first_word: of the statement that does the like, such as INSERT.
        """
        with self._run_within(first_word, first_word):
            yield

    @internal
    def workload_group(self) -> WorkloadGroup:
        """Returns the group of the session's statements: the variable's, or the user's default.

        Raises:
            AccessDeniedError: the variable names a group that the user may not use.
            InvalidInputError: it names none.
        """
        groups = self.store.workload_groups
        if self.user is None and names.WORKLOAD_GROUP not in self.variables.own:  # in a program
            return WorkloadGroup(NORMAL)
        own, self._user_properties = groups.of_user(self.user or ROOT)
        wanted = self.variables.values[names.WORKLOAD_GROUP] or own.name
        if wanted == own.name:
            return own
        if not self._is_administrator():
            raise AccessDeniedError(
                f"Access denied; user '{self.user}' may not use workload group '{wanted}'; its own is "
                f"'{own.name}': SET PROPERTY FOR '{self.user}' '{USER_GROUP}' = '{wanted}'",
                kind="no_privilege",
            )
        found = groups.find(wanted)
        if found is None:
            raise InvalidInputError(f"workload group '{wanted}' does not exist", kind="unknown_group")
        return found

    def _memory_share(self) -> MemoryShare | None:
        """Returns the memory that the session's next query shares with others."""
        group = self._group if self._group is not None else self.workload_group()
        limit = int(self.variables.values[names.EXEC_MEM_LIMIT])
        limit = min(limit, int(self._user_properties.get(USER_MEMORY, limit)))
        return MemoryShare.of(group, limit, id(self))

    def _is_administrator(self) -> bool:
        account = self.store.accounts.find(self.user) if self.user is not None else None
        return self.user is None or (account is not None and account.may("ADMIN"))

    def _reads(self, query: st.Query) -> bool:
        """Returns whether a query names a stored table."""
        return not all(self.is_system(table) for table in mentioned_tables(query.tree))

    @contextmanager
    @internal
    def stream(
        self, query: st.Query, *, is_answer: bool = False, origins: list[Origin | None] | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        """Runs a query, whose rows are computed while they are read; its versions are held until then.

        Args:
            is_answer: the rows are the answer of a SELECT, which sql_select_limit bounds.
            origins: receives where the columns come from; it stays empty where that is not known.
        """
        self._enter(query, "SELECT")
        if self.warnings and not _counts_warnings(query.tree):
            self.warnings = ()
        with (
            self._changed(query.settings),
            self._run_within("SELECT", "SELECT"),
            self.query_context(trees=[query.tree], origins=origins) as context,
            open_query(self._limited(query) if is_answer else query, context) as reader,
        ):
            yield reader

    @internal
    def columns_of(self, query: st.Query, *, origins: list[Origin | None] | None = None) -> pa.Schema:
        """Returns the columns of a query's result within the limits of a query; its rows are not computed.

        A transaction of the session does not begin by it, and notes no reads.

        Args:
            origins: receives where the columns come from, as in `stream`.

        Raises:
            StoreError: the query cannot run, or reached a limit.
        """
        tree = query.tree.copy()
        tree.set("limit", exp.Limit(expression=exp.Literal.number(0)))  # DuckDB then runs nothing
        with (
            self._changed(query.settings),
            self._run_within("SELECT", "SELECT"),
            self.query_context(trees=[query.tree], origins=origins) as context,
            open_query(replace(query, tree=tree), replace(context, logged={})) as reader,
        ):
            return reader.schema

    def _limited(self, query: st.Query) -> st.Query:
        """Applies sql_select_limit, which drivers set for setMaxRows, to a query without LIMIT."""
        inner = query.tree
        while isinstance(inner, exp.Subquery) and inner.args.get("limit") is None:
            inner = inner.this
        if names.SELECT_LIMIT not in self.variables.own or inner.args.get("limit") is not None:
            return query
        tree = query.tree.copy()
        rows = exp.Literal.number(self.variables.values[names.SELECT_LIMIT])
        tree.set("limit", exp.Limit(expression=rows))
        return replace(query, tree=tree)

    def _changed(self, settings: tuple[tuple[str, str], ...]) -> AbstractContextManager[None]:
        """Sets the variables of a hint, before the limits that they change are taken."""
        return self.variables.changed(settings) if settings else nullcontext()

    @contextmanager
    @internal
    def query_context(
        self,
        target: TransactionTable | None = None,
        *,
        trees: Iterable[exp.Expr] = (),
        origins: list[Origin | None] | None = None,
    ) -> Iterator[QueryContext]:
        """Yields the context of one statement's queries.

        All of them read the tables as of one moment, whose versions are held until the block ends.

        Args:
            target: the table the statement writes, as its transaction sees it.
            trees: the queries, where they are a statement outside of a transaction.
            origins: of `QueryContext`.
        """
        with ExitStack() as held:
            versions = StatementVersions(self, held, target, self._moment(target, trees, held))
            now, show_hidden = self._clock(), names.SHOW_HIDDEN_COLUMNS in self.variables.on

            @cache
            def evaluation() -> EvaluationContext:
                moment = Moment.at(now, self.variables.zone)
                return EvaluationContext(
                    moment,
                    self.database,
                    self.user or ROOT,
                    self.server.connection_id,
                    self.last_insert_id,
                    self.row_count,
                    self.found_rows,
                )

            yield QueryContext(
                versions.open,
                lambda node: table_functions.call(node, self._readable_table, versions.newest),
                self._connection.get,
                evaluation,
                self._variable,
                versions.find_view,
                show_hidden,
                show_hidden or names.SKIP_DELETE_SIGN in self.variables.on,
                versions.logged,
                names.COLUMN_COPIES in self.variables.on,
                lambda: self._connection.copies,
                origins,
            )

    def _moment(
        self, target: TransactionTable | None, trees: Iterable[exp.Expr], held: ExitStack
    ) -> StoreSnapshot | None:
        """Returns the moment that a statement reads, that of its transaction if any; None for one table."""
        if target is not None:
            return target.transaction.moment
        if self.transaction is not None:
            return self.transaction.moment
        # The tables of a view join a moment when the view is found (StatementVersions.find_view).
        trees = list(trees)
        if sum([len(list(find_all(tree, exp.Table))) for tree in trees]) < 2:
            return None
        found = [name for tree in trees for name in mentioned_tables(tree)]
        names = {(name.database or self.database, name.name) for name in found}
        return held.enter_context(self.store.snapshot()) if len(names) > 1 else None

    @contextmanager
    @internal
    def within(self, target: TransactionTable) -> Iterator[OpenQuery]:
        """Runs the queries of one statement that writes `target`, whose reads its transaction remembers."""
        target.zone = self.moment().zone
        target.require_sequence = names.REQUIRE_SEQUENCE in self.variables.on
        with self.query_context(target) as context:
            yield partial(open_query, context=context)

    @contextmanager
    def running(self, text: str) -> Iterator[None]:
        """Shows a text in SHOW PROCESSLIST for the length of the block, so that KILL ends its statement."""
        with self._running.shown():
            self._show_process(text)
            try:
                yield
            finally:
                self._show_process("")

    def _show_process(self, text: str) -> None:
        user, database = self.user or ROOT, self.database or ""
        self.server.processes.change(self.server.connection_id, user=user, database=database, text=text)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.transactions.current is not None

    @property
    def transaction(self) -> Transaction | None:
        """The open transaction, None outside of one."""
        return self.transactions.current

    def interrupt(self) -> None:
        """Ends the running statement; called from another thread. No-op between statements."""
        self._running.cancel(interrupted())

    def close(self) -> None:
        """Ends the session and rolls its transaction back (X10); the store stays open."""
        self.transactions.rollback("the session was closed")
        self._connection.close()
        self.held.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @internal
    def require(self, privilege: str, table: str) -> None:
        """Checks a privilege on a table, `db.table`.

        Raises:
            AccessDeniedError: the user does not hold it.
        """
        if self.user is not None:
            database, _, name = table.partition(".")
            self.store.accounts.require(self.user, privilege, database, name)

    @internal
    def require_within(self, privilege: str, database: str) -> None:
        """Checks a privilege on a database or on any of its tables.

        Raises:
            AccessDeniedError: the user holds it on none.
        """
        if self.user is not None:
            self.store.accounts.require(self.user, privilege, database, within=True)

    def current_database(self) -> str:
        """Returns the database of the last USE.

        Raises:
            InvalidInputError: there is none.
        """
        if self.database is None:
            raise InvalidInputError("No database selected; run USE db, or write db.table", kind="no_database")
        return self.database

    def visible_databases(self) -> list[str]:
        """Databases on which the user holds any privilege; all of them where none is checked."""
        found = self.store.databases()
        if self.user is None:
            return found
        account = self.store.accounts.find(self.user)
        if account is None:
            return []
        return list(filter(account.sees, found))

    @internal
    def table_filter(self, privilege: str = "") -> Callable[[str, str], bool]:
        """Returns whether the user holds a privilege, or any, on a table of a database, as of now.

        Without a table the privilege must be held on the database.
        """
        if self.user is None:
            return lambda _database, _table: True
        account = self.store.accounts.find(self.user)
        if account is None:
            return lambda _database, _table: False
        return partial(account.may, privilege) if privilege else account.sees_table

    @internal
    def sees_user(self, name: str) -> bool:
        """Returns whether the session may see the processes and grants of a user: its own, or with ADMIN."""
        return name == self.user or self._is_administrator()

    @internal
    def require_admin(self) -> None:
        """Checks ADMIN on all databases; raises AccessDeniedError without it."""
        if self.user is not None:
            self.store.accounts.require(self.user, "ADMIN")

    @internal
    def full_name(self, table: st.TableName) -> str:
        """Returns `db.table`, in the current database unless the name has one."""
        return f"{table.database or self.current_database()}.{table.name}"

    @internal
    def table(self, table: st.TableName) -> Table:
        """Returns the named table; raises NotFoundError when there is none."""
        return self.store.table(self.full_name(table))

    @internal
    def is_system(self, table: st.TableName) -> bool:
        """Returns whether a name is of `information_schema`."""
        return (table.database or self.database or "").lower() == system_tables.DATABASE

    @internal
    def schema(self, table: st.TableName) -> TableSchema:
        """Returns the columns of a stored table, a system table or a view; a view has no key."""
        if self.is_system(table):
            return system_tables.system_schema(table.name)
        database, _, name = self.full_name(table).partition(".")
        view = self.store.views.find(database, name)
        return view_schema(view) if view is not None else self.table(table).schema

    @internal
    def tables_of(self, tree: exp.Expr) -> set[str]:
        """Returns the stored tables that a tree reads, through views too, as `db.table`."""
        return {self.full_name(name) for name in tables_behind(tree, self.find_view)}

    @internal
    def find_view(self, table: st.TableName, within: str) -> tuple[str, View] | None:
        """Finds the view of a name; the privilege on a view is enough for the views that it reads."""
        database = table.database or self.database
        if database is None or self.is_system(table):
            return None
        found = self.store.views.find(database, table.name)
        if found is not None and not within:
            self.require("SELECT", f"{database}.{table.name}")
        return (database, found) if found is not None else None

    def _variable(self, name: str, scope: str) -> str | None:
        if scope == "user":
            return self.user_variables.get(name.lower())
        if name.lower() in names.LAST_INSERT_ID and scope != "global":
            return str(self.last_insert_id)
        if name.lower() in names.DIAGNOSTICS and scope != "global":
            return str(len(self.warnings)) if name.lower() == names.WARNING_COUNT else "0"
        value = self.variables.get(name, is_global=scope == "global")
        return {"true": "1", "false": "0"}.get(value, value)

    def _readable_table(self, name: str) -> Table:
        """Returns a table named in a text, such as `'db.t'`, if the user may read it."""
        full = name if "." in name else f"{self.current_database()}.{name}"
        self.require("SELECT", full)
        return self.store.table(full)

    def in_zone(self, moment: datetime) -> datetime:
        """Adds the session's time zone to a time that has none."""
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone_of(self.variables.zone))

    @internal
    def moment(self) -> Moment:
        """Returns the present time in the session's time zone."""
        return Moment.at(self._clock(), self.variables.zone)


def _counts_warnings(tree: exp.Expr) -> bool:
    """Returns whether a query reads @@warning_count or @@error_count, and so keeps what it counts."""
    return any(node.name.lower() in names.DIAGNOSTICS for node in find_all(tree, exp.SessionParameter))
