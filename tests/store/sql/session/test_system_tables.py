"""`information_schema` and system variables, as clients of MySQL 8 read them."""

from __future__ import annotations

from typing import Any, Final

import pytest

from seqstore import InvalidInputError, Session
from tests.support.statements import dicts, last_result

_ROUTINE_CONTEXT: Final = "CHARACTER_SET_CLIENT COLLATION_CONNECTION DATABASE_COLLATION"
# The columns of the tables in MySQL 8, by its documents.
MYSQL: Final = {
    "CHARACTER_SETS": "CHARACTER_SET_NAME DEFAULT_COLLATE_NAME DESCRIPTION MAXLEN",
    "CHECK_CONSTRAINTS": "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME CHECK_CLAUSE",
    "COLLATIONS": "COLLATION_NAME CHARACTER_SET_NAME ID IS_DEFAULT IS_COMPILED SORTLEN PAD_ATTRIBUTE",
    "COLLATION_CHARACTER_SET_APPLICABILITY": "COLLATION_NAME CHARACTER_SET_NAME",
    "COLUMNS": "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME ORDINAL_POSITION COLUMN_DEFAULT IS_NULLABLE"
    " DATA_TYPE CHARACTER_MAXIMUM_LENGTH CHARACTER_OCTET_LENGTH NUMERIC_PRECISION NUMERIC_SCALE"
    " DATETIME_PRECISION CHARACTER_SET_NAME COLLATION_NAME COLUMN_TYPE COLUMN_KEY EXTRA PRIVILEGES"
    " COLUMN_COMMENT GENERATION_EXPRESSION SRS_ID",
    "COLUMN_PRIVILEGES": "GRANTEE TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME PRIVILEGE_TYPE"
    " IS_GRANTABLE",
    "ENGINES": "ENGINE SUPPORT COMMENT TRANSACTIONS XA SAVEPOINTS",
    "EVENTS": "EVENT_CATALOG EVENT_SCHEMA EVENT_NAME DEFINER TIME_ZONE EVENT_BODY EVENT_DEFINITION EVENT_TYPE"
    " EXECUTE_AT INTERVAL_VALUE INTERVAL_FIELD SQL_MODE STARTS ENDS STATUS ON_COMPLETION CREATED LAST_ALTERED"
    f" LAST_EXECUTED EVENT_COMMENT ORIGINATOR {_ROUTINE_CONTEXT}",
    "FILES": "FILE_ID FILE_NAME FILE_TYPE TABLESPACE_NAME TABLE_CATALOG TABLE_SCHEMA TABLE_NAME"
    " LOGFILE_GROUP_NAME LOGFILE_GROUP_NUMBER ENGINE FULLTEXT_KEYS DELETED_ROWS UPDATE_COUNT FREE_EXTENTS"
    " TOTAL_EXTENTS EXTENT_SIZE INITIAL_SIZE MAXIMUM_SIZE AUTOEXTEND_SIZE CREATION_TIME LAST_UPDATE_TIME"
    " LAST_ACCESS_TIME RECOVER_TIME TRANSACTION_COUNTER VERSION ROW_FORMAT TABLE_ROWS AVG_ROW_LENGTH"
    " DATA_LENGTH MAX_DATA_LENGTH INDEX_LENGTH DATA_FREE CREATE_TIME UPDATE_TIME CHECK_TIME CHECKSUM STATUS"
    " EXTRA",
    "KEY_COLUMN_USAGE": "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_CATALOG TABLE_SCHEMA"
    " TABLE_NAME COLUMN_NAME ORDINAL_POSITION POSITION_IN_UNIQUE_CONSTRAINT REFERENCED_TABLE_SCHEMA"
    " REFERENCED_TABLE_NAME REFERENCED_COLUMN_NAME",
    "PARAMETERS": "SPECIFIC_CATALOG SPECIFIC_SCHEMA SPECIFIC_NAME ORDINAL_POSITION PARAMETER_MODE"
    " PARAMETER_NAME DATA_TYPE CHARACTER_MAXIMUM_LENGTH CHARACTER_OCTET_LENGTH NUMERIC_PRECISION"
    " NUMERIC_SCALE DATETIME_PRECISION CHARACTER_SET_NAME COLLATION_NAME DTD_IDENTIFIER ROUTINE_TYPE",
    "PARTITIONS": "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME PARTITION_NAME SUBPARTITION_NAME"
    " PARTITION_ORDINAL_POSITION SUBPARTITION_ORDINAL_POSITION PARTITION_METHOD SUBPARTITION_METHOD"
    " PARTITION_EXPRESSION SUBPARTITION_EXPRESSION PARTITION_DESCRIPTION TABLE_ROWS AVG_ROW_LENGTH"
    " DATA_LENGTH MAX_DATA_LENGTH INDEX_LENGTH DATA_FREE CREATE_TIME UPDATE_TIME CHECK_TIME CHECKSUM"
    " PARTITION_COMMENT NODEGROUP TABLESPACE_NAME",
    "PROCESSLIST": "ID USER HOST DB COMMAND TIME STATE INFO",
    "REFERENTIAL_CONSTRAINTS": "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME"
    " UNIQUE_CONSTRAINT_CATALOG"
    " UNIQUE_CONSTRAINT_SCHEMA UNIQUE_CONSTRAINT_NAME MATCH_OPTION UPDATE_RULE DELETE_RULE TABLE_NAME"
    " REFERENCED_TABLE_NAME",
    "ROUTINES": "SPECIFIC_NAME ROUTINE_CATALOG ROUTINE_SCHEMA ROUTINE_NAME ROUTINE_TYPE DATA_TYPE"
    " CHARACTER_MAXIMUM_LENGTH CHARACTER_OCTET_LENGTH NUMERIC_PRECISION NUMERIC_SCALE DATETIME_PRECISION"
    " CHARACTER_SET_NAME COLLATION_NAME DTD_IDENTIFIER ROUTINE_BODY ROUTINE_DEFINITION EXTERNAL_NAME"
    " EXTERNAL_LANGUAGE PARAMETER_STYLE IS_DETERMINISTIC SQL_DATA_ACCESS SQL_PATH SECURITY_TYPE CREATED"
    f" LAST_ALTERED SQL_MODE ROUTINE_COMMENT DEFINER {_ROUTINE_CONTEXT}",
    "SCHEMATA": "CATALOG_NAME SCHEMA_NAME DEFAULT_CHARACTER_SET_NAME DEFAULT_COLLATION_NAME SQL_PATH"
    " DEFAULT_ENCRYPTION",
    "SCHEMA_PRIVILEGES": "GRANTEE TABLE_CATALOG TABLE_SCHEMA PRIVILEGE_TYPE IS_GRANTABLE",
    "STATISTICS": "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME NON_UNIQUE INDEX_SCHEMA INDEX_NAME SEQ_IN_INDEX"
    " COLUMN_NAME COLLATION CARDINALITY SUB_PART PACKED NULLABLE INDEX_TYPE COMMENT INDEX_COMMENT IS_VISIBLE"
    " EXPRESSION",
    "TABLES": "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME TABLE_TYPE ENGINE VERSION ROW_FORMAT TABLE_ROWS"
    " AVG_ROW_LENGTH DATA_LENGTH MAX_DATA_LENGTH INDEX_LENGTH DATA_FREE AUTO_INCREMENT CREATE_TIME"
    " UPDATE_TIME"
    " CHECK_TIME TABLE_COLLATION CHECKSUM CREATE_OPTIONS TABLE_COMMENT",
    "TABLE_CONSTRAINTS": "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_SCHEMA TABLE_NAME"
    " CONSTRAINT_TYPE ENFORCED",
    "TABLE_PRIVILEGES": "GRANTEE TABLE_CATALOG TABLE_SCHEMA TABLE_NAME PRIVILEGE_TYPE IS_GRANTABLE",
    "TRIGGERS": "TRIGGER_CATALOG TRIGGER_SCHEMA TRIGGER_NAME EVENT_MANIPULATION EVENT_OBJECT_CATALOG"
    " EVENT_OBJECT_SCHEMA EVENT_OBJECT_TABLE ACTION_ORDER ACTION_CONDITION ACTION_STATEMENT"
    " ACTION_ORIENTATION ACTION_TIMING ACTION_REFERENCE_OLD_TABLE ACTION_REFERENCE_NEW_TABLE"
    f" ACTION_REFERENCE_OLD_ROW ACTION_REFERENCE_NEW_ROW CREATED SQL_MODE DEFINER {_ROUTINE_CONTEXT}",
    "USER_PRIVILEGES": "GRANTEE TABLE_CATALOG PRIVILEGE_TYPE IS_GRANTABLE",
    "VIEWS": "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME VIEW_DEFINITION CHECK_OPTION IS_UPDATABLE DEFINER"
    " SECURITY_TYPE CHARACTER_SET_CLIENT COLLATION_CONNECTION",
}
# Variables that drivers read when they connect, or in their metadata.
ASKED: Final = [
    "auto_increment_increment",
    "auto_increment_offset",
    "autocommit",
    "character_set_client",
    "character_set_connection",
    "character_set_database",
    "character_set_filesystem",
    "character_set_results",
    "character_set_server",
    "character_set_system",
    "collation_connection",
    "collation_database",
    "collation_server",
    "default_storage_engine",
    "foreign_key_checks",
    "gtid_mode",
    "hostname",
    "information_schema_stats_expiry",
    "init_connect",
    "interactive_timeout",
    "license",
    "lower_case_table_names",
    "max_allowed_packet",
    "max_execution_time",
    "net_buffer_length",
    "net_read_timeout",
    "net_write_timeout",
    "performance_schema",
    "protocol_version",
    "query_cache_size",
    "query_cache_type",
    "read_only",
    "socket",
    "sql_auto_is_null",
    "sql_mode",
    "sql_notes",
    "sql_quote_show_create",
    "sql_safe_updates",
    "sql_select_limit",
    "super_read_only",
    "system_time_zone",
    "time_zone",
    "transaction_isolation",
    "transaction_read_only",
    "tx_isolation",
    "tx_read_only",
    "unique_checks",
    "version",
    "version_comment",
    "version_compile_machine",
    "version_compile_os",
    "wait_timeout",
]


