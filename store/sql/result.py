"""The result of a statement: rows, or the outcome of a write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Result:
    """The result of one statement.

    Attributes:
        rows: None for statements without rows; column names are as the user wrote them and may repeat.
        affected_rows: rows that a write accepted.
        info: label, status and id of a write in Doris's form (`write_info`).
        warnings: the lines of SHOW WARNINGS.
        generated_id: the first value that an INSERT generated for the AUTO_INCREMENT column, 0 for none.
        insert_id: that value, or else the last one that the rows brought; for the OK packet.
    """

    rows: pa.Table | None = None
    affected_rows: int = 0
    info: str = ""
    warnings: tuple[str, ...] = ()
    generated_id: int = 0
    insert_id: int = 0

    @property
    def columns(self) -> list[str]:
        """Headings, empty without rows."""
        return list(self.rows.schema.names) if self.rows is not None else []


def text_rows(headings: Sequence[str], rows: Sequence[Sequence[str | None]]) -> Result:
    """Builds a result of text columns, for SHOW and DESC."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(headings)
    arrays = [pa.array(list(column), pa.string()) for column in columns]
    return Result(pa.Table.from_arrays(arrays, names=list(headings)))


def write_info(label: str, status: str, txn_id: int | str = "") -> str:
    """Formats `Result.info` of a write."""
    return f"{{'label':'{label}', 'status':'{status}', 'txnId':'{txn_id}'}}"
