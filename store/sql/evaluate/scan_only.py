"""The scan-only plan: queries that a scan or look-up of one table answers without DuckDB.

Such a query selects columns of one table, under conditions that the scan decides, with a LIMIT at most. Its
values stay as they are stored, it stops reading at its limit, and a complete key reads only rows of that key.
Counts and extremes under such conditions are read from zone maps (sql.evaluate.aggregates).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from seqstore.store.sql.evaluate.aggregates import aggregates
from seqstore.store.sql.evaluate.relation_rows import open_rows
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.relations import Relation, source_column
from seqstore.store.types.column_types import ColumnType

_CLAUSES: Final = frozenset(["expressions", "from_", "where", "limit", "offset"])

# Offset, and limit if there is one.
_Bounds = tuple[int, int | None]
_ALL_ROWS: Final[_Bounds] = (0, None)
# Canonical name, type and heading of a column of the result.
_Item = tuple[str, ColumnType, str]


def scan_only_plan(
    tree: exp.Query, relations: list[Relation], *, show_hidden: bool
) -> pa.RecordBatchReader | None:
    """Returns the result of a query that needs no evaluation, read on demand; None for any other query."""
    if not isinstance(tree, exp.Select) or len(relations) != 1:
        return None
    relation, bounds = relations[0], _bounds(tree)
    if bounds is None or not relation.is_where_decided or not _is_simple(tree, relation):
        return None
    if bounds == _ALL_ROWS and relation.keys is None:
        answer = aggregates(tree, relation, deleted=show_hidden)
        if answer is not None:
            return answer
    items = _items(tree, relation, show_hidden=show_hidden)
    return _projected(relation, items, bounds, deleted=show_hidden) if items is not None else None


def _is_simple(tree: exp.Select, relation: Relation) -> bool:
    """Returns whether the relation is a query's only source, and no clause must be evaluated."""
    source = tree.args.get("from_")
    if source is None or source.this is not relation.node or relation.node.args.get("joins"):
        return False
    return not any(value for name, value in tree.args.items() if name not in _CLAUSES)


def _bounds(tree: exp.Select) -> _Bounds | None:
    """Returns offset and limit, None when one of them is no plain number."""
    numbers: list[int | None] = []
    for clause in ("offset", "limit"):
        node = tree.args.get(clause)
        if node is None:
            numbers.append(None)
            continue
        value = node.expression if isinstance(node, (exp.Limit, exp.Offset)) else None
        if not isinstance(value, exp.Literal) or value.is_string or node.expressions:
            return None
        if not value.this.isdigit():
            return None
        numbers.append(int(value.this))
    return numbers[0] or 0, numbers[1]


def _items(tree: exp.Select, relation: Relation, *, show_hidden: bool) -> list[_Item] | None:
    """Returns the columns of the result, None when the query computes one."""
    items: list[_Item] = []
    for item in tree.expressions:
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            if any(star.args.values()) or (item is not star and item.table.lower() != relation.alias.lower()):
                return None
            found = relation.all_columns(show_hidden=show_hidden)
            items += [(name, kind, source_column(name)) for name, kind in found]
            continue
        known = _column(item.unalias(), relation)
        if known is None:
            return None
        items.append((*known, item.alias))
    return items


def _column(node: exp.Expr, relation: Relation) -> tuple[str, ColumnType] | None:
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return None
    if node.table and node.table.lower() != relation.alias.lower():
        return None
    return relation.column_type(node.name)


def _projected(
    relation: Relation, items: list[_Item], bounds: _Bounds, *, deleted: bool
) -> pa.RecordBatchReader:
    schema = pa.schema([pa.field(heading, kind.arrow) for _, kind, heading in items])
    skip, limit = bounds

    def batches() -> Iterator[pa.RecordBatch]:
        to_skip, left = skip, limit
        if left == 0:
            return
        with open_rows(relation, deleted=deleted) as reader:
            for batch in reader:
                cut = batch.slice(to_skip, left) if left is not None else batch.slice(to_skip)
                to_skip = max(to_skip - batch.num_rows, 0)
                if cut.num_rows:
                    arrays = [cut.column(name) for name, _, _ in items]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
                if left is not None:
                    left -= cut.num_rows
                    if left == 0:
                        return

    return pa.RecordBatchReader.from_batches(schema, batches())