@pytest.mark.parametrize("table", sorted(MYSQL))
def test_a_system_table_has_the_columns_of_mysql(session: Session, table: str) -> None:
    """Connector/J and others name columns such as ROUTINE_COMMENT, which were unknown."""
    last_result(session, "CREATE TABLE t (k INT) UNIQUE KEY(k)")
    answer = dicts(session, f"SELECT {', '.join(MYSQL[table].split())} FROM information_schema.{table}")
    assert table not in ("COLUMNS", "TABLES", "STATISTICS", "TABLE_CONSTRAINTS", "PARTITIONS") or answer


@pytest.mark.parametrize("scope", ["", "SESSION.", "GLOBAL."])
def test_every_variable_that_clients_read_has_a_value(session: Session, scope: str) -> None:
    """connectorx asks for `@@socket`, MariaDB's JDBC driver for `@@read_only`."""
    (answer,) = dicts(session, "SELECT " + ", ".join(f"@@{scope}{name} AS {name}" for name in ASKED))
    assert None not in answer.values()
    assert answer["socket"] == ""
    assert answer["read_only"] == 0
    assert answer["transaction_read_only"] == 0


def test_constraints_are_listed_with_their_kinds(session: Session) -> None:
    last_result(
        session,
        "CREATE TABLE t (k INT NOT NULL, n INT) UNIQUE KEY(k);"
        "ALTER TABLE t ADD CONSTRAINT positive CHECK (n > 0)",
    )
    found = dicts(
        session,
        "SELECT CONSTRAINT_NAME AS n, CONSTRAINT_TYPE AS t FROM information_schema.table_constraints ORDER"
        " BY n",
    )
    assert found == [{"n": "PRIMARY", "t": "PRIMARY KEY"}, {"n": "positive", "t": "CHECK"}]
    assert dicts(session, "SELECT CHECK_CLAUSE AS c FROM information_schema.check_constraints") == [
        {"c": "n > 0"}
    ]


