"""The offsets of a job against the bounds of its source (R27)."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from seqstore.loaders.routine.job import RoutineJob, Task
from seqstore.loaders.routine.source import Bounds, Span
from seqstore.loaders.routine.spec import DELTA, KAFKA


@dataclass(frozen=True)
class OffsetTrouble:
    """Offsets that the source does not have.

    Attributes:
        reason: empty when there is no trouble.
        moved: offsets that the reset policy of the job puts in their place; empty without such a policy.
    """

    reason: str = ""
    moved: Mapping[str, int] = field(default_factory=dict)


def spans_of(job: RoutineJob, task: Task) -> list[Span]:
    """Returns the next offsets of a task: up to the known ends, and at most a full batch."""
    limit = job.spec.limits.rows
    found = [
        Span(name, job.progress[name], min(job.latest.get(name, 0), job.progress[name] + limit))
        for name in task.partitions
        if name in job.progress
    ]
    return [span for span in found if span.start < span.end]


def offset_trouble(job: RoutineJob, bounds: Mapping[str, Bounds]) -> OffsetTrouble:
    """Compares the offsets of a job with the bounds of its partitions."""
    reasons: list[str] = []
    moved: dict[str, int] = {}
    policy = _reset_policy(job)
    for name, offset in job.progress.items():
        found = bounds.get(name)
        if found is None or found.earliest <= offset <= found.latest:
            continue
        reason = _out_of_bounds(
            name, offset, found, "kafka latest offset" if job.spec.source == KAFKA else "the newest"
        )
        if policy:
            moved[name] = _reset(found, policy)
            reason += f"; moved to {moved[name]}, for property.auto.offset.reset is {policy}"
        reasons.append(reason)
    if not reasons:
        return OffsetTrouble()
    return OffsetTrouble("; ".join(reasons) + ("" if moved else _remedy(job)), moved)


def recreated_trouble(job: RoutineJob, bounds: Mapping[str, Bounds], gone: Set[str]) -> OffsetTrouble:
    """Describes a log that was deleted and created again: every offset belongs to the deleted one.

    Args:
        gone: the partitions of the job that belong to it.
    """
    policy = _reset_policy(job)
    read = {name: offset for name, offset in job.progress.items() if name in gone}
    reason = (
        f"the topic was deleted and created again after it was read up to {read}: offsets "
        "of the deleted topic do not apply to the new one"
    )
    if not policy:
        which = "of it" if len(gone) < len(job.progress) else ""
        return OffsetTrouble(f"{reason}{_remedy(job)}; state an offset for every partition {which}".rstrip())
    is_all = len(gone) == len(job.progress)
    moved = {name: _reset(found, policy) for name, found in bounds.items() if is_all or name in gone}
    return OffsetTrouble(f"{reason}; moved to {moved}, for property.auto.offset.reset is {policy}", moved)


def _out_of_bounds(name: str, offset: int, found: Bounds, newest: str) -> str:
    if offset < found.earliest:
        return (
            f"partition {name}: offset out of range: {offset} to {found.earliest - 1} are gone from the "
            f"source, the oldest is {found.earliest}"
        )
    return f"partition {name}: offset {offset} is greater than {newest} {found.latest}"


def _reset(found: Bounds, policy: str) -> int:
    return found.earliest if policy == "earliest" else found.latest


def _reset_policy(job: RoutineJob) -> str:
    policy = job.spec.source_properties.get("property.auto.offset.reset", "").lower()
    return policy if policy in ("earliest", "latest") else ""


def _remedy(job: RoutineJob) -> str:
    if job.spec.source == DELTA:
        return "; STOP the job and make a new one, which begins with all rows"
    return (
        f'; ALTER ROUTINE LOAD FOR {job.spec.name} FROM {job.spec.source} ("kafka_partitions" = "..", '
        '"kafka_offsets" = ".."), then RESUME ROUTINE LOAD'
    )
