"""The lists of Arrow Flight SQL: databases, tables with their columns, keys; what the user of a call may see.

The only catalog is `internal`, as Doris names it; a database is a schema. Lists come from information_schema,
which shows what its user holds a privilege on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore import __version__
from seqstore.cli.scan.flight_messages import numbers
from seqstore.cli.scan.sent_rows import sent_schema
from seqstore.store import InvalidInputError
from seqstore.store.sql import Session, parse
from seqstore.store.sql.session.show_output import quoted

CATALOG: Final = "internal"
_ONCE: Final = pa.field("catalog_name", pa.string())
_TYPES: Final = {"BASE TABLE": "TABLE", "VIEW": "VIEW", "SYSTEM VIEW": "SYSTEM TABLE"}
_FACTS: Final[Mapping[int, str | bool]] = {
    0: "seqstore",  # FLIGHT_SQL_SERVER_NAME
    1: __version__,  # FLIGHT_SQL_SERVER_VERSION
    2: pa.__version__,  # FLIGHT_SQL_SERVER_ARROW_VERSION
    3: False,  # FLIGHT_SQL_SERVER_READ_ONLY
    4: True,  # FLIGHT_SQL_SERVER_SQL
    5: False,  # FLIGHT_SQL_SERVER_SUBSTRAIT
    9: True,  # FLIGHT_SQL_SERVER_BULK_INGESTION
}
_FACT_TYPES: Final = (
    ("string_value", pa.string()),
    ("bool_value", pa.bool_()),
    ("bigint_value", pa.int64()),
    ("int32_bitmask", pa.int32()),
    ("string_list", pa.list_(pa.string())),
    ("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
)
_KEY_FIELDS: Final = pa.schema(
    [
        _ONCE,
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("column_name", pa.string(), nullable=False),
        pa.field("key_name", pa.string()),
        pa.field("key_sequence", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Asked:
    """The fields of a command by their numbers, all values of each."""

    values: Mapping[int, Sequence[bytes | int]]

    def text(self, number: int) -> str | None:
        """Returns a text, None where it is not set."""
        found = self.values.get(number, ())
        return found[-1].decode(errors="replace") if found and isinstance(found[-1], bytes) else None

    def texts(self, number: int) -> list[str]:
        """Returns a repeated text."""
        found = self.values.get(number, ())
        return [each.decode(errors="replace") for each in found if isinstance(each, bytes)]

    def is_set(self, number: int) -> bool:
        """Returns a boolean."""
        return bool(self.values.get(number, (0,))[-1])

    @property
    def is_of_the_catalog(self) -> bool:
        """Whether the catalog of a list, its first field, is the one there is, or any."""
        return self.text(1) in (None, "", CATALOG)


def _rows(session: Session, text: str) -> pa.Table:
    with session.stream(parse(text)[0]) as reader:
        return reader.read_all()


def _like(rows: pa.Table, column: str, pattern: str | None) -> pa.Table:
    return rows if pattern is None else rows.filter(pc.match_like(rows[column], pattern))


def _catalogs(_session: Session, _asked: Asked) -> pa.Table:
    return pa.table(
        {"catalog_name": [CATALOG]}, schema=pa.schema([pa.field("catalog_name", pa.string(), nullable=False)])
    )


def _databases(session: Session, asked: Asked) -> pa.Table:
    rows = _rows(session, "SELECT schema_name AS n FROM information_schema.schemata ORDER BY n")
    rows = _like(rows, "n", asked.text(2))
    names = rows["n"].to_pylist() if asked.is_of_the_catalog else []
    fields = [_ONCE, pa.field("db_schema_name", pa.string(), nullable=False)]
    return pa.table([[CATALOG] * len(names), names], schema=pa.schema(fields))


def _tables(session: Session, asked: Asked) -> pa.Table:
    fields = [
        _ONCE,
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("table_type", pa.string(), nullable=False),
    ]
    rows = _rows(
        session,
        "SELECT table_schema AS d, table_name AS n, table_type AS t FROM information_schema.tables "
        "ORDER BY d, n",
    )
    rows = _like(_like(rows, "d", asked.text(2)), "n", asked.text(3))
    wanted = asked.texts(4)
    found = [
        (row["d"], row["n"], kind)
        for row in rows.to_pylist()
        for kind in [_TYPES.get(row["t"], row["t"])]
        if asked.is_of_the_catalog and (not wanted or kind in wanted)
    ]
    columns: list[Any] = [[CATALOG] * len(found), *([row[place] for row in found] for place in range(3))]
    if asked.is_set(5):
        fields.append(pa.field("table_schema", pa.binary(), nullable=False))
        columns.append([_columns(session, row[0], row[1]).serialize().to_pybytes() for row in found])
    return pa.table(columns, schema=pa.schema(fields))


def _columns(session: Session, database: str, table: str) -> pa.Schema:
    text = f"SELECT * FROM {quoted(database)}.{quoted(table)}"
    with session.stream(parse(text)[0]) as rows:
        return sent_schema(rows.schema, has_timestamps=True)


def _table_types(_session: Session, _asked: Asked) -> pa.Table:
    fields = pa.schema([pa.field("table_type", pa.string(), nullable=False)])
    return pa.table({"table_type": list(_TYPES.values())}, schema=fields)


def _primary_keys(session: Session, asked: Asked) -> pa.Table:
    """Returns the key of a table; only unique tables have one."""
    database, name = asked.text(2) or "", asked.text(3) or ""
    if not database:
        raise InvalidInputError(f"the key of {name!r}: name its database", kind="bad_command")
    rows = _rows(
        session,
        "SELECT table_schema AS d, table_name AS n, column_name AS c FROM information_schema.columns "
        "WHERE column_key = 'UNI' ORDER BY ordinal_position",
    ).to_pylist()
    keys = [row["c"] for row in rows if (row["d"], row["n"]) == (database, name)]
    count = len(keys) if asked.is_of_the_catalog else 0
    columns = [[CATALOG] * count, [database] * count, [name] * count, keys[:count], ["PRIMARY"] * count]
    return pa.table([*columns, range(1, count + 1)], schema=_KEY_FIELDS)


def _facts(_session: Session, asked: Asked) -> pa.Table:
    """Returns facts on the server, by the numbers of Flight SQL; those that were asked for."""
    given = asked.values.get(1, ())
    wanted = {each for value in given for each in (numbers(value) if isinstance(value, bytes) else [value])}
    facts = {number: fact for number, fact in _FACTS.items() if not wanted or number in wanted}
    texts = [fact for fact in facts.values() if isinstance(fact, str)]
    flags = [fact for fact in facts.values() if isinstance(fact, bool)]
    kinds = [0 if isinstance(fact, str) else 1 for fact in facts.values()]
    places = [kinds[:at].count(kind) for at, kind in enumerate(kinds)]
    children = [pa.array(texts, pa.string()), pa.array(flags, pa.bool_())]
    children += [pa.array([], kind) for _, kind in _FACT_TYPES[2:]]
    values = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()), pa.array(places, pa.int32()), children, [name for name, _ in _FACT_TYPES]
    )
    fields = [("info_name", pa.uint32()), ("value", values.type)]
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])
    return pa.table([pa.array(facts, pa.uint32()), values], schema=schema)


LISTS: Final[Mapping[str, Callable[[Session, Asked], pa.Table]]] = {
    "CommandGetCatalogs": _catalogs,
    "CommandGetDbSchemas": _databases,
    "CommandGetPrimaryKeys": _primary_keys,
    "CommandGetSqlInfo": _facts,
    "CommandGetTableTypes": _table_types,
    "CommandGetTables": _tables,
}
"""The lists by the names of their commands."""
