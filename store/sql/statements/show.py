"""SHOW statements about tables and the server; drivers and tools run most of them when they connect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.catalog.access.user_hosts import plain_user
from seqstore.store.errors import NotFoundError
from seqstore.store.sql.parse.statement_values import ShowWarnings, TableName
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session import variables as names
from seqstore.store.sql.session.server_context import Ports
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import describe, matching, parse_database, parse_like, parse_limit
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.sql.session.system_tables import open_system_table
from seqstore.store.sql.translate.functions import SERVER_VERSION


@dataclass(frozen=True)
class ShowColumns:
    table: TableName
    like: str | None
    is_full: bool


def parse_table_from(stream: TokenStream) -> TableName:
    """Parses `FROM table [FROM database]`."""
    if not stream.take_one_of("FROM", "IN"):
        stream.fail("FROM and a table")
    table = parse_table_name(stream)
    if stream.take_one_of("FROM", "IN"):
        table = TableName(stream.name("a database name"), table.name)
    return table


def _parse_columns(stream: TokenStream) -> ShowColumns:
    is_full = stream.tokens[1].text.upper() == "FULL"
    return ShowColumns(parse_table_from(stream), parse_like(stream), is_full)


def _columns(statement: ShowColumns, session: Session) -> Result:
    schema = session.schema(statement.table)
    rows = describe(schema, show_hidden=names.SHOW_HIDDEN_COLUMNS in session.variables.on).rows
    assert rows is not None
    wanted = set(matching(rows.column("Field").to_pylist(), statement.like))
    found = [row for row in rows.to_pylist() if row["Field"] in wanted]
    key = "DUP" if schema.is_duplicate else "PRI"
    # SHOW COLUMNS has MySQL's values where DESC has Doris's.
    for row in found:
        row["Null"] = row["Null"].upper()
        row["Key"] = key if row["Key"] == "true" else ""
    if not statement.is_full:
        return text_rows(list(rows.schema.names), [tuple(row.values()) for row in found])
    comments = {column.name: column.comment for column in schema.columns}
    headings = ("Field", "Type", "Collation", "Null", "Key", "Default", "Extra", "Privileges", "Comment")
    return text_rows(
        headings,
        [
            (r["Field"], r["Type"], None, r["Null"], r["Key"], r["Default"], r["Extra"], "",
             comments.get(r["Field"], ""))
            for r in found
        ],
    )  # fmt: skip


@dataclass(frozen=True)
class ShowIndex:
    table: TableName


def _index(statement: ShowIndex, session: Session) -> Result:
    schema = session.schema(statement.table)
    name = statement.table.name
    headings = ("Table", "Non_unique", "Key_name", "Seq_in_index", "Column_name", "Collation", "Cardinality",
                "Sub_part", "Packed", "Null", "Index_type", "Comment", "Properties")  # fmt: skip
    rows = [
        (name, "0", "PRIMARY", str(place), column, "A", "", "", "", "YES" if schema.column(column).nullable
         else "", "BTREE", "", "")
        for place, column in enumerate(schema.unique_key, 1)
    ]  # fmt: skip
    return text_rows(headings, rows)


@dataclass(frozen=True)
class ShowTableStatus:
    database: str | None
    like: str | None


def _parse_status(stream: TokenStream) -> ShowTableStatus:
    return ShowTableStatus(parse_database(stream), parse_like(stream))


def _status(statement: ShowTableStatus, session: Session) -> Result:
    database = statement.database or session.current_database()
    columns = ("TABLE_NAME Name, ENGINE Engine, VERSION Version, ROW_FORMAT Row_format, TABLE_ROWS Rows,"
               " AVG_ROW_LENGTH Avg_row_length, DATA_LENGTH Data_length, MAX_DATA_LENGTH Max_data_length,"
               " INDEX_LENGTH Index_length, DATA_FREE Data_free, AUTO_INCREMENT Auto_increment,"
               " CREATE_TIME Create_time, UPDATE_TIME Update_time, CHECK_TIME Check_time,"
               " TABLE_COLLATION Collation, CHECKSUM Checksum, CREATE_OPTIONS Create_options,"
               " TABLE_COMMENT Comment")  # fmt: skip
    if database not in session.store.databases():
        raise NotFoundError(f"Unknown database '{database}'", kind="unknown_database", database=database)
    rows = open_system_table("tables", session).scan().read_all()
    pairs = [pair.split() for pair in columns.split(",")]
    own = pc.equal(rows.column("TABLE_SCHEMA"), database)
    found = rows.filter(own).select([source for source, _ in pairs])
    wanted = set(matching(found.column("TABLE_NAME").to_pylist(), statement.like))
    kept = [name in wanted for name in found.column("TABLE_NAME").to_pylist()]
    return Result(found.filter(pa.array(kept, pa.bool_())).rename_columns([heading for _, heading in pairs]))


@dataclass(frozen=True)
class ShowProcesses:
    is_full: bool


def _parse_processes(stream: TokenStream) -> ShowProcesses:
    return ShowProcesses(stream.tokens[1].text.upper() == "FULL")


def _processes(statement: ShowProcesses, session: Session) -> Result:
    headings = ("CurrentConnected", "Id", "User", "Host", "LoginTime", "Catalog", "Db", "Command", "Time",
                "State", "QueryId", "Info")  # fmt: skip
    own = session.server.connection_id
    rows = [
        ("Yes" if p.number == own else "No", str(p.number), plain_user(p.user), "", "", "internal",
         p.database, "Query" if p.text else "Sleep", str(p.seconds), "OK", "",
         p.shown_text if statement.is_full else p.shown_text[:100])
        for p in session.server.processes.all()
        if session.sees_user(p.user)
    ]  # fmt: skip
    return text_rows(headings, rows)


@dataclass(frozen=True)
class ShowList:
    """A list that does not depend on tables; `name` holds the words behind SHOW."""

    name: str
    like: str | None


# Words behind SHOW, headings, and the only row if there is one. Tools read the empty lists too.
_LISTS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "ENGINES": (("Engine", "Support", "Comment", "Transactions", "XA", "Savepoints"),
                ("Olap", "DEFAULT", "unique-key tables", "YES", "NO", "NO")),
    "COLLATION": (("Collation", "Charset", "Id", "Default", "Compiled", "Sortlen"),
                  ("utf8mb4_0900_bin", "utf8mb4", "309", "Yes", "Yes", "1")),
    "CHARSET": (("Charset", "Description", "Default collation", "Maxlen"),
                ("utf8mb4", "UTF-8 Unicode", "utf8mb4_0900_bin", "4")),
    "CATALOGS": (("CatalogId", "CatalogName", "Type", "IsCurrent", "CreateTime", "LastUpdateTime", "Comment"),
                 ("0", "internal", "internal", "yes", "", "", "the catalog of this store")),
    "FRONTENDS": (("Name", "Host", "HttpPort", "QueryPort", "ArrowFlightSqlPort", "Role", "IsMaster",
                   "Alive", "Version"), ()),
    "BACKENDS": (("BackendId", "Host", "BePort", "HttpPort", "ArrowFlightSqlPort", "Alive", "Version"), ()),
    "STATUS": (("Variable_name", "Value"), ()),
    "OPEN TABLES": (("Database", "Table", "In_use", "Name_locked"), ()),
    "PLUGINS": (("Name", "Status", "Type", "Library", "License"), ()),
    "TRIGGERS": (("Trigger", "Event", "Table", "Statement", "Timing"), ()),
    "EVENTS": (("Db", "Name", "Definer", "Status"), ()),
    "PROCEDURE STATUS": (("Db", "Name", "Type", "Definer"), ()),
    "FUNCTION STATUS": (("Db", "Name", "Type", "Definer"), ()),
    "PROFILES": (("Query_ID", "Duration", "Query"), ()),
    # There is no binary log and no replication by it.
    "MASTER STATUS": (("File", "Position", "Binlog_Do_DB", "Binlog_Ignore_DB", "Executed_Gtid_Set"), ()),
    "SLAVE STATUS": (("Slave_IO_State", "Master_Host", "Master_User", "Master_Port"), ()),
}  # fmt: skip
_HOST: Final = "127.0.0.1"
_SAME: Final = {"CHARACTER SET": "CHARSET", "GLOBAL STATUS": "STATUS", "SESSION STATUS": "STATUS",
                "STORAGE ENGINES": "ENGINES"}  # fmt: skip


def _parse_list(stream: TokenStream) -> ShowList:
    name = " ".join(token.text.upper() for token in stream.tokens[1 : stream.at])
    parse_database(stream)
    like = parse_like(stream)
    return ShowList(_SAME.get(name, name), like)


def _list(statement: ShowList, session: Session) -> Result:
    headings, row = _LISTS[statement.name]
    if statement.name in ("FRONTENDS", "BACKENDS"):
        row = _node(statement.name, session.server.ports())
    return text_rows(headings, [row] if matching(row[:1], statement.like) else [])


def _node(name: str, ports: Ports) -> tuple[str, ...]:
    """Returns this server as Doris's only frontend or backend; a service that does not run has port -1."""
    http, mysql, thrift, flight = (
        str(port or -1) for port in (ports.http, ports.mysql, ports.thrift, ports.flight)
    )
    if name == "FRONTENDS":
        return ("fe_1", _HOST, http, mysql, flight, "FOLLOWER", "true", "true", SERVER_VERSION)
    return ("10001", _HOST, thrift, http, flight, "true", SERVER_VERSION)


