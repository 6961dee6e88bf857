"""UPDATE, DELETE and MERGE INTO: SELECTs compute the rows to write, inside the statement's transaction.

The transaction remembers the reads of the target with the conditions that a scan decides (predicates); under
other conditions it remembers a read of the whole table. A condition with a subquery, a non-deterministic
function, or a part of a struct, array or map makes any change of the table a conflict.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from seqstore.store.check.write_modes import duplicate_error
from seqstore.store.conflict.read_set import COMPLEX_TYPE, NON_DETERMINISTIC, SUBQUERY
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import copy_tree, exp, find_all
from seqstore.store.sql.parse.statement_values import DmlStatement
from seqstore.store.sql.write.changed_rows import OpenQuery, run_delete, run_update
from seqstore.store.sql.write.merge_into import run_merge
from seqstore.store.transaction.merge_builder import Outcome
from seqstore.store.transaction.transaction_table import TransactionTable

_RANDOM: Final = frozenset(["RAND", "RANDOM", "UUID", "UUID_NUMERIC", "RANDOM_BYTES"])


def run_change(statement: DmlStatement, opened: TransactionTable, open_query: OpenQuery) -> Outcome:
    """Runs a statement on its table; returns the number of rows it matched and its write, None for none.

    Raises:
        InvalidInputError: a column, clause or value that does not fit the table.
    """
    tree, schema = copy_tree(statement.tree), opened.schema
    if schema.is_duplicate and not isinstance(tree, exp.Delete):
        raise duplicate_error(opened.name, "Only unique table could be updated.")
    reason = fallback_reason(tree, schema)
    if reason:
        opened.isolation.reads.fall_back(reason)
    if isinstance(tree, exp.Merge):
        return run_merge(tree, opened, schema, open_query)
    if isinstance(tree, exp.Delete):
        return run_delete(tree, opened, schema, open_query)
    return run_update(tree, opened, schema, open_query)


def fallback_reason(tree: exp.Expr, schema: TableSchema) -> str:
    """Returns why concurrent rows cannot be tested against the conditions of a statement.

    The reason is empty if they can be tested.
    """
    return next(filter(None, (_untestable(condition, schema) for condition in _conditions(tree))), "")


def _conditions(tree: exp.Expr) -> Iterator[exp.Expr]:
    whens = tree.args.get("whens")
    clauses = whens.expressions if whens is not None else []
    yield from filter(None, (tree.args.get("where"), tree.args.get("on")))
    yield from filter(None, (clause.args.get("condition") for clause in clauses))


def _untestable(condition: exp.Expr, schema: TableSchema) -> str:
    if condition.find(exp.Select):
        return SUBQUERY
    if condition.find(exp.Rand) or any(c.name.upper() in _RANDOM for c in find_all(condition, exp.Anonymous)):
        return NON_DETERMINISTIC
    names = {name for node in find_all(condition, exp.Column) for name in (node.name, node.table) if name}
    columns = [column for name in names if (column := schema.by_name.get(name.lower())) is not None]
    if condition.find(exp.Dot, exp.Bracket) or any(column.type.is_nested for column in columns):
        return COMPLEX_TYPE
    return ""
