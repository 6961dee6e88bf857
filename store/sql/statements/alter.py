"""ALTER TABLE: columns, properties and features. Partitions are in `partitions`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from seqstore.store.check.write_modes import UpdateMode
from seqstore.store.ddl import alter as table_changes
from seqstore.store.ddl import column_changes
from seqstore.store.ddl.alter import Change
from seqstore.store.ddl.column_order import Place, order_columns
from seqstore.store.ddl.drop_feature import drop_feature
from seqstore.store.errors import InvalidInputError, bad_property
from seqstore.store.schema.column import Column
from seqstore.store.sql.parse.sqlglot_adapter import TokenType, exp, find_all
from seqstore.store.sql.parse.statement_values import TableName
from seqstore.store.sql.parse.table_parser import (
    parse_column,
    parse_table_name,
    with_nullability,
)
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.sql.translate.check_expression import check_expression


@dataclass(frozen=True)
class AlterTable:
    """ALTER TABLE t change [, change ..]."""

    table: TableName
    changes: tuple[Change | _Addition, ...]


@dataclass(frozen=True)
class _Addition:
    """ADD COLUMN: each column with True for NULL, False for NOT NULL, and None for neither of them.

    Attributes:
        keys: names of those that KEY makes key columns.
    """

    columns: tuple[tuple[Column, bool | None], ...]
    keys: frozenset[str]
    after: str | None = None
    is_first: bool = False
    properties: Mapping[str, str] | None = None

    def change(self, *, not_null: bool) -> Change:
        columns = [with_nullability(*each, not_null=not_null) for each in self.columns]
        if self.properties is not None:
            return column_changes.add_columns(columns, self.properties, keys=self.keys)
        return column_changes.add_column(
            columns[0], after=self.after, is_first=self.is_first, is_key=bool(self.keys)
        )


def _parse(stream: TokenStream) -> AlterTable:
    table = parse_table_name(stream)
    return AlterTable(table, tuple(stream.listed(_parse_change)))


def _parse_change(stream: TokenStream) -> Change | _Addition:
    word = stream.take_one_of(*_CHANGES)
    if stream.word() in _REFUSED:
        stream.refuse(_REFUSED[stream.word()])
    if not word:
        stream.fail(", ".join(_CHANGES))
    return _CHANGES[word](stream)


def _parse_add(stream: TokenStream) -> _Addition:
    """Parses columns and AFTER."""
    if stream.word() in ("ROLLUP", "INDEX"):
        stream.refuse(f"{stream.word()} is not supported: a table has its key index and zone maps")
    stream.take_one_of("COLUMN", "COLUMNS")
    if stream.take("("):
        return _parse_add_list(stream)
    added = parse_column(stream)
    is_first = stream.take("FIRST")
    after = stream.name("a column name") if stream.take("AFTER") else None
    return replace(_addition([added]), after=after, is_first=is_first)


def _parse_add_list(stream: TokenStream) -> _Addition:
    columns = stream.listed(parse_column)
    stream.need(")")
    properties = stream.properties() if stream.take("PROPERTIES") else {}
    return replace(_addition(columns), properties=properties)


def _addition(columns: Sequence[tuple[Column, bool | None, bool]]) -> _Addition:
    keys = frozenset(column.name for column, _, is_key in columns if is_key)
    return _Addition(tuple((column, nullable) for column, nullable, _ in columns), keys)


def _parse_drop(stream: TokenStream) -> Change:
    if stream.take("CONSTRAINT"):
        return table_changes.drop_constraint(stream.name("a constraint name"))
    stream.take("COLUMN")
    return column_changes.drop_column(stream.name("a column name"))


def _parse_modify(stream: TokenStream) -> Change:
    """Parses a column that is declared anew, or the comment alone of the table or of a column."""
    if stream.word() == "COMMENT" and stream.kind(1) is TokenType.STRING:
        stream.need("COMMENT")
        return table_changes.set_comment(stream.string("a comment"))
    stream.take("COLUMN")
    if stream.word(1) == "COMMENT" and stream.kind(2) is TokenType.STRING:
        name = stream.name("a column name")
        stream.need("COMMENT")
        return column_changes.comment_column(name, stream.string("a comment"))
    column, nullable, is_key = parse_column(stream)
    place = Place() if stream.take("FIRST") else None
    if stream.take("AFTER"):
        place = Place(stream.name("a column name"))
    return column_changes.restate_column(column, nullable=nullable, is_key=is_key, place=place)


def _parse_order(stream: TokenStream) -> Change:
    stream.need("BY")
    return order_columns(stream.names("a column name"))


def _parse_rename(stream: TokenStream) -> Change:
    stream.need("COLUMN")
    name = stream.name("a column name")
    stream.take("TO")
    return column_changes.rename_column(name, stream.name("its new name"))


def _parse_set(stream: TokenStream) -> Change:
    stream.take("TBLPROPERTIES")
    return table_changes.set_properties(stream.properties())


def _parse_unset(stream: TokenStream) -> Change:
    stream.need("TBLPROPERTIES")
    stream.need("(")
    names = stream.listed(lambda each: each.string("a property name"))
    stream.need(")")
    return table_changes.unset_properties(names)


def _parse_enable(stream: TokenStream) -> Change:
    stream.need("FEATURE")
    feature = stream.string("a feature")
    if feature.upper() == UpdateMode.FLEXIBLE:
        return table_changes.enable_flexible_updates()
    if feature.upper() != table_changes.SEQUENCE_LOAD:
        stream.at -= 1
        stream.refuse(f"unknown feature name: {feature}", "unknown_feature")
    properties = {}
    if stream.take("WITH"):
        stream.need("PROPERTIES")
        properties = stream.properties()
    return table_changes.enable_sequence_load(properties)


_REFUSED: Final = {
    "REPLACE": "REPLACE PARTITION is not supported; INSERT OVERWRITE ... PARTITION replaces rows at once",
}
_CHANGES: Final[dict[str, Callable[[TokenStream], Change | _Addition]]] = {
    "ADD": _parse_add,
    "DROP": _parse_drop,
    "MODIFY": _parse_modify,
    "RENAME": _parse_rename,
    "ORDER": _parse_order,
    "SET": _parse_set,
    "UNSET": _parse_unset,
    "ENABLE": _parse_enable,
}


@dataclass(frozen=True)
class AddConstraint:
    """ALTER TABLE t ADD CONSTRAINT name CHECK (condition)."""

    table: TableName
    name: str
    sql: str
    condition: exp.Expr


def _parse_constraint(stream: TokenStream) -> AddConstraint:
    table = parse_table_name(stream)
    stream.need("ADD", "CONSTRAINT")
    name = stream.name("a constraint name")
    stream.need("CHECK", "(")
    start = stream.offset
    condition = stream.expression()
    sql = stream.text[start : stream.offset].strip()
    stream.need(")")
    return AddConstraint(table, name, sql, condition)


def _run_constraint(statement: AddConstraint, session: Session) -> None:
    table = session.table(statement.table)
    for column in find_all(statement.condition, exp.Column):
        qualifier = ".".join(part.name for part in column.parts[:-1])
        if qualifier.lower() not in ("", statement.table.name.lower(), table.name.lower()):
            raise InvalidInputError(
                f"unknown column '{qualifier}.{column.name}' in the constraint; it tests rows of "
                f"{statement.table.name}",
                kind="unknown_column",
            )
    expression = check_expression(statement.condition, table.schema)
    table_changes.add_constraint(table, statement.name, statement.sql, expression)


@dataclass(frozen=True)
class DropFeature:
    """ALTER TABLE t DROP FEATURE name."""

    table: TableName
    name: str


def _parse_drop_feature(stream: TokenStream) -> DropFeature:
    table = parse_table_name(stream)
    stream.need("DROP", "FEATURE")
    name = stream.word_or_string("a feature")
    if stream.take("TRUNCATE"):
        stream.refuse("TRUNCATE HISTORY is not needed: earlier versions keep their features")
    return DropFeature(table, name)


def _run_drop_feature(statement: DropFeature, session: Session) -> None:
    drop_feature(session.table(statement.table), statement.name)


@dataclass(frozen=True)
class ReplaceTable:
    """ALTER TABLE t REPLACE WITH TABLE other [PROPERTIES ("swap" = "true")]."""

    table: TableName
    other: str
    swap: bool

    @property
    def other_tables(self) -> tuple[str, ...]:
        """The tables whose privileges count too."""
        return (self.other,)


def _parse_replace(stream: TokenStream) -> ReplaceTable:
    table = parse_table_name(stream)
    stream.need("REPLACE", "WITH", "TABLE")
    other = stream.name("a table of the same database")
    properties = stream.properties() if stream.take("PROPERTIES") else {}
    swap = properties.pop("swap", "true").lower()
    if properties or swap not in ("true", "false"):
        raise bad_property(
            f"REPLACE WITH TABLE: expected the property 'swap', true or false, found "
            f"{', '.join(map(repr, properties)) or repr(swap)}"
        )
    return ReplaceTable(table, other, swap == "true")


def _run_replace(statement: ReplaceTable, session: Session) -> None:
    name = session.full_name(statement.table)
    database = name.partition(".")[0]
    session.store.replace_table(name, f"{database}.{statement.other}", swap=statement.swap)


@dataclass(frozen=True)
class RenameTable:
    """ALTER TABLE t RENAME new_name."""

    table: TableName
    new_name: str

    @property
    def other_tables(self) -> tuple[str, ...]:
        """The tables whose privileges count too: grants on the new name are on this table from now on."""
        return (self.new_name,)


@dataclass(frozen=True)
class RenameTables(RenameTable):
    """RENAME TABLE t TO [db.]new_name, of MySQL."""

    new_database: str | None = None


def _run_rename_tables(statement: RenameTables, session: Session) -> None:
    database = session.full_name(statement.table).partition(".")[0]
    if (statement.new_database or session.current_database()) != database:
        raise InvalidInputError(
            f"a table stays in its database; name it {database}.{statement.new_name}",
            kind="not_supported",
        )
    _run_rename_table(statement, session)


def _parse_rename_table(stream: TokenStream) -> Any:
    """Parses the new name of a table, or the changes of ALTER TABLE that begin with RENAME COLUMN."""
    start = stream.at
    table = parse_table_name(stream)
    stream.need("RENAME")
    if stream.word() == "COLUMN" and stream.kind(1) is not None:
        stream.at = start
        return _parse(stream)
    stream.take_one_of("TO", "AS")
    return RenameTable(table, stream.name("its new name, or COLUMN"))


def _parse_rename_tables(stream: TokenStream) -> RenameTables:
    """Parses MySQL's RENAME TABLE of one table."""
    table = parse_table_name(stream)
    stream.need("TO")
    new = parse_table_name(stream)
    if stream.word() == ",":
        stream.refuse("RENAME TABLE takes one table; ALTER TABLE a REPLACE WITH TABLE b exchanges two")
    return RenameTables(table, new.name, new.database)