@dataclass(frozen=True)
class Kill:
    """KILL [CONNECTION | QUERY] n; of a query, its connection continues."""

    number: int
    is_query: bool = False


def _parse_kill(stream: TokenStream) -> Kill:
    is_query = stream.take_one_of("QUERY", "CONNECTION") == "QUERY"
    return Kill(stream.integer("a connection number"), is_query)


def _kill(statement: Kill, session: Session) -> None:
    """Ends a connection or its statement; processes of other users need ADMIN, and are unknown without."""
    process = session.server.processes.find(statement.number)
    if process is None or not session.sees_user(process.user):
        raise NotFoundError(f"Unknown thread id: {statement.number}", kind="unknown_process")
    if statement.is_query:
        process.interrupt()
    else:
        process.stop()


def _both(*words: str) -> tuple[str, ...]:
    return tuple(f"SHOW {full}{word}" for word in words for full in ("", "FULL "))


def _parse_warnings(stream: TokenStream) -> ShowWarnings:
    if stream.word(-1) == "COUNT":
        stream.need("(", "*", ")")
        what = stream.take_one_of("WARNINGS", "ERRORS") or stream.fail("WARNINGS or ERRORS")
        return ShowWarnings(what == "ERRORS", is_count=True)
    return ShowWarnings(stream.word(-1) == "ERRORS", *parse_limit(stream))


