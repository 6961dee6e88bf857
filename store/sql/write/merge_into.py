"""`MERGE INTO t USING s ON c WHEN ..`: one SELECT per clause, of the rows that reach the clause.

Matched clauses read `s JOIN t`, the others `s LEFT JOIN t`. A row belongs to the first clause whose condition
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.load.load import LoadResult
from seqstore.store.schema.column import hidden_name
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.parse.statement_values import EVERY_COLUMN
from seqstore.store.sql.translate.predicates import conjuncts
from seqstore.store.sql.write.changed_rows import (
    OpenQuery,
    assignments,
    distinct_rows,
    is_present,
    is_true,
    key_columns,
    keys_in_several,
    numbered,
    one_row_per_key,
    read_rows,
    with_default,
)
from seqstore.store.transaction.merge_builder import Match, Outcome
from seqstore.store.transaction.transaction_table import TransactionTable
from seqstore.store.types.cast import try_cast


@dataclass(frozen=True)
class _MergeJoin:
    """The parts of a MERGE that its clauses share."""

    opened: TransactionTable
    schema: TableSchema
    target: exp.Table
    source: exp.Expr
    on: exp.Expr

    @property
    def alias(self) -> str:
        return str(self.target.alias_or_name)

    def starred_row(self) -> tuple[list[str], list[exp.Expr]]:
        """Expands `INSERT *`: every column of the target from the source's column of that name."""
        names = list(self.schema.names)
        return names, [exp.column(name, table=self.source.alias_or_name, quoted=True) for name in names]

    def starred_assignments(self) -> list[exp.Expr]:
        """Expands `UPDATE SET *`: the same for the columns beside the key."""
        pairs = zip(*self.starred_row(), strict=True)
        key = self.schema.key
        return [exp.EQ(this=exp.column(n, quoted=True), expression=item) for n, item in pairs if n not in key]

    def joined(self, items: Iterable[exp.Expr], side: str, where: exp.Expr) -> exp.Select:
        """Items of `source JOIN target` where a condition holds."""
        join = exp.Join(this=self.target.copy(), on=self.on.copy(), side=side or None)
        select = exp.select(*numbered(item.copy() for item in items)).from_(self.source.copy())
        select.append("joins", join)
        return select.where(where)

    def unsourced(self, items: Iterable[exp.Expr], where: exp.Expr) -> exp.Select:
        """Items of the target's rows that no source row matches."""
        matches = exp.select("1").from_(self.source.copy()).where(self.on.copy())
        alone = exp.Not(this=exp.Exists(this=matches))
        select = exp.select(*numbered(item.copy() for item in items))
        return select.from_(self.target.copy()).where(alone, where)


@dataclass(frozen=True)
class _ClauseWrite:
    """The rows of one clause, and the method that writes them."""

    match: Match
    write: Callable[[pa.Table], LoadResult]
    rows: pa.Table


def run_merge(
    tree: exp.Merge, opened: TransactionTable, schema: TableSchema, open_query: OpenQuery
) -> Outcome:
    """Computes the rows of every clause, and then writes them."""
    clauses = tree.args["whens"].expressions
    _check_clauses(clauses)
    on = tree.args.get("on")
    if not isinstance(on, exp.Expression):
        raise InvalidInputError("MERGE INTO .. USING .. needs ON and a condition", kind="syntax")
    merge = _MergeJoin(opened, schema, tree.this, tree.args["using"], on)
    _log_target(merge, clauses, open_query)
    opened.is_muted = True  # the clauses' own queries would count as reads of the whole table
    try:
        writes = _clause_writes(merge, clauses, open_query)
    finally:
        opened.is_muted = False
    changed = [each.rows for each in writes if each.match is not Match.NOT_MATCHED]
    several = keys_in_several(changed, schema.key) if len(changed) > 1 else ()
    if len(several):  # neither change has precedence
        raise _several_matches(opened, len(several))
    done = [each.write(each.rows) for each in writes if len(each.rows)]
    return sum(len(each.rows) for each in writes), done[-1] if done else None


