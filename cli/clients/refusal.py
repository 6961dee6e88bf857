"""The MySQL error number, SQL state and message of each error; clients and drivers branch on them."""

from __future__ import annotations

from typing import Final

from seqstore.store.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    UnavailableError,
)
from seqstore.store.sql.parse.statement_values import Describe, DropTable

_BY_KIND: Final = {
    "syntax": (1064, "42000"),
    "empty_query": (1065, "42000"),
    "unknown_database": (1049, "42000"),
    "no_database": (1046, "3D000"),
    "unknown_table": (1146, "42S02"),
    "unknown_column": (1054, "42S22"),
    "not_unique": (1066, "42000"),
    "ambiguous_column": (1052, "23000"),
    "not_grouped": (1055, "42000"),
    "aggregate_place": (1111, "HY000"),
    "several_rows": (1242, "21000"),
    "no_tables": (1096, "HY000"),
    "out_of_range": (1690, "22003"),
    "unknown_function": (1305, "42000"),
    "unknown_savepoint": (1305, "42000"),
    "unknown_variable": (1193, "HY000"),
    "bad_variable": (1231, "42000"),
    "column_count": (1136, "21S01"),
    "bad_password": (1045, "28000"),
    "no_privilege": (1227, "42000"),
    "is_view": (1347, "HY000"),
    "is_table": (1347, "HY000"),
    "invalid_view": (1356, "HY000"),
    "duplicate_column": (1060, "42S21"),
    "not_supported": (1235, "42000"),
    "interrupted": (1317, "70100"),
    "characteristics": (1568, "25001"),
    "read_only_transaction": (1792, "25006"),
    "login_blocked": (1129, "HY000"),
    "too_many_connections": (1040, "08004"),
    "too_many_user_connections": (1203, "42000"),
    "packet_too_large": (1153, "08S01"),
    "out_of_memory": (1041, "HY000"),
    "read_only_variable": (1621, "HY000"),
    "is_fact": (1238, "HY000"),
    "unknown_charset": (1115, "42000"),
    "unknown_collation": (1273, "HY000"),
    "safe_updates": (1175, "HY000"),
    "query_timeout": (3024, "HY000"),
    "read_timeout": (1159, "08S01"),
    "too_many_prepared": (1461, "42000"),
    "unknown_process": (1094, "HY000"),
}
_BY_CLASS: Final[tuple[tuple[type[StoreError], int, str], ...]] = (
    (AccessDeniedError, 1227, "42000"),
    (ConflictError, 1213, "40001"),  # for drivers: "run the transaction again"
    (AlreadyExistsError, 1050, "42S01"),
    (NotFoundError, 1146, "42S02"),
    (UnavailableError, 1205, "HY000"),
    (InvalidInputError, 1105, "HY000"),
)


# Of an unknown table in these statements: MySQL's number for DROP, and the one for DESC that SQLAlchemy's
# dialects of Doris take as an answer. Spark's JDBC source and others take 1146 alone.
_UNKNOWN_TABLE: Final = (1051, "42S02")


def number_and_state(error: StoreError, statement: object = None) -> tuple[int, str]:
    """Returns the error number and the SQL state of an error.

    Args:
        statement: the one that failed, None where none was run.
    """
    if error.kind == "unknown_table" and isinstance(statement, (Describe, DropTable)):
        return _UNKNOWN_TABLE
    known = _BY_KIND.get(error.kind)
    if known is not None:
        return known
    return next(((n, state) for kind, n, state in _BY_CLASS if isinstance(error, kind)), (1105, "HY000"))


def message_of(error: StoreError) -> str:
    """Returns the message of an error on one line.

    All conflicts have one number and state. So their message begins with the name of the exception.
    """
    text = str(error)
    line = " ".join(text.split()) if "\n" in text else text
    return f"{type(error).__name__}: {line}" if isinstance(error, ConflictError) else line
