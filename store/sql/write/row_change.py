"""UPDATE, DELETE and MERGE INTO: SELECTs compute the rows to write, inside the statement's transaction.

- `UPDATE t SET a = e FROM s WHERE c`: the key of t and every `e`, of `t, s WHERE c`; a partial update.
- `DELETE FROM t USING s WHERE c`: the key of t; tombstones.
- MERGE INTO: one SELECT per clause (sql.write.merge_into).

The transaction remembers the reads of the target with the conditions that a scan decides (predicates); under
other conditions it remembers a read of the whole table. A condition with a subquery, a non-deterministic
function, or a part of a struct, array or map makes any change of the table a conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from seqstore.store.conflict.read_set import COMPLEX_TYPE, NON_DETERMINISTIC, SUBQUERY
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import DmlStatement
from seqstore.store.sql.write.changed_rows import (
    OpenQuery,
    assignments,
    distinct_rows,
    is_true,
    key_columns,
    numbered,
    one_row_per_key,
    read_rows,
)
from seqstore.store.sql.write.merge_into import run_merge
from seqstore.store.transaction.merge_builder import Outcome
from seqstore.store.transaction.transaction_table import TransactionTable

_RANDOM: Final = frozenset(["RAND", "RANDOM", "UUID", "UUID_NUMERIC", "RANDOM_BYTES"])


def run_change(statement: DmlStatement, opened: TransactionTable, open_query: OpenQuery) -> Outcome:
    """Runs a statement on its table; returns the number of rows it matched and its write, None for none.

    Raises:
        InvalidInputError: a column, clause or value that does not fit the table.
    """
    tree = statement.tree.copy()
    reason = fallback_reason(tree, opened.schema)
    if reason:
        opened.isolation.reads.fall_back(reason)
    if isinstance(tree, exp.Merge):
        return run_merge(tree, opened, open_query)
    if isinstance(tree, exp.Delete):
        return _run_delete(tree, opened, open_query)
    return _run_update(tree, opened, open_query)


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
    if condition.find(exp.Rand) or any(c.name.upper() in _RANDOM for c in condition.find_all(exp.Anonymous)):
        return NON_DETERMINISTIC
    names = {name for node in condition.find_all(exp.Column) for name in (node.name, node.table) if name}
    columns = [column for name in names if (column := schema.find(name)) is not None]
    if condition.find(exp.Dot, exp.Bracket) or any(column.type.is_nested for column in columns):
        return COMPLEX_TYPE
    return ""


def _run_update(tree: exp.Update, opened: TransactionTable, open_query: OpenQuery) -> Outcome:
    schema, alias = opened.schema, tree.this.alias_or_name
    values = assignments(tree.expressions, opened, alias)
    opened.log_constraints(list(values))
    source = tree.args.get("from_")
    sources = [source.this] if source is not None else []
    select = _select(tree, [*key_columns(schema, alias), *values.values()], sources)
    if schema.sequence_column is not None:
        opened.isolation.reads.read_columns([schema.sequence_column])
    rows = read_rows(select, [*schema.key, *values], open_query)
    if sources:
        rows, ambiguous = one_row_per_key(rows, schema)
        if ambiguous:
            opened.warnings.append(
                f"{ambiguous} {'row was' if ambiguous == 1 else 'rows were'} matched by several rows that "
                "assign different values; of those the largest were taken"
            )
    return len(rows), opened.change(rows) if len(rows) else None


def _run_delete(tree: exp.Delete, opened: TransactionTable, open_query: OpenQuery) -> Outcome:
    where = tree.args.get("where")
    if where is None or _is_always_true(where.this, open_query):
        raise InvalidInputError("delete all rows is forbidden temporary.", kind="delete_all")
    schema, sources = opened.schema, tree.args.get("using") or []
    select = _select(tree, key_columns(schema, tree.this.alias_or_name), sources)
    rows = read_rows(select, list(schema.key), open_query)
    if sources:
        rows = distinct_rows(rows)
    return len(rows), opened.delete(rows) if len(rows) else None


def _is_always_true(condition: exp.Expr, open_query: OpenQuery) -> bool:
    """Returns whether a condition without columns holds, such as `1 = 1` (D17)."""
    if condition.find(exp.Column, exp.Select):
        return False
    found = read_rows(exp.select(exp.alias_(is_true(condition), "found")), ["found"], open_query)
    return bool(found.column(0)[0].as_py())


def _select(
    tree: exp.Update | exp.Delete, items: Iterable[exp.Expr], sources: Iterable[exp.Expr]
) -> exp.Select:
    """Builds `SELECT items.. FROM target, sources WHERE ..`."""
    select = exp.select(*numbered(items)).from_(tree.this)
    for source in sources:
        joins = source.args.get("joins") or []
        source.set("joins", None)
        select.append("joins", exp.Join(this=source, kind="CROSS"))
        for join in joins:
            select.append("joins", join)
    where = tree.args.get("where")
    if where is not None:
        select.set("where", where)
    return select
