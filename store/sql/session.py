"""A session: texts of statements in, results out. The current database and the variables live here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import singledispatchmethod
from types import TracebackType
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pyarrow as pa
from sqlglot import exp

from store.errors import InvalidInputError, NotFoundError
from store.snapshot import Snapshot
from store.sql import statements as st
from store.sql import variables as names
from store.sql.functions import Moment, Surroundings
from store.sql.insert import InsertOptions, run_insert
from store.sql.parser import parse
from store.sql.result import Result, text_rows
from store.sql.select import QueryContext, open_query
from store.sql.show import create_table_text, describe, matching
from store.sql.variables import Variables
from store.store import Store
from store.table import Table

if TYPE_CHECKING:
    import duckdb

Clock = Callable[[], datetime]


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Session:
    """Runs Doris SQL on a store.

        with Session(store) as session:
            for result in session.execute("USE db; SELECT * FROM t"):
                ...

    One thread at a time. Every statement reads one version of each table, writers do not disturb it.

    Attributes:
        database: the current one, None before USE.
        variables: of this session.
    """

    def __init__(
        self,
        store: Store,
        database: str | None = None,
        *,
        global_variables: dict[str, str] | None = None,
        clock: Clock = _utc_now,
    ) -> None:
        """Args:
        global_variables: what SET GLOBAL writes; pass one dict to all sessions of a server.
        clock: gives the time with a zone.
        """
        self.store = store
        self.database = database
        self.variables = Variables(global_variables)
        self._user_variables: dict[str, str | None] = {}
        self._warnings: tuple[str, ...] = ()
        self._clock = clock
        self._connection: duckdb.DuckDBPyConnection | None = None

    def execute(self, text: str) -> Iterator[Result]:
        """Runs the statements of a text one after another; each runs when its result is asked for.

        The whole text is read first: one with a syntax error runs nothing.

        Raises:
            StoreError: of the class that tells what to do; statements before it stay done.
        """
        statements = parse(text)
        return (self.run(statement) for statement in statements)

    def run(self, statement: st.Statement) -> Result:
        """Runs one statement."""
        result = self._run(statement)
        if not isinstance(statement, st.ShowWarnings):
            self._warnings = result.warnings
        return result

    @contextmanager
    def stream(self, query: st.Query) -> Iterator[pa.RecordBatchReader]:
        """The rows of a query as they are read; the versions it reads are held until the block is left."""
        with ExitStack() as held:
            yield held.enter_context(open_query(query, self._query_context(held)))

    def close(self) -> None:
        """Ends the session; the store stays open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @singledispatchmethod
    def _run(self, statement: object) -> Result:
        raise InvalidInputError(f"{type(statement).__name__} statements cannot be run", kind="not_supported")

    @_run.register
    def _(self, statement: st.CreateDatabase) -> Result:
        self.store.create_database(statement.name, if_not_exists=statement.if_not_exists)
        return Result()

    @_run.register
    def _(self, statement: st.DropDatabase) -> Result:
        self.store.drop_database(statement.name, if_exists=statement.if_exists)
        if self.database == statement.name:
            self.database = None
        return Result()

    @_run.register
    def _(self, statement: st.UseDatabase) -> Result:
        if statement.name not in self.store.databases():
            raise NotFoundError(
                f"Unknown database '{statement.name}'", kind="unknown_database", database=statement.name
            )
        self.database = statement.name
        return Result()

    @_run.register
    def _(self, statement: st.CreateTable) -> Result:
        name = self._full_name(statement.table)
        self.store.create_table(name, statement.schema, if_not_exists=statement.if_not_exists)
        return Result()

    @_run.register
    def _(self, statement: st.DropTable) -> Result:
        self.store.drop_table(self._full_name(statement.table), if_exists=statement.if_exists)
        return Result()

    @_run.register
    def _(self, statement: st.Describe) -> Result:
        schema = self._table(statement.table).schema
        return describe(schema, show_hidden=self.variables.flag(names.SHOW_HIDDEN_COLUMNS))

    @_run.register
    def _(self, statement: st.ShowDatabases) -> Result:
        return text_rows(["Database"], [(name,) for name in matching(self.store.databases(), statement.like)])

    @_run.register
    def _(self, statement: st.ShowTables) -> Result:
        database = statement.database or self._current_database()
        found = matching(self.store.tables(database), statement.like)
        heading = f"Tables_in_{database}"
        if statement.is_full:
            return text_rows([heading, "Table_type"], [(name, "BASE TABLE") for name in found])
        return text_rows([heading], [(name,) for name in found])

    @_run.register
    def _(self, statement: st.ShowCreateTable) -> Result:
        schema = self._table(statement.table).schema
        name = statement.table.name
        return text_rows(["Table", "Create Table"], [(name, create_table_text(name, schema))])

    @_run.register
    def _(self, statement: st.ShowVariables) -> Result:
        found = {
            name: (value, default)
            for name, value, default in self.variables.items(is_global=statement.is_global)
        }
        rows = [
            (name, found[name][0], found[name][1], "0" if found[name][0] == found[name][1] else "1")
            for name in matching(found, statement.like)
        ]
        return text_rows(["Variable_name", "Value", "Default_Value", "Changed"], rows)

    @_run.register
    def _(self, _statement: st.ShowWarnings) -> Result:
        return text_rows(["Level", "Code", "Message"], [("Warning", "1105", text) for text in self._warnings])

    @_run.register
    def _(self, statement: st.SetVariables) -> Result:
        for assignment in statement.assignments:
            value = self._assigned(assignment.value)
            if assignment.scope == "user":
                self._user_variables[assignment.name] = value
            else:
                self.variables.set(assignment.name, value, is_global=assignment.scope == "global")
        return Result()

    @_run.register
    def _(self, statement: st.Insert) -> Result:
        moment = self._moment()
        options = InsertOptions(
            strict=self.variables.flag(names.INSERT_STRICT),
            max_filter_ratio=self.variables.number(names.INSERT_FILTER_RATIO),
            require_sequence=self.variables.flag(names.REQUIRE_SEQUENCE),
            now=moment.local.replace(microsecond=0),
            zone=moment.zone,
        )
        return run_insert(statement, self._table(statement.table), self.stream, options)

    @_run.register
    def _(self, statement: st.Query) -> Result:
        with self.stream(statement) as reader:
            return Result(reader.read_all())

    def _assigned(self, value: st.SetValue) -> str | None:
        if value is st.Word.DEFAULT:
            return None
        if isinstance(value, str):
            return value
        assert isinstance(value, exp.Expr)
        with self.stream(st.Query(exp.select(value), None)) as reader:
            result = reader.read_all().column(0)[0].as_py()
        return None if result is None else str(result)

    def _current_database(self) -> str:
        if self.database is None:
            raise InvalidInputError("No database selected; say USE db, or db.table", kind="no_database")
        return self.database

    def _full_name(self, table: st.TableName) -> str:
        return f"{table.database or self._current_database()}.{table.name}"

    def _table(self, table: st.TableName) -> Table:
        return self.store.table(self._full_name(table))

    def _query_context(self, held: ExitStack) -> QueryContext:
        opened: dict[tuple[str, int | None], Snapshot] = {}

        def open_snapshot(table: st.TableName, version: int | None) -> Snapshot:
            key = (self._full_name(table), version)
            if key not in opened:
                opened[key] = held.enter_context(self.store.table(key[0]).snapshot(version))
            return opened[key]

        return QueryContext(
            open_snapshot,
            self._connect,
            Surroundings(self._moment(), self.database),
            self._variable,
            show_hidden=self.variables.flag(names.SHOW_HIDDEN_COLUMNS),
        )

    def _connect(self) -> duckdb.DuckDBPyConnection:
        from store.sql import duck

        if self._connection is None:
            self._connection = duck.connect()
        return self._connection

    def _variable(self, name: str, scope: str) -> str | None:
        if scope == "user":
            return self._user_variables.get(name.lower())
        value = self.variables.get(name, is_global=scope == "global")
        if value is None:
            raise InvalidInputError(f"Unknown system variable '{name}'", kind="unknown_variable")
        return {"true": "1", "false": "0"}.get(value, value)

    def _moment(self) -> Moment:
        now = self._clock()
        utc = now.astimezone(UTC).replace(tzinfo=None)
        zone = self.variables.zone
        if zone[0] in "+-":
            minutes = int(zone[1:3]) * 60 + int(zone[4:6])
            local = utc + timedelta(minutes=-minutes if zone[0] == "-" else minutes)
        else:
            local = now.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        return Moment(local, utc, zone)
