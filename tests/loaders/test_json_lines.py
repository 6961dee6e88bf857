"""`loaders.json.lines`: blocks of lines, and arrays, give the same as documents that are parsed by DuckDB.

`by_documents` lets the reader parse each line, or the array, as a document, so it is the reference.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Store
from seqstore.loaders.headers import JsonOptions
from seqstore.loaders.json import array_lines
from seqstore.loaders.json import reader as json_reader
from seqstore.loaders.json.reader import JsonReader
from seqstore.loaders.stream_load import stream_load
from seqstore.store.errors import InvalidInputError
from tests.support.rows import rows_of, schema_of
from tests.weight import by_form

NAMES = ("k", "a", "b", "doc", "Deep")
NUMBERS = (
    "0", "-0", "7", "-12", "123456789012345678", "9007199254740993", "18446744073709551615",
    "18446744073709551616", "-9223372036854775809", "123456789012345678901234567890", "1.0", "1.10",
    "-1.5", "0.1", "0.5", "-0.5", "0.05", "0.001", "0.0001", "0.00001", "0.000012", "0.00", "-0.0",
    "-0.00", "0.10", "100.0", "100.50", "1e5", "1E5", "1e+5", "1e-5", "-1e-400", "1e400", "1.5e3",
    "0.1234567890123456", "0.12345678901234567", "12345678901234.5", "123456789012345.6",
    "1234567890123456.7", "0.3333333333333333", "99999999999999.99", "5e-324", "123456789.125",
    "-123456.7890", "2.50", "0.30000000000000004", "-0.00001", "-0.1", "1.0e0",
)  # fmt: skip
STRINGS = (
    '"x"', '""', '"true"', '"null"', '"1.10"', '"a,b:c{d}[e]"', '"\\"q\\" \\\\"', '"\\\\"',
    '"\\u00e9\\n"', '"é漢"', '"2024-01-01"', '"12:30:00"', '"f47ac10b-58cc-4372-a567-0e02b2c3d479"',
    '"\\/"', '" 5 "', '"1e5"', '"\\ud83d\\ude00"',
)  # fmt: skip
NESTED = (
    "{}", "[]", "[1, 2]", '{"x": 1.10, "y": [null, true]}', '{"k": 5}', '["}", "\\"]"]',
    "[1.2345678901234567]", '{"a":{"b":[{"c":1e3}]}}', "[[[]]]",
)  # fmt: skip
BROKEN = (
    '{"k":1', '{"k":01}', '{"k":1.}', '{"k":.5}', '{"k":+1}', '{"k":1,}', "{,}", '{"k" 1}', '{"k"::1}',
    "nul", '{"k":nul}', '{"k":tru}', '{"k":"a}', '{k:1}', '{"k":1]', '{"k":[1}', '{"k":[1,]}', '"k"',
    "5", "null", "[1]x", '{"k":"\\x"}', '{"k":"\t"}', '{"k":1e}', '{"k":1e+}', '{"k":--1}',
    '{"k":1.2.3}', '{"k":1-2}', '{"k":Infinity}', '{"k":"a""b"}', '{"k":"a" "b"}', '{"k":1 2}', '}{',
    '{"k":{"x":1,}}', '{"k":{"x":tru}}', '{"k":"\\ud800"}', '{"a\\"":1}', '{"k":1}}', '{{"k":1}',
    '{"k":}', '{"k":,"a":1}', '{"":1}', "{}", '{"c":1}', '{"k":NaN}', "\x0b", '{"k":1} x', '\\"',
    '{"k":1e5.5}', '{"k":"a\\', '{"k":-}', '{"k":1,"k":2}', '{"k":null,"k":2}', '{"\\u006b":1}',
    '{"k":"\x7f"}', '{"k":"\\u0000"}',
)  # fmt: skip


@contextmanager
def by_documents() -> Iterator[None]:
    """Lets readers that are made meanwhile parse documents only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JsonReader, "_flat", lambda self: None)
        yield


def scalar(rng: random.Random) -> str:
    return rng.choice(
        [rng.choice(NUMBERS), rng.choice(STRINGS), rng.choice(("null", "true", "false")), number(rng)]
    )


