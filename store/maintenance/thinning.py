"""The versions that a vacuum leaves: which can be opened, and which are whole.

Without thinning both are all versions from a first one on. With `version_thinning` every version is kept
while it is young. Of older ones the last in each step of time stays, in longer steps the older they are.
Steps are those of the clock, so the next vacuum chooses the same ones. These versions stay besides:

- the first one that can be opened, which shows the table as of the end of the retention;
- the versions that live processes hold. A process that held one when it was young may read all later ones,
  too: the check of a transaction walks them. So thinning does not pass it. A version among thinned ones is
  held alone;
- the versions that pre-committed transactions have read, and those that readers of other formats may need,
  with all later ones. They can be opened, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from seqstore.store.catalog.catalog import CatalogTransaction, prepared_ids
from seqstore.store.catalog.horizon import version_at
from seqstore.store.catalog.kept_versions import KeptVersions
from seqstore.store.catalog.version_record import version_time_ms
from seqstore.store.settings import ThinningStep


@dataclass(frozen=True)
class Holders:
    """The holders of versions of a table, beside readers that open versions from now on.

    Attributes:
        held: versions that live processes hold, and that readers of other formats may need.
        of_moments: of each moment that is held, a version that was not newer. All later ones are held.
        fixed: versions that pre-committed transactions have read, and that readers of other formats may need.
    """

    held: frozenset[int]
    of_moments: frozenset[int]
    fixed: frozenset[int]


@dataclass(frozen=True)
class Ages:
    """The rules of a table.

    Attributes:
        now_ms: Unix time.
        retention_seconds: how long a version can be opened after the next one.
        steps: of thinning, the youngest first; empty for none.
    """

    now_ms: int
    retention_seconds: int
    steps: Sequence[ThinningStep]


def open_after(
    tx: CatalogTransaction, table: int, newest: int, before: KeptVersions, ages: Ages, holders: Holders
) -> KeptVersions:
    """Returns the versions that can be opened after a vacuum, some of those before it."""
    limit = min(newest, version_at(tx, table, newest, ages.now_ms - ages.retention_seconds * 1000))
    every, some = before.every, {*before.some, before.first}
    if ages.steps:
        youngest = ages.steps[0]
        aged = min(newest, version_at(tx, table, newest, ages.now_ms - youngest.age * 1000))
        # Held versions are no limit: each could be opened before the one before it is released, for ever.
        limits = {each for each in holders.fixed if each >= every}
        every = max(every, min({aged, *limits}))
        old = sorted({*some, *_last_of_steps(tx, table, before.every, every, youngest.step)})
        times = [version_time_ms(tx, table, each) for each in old]
        some = {before.first, *_chosen(old, times, ages), *(each for each in holders.fixed if each in before)}
    kept = KeptVersions.of(before.first, every, some)
    first = kept.preceding(max(limit, before.first))
    return KeptVersions.of(before.first if first is None else first, every, some)


def whole_after(before: KeptVersions, opened: KeptVersions, holders: Holders) -> KeptVersions:
    """Returns the versions that stay whole, some of those before it, among them all that can be opened."""
    bounds = {each for each in holders.held if each >= before.every}
    bounds |= {max(each, before.every) for each in holders.of_moments}
    every = max(before.every, min({opened.every, *bounds}))
    held = {each for each in holders.held if each in before}
    held |= {before.preceding(each) or before.first for each in holders.of_moments}
    first = max(min({opened.first, *held}), before.first)
    return KeptVersions.of(first, every, {first, *(each for each in opened.some if each in before), *held})


def prepared_versions(tx: CatalogTransaction, table: int) -> frozenset[int]:
    """Returns the versions of a table that pre-committed transactions have read."""
    found = [record for key, record in tx.records("prepared") if prepared_ids(key)[1] == table]
    return frozenset(record["isolation"]["version"] for record in found if record.get("isolation"))


def _last_of_steps(tx: CatalogTransaction, table: int, first: int, end: int, step: int) -> Iterator[int]:
    """Yields the last version in each step of time, of the versions from the first one to before the end."""
    version = first
    while version < end:
        after = (version_time_ms(tx, table, version) // (step * 1000) + 1) * step * 1000
        version = max(version, version_at(tx, table, end - 1, after - 1))
        yield version
        version += 1


def _chosen(versions: Iterable[int], times: Iterable[int], ages: Ages) -> set[int]:
    """Returns the last of some versions, given in ascending order, in each step of its age."""
    last: dict[tuple[int, int], int] = {}
    for version, time_ms in zip(versions, times, strict=True):
        old = (ages.now_ms - time_ms) // 1000
        step = max((each.step for each in ages.steps if each.age <= old), default=ages.steps[0].step)
        last[step, time_ms // (step * 1000)] = version
    return set(last.values())
