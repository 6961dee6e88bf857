"""The verdict on two commits, on noise that is made here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from bench import compare
from bench.trials.verdict import verdict

SEED = 27


def turns(ratio: float, *, noise: float, count: int = 15) -> list[float]:
    """Ratios of turns around one, with noise in proportion and two disturbed turns."""
    rng = np.random.default_rng(SEED)
    found = ratio * np.exp(rng.normal(0, noise, count))
    found[:2] *= (3.0, 0.4)
    return [float(each) for each in found]


@pytest.mark.parametrize(
    ("ratio", "noise", "word"),
    [
        (1.0, 0.02, "the same"),
        (1.3, 0.05, "lost"),
        (1.06, 0.01, "slower"),
        (0.8, 0.05, "faster"),
        (1.02, 0.5, "unsure"),
    ],
)
def test_the_word_knows_the_noise(ratio: float, noise: float, word: str) -> None:
    found = verdict(turns(ratio, noise=noise))
    assert found.word == word, f"seed {SEED}: {found}"


def test_false_alarms_are_rare() -> None:
    rng = np.random.default_rng(SEED)
    lost = sum(verdict(list(np.exp(rng.normal(0, 0.05, 9)))).word == "lost" for _ in range(200))
    assert lost <= 2, f"seed {SEED}"


def test_few_turns_say_nothing() -> None:
    assert verdict([2.0, 2.1]).word == "too few turns"


def test_no_turns_are_refused() -> None:
    with pytest.raises(ValueError, match="found none"):
        verdict([])


def test_the_table_marks_what_was_lost() -> None:
    lines = compare.verdict_table("a", "b", {"x": verdict(turns(2.0, noise=0.01))}).splitlines()
    assert lines[-1].startswith("| `x` | 2.0")
    assert lines[-1].endswith("| **lost** |")


def test_a_lost_tenth_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Path] = []

    def planted(tree: Path, names: list[str], *, rows: int) -> dict[str, float]:
        seen.append(tree)
        return {name: 1.0 + 0.5 * (tree.read_text() == "b") for name in names}

    monkeypatch.setattr(compare, "sources", fake_sources)
    monkeypatch.setattr(compare, "take_turn", planted)
    assert compare.main(["a", "b", "--only", "scan", "--turns", "6"]) == 3
    assert compare.main(["a", "a", "--only", "scan", "--turns", "6"]) == 0
    assert "**lost**" in capsys.readouterr().out


class fake_sources:
    """A commit whose tree is a file with its name."""

    def __init__(self, commit: str) -> None:
        import tempfile

        self._file = Path(tempfile.mkstemp()[1])
        self._file.write_text(commit)

    def __enter__(self) -> Path:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.unlink()


def test_the_sources_of_a_commit_stand_beside_this_tree() -> None:
    try:
        subprocess.run(
            ["git", "-C", str(compare._ROOT), "rev-parse", "HEAD"], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git repository")
    with compare.sources("HEAD") as tree:
        assert (tree / "pyproject.toml").exists()
        place = tree
    assert not place.exists()