def number(rng: random.Random) -> str:
    """A number of JSON with any digits."""
    whole = rng.choice(["0", str(rng.randrange(1, 10 ** rng.randrange(1, 25)))])
    fraction = f".{rng.randrange(10 ** rng.randrange(1, 22))}" if rng.random() < 0.6 else ""
    exponent = rng.choice(["", "", "", f"e{rng.randrange(-20, 20)}", f"E+{rng.randrange(30)}"])
    return rng.choice(["", "-"]) + whole + fraction + exponent


def document(rng: random.Random) -> str:
    """An object with some of the fields, spelled and spaced in any way."""
    members = []
    for name in rng.sample((*NAMES, "other", "K k"), rng.randrange(1, 7)):
        key = rng.choice([name, name.lower(), name, name.upper()])
        value = rng.choice([scalar(rng), scalar(rng), rng.choice(NESTED)])
        blank = rng.choice(["", "", " ", "\t ", "  "])
        members.append(f'{blank}"{key}"{blank}:{blank}{value}{blank}')
    return f"{rng.choice(['', ' '])}{{{','.join(members)}}}{rng.choice(['', ' ', chr(13)])}"


def spoiled(rng: random.Random, text: str) -> bytes:
    """A line with some bytes changed, which may still be an object."""
    octets = bytearray(text.encode())
    for _ in range(rng.randrange(1, 3)):
        at = rng.randrange(len(octets))
        octets[at : at + rng.randrange(2)] = bytes([rng.choice(b'{}[]",:\\ .e-0a\xff\xc3')])
    return bytes(octets)


def lines(rng: random.Random, count: int, *, faults: float) -> list[bytes]:
    found = []
    for _ in range(count):
        text = document(rng)
        if rng.random() < faults:
            found.append(rng.choice([spoiled(rng, text), rng.choice(BROKEN).encode(), b"", b" "]))
        else:
            found.append(text.encode())
    return found


def read(body: bytes, block_bytes: int, **options: Any) -> dict[str, Any]:
    """Everything a reader gives, or its refusal."""
    reader = JsonReader(
        io.BytesIO(body),
        list(NAMES),
        JsonOptions(**options),
        watched=("a", "DOC"),
        json_names=("doc",),
        block_bytes=block_bytes,
    )
    found: dict[str, Any] = {"rows": [], "places": [], "bad": [], "count": 0, "absent": {}}
    try:
        for batch in reader.batches():
            found["rows"] += list(zip(*batch.rows.to_pydict().values(), strict=True))
            found["places"] += [(p.line, p.text) for p in batch.places(range(len(batch.rows)))]
            found["bad"] += [(row.place.line, row.place.text, row.reason) for row in batch.bad]
            found["count"] += batch.bad_count
            for name, mask in batch.absent.items():
                found["absent"].setdefault(name, []).extend(mask.to_pylist())
    except InvalidInputError as error:
        return {"refused": error.message}
    found["bad"].sort()
    return found


def check_alike(body: list[bytes], block_bytes: int, **options: Any) -> dict[str, Any]:
    found = read(b"\n".join(body) + b"\n", block_bytes, **options)
    other = read(b"\x01".join(body) + b"\x01", block_bytes, delimiter=b"\x01", **options)
    with by_documents():
        expected = read(b"\x01".join(body) + b"\x01", block_bytes, delimiter=b"\x01", **options)
    if found != expected:  # name the first line that differs
        for number, line in enumerate(body):
            alone = read(line + b"\n", block_bytes, **options)
            with by_documents():
                assert alone == read(line + b"\n", block_bytes, **options), (number, line)
    assert found == expected
    assert other == expected
    return found


@pytest.mark.parametrize(
    "options", [{}, {"num_as_string": True}, {"paths": ("$.k", "$.a", "$.a", "$.doc", "$.Deep")}]
)
@pytest.mark.parametrize("seed", range(by_form(2, 8)))
def test_lines_are_read_as_documents_are(seed: int, options: dict[str, Any]) -> None:
    """Any numbers, strings, nested values, spellings, blanks, and fields that are missing."""
    found = check_alike(lines(random.Random(seed), 400, faults=0), 20_000, **options)
    assert len(found["rows"]) > 300, f"seed {seed}"


