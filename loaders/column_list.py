"""The `columns` header: which fields a row has, and which columns are derived from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from seqstore.loaders.expressions import tokens
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import DELETE_SIGN, SEQUENCE_COL
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp

_COLUMNS_MAX: Final = 10_000


@dataclass(frozen=True)
class ColumnList:
    """The parsed `columns` header: fields in order, then derived columns in order."""

    fields: tuple[str, ...] = ()
    derived: Mapping[str, exp.Expr] = field(default_factory=dict)


def parse_columns(text: str) -> ColumnList:
    """Reads the `columns` header (M1).

    Raises:
        InvalidInputError: not a list of names and `name = expression`, or a repeated name.
    """
    if not text:
        return ColumnList()
    stream = tokens(text, "columns")
    fields: list[str] = []
    derived: dict[str, exp.Expr] = {}
    try:
        while True:
            name = stream.name("a column name")
            if stream.take("="):
                if name.lower() in map(str.lower, derived):
                    stream.refuse(f"column {name!r} is derived twice", "bad_header")
                derived[name] = stream.expression()
            else:
                fields.append(name)
            if stream.is_done:
                break
            stream.need(",")
    except InvalidInputError as error:
        raise InvalidInputError(f"columns: {error.message}", kind="bad_header") from error
    seen: set[str] = set()
    for name in fields:
        if name.lower() in seen:
            raise InvalidInputError(f"columns: field {name!r} is listed twice", kind="bad_header")
        seen.add(name.lower())
    if len(fields) + len(derived) > _COLUMNS_MAX:
        raise InvalidInputError(f"columns: more than {_COLUMNS_MAX} names", kind="bad_header")
    return ColumnList(tuple(fields), derived)


def field_names(columns: ColumnList, options: StreamLoadOptions, schema: TableSchema) -> list[str]:
    """Returns names of the fields of a row of CSV, JSON or a change stream, in order.

    Without listed fields they are the table's columns (M7), then those of `hidden_columns` (SL4); a row of a
    flexible update may have any of both (F8).
    Rows of a change stream have the delete sign and a hidden sequence beside them (CS3).
    """
    if options.is_changes:
        has_hidden = schema.has_sequence and schema.sequence_column is None
        hidden = [DELETE_SIGN, *([SEQUENCE_COL] if has_hidden else [])]
        return [*(columns.fields or schema.names), *hidden]
    if columns.fields:
        return list(columns.fields)
    if options.is_flexible:
        # A mapped column is the sequence itself; only a hidden one goes by its own name.
        has_hidden = schema.has_sequence and schema.sequence_column is None
        return [*schema.names, DELETE_SIGN, *([SEQUENCE_COL] if has_hidden else [])]
    names = [*schema.names, *options.hidden_columns]
    paths = len(options.json.paths) if options.format == "json" else 0
    return names[:paths] if 0 < paths < len(names) else names  # J5
