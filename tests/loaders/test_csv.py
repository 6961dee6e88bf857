"""`loaders.csv.reader`: rows, bad rows and their places, for any separators and any size of block."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqstore.loaders.csv import reader as csv
from seqstore.loaders.csv.reader import CsvReader
from seqstore.loaders.headers import CsvOptions
from seqstore.store.errors import InvalidInputError
from tests.weight import by_form

Row = tuple[str | None, ...]


@dataclass
class Outcome:
    """Everything a reader gave: rows, their lines, and line and reason of the bad ones."""

    rows: list[Row] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    bad: list[tuple[int, str, str]] = field(default_factory=list)
    bad_count: int = 0


def read(data: bytes, names: str = "ab", block_bytes: int = 1 << 20, **options: Any) -> Outcome:
    options.setdefault("separator", b",")
    reader = CsvReader(io.BytesIO(data), list(names), CsvOptions(**options), block_bytes=block_bytes)
    outcome = Outcome()
    for batch in reader.batches():
        outcome.rows += list(zip(*batch.rows.to_pydict().values(), strict=True))
        places = batch.places(range(len(batch.rows)))
        outcome.lines += [place.line for place in places]
        outcome.texts += [place.text for place in places]
        outcome.bad += [(row.place.line, row.reason, row.place.text) for row in batch.bad]
        outcome.bad_count += batch.bad_count
    return outcome


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_short_body_is_one_block_with_or_without_its_last_line_end(end: bytes) -> None:
    """Its last line was a block of its own, which cost a seventh of a small load."""
    reader = CsvReader(io.BytesIO(b"1,2\n3,4\n5,6" + end), ["a", "b"], CsvOptions(separator=b","))
    assert [len(batch.rows) for batch in reader.batches()] == [3]


class _Trickle(io.BytesIO):
    """Returns a few bytes at a time, as a client that sends slowly."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(random.Random(self.tell()).randint(1, 7))


def test_a_body_that_comes_in_short_pieces_is_read_to_its_end() -> None:
    lines = [f"{number},{'x' * (number % 11)}" for number in range(200)]
    reader = CsvReader(_Trickle("\n".join(lines).encode()), ["a", "b"], CsvOptions(separator=b","))
    rows = [row for batch in reader.batches() for row in batch.rows["a"].to_pylist()]
    assert rows == [str(number) for number in range(200)]


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 1000])
def test_rows_nulls_and_line_numbers(block_bytes: int) -> None:
    """V1; empty lines are no rows, but count as lines."""
    outcome = read(b"1,2\n3,\\N\n\n5,\n,x", block_bytes=block_bytes)
    assert outcome.rows == [("1", "2"), ("3", None), ("5", ""), ("", "x")]
    assert outcome.lines == [1, 2, 4, 5]
    assert outcome.texts == ["1,2", "3,\\N", "5,", ",x"]


def test_lines_with_a_wrong_number_of_fields_are_bad_rows() -> None:
    """V2, and the place of every row after them."""
    outcome = read(b"1,2,3\n4,5\n6\n7,8\n")
    assert outcome.rows == [("4", "5"), ("7", "8")]
    assert outcome.lines == [2, 4]
    assert outcome.bad == [(1, "expected 2 fields, found 3", "1,2,3"), (3, "expected 2 fields, found 1", "6")]


def test_of_many_bad_rows_the_first_are_described_and_all_are_counted() -> None:
    """V2's vector: 13 fields for 2 columns."""
    outcome = read(b",".join([b"x"] * 13).join([b"", b"\n"]) * 5000)
    assert (outcome.rows, outcome.bad_count, len(outcome.bad)) == ([], 5000, 1000)


def test_bytes_that_are_no_utf8_spoil_their_row_only() -> None:
    """V10."""
    outcome = read(b"1,\xff\n2,\xc3\xa4\n\xfe,\xff\n4,d,e\n")
    assert outcome.rows == [("2", "ä")]
    assert sorted(line for line, _, _ in outcome.bad) == [1, 3, 4]
    assert outcome.bad_count == 3


