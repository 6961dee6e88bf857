"""UPDATE, DELETE and MERGE INTO: queries that say what to write, run inside a transaction.

Each statement becomes one SELECT or several, whose answers are the rows to write:

- `UPDATE t SET a = e FROM s WHERE c`: the key of t and every `e`, of `t, s WHERE c`; a partial update.
- `DELETE FROM t USING s WHERE c`: the key of t; tombstones.
- `MERGE INTO t USING s ON c WHEN ..`: one SELECT a clause, of the rows that reach it: matched clauses of
  `s JOIN t`, the others of `s LEFT JOIN t`; a row goes to the first clause whose condition holds.

What is read of the target is remembered with the conditions a scan can decide (predicates); other
conditions read the whole table. A condition with a subquery, a function that gives another value each time,
or a part of a struct, array or map makes the statement check its conflicts without looking at rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from seqstore.store.conflict.read_set import COMPLEX_TYPE, NON_DETERMINISTIC, SUBQUERY
from seqstore.store.errors import InvalidInputError
from seqstore.store.load.load import LoadResult
from seqstore.store.schema.column import SEQUENCE_COL, VERSION_COL
from seqstore.store.schema.column_groups import replaced_with
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import Query, TableName
from seqstore.store.sql.translate.predicates import conjuncts
from seqstore.store.sql.translate.relations import shown_name
from seqstore.store.sql.write.matches import keys_in_several, one_per_key
from seqstore.store.transaction.transaction_table import TransactionTable, check_assigned
from seqstore.store.types.cast import try_cast

# Opens a query in the transaction of a statement.
Ask = Callable[[Query], "AbstractContextManager[pa.RecordBatchReader]"]
Work = Callable[[TransactionTable, Ask], "tuple[int, LoadResult | None]"]
T = TypeVar("T")
_RANDOM: Final = frozenset(["RAND", "RANDOM", "UUID", "UUID_NUMERIC", "RANDOM_BYTES"])
_STAR: Final = "__every_column__"


@dataclass(frozen=True)
class Dml:
    """One statement as sqlglot read it."""

    table: TableName
    tree: exp.Update | exp.Delete | exp.Merge

    @property
    def operation(self) -> str:
        """What history calls it."""
        return type(self.tree).__name__.upper()


def table_of(tree: exp.Expr) -> TableName:
    """The table a statement writes to."""
    target = tree.this
    if not isinstance(target, exp.Table) or not isinstance(target.this, exp.Identifier):
        raise InvalidInputError("target table in update command should be an olapTable", kind="bad_target")
    return TableName(target.db or None, target.name)


def run(statement: Dml, opened: TransactionTable, ask: Ask) -> tuple[int, LoadResult | None]:
    """Runs a statement on its table; returns the rows it matched, and what it wrote, None for nothing.

    Raises:
        InvalidInputError: a column, clause or value that does not fit.
    """
    tree = statement.tree.copy()
    reason = fallback_reason(tree, opened)
    if reason:
        opened.isolation.reads.fall_back(reason)
    if isinstance(tree, exp.Update):
        return _update(tree, opened, ask)
    if isinstance(tree, exp.Delete):
        return _delete(tree, opened, ask)
    return _merge(tree, opened, ask)


def fallback_reason(tree: exp.Expr, opened: TransactionTable) -> str:
    """Why the rows of others cannot be held against the conditions of a statement; empty while they can."""
    found = [tree.args.get("where"), tree.args.get("on")]
    whens = tree.args.get("whens")
    found += [when.args.get("condition") for when in whens.expressions] if whens is not None else []
    for condition in filter(None, found):
        if condition.find(exp.Select):
            return SUBQUERY
        calls = [call.name.upper() for call in condition.find_all(exp.Anonymous)]
        if condition.find(exp.Rand) or _RANDOM & set(calls):
            return NON_DETERMINISTIC
        named = {name for node in condition.find_all(exp.Column) for name in (node.name, node.table) if name}
        columns = [column for name in named if (column := opened.schema.find(name)) is not None]
        if condition.find(exp.Dot, exp.Bracket) or any(column.type.is_nested for column in columns):
            return COMPLEX_TYPE
    return ""


def _update(tree: exp.Update, opened: TransactionTable, ask: Ask) -> tuple[int, LoadResult | None]:
    alias = tree.this.alias_or_name
    values = _assignments(tree.expressions, opened, alias)
    source = tree.args.get("from_")
    names = list(values)
    opened.log_constraints(names)
    select = _select(tree, opened, [values[name] for name in names], source.this if source else None)
    if opened.schema.sequence_column is not None:
        opened.isolation.reads.read_columns([opened.schema.sequence_column])
    rows = _answer(select, [*opened.schema.key, *names], ask)
    if source is not None:
        rows, ambiguous = _once(rows, opened)
        if ambiguous:
            opened.warnings.append(
                f"{ambiguous} {'row was' if ambiguous == 1 else 'rows were'} matched by several rows that "
                "assign different values; of those the largest were taken"
            )
    return len(rows), opened.change(rows) if len(rows) else None


def _delete(tree: exp.Delete, opened: TransactionTable, ask: Ask) -> tuple[int, LoadResult | None]:
    where = tree.args.get("where")
    if where is None or _is_always_true(where.this, ask):
        raise InvalidInputError("delete all rows is forbidden temporary.", kind="delete_all")
    using = tree.args.get("using") or []
    select = _select(tree, opened, [], *using)
    rows = _answer(select, list(opened.schema.key), ask)
    if using:
        rows = _distinct(rows)
    return len(rows), opened.delete(rows) if len(rows) else None


def _is_always_true(condition: exp.Expr, ask: Ask) -> bool:
    """D17 also where the condition says TRUE in other words, such as `1 = 1`."""
    if condition.find(exp.Column, exp.Select):
        return False
    found = _answer(exp.select(exp.alias_(_is_true(condition), "found")), ["found"], ask)
    return bool(found.column(0)[0].as_py())


def _once(rows: pa.Table, opened: TransactionTable) -> tuple[pa.Table, int]:
    """Each key once, and how many keys had rows that contradict each other; of a table with column groups all
    rows, for each group has a sequence that decides."""
    schema = opened.schema
    if schema.groups:
        return rows, 0
    deciding = (SEQUENCE_COL, schema.sequence_column)
    sequence = next((name for name in rows.schema.names if name in deciding), None)
    return one_per_key(rows, schema.key, sequence)


def _select(
    tree: exp.Update | exp.Delete,
    opened: TransactionTable,
    items: Sequence[exp.Expr],
    *sources: exp.Expr | None,
) -> exp.Select:
    """`SELECT key.., items.. FROM target, sources WHERE ..`."""
    alias = tree.this.alias_or_name
    keys = [exp.column(name, table=alias, quoted=True) for name in opened.schema.key]
    select = exp.select(*_named([*keys, *items])).from_(tree.this)
    for source in filter(None, sources):
        joins = source.args.get("joins") or []
        source.set("joins", None)
        select.append("joins", exp.Join(this=source, kind="CROSS"))
        for join in joins:
            select.append("joins", join)
    where = tree.args.get("where")
    if where is not None:
        select.set("where", where)
    return select


def _named(items: Sequence[exp.Expr]) -> list[exp.Expr]:
    return [exp.alias_(item, f"v{number}") for number, item in enumerate(items)]


def _answer(select: exp.Select, names: Sequence[str], ask: Ask) -> pa.Table:
    with ask(Query(select, None)) as reader:
        if len(reader.schema) != len(names):
            raise InvalidInputError(
                f"expected {len(names)} values of a row, found {len(reader.schema)}: `*` is no value",
                kind="column_count",
            )
        return reader.read_all().rename_columns(list(names))


def _distinct(rows: pa.Table) -> pa.Table:
    return rows.group_by(rows.schema.names).aggregate([]) if len(rows) else rows


def _assignments(items: Sequence[exp.Expr], opened: TransactionTable, alias: str) -> dict[str, exp.Expr]:
    """Canonical column -> expression; columns of a group are written together, the others as they are."""
    given: dict[str, exp.Expr] = {}
    for item in items:
        target = item.this if isinstance(item, exp.EQ) else None
        if not isinstance(target, exp.Column):
            raise InvalidInputError(
                f"column in assignment list is invalid, {item.sql('doris')}", kind="bad_assignment"
            )
        table = ".".join(part.name for part in target.parts[:-1])
        known = {alias.lower(), opened.name.lower(), opened.name.partition(".")[2].lower()}
        if table and table.lower() not in known:
            raise InvalidInputError(
                f"column in assignment list is invalid, {target.sql('doris')}", kind="bad_assignment"
            )
        if target.name in given:
            raise InvalidInputError(
                f"column in assignment list is invalid, {target.name} is assigned twice",
                kind="duplicate_column",
            )
        given[target.name] = item.expression
    checked: dict[str, exp.Expr] = check_assigned(opened.schema, given)
    rest = replaced_with(opened.schema.groups, checked)
    opened.isolation.reads.read_columns(rest)
    return checked | {name: exp.column(name, table=alias, quoted=True) for name in rest}


@dataclass(frozen=True)
class _Merge:
    """The parts of a MERGE that its clauses share."""

    opened: TransactionTable
    target: exp.Table
    source: exp.Expr
    on: exp.Expr

    @property
    def alias(self) -> str:
        return str(self.target.alias_or_name)

    @property
    def is_matched(self) -> exp.Expr:
        version = exp.column(shown_name(VERSION_COL), table=self.alias)
        return exp.Not(this=exp.Is(this=version, expression=exp.null()))

    @property
    def starred_row(self) -> tuple[list[str], list[exp.Expr]]:
        """`INSERT *`: every column of the target from the source's column of that name."""
        names = list(self.opened.schema.names)
        return names, [exp.column(name, table=self.source.alias_or_name, quoted=True) for name in names]

    @property
    def starred_assignments(self) -> list[exp.Expr]:
        """`UPDATE SET *`: the same for the columns beside the key."""
        pairs = zip(*self.starred_row, strict=True)
        key = self.opened.schema.key
        return [exp.EQ(this=exp.column(n, quoted=True), expression=item) for n, item in pairs if n not in key]

    def joined(self, items: Sequence[exp.Expr], side: str, where: exp.Expr) -> exp.Select:
        """Items of `source JOIN target` where a condition holds."""
        join = exp.Join(this=self.target.copy(), on=self.on.copy(), side=side or None)
        select = exp.select(*_named([item.copy() for item in items])).from_(self.source.copy())
        select.append("joins", join)
        return select.where(where)

    def unsourced(self, items: Sequence[exp.Expr], where: exp.Expr) -> exp.Select:
        """Items of the target's rows that no source row matches."""
        matches = exp.select("1").from_(self.source.copy()).where(self.on.copy())
        alone = exp.Not(this=exp.Exists(this=matches))
        return (
            exp.select(*_named([item.copy() for item in items])).from_(self.target.copy()).where(alone, where)
        )


