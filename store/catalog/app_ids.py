"""Idempotent writes by application id and version (`txnAppId`, `txnVersion`).

A writer that repeats itself after a crash numbers its writes under an id of its own, in ascending order. The
pair is stored with the data at one commit point. A number that is not larger than the stored one is a
repetition: the write is skipped and reported as DUPLICATE. A write that changes nothing stores its pair too:
repeated later, it might change rows. Gaps are fine. Two runs that both looked before either committed: the
second one fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.environment import Catalog
from seqstore.store.errors import InvalidInputError

DUPLICATE: Final = "DUPLICATE"


@dataclass(frozen=True)
class AppWrite:
    """The pair of an idempotent write: recorded with its data or not at all.

    Attributes:
        app_id, version: as the writer names them; versions grow.
        seen_txn: the transaction that had recorded the id when the writer looked, 0 if none.
        seen_version: the table's version then.
        stored: the version recorded for the id then, -1 if none.
        first_version: the table version that `seen_txn` made.
    """

    app_id: str
    version: int
    seen_txn: int = 0
    seen_version: int = 0
    stored: int = -1
    first_version: int = 0

    @property
    def is_duplicate(self) -> bool:
        return self.stored >= self.version

    @property
    def skipped(self) -> str:
        """The message for a write that was skipped."""
        return (
            f"skipped: txnAppId {self.app_id!r} has committed txnVersion {self.stored} as table "
            f"version {self.first_version}, and txnVersion {self.version} is not larger"
        )

    def to_record(self) -> dict[str, Any]:
        """Returns the part that a pre-committed write keeps."""
        return {name: self.__dict__[name] for name in ("app_id", "version", "seen_txn", "seen_version")}


def find_app(catalog: Catalog, table_id: int, app_id: str | None, version: int | None) -> AppWrite | None:
    """Returns the pair of a write, None when it has none.

    Raises:
        InvalidInputError: one without the other, or a version that is no non-negative integer.
        UnavailableError: the earlier write was to be shipped before it is acknowledged, and cannot be.
    """
    if not check_pair(app_id, version):
        return None
    assert app_id is not None
    assert version is not None
    with catalog.read() as tx:
        stored = tx.get("apps", records.app_key(table_id, app_id))
        seen_version, _ = tx.get("heads", records.table_key(table_id)) or (0, 0)
    if stored is None:
        return AppWrite(app_id, version, seen_version=seen_version)
    found = AppWrite(
        app_id, version, stored["txn"], seen_version, int(stored["version"]), int(stored["table_version"])
    )
    if found.is_duplicate:
        catalog.require_shipped()
    return found


def check_pair(app_id: str | None, version: int | None) -> bool:
    """Returns whether there is a pair.

    Raises:
        InvalidInputError: as `find_app`.
    """
    if app_id is None and version is None:
        return False
    if app_id is None or version is None:
        missing = "txnAppId" if app_id is None else "txnVersion"
        raise InvalidInputError(
            f"txnAppId and txnVersion go together, {missing} is missing", kind="bad_app_id"
        )
    if not app_id or isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 2**63:
        raise InvalidInputError(
            f"txnAppId {app_id!r}, txnVersion {version!r}: expected a name and an integer from 0 to 2^63 - 1",
            kind="bad_app_id",
        )
    return True
