"""Routine loads as TOML files."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqstore import Column, InvalidInputError, NotFoundError, TableSchema, parse_type
from seqstore.loaders.routine.spec import FILES, KAFKA
from seqstore.loaders.routine.toml_spec import read_spec
from seqstore.loaders.row_source import Target

PLAIN = 'database = "d"\nname = "n"\ntable = "t"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


def test_a_file_says_what_the_statement_says(tmp_path: Path) -> None:
    text = f"""{PLAIN}
merge_type = "merge"
columns = ["a", "b"]
set = ["c = a + 1"]
delete_on = "b = 1"
[properties]
max_error_number = 5
strict_mode = true
[files]
path = "in/*.json"
"""
    spec = read_spec(write(tmp_path, text), name="other")
    assert (spec.name, spec.merge_type, spec.source) == ("other", "MERGE", FILES)
    assert (spec.columns, spec.assignments, spec.delete_on) == (("a", "b"), ("c = a + 1",), "b = 1")
    assert spec.properties == {"max_error_number": "5", "strict_mode": "true"}
    assert spec.source_properties == {"path": str(tmp_path / "in" / "*.json")}


def test_kafka_is_a_table_of_its_own(tmp_path: Path) -> None:
    text = f'{PLAIN}[kafka]\nkafka_topic = "x"\n"property.client.id" = "me"\n'
    spec = read_spec(write(tmp_path, text))
    assert (spec.source, spec.source_properties) == (KAFKA, {"kafka_topic": "x", "property.client.id": "me"})


def test_a_file_is_checked_as_the_statement_is(tmp_path: Path) -> None:
    """R23"""
    schema = TableSchema.create([Column("k", parse_type("INT"), nullable=False)], key=["k"])
    for line, message in (
        ('delete_on = "k = 1"', "not support DELETE ON clause when merge type is not MERGE."),
        ('merge_type = "merge"', "Excepted DELETE ON clause when merge type is MERGE."),
    ):
        spec = read_spec(write(tmp_path, f'{PLAIN}{line}\n[files]\npath = "in/*.json"\n'))
        with pytest.raises(InvalidInputError, match=message):
            spec.check(Target(schema, "d.t"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PLAIN, r"one of the tables \[files\], \[kafka\] and \[delta\]"),
        ("[files]\n", "database is missing"),
        (f"nmae = 'x'\n{PLAIN}[files]\n", "unknown name 'nmae'"),
        (f"where = 5\n{PLAIN}[files]\n", "where: expected a text, found 5"),
        (f"columns = 'a'\n{PLAIN}[files]\n", "columns: expected a list of texts"),
        (f"files = 1\n{PLAIN}", "files: expected a table, found 1"),
        ("database = ", "not TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_spec(write(tmp_path, text))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        read_spec(tmp_path / "nothing.toml")
