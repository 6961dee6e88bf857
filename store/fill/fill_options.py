"""Options of filling: the load's mode, moment and treatment of new keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class FillOptions:
    """How a delta is filled.

    Attributes:
        flexible: per-row column sets; decides between P26 and F22, and the words of an error.
        refuse_new_keys: a key without a live row fails the load (P10).
        now: the load's one moment (A3, A4).
        again: rows of these keys were filled and staged before, as of an earlier version.
        is_change: the rows were computed from rows that their transaction read (fill.update_after_delete).
    """

    flexible: bool = False
    refuse_new_keys: bool = False
    now: datetime = datetime.min
    again: bool = False
    is_change: bool = False
