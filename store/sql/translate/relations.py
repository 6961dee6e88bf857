"""The tables that a query reads: their columns, and the conditions that their scans decide."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError, NotFoundError, StoreError
from seqstore.store.expressions.condition import Condition
from seqstore.store.read.first_rows import KeyOrder
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.read.tablets import Tablets
from seqstore.store.schema.column import HIDDEN_COLUMNS
from seqstore.store.schema.partitions import any_partition_filter, partition_named
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.dialect import TABLETS
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.parse.statement_values import TableName
from seqstore.store.types.column_types import INTEGER_RANGES, ColumnType

_KEYS_MAX: Final = 10_000
VIEW: Final = "view"  # of a table's `meta`: the view whose query names the table, `db.view`
_NUMBER: Final = "relation"  # of a table's `meta`: its relation's number; copies of the table have it too
_UNSUPPORTED: Final = {"pivots": "PIVOT", "sample": "TABLESAMPLE", "system_time": "FOR TIME AS OF",
                       "when": "AT", "hints": "WITH (hint)", "rows_from": "ROWS FROM",
                       "changes": "CHANGES"}  # fmt: skip


def shown_name(name: str) -> str:
    """Returns the Doris spelling of a hidden column."""
    return name.replace("__", "__DORIS_", 1)


def source_column(name: str) -> str:
    """Returns a column's name in the registered source: the Doris spelling for hidden columns."""
    return shown_name(name) if name in HIDDEN_COLUMNS else name


# A version number, a time in the session's zone, tablets of a version, or None for the newest version.
Version: TypeAlias = "int | datetime | Tablets | None"