def _warnings(statement: ShowWarnings, session: Session) -> Result:
    told = () if statement.is_errors else session.warnings
    if statement.is_count:
        name = "error_count" if statement.is_errors else names.WARNING_COUNT
        return text_rows([f"@@session.{name}"], [(str(len(told)),)])
    rows = text_rows(["Level", "Code", "Message"], [("Warning", "1105", text) for text in told]).rows
    assert rows is not None
    return Result(rows.slice(statement.offset, statement.limit))


KINDS: Final = (
    StatementKind(_both("COLUMNS", "FIELDS"), ShowColumns, _parse_columns, _columns),
    StatementKind(
        ("SHOW INDEX", "SHOW INDEXES", "SHOW KEYS"),
        ShowIndex,
        lambda stream: ShowIndex(parse_table_from(stream)),
        _index,
    ),
    StatementKind(("SHOW TABLE STATUS",), ShowTableStatus, _parse_status, _status),
    StatementKind(_both("PROCESSLIST"), ShowProcesses, _parse_processes, _processes),
    StatementKind(tuple(f"SHOW {name}" for name in [*_LISTS, *_SAME]), ShowList, _parse_list, _list),
    StatementKind(("KILL",), Kill, _parse_kill, _kill),
    StatementKind(
        ("SHOW WARNINGS", "SHOW ERRORS", "SHOW COUNT"),
        ShowWarnings,
        _parse_warnings,
        _warnings,
    ),
)
