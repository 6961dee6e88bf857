"""Queries that only filter and choose the columns of one table, whose tablets can be read one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.dialect import TABLETS
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.parse.statement_values import Query, TableName

_OTHER_CLAUSES: Final = {"with_": "WITH", "distinct": "DISTINCT", "joins": "JOIN", "laterals": "LATERAL VIEW",
                         "group": "GROUP BY", "having": "HAVING", "qualify": "QUALIFY", "windows": "WINDOW",
                         "order": "ORDER BY", "offset": "OFFSET"}  # fmt: skip
_OTHER_NODES: Final = (exp.AggFunc, exp.Window, exp.Subquery)


def scanned_table(query: Query) -> TableName:
    """Returns the table of a query that is no more than a scan.

    Raises:
        InvalidInputError: the query does more; the message names the clause.
    """
    node = _scanned(query.tree)
    return TableName(node.db or None, node.name)


def of_tablets(query: Query, ids: Sequence[int]) -> Query:
    """Returns a scan that reads only some tablets of its table.

    Raises:
        InvalidInputError: the query is no scan.
    """
    tree = query.tree.copy()
    node = _scanned(tree)
    partition = exp.Partition(expressions=[])
    partition.meta[TABLETS] = tuple(map(str, ids))
    node.set("partition", partition)
    return replace(query, tree=tree)


def names_tablets(query: Query) -> bool:
    """Returns whether a query reads some tablets of a table."""
    partitions = (node.args.get("partition") for node in find_all(query.tree, exp.Table))
    return any(found is not None and TABLETS in found.meta for found in partitions)


def _scanned(tree: exp.Expr) -> exp.Table:
    """Returns the node of the one table."""
    if not isinstance(tree, exp.Select):
        raise _no_scan(type(tree).__name__.upper())
    for name, clause in _OTHER_CLAUSES.items():
        if tree.args.get(name):
            raise _no_scan(clause)
    other = tree.find(*_OTHER_NODES)
    if other is not None:
        raise _no_scan(other.sql("doris")[:100])
    tables = list(find_all(tree, exp.Table))
    if len(tables) != 1 or not isinstance(tables[0].this, exp.Identifier):
        raise _no_scan(f"{len(tables)} tables")
    if tables[0].args.get("partition") is not None or tables[0].args.get("version") is not None:
        raise _no_scan("PARTITION, TABLET or FOR VERSION AS OF")
    return tables[0]


def _no_scan(found: str) -> InvalidInputError:
    return InvalidInputError(
        f"only support single table filter-prune-scan, but found [ {found} ]; send other queries over the "
        "MySQL protocol or Arrow Flight SQL",
        kind="not_supported",
    )
