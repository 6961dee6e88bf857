"""How rows are drawn and written."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from seqstore.cli import output
from seqstore.cli.output import Format, as_csv, as_json, as_markdown, box

DOCUMENTED = """\
+---------+------------+----------+-------------+---------+
| user_id | date       | group_id | modify_date | keyword |
+---------+------------+----------+-------------+---------+
|       1 | 2020-02-22 |        1 | 2020-03-05  | c       |
+---------+------------+----------+-------------+---------+"""

MIXED = pa.table(
    {
        "i": pa.array([1, None], pa.int32()),
        "t": pa.array(["a|b", "two\nlines"]),
        "d": pa.array([Decimal("1.50"), Decimal(10**38)], pa.decimal256(60, 2)),
        "x": pa.array([datetime(2024, 1, 2, 3, 4, 5), datetime(2024, 1, 2, 3, 4, 5, 120_000)]),
        "b": pa.array([True, False]),
        "f": pa.array([0.1, 3.0], pa.float32()),
        "l": pa.array([["a", None], []], pa.list_(pa.string())),
        "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        "s": pa.array([{"a": 1}, None], pa.struct({"a": pa.int32()})),
    }
)


def test_a_table_is_drawn_as_documented() -> None:
    columns = {
        "user_id": [1],
        "date": [date(2020, 2, 22)],
        "group_id": [1],
        "modify_date": [date(2020, 3, 5)],
        "keyword": ["c"],
    }
    assert box(pa.table(columns)) == DOCUMENTED


def test_characters_of_double_width_keep_the_rules_straight() -> None:
    assert box(pa.table({"名": ["数据库", "e\u0301", "x"]})) == (
        "+--------+\n| 名     |\n+--------+\n| 数据库 |\n| e\u0301      |\n| x      |\n+--------+"
    )


def test_every_kind_of_value_has_its_text() -> None:
    lines = box(MIXED).splitlines()
    assert [cell.strip() for cell in lines[3].split(" | ")][2:] == [
        "1.50",
        "2024-01-02 03:04:05.000",
        "1",
        "0.1",
        '["a", null]',
        '{"k":1}',
        '{"a":1} |',
    ]
    assert lines[4].startswith("| NULL | two ")
    assert lines[5].startswith("|      | lines ")
    assert " 100000000000000000000000000000000000000.00 " in lines[4]


def test_control_characters_cannot_move_the_cursor() -> None:
    assert "\x1b" not in box(pa.table({"t": ["\x1b[2J\r"]}))


def test_json_is_json_with_every_digit() -> None:
    first, second = json.loads(as_json(MIXED), parse_float=Decimal)
    assert first["d"] == Decimal("1.50")
    assert second["d"] == Decimal(10**38)
    assert (first["b"], first["l"], first["m"], first["s"]) == (True, ["a", None], {"k": 1}, {"a": 1})
    assert second["x"] == "2024-01-02 03:04:05.120"
    assert json.loads(as_json(MIXED.slice(0, 0))) == []


def test_csv_writes_null_as_stream_load_reads_it() -> None:
    table = pa.table({"a": pa.array([None, 1]), "b": pa.array(['x,"y"', None])})
    assert as_csv(table) == 'a,b\n\\N,"x,""y"""\n1,\\N'


def test_markdown_keeps_pipes_and_lines_inside_their_cell() -> None:
    assert (
        as_markdown(MIXED.select(["i", "t"]))
        == "| i | t |\n| ---: | --- |\n| 1 | a\\|b |\n| NULL | two<br>lines |"
    )


@pytest.mark.parametrize(
    ("form", "printed"), [(Format.TABLE, ""), (Format.JSON, "[]\n"), (Format.CSV, "a\n")]
)
def test_no_rows_print_what_a_program_expects(
    capsys: pytest.CaptureFixture[str], form: Format, printed: str
) -> None:
    output.rows(pa.table({"a": pa.array([], pa.int32())}), form)
    assert capsys.readouterr().out == printed


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.error("a\n b")
    assert capsys.readouterr().err == "seqstore: a b\n"


def test_a_table_without_rows_still_has_its_head() -> None:
    assert box(pa.table({"a": pa.array([], pa.int32())})) == "+---+\n| a |\n+---+"


def test_dates_of_the_year_0_have_their_texts() -> None:
    """Python has no such dates: `seqstore sql` ended in a traceback."""
    table = pa.table(
        {
            "d": pa.array([-719_528, 0], pa.date32()),
            "t": pa.array([-62_167_219_200_000_000, None], pa.timestamp("us")),
        }
    )
    assert as_csv(table) == "d,t\n0000-01-01,0000-01-01 00:00:00\n1970-01-01,\\N"