def test_carriage_returns_before_line_ends_are_dropped_and_others_are_data() -> None:
    """V11, with the default delimiter."""
    assert read(b"1,2\r\n3,4\r\n").rows == [("1", "2"), ("3", "4")]
    assert read(b"1,2\r\n\r\n3\r,4\n").rows == [("1", "2"), ("3\r", "4")]
    assert read(b"1,2\r\n3,4\n5\r\n", delimiter=b"\r\n").rows == [("1", "2"), ("3", "4\n5")]


@pytest.mark.parametrize("block_bytes", [1, 4, 1000])
def test_separators_of_several_characters_and_hex(block_bytes: int) -> None:
    """LH3, LH4, V3."""
    data = b"1||2weizuo3||4weizuo5|||weizuo"
    outcome = read(data, block_bytes=block_bytes, separator=b"||", delimiter=b"weizuo")
    assert outcome.rows == [("1", "2"), ("3", "4"), ("5", "|")]
    assert outcome.lines == [1, 2, 3]
    assert read(b"a\nb\x01c\r$$$", separator=b"\x01", delimiter=b"$$$").rows == [("a\nb", "c\r")]
    assert read(b"1\xff2\n", separator=b"\xff").rows == [("1", "2")]
    assert read(b"1\n2|", separator=b"\n", delimiter=b"|").rows == [("1", "2")]


def test_enclosed_fields_hold_separators_delimiters_and_escaped_marks() -> None:
    """V4's vector."""
    assert read(b"a,'b,\\'c',d\n", "abc", enclose=b"'").rows == [("a", "b,'c", "d")]
    assert read(b"'x\ny\\\\',2\n", enclose=b"'").rows == [("x\ny\\", "2")]
    assert read(b"'a^'b',2\n", enclose=b"'", escape=b"^").rows == [("a'b", "2")]


def test_double_quotes_as_enclose_stay_unless_they_are_trimmed() -> None:
    """V5."""
    assert read(b'"abc,def",1\n', enclose=b'"').rows == [('"abc,def"', "1")]
    assert read(b'"abc,def",1\n', enclose=b'"', trim_double_quotes=True).rows == [("abc,def", "1")]


def test_marks_inside_and_outside_of_enclosed_fields_are_literal() -> None:
    """V6, V7."""
    data = b'"aaa"bbb"ccc",1\n"g"hi,2\nx"y,3\n'
    rows = read(data, enclose=b'"', trim_double_quotes=True).rows
    assert rows == [('aaa"bbb"ccc', "1"), ('"g"hi', "2"), ('x"y', "3")]


@pytest.mark.parametrize("block_bytes", [1, 5, 1000])
def test_an_enclosed_field_that_is_never_closed_fails_the_load(block_bytes: int) -> None:
    """V6."""
    with pytest.raises(InvalidInputError, match=r"line 2: .* never closed"):
        read(b"'a',1\n'b,2\n3,4\n", block_bytes=block_bytes, enclose=b"'")


def test_rows_behind_an_enclosed_line_end_keep_their_line_numbers() -> None:
    outcome = read(b"'x\ny',1\n2,3\nbad\n'p\nq\nr',4\n5,6\n", enclose=b"'")
    assert outcome.lines == [1, 3, 5, 8]
    assert outcome.bad == [(4, "expected 2 fields, found 1", "bad")]
    assert outcome.texts[0] == "'x\\ny',1"


def test_one_outermost_pair_of_double_quotes_is_trimmed() -> None:
    """V8."""
    data = b'"a","b"\n"",x"\n""q"","\n'
    assert read(data, trim_double_quotes=True).rows == [("a", "b"), ("", 'x"'), ('"q"', '"')]


