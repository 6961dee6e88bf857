"""UPGRADE UNIFORM: the newest version of a table for readers of Iceberg.

A table that is open for Iceberg appears by itself, in its own files: the statement shows its newest version.
Any other table gets an Iceberg copy as of its last upgrade:

1. Column types that Iceberg lacks are refused first.
2. Dead rows are purged, as REORG ... APPLY (PURGE) does.
3. The feature `icebergCompatV<n>` is listed. A transaction that began before and commits after that finds a
   changed protocol (ISO10).
4. The newest version is written as an Iceberg table (iceberg.export).

Later versions reach Iceberg readers with the next upgrade, not automatically.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from seqstore.store.ddl.alter import Altered, alter, schema_change
from seqstore.store.errors import InvalidInputError, UnavailableError
from seqstore.store.iceberg.iceberg_version import IcebergVersion
from seqstore.store.maintenance.compaction import purge
from seqstore.store.open_table.iceberg_files import HINT, METADATA
from seqstore.store.schema.table_schema import TableSchema

if TYPE_CHECKING:
    from seqstore.store.open_table.open_table import OpenTable
    from seqstore.store.read.versioned_table import VersionedTable

_OPERATION: Final = "REORG TABLE UPGRADE UNIFORM"
_FEATURES: Final = {1: "icebergCompatV1", 2: "icebergCompatV2"}


def upgrade_uniform(table: VersionedTable, opened: OpenTable, compatibility: int) -> IcebergVersion:
    """Shows the newest version of an open table; purges another one, lists the feature and writes the copy.

    Args:
        opened: shows the table.
        compatibility: 1 or 2; 1 has no nested types.

    Raises:
        InvalidInputError: another compatibility, or a column that Iceberg has no type for.
        ConflictError: the schema was changed meanwhile.
        UnavailableError: the package pyiceberg is not installed, or the disk cannot be written.
    """
    if compatibility not in _FEATURES:
        raise InvalidInputError(
            f"ICEBERG_COMPAT_VERSION: expected {' or '.join(map(str, _FEATURES))}, found {compatibility}",
            kind="not_supported",
        )
    if "iceberg" in table.schema.open_formats:
        return _shown(table, opened)
    if importlib.util.find_spec("pyiceberg") is None:
        raise UnavailableError(
            "Iceberg metadata is written by the package 'pyiceberg', which is not installed; "
            "pip install 'seqstore[iceberg]'",
            kind="missing_extra",
        )
    from seqstore.store.iceberg.export import check_types, write_iceberg

    schema = table.schema
    check_types(schema, compatibility)
    purge(table)
    change = _with_feature(_FEATURES[compatibility])
    alter(table, [change], expected_revision=schema.revision, operation=_OPERATION)
    return write_iceberg(table, iceberg_directory(table.loader.directory))


def _shown(table: VersionedTable, opened: OpenTable) -> IcebergVersion:
    """Shows the newest version of an open table in its own files."""
    opened.show()
    state = table.state()
    live = [each for each in state.segments.values() if each.deletes.live_count]
    directory = table.loader.disk.path(f"{table.loader.directory}/{METADATA}")
    newest = (directory / HINT).read_text(encoding="utf-8").strip()
    return IcebergVersion(
        state.version,
        directory / f"v{newest}.metadata.json",
        len(live),
        sum(each.deletes.live_count for each in live),
        sum(each.segment.meta.data_bytes for each in live),
    )


def iceberg_directory(directory: str) -> str:
    """Returns the path, below the data directory, of the Iceberg table of the table with that directory."""
    return f"iceberg/{directory.rpartition('/')[2]}"


@schema_change
def _with_feature(schema: TableSchema, name: str) -> Altered:
    others = [feature for feature in _FEATURES.values() if feature != name and feature in schema.features]
    kept = [feature for feature in schema.features if feature not in (name, *others)]
    changed = replace(schema, features=(*kept, name))
    return Altered(changed, (), (f"+{name}", *(f"-{other}" for other in others)))
