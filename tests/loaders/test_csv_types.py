"""CSV that is parsed into the types of the columns, or cut in short blocks: the same rows, bad rows and
places as by way of text."""

from __future__ import annotations

import io
import random
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Column, TableSchema, parse_type
from seqstore.loaders.csv import reader as csv
from seqstore.loaders.csv.reader import CsvReader
from seqstore.loaders.headers import CsvOptions, StreamLoadOptions
from seqstore.loaders.row_source import Target, moment_in, open_rows
from tests.weight import by_form

PLAIN = {
    "BIGINT": ["9223372036854775807", "-5", "40"],
    "TINYINT": ["0", "-128", "127", "7"],
    "INT": ["0", "-1", "2147483647", "0012"],
    "LARGEINT": ["170141183460469231731687303715884105727", "1"],
    "FLOAT": ["1.5", "3e8", "0.1", "-0.0", "16777217"],
    "DOUBLE": ["0.1", "-2.5e-7", "1.7976931348623157e308", "5", "0.30000000000000004"],
    "DECIMAL(9,2)": ["1.25", "0", "-99.999"],
    "BOOLEAN": ["1", "0", "true"],
    "DATE": ["2024-05-01", "0001-01-01", "9999-12-31"],
    "DATETIME": ["2024-05-01 10:11:12", "2024-05-01", "1999-12-31T23:59:59"],
    "DATETIME(3)": ["2024-05-01 10:11:12.1235", "2024-05-01 10:11:12.9996"],
    "VARCHAR(8)": ["a", "", "b c", "12345678"],
    "STRING": ["x", "", "Ünï", "null"],
}
HOSTILE = """
\\N|| |\t7| 7|7 |+7|-|0x1F|0X1f|-0x10|1e3|1.|.5|1.9|-1.5|1e400|-1e400|1e-400|nan|NaN|inf|-Infinity
nan(1)|1_000|1,5|128|-129|2147483648|9223372036854775808|99999999999999999999|00000000000000000000001
--1|1 2|\u0661|1d|true|TRUE|yes|t|2024-13-01|2024-02-30|0000-01-01|0000-00-00|10000-01-01|2024/5/1
20240501|2024-5-1|2024-05-01Z|24-05-01|2024-05-01 10|2024-05-01 10:11|2024-05-01 24:00:00
2024-05-01 10:11:12Z|2024-05-01 10:11:12+08:00|2024-05-01 10:11:60|2024-05-01 10:11:12.123456789
2024-05-01  10:11:12|9999-12-31 23:59:59.9999|20240501101112|"7"|'7'|\\n|\x00|1\x00
"""
SCHEMA = TableSchema.create(
    [Column(f"c{i}", parse_type(kind), nullable=i > 0) for i, kind in enumerate(PLAIN)], key=["c0"]
)


def outcome(body: bytes, options: StreamLoadOptions) -> list[Any]:
    """Returns the mapped rows, and number, place and reason of the bad ones."""
    with ExitStack() as opened:
        reader, mapping = open_rows(
            io.BytesIO(body), options, Target(SCHEMA, "db.t"), moment_in(options.time_zone), opened
        )
        rows, found = [], []
        for batch in reader.batches():
            mapped = mapping(batch, moment_in(options.time_zone).local)
            rows.append(mapped.rows)
            found += [mapped.bad_count, batch.bad_count, list(batch.bad), batch.located(mapped.bad)]
            found.append(batch.places(mapped.positions.tolist()))
            found.append(dict(mapped.lost))
        whole = pa.concat_tables(rows) if rows else None
        texts = [column.cast(pa.string()).to_pylist() for column in whole.columns] if whole else []
        return [whole and whole.schema, texts, found]


def body_of(rng: random.Random) -> bytes:
    """Returns rows of plain values; some fields, or none, are of another form."""
    hostile = [value for line in HOSTILE.strip("\n").split("\n") for value in line.split("|")]
    share = rng.choice([0.0, 0.0, 0.002, 0.02, 0.3])
    columns = rng.sample(range(len(PLAIN)), rng.choice([1, 2, len(PLAIN)]))
    lines = []
    for _ in range(rng.choice([1, 3, 40])):
        fields = [rng.choice(values) for values in PLAIN.values()]
        for column in columns:
            if rng.random() < share * 10:
                fields[column] = rng.choice(hostile)
        lines.append("|".join(fields[: -1 if rng.random() < share / 10 else None]))
    end = rng.choice(["\n", "\n", "\n", "\r\n", "\n\n"])
    return (end.join(lines) + rng.choice([end, ""])).encode()


@pytest.mark.parametrize("seed", range(by_form(20, 300)))
def test_every_way_to_read_gives_the_same_rows(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    body = body_of(rng)
    options = StreamLoadOptions(
        csv=CsvOptions(separator=b"|", empty_field_as_null=rng.random() < 0.3),
        strict_mode=rng.random() < 0.5,
        time_zone=rng.choice(["Asia/Shanghai", "+00:00", "America/New_York"]),
    )
    with monkeypatch.context() as patch:
        patch.setattr(CsvReader, "_plain", lambda self, block: None)
        expected = outcome(body, options)
    cut = outcome(body, options)
    monkeypatch.setattr(csv, "_SHORT_BYTES", 0)
    assert outcome(body, options) == expected, (seed, body)
    assert cut == expected, (seed, body)


def test_plain_values_come_in_the_types_of_their_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad value makes its own column text again, and no other."""
    monkeypatch.setattr(csv, "_SHORT_BYTES", 0)
    types = {"a": pa.int32(), "b": pa.float64(), "c": pa.date32()}
    body = b"1,0.5,2024-05-01\n2,\\N,2024-05-02\n"
    for spoiled, kinds in (
        (body, list(types.values())),
        (body + b"1 2,1,2024-05-03\n", [pa.string(), *[*types.values()][1:]]),
    ):
        reader = CsvReader(io.BytesIO(spoiled), list(types), CsvOptions(separator=b","), types=types)
        assert [batch.rows.schema.types for batch in reader.batches()] == [kinds]


@pytest.mark.parametrize("text", ["0x10", "inf", "nan"])
def test_values_that_arrow_reads_in_another_way_stay_text(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(csv, "_SHORT_BYTES", 0)
    kind = pa.int64() if text == "0x10" else pa.float64()
    reader = CsvReader(io.BytesIO(f"1\n{text}\n".encode()), ["a"], CsvOptions(), types={"a": kind})
    assert [batch.rows.to_pydict() for batch in reader.batches()] == [{"a": ["1", text]}]


def test_a_header_row_is_found_where_its_names_are_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """`1` may be the name of an INT."""
    monkeypatch.setattr(csv, "_SHORT_BYTES", 0)
    reader = CsvReader(
        io.BytesIO(b"1,2\n3,4\n"), ["1", "2"], CsvOptions(separator=b","), types={"1": pa.int64()}
    )
    assert [batch.rows.schema.types for batch in reader.batches()] == [[pa.string()] * 2]
