"""Statements of broker and routine loads as values, and the interface that runs them.

The `LoadJobs` of a server run the statements. Expressions stay text, as in the headers of a stream load, for
the same code evaluates both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow.compute as pc

from seqstore.store.errors import UnavailableError
from seqstore.store.expressions.like_pattern import LikePattern
from seqstore.store.maintenance.compaction import CompactionResult
from seqstore.store.sql.parse.statement_values import TableName
from seqstore.store.sql.result import Result
from seqstore.store.table import Table


@dataclass(frozen=True)
class LoadClauses:
    """The clauses of both kinds of load about columns and rows (B1, R1).

    Attributes:
        columns: items of the column list, names or `name = expression`.
        set_columns: of SET: name and expression.
        order_by: the column that holds the sequence.
    """

    merge_type: str = "APPEND"
    partitions: tuple[str, ...] = ()
    column_separator: str | None = None
    line_delimiter: str | None = None
    format: str | None = None
    compress_type: str | None = None
    columns: tuple[str, ...] = ()
    columns_from_path: tuple[str, ...] = ()
    set_columns: tuple[tuple[str, str], ...] = ()
    preceding_filter: str | None = None
    where: str | None = None
    delete_on: str | None = None
    order_by: str | None = None


@dataclass(frozen=True)
class DataDescription:
    """One DATA INFILE of a broker load."""

    paths: tuple[str, ...]
    table: str
    clauses: LoadClauses
    properties: dict[str, str] = field(default_factory=dict)
    is_negative: bool = False


@dataclass(frozen=True)
class LoadLabel:
    """LOAD LABEL. `source` is BROKER, S3, HDFS or LOCAL; `broker` its name, empty without one."""

    database: str | None
    label: str
    descriptions: tuple[DataDescription, ...]
    source: str = ""
    broker: str = ""
    source_properties: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    comment: str = ""


@dataclass(frozen=True)
class LabelFilter:
    """WHERE LABEL = .. | LABEL LIKE .. [AND STATE = ..] (B12, B17)."""

    label: str | None = None
    is_pattern: bool = False
    state: str | None = None

    def label_matcher(self) -> Callable[[str], bool]:
        """Returns a function that checks labels; the case of letters counts."""
        if self.label is None:
            return lambda _label: True
        return LikePattern(self.label).matches if self.is_pattern else self.label.__eq__


@dataclass(frozen=True)
class ShowLoad:
    """SHOW LOAD (B12). `order` holds columns, each with whether it descends."""

    database: str | None
    filter: LabelFilter
    limit: int | None = None
    offset: int = 0
    order: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True)
class CancelLoad:
    database: str | None
    filter: LabelFilter


@dataclass(frozen=True)
class CreateRoutineLoad:
    """CREATE ROUTINE LOAD. `table` is None in multi-table mode (R3)."""

    job: TableName
    table: str | None
    clauses: LoadClauses
    properties: dict[str, str]
    source: str
    source_properties: dict[str, str]
    comment: str = ""


@dataclass(frozen=True)
class AlterRoutineLoad:
    job: TableName
    clauses: LoadClauses
    properties: dict[str, str]
    source: str = ""
    source_properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ControlRoutineLoad:
    """`action` is PAUSE, RESUME or STOP; `job` is None for ALL of the database."""

    action: str
    job: TableName | None


@dataclass(frozen=True)
class ShowRoutineLoad:
    """`what` is JOBS, TASKS or CREATE."""

    what: str
    job: TableName | None
    is_all: bool = False
    like: str | None = None


@dataclass(frozen=True)
class CreateTableFrom:
    """CREATE TABLE .. FROM DELTA | ICEBERG.

    Attributes:
        format: DELTA or ICEBERG.
        path: of the table's directory; of Iceberg, or of a metadata file.
        version: to read; None means the newest.
        more_privileges: besides that of creating the table: it reads files of the server, as LOAD LABEL does.
    """

    table: TableName
    format: str
    path: str
    key: tuple[str, ...]
    sequence: str = ""
    version: int | None = None
    properties: dict[str, str] = field(default_factory=dict)
    if_not_exists: bool = False
    more_privileges: tuple[str, ...] = ("LOAD",)


class LoadJobs(Protocol):
    """Runs load statements, and others whose engine may be Spark; `database` completes names without one."""

    def optimize(
        self, table: Table, where: pc.Expression | None, *, zorder_by: Sequence[str], full: bool
    ) -> CompactionResult: ...

    def submit(self, statement: LoadLabel, database: str) -> Result: ...

    def show(self, statement: ShowLoad, database: str) -> Result: ...

    def cancel(self, statement: CancelLoad, database: str) -> Result: ...

    def create_routine(self, statement: CreateRoutineLoad, database: str) -> Result: ...

    def alter_routine(self, statement: AlterRoutineLoad, database: str) -> Result: ...

    def control_routine(self, statement: ControlRoutineLoad, database: str) -> Result: ...

    def show_routine(self, statement: ShowRoutineLoad, database: str) -> Result: ...

    def create_table_from(self, statement: CreateTableFrom, name: str, zone: str) -> Result: ...


def required(jobs: LoadJobs | None, statement: str) -> LoadJobs:
    """Returns the load jobs of a server.

    Raises:
        UnavailableError: the server has none.
    """
    if jobs is None:
        raise UnavailableError(
            f"{statement} is understood, but nothing here runs load jobs; load files by `seqstore "
            "stream-load` or INSERT",
            kind="no_load_jobs",
        )
    return jobs
