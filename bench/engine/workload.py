"""What a workload is: a name, and how to set it up on a site."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from bench.engine.site import Site
from bench.trials.trial import Trial


@dataclass(frozen=True)
class Workload:
    """A named piece of work.

    Attributes:
        name: for `--only`.
        title: for the report.
        prepare: sets it up on a site; the flag admits slow peers.
        is_available: False where the system lacks what it measures with.
        group: the heading it stands under in the report.
        clients: how many there are, where their number is what the workload varies.
        is_usual: False where it runs only when it is named, as it takes long or needs a large size.
    """

    name: str
    title: str
    prepare: Callable[[Site, bool], AbstractContextManager[Trial]]
    is_available: Callable[[], bool] = lambda: True
    group: str = "engine"
    clients: int | None = None
    is_usual: bool = True
