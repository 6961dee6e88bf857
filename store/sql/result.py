"""What a statement answers: rows, or what it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Result:
    """The answer to one statement.

    Attributes:
        rows: for statements that answer with rows; its columns are named as the user wrote them, twice the
            same name
            included. None for the others.
        affected_rows: rows a write accepted.
        info: what a write tells besides, in Doris's form: `{'label':'..', 'status':'VISIBLE', 'txnId':'..'}`.
        warnings: what SHOW WARNINGS would list.
    """

    rows: pa.Table | None = None
    affected_rows: int = 0
    info: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Headings, empty without rows."""
        return list(self.rows.schema.names) if self.rows is not None else []


def text_rows(headings: Sequence[str], rows: Sequence[Sequence[str | None]]) -> Result:
    """A result of text columns, as SHOW and DESC give."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(headings)
    arrays = [pa.array(list(column), pa.string()) for column in columns]
    return Result(pa.Table.from_arrays(arrays, names=list(headings)))
