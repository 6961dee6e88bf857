"""Session variables and the values that each may have; `client_variables` has those that choose nothing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from seqstore.store.check.write_modes import parse_new_key_behavior
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.properties import GROUP_COMMIT_MODES
from seqstore.store.sql.session import client_variables as others
from seqstore.store.sql.translate.calls import SYSTEM_ZONE
from seqstore.store.transaction.transaction_options import DmlOptions
from seqstore.store.types.cast import check_zone

SHOW_HIDDEN_COLUMNS: Final = "show_hidden_columns"
SKIP_DELETE_SIGN: Final = "skip_delete_sign"
REQUIRE_SEQUENCE: Final = "require_sequence_in_insert"
PARTIAL_UPDATE: Final = "enable_unique_key_partial_update"
NEW_KEY_BEHAVIOR: Final = "partial_update_new_key_behavior"
INSERT_STRICT: Final = "enable_insert_strict"
INSERT_FILTER_RATIO: Final = "insert_max_filter_ratio"
GROUP_COMMIT: Final = "group_commit"  # of statements of single rows; empty: as the table has it
TIME_ZONE: Final = "time_zone"
CONFLICT_RETRIES: Final = "conflict_retries"  # of UPDATE, DELETE and MERGE
UPDATE_LOCK_SECONDS: Final = "update_lock_seconds"  # the same statements wait for each other; -1: the setting
TXN_APP_ID: Final = "txn_app_id"  # with TXN_VERSION: statements that write are idempotent (catalog.app_ids)
TXN_VERSION: Final = "txn_version"
TXN_VERSION_AUTO_RESET: Final = "txn_version_auto_reset"  # a version applies to one statement or transaction
# Delta's names of the three must be quoted: SET `spark.databricks.delta.write.txnAppId` = 'job'.
_ALIASES: Final = {
    "spark.databricks.delta.write.txnappid": TXN_APP_ID,
    "spark.databricks.delta.write.txnversion": TXN_VERSION,
    "spark.databricks.delta.write.txnversion.autoreset.enabled": TXN_VERSION_AUTO_RESET,
    "innodb_lock_wait_timeout": UPDATE_LOCK_SECONDS,
}
AUTOCOMMIT: Final = "autocommit"
TRANSACTION_ISOLATION: Final = "transaction_isolation"
TRANSACTION_READ_ONLY: Final = "transaction_read_only"
OFF_BEGINS: Final = "autocommit_off_begins_transaction"  # false: as in Doris, whose clients need not commit
COLUMN_COPIES: Final = "enable_column_copies"
READS_OWN_WRITES: Final = "transaction_reads_own_writes"  # false: as in Doris (X7)
# The names of these variables before MySQL 8; both are listed.
_OLD_NAMES: Final = {"tx_isolation": TRANSACTION_ISOLATION, "tx_read_only": TRANSACTION_READ_ONLY}
_EXPERIMENTAL: Final = "experimental_"  # Doris's names may have it in front
_REPEATABLE_READ: Final = "REPEATABLE-READ"
# Levels of SET TRANSACTION ISOLATION LEVEL; None is the level of each table, and at least the promised one.
# Spark's JDBC writer and most connection pools set the weaker two.
ISOLATION_LEVELS: Final[dict[str, str | None]] = {
    "READ-UNCOMMITTED": None,
    "READ-COMMITTED": None,
    _REPEATABLE_READ: None,
    "WRITE-SERIALIZABLE": "WriteSerializable",
    "SERIALIZABLE": "Serializable",
}
SHOW_CREATE_STYLE: Final = "show_create_table_style"  # doris, or mysql for clients that parse the text
INSERT_TIMEOUT: Final = "insert_timeout"
QUERY_TIMEOUT: Final = "query_timeout"
STATEMENT_SECONDS: Final = (
    "max_statement_time"  # of MariaDB: of any statement beside those limits; 0: no limit
)
EXECUTION_MS: Final = "max_execution_time"  # of a query in ms, beside query_timeout; 0: no limit
WAIT_TIMEOUT: Final = "wait_timeout"  # seconds without a command, beside the server's own limit
SAFE_UPDATES: Final = "sql_safe_updates"
SQL_MODE: Final = "sql_mode"
EXEC_MEM_LIMIT: Final = "exec_mem_limit"
WORKLOAD_GROUP: Final = "workload_group"
MAX_ALLOWED_PACKET: Final = "max_allowed_packet"
SELECT_LIMIT: Final = "sql_select_limit"  # rows of a SELECT without LIMIT
LAST_INSERT_ID: Final = ("last_insert_id", "identity")  # read as variables too: the value of the function
WARNING_COUNT: Final = "warning_count"
DIAGNOSTICS: Final = (
    WARNING_COUNT,
    "error_count",
)  # of the statement before; one that succeeded has no errors
_CHARACTER_SETS: Final = tuple(
    f"character_set_{of}" for of in ("client", "connection", "database", "filesystem", "results", "server")
)
_COLLATIONS: Final = tuple(f"collation_{of}" for of in ("connection", "database", "server"))
_MEMORY_BYTES_MIN: Final = 16 << 20

_BOOLEANS: Final = {
    SHOW_HIDDEN_COLUMNS: "false",
    SKIP_DELETE_SIGN: "false",
    REQUIRE_SEQUENCE: "true",
    INSERT_STRICT: "true",
    PARTIAL_UPDATE: "false",
    TXN_VERSION_AUTO_RESET: "false",
    AUTOCOMMIT: "true",
    TRANSACTION_READ_ONLY: "false",
    OFF_BEGINS: "true",
    READS_OWN_WRITES: "true",
    COLUMN_COPIES: "true",
    SAFE_UPDATES: "false",
}
_DEFAULTS: Final = {
    **_BOOLEANS,
    INSERT_FILTER_RATIO: "1.0",
    NEW_KEY_BEHAVIOR: "APPEND",
    SHOW_CREATE_STYLE: "doris",
    GROUP_COMMIT: "",
    TIME_ZONE: SYSTEM_ZONE,
    CONFLICT_RETRIES: "0",
    UPDATE_LOCK_SECONDS: "-1",
    TXN_APP_ID: "",
    TXN_VERSION: "",
    INSERT_TIMEOUT: "14400",
    QUERY_TIMEOUT: "900",
    EXEC_MEM_LIMIT: str(100 << 30),  # as in Doris; the server's own limit is lower
    WORKLOAD_GROUP: "",
    **dict.fromkeys(_CHARACTER_SETS, "utf8mb4"),
    **dict.fromkeys(_COLLATIONS, "utf8mb4_0900_bin"),
    SQL_MODE: "",
    EXECUTION_MS: "0",
    STATEMENT_SECONDS: "0",
    TRANSACTION_ISOLATION: _REPEATABLE_READ,
    MAX_ALLOWED_PACKET: str(64 << 20),
    SELECT_LIMIT: "9223372036854775807",
    WAIT_TIMEOUT: "28800",
    "interactive_timeout": "28800",  # wait_timeout counts, as in a session that is none
    **others.FACTS,
    **{name: only for name, (only, _) in others.FIXED.items()},
    **others.WITHOUT_EFFECT,
}
# Modes of MySQL in which quotes, backslashes or operators mean something else.
_READING_MODES: Final = frozenset(["ANSI", "ANSI_QUOTES", "DB2", "HIGH_NOT_PRECEDENCE", "MAXDB", "MSSQL",
                                   "NO_BACKSLASH_ESCAPES", "ORACLE", "PIPES_AS_CONCAT",
                                   "POSTGRESQL"])  # fmt: skip
_TRUE: Final = frozenset(["true", "on", "1"])
_FALSE: Final = frozenset(["false", "off", "0"])


class Variables:
    """One session's variables over the global ones.

    Args:
        shared: the global values that were set, by name; pass one dict to all sessions of a server.

    Attributes:
        values: the session's value of every known variable.
        on: the boolean variables that are true in the session.
        own: the variables that the session, or SET GLOBAL before it, gave a value.
        autocommit: a statement outside of BEGIN .. COMMIT is a transaction of its own.
        zone: name or `+hh:mm` of the session's time zone, or SYSTEM for the machine's.
    """

    values: Mapping[str, str]
    on: Collection[str]
    own: Collection[str]
    autocommit: bool
    zone: str

    def __init__(self, shared: dict[str, str] | None = None) -> None:
        self._shared = shared if shared is not None else {}
        self._own = dict(self._shared)
        self._settle()

    def _settle(self) -> None:
        """Sets the attributes after a change of the session's own values."""
        self.values = values = {**_DEFAULTS, **self._own}
        self.on = frozenset(name for name in _BOOLEANS if values[name].lower() in _TRUE)
        self.own = self._own.keys()
        self.autocommit = AUTOCOMMIT in self.on or OFF_BEGINS not in self.on
        self.zone = values[TIME_ZONE]

    def get(self, name: str, *, is_global: bool = False) -> str:
        """Returns the value as text.

        Raises:
            InvalidInputError: an unknown variable.
        """
        name = _known(name)
        return self._shared.get(name, _DEFAULTS[name]) if is_global else self.values[name]

    def set(self, name: str, value: str | None, *, is_global: bool = False) -> None:
        """Sets a value; None restores the default. A global value applies to sessions that begin later.

        Raises:
            InvalidInputError: an unknown variable, or a value outside of its range.
        """
        name = _known(name)
        if is_global and name in (TXN_APP_ID, TXN_VERSION):
            raise InvalidInputError(
                f"Variable '{name}' belongs to one session: writers that share a pair regard each "
                "other's writes as their own",
                kind="bad_variable",
            )
        if name == MAX_ALLOWED_PACKET and not is_global:
            raise InvalidInputError(
                f"SESSION variable '{name}' is read-only. Use SET GLOBAL to assign the value",
                kind="read_only_variable",
            )
        values = self._shared if is_global else self._own
        if value is None:
            values.pop(name, None)
        else:
            values[name] = checked_value(name, value)
        self._settle()

    @contextmanager
    def changed(self, settings: Sequence[tuple[str, str]]) -> Iterator[None]:
        """Sets values for the length of a block, as the hint SET_VAR does for one statement."""
        before = dict(self._own)
        try:
            for name, value in settings:
                self.set(name, value)
            yield
        finally:
            self._own = before
            self._settle()

    def take_app_pair(self) -> tuple[str | None, int | None]:
        """Returns the pair that makes the next write idempotent, (None, None) when none is set.

        Resets the version if it applies to one write only.
        """
        app_id, version = self.values[TXN_APP_ID] or None, self.values[TXN_VERSION] or None
        if TXN_VERSION_AUTO_RESET in self.on:
            self.set(TXN_VERSION, None)
        return app_id, int(version) if version is not None else None

    @property
    def lock_seconds(self) -> float | None:
        """The seconds to wait for other updates of a table; None stands for the setting."""
        seconds = float(self.values[UPDATE_LOCK_SECONDS])
        return None if seconds < 0 else seconds

    def dml_options(self, operation: str, *, label: str | None = None, label_prefix: str = "") -> DmlOptions:
        """Builds the options of a statement that reads and writes.

        They include the session's pair of idempotent writes.
        """
        app_id, version = self.take_app_pair()
        return DmlOptions(
            operation,
            label=label,
            label_prefix=label_prefix,
            retries=int(self.values[CONFLICT_RETRIES]),
            lock_seconds=self.lock_seconds,
            txn_app_id=app_id,
            txn_version=version,
        )

    def items(self, *, is_global: bool = False) -> Iterator[tuple[str, str, str]]:
        """Yields name, value and default of every variable, sorted."""
        values = self._shared if is_global else self._own
        for name in sorted({*_DEFAULTS, *_OLD_NAMES}):
            default = _DEFAULTS[_canonical(name)]
            yield name, values.get(_canonical(name), default), default