def _run_rename_table(statement: RenameTable, session: Session) -> None:
    session.store.rename_table(session.full_name(statement.table), statement.new_name)


def _run(statement: AlterTable, session: Session) -> None:
    not_null = session.store.settings.columns_not_null_by_default
    changes = [
        each.change(not_null=not_null) if isinstance(each, _Addition) else each for each in statement.changes
    ]
    session.store.schema_changes.alter(session.table(statement.table), changes)


@dataclass(frozen=True)
class SwitchKeys:
    """ALTER TABLE t {DISABLE | ENABLE} KEYS, of a file by mysqldump: no table has keys that could wait."""

    table: TableName


def _parse_switch_keys(stream: TokenStream) -> SwitchKeys:
    table = parse_table_name(stream)
    stream.take_one_of("DISABLE", "ENABLE")
    stream.need("KEYS")
    return SwitchKeys(table)


def _run_switch_keys(statement: SwitchKeys, session: Session) -> None:
    session.table(statement.table)


KINDS: Final = (
    StatementKind(("ALTER TABLE",), AlterTable, _parse, _run),
    StatementKind(
        ("ALTER TABLE * DISABLE KEYS", "ALTER TABLE * ENABLE KEYS"),
        SwitchKeys,
        _parse_switch_keys,
        _run_switch_keys,
    ),
    StatementKind(("ALTER TABLE * ADD CONSTRAINT",), AddConstraint, _parse_constraint, _run_constraint),
    StatementKind(("ALTER TABLE * RENAME",), RenameTable, _parse_rename_table, _run_rename_table),
    StatementKind(("RENAME TABLE",), RenameTables, _parse_rename_tables, _run_rename_tables),
    StatementKind(("ALTER TABLE * REPLACE WITH TABLE",), ReplaceTable, _parse_replace, _run_replace),
    StatementKind(("ALTER TABLE * DROP FEATURE",), DropFeature, _parse_drop_feature, _run_drop_feature),
)
