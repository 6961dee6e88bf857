"""store/README.md: the tests it names as proofs exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_it_names_exists() -> None:
    text = (ROOT / "store" / "README.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", text))
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for source in sources for name in re.findall(r"^def (test_\w+)\(", source, re.MULTILINE)}
    assert len(named) > 10
    assert named <= defined, sorted(named - defined)


def test_every_anomaly_of_hermitage_has_a_proof() -> None:
    text = (ROOT / "store" / "README.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and line.count("|") == 5]
    for anomaly in ("G0", "G1a", "G1b", "G1c", "OTV", "PMP", "P4", "G-single", "G2-item", "G2"):
        proofs = [row.rsplit("|", 2)[1] for row in rows if row.startswith(f"| `{anomaly}`")]
        assert proofs, anomaly
        assert all("`test_" in proof for proof in proofs), anomaly