def _merge(tree: exp.Merge, opened: TransactionTable, ask: Ask) -> tuple[int, LoadResult | None]:
    clauses = tree.args["whens"].expressions
    _check_clauses(clauses)
    merge = _Merge(opened, tree.this, tree.args["using"], tree.args["on"])
    _log_target(merge, clauses, ask)
    opened.is_muted = True  # the clauses' own queries would count as reading the whole table
    try:
        writes = _clause_writes(merge, clauses, ask)
    finally:
        opened.is_muted = False
    _refuse_several(merge, [rows for kind, _, rows in writes if kind != "insert"])
    done: list[LoadResult] = [write(rows) for _, write, rows in writes if len(rows)]
    return sum(len(rows) for _, _, rows in writes), done[-1] if done else None


def _clause_writes(
    merge: _Merge, clauses: Sequence[exp.When], ask: Ask
) -> list[tuple[str, Callable[[pa.Table], LoadResult], pa.Table]]:
    """The kind of each clause, how it writes and what: a row goes to the first whose condition holds."""
    writes = []
    before: dict[str, list[exp.Expr]] = {}
    for clause in clauses:
        kind = clause_kind(clause)
        condition = clause.args.get("condition")
        tests: list[exp.Expr] = [exp.Not(this=_is_true(test)) for test in before.get(kind, [])]
        tests += [_is_true(condition)] if condition is not None else []
        where = exp.and_(*tests) if tests else exp.true()
        before.setdefault(kind, []).append(condition if condition is not None else exp.true())
        writes.append((kind, *_clause_rows(merge, clause, kind, where, ask)))
    return writes


