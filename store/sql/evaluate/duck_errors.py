"""The errors of a query in our words: DuckDB's name its own types and the text that it was given.

1. An error of a scan, of the memory or an interrupt is what it is.
2. `_MISTAKES` has the mistakes of users that DuckDB finds, with their MySQL meaning.
3. What is left keeps DuckDB's first line, without the names of our sources.
"""

from __future__ import annotations

import re
from typing import Any, Final

import duckdb
import pyarrow as pa

from seqstore.store.errors import InvalidInputError, StoreError, UnavailableError
from seqstore.store.runtime import memory_limit
from seqstore.store.sql.evaluate.connections import forget_ended
from seqstore.store.sql.parse.nesting import too_deep
from seqstore.store.sql.translate.macros.catalog import internal_names

OVERLOADS: Final = "overloads"  # kind of the error for a macro call that fits no body, or several
NARROW: Final = "narrow"  # kind of the error for a product of decimals that has too many digits
# DuckDB's messages end with the rendered statement, which the user did not write.
_ECHO: Final = re.compile(r"\n+(LINE \d+:|Candidate |Did you mean).*", re.DOTALL)
_INTERNAL: Final = re.compile(r"\b(INTERNAL|FATAL) Error: ")
_NO_MEMORY: Final = re.compile(r"bad[ _]alloc|malloc of size \d+ failed|realloc of size \d+ failed")
_ENDED: Final = re.compile(r"\bFATAL Error: .*database has been invalidated")
_PREFIX: Final = re.compile(r"^[A-Z][A-Za-z ]* Error: ")
_UNTAKEN: Final = re.compile(r"Macro d_(\w+)\(\) does not support the supplied arguments")
_SOURCE_NAME: Final = re.compile(r"(\"?(temp|__copy_\d+)\"?\.main\.)?\"?__(source_\d+|copy__)\"?\.?")
_TYPES: Final = {
    "INT8": "TINYINT",
    "INT16": "SMALLINT",
    "INT32": "INT",
    "INT64": "BIGINT",
    "INT128": "LARGEINT",
}
# Pattern, kind and message; `{0}` is the first group.
_MISTAKES: Final = tuple(
    (re.compile(pattern), kind, message)
    for pattern, kind, message in (
        (
            r"(?:Referenced column|Column) \"(.*?)\" (?:(?:was )?not found|referenced that exists)",
            "unknown_column",
            "unknown column {0!r} in the query",
        ),
        (
            r"Referenced column (\S+) not found in FROM clause",
            "unknown_column",
            "unknown column {0!r} in the query",
        ),
        (
            r"(?:Values list|Table) \"(.*?)\" does not have a column named \"(.*?)\"",
            "unknown_column",
            "unknown column '{0}.{1}' in the query",
        ),
        (
            r"Cannot extract field '(.*?)' from expression \"(.*?)\" because it is not",
            "unknown_column",
            "unknown column '{1}.{0}' in the query",
        ),
        (
            r"Referenced table \"(.*?)\" not found",
            "unknown_column",
            "unknown table or alias {0!r} before a column of the query",
        ),
        (
            r"Ambiguous reference to table \"(.*?)\"",
            "not_unique",
            "{0!r} names two tables of the query; give each an alias of its own",
        ),
        (
            r"Ambiguous reference to column name \"(.*?)\"",
            "ambiguous_column",
            "column {0!r} is of several tables of the query; write the table before it",
        ),
        (
            r"column \"(.*?)\" must appear in the GROUP BY",
            "not_grouped",
            "column {0!r} must stand in GROUP BY, or within an aggregate such as any_value({0})",
        ),
        (
            r"(\w+) clause cannot contain (aggregates|window functions)",
            "aggregate_place",
            "{0} cannot hold {1}; they are computed after it: use HAVING or QUALIFY, or a subquery",
        ),
        (
            r"More than one row returned by a subquery used as an expression",
            "several_rows",
            "a subquery that stands for one value returned more than one row; use IN, LIMIT 1 or max(..)",
        ),
        (
            r"LIMIT/OFFSET cannot be negative",
            "bad_argument",
            "LIMIT and OFFSET take a whole number from 0 on, found a negative one",
        ),
        (r"\* expression without FROM clause", "no_tables", "`*` needs a table: the query has no FROM"),
        (
            r"Could not convert string '(expected an? \w+ (?:of at most|such as) .*?)' to",
            "too_large",
            "the query cannot be evaluated: {0}",
        ),
    )
)
_OVERFLOW: Final = re.compile(r"Overflow in (\w+) of (INT\d+|\w+)(?: \((.*?)\))?")
_UNCONVERTED: Final = re.compile(r"Could not convert string '(.*?)' to (INT\d+)")
_SYNTAX: Final = re.compile(r'^syntax error at or near "(.*)"')


