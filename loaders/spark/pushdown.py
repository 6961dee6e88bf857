"""Spark's pushed filters as Arrow expressions.

Only filters with exactly the same meaning in both are pushed; Spark applies the others. Floats are not
pushed: Spark sorts NaN above everything and treats it as equal to itself. Nor are columns that Spark reads as
strings but the store holds as decimals, nested fields, and `IN` lists with a NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


def arrow_filter(pushed: Filter, stored: Mapping[str, pa.Field], read: pa.Schema) -> pc.Expression | None:
    """Returns the filter over stored columns, None where Spark has to apply it.

    Args:
        stored: by the name Spark knows, the column as the store has it.
        read: columns as Spark reads them.
    """
    from pyspark.sql.datasource import Not

    if isinstance(pushed, Not):
        return _negated(pushed.child, stored, read)
    path: tuple[str, ...] = getattr(pushed, "attribute", ())
    if len(path) != 1 or path[0] not in stored:
        return None
    column = stored[path[0]]
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_nested(kind) or kind != read.field(path[0]).type:
        return None
    return _comparison(pushed, pc.field(column.name), kind)


def _negated(child: Filter, stored: Mapping[str, pa.Field], read: pa.Schema) -> pc.Expression | None:
    from pyspark.sql import datasource as spark

    if isinstance(child, spark.Not):
        return arrow_filter(child.child, stored, read)
    inner = arrow_filter(child, stored, read)
    if inner is None:
        return None
    if isinstance(child, spark.In):  # for NULL, Arrow's NOT IN is true and SQL's is unknown
        return ~inner & pc.field(stored[child.attribute[0]].name).is_valid()
    return ~inner


def _comparison(pushed: Filter, column: pc.Expression, kind: pa.DataType) -> pc.Expression | None:
    from pyspark.sql import datasource as spark

    match pushed:
        case spark.IsNull():
            return column.is_null()
        case spark.IsNotNull():
            return column.is_valid()
        case spark.In():
            values = None if None in pushed.value else _typed(list(pushed.value), kind)
            return None if values is None else pc.is_in(column, values)
        case spark.StringStartsWith():
            return pc.starts_with(column, pushed.value)
        case spark.StringEndsWith():
            return pc.ends_with(column, pushed.value)
        case spark.StringContains():
            return pc.match_substring(column, pushed.value)
    return _ordering(pushed, column, kind)


def _ordering(pushed: Filter, column: pc.Expression, kind: pa.DataType) -> pc.Expression | None:
    from pyspark.sql import datasource as spark

    typed = _typed([getattr(pushed, "value", None)], kind)
    if typed is None or not typed[0].is_valid:
        return None
    value = typed[0]
    match pushed:
        case spark.EqualTo():
            return column == value
        case spark.EqualNullSafe():
            return (column == value) & column.is_valid()
        case spark.GreaterThan():
            return column > value
        case spark.GreaterThanOrEqual():
            return column >= value
        case spark.LessThan():
            return column < value
        case spark.LessThanOrEqual():
            return column <= value
    return None


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array | None:
    """Returns values in a column's type, None when they are not exactly of it."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