class Readable(Protocol):
    """A table at one version as a query reads it; `read.snapshot.Snapshot` is one."""

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
        node: the table in the tree; a translation may copy it (`nodes_by_relation`).
        table: its name as written.
        alias: the name that qualifies its columns.
        snapshot: the version that the query reads.
        partitions: the scan reads only rows of these partitions, if any are named.
        columns: canonical names of the columns to read: visible ones in table order, then hidden ones.
        is_starred: a `*` selects all its columns.
        conditions: the comparisons that the scan decides (`choose_conditions`).
        undecided: the parts of WHERE that the conditions do not cover.
        is_where_decided: the conditions cover the whole WHERE of a query on this table alone.
        is_decided_once: DuckDB need not test the conditions again.
        is_unfiltered: DuckDB decides the conditions; the scan uses them only to skip batches by zone maps.
        first: the query needs only the first rows of an order by key, as many as it says.
        schema: the snapshot's schema.
    """

    node: exp.Table
    table: TableName
    alias: str
    snapshot: Readable
    partitions: tuple[str, ...] = ()
    columns: list[str] = field(default_factory=list)
    is_starred: bool = False
    conditions: list[Condition] = field(default_factory=list)
    undecided: list[exp.Expr] = field(default_factory=list)
    is_where_decided: bool = False
    is_decided_once: bool = False
    is_unfiltered: bool = False
    first: tuple[KeyOrder, int] | None = None
    schema: TableSchema = field(init=False)

    def __post_init__(self) -> None:
        self.schema = self.snapshot.schema

    @cached_property
    def key_conditions(self) -> dict[str, Condition]:
        """The first equality on each key column that has one."""
        fixed: dict[str, Condition] = {}
        for condition in self.conditions:
            if condition.operator in ("=", "in") and condition.column in self.schema.key:
                fixed.setdefault(condition.column, condition)
        return fixed

    @cached_property
    def keys(self) -> pa.Table | None:
        """Every key that the conditions allow, None unless they fix each key column to a few values."""
        fixed = self.key_conditions
        if len(fixed) < len(self.schema.key):
            return None
        choices = [list(dict.fromkeys(v.as_py() for v in fixed[name].values)) for name in self.schema.key]
        if math.prod(map(len, choices)) > _KEYS_MAX:
            return None
        columns = zip(*itertools.product(*choices), strict=True)
        fields = [self.schema.fields[name] for name in self.schema.key]
        arrays = [pa.array(list(column), field.type) for column, field in zip(columns, fields, strict=True)]
        return pa.table(arrays, schema=pa.schema(fields))

    @property
    def reads_few(self) -> bool:
        """Whether rows are read by other ways than a scan of all batches in place."""
        return bool(self.partitions) or self.keys is not None or self.first is not None

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

    def all_columns(self, *, show_hidden: bool) -> list[tuple[str, ColumnType, str]]:
        """Returns canonical name, type and heading of each column that a `*` stands for."""
        found = [(column.name, column.type, column.name) for column in self.schema.columns]
        hidden = self.schema.hidden_fields() if show_hidden else []
        known = [self.schema.types[each.name.lower()] for each in hidden]
        return found + [(name, kind, shown_name(name)) for name, kind in known]

    def scanned_schema(self) -> pa.Schema:
        """Returns the Arrow schema of `columns`, under their names in the registered source."""
        fields = self.schema.fields
        return pa.schema([pa.field(source_column(name), fields[name].type) for name in self.columns])


def rows_bound(digits: str) -> int:
    """Returns a number of rows of LIMIT or OFFSET: as it is written, or the most that a table may have."""
    return min(int(digits), INTEGER_RANGES["BIGINT"][1])


def find_relations(
    tree: exp.Query,
    open_snapshot: Callable[[TableName, Version, str], Readable],
    open_function: Callable[[exp.Anonymous], Readable],
) -> list[Relation]:
    """Opens every mention of a stored table or table function; names of CTEs are no tables.

    Raises:
        NotFoundError: no such table.
        InvalidInputError: a clause on a table that is not supported.
    """
    found = []
    for node in list(find_all(tree, exp.Table)):
        if isinstance(node.this, exp.Anonymous):
            rows = open_function(node.this)
            node.set("this", exp.to_identifier(node.this.name))
            found.append(Relation(node, TableName(None, node.name), node.alias or node.name, rows))
        elif cte_of(node) is None:
            found.append(_stored_relation(node, open_snapshot))
    for number, relation in enumerate(found):
        relation.node.meta[_NUMBER] = number
    return found


def check_databases(tree: exp.Expr, current: Callable[[], str | None]) -> bool:
    """Checks the databases that qualify columns, and returns whether there is one.

    Args:
        current: returns the database of tables that are named without one.

    Raises:
        InvalidInputError: the table of that name is in another database.
    """
    qualified = [column for column in find_all(tree, exp.Column) if column.args.get("db")]
    for column in qualified:
        places = _places_of(column)
        if not places or column.db.lower() in {(table.db or current() or "").lower() for table in places}:
            continue
        database = places[0].db or current()
        raise InvalidInputError(
            f"unknown table '{column.db}.{column.table}' before a column of the query; there is "
            f"'{database}.{column.table}'",
            kind="unknown_column",
        )
    return bool(qualified)


def _places_of(column: exp.Column) -> list[exp.Table]:
    """Returns the tables that `db.table.column` may mean, of the nearest SELECT with one of that name.

    None where `db` is the name of a table there: then the column is `table.struct.field`.
    """
    select = column.parent_select
    while isinstance(select, exp.Select):
        source = select.args.get("from_")
        nodes = [source.this] if source is not None else []
        nodes += [join.this for join in select.args.get("joins") or ()]
        if any(node.alias_or_name.lower() == column.db.lower() for node in nodes):
            return []
        found = [node for node in nodes if node.alias_or_name.lower() == column.table.lower()]
        if found:
            return [node for node in found if isinstance(node, exp.Table) and cte_of(node) is None]
        select = select.parent_select
    return []


def nodes_by_relation(tree: exp.Expr, count: int) -> list[list[exp.Table]]:
    """Finds the tables of each of the first relations, in the order of `find_relations`.

    A relation has several where a translation repeats an argument that is a subquery, and none where it
    leaves the argument out.
    """
    nodes: list[list[exp.Table]] = [[] for _ in range(count)]
    for node in find_all(tree, exp.Table):
        number = node.meta.get(_NUMBER)
        if number is not None:
            nodes[number].append(node)
    return nodes


def mentioned_tables(tree: exp.Expr) -> Iterator[TableName]:
    """Yields the tables that a query reads, those of table functions among them; names of CTEs are none."""
    for node in find_all(tree, exp.Table):
        if isinstance(node.this, exp.Anonymous):
            first = next(iter(node.this.expressions), None)
            if isinstance(first, exp.Literal) and first.is_string:
                database, _, name = first.this.rpartition(".")
                yield TableName(database or None, name)
        elif isinstance(node.this, exp.Identifier) and cte_of(node) is None:
            yield TableName(node.db or None, node.name)


def _stored_relation(
    node: exp.Table, open_snapshot: Callable[[TableName, Version, str], Readable]
) -> Relation:
    if not isinstance(node.this, exp.Identifier):
        name = type(node.this).__name__.lower()
        raise InvalidInputError(f"table function {name!r} is not supported", kind="not_supported")
    refuse_unsupported(node)
    if node.args.get("catalog") and node.catalog.lower() != "internal":
        raise InvalidInputError(
            f"table {node.sql()}: there is no catalog {node.catalog!r}", kind="unknown_catalog"
        )
    table = TableName(node.db or None, node.name)
    partition = node.args.get("partition")
    partitions = tuple(item.name for item in partition.expressions) if partition is not None else ()
    node.set("partition", None)
    alias, version = node.alias or node.name, _version(node, partition)
    return Relation(node, table, alias, _opened(node, table, version, open_snapshot), partitions)


def _opened(
    node: exp.Table,
    table: TableName,
    version: Version,
    open_snapshot: Callable[[TableName, Version, str], Readable],
) -> Readable:
    view = str(node.meta.get(VIEW) or "")
    try:
        return open_snapshot(table, version, view)
    except NotFoundError as error:
        if not view:
            raise
        raise invalid_view(view, error) from error


def invalid_view(view: str, error: StoreError) -> InvalidInputError:
    """Builds the error of a view whose tables have changed so that its query cannot run."""
    return InvalidInputError(
        f"View '{view}' references invalid table(s) or column(s): {error.message}; restore them, or give it "
        f"another query (ALTER VIEW {view} AS ..)",
        kind="invalid_view",
        view=view,
    )


def refuse_unsupported(node: exp.Table) -> None:
    """Refuses the clauses behind a table that no query here may have, and drops hints on MySQL's indexes."""
    hints = node.args.get("hints") or []
    if all(isinstance(hint, exp.IndexTableHint) for hint in hints):  # how to plan, as Doris's hints
        node.set("hints", None)
    for argument, clause in _UNSUPPORTED.items():
        if node.args.get(argument):
            raise InvalidInputError(
                f"{clause} behind table {node.name!r} is not supported", kind="not_supported"
            )