@pytest.mark.parametrize("seed", range(by_form(1, 4)))
def test_faulty_lines_have_the_reasons_of_documents(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(4):
        check_alike(lines(rng, 60, faults=0.2), rng.choice([700, 20_000]))


def check_array(text: bytes, block_bytes: int, **options: Any) -> dict[str, Any]:
    given = {"by_line": False, "strip_outer_array": True, **options}
    found = read(text, block_bytes, **given)
    with by_documents():
        assert found == read(text, block_bytes, **given), text[:3000]
    return found


@pytest.mark.family(3)
@pytest.mark.parametrize(
    "options", [{}, {"num_as_string": True}, {"paths": ("$.k", "$.a", "$.a", "$.doc", "$.Deep")}]
)
@pytest.mark.parametrize("piece", [7, 64, 1 << 20])
@pytest.mark.parametrize("seed", range(by_form(1, 6)))
def test_arrays_are_read_as_one_document_is(
    monkeypatch: pytest.MonkeyPatch, seed: int, piece: int, options: dict[str, Any]
) -> None:
    """Any numbers, strings, nested values and spellings; objects that have none of the fields; places."""
    monkeypatch.setattr(array_lines, "_PIECE_BYTES", piece)
    rng = random.Random(seed)
    for _ in range(6):
        objects = lines(rng, rng.choice([1, 3, 80]), faults=0)
        end = rng.choice([b",", b",\n", b"\n, ", b" ,\r\n\t"])
        if rng.random() < 0.3:
            objects.insert(
                rng.randrange(len(objects) + 1),
                rng.choice([b'{"other":1}', b"{}", b"7", b'[{"k":1}]', b"null"]),
            )
        check_array(b" [ " + end.join(objects) + b"\n]\n ", rng.choice([300, 20_000]), **options)


@pytest.mark.parametrize("seed", range(by_form(2, 30)))
def test_faulty_arrays_have_the_reasons_of_documents(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        check_array(b"[" + b",".join(lines(rng, 6, faults=0.1)) + b"]", 300)
        check_array(spoiled(rng, "[" + ",".join(document(rng) for _ in range(4)) + "]"), 300)


@pytest.mark.family(10)
@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"[ ]", b"{}", b"[{}]", b"[{}", b'[{"k":1}', b'[{"k":1}]]', b'[{"k":1}],', b'[{"k":1},]',
        b'[,{"k":1}]', b'[{"k":1},,{"k":2}]', b'[{"k":1} {"k":2}]', b'[{"k":1}][{"k":2}]', b'[{"k":1}] x',
        b'[{"k":1},{"k":2]}', b'[{"k":"a\nb"}]', b'[{"k":"a]},{"}]', b'[{"k":"\\\\"},{"k":"\\\""}]',
        b'{"k":1},{"k":2}', b'[[{"k":1},{"k":2}]]', b'[{"k":[1,{"a":2},3]},{"k":2}]', b'x[{"k":1}]',
        b'[{"k":1}]\x00', b'\xef\xbb\xbf[{"k":1}]', b'[{"k":"\xff"}]', b'[{"k":1 }, {"k" : "2 , } {" }]',
        b'[{"k":1,"K":2},{"K":3}]', b'[{"other":"\xff","k":1}]', b'[{"k":NaN}]', b'[{"k":1}\n{"k":2}]',
    ],
)  # fmt: skip
def test_odd_arrays_are_read_as_documents_are(text: bytes) -> None:
    check_array(text, 300)
    check_array(text, 300, paths=("$.k", "$.a", "$.a", "$.doc", "$.Deep"))


