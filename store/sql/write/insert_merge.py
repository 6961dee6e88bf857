"""INSERT IGNORE and INSERT .. ON DUPLICATE KEY UPDATE: the rows of an INSERT, merged by key.

1. The rows are read and converted as by INSERT. INSERT IGNORE leaves out rows that cannot be stored.
2. Rows whose key AUTO_INCREMENT makes are inserted. Of others, the rows of one key become one. INSERT IGNORE
   keeps the first. ON DUPLICATE KEY UPDATE keeps the last where every assignment is the row's own value.
   MySQL applies other assignments row after row, so repeated keys are refused there.
3. The rows are the source of a MERGE on the key. Unmatched rows are inserted, matched ones update or do
   nothing.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import hidden_name
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import Insert
from seqstore.store.sql.write.changed_rows import OpenQuery, with_default
from seqstore.store.sql.write.insert import InsertOptions, converted_rows
from seqstore.store.sql.write.merge_language import SqlMergeLanguage
from seqstore.store.transaction.merge_builder import Action, Match, Merge, MergeClause, Outcome
from seqstore.store.transaction.transaction_table import TransactionTable

_SOURCE = "__inserted__"
_PLACE = "__place__"


def run_insert_merge(
    statement: Insert, opened: TransactionTable, open_query: OpenQuery, options: InsertOptions
) -> Outcome:
    """Runs the statement; returns the rows inserted and updated, and the last write.

    Raises:
        InvalidInputError: columns, values or assignments do not fit the table, or rows of one key would be
            applied one after the other.
        LoadRejectedError: a row cannot be stored, and the statement is not INSERT IGNORE.
    """
    rows, left_out = converted_rows(statement, opened, open_query, options)
    opened.warnings += left_out
    schema = opened.schema
    missing = [name for name in schema.key if name not in rows.schema.names]
    if missing and all(schema.column(name).auto_increment is not None for name in missing):
        return len(rows), opened.upsert(rows)  # every row has a key of its own
    if missing:
        raise InvalidInputError(
            f"{_words(statement)} needs every key column of {opened.name}, missing: {', '.join(missing)}; "
            "list them, or use INSERT INTO",
            kind="missing_column",
        )
    alias = opened.name.partition(".")[2]
    updated = _assignments(statement, schema, opened.name)
    own = [name for name, value in updated.items() if value == _given(name)]
    rows = _one_per_key(rows, statement, schema, may_repeat=len(own) == len(updated))
    if not len(rows):
        return 0, None
    # A query shows hidden columns by other names: those of the source are plain ones.
    sources = {name: f"__given{name}" if hidden_name(name) else name for name in rows.schema.names}
    rows = rows.rename_columns(list(sources.values()))
    inserted = {name: _given(source) for name, source in sources.items()}
    clauses = [MergeClause(Match.NOT_MATCHED, Action.INSERT, inserted, None)]
    if updated:
        clauses.insert(0, MergeClause(Match.MATCHED, Action.UPDATE, updated, None))
    language = SqlMergeLanguage()
    on = tuple(schema.key)
    merge = Merge(opened.name, language.source(rows), on, tuple(clauses), alias, _SOURCE)
    return language.run(merge, opened)


def _words(statement: Insert) -> str:
    return "INSERT IGNORE" if statement.is_ignore else "INSERT .. ON DUPLICATE KEY UPDATE"


def _given(name: str) -> exp.Expr:
    return exp.column(name, table=_SOURCE, quoted=True)


def _assignments(statement: Insert, schema: TableSchema, full_name: str) -> dict[str, exp.Expr]:
    """Returns column -> value: VALUES(c) and columns of the row alias are the inserted row's, others the
    stored row's.

    Raises:
        InvalidInputError: a column is assigned twice, or a value names another table or has a subquery.
    """
    found: dict[str, exp.Expr] = {}
    for name, tree in statement.on_duplicate:
        if tree.find(exp.Query):
            raise InvalidInputError(
                f"ON DUPLICATE KEY UPDATE {name}: a subquery is not supported here; use MERGE INTO",
                kind="not_supported",
            )
        column = schema.find(name)
        canonical = column.name if column is not None else name
        if canonical in found:
            raise InvalidInputError(f"column {name!r} is assigned twice", kind="duplicate_column")
        value = with_default(tree, schema, canonical)
        found[canonical] = value.transform(_resolved, schema, full_name, (statement.row_alias or "").lower())
    # The key of the two rows is one: ORMs assign every column, k = VALUES(k) too.
    return {name: value for name, value in found.items() if name not in schema.key or value != _given(name)}


def _resolved(node: exp.Expr, schema: TableSchema, full_name: str, row_alias: str) -> exp.Expr:
    if isinstance(node, exp.Anonymous) and node.name.upper() == "VALUES" and len(node.expressions) == 1:
        column = schema.find(node.expressions[0].name)
        return _given(column.name if column is not None else node.expressions[0].name)
    if not isinstance(node, exp.Column) or node.table == _SOURCE:
        return node
    column = schema.find(node.name)
    name = column.name if column is not None else node.name
    qualifier = ".".join(part.name for part in node.parts[:-1]).lower()
    if qualifier and qualifier == row_alias:
        return _given(name)
    alias = full_name.partition(".")[2]
    if qualifier not in ("", alias.lower(), full_name.lower()):
        raise InvalidInputError(
            f"Unknown column '{qualifier}.{node.name}' in ON DUPLICATE KEY UPDATE; VALUES({node.name}) is "
            f"the value of the new row, {alias}.{node.name} that of the stored one",
            kind="unknown_column",
        )
    return exp.column(name, table=alias, quoted=True)


def _one_per_key(rows: pa.Table, statement: Insert, schema: TableSchema, *, may_repeat: bool) -> pa.Table:
    """Runs step 2."""
    key = list(schema.key)
    places = rows.select(key).append_column(_PLACE, pa.array(np.arange(len(rows))))
    which = "min" if statement.is_ignore else "max"
    chosen = places.group_by(key).aggregate([(_PLACE, which)]).column(f"{_PLACE}_{which}")
    if len(chosen) == len(rows):
        return rows
    if not statement.is_ignore and not may_repeat:
        raise InvalidInputError(
            f"{_words(statement)}: {len(rows) - len(chosen)} of {len(rows)} rows repeat a key, and an "
            "assignment looks at the stored row; insert each key once, or assign VALUES(column) only",
            kind="several_matches",
        )
    return rows.take(pa.array(np.sort(np.asarray(chosen))))