def test_show_index_names_the_table_without_its_database(session: Session) -> None:
    """Connector/J takes `Table` for the name in getPrimaryKeys, and the key belonged to no table."""
    last_result(session, "CREATE TABLE t (k INT, v INT) UNIQUE KEY(k, v)")
    found = dicts(session, "SHOW INDEX FROM db.t")
    assert [(row["Table"], row["Column_name"]) for row in found] == [("t", "k"), ("t", "v")]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT k AS x FROM t HAVING x > 1 ORDER BY x", [2, 3]),
        ("SELECT upper(v) AS v FROM t HAVING v = 'B' ORDER BY v", ["B", "B"]),
        ("SELECT k FROM t WHERE k < 3 HAVING k > 1", [2]),
        ("SELECT count(*) AS c FROM t HAVING c > 1", [3]),
        ("SELECT count(*) AS c FROM t HAVING c > 3", []),
        ("SELECT group_concat(v) AS g FROM t HAVING g = ''", []),
        ("SELECT v AS g FROM t GROUP BY v HAVING count(*) > 1", []),
        ("SELECT row_number() OVER (ORDER BY k) AS r FROM t HAVING r = 2", [2]),
        ("SELECT (SELECT count(*) FROM t) AS c FROM t HAVING c = 3 LIMIT 1", [3]),
    ],
)
def test_having_without_groups_filters_dicts(session: Session, query: str, expected: list[Any]) -> None:
    """Connector/J filters getTables by HAVING on an alias."""
    last_result(
        session,
        "CREATE TABLE t (k INT, v VARCHAR(9)) UNIQUE KEY(k); INSERT INTO t VALUES (1, 'a'), (2, 'B'), (3,"
        " 'b')",
    )
    assert [next(iter(row.values())) for row in dicts(session, query)] == expected


