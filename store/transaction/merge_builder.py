"""MERGE from Python: `table.merge(rows, on).when_..().when_..().execute()`.

    done = (
        orders.merge(changes, on="t.id = s.id")
        .when_matched_update({"price": "s.price", "seen": "t.seen + 1"}, condition="s.price <> t.price")
        .when_matched_delete("s.cancelled")
        .when_not_matched_insert_all()
        .execute(retries=3)
    )

Names of the clauses are Delta's. Conditions and values are SQL, in which `t` is the table and `s` the rows
given. The engine knows no SQL: `use_language` names the module that reads the expressions and joins the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, Protocol, Unpack

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.load.load import LoadResult
from seqstore.store.read.snapshot import as_table
from seqstore.store.transaction.transaction_options import DmlArguments, DmlOptions, DmlResult

Values = Mapping[str, str]
# The work of a statement on its table, as its transaction sees it (`TransactionTable`); returns the rows it
# matched and the outcome of its write.
Outcome = tuple[int, LoadResult | None]
Work = Callable[[Any], Outcome]


class Match(Enum):
    """The rows a clause is tried on."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    NOT_MATCHED_BY_SOURCE = "not matched by source"


class Action(Enum):
    """The effect of a clause; the ALL forms copy each column from the column of that name."""

    UPDATE = "update"
    UPDATE_ALL = "update all"
    DELETE = "delete"
    INSERT = "insert"
    INSERT_ALL = "insert all"


@dataclass(frozen=True)
class MergeClause:
    """One WHEN.

    Attributes:
        values: column -> expression, as `MergeLanguage.expression` returned it.
        condition: an expression, None for none.
    """

    match: Match
    action: Action
    values: Mapping[str, Any]
    condition: Any


@dataclass(frozen=True)
class Merge:
    """One MERGE.

    Attributes:
        table: `db.table` that is written.
        rows: the source, as `MergeLanguage.source` returned it.
        on: an expression, or the names of columns that must be equal.
        clauses: in the order they are tried.
    """

    table: str
    rows: Any
    on: Any
    clauses: tuple[MergeClause, ...]
    target_alias: str
    source_alias: str


class MergeLanguage(Protocol):
    """Reads the expressions of a merge, and runs it."""

    def expression(self, text: str) -> Any:
        """Reads one expression.

        Raises:
            InvalidInputError: it cannot be read.
        """

    def source(self, rows: pa.Table) -> Any:
        """Makes rows readable by the expressions.

        Raises:
            InvalidInputError: a column has no type of the store.
        """

    def run(self, merge: Merge, opened: Any) -> Outcome:
        """Runs a merge as one statement of a transaction.

        Args:
            opened: the `TransactionTable` it writes.

        Returns:
            The number of rows it matched, and the outcome of its write, None for none.
        """


_load_language: list[Callable[[], MergeLanguage]] = []


def use_language(load: Callable[[], MergeLanguage]) -> None:
    """Registers the language of merges; `load` is called at the first merge of the process."""
    _load_language[:] = [load]


@cache
def _language() -> MergeLanguage:
    return _load_language[0]()


