"""All stores of records, by name; ours in process comes first."""

from __future__ import annotations

from typing import Final

from bench.records.base import RecordStore
from bench.records.embedded import DuckRecords, LmdbRecords, SqliteRecords
from bench.records.ours import SeqstoreInProcess, SeqstoreMysql
from bench.records.postgres import PostgresRecords

STORES: Final[dict[str, type[RecordStore]]] = {
    store.name: store
    for store in (
        SeqstoreInProcess,
        SeqstoreMysql,
        DuckRecords,
        SqliteRecords,
        LmdbRecords,
        PostgresRecords,
    )
}
OURS: Final = (SeqstoreInProcess.name, SeqstoreMysql.name)
