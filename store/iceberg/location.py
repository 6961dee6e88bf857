"""The place of a table's Iceberg copy."""

from __future__ import annotations

from typing import Final

_DIRECTORY: Final = "iceberg"


def iceberg_directory(directory: str) -> str:
    """Returns the path, below the data directory, of the Iceberg table of the table with that directory."""
    return f"{_DIRECTORY}/{directory.rpartition('/')[2]}"