def test_plain_arrays_are_not_parsed_as_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blanks, nested values and escapes are plain."""

    def refused(*_: Any) -> Any:
        raise AssertionError("DuckDB parsed the document")

    monkeypatch.setattr(JsonReader, "_read", refused)
    found = read(
        b'[\n  {"k": 1, "a": "x, \\"y\\""},\n  {"K": [1, {"b": 2}], "a": null}\n]\n',
        300,
        by_line=False,
        strip_outer_array=True,
    )
    assert [row[:2] for row in found["rows"]] == [("1", 'x, "y"'), ('[1,{"b":2}]', None)]
    assert [place[0] for place in found["places"]] == [1, 2]


@pytest.mark.family(16)
@pytest.mark.parametrize("line", BROKEN)
def test_a_faulty_line_costs_no_other_line(line: str) -> None:
    others = [b'{"k":1,"a":2.50}', b'{"k":3,"a":null}']
    found = check_alike([others[0], line.encode(), others[1]], 20_000)
    if "refused" not in found:
        assert [row[0] for row in found["rows"]][:1] + [row[0] for row in found["rows"]][-1:] == ["1", "3"]


def test_numbers_keep_every_digit_that_a_double_would_lose() -> None:
    """J9, checked with Python's reader."""
    rng = random.Random(5)
    numbers = [number(rng) for _ in range(3000)]
    body = b"".join(f'{{"k":{n},"a":"{n}"}}\n'.encode() for n in numbers)
    rows = read(body, 1 << 20)["rows"]
    for text, row in zip(numbers, rows, strict=True):
        assert Decimal(row[0]) == json.loads(text, parse_float=Decimal, parse_int=Decimal), text
        assert row[1] == text


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("length", range(4, 24))
def test_zeros_at_the_end_stay_where_a_number_is_too_long_for_a_double(length: int, sign: str) -> None:
    """Lines and documents agree: up to 16 characters a number with a point is written as a double is."""
    long = [f"{'7' * whole}.{'5' * (length - whole - len(sign) - 2)}0" for whole in range(1, length - 3)]
    numbers = [sign + text for text in long if len(sign + text) == length]
    written = [text if length > 16 else text.removesuffix("0") for text in numbers]
    found = check_alike([f'{{"k":{text},"a":1.10}}'.encode() for text in numbers], 1 << 20)["rows"]
    assert [row[:2] for row in found] == [(text, "1.1") for text in written]


def test_plain_lines_are_not_parsed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long numbers, UUIDs, nulls, nested values and escapes stay on the way without documents."""

    def refused(*_: Any) -> Any:
        raise AssertionError("a line was parsed as a document")

    monkeypatch.setattr(json_reader.JsonReader, "_read", refused)
    rng = random.Random(1)
    body = [document(rng).encode() for _ in range(300)]
    assert len(read(b"\n".join(body), 1 << 20)["rows"]) > 200


PLAIN = (
    "k BIGINT NOT NULL", "a TINYINT", "d FLOAT", "e DOUBLE", "h BOOLEAN", "i VARCHAR(12)", "m DATE",
    "n INT",
)  # fmt: skip
FITTING = {
    "a": ("0", "-0", "127", "-128", "null"),
    "d": ("0.1", "16777217", "0.30000001192092896", "1e-40", "null", "-0.0"),
    "e": (
        "0.1234567890123456",
        "-0",
        "-0.0",
        "9007199254740993",
        "1e5",
        "5e-324",
        "null",
        "0.30000000000000004",
    ),
    "h": ("true", "false", "null"),
    "i": ('"x"', '""', '"\\n\\""', '"é"', '"\\u00e9"', "null", '"true"', '"1.10"'),
    "m": ('"2024-01-01"', '"2024-02-30"', "null", '" 2024-01-02 "'),
    "n": ("1", "2147483647", "null", "-5"),
}
# what Arrow alone would read in another way, or not at all
OTHERS = (
    '"e":NaN', '"e":-Infinity', '"e":1e400', '"a":128', '"a":1.0', '"a":"1"', '"h":1', '"i":5',
    '"i":true', '"E":1.5', '"a":1,"a":2', '"other":NaN', '"other":{"x":NaN}', '"i":"\\ud83d\\ude00"',
    '"i":"\\u0000"', '"a":1} {"k":5', '"a":\n1', '"a":1}\n\n{"k":6', '"e":01', '"n":9999999999',
    '"i":"\xff"', '"other":1', '"other":"x","a":3', '"a":1,', '"\\u0061":1',
)  # fmt: skip


def loaded(store: Store, table: str, columns: tuple[str, ...], body: bytes, **headers: str) -> Any:
    """Rows, counts and the log of a load into a new table."""
    store.create_table(f"db.{table}", schema_of(*columns))
    given = {"format": "json", "max_filter_ratio": "1", **headers}
    reply = stream_load(store, "db", table, io.BytesIO(body), given)
    counts = {name: value for name, value in reply.items() if name.startswith("Number")}
    log = Path(reply["ErrorURL"]).read_text() if reply.get("ErrorURL") else ""
    message = reply["Message"].partition("; see ErrorURL")[0]
    return [repr(row) for row in rows_of(store.table(f"db.{table}"))], counts, log, message


@pytest.mark.family(1)
@pytest.mark.parametrize("strict", ["true", "false"])
def test_arrow_reads_nothing_in_another_way(store: Store, strict: str) -> None:
    """The tables are the same, to the sign of a zero, whichever of the three readers a block got."""
    rng = random.Random(7)
    for number, other in enumerate(("", *OTHERS)):
        body = []
        for key in range(60):
            members = ",".join(f'"{name}":{rng.choice(texts)}' for name, texts in FITTING.items())
            body.append(f'{{"k":{key},{members}}}')
        text = "\n".join(body)
        if other:
            body.insert(30, f'{{"k":99,{other}}}')
            text = "\n".join(body)
        lines_body = text.encode("latin-1" if "\xff" in other else "utf-8")
        end = {"line_delimiter": "\\x01", "read_json_by_line": "true"}
        found = loaded(store, f"lines{number}", PLAIN, lines_body, strict_mode=strict)
        with by_documents():
            expected = loaded(
                store,
                f"documents{number}",
                PLAIN,
                lines_body.replace(b"\n", b"\x01"),
                strict_mode=strict,
                **end,
            )
        assert found == expected, other


def test_lines_that_fit_their_columns_are_parsed_by_arrow(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError("the block was not parsed by Arrow")

    monkeypatch.setattr(json_reader, "read_lines", refused)
    body = b'{"K":1,"e":0.12345678901234568,"i":"f47ac10b","n":null,"extra":1}\r\n{"K":2,"a":5,"h":true}\r\n'
    rows, *_ = loaded(store, "t", PLAIN, body)
    assert rows == [
        "(1, None, None, 0.12345678901234568, None, 'f47ac10b', None, None)",
        "(2, 5, None, None, True, None, None, None)",
    ]


def test_blocks_that_arrow_cannot_parse_end_the_attempts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few blocks in a row; a failure between others does not."""
    tried = []
    monkeypatch.setattr(json_reader, "read_typed", lambda *_: tried.append(1))
    reader = JsonReader(
        io.BytesIO(b'{"k":1}\n' * 100), ["k"], JsonOptions(), types={"k": pa.int64()}, block_bytes=80
    )
    assert sum(len(batch.rows) for batch in reader.batches()) == 100
    assert len(tried) == 3