def _clause_rows(
    merge: _Merge, clause: exp.When, kind: str, where: exp.Expr, ask: Ask
) -> tuple[Callable[[pa.Table], LoadResult], pa.Table]:
    """What one clause writes, and how."""
    opened, then = merge.opened, clause.args["then"]
    keys = [exp.column(name, table=merge.alias, quoted=True) for name in opened.schema.key]
    if kind == "insert":
        names, items = merge.starred_row if _is_starred(then) else _inserted(then, opened)
        unmatched = exp.and_(exp.Not(this=merge.is_matched), where)
        rows = _answer(merge.joined(items, "LEFT", unmatched), names, ask)
        return opened.upsert, rows
    names = list(opened.schema.key)
    values: dict[str, exp.Expr] = {}
    if isinstance(then, exp.Update):
        given = merge.starred_assignments if _is_starred(then) else then.expressions
        values = _assignments(given, opened, merge.alias)
        opened.log_constraints(values)
    items = [*keys, *values.values()]
    select = merge.joined(items, "", where) if kind == "matched" else merge.unsourced(items, where)
    rows = _answer(select, [*names, *values], ask)
    if not isinstance(then, exp.Update):
        return opened.delete, _distinct(rows)
    rows, ambiguous = _once(rows, opened)
    if ambiguous:
        raise _several_matched(opened, ambiguous)
    return opened.change, rows


