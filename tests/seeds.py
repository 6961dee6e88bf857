"""The seeds of random tests: drawn anew, or the same in every run.

With `SEQSTORE_SEED` a test has the same seeds each time, of its own, and Hypothesis the same examples. So do
`make test` and `make test-all`: what fails there comes from the change, not from the draw. Without it each
run draws others; so does `make torture`. A test prints its seed when it fails.
"""

from __future__ import annotations

import collections
import os
import random
from typing import Final

VARIABLE: Final = "SEQSTORE_SEED"
_drawn: Final[collections.Counter[str]] = collections.Counter()


def is_repeated() -> bool:
    """Whether every run has the same seeds."""
    return bool(os.environ.get(VARIABLE))


def new_seed(below: int = 2**32) -> int:
    """A seed from 0 to `below` - 1; a test's first one, its second one and so on are each its own."""
    if not is_repeated():
        return random.SystemRandom().randrange(below)
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    _drawn[test] += 1
    return random.Random(f"{os.environ[VARIABLE]} {test} {_drawn[test]}").randrange(below)