@pytest.mark.parametrize("block_bytes", [1, 2, 1000])
def test_a_byte_order_mark_and_the_first_lines_are_skipped(block_bytes: int) -> None:
    """V9, LH20."""
    outcome = read(b"\xef\xbb\xbfa,b\nint,int\n1,2", block_bytes=block_bytes, skip_lines=2)
    assert (outcome.rows, outcome.lines) == ([("1", "2")], [3])
    assert read(b"\xef\xbb\xbf1,2\n", block_bytes=block_bytes).rows == [("1", "2")]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"a,b\n", b"a,b", b"\xef\xbb\xbf", b"\r\n"])
def test_a_body_without_rows_gives_none(data: bytes) -> None:
    """V12."""
    assert read(data, skip_lines=1 if data.startswith(b"a") else 0) == Outcome()


def test_empty_fields_are_null_on_request_and_enclosed_ones_are_not() -> None:
    """LH21."""
    assert read(b"1,\n'',2\n", enclose=b"'", empty_field_as_null=True).rows == [("1", None), ("", "2")]


def test_an_enclosed_null_marker_is_text() -> None:
    assert read(b"'\\N',\\N\n", enclose=b"'").rows == [("\\N", None)]


def test_a_field_of_ten_megabytes_is_read_in_small_blocks() -> None:
    field_bytes = b"x" * (10 << 20)
    outcome = read(b"1," + field_bytes + b"\n2,y\n", block_bytes=1 << 16)
    assert [(row[0], len(row[1] or "")) for row in outcome.rows] == [("1", 10 << 20), ("2", 1)]
    assert len(outcome.texts[0]) < 3000


def test_a_line_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "LINE_BYTES_MAX", 1000)
    with pytest.raises(InvalidInputError, match="line 2 is longer"):
        read(b"1,2\n" + b"x" * 5000 + b"\n", block_bytes=100)


def test_a_body_that_uses_every_byte_cannot_be_rewritten_and_says_so() -> None:
    with pytest.raises(InvalidInputError, match="no text"):
        read(bytes(range(256)) * 3, separator=b"||")


# ------------------------------------------------------------------------------- against a plain reference


class NeverClosedError(Exception):
    pass


class Reference:
    """The rules byte by byte, with nothing clever in it."""

    def __init__(self, data: bytes, options: CsvOptions) -> None:
        self.data, self.o, self.at = data, options, 0

    def next_is(self, mark: bytes) -> bool:
        return bool(mark) and self.data.startswith(mark, self.at)

    def at_line_end(self) -> bool:
        is_return = self.o.delimiter == b"\n" and self.next_is(b"\r\n")
        return self.at >= len(self.data) or self.next_is(self.o.delimiter) or is_return

    def raw_field(self) -> tuple[bytes, bytes, bool]:
        """As it stands there, with its escapes undone, and whether it is enclosed."""
        start, meant = self.at, b""
        is_enclosed = self.next_is(self.o.enclose)
        if is_enclosed:
            self.at += 1
            while self.next_is(self.o.enclose * 2) or not self.next_is(self.o.enclose):
                if self.at >= len(self.data):
                    raise NeverClosedError
                self.at += 1 if self.next_is(self.o.enclose) else 0  # two stand for one
                meant += self.unescaped()
            self.at += 1
            meant = self.o.enclose + meant + self.o.enclose
        closed_at, closed_ok = self.at, True
        while not self.at_line_end() and not self.next_is(self.o.separator):
            closed_ok = not (is_enclosed and self.escapes_mark())
            meant += self.unescaped() if is_enclosed else self.data[self.at : self.at + 1]
            self.at += 0 if is_enclosed else 1
        ends_closed = meant.endswith(self.o.enclose) and (self.at == closed_at or closed_ok)
        if is_enclosed and (self.o.enclose != b'"' or self.o.trim_double_quotes) and ends_closed:
            meant = meant[1:-1]
        return self.data[start : self.at], meant, is_enclosed

    def escapes_mark(self) -> bool:
        return self.next_is(self.o.escape + self.o.enclose) or self.next_is(self.o.escape * 2)

    def unescaped(self) -> bytes:
        step = 1 if self.escapes_mark() else 0
        self.at += step + 1
        return self.data[self.at - 1 : self.at]

    def value(self) -> bytes | None:
        raw, meant, _ = self.raw_field()
        if raw == b"\\N":
            return None
        if self.o.trim_double_quotes and self.o.enclose != b'"' and len(meant) > 1:
            is_pair = meant.startswith(b'"') and meant.endswith(b'"')
            meant = meant[1:-1] if is_pair else meant
        return meant

    def lines(self) -> list[list[bytes | None]]:
        found = []
        while self.at < len(self.data):
            start, values = self.at, [self.value()]
            while self.next_is(self.o.separator):
                self.at += len(self.o.separator)
                values.append(self.value())
            if self.at > start:
                found.append(values)
            self.at += 1 if self.next_is(b"\r\n") and self.o.delimiter == b"\n" else 0
            self.at += len(self.o.delimiter)
        return found


