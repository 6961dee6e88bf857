"""A MERGE that runs at a server: its clauses travel as they were written, its rows with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Unpack

from seqstore.store.errors import InvalidInputError
from seqstore.store.load.load import LoadResult
from seqstore.store.read.snapshot import as_table
from seqstore.store.remote.handles import arguments_of
from seqstore.store.remote.outcomes import run_labelled
from seqstore.store.transaction.merge_builder import MergeBuilder
from seqstore.store.transaction.transaction_options import DmlArguments, DmlResult

CLAUSES: Final = (
    "when_matched_update",
    "when_matched_update_all",
    "when_matched_delete",
    "when_not_matched_insert",
    "when_not_matched_insert_all",
    "when_not_matched_by_source_update",
    "when_not_matched_by_source_delete",
)
"""The methods that add a clause."""


class RemoteMerge(MergeBuilder):
    """Made by `RemoteTable.merge` and `RemoteTransactionTable.merge`; expressions are read here, too.

    Args:
        target: the table.
        in_transaction: it is one of a transaction.
    """

    def __init__(
        self,
        target: Any,
        source: Any,
        on: str | Sequence[str],
        *,
        target_alias: str,
        source_alias: str,
        in_transaction: bool = False,
    ) -> None:
        rows = as_table(source)
        aliases = {"target_alias": target_alias, "source_alias": source_alias}
        super().__init__("", rows, on, target_alias=target_alias, source_alias=source_alias)
        self._target = target
        self._in_transaction = in_transaction
        self._clauses: list[tuple[str, Mapping[str, Any]]] = []
        self._given = {"source": rows, "on": on if isinstance(on, str) else list(on), **aliases}

    def execute(self, **arguments: Unpack[DmlArguments]) -> DmlResult:
        """Runs the merge as a statement of its own; see `MergeBuilder.execute`."""
        if self._in_transaction:
            raise InvalidInputError(
                "a merge of a transaction's table joins the transaction: call run()", kind="in_transaction"
            )
        given = {**self._given, "clauses": list(self._clauses), **arguments}
        return run_labelled(self._target, "merge", given, prefix="merge_")

    def run(self) -> tuple[int, LoadResult | None]:
        """Runs the merge as a statement of the transaction its table belongs to; see `MergeBuilder.run`."""
        if not self._in_transaction:
            raise InvalidInputError("outside a transaction a merge runs by execute()", kind="no_transaction")
        given = {**self._given, "clauses": list(self._clauses)}
        done: tuple[int, LoadResult | None] = self._target.call("merge", given)
        return done


def _clause(name: str) -> Any:
    member = getattr(MergeBuilder, name)

    def add(self: RemoteMerge, *given: Any, **named: Any) -> RemoteMerge:
        member(self, *given, **named)
        self._clauses.append((name, arguments_of(member, *given, **named)))
        return self

    add.__name__, add.__doc__ = name, member.__doc__
    return add


for _name in CLAUSES:
    setattr(RemoteMerge, _name, _clause(_name))
