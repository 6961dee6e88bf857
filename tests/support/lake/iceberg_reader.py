"""Opens Iceberg tables as readers without a catalog do: by their directory."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from pyiceberg.table import StaticTable


def static_table(directory: Path) -> StaticTable:
    """Returns a table at its newest version, by pyiceberg."""
    if version("pyiceberg").startswith("0.10."):  # it leaves `%s` in the name of the file that it opens
        metadata = directory / "metadata"
        hint = (metadata / "version-hint.text").read_text(encoding="utf-8")
        return StaticTable.from_metadata(str(metadata / f"v{hint}.metadata.json"))
    return StaticTable.from_metadata(str(directory))
