"""SQL in Doris's dialect: `Session(store).execute("SELECT ...")`.

tokens.py        a text's tokens, positions, errors
statement_kind.py, kinds/     one kind of statement = its first words, a parse and a run function
parser.py, table_parser.py, query_parser.py    by hand over the tokens
statements.py    statements as values
session.py       runs them
insert.py, show.py            INSERT; what DESC and SHOW print
select.py        queries: straight from a scan or look-up, else through DuckDB
relations.py, predicates.py   which tables, columns and rows a query reads
translate.py, functions.py, dialect.py    Doris's meaning in DuckDB's words
duck.py          DuckDB without files, network or settings
variables.py, result.py       session variables; what a statement answers
partition_parser.py, load_parser.py, load_jobs.py    clauses of partitions and of loads
system_tables.py, processes.py, privileges.py        information_schema; sessions of a server; who may do what
"""

from seqstore.store.sql.result import Result
from seqstore.store.sql.session.parser import parse
from seqstore.store.sql.session.session import Session

__all__ = ["Result", "Session", "parse"]
