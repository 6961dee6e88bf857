"""Kinds of statements, one family a module; `sql.session.statement_kind` specifies their contents."""

from typing import Final

# First words of frequent statements, and the modules with all kinds and wrappers that begin with them. So a
# short command that only queries imports no other family. A word that is missing here imports all.
HOMES: Final[dict[str, tuple[str, ...]]] = {
    "SELECT": ("query",),
    "WITH": ("query",),
    "(": ("query",),
    "EXPLAIN": ("query",),
    "INSERT": ("around", "dml"),
    "UPDATE": ("around", "dml"),
    "DELETE": ("around", "dml"),
    "MERGE": ("dml",),
}
