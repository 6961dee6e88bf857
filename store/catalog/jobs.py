"""Records of jobs that outlive a call: broker loads, routine loads. Their owners define their content.

A job is a msgpack record in the catalog under a number that is never reused. A record that changes with data
is updated in the transaction that publishes the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from seqstore.store.catalog.catalog import CatalogTransaction, app_key, table_key, txn_key
from seqstore.store.catalog.environment import Catalog
from seqstore.store.errors import NotFoundError

Record = dict[str, Any]


class Jobs:
    """The jobs of one kind in one store.

    Args:
        kind: such as `broker`.
    """

    def __init__(self, catalog: Catalog, kind: str) -> None:
        self._catalog = catalog
        self._kind = kind

    def add(self, record: Record) -> int:
        """Stores a new job; returns its number."""
        with self._catalog.write() as tx:
            return self.add_within(tx, record)

    def get(self, job_id: int) -> Record:
        """Returns one job.

        Raises:
            NotFoundError: there is no such job.
        """
        with self._catalog.read() as tx:
            return self._read(tx, job_id)

    def all(self) -> dict[int, Record]:
        """Returns every job by its number, oldest first."""
        with self._catalog.read() as tx:
            return self.all_within(tx)

    def again(self, known: Iterable[int], above: int) -> tuple[dict[int, Record], int]:
        """Returns some jobs as far as they are still there, and all those with a number above another one.

        Returns:
            The jobs by number, and the highest number of a job of any kind; `above` without a higher one.
        """
        with self._catalog.read() as tx:
            stored = {job_id: tx.get("jobs", txn_key(job_id)) for job_id in known}
            for key, record in tx.records("jobs", start=txn_key(above + 1)):
                above = int.from_bytes(key)
                stored[above] = record
        found = {job_id: record for job_id, record in stored.items() if record is not None}
        return {job_id: each["job"] for job_id, each in found.items() if each["kind"] == self._kind}, above

    def change(self, job_id: int, change: Callable[[Record], Record | None]) -> Record:
        """Replaces a job's record by the result of a function, atomically.

        Args:
            change: receives the current record; None leaves it unchanged.

        Returns:
            The record afterwards.
        """
        with self._catalog.write() as tx:
            return self.change_within(tx, job_id, change)

    def add_within(self, tx: CatalogTransaction, record: Record) -> int:
        """Works as `add`, as a part of a larger transaction."""
        job_id = tx.next_id("job")
        tx.put("jobs", txn_key(job_id), {"kind": self._kind, "job": record})
        return job_id

    def all_within(self, tx: CatalogTransaction) -> dict[int, Record]:
        """Works as `all`, as a part of a larger transaction."""
        found = tx.records("jobs")
        return {int.from_bytes(key): stored["job"] for key, stored in found if stored["kind"] == self._kind}

    def change_within(
        self, tx: CatalogTransaction, job_id: int, change: Callable[[Record], Record | None]
    ) -> Record:
        """Works as `change`, as a part of a larger transaction."""
        before = self._read(tx, job_id)
        after = change(dict(before))
        if after is None:
            return before
        tx.put("jobs", txn_key(job_id), {"kind": self._kind, "job": after})
        return after

    def mark_within(self, tx: CatalogTransaction, job_id: int, name: str, value: Any) -> None:
        """Stores a value beside a job's record, at a cost that does not grow with their number."""
        tx.put("job_marks", app_key(job_id, name), {"name": name, "value": value})

    def marks(self, job_id: int) -> dict[str, Any]:
        """Returns the values beside a job's record, by name."""
        with self._catalog.read() as tx:
            found = tx.records("job_marks", table_key(job_id))
            return {mark["name"]: mark["value"] for _, mark in found}

    def marked(self, job_id: int, names: Iterable[str]) -> set[str]:
        """Returns those of some names that have a value beside a job's record.

        The cost does not grow with the number of values.
        """
        with self._catalog.read() as tx:
            return {name for name in names if tx.get("job_marks", app_key(job_id, name)) is not None}

    def remove(self, job_id: int) -> None:
        """Removes a job."""
        with self._catalog.write() as tx:
            for key, _ in list(tx.items("job_marks", table_key(job_id))):
                tx.delete("job_marks", key)
            tx.delete("jobs", txn_key(job_id))

    def _read(self, tx: CatalogTransaction, job_id: int) -> Record:
        stored = tx.get("jobs", txn_key(job_id))
        if stored is None or stored["kind"] != self._kind:
            raise NotFoundError(f"there is no {self._kind} job {job_id}", kind="unknown_job", job=job_id)
        record: Record = stored["job"]
        return record
