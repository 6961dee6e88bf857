"""`loaders.json.reader` and `loaders.json.paths`: documents to rows of text fields."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqstore.loaders.headers import JsonOptions
from seqstore.loaders.json import line_blocks
from seqstore.loaders.json import reader as json_rows
from seqstore.loaders.json.paths import duckdb_path
from seqstore.loaders.json.reader import JsonReader
from seqstore.store.errors import InvalidInputError


@dataclass
class Outcome:
    """Everything a reader gave."""

    rows: list[tuple[str | None, ...]] = field(default_factory=list)
    places: list[tuple[int, str]] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)
    absent: dict[str, list[bool]] = field(default_factory=dict)


def read(
    data: bytes,
    names: tuple[str, ...] = ("a", "b"),
    block_bytes: int = 1 << 20,
    watched: tuple[str, ...] = (),
    **options: Any,
) -> Outcome:
    reader = JsonReader(
        io.BytesIO(data), list(names), JsonOptions(**options), watched=watched, block_bytes=block_bytes
    )
    outcome = Outcome()
    for batch in reader.batches():
        outcome.rows += list(zip(*batch.rows.to_pydict().values(), strict=True))
        outcome.places += [(place.line, place.text) for place in batch.places(range(len(batch.rows)))]
        outcome.bad += [(row.place.line, row.reason) for row in batch.bad]
        assert batch.bad_count == len(batch.bad)
        for name, mask in batch.absent.items():
            outcome.absent.setdefault(name, []).extend(mask.to_pylist())
    return outcome


def refusal(data: bytes, **options: Any) -> str:
    with pytest.raises(InvalidInputError) as caught:
        read(data, **options)
    return caught.value.message


@pytest.mark.parametrize("block_bytes", [1, 20, 1000])
def test_one_object_a_line_with_keys_in_any_case(block_bytes: int) -> None:
    """J1, J4, J11."""
    data = b'{"a":1,"b":"x"}\n{"A":2,"B":null}\n\n{"aa":0,"b":{"k":[1, 2]}}\r\n{"a":true}'
    outcome = read(data, block_bytes=block_bytes)
    assert outcome.rows == [("1", "x"), ("2", None), (None, '{"k":[1,2]}'), ("1", None)]
    assert [line for line, _ in outcome.places] == [1, 2, 4, 5]
    assert outcome.places[0][1] == '{"a":1,"b":"x"}'


def test_a_missing_key_is_told_apart_from_an_explicit_null() -> None:
    """J7."""
    outcome = read(b'{"a":null,"b":1}\n{"b":2}\n', watched=("A",))
    assert outcome.rows == [(None, "1"), (None, "2")]
    assert outcome.absent == {"a": [False, True]}


def test_numbers_keep_the_digits_that_a_double_would_lose() -> None:
    """J9; without num_as_string too, where digits would be lost."""
    data = b'{"a":12345678901234567890123,"b":0.12345678901234567890}\n{"a":1.10,"b":1e2}\n'
    assert read(data).rows[0] == ("12345678901234567890123", "0.12345678901234567890")
    assert read(data, num_as_string=True).rows[1] == ("1.10", "1e2")


@pytest.mark.parametrize("as_string", [False, True])
@pytest.mark.parametrize("fraction", ["5", "25", "125", "0", "000001"])
@pytest.mark.parametrize("whole", [2**53 - 1, 2**53 + 1, 2**63 - 1, 2**63 + 1, 10**15 - 1, 10**30 + 1])
def test_numbers_beyond_the_digits_of_a_double_keep_their_fraction(
    whole: int, fraction: str, as_string: bool
) -> None:
    for sign in ("", "-"):
        number = f"{sign}{whole}.{fraction}"
        found = read(f'{{"a": {number}, "b": 1}}\n'.encode(), num_as_string=as_string).rows
        assert [(Decimal(a or ""), b) for a, b in found] == [(Decimal(number), "1")]


@pytest.mark.parametrize("digits", range(12, 22))
def test_numbers_with_a_fraction_are_exact_at_every_length(digits: int) -> None:
    """The readers differ for 15 digits and more: a double has no room for all of them."""
    all_but_one = [f"{'9' * cut}.{'8' * (digits - cut - 1)}" for cut in range(1, digits)]
    numbers = [f"{others}{last}" for others in all_but_one for last in "1234567"]
    text = "".join(f'{{"a": {number}}}\n' for number in numbers)
    assert [Decimal(a or "") for a, _ in read(text.encode()).rows] == [*map(Decimal, numbers)]
    array = '{"r": [' + ",".join(f'{{"a": {number}}}' for number in numbers) + "]}"
    found = read(array.encode(), strip_outer_array=True, by_line=False, root="$.r").rows
    assert [Decimal(a or "") for a, _ in found] == [*map(Decimal, numbers)]


@pytest.mark.parametrize(
    "number", ["1e16", "123456789012345678e-3", "1.2345678901234567e2", "9e-20", "1E+2", "1e400", "5e-400"]
)
def test_numbers_with_an_exponent_keep_their_digits(number: str) -> None:
    ((found, _),) = read(f'{{"a": {number}}}\n'.encode()).rows
    assert Decimal(found or "") == Decimal(number)


def test_numbers_inside_of_nested_values_stay_numbers() -> None:
    """J11 beside J9."""
    body = b'{"a":{"x":1.10,"y":1234567890123456.5},"b":1.10}\n'
    a, b = read(body, num_as_string=True).rows[0]
    assert (json.loads(a or ""), b) == ({"x": 1.1, "y": 1234567890123456.5}, "1.10")
    wrapped = b'{"r":[{"a":1.10}]}'
    options: dict[str, Any] = {"strip_outer_array": True, "by_line": False, "root": "$.r"}
    assert read(wrapped, num_as_string=True, **options).rows == [("1.10", None)]


def test_digits_inside_strings_are_left_alone() -> None:
    data = b'{"a":"say \\"1.10\\" 1234567890.12345678","b":1234567890.123456789}\n'
    for flag in (True, False):
        assert read(data, num_as_string=flag).rows == [
            ('say "1.10" 1234567890.12345678', "1234567890.123456789")
        ]


def test_several_objects_on_a_line_fail_the_load() -> None:
    """J3."""
    assert refusal(b'{"a":1}\n{"a":1} {"a":2}\n') == "Multiple JSON objects in a single line"


def test_lines_that_are_no_json_object_of_these_columns_are_bad_rows() -> None:
    """J8, V10."""
    outcome = read(b'{"a":1\n{"a":2}\n{"c":1}\n"s"\n\xff\n{"a":3} x\n{"a":null}\n')
    assert outcome.rows == [("2", None), (None, None)]
    assert sorted(line for line, _ in outcome.bad) == [1, 3, 4, 5, 6]
    reasons = dict(outcome.bad)
    assert "none of the columns" in reasons[3]
    assert "no JSON object" in reasons[4]
    assert "UTF-8" in reasons[5]


def test_an_array_body_needs_strip_outer_array_and_an_object_body_must_not_have_it() -> None:
    """J2."""
    assert "must be TRUE" in refusal(b'[{"a":1},{"a":2}]\n')
    assert "must be FALSE" in refusal(b'{"a":1}', strip_outer_array=True, by_line=False)
    body = b'[{"a":1},\n{"a":2,"b":"y"}, 3]'
    outcome = read(body, strip_outer_array=True, by_line=False)
    assert outcome.rows == [("1", None), ("2", "y")]
    assert outcome.bad == [(3, "the row is no JSON object")]
    by_line = read(b'[{"a":1},{"a":2}]\n[]\n[{"a":3}]', strip_outer_array=True)
    assert by_line.rows == [("1", None), ("2", None), ("3", None)]
    assert [line for line, _ in by_line.places] == [1, 1, 3]


def test_one_document_may_take_many_lines() -> None:
    assert read(b'{\n"a":1,\n"b":2}\n', by_line=False).rows == [("1", "2")]
    assert "no JSON document" in refusal(b'{"a":1} x', by_line=False)


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (b"", {}),
        (b"\n \n", {}),
        (b"", {"by_line": False}),
        (b"[]", {"by_line": False, "strip_outer_array": True}),
    ],
)
def test_a_body_without_rows_gives_none(body: bytes, options: dict[str, Any]) -> None:
    """V12."""
    assert read(body, **options) == Outcome()


def test_the_root_is_taken_before_the_array_is_opened() -> None:
    """J6."""
    body = b'{"d":{"r":[{"a":1},{"b":2}]}}'
    options: dict[str, Any] = {"strip_outer_array": True, "by_line": False}
    assert read(body, root="$.d.r", **options).rows == [("1", None), (None, "2")]
    assert read(body, root="$.x", **options).bad == [(1, "the row is no JSON object")]
    assert read(b'{"r":{"a":1}}\n{"r":{"a":2}}\n', root="$.r").rows == [("1", None), ("2", None)]


def test_a_line_without_the_root_is_a_bad_row() -> None:
    """J6: it was passed over, and not counted."""
    outcome = read(b'{"r":{"a":1}}\n{"q":{"a":2}}\n{"r":{"b":3}}\n', root="$.r")
    assert outcome.rows == [("1", None), (None, "3")]
    assert outcome.bad == [(2, "the row is no JSON object")]
    for body in (b'{"q":1}\n{"r":{"a":1}}', b'{"r":{"a":1}}\n{"q":1}', b'{"q":1}\n', b'{"q":1}'):
        for block_bytes in (1, 1000):
            alone = read(body, block_bytes=block_bytes, root="$.r")
            assert [reason for _, reason in alone.bad] == ["the row is no JSON object"], body
            assert len(alone.rows) == body.count(b'"r"')
    body = b'{"r":[{"a":1},{"a":2}]}\n{"q":[]}\n{"r":[]}\n'
    outcome = read(body, root="$.r", strip_outer_array=True)
    assert outcome.rows == [("1", None), ("2", None)]
    assert outcome.bad == [(2, "the row is no JSON object")]


def test_paths_give_the_fields_in_order_and_may_be_used_twice() -> None:
    """J5, J12."""
    body = b'{"x":{"y":[5,6]},"k k":7}\n{"x":1}\n'
    outcome = read(body, paths=("$.x.y[0]", '$."k k"'))
    assert outcome.rows == [("5", "7")]
    assert outcome.bad == [(2, "the row has none of the columns")]
    assert read(body, paths=("$.x.y", "$.x.y")).rows == [("[5,6]", "[5,6]")]
    assert read(b'{"x":{"y":[5,6]}}\n', paths=("$.x.y[*]", "$.")).rows == [("[5, 6]", '{"x":{"y":[5,6]}}')]
    assert "2 paths for 1 columns (a)" in refusal(body, names=("a",), paths=("$.a", "$.b"))


@pytest.mark.parametrize(
    ("path", "rendered"),
    [
        ("$", "$"),
        ("$.", "$"),
        ("$.a", '$."a"'),
        ("$.a.b[0].c", '$."a"."b"[0]."c"'),
        ('$."a b"[*]', '$."a b"[*]'),
        ("$['a'][\"b\"]", '$."a"."b"'),
        ("$.it's", '$."it\'s"'),
        ("$.漢", '$."漢"'),
    ],
)
def test_paths_are_rendered_with_every_key_in_quotes(path: str, rendered: str) -> None:
    assert duckdb_path(path) == rendered


@pytest.mark.parametrize(
    "path", ["a", "$a", "$.a[", "$.a[x]", "$..a", '$."a', "", "$.a\\b", "$" + ".a" * 100]
)
def test_other_texts_are_no_paths(path: str) -> None:
    with pytest.raises(InvalidInputError, match="path"):
        duckdb_path(path)


@given(st.text(max_size=30))
@settings(max_examples=200, deadline=None)
def test_no_path_reaches_the_evaluator_as_syntax(text: str) -> None:
    """Whatever is taken for a path finds something or nothing; it never fails inside."""
    try:
        duckdb_path("$." + text)
    except InvalidInputError:
        return
    read(b'{"a":1}\n', ("a",), paths=("$." + text,))


def test_fuzzy_parse_reads_objects_whose_keys_change_their_order() -> None:
    """J10."""
    data = b'{"a":1,"b":2}\n{"b":4,"a":3}\n'
    assert read(data, fuzzy_parse=True).rows == [("1", "2"), ("3", "4")]


def test_bodies_and_lines_beyond_their_limits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """LR5."""
    monkeypatch.setattr(json_rows, "DOCUMENT_BYTES_MAX", 100)
    monkeypatch.setattr(line_blocks, "LINE_BYTES_MAX", 100)
    big = b'[{"a":"' + b"x" * 500 + b'"}]'
    assert "exceeds the limit of 100" in refusal(big, strip_outer_array=True, by_line=False, block_bytes=10)
    assert "line 2 is longer" in refusal(b'{"a":1}\n' + big, block_bytes=10)


@pytest.mark.parametrize("depth", [2_000, 200_000])
def test_deeply_nested_documents_are_read_or_refused(depth: int) -> None:
    bomb = b"[" * depth + b"]" * depth
    assert len(read(b'{"a":' + bomb + b"}\n").rows) == 1
    outcome = read(b"{" + b'"a":{' * depth + b"\n")
    assert len(outcome.bad) == 1
    read(bomb + b"\n", by_line=False, strip_outer_array=True)


_SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=10)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(
    st.lists(st.fixed_dictionaries({"a": _VALUES}, optional={"b": _VALUES}), max_size=10), st.integers(1, 200)
)
@settings(max_examples=40, deadline=None)
def test_any_objects_come_back_as_text(objects: list[dict[str, Any]], block_bytes: int) -> None:
    """Checked with Python's own reader."""
    data = b"".join(
        json.dumps(item, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n" for item in objects
    )
    rows = read(data, block_bytes=block_bytes).rows
    assert len(rows) == len(objects)
    for row, item in zip(rows, objects, strict=True):
        for text, value in zip(row, (item["a"], item.get("b")), strict=True):
            if value is None or isinstance(value, str):
                assert text == value
            else:
                assert json.loads(text or "") == value
