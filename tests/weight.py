"""How much the tests do: the only place that reads it from the environment.

`SEQSTORE_TESTS` is `short`, the form of `make test` and the default, or `all`, that of `make test-all`. Both
run every kind of test; `all` draws more examples, histories and kills, and adds the tests marked `long`.
`TORTURE_MINUTES` is the length of the tests marked `torture`.
"""

from __future__ import annotations

import os
from typing import Final

SHORT: Final = "short"
ALL: Final = "all"
FORMS: Final = (SHORT, ALL)
VARIABLE: Final = "SEQSTORE_TESTS"


def form() -> str:
    """The form that was asked for.

    Raises:
        ValueError: there is no such form.
    """
    asked = os.environ.get(VARIABLE, SHORT)
    if asked not in FORMS:
        raise ValueError(f"{VARIABLE} is {asked!r}; expected one of {', '.join(FORMS)}")
    return asked


def by_form(short: int, full: int) -> int:
    """How many examples, histories or kills a test has in this form."""
    return full if form() == ALL else short


def torture_minutes(default: float = 30) -> float:
    """How long one test of `make torture` works."""
    return float(os.environ.get("TORTURE_MINUTES", default))
