"""LIKE patterns of SHOW statements: what they match, and that no pattern stops the process."""

from __future__ import annotations

import random
import re

import pytest

from seqstore.store.expressions.like_pattern import LikePattern


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("", "", True),
        ("", "a", False),
        ("%", "", True),
        ("%%%%", "abc", True),
        ("a%c", "abbc", True),
        ("a%c", "abcd", False),
        ("_", "", False),
        ("%_", "a", True),
        ("_%_", "a", False),
        (r"a\_b", "axb", False),
        (r"a\_b", "a_b", True),
        (r"100\%", "100%", True),
        ("a\\", "a\\", True),
        ("%aab", "aaab", True),
        ("%ab%ab", "abab", True),
        ("%ab%ab", "abxb", False),
        ("line%", "line\nbreak", True),
    ],
)
def test_a_pattern_matches_as_in_mysql(pattern: str, text: str, fits: bool) -> None:
    assert LikePattern(pattern).matches(text) is fits


def test_patterns_of_names_ignore_the_case() -> None:
    assert LikePattern("T%İx", ignore_case=True).matches("tableİX")
    assert not LikePattern("T%").matches("table")


def test_any_pattern_matches_as_a_regular_expression_does() -> None:
    for seed in range(3000):
        generator = random.Random(seed)
        pattern = "".join(generator.choices("ab%_", k=generator.randrange(8)))
        text = "".join(generator.choices("ab", k=generator.randrange(9)))
        expected = re.fullmatch(pattern.replace("%", ".*").replace("_", "."), text) is not None
        assert LikePattern(pattern).matches(text) is expected, f"seed {seed}: {text!r} LIKE {pattern!r}"


@pytest.mark.parametrize(
    "pattern", ["%a" * 30 + "%b", "%" * 1_000_000 + "b", "%_a" * 20 + "%b", "_%" * 400_000]
)
def test_a_hostile_pattern_is_decided_at_once(pattern: str) -> None:
    """A regular expression tries every split of the text, and nothing else ran in the process meanwhile."""
    assert not LikePattern(pattern, ignore_case=True).matches("a" * 128)
