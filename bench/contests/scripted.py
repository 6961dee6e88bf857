"""A script of `bench.inputs` by every peer that can run it, step by step, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from bench.engine.site import Site
from bench.engine.workload import Workload
from bench.inputs.script import Script, differences
from bench.limits.floors import consume
from bench.peers.base import KeyedPeer
from bench.peers.catalog import OURS, PEERS
from bench.trials.trial import Contender, Trial


def scripted(name: str, title: str, group: str, make: Callable[[Site], Script]) -> Workload:
    """A workload of a script; of one that a site cannot make, `make` raises ModuleNotFoundError."""

    @contextmanager
    def prepare(site: Site, slow: bool) -> Iterator[Trial]:
        del slow  # here the time limit stops a slow peer
        yield from contest(site, make(site), PEERS)

    return Workload(name, title, prepare, group=group)


def contest(site: Site, script: Script, peers: dict[str, type[KeyedPeer]]) -> Iterator[Trial]:
    """The trial of a script; what it made is closed and removed behind it.

    Args:
        peers: by name; a peer that the site has not chosen is left out silently, ours never.
    """
    skipped: dict[str, str] = {}
    expected = lru_cache(maxsize=4)(script.expected)  # most peers end behind the same step
    with ExitStack() as closing:
        runners: list[_Runner] = []
        for name, peer in peers.items():
            if peer is not OURS and not site.takes_part(name):
                continue
            reason = peer.why_not(script)
            runner = None if reason else _Runner(peer, site, script, expected)
            if runner is not None:
                closing.callback(runner.close)
                reason = runner.set_up()
            if reason is not None:
                skipped[name] = reason
            elif runner is not None:
                runners.append(runner)
        ours, *yardsticks = (runner.contender() for runner in runners)
        yield Trial(
            ours,
            yardsticks,
            rounds=len(script.steps),
            warmups=0,
            rows=max(len(step.rows) for step in script.steps),
            skipped=skipped,
            seconds_max=site.contender_seconds(len(runners)),
        )


@dataclass
class _Runner:
    """One peer on its way through a script."""

    peer: type[KeyedPeer]
    site: Site
    script: Script
    expected: Callable[[int], pa.Table]
    done: int = 0
    load_seconds: float = 0.0
    table: KeyedPeer | None = None

    def __post_init__(self) -> None:
        self.path = self.site.new_path(self.peer.name)

    def set_up(self) -> str | None:
        """Makes the table and loads the base; returns why that failed."""
        try:
            self.table = self.peer(self.path, self.script.spec)
            started = time.perf_counter()
            self.table.load(self.script.base)
            self.load_seconds = time.perf_counter() - started
            self.table.settle()
        except Exception as error:
            if self.peer is OURS:
                raise
            return f"could not load the base: {type(error).__name__}: {str(error)[:200]}"
        return None

    def contender(self) -> Contender:
        assert self.table is not None
        table = self.table

        def act(number: int) -> None:
            table.apply(self.script.steps[number])
            self.done += 1

        return Contender(
            self.peer.name,
            act,
            check=lambda: differences(self.expected(self.done), table.scan()),
            settle=table.settle,
            read=lambda: consume(table.scan()),
            facts=self.facts,
        )

    def facts(self) -> dict[str, Any]:
        return {
            "version": self.peer.version(),
            "setup": self.peer.setup,
            "is_durable": self.peer.is_durable,
            "load_seconds": self.load_seconds,
            "base_bytes": int(self.script.base.nbytes),
            "input_bytes": self.script.input_bytes(self.done),
            "stored_bytes": sum(f.stat().st_size for f in self.path.rglob("*") if f.is_file()),
        }

    def close(self) -> None:
        if self.table is not None:
            self.table.close()
        if self.path.exists():
            self.site.remove(self.path)
