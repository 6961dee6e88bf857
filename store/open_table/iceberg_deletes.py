"""Hidden rows as Iceberg stores them: deletion vectors in Puffin files, or files of positions.

A blob `deletion-vector-v1` has the bytes of a deletion vector of Delta with its size before it and its
CRC-32 after it (delta_vectors).
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from seqstore.store.open_table.delta_vectors import framed_vector
from seqstore.store.schema.field_ids import with_id

PATH_ID: Final = 2147483546
_POSITION_ID: Final = 2147483545
_MAGIC: Final = b"PFA1"
_ROW_POSITION: Final = 2147483645  # the field that a deletion vector is about
_TAIL: Final = struct.Struct("<iI")


def puffin(vectors: Sequence[tuple[str, BitMap]]) -> tuple[bytes, list[tuple[int, int]]]:
    """Returns the bytes of a Puffin file, and offset and length of each blob.

    Args:
        vectors: the location of a data file, and the positions of its hidden rows.
    """
    parts, blobs, places, offset = [_MAGIC], [], [], len(_MAGIC)
    for location, rows in vectors:
        data = framed_vector(rows)
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [_ROW_POSITION],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": offset,
                "length": len(data),
                "properties": {"referenced-data-file": location, "cardinality": str(len(rows))},
            }
        )
        places.append((offset, len(data)))
        parts.append(data)
        offset += len(data)
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": "seqstore"}}).encode()
    parts += [_MAGIC, footer, _TAIL.pack(len(footer), 0), _MAGIC]
    return b"".join(parts), places


def position_deletes(location: str, rows: BitMap) -> bytes:
    """Returns the bytes of a Parquet file with the positions of the hidden rows of one data file."""
    schema = pa.schema(
        [
            with_id("file_path", pa.string(), PATH_ID, False),
            with_id("pos", pa.int64(), _POSITION_ID, False),
        ]
    )
    positions = np.asarray(rows.to_array(), np.int64)
    paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(positions), np.int32)), [location])
    table = pa.table([paths.dictionary_decode(), pa.array(positions)], schema=schema)
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd", write_page_checksum=True)
    return file.getvalue()
