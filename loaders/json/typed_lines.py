"""Lines of JSON objects that Arrow parses straight into the types of the columns.

Arrow's reader is the fastest, and it reads each number from its digits. But it finds keys in one spelling,
takes a line end for a blank, and stops at a value of another kind. So a block is parsed here only if none of
that matters:

1. Every line begins and ends with a brace, so the block has as many objects as lines.
2. The text is UTF-8, without the escapes that parsers read in different ways.
3. Keys are spelled as in the first object; keys in another spelling show up as further columns.
4. Arrow finds no value of another kind than its column takes, and no number that the column cannot hold. It
   accepts NaN and Infinity, which are no JSON, and keeps the sign of -0, which has none as an integer.

Every other block is left to `lines`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from seqstore.loaders.json.lines import Octets, Positions, are_utf8, has_negative_zero

_PARSE_BYTES: Final = 1 << 20  # Arrow parses pieces of this size in parallel
_ESCAPES: Final = (b"\\u0000", b"\\ud", b"\\uD")


def read_typed(
    block: bytes, wanted: Mapping[str, pa.DataType], fold: Callable[[str], str]
) -> pa.Table | None:
    """Returns a row for each line, with the wanted columns in their order.

    Args:
        block: whole lines, the last one with its end.
        wanted: the type of each key.
        fold: returns the wanted key that a key of the text stands for.

    Returns:
        None if the block must be read in another way.
    """
    octets = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(octets == ord("\n"))
    if not _are_objects(octets, ends) or any(escape in block for escape in _ESCAPES):
        return None
    if octets.max() > 127 and not are_utf8(block):
        return None
    schema = _schema(block[: ends[0]], wanted, fold)
    if schema is None:
        return None
    try:
        table = pa.json.read_json(
            pa.BufferReader(block),
            pa.json.ReadOptions(use_threads=len(block) > _PARSE_BYTES, block_size=_PARSE_BYTES),
            pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    others = table.schema.names[len(schema) :]
    if len(table) != len(ends) or any(fold(name) in wanted for name in others):
        return None
    if not all(_is_plain(column) for column in table.columns):
        return None
    found = table.select(schema.names)
    return found if _has_any(found) else None


def _are_objects(octets: Octets, ends: Positions) -> bool:
    """Returns whether every line begins and ends with a brace."""
    if not len(ends) or octets[0] != ord("{"):
        return False
    before = octets[ends - 1]
    if before[0] == ord("\r"):
        before = np.where(before == ord("\r"), octets[ends - 2], 0)
    return bool((before == ord("}")).all() and (octets[ends[:-1] + 1] == ord("{")).all())


def _schema(line: bytes, wanted: Mapping[str, pa.DataType], fold: Callable[[str], str]) -> pa.Schema | None:
    """Returns the types of the keys as the first object spells them; None if it spells one twice."""
    try:
        keys = list(json.loads(line))
    except (ValueError, RecursionError):
        return None
    spelled: dict[str, str] = {}
    for key in keys:
        if fold(key) in wanted and spelled.setdefault(fold(key), key) != key:
            return None
    names = [spelled.get(key, key) for key in wanted]
    return pa.schema(list(zip(names, wanted.values(), strict=True))) if len({*names}) == len(names) else None


def _is_plain(column: pa.ChunkedArray) -> bool:
    """Returns whether a column has only values that Arrow reads as others do."""
    if not pa.types.is_floating(column.type):
        return not pa.types.is_nested(column.type)
    for chunk in column.chunks:
        values = np.asarray(chunk.drop_null())
        if not np.isfinite(values).all() or has_negative_zero(values):
            return False
    return True


def _has_any(table: pa.Table) -> bool:
    """Returns whether every row has a value."""
    columns = table.columns
    if any(not column.null_count for column in columns):
        return True
    is_null = columns[0].is_null()
    for column in columns[1:]:
        is_null = pc.and_(is_null, column.is_null())
    return not pc.any(is_null).as_py()
