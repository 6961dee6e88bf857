"""Bodies of Avro are decoded in bounded memory, whatever their own schema says."""

from __future__ import annotations

import io
import json
import random
import sys
from typing import Any, cast

import fastavro
import pyarrow as pa
import pytest

from seqstore import InvalidInputError
from seqstore.loaders.avro import body as bodies
from seqstore.loaders.avro import container as containers
from seqstore.loaders.avro import value_bounds
from seqstore.loaders.avro.body import AvroBody
from seqstore.loaders.avro.messages import AvroMessages, UndecodableError, json_of
from seqstore.loaders.avro.value_bounds import ValueBoundsError
from seqstore.loaders.avro.writer_schema import WriterSchema, parsed
from seqstore.loaders.headers import AvroOptions
from tests.seeds import new_seed
from tests.support.streams.avro import block_container, varint
from tests.weight import by_form


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def schema_of(node: Any) -> WriterSchema:
    return parsed([node], is_changes=False)


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


NOTHING = {
    "null": "null",
    "empty record": record("e"),
    "empty fixed": {"type": "fixed", "name": "f", "size": 0},
    "record of them": record("e", a="null", b=record("d", c="null")),
}


@pytest.mark.parametrize("items", NOTHING.values(), ids=NOTHING)
@pytest.mark.parametrize("sign", [1, -1])
def test_items_without_bytes_are_counted_before_they_are_made(items: Any, sign: int) -> None:
    """An array of 209 bytes took gigabytes; a short one is a value as any other."""
    bounds = schema_of(record("r", k="long", a=array(items))).bounds
    size = varint(0) if sign < 0 else b""
    with pytest.raises(ValueBoundsError, match="takes more than 256 MB of memory"):
        bounds.check(varint(1) + varint(sign << 40) + size + varint(0), 0)
    bounds.check(varint(1) + varint(sign * 1000) + size + varint(0), 0)


