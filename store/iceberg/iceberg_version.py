"""What UPGRADE UNIFORM answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class IcebergVersion:
    """A written version.

    Attributes:
        version: its table version.
        metadata: the file at which a reader starts.
        files, rows, bytes: data files.
    """

    version: int
    metadata: Path
    files: int
    rows: int
    bytes: int
