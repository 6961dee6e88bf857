"""Look-ups by key: the rows of some keys at one version.

1. Cast the given keys to the key columns' types, code them, order them by code.
2. Probe the state.
3. Read the wanted columns of each matched row from its segment, without tombstones, in the order of the given
   keys. Rows of hashed keys are read with their key columns, and compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.read.live_segment import Projection
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.column import DELETE_SIGN
from seqstore.store.segment.dedupe import argsort_codes, equal_keys
from seqstore.store.segment.key_codes import Codes, encode_keys, prove_keys
from seqstore.store.segment.key_index import Matches
from seqstore.store.types.cast import try_cast


def lookup(state: TableState, keys: pa.Table, projection: Projection, *, deleted: bool = False) -> pa.Table:
    """Returns the rows of the given keys; keys without a row are omitted.

    Args:
        keys: the key columns by name, other columns are ignored; n rows, duplicates allowed.
        deleted: tombstones are returned too.

    Returns:
        At most n rows with the projection's columns, in the order of `keys`.

    Raises:
        InvalidInputError: a key column is missing or cannot be cast.
    """
    arrays = key_arrays(state, keys)
    if not len(arrays[0]):
        return projection.arrow.empty_table()
    codes = encode_keys(arrays, exact=state.schema.has_exact_key)
    if not prove_keys(codes, state.schema.key_columns):
        return _lookup_hashed(state, arrays, codes, projection, deleted=deleted)
    probe_keys, matches = _candidates(state, codes)
    slots = set(matches.slots.tolist())
    if not deleted and any(state.segments[slot].segment.meta.tombstones for slot in slots):
        alive = state.take(matches, [DELETE_SIGN]).column(0).to_numpy() == 0
        probe_keys, matches = probe_keys[alive], matches.take(alive)
    return state.rows(matches, projection, probe_keys)


def _lookup_hashed(
    state: TableState, arrays: list[pa.Array], codes: Codes, projection: Projection, *, deleted: bool
) -> pa.Table:
    """Runs steps 2 and 3 for hashed keys: reads the rows with their keys at once, and compares these then."""
    probe_keys, matches = _candidates(state, codes)
    if len(probe_keys) > 1:
        order = np.argsort(probe_keys, kind="stable")
        probe_keys, matches = probe_keys[order], matches.take(order)
    names = dict.fromkeys([*projection.names, *state.schema.key])
    if not deleted and state.has_tombstones:
        names[DELETE_SIGN] = None
    rows = state.take(matches, list(names))
    asked = None if len(probe_keys) == len(arrays[0]) == 1 else probe_keys
    same = equal_keys(arrays, asked, [rows.column(name) for name in state.schema.key], None)
    if DELETE_SIGN in names and not deleted:
        same &= rows.column(DELETE_SIGN).to_numpy() == 0
    if not same.all():
        rows = rows.filter(pa.array(same))
    return rows if rows.schema.equals(projection.arrow) else rows.select(list(projection.names))


def key_arrays(state: TableState, keys: pa.Table) -> list[pa.Array]:
    """Returns the key columns of a caller's table with their exact types.

    Raises:
        InvalidInputError: a key column is missing, given twice, or a value cannot be cast.
    """
    by_name: dict[str, Any] = {}
    for i, name in enumerate(keys.schema.names):
        if name.lower() in by_name:
            raise InvalidInputError(
                f"key column {name!r} is given twice", kind="duplicate_column", column=name
            )
        by_name[name.lower()] = keys.column(i)
    arrays = []
    for column in state.schema.key_columns:
        source = by_name.get(column.name.lower())
        if source is None and state.schema.is_duplicate:
            raise InvalidInputError(
                f"the table has no unique key to look up; scan it with a condition, or give {column.name}",
                kind="missing_column",
                column=column.name,
            )
        if source is None:
            raise InvalidInputError(
                f"key column {column.name!r} is missing; give all of {', '.join(state.schema.key)}",
                kind="missing_column",
                column=column.name,
            )
        result = try_cast(source, column.type)
        if result.failed is not None:
            row = int(np.flatnonzero(np.asarray(result.failed))[0])
            raise InvalidInputError(
                f"key column {column.name!r}: row {row} is no {column.type}",
                kind="bad_key",
                column=column.name,
            )
        arrays.append(result.values)
    return arrays


def find(state: TableState, arrays: list[pa.Array]) -> tuple[npt.NDArray[np.intp], Matches]:
    """Returns the live rows of some keys: for each match the row number of its key, and the match.

    Matches have no sequences.
    """
    codes = encode_keys(arrays, exact=state.schema.has_exact_key)
    probe_keys, matches = _candidates(state, codes)
    if len(matches) and not prove_keys(codes, state.schema.key_columns):
        stored = state.take(matches, state.schema.key)
        same = equal_keys(arrays, probe_keys, stored.columns, None)
        probe_keys, matches = probe_keys[same], matches.take(same)
    return probe_keys, matches


def _candidates(state: TableState, codes: Codes) -> tuple[npt.NDArray[np.intp], Matches]:
    """Returns the live rows with the codes of some keys: the row number of each one's key, and the match.

    Matches have no sequences. Rows of hashed keys may have another key.
    """
    if len(codes) == 1:
        matches = state.probe(codes, with_sequence=False)
        return matches.probe_keys, matches
    order = argsort_codes(codes)
    matches = state.probe(codes[order], with_sequence=False)
    return order[matches.probe_keys], matches