def clause_match(clause: exp.When) -> Match:
    """Returns the kind of rows that a clause is tried on."""
    if clause.args.get("matched"):
        return Match.MATCHED
    return Match.NOT_MATCHED_BY_SOURCE if clause.args.get("source") else Match.NOT_MATCHED


def _check_clauses(clauses: Sequence[exp.When]) -> None:
    """Checks that at most the last clause of a kind lacks a condition (I4)."""
    for match in Match:
        same = [clause for clause in clauses if clause_match(clause) is match]
        if any(clause.args.get("condition") is None for clause in same[:-1]):
            word = "matched" if match is Match.MATCHED else "not matched"
            raise InvalidInputError(
                f"Only the last {word} clause could without case predicate", kind="bad_merge"
            )


def _clause_writes(
    merge: _MergeJoin, clauses: Sequence[exp.When], open_query: OpenQuery
) -> list[_ClauseWrite]:
    """Builds the writes; rows of a clause satisfy its condition, and none before it of its kind."""
    writes = []
    before: dict[Match, list[exp.Expr]] = {}
    for clause in clauses:
        match = clause_match(clause)
        condition = clause.args.get("condition")
        tests: list[exp.Expr] = [exp.Not(this=is_true(test)) for test in before.get(match, [])]
        tests += [is_true(condition)] if condition is not None else []
        where = exp.and_(*tests) if tests else exp.true()
        before.setdefault(match, []).append(condition if condition is not None else exp.true())
        writes.append(_clause_write(merge, clause, where, open_query))
    return writes


def _clause_write(
    merge: _MergeJoin, clause: exp.When, where: exp.Expr, open_query: OpenQuery
) -> _ClauseWrite:
    opened, then, match = merge.opened, clause.args["then"], clause_match(clause)
    if match is Match.NOT_MATCHED:
        names, items = merge.starred_row() if _is_starred(then) else _inserted(then, merge)
        unmatched = exp.and_(exp.Not(this=is_present(merge.alias)), where)
        rows = read_rows(merge.joined(items, "LEFT", unmatched), names, open_query, merge.schema)
        return _ClauseWrite(match, opened.upsert, rows)
    values: dict[str, exp.Expr] = {}
    if isinstance(then, exp.Update):
        opened.isolation.reads.read_sequence()
        given = merge.starred_assignments() if _is_starred(then) else then.expressions
        values = assignments(given, opened, merge.schema, merge.alias)
        opened.log_constraints(values)
    items = [*key_columns(merge.schema, merge.alias), *values.values()]
    select = merge.joined(items, "", where) if match is Match.MATCHED else merge.unsourced(items, where)
    rows = read_rows(select, [*merge.schema.key, *values], open_query, merge.schema)
    if not isinstance(then, exp.Update):
        return _ClauseWrite(match, opened.delete, distinct_rows(rows))
    rows, ambiguous = one_row_per_key(rows, merge.schema)
    if ambiguous:
        raise _several_matches(opened, ambiguous)
    return _ClauseWrite(match, opened.change, rows)


def _several_matches(opened: TransactionTable, count: int) -> InvalidInputError:
    matched = "row is matched" if count == 1 else "rows are matched"
    return InvalidInputError(
        f"MERGE INTO {opened.name}: {count} target {matched} by several source rows that would change it "
        "differently; keep one source row per key, or assign the sequence column, which then decides",
        kind="several_matches",
    )


def _is_starred(then: exp.Expr) -> bool:
    listed = then.args.get("expressions") or []
    items = [then.this, *([listed] if isinstance(listed, exp.Star) else listed)]  # UPDATE * without SET
    return any(isinstance(item, exp.Star) for item in items)


