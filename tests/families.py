"""Plugin: of a test with many parameters, `make test` runs some; `make test-all` runs all of them.

The marker `family(number)` says how many. Which ones, the seed of the run draws (tests.seeds). A test that is
asked for by its name runs, whatever is drawn.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import pytest

from tests.seeds import VARIABLE
from tests.weight import ALL, form

RUN = "PYTEST_XDIST_TESTRUNUID"  # all processes of a run must draw the same


def drawn(items: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """Returns the items without those of families that are not drawn, in their order."""
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("family") is not None:
            families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    out: set[pytest.Item] = set()
    for name, members in families.items():
        marker = members[0].get_closest_marker("family")
        assert marker is not None
        [number] = marker.args
        if len(members) > number:
            out.update(set(members) - set(random.Random(f"{seed} {name}").sample(members, number)))
    return [item for item in items if item not in out]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if form() == ALL:
        return
    seed = os.environ.get(VARIABLE) or os.environ.get(RUN) or str(random.SystemRandom().random())
    kept = drawn(items, seed)
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=sorted(set(items) - set(kept), key=lambda item: item.nodeid))
        items[:] = kept
