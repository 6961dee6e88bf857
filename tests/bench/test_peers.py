"""Every peer that is installed reaches the state of the oracle, for every script it can do."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.inputs import cdc, flights, lake_loader, merges
from bench.inputs.script import Script, differences
from bench.peers.catalog import PEERS
from bench.peers.ours import Seqstore
from tests.weight import ALL, form

SEED = 27
SCRIPTS = {
    "whole keys": lambda: cdc.whole_keys(2_000, 300, 3, SEED),
    "composite keys": lambda: cdc.composite_keys(2_000, 300, 3, SEED),
    "1 column": lambda: cdc.partial_updates(2_000, 300, 2, SEED, columns=1),
    "4 columns": lambda: cdc.partial_updates(2_000, 300, 2, SEED, columns=4),
    "fact": lambda: lake_loader.lake_loader("fact", 20_000, 3, SEED),
    "dimension": lambda: lake_loader.lake_loader("dimension", 2_000, 3, SEED),
    "events": lambda: lake_loader.lake_loader("events", 2_000, 3, SEED),
    "refresh": lambda: merges.refresh(2_000, 3, SEED),
    "micro": lambda: merges.micro(20_000, 4, SEED),
    "flights": lambda: flights.flights(300, 4, SEED),
}
# What the short form has of other peers: each kind of step once, keys of several columns, NULLs, no sequence.
# The other scripts differ from these by sizes and columns.
KINDS = ("flights", "4 columns", "events", "refresh")
PAIRS = [
    (name, script)
    for name in PEERS
    for script in SCRIPTS
    if form() == ALL or script in KINDS or name == Seqstore.name
]


def states(name: str, script: Script, path: Path) -> list[str]:
    """What is wrong with a peer's end state."""
    peer = PEERS[name](path / "peer", script.spec)
    try:
        peer.load(script.base)
        for step in script.steps:
            peer.apply(step)
        peer.settle()
        return differences(script.expected(len(script.steps)), peer.scan())
    finally:
        peer.close()


@pytest.mark.family(8)
@pytest.mark.parametrize(("name", "script"), PAIRS)
def test_the_end_state_equals_the_oracle(name: str, script: str, tmp_path: Path) -> None:
    made = SCRIPTS[script]()
    reason = PEERS[name].why_not(made)
    if reason is not None:
        pytest.skip(f"{name} {reason}")
    assert states(name, made, tmp_path) == [], f"seed {SEED}"
