"""docs/rules.md: every rule that code, tests and documents name has one entry there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rule_ids import OTHER_WORDS, Entry, Mention, anchors, entries, mentions, named_by, named_in

ROOT = Path(__file__).parents[2]
FOLDERS = ("store", "loaders", "cli", "bench", "tests", "conf", "docs")
# These two hold made-up ids.
SKIPPED = ("tests/docs/test_rules.py", "tests/support/rule_ids.py")


def documents() -> list[Path]:
    return sorted((ROOT / "docs").rglob("*.md"))


def files() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.md"))
    for folder in FOLDERS:
        for suffix in ("py", "md", "toml"):
            found = sorted((ROOT / folder).rglob(f"*.{suffix}"))
            yield from (path for path in found if path.relative_to(ROOT).as_posix() not in SKIPPED)


@pytest.fixture(scope="module")
def defined() -> list[Entry]:
    return [entry for path in documents() for entry in entries(path, ROOT)]


@pytest.fixture(scope="module")
def named() -> list[Mention]:
    return [mention for path in files() for mention in mentions(path, ROOT)]


def test_every_rule_that_is_named_has_an_entry(named: list[Mention], defined: list[Entry]) -> None:
    known = {entry.id for entry in defined}
    assert [str(mention) for mention in named if mention.id not in known] == []
    by_code = {mention.id for mention in named if not mention.path.startswith("docs/")}
    assert len(by_code) > 300, "the collector has lost its files"


def test_no_rule_has_two_entries(defined: list[Entry]) -> None:
    assert [rule for rule, count in Counter(entry.id for entry in defined).items() if count > 1] == []


def test_no_anchor_stands_twice_on_a_page() -> None:
    for path in documents():
        assert [name for name, count in Counter(anchors(path)).items() if count > 1] == [], path


def test_every_entry_has_its_id_as_anchor_and_a_sentence(defined: list[Entry]) -> None:
    assert [entry.id for entry in defined if entry.anchor != entry.id.lower()] == []
    assert [entry.id for entry in defined if len(entry.text.split()) < 4] == []


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("a larger sequence wins (SO1, ZZ9)", ["SO1", "ZZ9"]),
        ("A8-A10 and C1-3", ["A8", "A9", "A10", "C1", "C2", "C3"]),
        ("F7's vector; ISO12.", ["F7", "ISO12"]),
        ("Scenario 3: one", ["scenario-3"]),
        ("scenarios 4, 6 to 8 and 10 of\n the rest", [f"scenario-{n}" for n in (4, 6, 7, 8, 10)]),
        ("as in section 6.5", ["section 6.5"]),
        ("(5.2 of the isolation rules)", ["isolation rules"]),
        ("rows on S3, LZ4 frames, INT64, TPC-H Q20, `P9`, UTF-8, E-7003, G1a, 2.25", []),
        ("```sql\nSELECT A1\n```", []),
    ],
)
def test_ids_are_found_in_a_text(text: str, ids: list[str]) -> None:
    assert [found for _, found in named_in(text)] == ids


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("test_d13_u1_sql_takes_long_texts", ["D13", "U1"]),
        ("test_1b_11_an_update_moves_a_row", ["scenario-1", "scenario-11"]),
        ("test_12_p4_no_update_is_lost", ["scenario-12"]),
        ("test_s3_properties", []),
        ("test_2000_rows", []),
        ("test_the_v1_reader", []),
        ("helper_d13_", []),
    ],
)
def test_ids_are_found_in_the_name_of_a_test(name: str, ids: list[str]) -> None:
    assert list(named_by(name)) == ids


def test_ids_are_found_in_comments_and_docstrings_of_python_alone(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        '"""First (SO1).\n\nThird line: SO3."""\n\n\nclass Row:\n    """P1."""\n\n'
        '    def test_d5_name(self):\n        return "F1"  # F2\n'
    )
    assert {(mention.line, mention.id) for mention in mentions(path, tmp_path)} == {
        (1, "SO1"),
        (3, "SO3"),
        (7, "P1"),
        (9, "D5"),
        (10, "F2"),
    }


def test_comments_of_toml_are_read_and_values_are_not(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('# X1 above\nname = "X2"  # X3\n')
    assert [(mention.line, mention.id) for mention in mentions(path, tmp_path)] == [(1, "X1"), (2, "X3")]


def test_entries_hold_the_lines_behind_their_id(tmp_path: Path) -> None:
    path = tmp_path / "rules.md"
    path.write_text(
        '# Rules\n\n- <a id="so1"></a>**SO1.** One\n  two.\n- <a id="so2"></a>**SO2.**\n'
        '- <a id="scenario-3"></a>**Scenario 3.** Three.\n\nSO4. no entry\n'
    )
    found = [(entry.id, entry.anchor, entry.text) for entry in entries(path, tmp_path)]
    assert found == [
        ("SO1", "so1", "One two."),
        ("SO2", "so2", ""),
        ("scenario-3", "scenario-3", "Three."),
    ]


@pytest.mark.parametrize("word", [word for word in OTHER_WORDS if word.isalnum()])
def test_an_exception_is_still_needed(word: str) -> None:
    assert any(word in path.read_text() for path in files())
