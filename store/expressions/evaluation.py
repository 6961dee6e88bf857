"""Arrow expressions over rows in memory, computed by the calling thread.

The start of a dataset scanner's threads costs several times as much as a few rows.
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
    """Computes expressions for each row, under the names of the resulting columns; rows keep their order.

    Raises:
        pa.ArrowException: an expression does not fit the columns.
    """
    return _run(rows, Declaration("project", ProjectNodeOptions(list(columns.values()), list(columns))))


def filtered(rows: pa.Table, predicate: pc.Expression) -> pa.Table:
    """Returns the rows that satisfy a predicate, in their order; NULL does not satisfy it.

    Raises:
        pa.ArrowException: it does not fit the columns.
    """
    return _run(rows, Declaration("filter", FilterNodeOptions(predicate)))


def _run(rows: pa.Table, step: Declaration) -> pa.Table:
    source = Declaration("table_source", TableSourceNodeOptions(rows))
    return Declaration.from_sequence([source, step]).to_table(use_threads=False)