def cte_of(node: exp.Expr) -> exp.CTE | None:
    """Finds the CTE that a name stands for; returns None for any other source.

    A CTE sees only the ones before it in its WITH; in WITH RECURSIVE also itself.
    """
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier) or node.args.get("db"):
        return None
    name = node.name.lower()
    inner: exp.Expr = node
    outer = node.parent
    while outer is not None:
        visible: list[exp.Expr] = []
        if isinstance(outer, exp.With):
            place = next(i for i, cte in enumerate(outer.expressions) if cte is inner)
            visible = outer.expressions[: place + 1 if outer.args.get("recursive") else place]
        elif (clause := outer.args.get("with_")) is not None and clause is not inner:
            visible = clause.expressions
        for cte in visible:
            if isinstance(cte, exp.CTE) and cte.alias.lower() == name:
                return cte
        inner, outer = outer, outer.parent
    return None


def _version(node: exp.Table, partition: exp.Partition | None) -> Version:
    version = node.args.get("version")
    tablets = partition.meta.get(TABLETS) if partition is not None else None
    if tablets is not None:
        if version is not None or not all(re.fullmatch("[0-9]{1,19}", number) for number in tablets):
            raise InvalidInputError(
                f"table {node.name!r}: TABLET takes ids, which tell the version, and no FOR VERSION AS OF",
                kind="bad_tablet",
            )
        return Tablets.of([int(number) for number in tablets])
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
    """Sets the columns that each relation reads: those named anywhere in the query, or all behind a `*`."""
    mentioned = {node.name.lower() for node in find_all(tree, exp.Identifier)}
    is_natural = any(join.args.get("method") == "NATURAL" for join in find_all(tree, exp.Join))
    starred = {node.table.lower() for node in find_all(tree, exp.Column) if isinstance(node.this, exp.Star)}
    for relation in relations:
        schema = relation.schema
        relation.is_starred = is_natural or relation.alias.lower() in starred or _has_star(relation.node)
        named = {schema.types[name][0] for name in mentioned if name in schema.types}
        relation.columns = [name for name in schema.names if relation.is_starred or name in named]
        hidden, is_shown = named.intersection(HIDDEN_COLUMNS), show_hidden and relation.is_starred
        if (is_shown or hidden) and isinstance(relation.snapshot, Snapshot):
            stored = (field.name for field in schema.hidden_fields())
            relation.columns += [name for name in stored if is_shown or name in hidden]
        if not relation.columns:  # count(*) needs rows, but no values
            relation.columns = [schema.key[0]]


def _has_star(node: exp.Table) -> bool:
    select = node.find_ancestor(exp.Select)
    return select is not None and any(isinstance(item, exp.Star) for item in select.expressions)


def grouped_columns(tree: exp.Query) -> set[str]:
    """Collects the names, in lower case, of the columns that a query groups by.

    These are the columns in GROUP BY, and in SELECT DISTINCT.
    """
    found: list[exp.Expr] = []
    for select in find_all(tree, exp.Select):
        if select.args.get("distinct"):
            found += select.expressions
        group = select.args.get("group")
        aliased = {item.alias.lower(): item for item in select.expressions if isinstance(item, exp.Alias)}
        for node in find_all(group, exp.Column, exp.Literal) if group is not None else ():
            place = int(node.name) if isinstance(node, exp.Literal) and node.name.isdigit() else 0
            if 0 < place <= len(select.expressions):
                found.append(select.expressions[place - 1])
            found.append(aliased.get(node.name.lower(), node))
    return {column.name.lower() for item in found for column in find_all(item, exp.Column)}
