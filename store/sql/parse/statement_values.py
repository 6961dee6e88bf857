"""The statements as values: what was asked for, checked for grammar, not yet for existence."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TypeAlias

from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp


class Word(Enum):
    """Words that stand where a value may stand."""

    DEFAULT = "DEFAULT"


@dataclass(frozen=True)
class TableName:
    """A table as written; without a database it is in the session's current one."""

    database: str | None
    name: str

    def __str__(self) -> str:
        return f"{self.database}.{self.name}" if self.database else self.name


@dataclass(frozen=True)
class CreateDatabase:
    name: str
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropDatabase:
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class UseDatabase:
    name: str


@dataclass(frozen=True)
class CreateTable:
    table: TableName
    schema: TableSchema
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropTable:
    table: TableName
    if_exists: bool = False


@dataclass(frozen=True)
class Describe:
    """`is_all` is DESC ALL: of every index, of which there is one."""

    table: TableName
    is_all: bool = False


@dataclass(frozen=True)
class ShowDatabases:
    like: str | None = None


@dataclass(frozen=True)
class ShowTables:
    database: str | None = None
    like: str | None = None
    is_full: bool = False


@dataclass(frozen=True)
class ShowCreateTable:
    table: TableName


@dataclass(frozen=True)
class ShowVariables:
    like: str | None = None
    is_global: bool = False


@dataclass(frozen=True)
class ShowWarnings:
    pass


# A word or literal as text, `Word.DEFAULT`, or an expression to be evaluated.
SetValue: TypeAlias = "str | Word | exp.Expr"


@dataclass(frozen=True)
class Assignment:
    """One `name = value` of SET. `scope` is `"session"`, `"global"` or `"user"` (a variable with `@`)."""

    scope: str
    name: str
    value: SetValue


@dataclass(frozen=True)
class SetVariables:
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True)
class Query:
    """A SELECT.

    Attributes:
        tree: sqlglot's tree of it.
        headings: for each item of the outermost select list its text as written, None when that is not known.
    """

    tree: exp.Query
    headings: tuple[str, ...] | None


# A literal, `Word.DEFAULT`, or an expression to be evaluated.
Cell: TypeAlias = "bool | int | Decimal | str | Word | exp.Expr | None"


@dataclass(frozen=True)
class Insert:
    """INSERT of literal rows (`rows`) or of the answer to a query (`query`).

    Attributes:
        columns: as written; None means all visible columns.
        partitions: the rows must be of these; empty means any.
        is_overwrite: what the table, or those partitions, held goes.
    """

    table: TableName
    columns: tuple[str, ...] | None
    label: str | None = None
    rows: tuple[tuple[Cell, ...], ...] | None = None
    query: Query | None = None
    partitions: tuple[str, ...] = ()
    is_overwrite: bool = False
