"""The types of the parameters of a prepared statement, for drivers that bind values by them, as JDBC's does.

A parameter has the type of the column that it is compared with, assigned to or inserted into; behind LIMIT it
is a number, and anywhere else a text. The server takes values of other types as well.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from seqstore.cli.mysql.prepared import Prepared
from seqstore.cli.scan.sent_rows import sent_type
from seqstore.store import StoreError
from seqstore.store.sql import Session
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.tokens import parse_tree
from seqstore.store.sql.session.privileges import require_visible

_NAME: Final = "seqstore_parameter_"
_Types = dict[str, pa.DataType]


def parameter_schema(session: Session, text: str) -> pa.Schema:
    """Returns a field for each parameter of a statement."""
    prepared = Prepared.of(text)
    names = [f"{_NAME}{number}" for number in range(len(prepared.places))]
    found: _Types = {}
    if names:
        filled = prepared.filled_by(names)
        with suppress(StoreError):  # its run says what is wrong with it
            found = _found(session, parse_tree(filled, 0, len(filled)))
    return pa.schema([(str(n + 1), found.get(name, pa.string())) for n, name in enumerate(names)])


def _found(session: Session, tree: Any) -> _Types:
    """Returns the types that are known, by the names of the parameters."""
    columns: _Types = {}
    for table in tree.find_all(exp.Table):
        for name, kind in _columns(session, table).items():
            columns.setdefault(name, kind)
    found = {}
    for place in tree.find_all(exp.Column):
        if place.name.startswith(_NAME):
            kind = _type_beside(place, columns)
            if kind is not None:
                found[place.name] = kind
    return found | _inserted(session, tree)


def _type_beside(place: Any, columns: _Types) -> pa.DataType | None:
    if isinstance(place.parent, (exp.Limit, exp.Offset)):
        return pa.int64()
    others = (each for each in place.parent.iter_expressions() if isinstance(each, exp.Column))
    kinds = (columns.get(each.name.lower()) for each in others if not each.name.startswith(_NAME))
    return next((kind for kind in kinds if kind is not None), None)


def _inserted(session: Session, tree: Any) -> _Types:
    """Returns the types of the parameters among the values of an INSERT."""
    if not isinstance(tree, exp.Insert) or not isinstance(tree.expression, exp.Values):
        return {}
    table = tree.this if isinstance(tree.this, exp.Table) else tree.this.this
    columns = _columns(session, table)
    named = [each.name.lower() for each in tree.this.expressions] if table is not tree.this else list(columns)
    found = {}
    for row in tree.expression.expressions:
        for name, value in zip(named, row.expressions, strict=False):
            if isinstance(value, exp.Column) and value.name.startswith(_NAME) and name in columns:
                found[value.name] = columns[name]
    return found


def _columns(session: Session, table: Any) -> _Types:
    """Returns the columns of a table, if the user of the session sees it."""
    database = table.db or session.database or ""
    try:
        require_visible(session.store.accounts, session.user or "root", database, table.name)
        schema = session.store.table(f"{database}.{table.name}").schema
    except StoreError:  # a view, or none
        return {}
    return {each.name.lower(): sent_type(each.type.arrow, has_timestamps=True) for each in schema.columns}