COLUMNS = (
    "k BIGINT NOT NULL", "a TINYINT", "b INT", "c LARGEINT", "d FLOAT", "e DOUBLE", "f DECIMAL(9,2)",
    "g DECIMAL(38,10)", "h BOOLEAN", "i VARCHAR(12)", "j STRING", "l JSON", "m DATE", "n DATETIME(3)",
    "o ARRAY<DOUBLE>", "p DECIMAL(76,20)", "q INT NOT NULL DEFAULT 7",
)  # fmt: skip


@pytest.mark.parametrize("strict", ["true", "false"])
@pytest.mark.parametrize("seed", range(by_form(1, 4)))
def test_every_column_type_gets_the_value_of_the_document(store: Store, strict: str, seed: int) -> None:
    """Values, counts, replies and the error log are the same for both ways to read."""
    rng = random.Random(seed)
    names = [column.split()[0] for column in COLUMNS]
    body = []
    for key in range(400):
        members = {name: rng.choice([scalar(rng), scalar(rng), rng.choice(NESTED)]) for name in names}
        chosen = rng.sample(names[1:], rng.randrange(3, len(names)))
        pairs = [f'"{name}":{members[name]}' for name in chosen]
        body.append(f'{{"k":{key},{",".join(pairs)}}}'.encode())
    end = {"line_delimiter": "\\x01", "read_json_by_line": "true"}
    found = loaded(store, "lines", COLUMNS, b"\n".join(body), strict_mode=strict)
    with by_documents():
        expected = loaded(store, "documents", COLUMNS, b"\x01".join(body), strict_mode=strict, **end)
    assert found == expected, f"seed {seed}"
    array, of_array = b"[" + b" ,\n".join(body) + b"]\n", {"strip_outer_array": "true"}
    found_array = loaded(store, "array", COLUMNS, array, strict_mode=strict, **of_array)
    with by_documents():
        expected = loaded(store, "array_documents", COLUMNS, array, strict_mode=strict, **of_array)
    assert found_array == expected, f"seed {seed}"
    assert found_array[0] == found[0], f"seed {seed}"
    assert found[3] == "OK"
    assert strict == "false" or found[2], f"seed {seed}"
