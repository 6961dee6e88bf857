"""The output of DESC and SHOW, and the clauses that their statements share."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from seqstore.store.ddl.views import View
from seqstore.store.expressions.like_pattern import LikePattern
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.schema.column import SEQUENCE_COL, Column
from seqstore.store.schema.partitioning import Partition
from seqstore.store.schema.partitions import automatic_partitions, partition_filter
from seqstore.store.schema.properties import CLUSTER_BY, GROUP_COMMIT_MODE, GROUP_COMMIT_OFF
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.translate.relations import shown_name
from seqstore.store.types.column_types import type_from_arrow

_MYSQL_TYPES = {"BOOLEAN": "tinyint(1)", "LARGEINT": "decimal(39,0)", "STRING": "longtext"}
_DESC_HEADINGS = ("Field", "Type", "Null", "Key", "Default", "Extra")


def describe(schema: TableSchema, *, show_hidden: bool) -> Result:
    """Describes columns in the form of the Doris documents, hidden ones in that of T5."""
    rows: list[tuple[str | None, ...]] = []
    for column in schema.columns:
        is_key = column.name in schema.declared_key
        extras = [] if is_key or not schema.key else ["NONE" if schema.is_duplicate else "REPLACE"]
        extra = ",".join([*extras, "AUTO_INCREMENT"] if column.auto_increment is not None else extras)
        rows.append(
            (column.name, column.type.sql, _yes(column.nullable), _true(is_key), _default(column), extra)
        )
    if show_hidden:
        for field in schema.hidden_fields():
            is_sequence = field.name == SEQUENCE_COL
            kind = schema.sequence_type if is_sequence else None
            shown = kind.sql if kind is not None else type_from_arrow(field.type).sql
            default = None if is_sequence else "0"
            extra = "REPLACE" if schema.is_merge_on_read else "NONE"  # T5
            rows.append((shown_name(field.name), shown, _yes(is_sequence), "false", default, extra))
    return text_rows(_DESC_HEADINGS, rows)


def describe_all(name: str, schema: TableSchema) -> Result:
    """Returns DESC ALL: the columns of the table's only index, hidden ones included."""
    rows = describe(schema, show_hidden=True).rows
    assert rows is not None
    headings = ("IndexName", "IndexKeysType", "Field", "Type", "InternalType", "Null", "Key", "Default",
                "Extra", "Visible")  # fmt: skip
    lines = []
    for i, row in enumerate(rows.to_pylist()):
        first = (name, "DUP_KEYS" if schema.is_duplicate else "UNIQUE_KEYS") if i == 0 else ("", "")
        rest = (row["Null"], row["Key"], row["Default"], row["Extra"])
        is_visible = schema.find(row["Field"]) is not None
        lines.append((*first, row["Field"], row["Type"], row["Type"], *rest, _true(is_visible)))
    return text_rows(headings, lines)


def _yes(value: bool) -> str:
    return "Yes" if value else "No"


def _true(value: bool) -> str:
    return "true" if value else "false"


def _default(column: Column) -> str | None:
    default = column.default
    if default is None or default.kind == "null":
        return None
    return default.text if default.kind == "constant" else default.sql


def create_table_text(name: str, schema: TableSchema) -> str:
    """Formats the CREATE TABLE statement that makes a table with this schema."""
    lines = [f"  {_column(column)}" for column in schema.columns]
    parts = [f"CREATE TABLE {quoted(name)} (\n" + ",\n".join(lines) + "\n) ENGINE=OLAP"]
    if schema.declared_key:
        clause = "DUPLICATE KEY" if schema.is_duplicate else "UNIQUE KEY"
        parts.append(f"{clause}({', '.join(map(quoted, schema.declared_key))})")
    if schema.comment:
        parts.append(f"COMMENT {literal(schema.comment)}")
    if schema.partitioning is not None:
        declared = ",\n".join(partition.sql for partition in schema.partitioning.partitions)
        parts.append(f"{schema.partitioning.sql}\n({declared})")
    if schema.cluster_columns:
        parts.append(f"CLUSTER BY ({', '.join(map(quoted, schema.cluster_columns))})")
    if schema.distribution:
        parts.append(f"DISTRIBUTED BY {schema.distribution}")
    properties = {key: value for key, value in schema.properties.items() if key != CLUSTER_BY}
    if schema.group_commit == GROUP_COMMIT_OFF:
        properties.pop(GROUP_COMMIT_MODE, None)
    if properties:
        pairs = ",\n".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
        parts.append(f"PROPERTIES (\n{pairs}\n)")
    return "\n".join(parts) + ";"


