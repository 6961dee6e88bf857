"""SQL in Doris's dialect: `Session(store).execute("SELECT ...")`.

parse        texts to tokens, trees and statement values
translate    a query's tree in DuckDB's dialect; the conditions that a scan decides
evaluate     queries on snapshots: the scan-only plan, or DuckDB without files, network or settings
write        the rows of INSERT, UPDATE, DELETE and MERGE
session      sessions, variables, privileges, processes, information_schema
statements   one module a family of statements: their words, a parse and a run function

Sessions and each family of statements are imported when they are first used: loads need only expressions.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from seqstore.store.sql.result import Result
from seqstore.store.sql.session.statement_kind import parse

if TYPE_CHECKING:
    from seqstore.store.sql.session.server_context import ServerContext
    from seqstore.store.sql.session.session import Session

_LATE: Final = {
    "ServerContext": "seqstore.store.sql.session.server_context",
    "Session": "seqstore.store.sql.session.session",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LATE[name]), name)
    return found


__all__ = ["Result", "ServerContext", "Session", "parse"]
