"""The statements as values: their grammar is checked, their tables and columns are not looked up yet."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar, Final, TypeAlias

from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp

EVERY_COLUMN: Final = "__every_column__"  # the column list of an INSERT clause of MERGE that has none


class Word(Enum):
    """Words that stand where a value may stand."""

    DEFAULT = "DEFAULT"


@dataclass(frozen=True)
class TableName:
    """A table as written; without a database it belongs to the session's current one."""

    database: str | None
    name: str

    def __str__(self) -> str:
        return f"{self.database}.{self.name}" if self.database else self.name


@dataclass(frozen=True)
class IntoOutfile:
    """SELECT .. INTO OUTFILE 'uri' [FORMAT AS form] [PROPERTIES (..)]."""

    query: Query
    uri: str
    form: str
    properties: dict[str, str]


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
class ShowCreateDatabase:
    name: str
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateTable:
    """CREATE TABLE; `bare` are the columns declared with neither NULL nor NOT NULL."""

    table: TableName
    schema: TableSchema
    if_not_exists: bool = False
    bare: frozenset[str] = frozenset()


@dataclass(frozen=True)
class DropTable:
    """`other_tables` go with the first one, all at once."""

    table: TableName
    if_exists: bool = False
    other_tables: tuple[TableName, ...] = ()


@dataclass(frozen=True)
class Describe:
    """`is_all` stands for DESC ALL, which lists every index; a table has one."""

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
    """SHOW [COUNT(*)] WARNINGS or ERRORS, with [LIMIT ..]; a statement that succeeded has no errors."""

    is_errors: bool = False
    limit: int | None = None
    offset: int = 0
    is_count: bool = False


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
        tree: sqlglot's tree.
        headings: the text of each item of the outermost select list as written, None where it is not known.
        settings: the session variables that a hint sets for this query, names and values.
        prepared: what was made of the query for its next run (sql.evaluate.prepared_text).
        shape: what was made of queries that differ in their literals alone (sql.evaluate.scan_shapes). They
            share it; a query that is changed has none.
        literals: those of the query, where it has a shape.
    """

    tree: exp.Query
    headings: tuple[str, ...] | None
    settings: tuple[tuple[str, str], ...] = ()
    prepared: dict[Hashable, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    shape: dict[Hashable, Any] | None = field(default=None, init=False, compare=False, repr=False)
    literals: Sequence[str] = field(default=(), init=False, compare=False, repr=False)

    def of_shape(self, tree: exp.Query, shape: dict[Hashable, Any], literals: Sequence[str]) -> Query:
        """Returns the query with other literals, which its tree has too."""
        made = Query(tree, self.headings, self.settings)
        object.__setattr__(made, "shape", shape)
        object.__setattr__(made, "literals", literals)
        return made


# A literal, `Word.DEFAULT`, or an expression to be evaluated.
Cell: TypeAlias = "bool | int | Decimal | str | Word | exp.Expr | None"


@dataclass(frozen=True)
class Insert:
    """INSERT of literal rows (`rows`) or of the answer to a query (`query`).

    Attributes:
        columns: as written; None means all visible columns.
        partitions: the rows must be of these; empty means any.
        is_overwrite: the rows replace those of the table, or of those partitions.
        is_replace: REPLACE INTO: whole rows, whatever the session says of partial updates.
        is_ignore: INSERT IGNORE: rows whose key is stored, or that cannot be stored, are left out.
        on_duplicate: ON DUPLICATE KEY UPDATE: columns and values.
        row_alias: by which those values name the inserted row.
        databases: the names of the table's database before its columns, where the table has none before it.
    """

    table: TableName
    columns: tuple[str, ...] | None
    label: str | None = None
    rows: tuple[tuple[Cell, ...], ...] | None = None
    query: Query | None = None
    partitions: tuple[str, ...] = ()
    is_overwrite: bool = False
    is_replace: bool = False
    is_ignore: bool = False
    on_duplicate: tuple[tuple[str, exp.Expr], ...] = ()
    row_alias: str | None = None
    databases: frozenset[str] = frozenset()

    @property
    def merges(self) -> bool:
        """Whether stored rows decide about the rows of the statement."""
        return self.is_ignore or bool(self.on_duplicate)


@dataclass(frozen=True)
class DmlStatement:
    """UPDATE, DELETE or MERGE INTO of `table`, with sqlglot's tree. `operation` names it in the history."""

    operation: ClassVar[str]
    table: TableName
    tree: exp.Update | exp.Delete | exp.Merge


@dataclass(frozen=True)
class HintedChange:
    """A statement that writes, with the session variables that its hint sets, names and values."""

    statement: Any
    settings: tuple[tuple[str, str], ...]

    @property
    def table(self) -> TableName:
        """The table that the statement writes, for its privilege."""
        written: TableName = self.statement.table
        return written


class UpdateStatement(DmlStatement):
    operation = "UPDATE"


class DeleteStatement(DmlStatement):
    operation = "DELETE"


class MergeStatement(DmlStatement):
    operation = "MERGE"