def _canonical(name: str) -> str:
    lower = name.lower().removeprefix(_EXPERIMENTAL)
    return _OLD_NAMES.get(lower) or _ALIASES.get(lower, lower)


def _known(name: str) -> str:
    """Returns the name that a variable is kept by.

    Raises:
        InvalidInputError: there is no such variable.
    """
    found = _canonical(name)
    if found in _DEFAULTS:
        return found
    near = difflib.get_close_matches(found, _DEFAULTS, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else "; SHOW VARIABLES lists those there are"
    raise InvalidInputError(f"Unknown system variable '{name}'{hint}", kind="unknown_variable")


def _checked_level(value: str) -> str:
    level = "-".join(re.split(r"[\s_-]+", value.strip().upper())).replace("WRITESERIAL", "WRITE-SERIAL")
    if level not in ISOLATION_LEVELS:
        expected = "SERIALIZABLE, WRITE SERIALIZABLE, REPEATABLE READ, READ COMMITTED or READ UNCOMMITTED"
        raise _refused(TRANSACTION_ISOLATION, value, expected)
    return level


def is_characteristic(name: str) -> bool:
    """Returns whether a variable is a characteristic of transactions, by any of its names."""
    return _canonical(name) in (TRANSACTION_ISOLATION, TRANSACTION_READ_ONLY)


def checked_value(name: str, value: str) -> str:
    """Checks a value and returns it as it is kept: in canonical form where the variable has one.

    Raises:
        InvalidInputError: an unknown variable, or a value outside of its range.
    """
    name = _known(name)
    if name in _BOOLEANS:
        lowered = value.lower()
        if lowered not in _TRUE | _FALSE:
            raise _refused(name, value, "true or false")
        return "true" if lowered in _TRUE else "false"
    others.check(name, value)
    if name in _NUMBERS:
        fits, expected = _NUMBERS[name]
        if not fits(value):
            raise _refused(name, value, expected)
    normalize = _NORMALIZED.get(name)
    return normalize(value) if normalize is not None else value


def _refused(name: str, value: str, expected: str) -> InvalidInputError:
    return InvalidInputError(
        f"Variable '{name}' can't be set to the value of '{value}'; expected {expected}", kind="bad_variable"
    )


def _is_within(value: str, largest: float) -> bool:
    try:
        return value.isascii() and 0 <= float(value) <= largest
    except ValueError:
        return False


def _checked_zone(value: str) -> str:
    return SYSTEM_ZONE if value.strip().upper() == SYSTEM_ZONE else check_zone(value)


def _checked_charset(value: str) -> str:
    """Refuses character sets in which clients read other texts than are sent; NULL asks for the server's."""
    if not value.lower().startswith(("utf8", "binary")) and value.lower() not in ("null", ""):
        raise InvalidInputError(
            f"Unknown character set: '{value}'; texts are UTF-8, so SET NAMES utf8mb4 or binary",
            kind="unknown_charset",
        )
    return value


def _checked_collation(value: str) -> str:
    if not value.lower().startswith(("utf8", "binary", "null")):
        raise InvalidInputError(
            f"Unknown collation: '{value}'; texts are UTF-8 and compared by their bytes, as utf8mb4_0900_bin",
            kind="unknown_collation",
        )
    return value


def _checked_mode(value: str) -> str:
    """Refuses the modes that change how a text is read; the others change nothing here."""
    for mode in filter(None, (part.strip().upper() for part in value.split(","))):
        if mode in _READING_MODES:
            raise InvalidInputError(
                f"Variable 'sql_mode' can't be set to the value of '{value}': {mode} is not supported; "
                "texts, names and || are read as in Doris's default mode",
                kind="bad_variable",
            )
    return value


def _checked_style(value: str) -> str:
    if value.lower() not in ("doris", "mysql"):
        raise _refused(SHOW_CREATE_STYLE, value, "doris or mysql")
    return value.lower()


def _checked_group_commit(value: str) -> str:
    if value.lower() not in ("", *GROUP_COMMIT_MODES):
        raise _refused(GROUP_COMMIT, value, f"one of {', '.join(GROUP_COMMIT_MODES)}")
    return value.lower()


def _is_count(value: str) -> bool:
    """Returns whether a value is a whole number from 0 on that fits in 64 bits."""
    return value.isascii() and value.isdigit() and len(value) <= 20 and int(value) < 1 << 64


def _is_whole(value: str) -> bool:
    return _is_count(value.removeprefix("-"))


# Variables that hold numbers, each with a test and the values that pass it.
_NUMBERS: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    INSERT_FILTER_RATIO: (lambda value: _is_within(value, 1), "a number from 0 to 1"),
    STATEMENT_SECONDS: (lambda value: _is_within(value, 31_536_000), "seconds from 0 to 31536000"),
    EXEC_MEM_LIMIT: (
        lambda value: _is_count(value) and int(value) >= _MEMORY_BYTES_MIN,
        f"a number of bytes from {_MEMORY_BYTES_MIN}",
    ),
    MAX_ALLOWED_PACKET: (
        lambda value: _is_count(value) and 1024 <= int(value) <= 1 << 30,
        "a number of bytes from 1024 to 1073741824",
    ),
    TXN_VERSION: (lambda value: not value or _is_count(value), "a whole number from 0 on"),
    **dict.fromkeys((SELECT_LIMIT, EXECUTION_MS), (_is_count, "a whole number from 0 on")),
    WAIT_TIMEOUT: (lambda value: _is_count(value) and int(value) > 0, "a number of seconds from 1 on"),
    **dict.fromkeys(
        (CONFLICT_RETRIES, UPDATE_LOCK_SECONDS, INSERT_TIMEOUT, QUERY_TIMEOUT),
        (_is_whole, "a whole number"),
    ),
}
_NORMALIZED: Final[dict[str, Callable[[str], str]]] = {
    NEW_KEY_BEHAVIOR: parse_new_key_behavior,
    TIME_ZONE: _checked_zone,
    SHOW_CREATE_STYLE: _checked_style,
    GROUP_COMMIT: _checked_group_commit,
    TRANSACTION_ISOLATION: _checked_level,
    SQL_MODE: _checked_mode,
    **dict.fromkeys(_CHARACTER_SETS, _checked_charset),
    **dict.fromkeys(_COLLATIONS, _checked_collation),
}