_SEPARATORS = [b",", b"|", b"||", b"\x01", b"@#", b"\xc2\xa7"]
_DELIMITERS = [b"\n", b"\r\n", b"$$$", b"%", b";\n"]


@st.composite
def texts(draw: st.DrawFn) -> tuple[bytes, CsvOptions]:
    separator, delimiter = draw(st.sampled_from(_SEPARATORS)), draw(st.sampled_from(_DELIMITERS))
    enclose = draw(st.sampled_from([b"", b"'", b'"']))
    options = CsvOptions(
        separator=separator,
        delimiter=delimiter,
        enclose=enclose,
        escape=draw(st.sampled_from([b"\\", b"^"])),
        trim_double_quotes=draw(st.booleans()),
    )
    parts = [b"a", b"b", b'"', b"'", b"\\", b"^", b"\\N", b"\r", b"\n", b" ", b"\xc3\xa4", b"$", b"|", b""]
    # weights: mostly two fields a line, so that good and bad rows mix
    pieces = draw(
        st.lists(st.sampled_from([*parts, separator, separator, delimiter, delimiter, enclose]), max_size=40)
    )
    return b"".join(pieces), options


@given(texts(), st.integers(1, 30))
@settings(max_examples=by_form(120, 2000), deadline=None)
def test_any_text_is_read_as_the_rules_say(case: tuple[bytes, CsvOptions], block_bytes: int) -> None:
    data, options = case
    try:
        expected = Reference(data, options).lines()
    except NeverClosedError:
        with pytest.raises(InvalidInputError, match="never closed"):
            read(data, block_bytes=block_bytes, **vars(options))
        return
    outcome = read(data, block_bytes=block_bytes, **vars(options))
    good = [tuple(v if v is None else v.decode() for v in row) for row in expected if len(row) == 2]
    assert outcome.rows == good
    assert outcome.bad_count == len(expected) - len(good)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[tuple[str, str]], CsvOptions]:
    cell = st.text(alphabet="ab',\"\\|$@#\n\r\t ä漢", max_size=8)
    rows = draw(st.lists(st.tuples(cell, cell), max_size=15))
    options = CsvOptions(
        separator=draw(st.sampled_from([b",", b"||", b"\t"])),
        delimiter=draw(st.sampled_from([b"\n", b"\r\n", b"$$$"])),
        enclose=b"'",
    )
    return rows, options


@given(tables(), st.integers(1, 50))
@settings(max_examples=by_form(60, 400), deadline=None)
def test_enclosed_and_escaped_text_comes_back_as_it_was(
    case: tuple[list[tuple[str, str]], CsvOptions], block_bytes: int
) -> None:
    rows, options = case

    def written(value: str) -> bytes:
        return b"'" + value.replace("\\", "\\\\").replace("'", "\\'").encode() + b"'"

    lines = [options.separator.join(written(value) for value in row) for row in rows]
    data = options.delimiter.join(lines) + (options.delimiter if lines else b"")
    assert read(data, block_bytes=block_bytes, **vars(options)).rows == rows
