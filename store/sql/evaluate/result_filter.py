"""WHERE on the rows that a statement such as SHOW TABLES returns."""

from __future__ import annotations

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime import memory_limit
from seqstore.store.sql.evaluate.select import QueryContext
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.translate.source_table import source_name
from seqstore.store.sql.translate.translate import check, render, translate
from seqstore.store.sql.translate.value_types import column_value_type, note
from seqstore.store.types.column_types import type_from_arrow


def filter_result(rows: pa.Table, condition: exp.Expr, context: QueryContext) -> pa.Table:
    """Returns the rows that satisfy a condition on their columns, whose names match without regard to case.

    Raises:
        InvalidInputError: an unknown column, or a part that a query may not hold.
    """
    from seqstore.store.sql.evaluate import duck  # imports DuckDB

    table = exp.Table(
        this=exp.to_identifier(source_name(0), quoted=True),
        db=exp.to_identifier("main"),
        catalog=exp.to_identifier("temp"),
    )
    tree = exp.select("*").from_(table).where(condition.copy(), copy=False)
    check(tree)
    kinds = {field.name.lower(): column_value_type(type_from_arrow(field.type)) for field in rows.schema}
    for column in find_all(tree, exp.Column):
        if column.name.lower() not in kinds:
            raise InvalidInputError(
                f"unknown column {column.name!r} behind WHERE; there are {', '.join(rows.schema.names)}",
                kind="unknown_column",
                column=column.name,
            )
        note(column, kinds[column.name.lower()])
    translate(tree, context.evaluation(), context.variables)
    source = duck.Source(rows.schema, rows.to_reader)
    zone = context.evaluation().moment.zone
    sources = {source_name(0): source}
    memory_limit.wait_for_room()
    reader, close = duck.run(context.connect(), render(tree), sources, has_largeint=False, zone=zone)
    try:
        with reader:
            return reader.read_all()
    finally:
        close()
