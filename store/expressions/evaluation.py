"""Arrow expressions over rows that are in memory, computed by the thread that asks.

A dataset scanner spends several times as long on starting its threads as on a few rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.acero import (
    Declaration,
    FilterNodeOptions,
    ProjectNodeOptions,
    TableSourceNodeOptions,
)


def evaluated(rows: pa.Table, columns: Mapping[str, pc.Expression]) -> pa.Table:
    """Expressions of each row, by the names of the columns they become; rows keep their order.

    Raises:
        pa.ArrowException: one does not fit the columns.
    """
    return _run(rows, Declaration("project", ProjectNodeOptions(list(columns.values()), list(columns))))


def filtered(rows: pa.Table, predicate: pc.Expression) -> pa.Table:
    """Rows that satisfy a predicate, in their order; NULL is no.

    Raises:
        pa.ArrowException: it does not fit the columns.
    """
    return _run(rows, Declaration("filter", FilterNodeOptions(predicate)))


def _run(rows: pa.Table, step: Declaration) -> pa.Table:
    source = Declaration("table_source", TableSourceNodeOptions(rows))
    return Declaration.from_sequence([source, step]).to_table(use_threads=False)
