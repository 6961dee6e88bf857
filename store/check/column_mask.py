"""The columns that each row of a flexible update supplies, where a column of the data names them.

The column is a list of names per row: `["price", "stock"]` means that the row's other value cells are to be
kept, whatever stands in them. NULL means that the row supplies every column of the data. Keys are always
supplied.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.check.row_checker import Mask
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.table_schema import TableSchema


def split_supplied(
    data: pa.Table, column: str | None, schema: TableSchema
) -> tuple[pa.Table, dict[str, Mask]]:
    """Returns the data without the column, and for each other column which rows supply it.

    Args:
        column: its name, whatever the case; None means there is none.

    Raises:
        InvalidInputError: the column is missing or no list of strings, or names no column of the data.
    """
    if column is None:
        return data, {}
    found = [i for i, name in enumerate(data.schema.names) if name.lower() == column.lower()]
    if len(found) != 1 or not _is_names(data.schema.field(found[0]).type):
        raise InvalidInputError(
            f"column {column!r} is to name the columns that each row supplies: expected one column of that "
            f"name, a list of strings; the data has {', '.join(f'{f.name}: {f.type}' for f in data.schema)}",
            kind="bad_supplied",
        )
    lists = data.column(found[0]).combine_chunks()
    rows = data.remove_column(found[0])
    names = pc.utf8_lower(pc.list_flatten(lists).cast(pa.string()))
    row_of_name = np.asarray(pc.list_parent_indices(lists))
    known = {name.lower(): name for name in rows.schema.names}
    unknown = [name for name in pc.unique(names).to_pylist() if name not in known]
    if unknown:
        raise InvalidInputError(
            f"a row supplies {unknown[0]!r}, which is no column of the data; it has "
            f"{', '.join(known.values())}",
            kind="unknown_column",
        )
    everything = np.asarray(lists.is_null())
    masks: dict[str, Mask] = {}
    for lower, name in known.items():
        described = schema.find(name)
        if described is not None and described.name in schema.key:
            continue
        mask = everything.copy()
        mask[row_of_name[np.asarray(pc.fill_null(pc.equal(names, lower), False))]] = True
        masks[name] = mask
    return rows, masks


def _is_names(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(
        is_list and (pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type))
    )
