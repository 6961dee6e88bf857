"""MERGE from Python: `table.merge(rows, on).when_..().when_..().execute()`.

    done = (
        orders.merge(changes, on="t.id = s.id")
        .when_matched_update({"price": "s.price", "seen": "t.seen + 1"}, condition="s.price <> t.price")
        .when_matched_delete("s.cancelled")
        .when_not_matched_insert_all()
        .execute(retries=3)
    )

Names of the clauses are Delta's. Conditions and values are SQL, in which `t` is the table and `s` the rows
given. It runs as MERGE INTO does (store.sql.dml), as a statement of its own or within a transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from sqlglot import exp

from store.column import Column
from store.dml import DmlOptions, DmlResult, run_dml
from store.errors import InvalidInputError
from store.load import LoadResult
from store.schema import TableSchema
from store.snapshot import as_table
from store.sql import duck
from store.sql.calls import Moment, Surroundings
from store.sql.dml import Ask, Dml, run
from store.sql.relations import Readable, Relation, Version
from store.sql.select import QueryContext, log_relation, open_query
from store.sql.statements import TableName
from store.sql.table_functions import FunctionRows
from store.sql.tokens import parse_tree
from store.sql.variables import Variables
from store.transaction_table import TransactionTable
from store.types import type_from_arrow

if TYPE_CHECKING:
    import duckdb

    from store.table import Table

_SOURCE: Final = "__given_rows__"
Values = Mapping[str, str]


class MergeBuilder:
    """Made by `Table.merge` and `TransactionTable.merge`. Clauses are added in the order they are tried.

    Args:
        source: rows, as an Arrow table or anything that becomes one.
        on: SQL over `t` and `s`, or names of columns that must be equal.
        target_alias, source_alias: other names for `t` and `s`.

    Raises:
        InvalidInputError: an expression that cannot be read.
    """

    def __init__(
        self,
        target: Table | TransactionTable,
        source: Any,
        on: str | Sequence[str],
        *,
        target_alias: str = "t",
        source_alias: str = "s",
    ) -> None:
        self._target = target
        self._source = _readable(as_table(source))
        self._target_alias, self._source_alias = target_alias, source_alias
        self._on = _expression(on) if isinstance(on, str) else self._equal(on)
        self._clauses: list[exp.When] = []

    def when_matched_update(self, values: Values, condition: str | None = None) -> MergeBuilder:
        """Sets columns of a matched row; `values` are column -> SQL."""
        return self._add(exp.Update(expressions=_assignments(values)), condition, matched=True)

    def when_matched_update_all(self, condition: str | None = None) -> MergeBuilder:
        """Sets every column beside the key from the column of that name."""
        return self._add(exp.Update(expressions=[exp.Star()]), condition, matched=True)

    def when_matched_delete(self, condition: str | None = None) -> MergeBuilder:
        """Deletes a matched row."""
        return self._add(exp.Var(this="DELETE"), condition, matched=True)

    def when_not_matched_insert(self, values: Values, condition: str | None = None) -> MergeBuilder:
        """Inserts a row that no row of the table matches; columns left out take their default."""
        columns = [exp.column(name, quoted=True) for name in values]
        items = [_expression(text) for text in values.values()]
        insert = exp.Insert(this=exp.Tuple(expressions=columns), expression=exp.Tuple(expressions=items))
        return self._add(insert, condition, matched=False)

    def when_not_matched_insert_all(self, condition: str | None = None) -> MergeBuilder:
        """Inserts every column from the column of that name."""
        return self._add(exp.Insert(this=exp.Star()), condition, matched=False)

    def when_not_matched_by_source_update(self, values: Values, condition: str | None = None) -> MergeBuilder:
        """Sets columns of a row of the table that no given row matches."""
        update = exp.Update(expressions=_assignments(values))
        return self._add(update, condition, matched=False, source=True)

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> MergeBuilder:
        """Deletes a row of the table that no given row matches."""
        return self._add(exp.Var(this="DELETE"), condition, matched=False, source=True)

    def execute(
        self,
        *,
        label: str | None = None,
        isolation: str | None = None,
        concurrency: str | None = None,
        retries: int = 0,
        lock_seconds: float | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> DmlResult:
        """Runs it as a statement of its own; arguments are those of `Table.update`.

        Raises:
            ConflictError: what it read has changed.
            UnavailableError: another update held the lock for too long.
            InvalidInputError: a column, clause or value that does not fit; or it belongs to a transaction.
        """
        if isinstance(self._target, TransactionTable):
            raise InvalidInputError(
                "a merge of a transaction's table joins the transaction: call run()", kind="in_transaction"
            )
        options = DmlOptions(
            "MERGE",
            label,
            isolation,
            concurrency,
            retries,
            lock_seconds,
            label_prefix="merge_",
            txn_app_id=txn_app_id,
            txn_version=txn_version,
        )
        return run_dml(self._target, self._run_on, options)

    def run(self) -> tuple[int, LoadResult | None]:
        """Runs it as a statement of the transaction its table belongs to; returns the rows it matched, and
        what it wrote, None for nothing."""
        if not isinstance(self._target, TransactionTable):
            raise InvalidInputError("outside a transaction a merge runs by execute()", kind="no_transaction")
        opened = self._target
        opened.begin_write()
        if opened.is_skipped:
            return 0, None
        opened.transaction.lock(opened)
        return self._run_on(opened)

    def _run_on(self, opened: TransactionTable) -> tuple[int, LoadResult | None]:
        if not self._clauses:
            raise InvalidInputError("a merge needs a clause, such as when_matched_update", kind="bad_merge")
        database, _, name = self._target.name.partition(".")
        target = exp.table_(name, db=database, alias=self._target_alias, quoted=True)
        tree = exp.Merge(
            this=target,
            using=exp.select("*").from_(exp.table_(_SOURCE, quoted=True)).subquery(self._source_alias),
            on=self._on,
            whens=exp.Whens(expressions=self._clauses),
        )
        with _asking(opened, self._source) as ask:
            return run(Dml(TableName(database, name), tree), opened, ask)

    def _equal(self, names: Sequence[str]) -> exp.Expr:
        if not names:
            raise InvalidInputError("a merge needs a condition, or columns to match by", kind="bad_merge")
        sides = [
            (
                exp.column(n, table=self._target_alias, quoted=True),
                exp.column(n, table=self._source_alias, quoted=True),
            )
            for n in names
        ]
        return exp.and_(*(exp.EQ(this=mine, expression=given) for mine, given in sides))

    def _add(
        self, then: exp.Expr, condition: str | None, *, matched: bool, source: bool = False
    ) -> MergeBuilder:
        test = _expression(condition) if condition is not None else None
        self._clauses.append(exp.When(matched=matched, source=source, condition=test, then=then))
        return self


def _expression(text: str) -> exp.Expr:
    return parse_tree(text, 0, len(text))


def _assignments(values: Values) -> list[exp.Expr]:
    return [
        exp.EQ(this=exp.column(name, quoted=True), expression=_expression(text))
        for name, text in values.items()
    ]


def _readable(rows: pa.Table) -> FunctionRows:
    """Given rows as a query reads them."""
    columns = [
        Column(field.name, type_from_arrow(field.type), id=number)
        for number, field in enumerate(rows.schema, 1)
    ]
    if not columns:
        raise InvalidInputError("a merge needs rows with columns", kind="bad_data")
    schema = TableSchema(columns=tuple(columns), key=(columns[0].name,))
    batches = rows.cast(schema.arrow).to_batches()
    return FunctionRows("the source", schema, lambda: iter(batches))


@contextmanager
def _asking(opened: TransactionTable, source: FunctionRows) -> Iterator[Ask]:
    """Queries over the target, as its transaction sees it, and the given rows."""
    made: list[duckdb.DuckDBPyConnection] = []
    target = opened.snapshot()

    def connect() -> duckdb.DuckDBPyConnection:
        if not made:
            made.append(duck.connect())
        return made[0]

    def open_snapshot(table: TableName, _version: Version) -> Readable:
        if table.database is None and table.name == _SOURCE:
            return source
        if f"{table.database}.{table.name}" == opened.name:
            return target
        raise InvalidInputError(
            f"a merge from Python reads its table and the rows given, not {table.name!r}; say it in SQL",
            kind="not_supported",
        )

    def open_function(node: exp.Anonymous) -> Readable:
        raise InvalidInputError(f"{node.name} cannot stand in a merge from Python", kind="not_supported")

    def log_read(relation: Relation) -> None:
        if relation.snapshot is target:
            log_relation(opened, relation)

    now = datetime.now(UTC)
    moment = Moment(now.astimezone().replace(tzinfo=None), now.replace(tzinfo=None), Variables().zone)
    context = QueryContext(
        open_snapshot,
        open_function,
        connect,
        Surroundings(moment, opened.base.database),
        lambda _name, _scope: None,
        log_read=log_read,
    )
    try:
        yield lambda query: open_query(query, context)
    finally:
        for connection in made:
            connection.close()
