"""The start of the command line: a query without a table, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from bench.engine.site import Site
from bench.trials.trial import Contender, Goal, Trial
from seqstore import Store

_PROGRAMS: Final = {
    "Python that imports DuckDB and queries it": "import duckdb; duckdb.sql('select 1').fetchall()",
    "Python that imports pyarrow": "import pyarrow",
    "Python that does nothing": "pass",
}


@contextmanager
def first_query(site: Site, slow: bool) -> Iterator[Trial]:
    """Offers `seqstore sql -e 'select 1'` on an empty store."""
    del slow
    path = site.new_path("command")
    Store.open(path).close()
    ours = [sys.executable, "-m", "seqstore", "--data-dir", str(path), "sql", "-e", "select 1"]
    yield Trial(
        Contender("seqstore", partial(_run, ours), check=lambda: _findings(ours)),
        [Contender(name, partial(_run, [sys.executable, "-c", text])) for name, text in _PROGRAMS.items()],
        rounds=site.sizes.rounds(15),
        warmups=2,
        goals=[Goal("0.5 s", 0.5, "value")],
    )


def _run(command: list[str], _: int) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _findings(command: list[str]) -> list[str]:
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [] if "| 1 |" in shown else [f"printed {shown!r}"]
