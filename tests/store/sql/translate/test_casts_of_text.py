"""CAST of a text in a query against the cast of a load (types.cast): one rule for both (Y12, Y13)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from seqstore.store.sql import Session
from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import parse_type
from tests.support.statements import last_result, run

pytestmark = pytest.mark.sql("CREATE TABLE texts (k INT NOT NULL, s STRING) UNIQUE KEY(k)")

NUMBERS = [
    "0", "1", "-1", "+5", "007", ".5", "-.5", "5.", "5.5", "-5.9", "1e3", "1E-3", "1e", "0x1F", "0b1",
    "1_000", "1,000", "127", "128", "-128", "-129", "300", "2147483647", "2147483648",
    "9223372036854775807", "9223372036854775808", "170141183460469231731687303715884105727",
    "-170141183460469231731687303715884105728", "170141183460469231731687303715884105728", "0.005", "0.015",
    "-0.005", "99.995", "1e2", "1e-9", "1e400", "inf", "-Infinity", "NaN", "nan",
    "00000000000000000000000000000000000000000000000000001", "1e16", "12345678.987", "+", "-", ".", "--1",
    "+-1", "1.2.3", "\uff14",
]  # fmt: skip
TIMES = [
    "2024-05-01", "24-05-01", "69-12-31", "70-01-01", "240501", "20240501", "2024/5/1", "2024.05.01",
    "2024-5-1", "20240501101112", "240501101112", "20240501101112.5", "20240501101160", "2024-05-01 10",
    "2024-05-01 10:11", "2024-05-01T10:11:12", "2024-05-01 101112", "2024-05-01 1011",
    "2024-05-01  10:11:12", "2024-05-01 24:00:00", "2024-05-01 23:59:60", "2024-05-01 10:60:00",
    "2024-02-30", "2023-02-29", "20240230", "2024-13-01", "0000-01-01", "0000-02-29", "9999-12-31",
    "9999-12-31 23:59:59.9999999", "10000-01-01", "epoch", "infinity", "2024-05-01 10:00:00.9999999",
    "2024-05-01 10:00:00.4999995", "2024-05-01 10:00:00.1234565", "2024-05-01 23:59:59.9999995",
    "2024-05-01 10:00:00.", "2024-05-01 10:00:00.123456789", "now", "today", "2024-05-01 02:00:00Z",
    "2024-05-01 10:00:00+08:00", "2024-05-01 10:00:00 -0330", "2024-05-01 10:00:00+8",
    "2024-05-01 10:00:00 UTC", "2024-05-01 10:00:00 GMT+2", "2024-05-01 10:00:00 CST",
    "2024-05-01 10:00:00+25", "2024-05-01 10:00:00 Europe/London", "2024-05-01 10:00:00 europe/london",
    "2024-05-01 10:00:00 Mars/Base", "2024-05-01 10:00:00 PST", "2024-05-01 10:00:00 EST", "2024-05-01Z",
    "9999-12-31 23:00:00-03:00", "0000-01-01 01:00:00+14:00", "20240501101112Z",
    "2024-05-01 10:11:12.5 Asia/Tokyo", "2024-05-01 10:00:00 BC", "-2024-05-01",
    "2024-05-01 10:00:00+08:00:30", "10:11:12", "2024-05-01 -10:00:00", "2024-05", "2024", "1960-02-03",
    "1960-02-03 04:05:06", "1969-12-31 23:59:59.5", "2024-10-27 01:30:00 Europe/London",
    "2024-11-03 01:59:59 America/New_York", "2024-10-27 02:30:00 CET",
]  # fmt: skip
WORDS = [
    "", " ", "true", "TRUE", "t", "f", "false", "yes", "no", "on", "off", "y", "n", "abc", "\t1\n",
    " 2024-05-01 ", "ä",
]  # fmt: skip
TEXTS = [*NUMBERS, *TIMES, *WORDS]
TYPES = [
    "TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT", "FLOAT", "DOUBLE", "DECIMAL(9, 2)",
    "DECIMAL(38, 0)", "BOOLEAN", "DATE", "DATETIME", "DATETIME(3)", "DATETIME(6)", "STRING",
]  # fmt: skip
ZONES = ["+08:00", "-03:30", "Europe/London"]


def _shown(values: Any) -> list[str]:
    """Returns values as texts; Python has no year 0."""
    kind = values.type
    days_or_micros = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64()}.get(kind)
    return [
        str(value)
        for value in (values if days_or_micros is None else values.cast(days_or_micros)).to_pylist()
    ]


def _differing(found: list[str], wanted: list[str]) -> dict[str, tuple[str, str]]:
    rows = zip(TEXTS, found, wanted, strict=True)
    return {text: (query, load) for text, query, load in rows if query != load}


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, session: Session) -> str:
    session.variables.set("time_zone", request.param)
    return str(request.param)


@pytest.mark.family(12)
@pytest.mark.parametrize("kind", TYPES)
def test_a_query_casts_a_column_as_a_load_does(session: Session, kind: str, zone: str) -> None:
    """DuckDB's cast read 0x1F and 1_000 as integers and 24-05-01 as the year 24, and dropped offsets."""
    table = session.store.table("db.texts")
    table.upsert(pa.table({"k": range(len(TEXTS)), "s": TEXTS}))
    rows = last_result(session, f"SELECT CAST(s AS {kind}) FROM texts ORDER BY k").rows
    assert rows is not None
    wanted = try_cast(pa.array(TEXTS), parse_type(kind), zone=zone).values
    assert _differing(_shown(rows.column(0).combine_chunks()), _shown(wanted)) == {}


@pytest.mark.family(5)
@pytest.mark.parametrize("kind", TYPES)
def test_a_query_casts_a_text_in_quotes_as_a_load_does(session: Session, kind: str, zone: str) -> None:
    casts = (f"CAST('{text}' AS {kind}) AS v{place}" for place, text in enumerate(TEXTS))
    rows = last_result(session, f"SELECT {', '.join(casts)}").rows
    assert rows is not None
    wanted = try_cast(pa.array(TEXTS), parse_type(kind), zone=zone).values
    found = [shown for column in rows.columns for shown in _shown(column.combine_chunks())]
    assert _differing(found, _shown(wanted)) == {}


def test_a_condition_compares_a_text_with_an_offset_in_the_sessions_zone(session: Session) -> None:
    """Y13."""
    last_result(
        session,
        "SET time_zone = '+08:00'; CREATE TABLE z (k INT, c DATETIME) UNIQUE KEY(k);"
        "INSERT INTO z VALUES (1, '2024-05-01 10:00:00'), (2, '2024-05-01 02:00:00')",
    )
    for text in ("2024-05-01 10:00:00+08:00", "2024-05-01 02:00:00Z", "2024-05-01 10:00:00"):
        assert run(session, f"SELECT k FROM z WHERE c = '{text}'") == [(1,)]
        assert run(session, f"SELECT k FROM z WHERE c = CONCAT('{text}', '')") == [(1,)]