@pytest.mark.parametrize(
    ("collation", "expected"),
    [
        ("utf8mb4_bin", 1),
        ("utf8mb4_0900_bin", 1),
        ("utf8_general_ci", 2),
        ("utf8mb4_0900_ai_ci", 3),
    ],
)
def test_collate_compares_as_its_name_tells(session: Session, collation: str, expected: int) -> None:
    """Connector/J writes the collation of the connection into its query for columns."""
    query = (
        "SELECT count(*) AS c FROM (SELECT 'e' AS v UNION SELECT 'E' UNION SELECT 'é') q"
        " WHERE v COLLATE {} = 'e'"
    )
    assert dicts(session, query.format(collation)) == [{"c": expected}]
    with pytest.raises(InvalidInputError, match="Unknown collation: 'klingon'"):
        dicts(session, query.format("klingon"))


def test_columns_name_empty_defaults_and_fraction_digits(session: Session) -> None:
    """An empty default was shown as two quotes, and every DATETIME had six digits."""
    last_result(
        session,
        "CREATE TABLE c (k INT, s VARCHAR(5) DEFAULT '', n INT DEFAULT '7', d DATE, a DATETIME, "
        "b DATETIME(3), e DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)) UNIQUE KEY(k)",
    )
    query = "SELECT column_name, column_default, datetime_precision FROM information_schema.columns"
    found = dicts(
        session, f"{query} WHERE table_schema = 'db' AND table_name = 'c' ORDER BY ordinal_position"
    )
    assert [tuple(row.values()) for row in found] == [
        ("k", None, None),
        ("s", "", None),
        ("n", "7", None),
        ("d", None, None),
        ("a", None, 0),
        ("b", None, 3),
        ("e", "CURRENT_TIMESTAMP(6)", 6),
    ]
