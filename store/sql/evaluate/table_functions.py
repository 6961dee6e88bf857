"""Table functions: calls in place of a table.

table_changes('db.t', first[, last])   the table's columns, then _change_type (+I, -U, +U, -D),
                                       _commit_version and _commit_timestamp
key_history('db.t', key, ...)          one row per write of a key: version, time, operation, label, txn_id,
                                       sequence, outcome, until_version, explanation, row
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.history.change_feed import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from seqstore.store.history.history_rows import key_history_table
from seqstore.store.schema.column import Column
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.table import Table
from seqstore.store.types.column_types import parse_type

_HISTORY_COLUMNS: Final = (("version", "BIGINT"), ("time", "DATETIME(3)"), ("operation", "VARCHAR(64)"),
                           ("label", "VARCHAR(128)"), ("txn_id", "BIGINT"), ("sequence", "VARCHAR(64)"),
                           ("outcome", "VARCHAR(16)"), ("until_version", "BIGINT"),
                           ("explanation", "STRING"), ("row", "STRING"))  # fmt: skip


@dataclass(frozen=True)
class FunctionRows:
    """The rows of a table function or a system table, with the methods of a snapshot that queries use."""

    name: str
    schema: TableSchema
    rows: Callable[[], Iterator[pa.RecordBatch]]
    version: int = 1

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        *,
        hidden: bool = False,
        deleted: bool = False,
    ) -> pa.RecordBatchReader:
        """Reads as `Snapshot.scan` does."""
        names = self.schema.names if columns is None else list(columns)
        unknown = [name for name in names if name not in self.schema.names]
        if unknown:
            raise InvalidInputError(f"{self.name} has no column {unknown[0]!r}", kind="unknown_column")
        fields = pa.schema([self.schema.arrow.field(name) for name in names])

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in self.rows():
                found = pa.Table.from_batches([batch])  # before Arrow 19 a batch without rows left fails
                for part in (found if filter is None else found.filter(filter)).to_batches():
                    yield pa.RecordBatch.from_arrays([part.column(name) for name in names], schema=fields)

        return pa.RecordBatchReader.from_batches(fields, batches())

    def get(
        self, keys: Any, columns: Sequence[str] | None = None, *, hidden: bool = False, deleted: bool = False
    ) -> pa.Table:
        """Reads as `Snapshot.get` does; rows of other keys may be among them."""
        return self.scan(columns).read_all()

    def count(self) -> int:
        """Counts the rows."""
        return sum(batch.num_rows for batch in self.rows())


def call(
    node: exp.Anonymous, open_table: Callable[[str], Table], newest: Callable[[Table], int]
) -> FunctionRows:
    """Evaluates the arguments of a call and returns its rows.

    Args:
        newest: returns the version of a table that the statement reads.

    Raises:
        InvalidInputError: no such function, or arguments it does not take.
        VersionExpiredError: a version that cannot be read.
    """
    name = node.name.lower()
    function = _FUNCTIONS.get(name)
    if function is None:
        raise InvalidInputError(f"table function {name!r} is not supported", kind="not_supported")
    arguments = [_value(name, argument) for argument in node.expressions]
    if not arguments or not isinstance(arguments[0], str):
        raise InvalidInputError(
            f"{name}: the first argument is a table as text, such as 'db.t'", kind="bad_argument"
        )
    table = open_table(arguments[0])
    return function(table, arguments[1:], newest(table))


def _value(name: str, node: exp.Expr) -> Any:
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return -_number(node.this.this)
    if isinstance(node, exp.Null):
        return None
    if not isinstance(node, exp.Literal):
        raise InvalidInputError(f"{name}: expected literals, found {node.sql()}", kind="bad_argument")
    return node.this if node.is_string else _number(node.this)


def _number(text: str) -> Any:
    return int(text) if text.isdigit() else text


def _table_changes(table: Table, arguments: list[Any], newest: int) -> FunctionRows:
    if len(arguments) not in (1, 2) or not all(isinstance(argument, int) for argument in arguments):
        raise InvalidInputError(
            "table_changes: expected ('db.t', first version[, last version])", kind="bad_argument"
        )
    first, last = arguments[0], arguments[1] if len(arguments) == 2 else newest
    table.changes(first, last)  # raises for an expired version before rows are read
    before = table.schema if last > table.version else table.snapshot(last).schema
    columns = [replace(column, nullable=True) for column in before.columns]
    highest = max(column.id for column in columns)
    for number, (name, kind) in enumerate(
        ((CHANGE_TYPE, "VARCHAR(2)"), (COMMIT_VERSION, "BIGINT"), (COMMIT_TIMESTAMP, "DATETIME(3)")), start=1
    ):
        columns.append(Column(name, parse_type(kind), False, id=highest + number))
    schema = TableSchema(tuple(columns), before.key)
    return FunctionRows("table_changes", schema, lambda: iter(table.changes(first, last)))


def _key_history(table: Table, arguments: list[Any], _newest: int) -> FunctionRows:
    """Reads every write that the table has, also those of later versions: it tells what became of a row."""
    names = table.schema.key
    if len(arguments) != len(names):
        raise InvalidInputError(
            f"key_history: expected ('db.t', {', '.join(names)}), found {len(arguments)} key values",
            kind="bad_argument",
        )
    columns = [
        Column(name, parse_type(kind), True, id=i) for i, (name, kind) in enumerate(_HISTORY_COLUMNS, 1)
    ]
    schema = TableSchema(tuple(columns), ("version",))
    rows = key_history_table(table.key_history(dict(zip(names, arguments, strict=True)))).cast(schema.arrow)
    return FunctionRows("key_history", schema, lambda: iter(rows.to_batches()))


_FUNCTIONS: Final[dict[str, Callable[[Table, list[Any], int], FunctionRows]]] = {
    "table_changes": _table_changes,
    "key_history": _key_history,
}