def _refuse_several(merge: _Merge, changed: Sequence[pa.Table]) -> None:
    """No row of the target may be changed by two clauses: which one should count?"""
    several = keys_in_several(changed, merge.opened.schema.key) if len(changed) > 1 else ()
    if len(several):
        raise _several_matched(merge.opened, len(several))


def _several_matched(opened: TransactionTable, count: int) -> InvalidInputError:
    matched = "row is matched" if count == 1 else "rows are matched"
    return InvalidInputError(
        f"MERGE INTO {opened.name}: {count} target {matched} by several source rows that would change it "
        "differently; keep one source row per key, or assign the sequence column, which then decides",
        kind="several_matches",
    )


def _is_starred(then: exp.Expr) -> bool:
    return isinstance(then.this, exp.Star) or any(isinstance(item, exp.Star) for item in then.expressions)


def clause_kind(clause: exp.When) -> str:
    """Of a MERGE: `matched`, `insert` or `unsourced`."""
    if clause.args.get("matched"):
        return "matched"
    return "unsourced" if clause.args.get("source") else "insert"


def _check_clauses(clauses: Sequence[exp.When]) -> None:
    """I4: only the last clause of a kind may lack a condition."""
    for kind, word in (("matched", "matched"), ("insert", "not matched"), ("unsourced", "not matched")):
        same = [clause for clause in clauses if clause_kind(clause) == kind]
        if any(clause.args.get("condition") is None for clause in same[:-1]):
            raise InvalidInputError(
                f"Only the last {word} clause could without case predicate", kind="bad_merge"
            )


