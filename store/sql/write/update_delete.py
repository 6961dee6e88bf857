"""UPDATE and DELETE FROM: one SELECT of the rows to write.

- `UPDATE t SET a = e FROM s WHERE c`: the key of t and every `e`, of `t, s WHERE c`; a partial update.
- `DELETE FROM t USING s WHERE c`: the key of t; tombstones.
"""

from __future__ import annotations

from collections.abc import Iterable

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import exp
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
from seqstore.store.transaction.merge_builder import Outcome
from seqstore.store.transaction.transaction_table import TransactionTable


def run_update(tree: exp.Update, opened: TransactionTable, open_query: OpenQuery) -> Outcome:
    """Writes the assigned columns of the rows that satisfy the condition."""
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
                "assign different values; the largest of those was assigned"
            )
    return len(rows), opened.change(rows) if len(rows) else None


def run_delete(tree: exp.Delete, opened: TransactionTable, open_query: OpenQuery) -> Outcome:
    """Writes tombstones for the rows that satisfy the condition."""
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
