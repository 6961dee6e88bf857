"""Tables that a RESTORE SNAPSHOT is about to make: their files arrive, and no record names them yet.

The job's record has the ids until it ends, so that no sweep takes the files for those of dropped tables.
"""

from __future__ import annotations

from typing import Final

from seqstore.store.catalog.catalog import TABLES, CatalogTransaction

RESTORE_KIND: Final = "restore"
FINAL_STATES: Final = ("FINISHED", "CANCELLED")


def reserved_directories(tx: CatalogTransaction) -> set[str]:
    """Returns the directories of the tables of restorations that have not ended."""
    return {
        f"{TABLES}/{table_id}"
        for _, record in tx.records("jobs")
        if record["kind"] == RESTORE_KIND and record["job"]["state"] not in FINAL_STATES
        for table_id in record["job"]["ids"].values()
    }