def test_a_message_that_takes_too_much_is_a_bad_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """AV3: the others are rows; so it is with a value of many levels, which ended the process."""
    schemas = [schema_of(record("r", a=array("null"))), schema_of(record("r", next=["null", "r"]))]
    monkeypatch.setattr(AvroMessages, "schema", lambda _, number: schemas[number])
    values = [varint(1 << 40) + varint(0), varint(1) + b"\x00", b"\x02" * 100_000 + b"\x00", b"\x02\x00"]
    messages = [(number // 2).to_bytes(5, "big") + value for number, value in enumerate(values)]
    found = AvroMessages(AvroOptions("avro")).lines(pa.nulls(4), pa.array(messages)).to_pylist()
    assert [found[1], found[3]] == [b'{"a":[null]}', b'{"next":{"next":null}}'], found
    assert found[0].startswith(b"undecodable message: the value takes more than 256 MB of memory")
    assert found[2].startswith(b"undecodable message: the value is nested too deep")


def test_a_branch_without_bytes_has_the_byte_of_its_number() -> None:
    schema = schema_of(array(["null"]))
    schema.bounds.check(varint(3) + b"\x00\x00\x00" + varint(0), 0)
    with pytest.raises(EOFError):
        schema_of(array(["null", record("r", a=array("null"))])).bounds.check(varint(1 << 40), 0)


def test_records_that_double_with_each_level_are_refused() -> None:
    """Thirty levels are a billion dictionaries of no byte."""
    levels: list[Any] = [record("r0")]
    levels += [record(f"r{n}", a=f"r{n - 1}", b=f"r{n - 1}") for n in range(1, 31)]
    with pytest.raises(InvalidInputError, match="its smallest value takes more than 256 MB"):
        parsed(levels, is_changes=False)


@pytest.mark.parametrize(
    "schema",
    [record("r", next="r"), record("r", next=["r"]), record("r", a=record("s", b=record("t", c="r")))],
    ids=["field", "only branch", "mutual"],
)
def test_a_type_without_a_finite_value_is_refused(schema: Any) -> None:
    """The decoder ended the process."""
    with pytest.raises(InvalidInputError, match="contains itself"):
        schema_of(schema)


RECURSIVE = {
    "list": (record("r", next=["null", "r"]), b"\x02", b"\x00"),
    "tree": (record("r", children=array("r")), b"\x02", b"\x00"),
    "map": (record("r", children={"type": "map", "values": "r"}), b"\x02\x00", b"\x00"),
}


@pytest.mark.parametrize(("schema", "level", "end"), RECURSIVE.values(), ids=RECURSIVE)
def test_a_value_of_many_levels_is_refused(schema: Any, level: bytes, end: bytes) -> None:
    """The decoder ended the process where a value had ten thousand; some are a value as any other."""
    found = schema_of(schema)
    closing = b"" if level == b"\x02" and b"next" in json.dumps(schema).encode() else end
    for levels, is_deep in ((50, False), (100_000, True)):
        data = level * levels + end + closing * levels
        if is_deep:
            with pytest.raises(ValueBoundsError, match="nested too deep"):
                found.bounds.check(data, 0)
        else:
            found.bounds.check(data, 0)
            value = fastavro.schemaless_reader(io.BytesIO(data), found.decoder, None)
            assert json_of(value).count(b"{") >= levels


def test_a_schema_of_many_levels_is_refused() -> None:
    levels: list[Any] = [record("r0", k="int")]
    levels += [record(f"r{n}", a=f"r{n - 1}") for n in range(1, 300)]
    with pytest.raises(InvalidInputError, match="nested too deep"):
        parsed(levels, is_changes=False)


def test_decimals_have_a_limit() -> None:
    """One of a megabyte took the decoder minutes, in which nothing else ran."""
    logical = {"logicalType": "decimal", "precision": 30, "scale": 2}
    bounds = schema_of(record("r", d={"type": "bytes", **logical}, v="string")).bounds
    data = varint(1 << 20) + b"\x7f" * (1 << 20) + varint(0)
    assert not bounds.is_safe(len(data))
    with pytest.raises(ValueBoundsError, match="a decimal has 1048576 bytes, expected 4096 at most"):
        bounds.check(data, 0)
    bounds.check(varint(4) + b"\x7f" * 4 + varint(1 << 20) + b"a" * (1 << 20), 0)
    with pytest.raises(InvalidInputError, match="a decimal has more than 4096 bytes"):
        schema_of({"type": "fixed", "name": "f", "size": 5000, **logical, "precision": 9000})


def test_long_names_count_for_each_item() -> None:
    """The JSON of an item of one byte has them."""
    schema = schema_of(array(record("r", **{"n" * 100_000: "boolean"})))
    schema.bounds.check(varint(2_000) + bytes(2_000) + varint(0), 0)
    with pytest.raises(ValueBoundsError, match="takes more than 256 MB"):
        schema.bounds.check(varint(4_000) + bytes(4_000) + varint(0), 0)


def test_random_values_are_walked_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk and the decoder agree where a value ends; cut short, it is incomplete for both."""
    draw = random.Random(new_seed())
    for _ in range(by_form(100, 1000)):
        names = iter(range(1000))
        node, value = _random(draw, 3, names)
        schema = schema_of(record("top", f=node))
        out = io.BytesIO()
        fastavro.schemaless_writer(out, cast(Any, schema.decoder), {"f": value})
        data = out.getvalue()
        walk = value_bounds._Walk(b"??" + data + b"???", 2)
        walk.over(schema.bounds._root, 0)
        assert walk._at == 2 + len(data), (node, value)
        if data:
            with pytest.raises(EOFError):
                value_bounds._Walk(data[:-1], 0).over(schema.bounds._root, 0)


def _random(draw: random.Random, depth: int, names: Any) -> tuple[Any, Any]:
    """A type and a value of it."""
    kinds = ["null", "boolean", "long", "double", "string", "bytes", "enum", "fixed"]
    kind = draw.choice(kinds + ["record", "array", "map", "union"] * 2 * (depth > 0))
    if kind == "record":
        parts = {f"f{n}": _random(draw, depth - 1, names) for n in range(draw.randrange(4))}
        made = record(f"r{next(names)}", **{name: node for name, (node, _) in parts.items()})
        return made, {name: value for name, (_, value) in parts.items()}
    if kind in ("array", "map"):
        node, value = _random(draw, depth - 1, names)
        count = draw.randrange(3)
        if kind == "map":
            return {"type": "map", "values": node}, {f"k{n}": value for n in range(count)}
        return array(node), [value] * count
    if kind == "union":
        node, value = _random(draw, 0, names)
        return (node, value) if node == "null" else (["null", node], draw.choice([None, value]))
    values: dict[str, Any] = {
        "null": None,
        "boolean": True,
        "long": draw.choice([0, -1, 2**40, -(2**63)]),
        "double": 1.5,
        "string": "ü" * draw.randrange(99),
        "bytes": b"b" * draw.randrange(99),
        "enum": "B",
        "fixed": b"123",
    }
    if kind == "enum":
        return {"type": "enum", "name": f"e{next(names)}", "symbols": ["A", "B"]}, "B"
    if kind == "fixed":
        return {"type": "fixed", "name": f"x{next(names)}", "size": 3}, b"123"
    return kind, values[kind]


ROWS = [{"k": number, "v": "same" * (number % 50)} for number in range(300)]
SCHEMA = record("r", k="long", v="string")


def lines(data: bytes) -> list[Any]:
    read = AvroBody(cast(Any, io.BytesIO(data)), AvroOptions("avro")).read()
    return [json.loads(line) for line in read.splitlines()]


def written(codec: str) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, cast(Any, SCHEMA), ROWS, codec=cast(Any, codec), sync_interval=2_000)
    return out.getvalue()


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard", "lz4"])
def test_blocks_of_every_codec_are_read(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And refused where they unfold to more than the limit."""
    try:
        data = written(codec)
    except ValueError:  # fastavro lacks the library of the codec
        data = block_container(SCHEMA, ROWS, codec)
    assert lines(data) == ROWS
    monkeypatch.setattr(containers, "BLOCK_BYTES_MAX", 1_000)
    with pytest.raises(UndecodableError, match=r"a block (unfolds to more than|has )"):
        lines(data)


def test_a_block_that_ends_early_is_refused() -> None:
    data = block_container(SCHEMA, ROWS, "deflate", cut=3)
    with pytest.raises(UndecodableError, match="cannot be unfolded by deflate: the bytes end early"):
        lines(data)


def test_a_block_without_the_mark_of_its_file_is_refused() -> None:
    with pytest.raises(UndecodableError, match="does not end with the mark of the file"):
        lines(written("null")[:-1] + b"?")


def test_a_codec_that_there_is_none_of_is_refused_by_name() -> None:
    data = written("null").replace(b"avro.codec\x08null", b"avro.codec\x08nill")
    with pytest.raises(UndecodableError, match=r"expected one of the codecs null, .*, found 'nill'"):
        lines(data)


@pytest.mark.parametrize("depth", [900, 20_000])
def test_a_schema_in_the_head_that_is_nested_too_deep_is_refused(depth: int) -> None:
    """The parser of JSON refuses the deeper one before Python 3.14, and that of Avro the other."""
    is_of_json = depth == 20_000 and sys.version_info < (3, 14)
    deep = '{"type":"array","items":' * depth + '"int"' + "}" * depth
    with pytest.raises(InvalidInputError, match="nested too deep") as refused:
        lines(block_container(deep, [], "null"))
    assert refused.type is (UndecodableError if is_of_json else InvalidInputError)


def test_a_block_of_endless_values_without_bytes_is_refused() -> None:
    with pytest.raises(UndecodableError, match="1099511627776 values without bytes"):
        lines(block_container(record("r", a="null"), [], "null", count=1 << 40))


def test_messages_are_read_in_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that a piece cuts is read with the next one; the last one may be cut in truth."""
    everything = {"b": b"\xff" * 9, "d": -1.5, "t": True, "m": {"a": 1.25}, "l": ["x" * 99, ""], "n": 2**62}
    node = record(
        "r",
        b="bytes",
        d="double",
        t="boolean",
        m={"type": "map", "values": "float"},
        l=array("string"),
        n="long",
    )
    schema = schema_of(node)
    out = io.BytesIO()
    for _ in range(20):
        out.write(b"\x00\x00\x00\x00\x07")
        fastavro.schemaless_writer(out, cast(Any, schema.decoder), everything)
    data = out.getvalue()
    monkeypatch.setattr(AvroMessages, "schema", lambda *_: schema)
    expected = lines(data)
    assert len(expected) == 20
    for size in range(1, 40):
        monkeypatch.setattr(bodies, "_PIECE_BYTES", size)
        assert lines(data) == expected, size
    with pytest.raises(UndecodableError, match="the bytes end before the value does"):
        lines(data[:-1])
