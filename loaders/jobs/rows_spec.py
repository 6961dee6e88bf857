"""The clauses between a job's rows and their table, which broker loads and routine loads share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class RowsSpec:
    """The clauses (B1, R1).

    Attributes:
        merge_type: APPEND, DELETE or MERGE.
        columns: fields of a row, in order.
        assignments: `column = expression`, in order.
        preceding_filter, where, delete_on: conditions.
        order_by: the sequence column.
        properties: by lower-case name.
    """

    merge_type: str = "APPEND"
    partitions: tuple[str, ...] = ()
    column_separator: str = ""
    line_delimiter: str = ""
    columns: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    preceding_filter: str = ""
    where: str = ""
    delete_on: str = ""
    order_by: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)

    def headers(self) -> dict[str, str]:
        """Returns the clauses as headers of a stream load; an absent clause is empty."""
        return {
            "columns": ", ".join([*(f"`{name}`" for name in self.columns), *self.assignments]),
            "merge_type": "" if self.merge_type == "APPEND" else self.merge_type,  # F4
            "partitions": ",".join(self.partitions),
            "column_separator": self.column_separator,
            "line_delimiter": self.line_delimiter,
            "where": self.where,
            "delete": self.delete_on,
            "function_column.sequence_col": self.order_by,
        }


def lower_names(properties: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in properties.items()}
