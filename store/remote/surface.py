"""The calls that a store elsewhere takes, with the privileges that each needs.

Client and server read the same tables. The public surface of the engine's handles is the union of three
parts: calls that run at the server, members that the client's class defines by others, and members that it
refuses by name. A member that is in none of them is refused, too: a new one cannot reach the server by
accident.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        privileges: on the table of the call, in the order in which they are checked.
        is_read: it changes nothing that lasts, so it may run again when its reply was lost.
    """

    privileges: tuple[str, ...] = ()
    is_read: bool = False


_READ: Final = Call(("SELECT",), is_read=True)
_LOAD: Final = Call(("LOAD",))
_LOAD_READ: Final = Call(("LOAD",), is_read=True)
_CHANGE: Final = Call(("LOAD", "SELECT"))
_ALTER: Final = Call(("ALTER",))
_OPEN: Final = Call()
_OPEN_READ: Final = Call(is_read=True)


def _calls(call: Call, *names: str) -> dict[str, Call]:
    return dict.fromkeys(names, call)


# What a name of `Store` needs depends on its arguments: `cli.remote.store_calls` checks it.
CALLS: Final[Mapping[str, Mapping[str, Call]]] = {
    "Store": {
        **_calls(
            _OPEN_READ, "databases", "tables", "table", "find_transaction", "load_job", "overview", "snapshot"
        ),
        **_calls(_LOAD, "broker_load", "replay", "stream_load", "upload"),
        **_calls(
            _OPEN,
            "abort_transaction",
            "clean_labels",
            "commit_transaction",
            "create_database",
            "create_table",
            "drop_database",
            "drop_table",
            "maintain",
            "rename_table",
            "replace_table",
            "set_config",
            "transaction",
            "session",
        ),
    },
    "Table": {
        **_calls(
            _READ,
            "changes",
            "count",
            "get",
            "history",
            "kept_versions",
            "key_history",
            "oldest_version",
            "scan",
            "scan_share",
            "scan_shares",
            "schema",
            "snapshot",
            "version",
            "version_as_of",
        ),
        **_calls(_LOAD_READ, "begun_stagings", "find_label", "outcome", "refuse_label", "staging"),
        **_calls(_LOAD, "begin_load", "begin_staging", "delete", "end_stagings", "upsert"),
        **_calls(_CHANGE, "delete_where", "merge", "update"),
        **_calls(_ALTER, "check", "optimize", "purge", "restore", "vacuum"),
    },
    "Load": {
        **_calls(_LOAD_READ, "txn_id", "require_revision"),
        **_calls(
            _LOAD, "abort", "adopt", "clear", "commit", "note_filtered", "precommit", "prepare", "write"
        ),
    },
    "Snapshot": _calls(_READ, "count", "extreme", "get", "has_bounds", "metrics", "scan"),
    "StoreSnapshot": _calls(_READ, "table"),
    "Transaction": {
        **_calls(_OPEN_READ, "has_written", "is_open", "table", "txn_id"),
        **_calls(_OPEN, "commit", "expire", "precommit", "rollback"),
    },
    "TransactionTable": {
        **_calls(_READ, "count", "get", "log_keys", "log_scan", "scan", "snapshot"),
        **_calls(_LOAD_READ, "is_skipped", "writes"),
        **_calls(_LOAD, "begin_load", "begin_write", "change", "delete", "log_constraints", "upsert"),
        **_calls(_CHANGE, "delete_where", "merge", "update"),
    },
    "Session": {**_calls(_OPEN_READ, "parse", "stream"), **_calls(_OPEN, "execute")},
    "Upload": _calls(_OPEN, "write"),
    "Staging": {**_calls(_LOAD_READ, "check_columns"), **_calls(_LOAD, "write")},
}
"""The calls by the class of their handle and their name."""

BESIDE: Final[Mapping[str, frozenset[str]]] = {
    "Store": frozenset(["broker_load", "load_job", "overview", "replay", "session", "stream_load", "upload"]),
    "Table": frozenset(
        [
            "begin_staging",
            "begun_stagings",
            "end_stagings",
            "kept_versions",
            "outcome",
            "scan_share",
            "scan_shares",
            "staging",
        ]
    ),
    "Load": frozenset(["adopt"]),
    "Session": frozenset(["parse", "stream"]),
}
"""Calls of a client that are no public members of the engine's class."""

REFUSED: Final[Mapping[str, Mapping[str, str]]] = {
    "Store": {
        "connect": "Store.connect connects",
        "open": "Store.connect opens a store elsewhere",
        "table_of_id": "table() finds it by its name",
    },
    "Table": {
        "maintainer": "the server compacts its tables",
        "meets_conflicts": "the server remembers it",
    },
    "Session": {
        "current_database": "the attribute database has its name",
        "in_zone": "the time zone is that of the server's session",
        "interrupt": "KILL QUERY ends a statement",
        "run": "execute() takes texts",
        "running": "SHOW PROCESSLIST shows what runs",
        "transaction": "Store.transaction begins one",
    },
    "Transaction": {
        "check_writable": "the server checks it as a statement writes",
        "lock": "the server takes the update lock as a statement begins",
    },
    "TransactionTable": {
        "close": "the end of the transaction closes it",
        "undoing": "a statement that fails undoes itself at the server",
    },
}
"""Public members that a store elsewhere does not have, with what stands for them."""