class MergeBuilder:
    """Made by `Table.merge` and `TransactionTable.merge`. Clauses are added in the order they are tried.

    Args:
        table: `db.table` that is written.
        source: rows, as an Arrow table or anything that becomes one.
        on: SQL over `t` and `s`, or names of columns that must be equal.
        target_alias, source_alias: other names for `t` and `s`.
        execute: runs the merge as a statement of its own, None within a transaction.
        join: runs the merge as a statement of a transaction, None outside.

    Raises:
        InvalidInputError: an expression that cannot be read, or a source with a column twice.
    """

    def __init__(
        self,
        table: str,
        source: Any,
        on: str | Sequence[str],
        *,
        target_alias: str = "t",
        source_alias: str = "s",
        execute: Callable[[Work, DmlOptions], DmlResult] | None = None,
        join: Callable[[Work], Outcome] | None = None,
    ) -> None:
        self._execute, self._join = execute, join
        given = as_table(source)
        counts = Counter(name.lower() for name in given.column_names)
        if twice := next((name for name, count in counts.items() if count > 1), None):
            raise InvalidInputError(
                f"{table}: the source of a merge has column {twice!r} twice; name each column once",
                kind="duplicate_column",
                column=twice,
            )
        rows = _language().source(given)
        if not on:
            raise InvalidInputError("a merge needs a condition, or columns to match by", kind="bad_merge")
        condition = _language().expression(on) if isinstance(on, str) else tuple(on)
        self._merge = Merge(table, rows, condition, (), target_alias, source_alias)

    def when_matched_update(self, values: Values, condition: str | None = None) -> MergeBuilder:
        """Sets columns of a matched row; `values` are column -> SQL."""
        return self._add(Match.MATCHED, Action.UPDATE, condition, values)

    def when_matched_update_all(self, condition: str | None = None) -> MergeBuilder:
        """Sets every column beside the key from the column of that name."""
        return self._add(Match.MATCHED, Action.UPDATE_ALL, condition)

    def when_matched_delete(self, condition: str | None = None) -> MergeBuilder:
        """Deletes a matched row."""
        return self._add(Match.MATCHED, Action.DELETE, condition)

    def when_not_matched_insert(self, values: Values, condition: str | None = None) -> MergeBuilder:
        """Inserts a row that no row of the table matches; columns left out get their default."""
        return self._add(Match.NOT_MATCHED, Action.INSERT, condition, values)

    def when_not_matched_insert_all(self, condition: str | None = None) -> MergeBuilder:
        """Inserts every column from the column of that name."""
        return self._add(Match.NOT_MATCHED, Action.INSERT_ALL, condition)

    def when_not_matched_by_source_update(self, values: Values, condition: str | None = None) -> MergeBuilder:
        """Sets columns of a row of the table that no given row matches."""
        return self._add(Match.NOT_MATCHED_BY_SOURCE, Action.UPDATE, condition, values)

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> MergeBuilder:
        """Deletes a row of the table that no given row matches."""
        return self._add(Match.NOT_MATCHED_BY_SOURCE, Action.DELETE, condition)

    def execute(self, **arguments: Unpack[DmlArguments]) -> DmlResult:
        """Runs the merge as a statement of its own; arguments are those of `Table.update`.

        Raises:
            ConflictError: rows that the merge read have changed.
            UnavailableError: another update held the lock for too long.
            InvalidInputError: a column, clause or value that does not fit; or it belongs to a transaction.
        """
        if self._execute is None:
            raise InvalidInputError(
                "a merge of a transaction's table joins the transaction: call run()", kind="in_transaction"
            )
        return self._execute(self._run_on, DmlOptions("MERGE", label_prefix="merge_", **arguments))

    def run(self) -> Outcome:
        """Runs the merge as a statement of the transaction its table belongs to.

        Returns:
            The number of rows it matched, and the outcome of its write, None for none.
        """
        if self._join is None:
            raise InvalidInputError("outside a transaction a merge runs by execute()", kind="no_transaction")
        return self._join(self._run_on)

    def _run_on(self, opened: Any) -> Outcome:
        if not self._merge.clauses:
            raise InvalidInputError("a merge needs a clause, such as when_matched_update", kind="bad_merge")
        return _language().run(self._merge, opened)

    def _add(
        self, match: Match, action: Action, condition: str | None, values: Values | None = None
    ) -> MergeBuilder:
        read = _language().expression
        given = {name: read(text) for name, text in (values or {}).items()}
        test = read(condition) if condition is not None else None
        clauses = (*self._merge.clauses, MergeClause(match, action, given, test))
        self._merge = replace(self._merge, clauses=clauses)
        return self
