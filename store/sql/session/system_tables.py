"""`information_schema`: the catalog as tables, computed when a query reads them.

Each table is a list of columns and a function that lists its rows; drivers, SQLAlchemy and dbt-doris read
them. Names are those of Doris. Routines, triggers and events do not exist: their tables are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final, Protocol

import pyarrow as pa

from seqstore.store.catalog import catalog
from seqstore.store.catalog.access.grants import ALL_DATABASES
from seqstore.store.catalog.access.user_hosts import plain_user, quoted_user
from seqstore.store.catalog.version_record import version_time_ms
from seqstore.store.ddl.views import View
from seqstore.store.errors import NotFoundError
from seqstore.store.schema.column import Column, Default
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.evaluate.table_functions import FunctionRows
from seqstore.store.sql.session.privileges import SYSTEM_DATABASE
from seqstore.store.sql.session.server_context import ServerContext
from seqstore.store.sql.session.show_output import partition_counts
from seqstore.store.sql.session.variables import Variables
from seqstore.store.store import Store
from seqstore.store.table import Table
from seqstore.store.types.column_types import INTEGER_RANGES, ColumnType, parse_type

DATABASE: Final = SYSTEM_DATABASE
_CATALOG: Final = "internal"
_NOT_GRANTABLE: Final = "NO"  # GRANT is a privilege of its own
_CHARSET: Final = "utf8mb4"
_COLLATION: Final = "utf8mb4_0900_bin"
_DIGITS: Final = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19, "LARGEINT": 39}

_NO_SIZES: Final = (None,) * 12  # of partitions: a segment may hold rows of several

Row = Sequence[Any]


class SessionView(Protocol):
    """The part of a session that system tables read."""

    store: Store
    variables: Variables
    server: ServerContext
    user: str | None

    def visible_databases(self) -> list[str]:
        """Returns the databases within which the user holds any privilege."""

    def table_filter(self, privilege: str = "") -> Callable[[str, str], bool]:
        """Returns whether the user holds a privilege, or any, on a table of a database."""

    def sees_user(self, name: str) -> bool:
        """Returns whether the user may see the processes and grants of a user."""


@dataclass(frozen=True)
class _SystemTable:
    """One table: columns as `NAME [TYPE], ...`, of type STRING unless given, and its rows."""

    columns: str
    rows: Callable[[SessionView], Iterable[Row]] = lambda _session: ()

    @property
    def schema(self) -> TableSchema:
        return _schema(self.columns)


@cache
def _schema(columns: str) -> TableSchema:
    pairs = [(*column.split(), "string")[:2] for column in columns.split(",")]
    made = [Column(name, parse_type(kind), id=i) for i, (name, kind) in enumerate(pairs, 1)]
    return TableSchema(columns=tuple(made), key=(made[0].name,))


def open_system_table(name: str, session: SessionView) -> FunctionRows:
    """Opens a table of `information_schema`; its name may be in upper or lower case.

    Raises:
        NotFoundError: no such table.
    """
    table = _table(name)
    fields = table.schema.arrow
    rows = list(table.rows(session))
    values = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    arrays = [pa.array(list(v), f.type) for v, f in zip(values, fields, strict=True)]
    made = pa.Table.from_arrays(arrays, schema=fields)
    return FunctionRows(f"{DATABASE}.{name}", table.schema, lambda: iter(made.to_batches()))


def system_table_names() -> list[str]:
    """Lists all tables of `information_schema`, sorted."""
    return sorted(_TABLES)


def system_schema(name: str) -> TableSchema:
    """Returns the columns of a system table; raises NotFoundError when there is none."""
    return _table(name).schema


def view_schema(view: View) -> TableSchema:
    """Returns the columns of a view, as they were when it was created."""
    made = [
        Column(c.name, parse_type(c.type), nullable=c.nullable, comment=c.comment, id=i)
        for i, c in enumerate(view.columns, 1)
    ]
    return TableSchema(columns=tuple(made), key=(), comment=view.comment)


def _table(name: str) -> _SystemTable:
    table = _TABLES.get(name.lower())
    if table is None:
        raise NotFoundError(f"Unknown table '{name}' in {DATABASE}", kind="unknown_table", table=name)
    return table


def _tables_of(session: SessionView) -> Iterable[tuple[str, str, Table]]:
    sees = session.table_filter()
    for database in session.visible_databases():
        for name in session.store.tables(database):
            if not sees(database, name):
                continue
            try:
                yield database, name, session.store.table(f"{database}.{name}")
            except NotFoundError:
                continue  # dropped between the two look-ups


def _views_of(session: SessionView) -> Iterable[tuple[str, View]]:
    sees = session.table_filter()
    for database in session.visible_databases():
        with suppress(NotFoundError):  # dropped between the two look-ups
            for view in session.store.views.of(database):
                if sees(database, view.name):
                    yield database, view


def _views(session: SessionView) -> Iterable[Row]:
    """Yields the views; as in MySQL their text is empty without a privilege that shows it."""
    shows = [session.table_filter(privilege) for privilege in ("SELECT", "SHOW_VIEW")]
    for database, view in _views_of(session):
        text = view.query if any(each(database, view.name) for each in shows) else ""
        yield (_CATALOG, database, view.name, text, "NONE", "NO", "root@%", "DEFINER", _CHARSET,
               _COLLATION)  # fmt: skip


def _schemata(session: SessionView) -> Iterable[Row]:
    for database in [DATABASE, *session.visible_databases()]:
        yield _CATALOG, database, _CHARSET, _COLLATION, None, "NO"


def _tables(session: SessionView) -> Iterable[Row]:
    for name in system_table_names():
        yield _table_row(DATABASE, name, "SYSTEM VIEW", None)
    for database, name, table in _tables_of(session):
        yield _table_row(database, name, "BASE TABLE", table)
    for database, view in _views_of(session):
        created = _utc(view.created_ms)
        yield (_CATALOG, database, view.name, "VIEW", "View", None, None, None, None, None, None, None, None,
               None, created, created, None, _COLLATION, None, None, view.comment)  # fmt: skip


def _table_row(database: str, name: str, kind: str, table: Table | None) -> Row:
    rows = size = updated = created = None
    comment = ""
    if table is not None:
        state = table.state()
        rows = state.row_count
        size = sum(live.segment.meta.data_bytes for live in state.segments.values())
        comment = state.schema.comment
        created, updated = _times(table)
    average = size // rows if rows and size is not None else 0
    engine = "Doris" if table is not None else "MEMORY"
    return (_CATALOG, database, name, kind, engine, 10, None, rows, average, size, None, 0, None, None,
            created, updated, None, _COLLATION, None, None, comment)  # fmt: skip


def _times(table: Table) -> tuple[datetime, datetime]:
    with table.catalog.read() as tx:
        version, _ = catalog.head(tx, table.id, table.name)
        made = tx.require("tables", catalog.table_key(table.id))["created_ms"]
        changed = version_time_ms(tx, table.id, version)
    return _utc(made), _utc(changed)


def _utc(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(tzinfo=None)


def _columns(session: SessionView) -> Iterable[Row]:
    for name in system_table_names():
        yield from _column_rows(DATABASE, name, system_schema(name), keyed=False)
    for database, name, table in _tables_of(session):
        yield from _column_rows(database, name, table.schema, keyed=True)
    for database, view in _views_of(session):
        yield from _column_rows(database, view.name, view_schema(view), keyed=False)


def _column_rows(database: str, table: str, schema: TableSchema, *, keyed: bool) -> Iterable[Row]:
    for place, column in enumerate(schema.columns, 1):
        kind = column.type
        is_text = kind.name in ("CHAR", "VARCHAR", "STRING")
        length = kind.byte_length_max if is_text else None
        default = column.default
        shown = None if default is None or default.kind == "null" else _shown_default(default)
        kind_of_key = "DUP" if schema.is_duplicate else "UNI"
        key = kind_of_key if keyed and column.name in schema.declared_key else ""
        precision, scale = _precision(kind)
        digits = kind.params[0] if kind.name == "DATETIME" else None
        yield (_CATALOG, database, table, column.name, place, shown, "YES" if column.nullable else "NO",
               kind.name.lower(), length, length, precision, scale, digits,
               _CHARSET if is_text else None, _COLLATION if is_text else None, kind.sql.lower(), key, "",
               "select,insert,update,references", column.comment, kind.byte_length_max, precision, scale,
               "", None)  # fmt: skip


def _shown_default(default: Default) -> str:
    return default.text if default.kind == "constant" else default.sql


def _precision(kind: ColumnType) -> tuple[int | None, int | None]:
    if kind.name in INTEGER_RANGES:
        return _DIGITS.get(kind.name), 0
    if pa.types.is_decimal(kind.arrow):
        return kind.arrow.precision, kind.arrow.scale
    return {"FLOAT": (7, None), "DOUBLE": (15, None)}.get(kind.name, (None, None))


def _statistics(session: SessionView) -> Iterable[Row]:
    for database, name, table in _tables_of(session):
        schema = table.schema
        for place, column in enumerate(schema.unique_key, 1):
            nullable = "YES" if schema.column(column).nullable else ""
            yield (_CATALOG, database, name, 0, database, "PRIMARY", place, column, "A", None, None, None,
                   nullable, "BTREE", "", "", "YES", None)  # fmt: skip


def _key_columns(session: SessionView) -> Iterable[Row]:
    for database, name, table in _tables_of(session):
        for place, column in enumerate(table.schema.unique_key, 1):
            yield (_CATALOG, database, "PRIMARY", _CATALOG, database, name, column, place, None, None, None,
                   None)  # fmt: skip


def _constraints(session: SessionView) -> Iterable[Row]:
    for database, name, table in _tables_of(session):
        if not table.schema.is_duplicate:
            yield _CATALOG, database, "PRIMARY", database, name, "PRIMARY KEY", "YES"
        for constraint in table.schema.constraints:
            yield _CATALOG, database, constraint.name, database, name, "CHECK", "YES"


def _checks(session: SessionView) -> Iterable[Row]:
    for database, _name, table in _tables_of(session):
        yield from ((_CATALOG, database, item.name, item.sql) for item in table.schema.constraints)


def _variables(session: SessionView, *, is_global: bool = False) -> Iterable[Row]:
    for name, value, default in session.variables.items(is_global=is_global):
        yield name, value, default, value != default


def _processes(session: SessionView) -> Iterable[Row]:
    for process in session.server.processes.all():
        if not session.sees_user(process.user):
            continue
        command = "Query" if process.text else "Sleep"
        yield (
            process.number,
            plain_user(process.user),
            "",
            process.database,
            command,
            process.seconds,
            "",
            process.shown_text,
        )


def _user_privileges(session: SessionView) -> Iterable[Row]:
    for grantee, scope, privilege in _grants(session):
        if scope == ALL_DATABASES:
            yield grantee, _CATALOG, privilege, "YES" if privilege == "ADMIN" else _NOT_GRANTABLE


def _schema_privileges(session: SessionView) -> Iterable[Row]:
    for grantee, scope, privilege in _grants(session):
        if scope != ALL_DATABASES and "." not in scope:
            yield grantee, _CATALOG, scope, privilege, _NOT_GRANTABLE


def _table_privileges(session: SessionView) -> Iterable[Row]:
    for grantee, scope, privilege in _grants(session):
        database, dot, table = scope.partition(".")
        if dot:
            yield grantee, _CATALOG, database, table, privilege, _NOT_GRANTABLE


def _grants(session: SessionView) -> Iterable[tuple[str, str, str]]:
    """Yields what users hold, by their own grants or by those of their roles."""
    accounts = session.store.accounts
    for name in filter(session.sees_user, accounts.names()):
        account = accounts.find(name)
        for scope, held in sorted(account.effective.items()) if account is not None else ():
            yield from ((quoted_user(name), scope, privilege) for privilege in held)


def workload_group_rows(session: SessionView) -> Iterable[Row]:
    """Yields the workload groups, in the columns `GROUP_COLUMNS`."""
    for number, group in enumerate(session.store.workload_groups.all(), 1):
        running, waiting = session.server.queues.counts(group.name)
        yield (number, group.name, group.memory_text, group.max_concurrency, group.max_queue_size,
               group.queue_timeout, running, waiting)  # fmt: skip


def _partitions(session: SessionView) -> Iterable[Row]:
    """Yields the partitions of each table; a table without partitions counts as one."""
    for database, name, table in _tables_of(session):
        with table.snapshot() as snapshot:
            partitioning = snapshot.schema.partitioning
            if partitioning is None:
                yield (_CATALOG, database, name, name, None, 1, None, "", None, "", None, "",
                       snapshot.count(), *_NO_SIZES)  # fmt: skip
                continue
            found = partition_counts(snapshot)
        expression = partitioning.sql.partition(" BY ")[2].partition(" ")[2].strip("()")
        for place, (partition, count) in enumerate(found, 1):
            bounds = partition.sql.partition(" VALUES ")[2]
            yield (_CATALOG, database, name, partition.name, None, place, None, partitioning.method, None,
                   expression, None, bounds, count, *_NO_SIZES)  # fmt: skip


GROUP_COLUMNS: Final = ("Id", "Name", "memory_limit", "max_concurrency", "max_queue_size", "queue_timeout",
                        "running_query_num", "waiting_query_num")  # fmt: skip
_PARTITION_COLUMNS: Final = (
    "TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, PARTITION_NAME, SUBPARTITION_NAME,"
    " PARTITION_ORDINAL_POSITION int, SUBPARTITION_ORDINAL_POSITION int, PARTITION_METHOD,"
    " SUBPARTITION_METHOD, PARTITION_EXPRESSION, SUBPARTITION_EXPRESSION, PARTITION_DESCRIPTION,"
    " TABLE_ROWS bigint, AVG_ROW_LENGTH bigint, DATA_LENGTH bigint, MAX_DATA_LENGTH bigint,"
    " INDEX_LENGTH bigint, DATA_FREE bigint, CREATE_TIME datetime, UPDATE_TIME datetime, CHECK_TIME datetime,"
    " CHECKSUM bigint, PARTITION_COMMENT, NODEGROUP, TABLESPACE_NAME"
)
_CONTEXT_COLUMNS: Final = "CHARACTER_SET_CLIENT, COLLATION_CONNECTION, DATABASE_COLLATION"
_VARIABLE_COLUMNS: Final = "VARIABLE_NAME, VARIABLE_VALUE, DEFAULT_VALUE, CHANGED boolean"
_TABLES: Final[dict[str, _SystemTable]] = {
    "schemata": _SystemTable(
        "CATALOG_NAME, SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME, SQL_PATH,"
        " DEFAULT_ENCRYPTION",
        _schemata,
    ),
    "tables": _SystemTable(
        "TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, VERSION bigint, ROW_FORMAT,"
        " TABLE_ROWS bigint, AVG_ROW_LENGTH bigint, DATA_LENGTH bigint, MAX_DATA_LENGTH bigint,"
        " INDEX_LENGTH bigint, DATA_FREE bigint, AUTO_INCREMENT bigint, CREATE_TIME datetime, "
        "UPDATE_TIME datetime, CHECK_TIME datetime, TABLE_COLLATION, CHECKSUM bigint, CREATE_OPTIONS,"
        " TABLE_COMMENT",
        _tables,
    ),
    "columns": _SystemTable(
        "TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, ORDINAL_POSITION bigint, COLUMN_DEFAULT,"
        " IS_NULLABLE, DATA_TYPE, CHARACTER_MAXIMUM_LENGTH bigint, CHARACTER_OCTET_LENGTH bigint,"
        " NUMERIC_PRECISION bigint, NUMERIC_SCALE bigint, DATETIME_PRECISION bigint, CHARACTER_SET_NAME,"
        " COLLATION_NAME, COLUMN_TYPE, COLUMN_KEY, EXTRA, PRIVILEGES, COLUMN_COMMENT, COLUMN_SIZE bigint,"
        " DECIMAL_PRECISION bigint, DECIMAL_DIGITS bigint, GENERATION_EXPRESSION, SRS_ID bigint",
        _columns,
    ),
    "statistics": _SystemTable(
        "TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, NON_UNIQUE bigint, INDEX_SCHEMA, INDEX_NAME,"
        " SEQ_IN_INDEX bigint, COLUMN_NAME, COLLATION, CARDINALITY bigint, SUB_PART bigint, PACKED, NULLABLE,"
        " INDEX_TYPE, COMMENT, INDEX_COMMENT, IS_VISIBLE, EXPRESSION",
        _statistics,
    ),
    "key_column_usage": _SystemTable(
        "CONSTRAINT_CATALOG, CONSTRAINT_SCHEMA, CONSTRAINT_NAME, TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME,"
        " COLUMN_NAME, ORDINAL_POSITION bigint, POSITION_IN_UNIQUE_CONSTRAINT bigint,"
        " REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME, REFERENCED_COLUMN_NAME",
        _key_columns,
    ),
    "table_constraints": _SystemTable(
        "CONSTRAINT_CATALOG, CONSTRAINT_SCHEMA, CONSTRAINT_NAME, TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_TYPE,"
        " ENFORCED",
        _constraints,
    ),
    "referential_constraints": _SystemTable(
        "CONSTRAINT_CATALOG, CONSTRAINT_SCHEMA, CONSTRAINT_NAME, UNIQUE_CONSTRAINT_CATALOG,"
        " UNIQUE_CONSTRAINT_SCHEMA,"
        " UNIQUE_CONSTRAINT_NAME, MATCH_OPTION, UPDATE_RULE, DELETE_RULE, TABLE_NAME, REFERENCED_TABLE_NAME"
    ),
    "views": _SystemTable(
        "TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, VIEW_DEFINITION, CHECK_OPTION, IS_UPDATABLE, DEFINER,"
        " SECURITY_TYPE, CHARACTER_SET_CLIENT, COLLATION_CONNECTION",
        _views,
    ),
    "partitions": _SystemTable(_PARTITION_COLUMNS, _partitions),
    "routines": _SystemTable(
        "SPECIFIC_NAME, ROUTINE_CATALOG, ROUTINE_SCHEMA, ROUTINE_NAME, ROUTINE_TYPE, DATA_TYPE,"
        " CHARACTER_MAXIMUM_LENGTH bigint, CHARACTER_OCTET_LENGTH bigint, NUMERIC_PRECISION bigint,"
        " NUMERIC_SCALE bigint, DATETIME_PRECISION bigint, CHARACTER_SET_NAME, COLLATION_NAME,"
        " DTD_IDENTIFIER,"
        " ROUTINE_BODY, ROUTINE_DEFINITION, EXTERNAL_NAME, EXTERNAL_LANGUAGE, PARAMETER_STYLE,"
        " IS_DETERMINISTIC, SQL_DATA_ACCESS, SQL_PATH, SECURITY_TYPE, CREATED datetime, LAST_ALTERED"
        " datetime,"
        f" SQL_MODE, ROUTINE_COMMENT, DEFINER, {_CONTEXT_COLUMNS}"
    ),
    "parameters": _SystemTable(
        "SPECIFIC_CATALOG, SPECIFIC_SCHEMA, SPECIFIC_NAME, ORDINAL_POSITION bigint, PARAMETER_MODE,"
        " PARAMETER_NAME, DATA_TYPE, CHARACTER_MAXIMUM_LENGTH bigint, CHARACTER_OCTET_LENGTH bigint,"
        " NUMERIC_PRECISION bigint, NUMERIC_SCALE bigint, DATETIME_PRECISION bigint, CHARACTER_SET_NAME,"
        " COLLATION_NAME, DTD_IDENTIFIER, ROUTINE_TYPE"
    ),
    "triggers": _SystemTable(
        "TRIGGER_CATALOG, TRIGGER_SCHEMA, TRIGGER_NAME, EVENT_MANIPULATION, EVENT_OBJECT_CATALOG,"
        " EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, ACTION_ORDER bigint, ACTION_CONDITION, ACTION_STATEMENT,"
        " ACTION_ORIENTATION, ACTION_TIMING, ACTION_REFERENCE_OLD_TABLE, ACTION_REFERENCE_NEW_TABLE,"
        " ACTION_REFERENCE_OLD_ROW, ACTION_REFERENCE_NEW_ROW, CREATED datetime, SQL_MODE, DEFINER,"
        f" {_CONTEXT_COLUMNS}"
    ),
    "events": _SystemTable(
        "EVENT_CATALOG, EVENT_SCHEMA, EVENT_NAME, DEFINER, TIME_ZONE, EVENT_BODY, EVENT_DEFINITION,"
        " EVENT_TYPE,"
        " EXECUTE_AT datetime, INTERVAL_VALUE, INTERVAL_FIELD, SQL_MODE, STARTS datetime, ENDS datetime,"
        " STATUS,"
        " ON_COMPLETION, CREATED datetime, LAST_ALTERED datetime, LAST_EXECUTED datetime, EVENT_COMMENT,"
        f" ORIGINATOR bigint, {_CONTEXT_COLUMNS}"
    ),
    "files": _SystemTable(
        "FILE_ID bigint, FILE_NAME, FILE_TYPE, TABLESPACE_NAME, TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME,"
        " LOGFILE_GROUP_NAME, LOGFILE_GROUP_NUMBER bigint, ENGINE, FULLTEXT_KEYS, DELETED_ROWS bigint,"
        " UPDATE_COUNT bigint, FREE_EXTENTS bigint, TOTAL_EXTENTS bigint, EXTENT_SIZE bigint,"
        " INITIAL_SIZE bigint, MAXIMUM_SIZE bigint, AUTOEXTEND_SIZE bigint, CREATION_TIME datetime,"
        " LAST_UPDATE_TIME datetime, LAST_ACCESS_TIME datetime, RECOVER_TIME bigint,"
        " TRANSACTION_COUNTER bigint, VERSION bigint, ROW_FORMAT, TABLE_ROWS bigint, AVG_ROW_LENGTH bigint,"
        " DATA_LENGTH bigint, MAX_DATA_LENGTH bigint, INDEX_LENGTH bigint, DATA_FREE bigint,"
        " CREATE_TIME datetime, UPDATE_TIME datetime, CHECK_TIME datetime, CHECKSUM bigint, STATUS, EXTRA"
    ),
    "session_variables": _SystemTable(_VARIABLE_COLUMNS, _variables),
    "global_variables": _SystemTable(_VARIABLE_COLUMNS, partial(_variables, is_global=True)),
    "processlist": _SystemTable(
        "ID bigint, USER, HOST, DB, COMMAND, TIME bigint, STATE, INFO",
        _processes,
    ),
    "user_privileges": _SystemTable("GRANTEE, TABLE_CATALOG, PRIVILEGE_TYPE, IS_GRANTABLE", _user_privileges),
    "schema_privileges": _SystemTable(
        "GRANTEE, TABLE_CATALOG, TABLE_SCHEMA, PRIVILEGE_TYPE, IS_GRANTABLE",
        _schema_privileges,
    ),
    "table_privileges": _SystemTable(
        "GRANTEE, TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, PRIVILEGE_TYPE, IS_GRANTABLE",
        _table_privileges,
    ),
    "column_privileges": _SystemTable(
        "GRANTEE, TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, PRIVILEGE_TYPE, IS_GRANTABLE"
    ),
    "workload_groups": _SystemTable(
        "ID bigint, NAME, MEMORY_LIMIT, MAX_CONCURRENCY bigint, MAX_QUEUE_SIZE bigint, QUEUE_TIMEOUT bigint,"
        " RUNNING_QUERY_NUM bigint, WAITING_QUERY_NUM bigint",
        workload_group_rows,
    ),
    "engines": _SystemTable(
        "ENGINE, SUPPORT, COMMENT, TRANSACTIONS, XA, SAVEPOINTS",
        lambda _session: [("Olap", "DEFAULT", "unique-key tables", "YES", "NO", "NO")],
    ),
    "character_sets": _SystemTable(
        "CHARACTER_SET_NAME, DEFAULT_COLLATE_NAME, DESCRIPTION, MAXLEN bigint",
        lambda _session: [(_CHARSET, _COLLATION, "UTF-8 Unicode", 4)],
    ),
    "collations": _SystemTable(
        "COLLATION_NAME, CHARACTER_SET_NAME, ID bigint, IS_DEFAULT, IS_COMPILED, SORTLEN bigint,"
        " PAD_ATTRIBUTE",
        lambda _session: [(_COLLATION, _CHARSET, 309, "Yes", "Yes", 1, "NO PAD")],
    ),
    "collation_character_set_applicability": _SystemTable(
        "COLLATION_NAME, CHARACTER_SET_NAME", lambda _session: [(_COLLATION, _CHARSET)]
    ),
    "check_constraints": _SystemTable(
        "CONSTRAINT_CATALOG, CONSTRAINT_SCHEMA, CONSTRAINT_NAME, CHECK_CLAUSE", _checks
    ),
}
