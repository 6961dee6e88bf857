"""The tables a query reads: which ones, which of their columns, and which rows a scan can leave out."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.condition import Condition
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.schema.column import DELETE_SIGN, GROUPS_COL, SEQUENCE_COL, VERSION_COL, hidden_name
from seqstore.store.schema.partitions import any_partition_filter, partition_named
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import TableName
from seqstore.store.sql.translate.predicates import column_of, conditions, conjuncts
from seqstore.store.types.column_types import ColumnType, parse_type

_HIDDEN_TYPES: Final = {
    DELETE_SIGN: parse_type("TINYINT"),
    VERSION_COL: parse_type("BIGINT"),
    GROUPS_COL: parse_type("BIGINT"),
}
_UNSUPPORTED: Final = {
    "pivots": "PIVOT",
    "sample": "TABLESAMPLE",
    "system_time": "FOR TIME AS OF",
    "when": "AT",
    "hints": "table hints",
    "rows_from": "ROWS FROM",
    "changes": "CHANGES",
}


def shown_name(name: str) -> str:
    """A hidden column as SQL shows it: the Doris spelling."""
    return name.replace("__", "__DORIS_", 1)


# A number, a time in the session's zone, or the newest.
Version: TypeAlias = "int | datetime | None"


class Readable(Protocol):
    """What a query needs of a table at one version; `read.snapshot.Snapshot` is one."""

    @property
    def schema(self) -> TableSchema: ...

    @property
    def version(self) -> int: ...

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        *,
        hidden: bool = False,
        deleted: bool = False,
    ) -> pa.RecordBatchReader: ...

    def get(
        self, keys: Any, columns: Sequence[str] | None = None, *, hidden: bool = False, deleted: bool = False
    ) -> pa.Table: ...

    def count(self) -> int: ...


@dataclass
class Relation:
    """One mention of a table in a query.

    Attributes:
        node: the table in the tree.
        table: as written.
        alias: the name its columns are qualified with.
        snapshot: the version it reads.
        columns: what is read, visible ones in table order, then hidden ones; canonical names.
        is_starred: all its columns are asked for by a `*`.
        conditions: what the scan decides.
        decided: the parts of its WHERE that say so and need not be decided again.
        is_bare: every row of the batches that zone maps leave over is read: DuckDB decides all conditions.
        partitions: named ones, of which alone rows are read; the scan decides it.
    """

    node: exp.Table
    table: TableName
    alias: str
    snapshot: Readable
    columns: list[str] = field(default_factory=list)
    is_starred: bool = False
    conditions: list[Condition] = field(default_factory=list)
    partitions: tuple[str, ...] = ()
    decided: list[exp.Expr] = field(default_factory=list)
    is_bare: bool = False

    @property
    def schema(self) -> TableSchema:
        return self.snapshot.schema

    @property
    def filter(self) -> pc.Expression | None:
        """Conditions and partitions as one filter of a scan, None without any."""
        parts = [condition.expression for condition in self.conditions]
        if self.partitions:
            partitioning = self.schema.partitioning
            if partitioning is None:
                raise InvalidInputError(f"table {self.table} is not partitioned", kind="not_partitioned")
            named = [partition_named(self.schema, name) for name in self.partitions]
            parts.append(any_partition_filter(self.schema, named))
        return functools.reduce(operator.and_, parts) if parts else None

    def column_type(self, name: str) -> tuple[str, ColumnType] | None:
        """Canonical name and type of a visible or hidden column."""
        hidden = hidden_name(name)
        if hidden is None:
            column = self.schema.find(name)
            return (column.name, column.type) if column is not None else None
        if hidden == SEQUENCE_COL:
            kind = self.schema.sequence_type
            return (hidden, kind) if kind is not None else None
        if hidden == GROUPS_COL and not self.schema.groups:
            return None
        return hidden, _HIDDEN_TYPES[hidden]


def find_relations(
    tree: exp.Query,
    open_snapshot: Callable[[TableName, Version], Readable],
    open_function: Callable[[exp.Anonymous], Readable],
) -> list[Relation]:
    """Every mention of a stored table; names of CTEs are none.

    Raises:
        NotFoundError: no such table.
        InvalidInputError: a clause on a table that is not supported.
    """
    found = []
    for node in list(tree.find_all(exp.Table)):
        if isinstance(node.this, exp.Anonymous):
            rows = open_function(node.this)
            node.set("this", exp.to_identifier(node.this.name))
            found.append(Relation(node, TableName(None, node.name), node.alias or node.name, rows))
            continue
        if not isinstance(node.this, exp.Identifier):
            name = type(node.this).__name__.lower()
            raise InvalidInputError(f"table function {name!r} is not supported", kind="not_supported")
        if not node.args.get("db") and _is_cte(node):
            continue
        for argument, what in _UNSUPPORTED.items():
            if node.args.get(argument):
                raise InvalidInputError(
                    f"{what} behind table {node.name!r} is not supported", kind="not_supported"
                )
        if node.args.get("catalog") and node.catalog.lower() != "internal":
            raise InvalidInputError(
                f"table {node.sql()}: there is no catalog {node.catalog!r}", kind="unknown_catalog"
            )
        table = TableName(node.db or None, node.name)
        partition = node.args.get("partition")
        partitions = tuple(item.name for item in partition.expressions) if partition is not None else ()
        node.set("partition", None)
        alias, version = node.alias or node.name, _version(node)
        found.append(Relation(node, table, alias, open_snapshot(table, version), partitions=partitions))
    return found


def _is_cte(node: exp.Table) -> bool:
    """Whether a WITH around the table defines its name; a CTE sees only those before it, unless RECURSIVE."""
    name = node.name.lower()
    inner: exp.Expr = node
    outer = node.parent
    while outer is not None:
        clause = outer.args.get("with_") if not isinstance(outer, exp.With) else None
        if clause is not None and clause is not inner:
            if any(cte.alias.lower() == name for cte in clause.expressions):
                return True
        elif isinstance(outer, exp.With):
            position = next(i for i, cte in enumerate(outer.expressions) if cte is inner)
            visible = (
                outer.expressions[: position + 1]
                if outer.args.get("recursive")
                else outer.expressions[:position]
            )
            if any(cte.alias.lower() == name for cte in visible):
                return True
        inner, outer = outer, outer.parent
    return False


def _version(node: exp.Table) -> Version:
    version = node.args.get("version")
    if version is None:
        return None
    number = version.expression
    if version.this == "TIMESTAMP" and isinstance(number, exp.Literal) and number.is_string:
        with suppress(ValueError):
            return datetime.fromisoformat(number.this)
    is_number = isinstance(number, exp.Literal) and re.fullmatch("[0-9]{1,18}", number.this)
    if version.this != "VERSION" or not is_number:
        raise InvalidInputError(
            f"table {node.name!r}: expected FOR VERSION AS OF and a number, or FOR TIME AS OF and a "
            "time such as '2024-05-01 10:00:00'",
            kind="not_supported",
        )
    return int(number.this)


def choose_columns(tree: exp.Query, relations: list[Relation], *, show_hidden: bool) -> None:
    """Decides what each relation reads: columns whose name occurs anywhere, all where a `*` asks for them."""
    mentioned = {node.name.lower() for node in tree.find_all(exp.Identifier)}
    hidden = {found for name in mentioned if (found := hidden_name(name)) is not None}
    is_natural = any(join.args.get("method") == "NATURAL" for join in tree.find_all(exp.Join))
    starred = _starred_aliases(tree)
    for relation in relations:
        select = relation.node.find_ancestor(exp.Select)
        relation.is_starred = (
            is_natural
            or relation.alias.lower() in starred
            or (select is not None and any(isinstance(item, exp.Star) for item in select.expressions))
        )
        schema = relation.schema
        relation.columns = [name for name in schema.names if relation.is_starred or name.lower() in mentioned]
        stored = schema.hidden_fields() if isinstance(relation.snapshot, Snapshot) else []
        wanted_hidden = hidden | {f.name for f in stored if show_hidden and relation.is_starred}
        relation.columns += [f.name for f in stored if f.name in wanted_hidden]
        if not relation.columns:  # count(*) and its like need rows, no values
            relation.columns = [schema.key[0]]


def _starred_aliases(tree: exp.Query) -> set[str]:
    return {node.table.lower() for node in tree.find_all(exp.Column) if isinstance(node.this, exp.Star)}


def grouped_columns(tree: exp.Query) -> set[str]:
    """Names, in lower case, of the columns that a query groups by: in GROUP BY, and in SELECT DISTINCT."""
    found: list[exp.Expr] = []
    for select in tree.find_all(exp.Select):
        if select.args.get("distinct"):
            found += select.expressions
        group = select.args.get("group")
        aliased = {item.alias.lower(): item for item in select.expressions if isinstance(item, exp.Alias)}
        for node in group.find_all(exp.Column, exp.Literal) if group is not None else ():
            place = int(node.name) if isinstance(node, exp.Literal) and node.name.isdigit() else 0
            if 0 < place <= len(select.expressions):
                found.append(select.expressions[place - 1])
            found.append(aliased.get(node.name.lower(), node))
    return {column.name.lower() for item in found for column in item.find_all(exp.Column)}


def choose_conditions(relations: list[Relation]) -> None:
    """Gives each relation the conditions of its own WHERE that no outer join makes wrong to decide early."""
    for relation in relations:
        select = relation.node.parent_select
        if not isinstance(select, exp.Select) or not _is_kept(relation.node, select):
            continue
        where = select.args.get("where")
        is_alone = len(_siblings(select)) == 1
        for part in conjuncts(where.this if where is not None else None):
            found = own_conditions(part, relation, is_alone=is_alone)
            relation.conditions += found or []
            if found is not None and is_alone and isinstance(relation.snapshot, Snapshot):
                relation.decided.append(part)


def leave_out_decided(relations: list[Relation]) -> None:
    """Takes out of each WHERE what the scan decides for good: a column only compared is then not read."""
    for relation in relations:
        select = relation.node.parent_select
        if not relation.decided or relation.is_bare or not isinstance(select, exp.Select):
            continue
        where = select.args["where"]
        left = [part for part in conjuncts(where.this) if not any(part is each for each in relation.decided)]
        select.set("where", exp.Where(this=exp.and_(*left, copy=False)) if left else None)


def own_conditions(part: exp.Expr, relation: Relation, *, is_alone: bool) -> list[Condition] | None:
    """The conditions of one part of a WHERE, None when a scan of the relation cannot decide it."""
    column = column_of(part)
    if column is None or isinstance(column.this, exp.Star):
        return None
    if column.table.lower() != relation.alias.lower() and (column.table or not is_alone):
        return None
    known = relation.column_type(column.name)
    return conditions(part, *known) if known is not None else None


def _siblings(select: exp.Select) -> list[exp.Expr]:
    source = select.args.get("from_")
    joins = select.args.get("joins") or []
    laterals = select.args.get("laterals") or []
    return [*([source.this] if source is not None else []), *(join.this for join in joins), *laterals]


def _is_kept(node: exp.Table, select: exp.Select) -> bool:
    """Whether rows of the table that fail the WHERE may go before the joins."""
    joins = select.args.get("joins") or []
    sides = [str(join.args.get("side") or "").upper() for join in joins]
    if any(side in ("RIGHT", "FULL") for side in sides) or node.args.get("joins"):
        return False
    source = select.args.get("from_")
    if source is not None and source.this is node:
        return True
    return any(join.this is node and not side for join, side in zip(joins, sides, strict=True))