def mysql_table_text(name: str, schema: TableSchema) -> str:
    """Formats a table as SHOW CREATE TABLE of MySQL does, for clients that parse that text.

    A type that MySQL does not have is shown as the one that holds its values there.
    """
    lines = [f"  {_mysql_column(column)}" for column in schema.columns]
    key = [quoted(column) for column in schema.unique_key]
    if key:
        lines.append(f"  PRIMARY KEY ({','.join(key)})")
    comment = f" COMMENT={_mysql_literal(schema.comment)}" if schema.comment else ""
    options = f") ENGINE=OLAP DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin{comment}"
    return f"CREATE TABLE {quoted(name)} (\n" + ",\n".join(lines) + f"\n{options}"


def _mysql_column(column: Column) -> str:
    kind = "json" if column.type.is_nested else _MYSQL_TYPES.get(column.type.name, column.type.sql.lower())
    words = [quoted(column.name), kind, "NULL" if column.nullable else "NOT NULL"]
    if column.auto_increment is not None:
        words.append("AUTO_INCREMENT")
    default = column.default
    if default is not None:
        is_constant = default.kind == "constant"
        words += ["DEFAULT", _mysql_literal(default.text or "") if is_constant else default.sql]
    if column.on_update_current_timestamp and default is not None:
        words += ["ON UPDATE", default.sql]
    if column.comment:
        words += ["COMMENT", _mysql_literal(column.comment)]
    return " ".join(words)


def _mysql_literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def create_view_text(view: View) -> str:
    """Formats the CREATE VIEW statement that makes a view."""
    parts = [f"CREATE VIEW {quoted(view.name)}"]
    if view.is_named:
        comments = (
            f" COMMENT {literal(column.comment)}" if column.comment else "" for column in view.columns
        )
        names = (quoted(column.name) for column in view.columns)
        parts.append(f"({', '.join(map(operator.add, names, comments))})")
    if view.comment:
        parts.append(f"COMMENT {literal(view.comment)}")
    return " ".join([*parts, f"AS {view.query}"])  # mysqldump writes it into a comment: no semicolon


def create_view_result(view: View) -> Result:
    """Returns SHOW CREATE VIEW, which is SHOW CREATE TABLE of a view too."""
    headings = ("View", "Create View", "character_set_client", "collation_connection")
    return text_rows(headings, [(view.name, create_view_text(view), "utf8mb4", "utf8mb4_0900_bin")])


def _column(column: Column) -> str:
    words = [quoted(column.name), column.type.sql.lower(), "NULL" if column.nullable else "NOT NULL"]
    if column.auto_increment is not None:
        words.append(f"AUTO_INCREMENT({column.auto_increment})")
    if column.default is not None:
        words += ["DEFAULT", column.default.sql]
    if column.on_update_current_timestamp and column.default is not None:
        words += ["ON UPDATE", column.default.sql]
    if column.comment:
        words += ["COMMENT", literal(column.comment)]
    return " ".join(words)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def partition_counts(snapshot: Snapshot) -> list[tuple[Partition, int]]:
    """Returns the partitions of a partitioned table, and the number of rows of each.

    They are the declared ones, and in an AUTO table those that its rows make.
    """
    schema = snapshot.schema
    partitioning = schema.partitioning
    assert partitioning is not None
    rows = snapshot.scan(partitioning.columns).read_all()
    found = [*partitioning.partitions]
    if partitioning.is_auto:
        found += automatic_partitions(schema, rows)
    return [(partition, rows.filter(partition_filter(schema, partition)).num_rows) for partition in found]


def parse_like(stream: TokenStream) -> str | None:
    """Parses `[LIKE 'pattern']`."""
    return stream.string("a pattern") if stream.take("LIKE") else None


def parse_database(stream: TokenStream) -> str | None:
    """Parses `[FROM|IN database]`."""
    return stream.name("a database name") if stream.take_one_of("FROM", "IN") else None


def parse_limit(stream: TokenStream) -> tuple[int | None, int]:
    """Parses `[LIMIT rows [OFFSET first] | LIMIT first, rows]`; returns rows, None for all, and the first."""
    if not stream.take("LIMIT"):
        return None, 0
    limit, offset = stream.integer("a number of rows"), 0
    if stream.take(","):
        offset, limit = limit, stream.integer("a number of rows")
    elif stream.take("OFFSET"):
        offset = stream.integer("a number of rows")
    return limit, offset


def matching(names: Iterable[str], like: str | None) -> list[str]:
    """Selects names that match a LIKE pattern without regard to case, as in MySQL; all without a pattern."""
    if like is None:
        return list(names)
    pattern = LikePattern(like, ignore_case=True)
    return [name for name in names if pattern.matches(name)]
