"""store/README.md and loaders/spark/README.md: the tests and files that they name exist."""

from __future__ import annotations

import re

import pytest

from tests.support.documents import ROOT

PAGES = ("store/README.md", "loaders/spark/README.md")


def test_every_test_it_names_exists() -> None:
    text = (ROOT / "store" / "README.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", text))
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for source in sources for name in re.findall(r"^def (test_\w+)\(", source, re.MULTILINE)}
    assert len(named) > 10
    assert named <= defined, sorted(named - defined)


def test_every_anomaly_of_hermitage_has_a_proof() -> None:
    for anomaly in ("G0", "G1a", "G1b", "G1c", "OTV", "PMP", "P4", "G-single", "G2-item", "G2"):
        proofs = [
            row[-1] for row in _anomalies("store/README.md", columns=4) if row[0].startswith(f"`{anomaly}`")
        ]
        assert proofs, anomaly
        assert all("`test_" in proof for proof in proofs), anomaly


def test_the_manual_has_the_anomalies_of_the_proofs() -> None:
    proved = [row[:3] for row in _anomalies("store/README.md", columns=4)]
    assert _anomalies("docs/transactions.md", columns=3) == proved


@pytest.mark.parametrize("page", PAGES)
def test_every_file_it_names_exists(page: str) -> None:
    folder = (ROOT / page).parent
    named = set(re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:py|md|toml))`", (ROOT / page).read_text()))
    assert len(named) > 10
    places = [folder, ROOT, ROOT / "tests" / "loaders" / "spark", ROOT / "tests" / "cli" / "server"]
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def _anomalies(page: str, *, columns: int) -> list[list[str]]:
    """Rows of the table of anomalies."""
    lines = (ROOT / page).read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| anomaly "))
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines[start + 2 : lines.index("", start)]
    ]
    assert all(len(row) == columns for row in rows)
    return rows
