"""The record of one version of a table, as the catalog holds it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VersionMetrics:
    """What history shows of a version, beside what its segments tell."""

    rows_total: int = 0
    rows_loaded: int = 0
    rows_filtered: int = 0
    rows_superseded: int = 0
    rows_late: int = 0
    rows_replaced: int = 0
    rows_deleted: int = 0
    rows_too_late: int = 0
    bytes_written: int = 0
    milliseconds: int = 0
