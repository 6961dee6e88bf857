"""One turn of our engine alone, for `bench.compare`: `python -m bench.trials.turn WORK --only NAME ...`.

Prints a JSON object: where the engine's sources are, and the median of each workload. Which sources run is
up to PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import seqstore
from bench.engine.site import Site, Sizes
from bench.run import EVERY
from bench.trials.trial import run_trial


def medians(work: Path, names: list[str], sizes: Sizes, seed: int) -> dict[str, float]:
    """The median of each workload, without yardsticks."""
    found: dict[str, float] = {}
    with Site(work, sizes, seed, peers=()) as site:
        for name in names:
            with EVERY[name].prepare(site, False) as trial:
                trial.yardsticks = []
                figures = run_trial(trial).figures[0]
                if figures.findings:
                    sys.exit(f"{name}: wrong end state: {'; '.join(figures.findings)}")
                assert figures.median is not None
                found[name] = figures.median
    return found


def main() -> int:
    """Exit code 1 with a line on standard error when an end state is wrong."""
    parser = argparse.ArgumentParser(description="One turn of our engine alone.")
    parser.add_argument("work", type=Path)
    parser.add_argument("--only", choices=list(EVERY), nargs="+", required=True)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=20_261_121)
    given = parser.parse_args()
    batch = max(given.rows // 10, 1)
    sizes = Sizes(
        given.rows, small_rows=batch, batch=batch, rounds_max=given.rounds, scale=0.01, flights=5_000
    )
    found = medians(given.work, given.only, sizes, given.seed)
    print(json.dumps({"sources": seqstore.__file__, "medians": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
