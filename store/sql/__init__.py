"""SQL in Doris's dialect: `Session(store).execute("SELECT ...")`.

parse        texts to tokens, trees and statement values
translate    a query's tree in DuckDB's dialect; the conditions that a scan decides
evaluate     queries on snapshots: the scan-only plan, or DuckDB without files, network or settings
write        the rows of INSERT, UPDATE, DELETE and MERGE
session      sessions, variables, privileges, processes, information_schema
statements   one module a family of statements: their words, a parse and a run function
"""

from seqstore.store.sql.result import Result
from seqstore.store.sql.session.server_context import ServerContext
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import all_kinds, parse

all_kinds()  # imports the statements, which stand above sessions

__all__ = ["Result", "ServerContext", "Session", "parse"]
