"""Messages of Kafka as lines: the key, a tab and the value (CS1)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def keyed_messages(keys: pa.Array, values: pa.Array) -> pa.Array:
    """Returns messages as lines of key, tab and value; line ends and tabs between tokens become blanks."""
    parts = [pc.fill_null(part.cast(pa.large_binary()), b"") for part in (keys, values)]
    for mark in (b"\t", b"\n", b"\r"):
        parts = [pc.replace_substring(part, mark, b" ") for part in parts]
    key, value = parts
    value = pc.if_else(pc.equal(pc.binary_length(value), 0), pa.scalar(b"null", value.type), value)
    return pc.binary_join_element_wise(key, value, pa.scalar(b"\t", value.type))
