"""What every job states: whether it has ended, and whether the process that runs it is gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import pytest

from seqstore.store.catalog.job_record import CANCELLED, NO_OWNER, JobRecord, Owner
from seqstore.store.runtime.process_identity import this_process


@dataclass(frozen=True)
class SomeJob(JobRecord):
    """A job of no kind."""

    state: str = "RUNNING"
    owner: Owner = NO_OWNER
    reason: str = ""
    rows: int = 0

    final_states = frozenset({"FINISHED", CANCELLED})
    optional_fields = frozenset({"reason"})

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        return cls(**record)

    @property
    def database(self) -> str:
        return "db"

    @property
    def name(self) -> str:
        return "job"

    @property
    def end_ms(self) -> int:
        return 0

    def taken_over(self, owner: Owner) -> Self:
        return replace(self, owner=owner)


GONE: Owner = (this_process()[0], this_process()[1] - 1)  # the id was given to this process meanwhile


@pytest.mark.parametrize(
    ("job", "stored"),
    [
        (SomeJob(), {"state": "RUNNING", "owner": NO_OWNER, "rows": 0}),
        (SomeJob(reason="x"), {"state": "RUNNING", "owner": NO_OWNER, "rows": 0, "reason": "x"}),
    ],
)
def test_an_optional_field_is_stored_unless_it_is_empty(job: SomeJob, stored: dict[str, Any]) -> None:
    assert job.to_record() == stored
    assert SomeJob.from_record(job.to_record()) == job


@pytest.mark.parametrize(
    ("state", "has_ended"), [("PENDING", False), ("RUNNING", False), ("FINISHED", True), (CANCELLED, True)]
)
def test_a_job_has_ended_in_its_final_states(state: str, has_ended: bool) -> None:
    assert SomeJob(state).has_ended is has_ended


@pytest.mark.parametrize(
    ("job", "is_abandoned"),
    [
        (SomeJob(owner=this_process()), False),
        (SomeJob(owner=GONE), True),
        (SomeJob(owner=NO_OWNER), True),
        (SomeJob("FINISHED", GONE), False),
        (SomeJob("FINISHED", this_process()), False),
    ],
)
def test_a_job_is_abandoned_when_its_process_ended_before_it(job: SomeJob, is_abandoned: bool) -> None:
    assert job.is_abandoned is is_abandoned
