"""Answers: what a process has read from the catalog (`Catalog.recall`), kept while it must be the same.

Most statements read the same records: the user's privileges and workload group, the id of a table, its head.

1. An answer is kept with the number of the commit that it was read at, and the databases that were touched.
2. It holds while that is the newest commit. LMDB has this number in shared memory; reading it needs no
   transaction.
3. Commits of this process that touch none of its databases do not end it: loads do not end what is known of
   users. A commit of another process ends all answers, as only its number is known.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_ANSWERS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """What was read at a commit from some databases."""

    value: Any
    commit: int
    databases: Collection[str]


class Answers:
    """The answers of one environment; threads share it. Only the leader of a commit calls `note_commit`.

    Attributes:
        known: answers by what was asked; a caller tests whether they hold.
    """

    def __init__(self) -> None:
        self.known: dict[Hashable, Answer] = {}
        # All commits after the first number up to the second were made by this process. One assignment
        # changes both.
        self._own = (0, 0)
        self._touched: dict[str, int] = {}  # the last of the process's own commits, by database

    def holds(self, answer: Answer, newest: int) -> bool:
        """Returns whether an earlier answer still holds at the newest commit."""
        first, last = self._own
        return (
            last == newest
            and first <= answer.commit
            and all(self._touched.get(name, 0) <= answer.commit for name in answer.databases)
        )

    def keep(self, of: Hashable, answer: Answer) -> None:
        """Keeps an answer; forgets all others when there are too many."""
        if len(self.known) >= _ANSWERS_MAX:
            self.known = {}
        self.known[of] = answer

    def note_commit(self, number: int, databases: Collection[str], found: Mapping[Hashable, Any]) -> None:
        """Notes a commit of this process, the databases that it touched, and answers that hold after it."""
        for name in databases:
            self._touched[name] = number
        first, last = self._own
        self._own = (first if last == number - 1 else number - 1, number)
        for of, value in found.items():
            self.keep(of, Answer(value, number, databases))
