"""The rows that UPDATE, DELETE and MERGE write: the result of a SELECT, named by the table's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import SEQUENCE_COL
from seqstore.store.schema.column_groups import replaced_with
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import Query
from seqstore.store.sql.write.matches import one_per_key
from seqstore.store.transaction.transaction_table import TransactionTable, check_assigned

# Runs a query in the transaction of a statement.
OpenQuery = Callable[[Query], "AbstractContextManager[pa.RecordBatchReader]"]


def numbered(items: Iterable[exp.Expr]) -> list[exp.Expr]:
    """Adds an alias of its own to each item of a select list, so that names may repeat."""
    return [exp.alias_(item, f"v{number}") for number, item in enumerate(items)]


def key_columns(schema: TableSchema, alias: str) -> list[exp.Expr]:
    """Builds the key columns of a table that a query calls `alias`."""
    return [exp.column(name, table=alias, quoted=True) for name in schema.key]


def is_true(condition: exp.Expr) -> exp.Expr:
    """Builds a condition of which NULL is false."""
    return exp.func("coalesce", exp.paren(condition.copy()), exp.false())


def read_rows(select: exp.Select, names: Sequence[str], open_query: OpenQuery) -> pa.Table:
    """Runs a query and names the columns of its result."""
    with open_query(Query(select, None)) as reader:
        if len(reader.schema) != len(names):
            raise InvalidInputError(
                f"expected {len(names)} values of a row, found {len(reader.schema)}: `*` is no value",
                kind="column_count",
            )
        return reader.read_all().rename_columns(list(names))


def distinct_rows(rows: pa.Table) -> pa.Table:
    return rows.group_by(rows.schema.names).aggregate([]) if len(rows) else rows


def one_row_per_key(rows: pa.Table, schema: TableSchema) -> tuple[pa.Table, int]:
    """Returns each key once, and the number of keys whose rows contradict each other.

    A table with column groups keeps all rows, for the sequence of each group decides.
    """
    if schema.groups:
        return rows, 0
    deciding = (SEQUENCE_COL, schema.sequence_column)
    sequence = next((name for name in rows.schema.names if name in deciding), None)
    return one_per_key(rows, schema.key, sequence)


def assignments(items: Iterable[exp.Expr], opened: TransactionTable, alias: str) -> dict[str, exp.Expr]:
    """Reads `column = value, ..`: canonical column names to values.

    The columns of a group are written together: those that are not assigned keep their value.
    """
    table_name, schema = opened.name, opened.schema
    qualifiers = {"", alias.lower(), table_name.lower(), table_name.partition(".")[2].lower()}
    given: dict[str, exp.Expr] = {}
    for item in items:
        target = item.this if isinstance(item, exp.EQ) else None
        if not isinstance(target, exp.Column):
            raise _invalid_assignment(item.sql("doris"))
        if ".".join(part.name for part in target.parts[:-1]).lower() not in qualifiers:
            raise _invalid_assignment(target.sql("doris"))
        if target.name in given:
            raise _invalid_assignment(f"{target.name} is assigned twice", "duplicate_column")
        given[target.name] = item.expression
    checked: dict[str, exp.Expr] = check_assigned(schema, given)
    rest = replaced_with(schema.groups, checked)
    opened.isolation.reads.read_columns(rest)
    return checked | {name: exp.column(name, table=alias, quoted=True) for name in rest}


def _invalid_assignment(found: str, kind: str = "bad_assignment") -> InvalidInputError:
    return InvalidInputError(f"column in assignment list is invalid, {found}", kind=kind)
