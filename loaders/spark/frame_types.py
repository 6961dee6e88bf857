"""Column types between the store and Spark.

Spark has no integer of 128 bits and no decimal of more than 38 digits: LARGEINT and wider DECIMALs are read
as strings, which hold every value exactly, and are written from strings or decimals. DATETIME has no time
zone and is `timestamp_ntz`. CHAR, VARCHAR and JSON are strings. Everything else has its namesake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from store import InvalidInputError, TableSchema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_DECIMAL_DIGITS_MAX: Final = 38


def frame_schema(schema: TableSchema, names: Sequence[str]) -> StructType:
    """Columns of a table, hidden ones too, as Spark declares them.

    Args:
        names: canonical names, in the order wanted.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    fields = [pa.field(f.name, _spark_readable(f.type), f.nullable) for f in schema.arrow_of(names)]
    return from_arrow_schema(pa.schema(fields))


def arrow_schema(frame: StructType) -> pa.Schema:
    """The Arrow schema in which Spark expects rows of a frame.

    Raises:
        InvalidInputError: a `timestamp` with a zone, which no column of a table is.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    schema: pa.Schema = to_arrow_schema(frame, timezone="UTC")
    for field in schema:
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            raise InvalidInputError(
                f"column {field.name!r} was asked for as timestamp; a DATETIME has no time zone: declare it "
                "timestamp_ntz",
                kind="bad_type",
            )
    return schema


def is_kept(kind: pa.DataType) -> bool:
    """Whether Spark has the type a column is stored in."""
    return bool(_spark_readable(kind) == kind)


def _spark_readable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(kind) and kind.precision > _DECIMAL_DIGITS_MAX:
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_spark_readable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_spark_readable(kind.key_type), _spark_readable(kind.item_type))
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([pa.field(field.name, _spark_readable(field.type)) for field in fields])
    return kind
