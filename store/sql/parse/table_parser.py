"""CREATE TABLE: columns, key, distribution and properties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import Column, Default
from seqstore.store.schema.declaration import leading_columns
from seqstore.store.schema.partitioning import Partitioning
from seqstore.store.schema.properties import CLUSTER_BY, WITHOUT_KEYS
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.mysql_clauses import (
    ENGINES,
    keyed,
    takes_attribute,
    takes_key,
    takes_option,
    type_text,
)
from seqstore.store.sql.parse.partition_parser import parse_partition_by
from seqstore.store.sql.parse.query_parser import QUERY_STARTS, parse_query
from seqstore.store.sql.parse.sqlglot_adapter import TokenType
from seqstore.store.sql.parse.statement_values import CreateTable, Query, TableName
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.types.column_types import ColumnType, parse_type

_AGGREGATES: Final = ("SUM", "MIN", "MAX", "REPLACE", "REPLACE_IF_NOT_NULL", "HLL_UNION", "BITMAP_UNION",
                      "QUANTILE_UNION", "GENERIC")  # fmt: skip
_MODELS: Final = {
    "AGGREGATE": "AGGREGATE KEY tables merge values; declare UNIQUE KEY to keep one row per key, or "
    "DUPLICATE KEY to keep every row",
    "PRIMARY": "expected UNIQUE KEY; PRIMARY KEY is not Doris SQL",
}


@dataclass
class TableOptions:
    """The clauses behind the column list.

    Attributes:
        key: of UNIQUE KEY; without it the table is a duplicate table (T10).
        duplicate_key: of DUPLICATE KEY; None without that clause, then the first columns (T11).
    """

    key: list[str] = field(default_factory=list)
    duplicate_key: list[str] | None = None
    comment: str = ""
    distribution: str = ""
    partitioning: Partitioning | None = None
    hash_columns: list[str] = field(default_factory=list)
    cluster_columns: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)

    def schema(self, columns: list[Column]) -> TableSchema:
        """Builds the schema of a table with these columns.

        Raises:
            InvalidInputError: the clauses do not fit the columns.
        """
        _check_distribution(columns, self)
        properties = dict(self.properties)
        duplicate_key: Sequence[str] | None = self.duplicate_key
        if duplicate_key is None and not self.key:
            is_without = properties.get(WITHOUT_KEYS, "").lower() == "true"
            duplicate_key = () if is_without else leading_columns(columns)
        if self.cluster_columns:
            properties[CLUSTER_BY] = ",".join(self.cluster_columns)
        return TableSchema.create(
            columns,
            self.key,
            duplicate_key=duplicate_key,
            properties=properties,
            distribution=self.distribution,
            comment=self.comment,
            partitioning=self.partitioning,
        )


@dataclass(frozen=True)
class CreateTableAs:
    """CREATE TABLE t [(names)] [UNIQUE KEY (..)] .. AS query."""

    table: TableName
    names: tuple[str, ...] | None
    options: TableOptions
    query: Query
    if_not_exists: bool = False


def parse_table_name(stream: TokenStream) -> TableName:
    """Parses `t`, `db.t` or `internal.db.t`."""
    start = stream.at
    parts = stream.dotted_name("table name")
    if len(parts) == 3 and parts[0].lower() == "internal":
        parts = parts[1:]
    if len(parts) > 2:
        stream.at = start
        stream.fail("a table name of one or two parts")
    return TableName(parts[0] if len(parts) == 2 else None, parts[-1])


def parse_create_table(stream: TokenStream) -> Any:
    """Reads the rest of CREATE TABLE, as CreateTable or CreateTableAs."""
    if_not_exists = stream.take("IF", "NOT", "EXISTS")
    table = parse_table_name(stream)
    if stream.word() != "(" or stream.word(2) in (",", ")"):
        return _parse_as(stream, table, if_not_exists)
    primary_key: list[str] = []
    declared = _parse_columns(stream, primary_key)
    options = _parse_options(stream)
    if primary_key:
        if options.key:
            stream.refuse("PRIMARY KEY and UNIQUE KEY (columns) name one key: leave one of them out")
        options.key = primary_key
        declared = keyed(declared, primary_key)
    stream.need_end()
    schema = options.schema([with_nullability(*each, not_null=False) for each in declared])
    bare = frozenset(column.name for column, nullable in declared if nullable is None)
    return CreateTable(table, schema, if_not_exists, bare)


def _parse_columns(stream: TokenStream, primary_key: list[str]) -> list[tuple[Column, bool | None]]:
    """Reads `(column, .. [,])`; Doris takes a comma behind the last column, MySQL the key among them."""
    stream.need("(")
    found = [parse_declaration(stream, primary_key)]
    while stream.take(",") and stream.word() != ")":
        if not takes_key(stream, primary_key):
            found.append(parse_declaration(stream, primary_key))
    if not stream.take(")"):
        stream.fail("',' or ')' behind a column")
    return found


def _parse_as(stream: TokenStream, table: TableName, if_not_exists: bool) -> CreateTableAs:
    names = tuple(stream.names("a column name")) if stream.word() == "(" else None
    options = _parse_options(stream)
    if not stream.take("AS") and stream.word() not in QUERY_STARTS:
        stream.fail("AS and a query")
    return CreateTableAs(table, names, options, parse_query(stream), if_not_exists)


def with_nullability(column: Column, nullable: bool | None, *, not_null: bool) -> Column:
    """Decides whether a declared column may be NULL.

    Args:
        nullable: None for a column declared with neither NULL nor NOT NULL.
        not_null: such a column is NOT NULL unless its default is NULL; otherwise it may be NULL, unless it is
            AUTO_INCREMENT.
    """
    if nullable is None:
        is_null = column.default is not None and column.default.kind == "null"
        nullable = column.auto_increment is None and (is_null or not not_null)
    return replace(column, nullable=nullable)


def parse_declaration(
    stream: TokenStream, primary_key: list[str] | None = None
) -> tuple[Column, bool | None]:
    """Reads a column, and whether it may be NULL; None for neither NULL nor NOT NULL.

    Args:
        primary_key: receives the name of a column with PRIMARY KEY, where a key may be declared.
    """
    column, nullable, _ = parse_column(stream, may_be_key=False, primary_key=primary_key)
    return column, nullable


def parse_column(
    stream: TokenStream, *, may_be_key: bool = True, primary_key: list[str] | None = None
) -> tuple[Column, bool | None, bool]:
    """Reads a column as `parse_declaration` does, and whether KEY makes it a key column."""
    if stream.word() == "INDEX" and stream.kind(1) is not None and stream.word(2) in ("(", "USING"):
        stream.refuse("INDEX is not supported; the key is always indexed, leave the index out")
    name = stream.name("a column name")
    column_type = _parse_column_type(stream)
    nullable: bool | None = None
    default: Default | None = None
    comment = ""
    auto_increment: int | None = None
    on_update = is_key = False
    while True:
        if may_be_key and stream.take("KEY"):
            is_key = True
        elif stream.take("NOT", "NULL"):
            nullable = False
        elif stream.take("NULL"):
            nullable = True
        elif stream.take("DEFAULT"):
            default = _parse_default(stream)
        elif stream.take("ON", "UPDATE"):
            on_update = _parse_on_update(stream, default)
        elif stream.take("AUTO_INCREMENT"):
            auto_increment = _parse_start(stream)
        elif stream.take("COMMENT"):
            comment = stream.string("a comment")
        elif primary_key is not None and not primary_key and stream.take("PRIMARY", "KEY"):
            primary_key.append(name)
        elif not takes_attribute(stream):
            break
    _refuse_column_clause(stream)
    column = Column(
        name,
        column_type,
        default=default,
        comment=comment,
        on_update_current_timestamp=on_update,
        auto_increment=auto_increment,
    )
    return column, nullable, is_key


def _parse_start(stream: TokenStream) -> int:
    """Parses the first value of an AUTO_INCREMENT column (A5)."""
    if not stream.take("("):
        return 1
    start = stream.integer("the first value")
    stream.need(")")
    return start


def _parse_on_update(stream: TokenStream, default: Default | None) -> bool:
    """Parses CURRENT_TIMESTAMP[(digits)], as the default has it (A4)."""
    start = stream.at
    value = _parse_default(stream)
    if value.kind != "current_timestamp":
        stream.at = start
        stream.fail("CURRENT_TIMESTAMP[(digits)] behind ON UPDATE")
    if default is not None and default != value:
        stream.at = start
        stream.refuse(f"ON UPDATE {value.sql} must be as the default, {default.sql}")
    return True


def _refuse_column_clause(stream: TokenStream) -> None:
    word = stream.word()
    if word in _AGGREGATES:
        stream.refuse(
            f"{word} is for AGGREGATE KEY tables; columns of a UNIQUE KEY table are always replaced, and a "
            "DUPLICATE KEY table keeps every row"
        )
    if word in ("AS", "GENERATED"):
        stream.refuse("generated columns are not supported")
    if word in ("PRIMARY", "UNIQUE", "KEY"):
        stream.refuse("keys are declared behind the column list: UNIQUE KEY (columns)")


def _parse_column_type(stream: TokenStream) -> ColumnType:
    start = stream.offset
    at = stream.at
    stream.name("a column type")
    for opening, closing in (("(", ")"), ("<", ">")):
        if stream.word() == opening:
            _skip_nested(stream, opening, closing)
    text = " ".join(stream.text[start : stream.tokens[stream.at - 1].end + 1].split())
    try:
        return parse_type(type_text(stream, text))
    except InvalidInputError as error:
        stream.at = at
        stream.refuse(error.message, error.kind)


def _skip_nested(stream: TokenStream, opening: str, closing: str) -> None:
    depth = 0
    while True:
        if stream.is_done:
            stream.fail(f"{closing!r} at the end of the type")
        depth += (stream.word() == opening) - (stream.word() == closing)
        stream.at += 1
        if depth == 0:
            return


def _parse_default(stream: TokenStream) -> Default:
    if stream.take("NULL"):
        return Default("null")
    if stream.take("CURRENT_DATE"):
        if stream.take("("):
            stream.need(")")
        return Default("current_date")
    if stream.take_one_of("CURRENT_TIMESTAMP", "NOW"):
        precision = 0
        if stream.take("(") and not stream.take(")"):
            precision = stream.integer("the number of fraction digits")
            stream.need(")")
        return Default("current_timestamp", precision=precision)
    if stream.kind() is TokenType.STRING:
        return Default("constant", stream.string("a default"))
    sign = "-" if stream.take("-") else ""
    if stream.kind() is TokenType.NUMBER:
        stream.at += 1
        return Default("constant", sign + stream.tokens[stream.at - 1].text)
    if not sign and stream.word() in ("TRUE", "FALSE"):
        return Default("constant", stream.take_one_of("TRUE", "FALSE").lower())
    stream.fail("a default: a string or number, NULL, CURRENT_TIMESTAMP[(digits)] or CURRENT_DATE")


def _parse_options(stream: TokenStream) -> TableOptions:
    options = TableOptions()
    while not stream.is_done and stream.word() not in ("AS", *QUERY_STARTS):
        if stream.take("ENGINE"):
            stream.take("=")
            if not stream.take_one_of("OLAP", *ENGINES):
                stream.fail("OLAP, the only engine, or InnoDB, which means the same here")
        elif stream.take("UNIQUE", "KEY"):
            options.key = stream.names("a key column")
        elif stream.take("DUPLICATE", "KEY"):
            options.duplicate_key = stream.names("a key column")
        elif stream.take("COMMENT"):
            stream.take("=")
            options.comment = stream.string("a comment")
        elif options.partitioning is None and (partitioning := parse_partition_by(stream)) is not None:
            options.partitioning = partitioning
        elif stream.take("CLUSTER", "BY"):
            options.cluster_columns = stream.names("a column")
        elif stream.take("DISTRIBUTED", "BY"):
            _parse_distribution(stream, options)
        elif stream.take("PROPERTIES"):
            options.properties = stream.properties()
        elif not takes_option(stream):
            _refuse_option(stream)
    return options


def _refuse_option(stream: TokenStream) -> NoReturn:
    word = stream.word()
    if word in _MODELS and stream.word(1) == "KEY":
        stream.refuse(_MODELS[word])
    if word in ("ROLLUP", "BROKER"):
        stream.refuse(f"{word} is not supported; leave it out")
    stream.fail(
        "UNIQUE KEY, DUPLICATE KEY, COMMENT, PARTITION BY, DISTRIBUTED BY, PROPERTIES or the end of the "
        "statement"
    )


def _parse_distribution(stream: TokenStream, options: TableOptions) -> None:
    if stream.take("RANDOM"):
        shown = "RANDOM"
    elif stream.take("HASH"):
        options.hash_columns = stream.names("a distribution column")
        shown = "HASH(" + ", ".join(f"`{name}`" for name in options.hash_columns) + ")"
    else:
        stream.fail("HASH (columns) or RANDOM")
    if stream.take("BUCKETS"):
        shown += " BUCKETS " + ("AUTO" if stream.take("AUTO") else str(_bucket_count(stream)))
    options.distribution = shown


def _bucket_count(stream: TokenStream) -> int:
    count = stream.integer("a number of buckets or AUTO")
    if count < 1:
        stream.at -= 1
        stream.fail("a number of buckets of at least 1")
    return count


def _check_distribution(columns: list[Column], options: TableOptions) -> None:
    known = {column.name.lower() for column in columns}
    key = {name.lower() for name in options.key}
    for name in options.hash_columns:
        if name.lower() not in known:
            raise InvalidInputError(
                f"Distribution column[{name}] does not exist", kind="unknown_column", column=name
            )
        if key and name.lower() not in key:
            raise InvalidInputError(
                f"Distribution column[{name}] is not key column; the key is {', '.join(options.key)}",
                kind="bad_key",
            )