def _inserted(then: exp.Expr, opened: TransactionTable) -> tuple[list[str], list[exp.Expr]]:
    """Columns and values of an INSERT clause (I3)."""
    items = list(then.expression.expressions)
    listed = [column.name for column in then.this.expressions]
    names = list(opened.schema.names) if listed == [_STAR] else listed
    for name in names:
        if opened.schema.find(name) is None and not name.startswith("__"):
            raise InvalidInputError(f"unknown column in target table: {name}", kind="unknown_column")
    if len(names) != len(items):
        raise InvalidInputError(
            f"insert into cols should be corresponding to the query output: expected {len(names)} values, "
            f"found {len(items)}",
            kind="column_count",
        )
    return names, items


def _is_true(condition: exp.Expr) -> exp.Expr:
    """NULL is no."""
    return exp.func("coalesce", exp.paren(condition.copy()), exp.false())


def _log_target(merge: _Merge, clauses: Sequence[exp.When], ask: Ask) -> None:
    """Remembers what a MERGE reads of its target: every source key where ON names the whole key, and every
    column that occurs."""
    opened = merge.opened
    reads = opened.isolation.reads
    reads.read_columns(
        {
            found.name
            for node in [merge.on, *clauses]
            for column in node.find_all(exp.Column)
            if (found := opened.schema.find(column.name)) is not None
        }
    )
    equal = _source_keys(merge)
    reads_more = any(clause_kind(clause) == "unsourced" or clause.find(exp.Select) for clause in clauses)
    if not reads_more and equal is not None:
        select = exp.select(*_named(equal)).from_(merge.source.copy())
        # Unmuted: a source that reads the target itself reads it like any query.
        arrays = _as_keys(_answer(select, list(opened.schema.key), ask), opened.schema)
        if arrays is not None:
            reads.read_keys(arrays, ())
            return
    names_target = any(
        found.name == opened.name.partition(".")[2] for found in merge.source.find_all(exp.Table)
    )
    reads.read_where(None, opened.schema.names if names_target else ())


def _as_keys(values: pa.Table, schema: TableSchema) -> list[pa.Array] | None:
    """What source rows equate with the key, as keys; None when other keys may be equal to them too.

    A number that is none of the column's type is equal to no key, and a text or time that cannot be converted
    may be equal to one all the same; a number is equal to several texts.
    """
    arrays: list[pa.ChunkedArray] = []
    keep = np.ones(len(values), dtype=np.bool_)
    for column, source in zip(schema.key_columns, values.columns, strict=True):
        if column.type.byte_length_max is not None and not pa.types.is_string(source.type):
            return None
        cast = try_cast(source, column.type)
        if cast.failed is not None:
            if not (pa.types.is_integer(source.type) or pa.types.is_decimal(source.type)):
                return None
            keep &= ~np.asarray(cast.failed.to_numpy(zero_copy_only=False)).astype(np.bool_)
        arrays.append(cast.values)
    if keep.all():
        return arrays
    rows = pa.array(np.flatnonzero(keep))
    return [array.take(rows) for array in arrays]


def _source_keys(merge: _Merge) -> list[exp.Expr] | None:
    """For each key column the source's expression that ON equates with it, None unless all have one."""
    alias = merge.alias.lower()

    def of_target(column: exp.Column) -> bool:
        """Whether it is, or may be, a column of the target."""
        if column.table:
            return column.table.lower() == alias
        return merge.opened.schema.find(column.name) is not None

    found: dict[str, exp.Expr] = {}
    for part in conjuncts(merge.on):
        if not isinstance(part, exp.EQ):
            continue
        for mine, other in ((part.this, part.expression), (part.expression, part.this)):
            is_mine = isinstance(mine, exp.Column) and mine.table.lower() == alias
            if is_mine and not any(of_target(column) for column in other.find_all(exp.Column)):
                found[mine.name.lower()] = other.copy()
    keys = [found.get(name.lower()) for name in merge.opened.schema.key]
    return [key for key in keys if key is not None] if None not in keys else None


def star_inserts(text: str, offsets: Iterator[int]) -> str:
    """`INSERT VALUES` of a MERGE with a column list that stands for all columns: sqlglot needs one."""
    for offset in sorted(offsets, reverse=True):
        text = f"{text[:offset]} ({_STAR}) {text[offset:]}"
    return text