def _inserted(then: exp.Expr, merge: _MergeJoin) -> tuple[list[str], list[exp.Expr]]:
    """Returns columns and values of an INSERT clause (I3)."""
    schema = merge.schema
    items = list(then.expression.expressions) if then.expression is not None else []
    listed = [column.name for column in then.this.expressions]
    for column in then.this.expressions:
        if isinstance(column, exp.Column) and column.table and column.table.lower() != merge.alias.lower():
            raise InvalidInputError(
                f"unknown column in target table: {column.table}.{column.name}", kind="unknown_column"
            )
    names = list(schema.names) if listed == [EVERY_COLUMN] else listed
    for name in names:
        if schema.find(name) is None and not name.startswith("__"):
            raise InvalidInputError(f"unknown column in target table: {name}", kind="unknown_column")
    if len(names) != len(items):
        raise InvalidInputError(
            f"insert into cols should be corresponding to the query output: expected {len(names)} values, "
            f"found {len(items)}",
            kind="column_count",
        )
    return names, [with_default(item, schema, name) for name, item in zip(names, items, strict=True)]


def _log_target(merge: _MergeJoin, clauses: Sequence[exp.When], open_query: OpenQuery) -> None:
    """Remembers the columns and rows read: those of the source's keys, or the whole table."""
    opened, schema = merge.opened, merge.schema
    reads = opened.isolation.reads
    mentioned = {column.name for node in (merge.on, *clauses) for column in find_all(node, exp.Column)}
    reads.read_columns(name for name in mentioned if schema.find(name) or hidden_name(name))
    reads_more = any(
        clause_match(clause) is Match.NOT_MATCHED_BY_SOURCE or clause.find(exp.Select) for clause in clauses
    )
    source_keys = None if reads_more else _source_keys(merge)
    if source_keys is not None:
        select = exp.select(*numbered(source_keys)).from_(merge.source.copy())
        # Not muted: a source that reads the target itself reads it like any query.
        given = read_rows(select, list(schema.key), open_query)
        arrays = _as_keys(given, schema, opened.zone or "UTC")
        if arrays is not None:
            reads.read_keys(arrays, ())
            return
    own_name = opened.name.partition(".")[2]
    names_target = any(table.name == own_name for table in find_all(merge.source, exp.Table))
    reads.read_where(None, schema.names if names_target else ())


def _as_keys(values: pa.Table, schema: TableSchema, zone: str) -> list[pa.Array] | None:
    """Converts the values that source rows equate with the key; None when other keys may equal them too.

    A number outside of the column's type equals no key. A text or time that cannot be converted may equal
    one, and a number equals several texts.
    """
    arrays: list[pa.ChunkedArray] = []
    keep = np.ones(len(values), dtype=np.bool_)
    for column, source in zip(schema.key_columns, values.columns, strict=True):
        if column.type.byte_length_max is not None and not pa.types.is_string(source.type):
            return None
        cast = try_cast(source, column.type, zone=zone)
        if cast.failed is not None:
            if not (pa.types.is_integer(source.type) or pa.types.is_decimal(source.type)):
                return None
            keep &= ~np.asarray(cast.failed.to_numpy(zero_copy_only=False)).astype(np.bool_)
        arrays.append(cast.values)
    if keep.all():
        return arrays
    rows = pa.array(np.flatnonzero(keep))
    return [array.take(rows) for array in arrays]


def _source_keys(merge: _MergeJoin) -> list[exp.Expr] | None:
    """Finds the source's expression that ON equates with each key column, None unless all have one."""
    found: dict[str, exp.Expr] = {}
    for part in conjuncts(merge.on):
        if not isinstance(part, (exp.EQ, exp.NullSafeEQ)):
            continue
        for own, other in ((part.this, part.expression), (part.expression, part.this)):
            is_own = isinstance(own, exp.Column) and own.table.lower() == merge.alias.lower()
            if is_own and not any(_may_be_own(column, merge) for column in find_all(other, exp.Column)):
                found[own.name.lower()] = other.copy()
    names = [name.lower() for name in merge.schema.key]
    return [found[name] for name in names] if all(name in found for name in names) else None


def _may_be_own(column: exp.Column, merge: _MergeJoin) -> bool:
    """Returns whether a column is, or may be, one of the target."""
    if column.table:
        return bool(column.table.lower() == merge.alias.lower())
    return merge.schema.find(column.name) is not None
