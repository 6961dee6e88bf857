"""The record of a job: its state and the process that owns it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import Field, asdict
from typing import Any, ClassVar, Final, Self

from seqstore.store.runtime.process_identity import is_alive

Owner = tuple[int, int]  # id and start time of a process
NO_OWNER: Final[Owner] = (0, 0)
CANCELLED: Final = "CANCELLED"


class JobRecord(ABC):
    """One job; its kinds are frozen dataclasses whose fields are the stored record.

    Attributes:
        state: one of the kind's own states.
        owner: the process that runs the job.
        final_states: a job in one of them never runs again.
        optional_fields: are not stored while they are empty.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    final_states: ClassVar[frozenset[str]]
    optional_fields: ClassVar[frozenset[str]] = frozenset()
    state: str
    owner: Owner

    @classmethod
    @abstractmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Builds the job from a stored record."""

    def to_record(self) -> dict[str, Any]:
        """Returns the record that `from_record` reads."""
        found = asdict(self)
        return {name: value for name, value in found.items() if value or name not in self.optional_fields}

    @property
    @abstractmethod
    def database(self) -> str:
        """Returns the database of the job."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Returns the job's name or label within its database."""

    @property
    @abstractmethod
    def end_ms(self) -> int:
        """Unix time of the end; 0 before it."""

    @abstractmethod
    def taken_over(self, owner: Owner) -> Self:
        """Returns the job in the hands of another process."""

    @property
    def has_ended(self) -> bool:
        return self.state in self.final_states

    @property
    def is_abandoned(self) -> bool:
        """Whether the job has not ended and its process has."""
        return not self.has_ended and not is_alive(self.owner)