def translated(error: BaseException, sources: Any = ()) -> BaseException:
    """Returns the error to raise for one of DuckDB's; an error of a scan has precedence."""
    for source in sources:
        if isinstance(source.error, StoreError):
            return source.error
    text = str(error)
    if isinstance(error, StoreError):
        return error
    if isinstance(error, MemoryError) or _NO_MEMORY.search(text[:500]):
        return memory_limit.out_of_memory("the query found no memory")
    is_answer = isinstance(error, OSError) and _PREFIX.match(text)  # an error of DuckDB's stream of rows
    is_interrupt = text.startswith("INTERRUPT ")
    if not (isinstance(error, (duckdb.Error, pa.ArrowException, RuntimeError)) or is_answer or is_interrupt):
        return error
    if "INTERRUPT" in text.upper()[:60]:
        return KeyboardInterrupt()
    if _INTERNAL.search(text[:200]):
        forget_ended()
    if _ENDED.search(text[:200]):
        return UnavailableError(
            "the query was ended by an internal error of DuckDB that another one met; run it again",
            kind="engine",
        )
    return _mistake(text) or _statement_error(error, text)


def _mistake(text: str) -> StoreError | None:
    """Returns the error for a mistake of the user that DuckDB found, None where it found none of them."""
    for pattern, kind, message in _MISTAKES:
        found = pattern.search(text)
        if found is not None:
            fields = {"column": found[1]} if kind == "unknown_column" else {}
            return InvalidInputError(message.format(*found.groups()), kind=kind, **fields)
    overflow = _OVERFLOW.search(text)
    if overflow is not None and overflow[2] in _TYPES:
        where = f" in ({overflow[3]})" if overflow[3] else f" of {overflow[1]}"
        return InvalidInputError(
            f"{_TYPES[overflow[2]]} value is out of range{where}; cast the operands to a wider type",
            kind="out_of_range",
        )
    unconverted = _UNCONVERTED.search(text)
    if unconverted is not None and unconverted[2] in _TYPES:
        return InvalidInputError(
            f"the text {unconverted[1]!r} is no {_TYPES[unconverted[2]]}; cast it, or its other side to text",
            kind="bad_argument",
        )
    return None


def _statement_error(error: BaseException, text: str) -> StoreError:
    """Builds the error for a statement that DuckDB refuses or cannot finish."""
    message = _SOURCE_NAME.sub("", _PREFIX.sub("", _ECHO.sub("", text).strip()).split("\n")[0]).strip()
    unparsed = _SYNTAX.match(message)
    if unparsed is not None:  # sqlglot parsed it: the clause is one that DuckDB does not have
        return InvalidInputError(
            f"the query has a clause that is not supported, near {unparsed[1]!r}", kind="not_supported"
        )
    called = _UNTAKEN.search(message)
    if called is not None:
        is_internal = called[1] in internal_names()
        function = "an operator or date function" if is_internal else f"function {called[1]!r}"
        return InvalidInputError(
            f"{function} does not take arguments of this number or type", kind="bad_argument"
        )
    if "multiple overloads that match" in message:
        return InvalidInputError(f"the query cannot be evaluated: {message}", kind=OVERLOADS)
    if "Overflow in multiplication of DECIMAL" in message:
        return InvalidInputError(f"the query cannot be evaluated: {message}", kind=NARROW)
    if "Max expression depth" in message:
        return too_deep()
    if isinstance(error, duckdb.OutOfMemoryException) or text.startswith("Out of Memory Error: "):
        return memory_limit.out_of_memory(
            f"the query needs more memory than its limit (exec_mem_limit, its workload group or the server): "
            f"{message}"
        )
    return InvalidInputError(f"the query cannot be evaluated: {message}", kind="query")
