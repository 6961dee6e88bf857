"""Declarations: what a table may be, with the words of Doris where it has them (SD3-SD5, T3, T9)."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Column, Default, InvalidInputError, TableSchema, parse_type
from seqstore.store.schema.column import default_scalar, hidden_name
from tests.support.rows import schema_of

REFUSED: list[tuple[list[str], list[str], dict[str, str], str]] = [
    (
        ["k INT", "v INT"],
        ["k"],
        {"sequence_col": "v", "sequence_type": "INT"},
        "The sequence_col and sequence_type cannot be set at the same time",
    ),
    (
        ["k INT", "v DOUBLE"],
        ["k"],
        {"sequence_col": "v"},
        "Sequence type only support integer types and date types",
    ),
    (
        ["k INT", "v JSON"],
        ["k"],
        {"sequence_col": "v"},
        "Sequence type only support integer types and date types",
    ),
    (
        ["k INT"],
        ["k"],
        {"sequence_type": "VARCHAR(9)"},
        "sequence type only support integer types and date types",
    ),
    (
        ["k INT"],
        ["k"],
        {"sequence_type": "DECIMAL(9,0)"},
        "sequence type only support integer types and date types",
    ),
    (["k INT", "v INT"], ["k"], {"sequence_col": "nope"}, "The specified sequence column[nope] not exists"),
    (["k INT", "v INT"], ["k"], {"sequence_col": "k"}, "The sequence column[k] cannot be a key column"),
    (["k INT"], ["k"], {"sequence_type": "NOPE"}, "no such type"),
    (["k INT"], [], {}, "a table needs a UNIQUE KEY of at least one column"),
    (["k INT"], ["nope"], {}, "key column 'nope' is not a column of the table"),
    (["v INT", "k INT"], ["k"], {}, "key columns must come first and in key order"),
    (["a INT", "b INT"], ["b", "a"], {}, "key columns must come first and in key order"),
    (["a INT", "b INT"], ["a", "a"], {}, "key"),
    (["k STRING"], ["k"], {}, "column 'k': STRING cannot be a key; use VARCHAR"),
    (["k DOUBLE"], ["k"], {}, "column 'k': DOUBLE cannot be a key"),
    (["k ARRAY<INT>"], ["k"], {}, "column 'k': ARRAY<INT> cannot be a key"),
    (["k INT", "K INT"], ["k"], {}, "duplicate column name 'K'"),
    (
        ["k INT", "__DORIS_x INT"],
        ["k"],
        {},
        "Disable to create table column with name start with __DORIS_: __DORIS_x",
    ),
    (
        ["k INT", "__doris_x INT"],
        ["k"],
        {},
        "Disable to create table column with name start with __DORIS_: __doris_x",
    ),
    (["k INT", "__DELETE_SIGN__ INT"], ["k"], {}, "Disable to create table column with name start with __"),
    (["k INT", "1x INT"], ["k"], {}, "column name '1x'"),
    (["k INT", f"{'x' * 65} INT"], ["k"], {}, "expected 1 to 64 letters"),
    (["k INT", "v INT DEFAULT x"], ["k"], {}, "is no INT"),
    (["k INT", "v TINYINT DEFAULT 128"], ["k"], {}, "is no TINYINT"),
    (["k INT", "v VARCHAR(1) DEFAULT ab"], ["k"], {}, "is no VARCHAR(1)"),
    (["k INT", "v DATE DEFAULT CURRENT_TIMESTAMP"], ["k"], {}, "does not fit DATE"),
    (["k INT"], ["k"], {"storage_format": "orc"}, "expected one of arrow, parquet, found 'orc'"),
    (["k INT"], ["k"], {"compression": "snappy"}, "expected none, lz4, zstd or auto"),
    (["k INT"], ["k"], {"replication_nun": "1"}, "did you mean 'replication_num'?"),
    (["k INT"], ["k"], {"enable_unique_key_merge_on_write": "no"}, "expected true or false, found 'no'"),
    (["k INT"], ["k"], {"dynamic_partition.enable": "true"}, "is not supported"),
]


@pytest.mark.parametrize(
    ("columns", "key", "properties", "text"), REFUSED, ids=[str(i) for i in range(len(REFUSED))]
)
def test_a_declaration_that_breaks_a_rule_is_refused(
    columns: list[str], key: list[str], properties: dict[str, str], text: str
) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(text)):
        schema_of(*columns, key=key, **properties)


@pytest.mark.parametrize("name", ["", " ", "a b", "a.b", "a`b", "a\0", "a/b", "a\n", "-a", "$a"])
def test_a_column_name_is_letters_digits_and_a_few_signs(name: str) -> None:
    with pytest.raises(InvalidInputError, match="name"):
        TableSchema.create([Column("k", parse_type("INT")), Column(name, parse_type("INT"))], ["k"])


@pytest.mark.parametrize("kind", ["TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT", "DATE", "DATETIME(3)"])
def test_integers_and_dates_are_sequences(kind: str) -> None:
    """SD4; the mapped column is found without regard to case and may be NULL (SD6)."""
    mapped = schema_of("k INT", f"At {kind}", sequence_col="aT")
    assert (mapped.sequence_column, mapped.sequence_type) == ("At", parse_type(kind))
    hidden = schema_of("k INT", sequence_type=kind)
    assert (hidden.sequence_column, hidden.sequence_type) == (None, parse_type(kind))
    assert [field.name for field in hidden.hidden_fields()][-1] == "__SEQUENCE_COL__"


@pytest.mark.parametrize(
    "kind", ["BOOLEAN", "LARGEINT", "DATE", "DATETIME(6)", "CHAR(255)", "VARCHAR(65533)", "DECIMAL(76,10)"]
)
def test_keys_may_be_of_any_scalar_type_and_null(kind: str) -> None:
    """T3."""
    assert schema_of(f"k {kind}").key_columns[0].nullable


def test_a_schema_survives_its_record() -> None:
    columns = [
        Column("k", parse_type("DECIMAL(9,2)"), False, comment="the key"),
        Column("at", parse_type("DATETIME(3)"), default=Default("current_timestamp", precision=3)),
        Column("m", parse_type("MAP<STRING,ARRAY<STRUCT<a:INT,b:LARGEINT>>>")),
        Column("n", parse_type("INT"), default=Default("constant", "7"), on_update_current_timestamp=False),
        Column("o", parse_type("BIGINT"), nullable=False, auto_increment=100),
    ]
    schema = TableSchema.create(
        columns,
        ["k"],
        properties={
            "function_column.sequence_col": "at",
            "storage_format": "PARQUET",
            "replication_num": "3",
        },
        distribution="HASH(k) BUCKETS AUTO",
        comment="a table",
    )
    again = TableSchema.from_record(schema.to_record())
    assert again == schema
    assert again.arrow == schema.arrow
    assert [column.id for column in again.columns] == [1, 2, 3, 4, 5]
    assert (again.storage_format, again.compression) == ("parquet", "zstd")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("INT", "-7", -7),
        ("BOOLEAN", "true", True),
        ("VARCHAR(3)", "é", "é"),
        ("DATE", "2024-02-29", datetime(2024, 2, 29).date()),
        ("ARRAY<INT>", "[]", []),
    ],
)
def test_a_default_is_a_value_of_its_type(kind: str, text: str, value: Any) -> None:
    column = Column("v", parse_type(kind), default=Default("constant", text))
    assert default_scalar(column, datetime.min).as_py() == value


def test_a_default_of_now_is_cut_to_its_digits() -> None:
    column = Column("v", parse_type("DATETIME(6)"), default=Default("current_timestamp", precision=3))
    assert default_scalar(column, datetime(2024, 1, 1, 0, 0, 0, 123456)).as_py().microsecond == 123000


@pytest.mark.parametrize(
    "name", ["__DELETE_SIGN__", "__delete_sign__", "__DORIS_DELETE_SIGN__", "__doris_Delete_sign__"]
)
def test_hidden_columns_have_two_spellings_in_any_case(name: str) -> None:
    """T7."""
    assert hidden_name(name) == "__DELETE_SIGN__"
    assert hidden_name("DELETE_SIGN") is None


def test_a_schema_can_be_taken_from_arrow() -> None:
    arrow = pa.schema(
        [
            ("v", pa.float64()),
            ("k", pa.large_string()),
            pa.field("d", pa.dictionary(pa.int8(), pa.string()), nullable=False),
            ("u", pa.uint64()),
            ("t", pa.timestamp("ms")),
        ]
    )
    schema = TableSchema.from_arrow(arrow, ["k"])
    assert [(c.name, c.type.sql, c.nullable) for c in schema.columns] == [
        ("k", "VARCHAR(65533)", False),
        ("v", "DOUBLE", True),
        ("d", "STRING", False),
        ("u", "LARGEINT", True),
        ("t", "DATETIME(3)", True),
    ]
    with pytest.raises(InvalidInputError, match="'nope' is not among"):
        TableSchema.from_arrow(arrow, ["nope"])
    with pytest.raises(InvalidInputError, match="no column type for Arrow type"):
        TableSchema.from_arrow(pa.schema([("k", pa.int32()), ("v", pa.duration("s"))]), ["k"])


def test_a_decimal_default_with_a_huge_exponent_is_no_accident() -> None:
    """Arrow's own reading of such text reads past its tables."""
    tiny = schema_of("k INT", "v DECIMAL(9,2) DEFAULT 1e-999999999").columns[1]
    assert default_scalar(tiny, datetime.min).as_py() == 0
    with pytest.raises(InvalidInputError, match=r"is no DECIMAL\(9,2\)"):
        schema_of("k INT", "v DECIMAL(9,2) DEFAULT 1e999999999")
