"""The jobs of one kind in a store: each change is one transaction of the catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.job_record import JobRecord, Owner
from seqstore.store.catalog.jobs import Jobs, Record
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.runtime.secrets.box import KEY_FILE, SecretBox
from seqstore.store.runtime.secrets.words import changed_secrets

J = TypeVar("J", bound=JobRecord)

# Of open catalogs, by type of job: those that had not ended at the last look, and the highest number of all.
_Seen = dict[type[JobRecord], tuple[tuple[int, ...], int]]
_seen: Final[WeakKeyDictionary[Catalog, _Seen]] = WeakKeyDictionary()


class JobStore(Generic[J]):
    """Safe to share between threads: the catalog is read at every call.

    Args:
        kind: of the records in the catalog.
        job_type: builds jobs from records.
    """

    def __init__(self, catalog: Catalog, kind: str, job_type: type[J]) -> None:
        self._catalog = catalog
        self._records = Jobs(catalog, kind)
        self._job_type = job_type
        self._secrets = SecretBox(catalog.data_dir / KEY_FILE)
        self._seen = _seen.setdefault(catalog, {})

    def add(self, job: J) -> int:
        """Stores a new job and returns its number."""
        with self._catalog.write() as tx:
            self._check_new(tx, job)
            return self.add_within(tx, job)

    def add_within(self, tx: CatalogTransaction, job: J) -> int:
        """Stores a new job as a part of a larger transaction, unchecked."""
        return self._records.add_within(tx, self._sealed(job))

    def get(self, job_id: int) -> J:
        return self._opened(self._records.get(job_id))

    def all(self, database: str | None = None, name: str | None = None) -> dict[int, J]:
        """Returns jobs by number, oldest first."""
        return {
            job_id: job
            for job_id, job in self._stored().items()
            if database in (None, job.database) and name in (None, job.name)
        }

    def living(self) -> dict[int, J]:
        """Returns the jobs that have not ended, by number.

        Reads no ended job twice: there are thousands of them, and a server looks twice a second.
        """
        known, highest = self._seen.get(self._job_type, ((), -1))
        records, highest = self._records.again(known, highest)
        living = {job_id: job for job_id, job in self._jobs_of(records).items() if not job.has_ended}
        self._seen[self._job_type] = tuple(living), highest
        return living

    def abandoned(self) -> list[int]:
        """Returns the numbers of jobs whose process ended before them."""
        return [job_id for job_id, job in self.living().items() if job.is_abandoned]

    def take_over(self, job_id: int, owner: Owner) -> J:
        """Hands an abandoned job to another process; `owner` of the result shows whether it has it now."""
        return self.change(job_id, lambda job: job.taken_over(owner) if job.is_abandoned else job)

    def change(self, job_id: int, change: Callable[[J], J]) -> J:
        """Replaces a job by the result of a function, and returns it; an equal result writes nothing.

        Nothing is read after the commit, so an error means that the job is unchanged.
        """
        found: list[J] = []

        def kept(job: J) -> J:
            found.append(change(job))
            return found[-1]

        self._records.change(job_id, self._on_record(kept))
        return found[-1]

    def change_within(self, tx: CatalogTransaction, job_id: int, change: Callable[[J], J]) -> None:
        """Changes a job as a part of a larger transaction."""
        self._records.change_within(tx, job_id, self._on_record(change))

    def forget_ended(self, keep_seconds: int) -> None:
        """Removes jobs that ended longer ago than labels are kept."""
        before = now_ms() - keep_seconds * 1000
        for job_id, job in self._stored().items():
            if job.has_ended and job.end_ms < before:
                self._records.remove(job_id)

    def _check_new(self, tx: CatalogTransaction, job: J) -> None:
        """Raises when the stored jobs exclude a new one."""

    def _stored(self) -> dict[int, J]:
        return self._jobs_of(self._records.all())

    def _jobs_of(self, records: dict[int, Record]) -> dict[int, J]:
        return {job_id: self._opened(record) for job_id, record in records.items()}

    def seal_stored(self) -> None:
        """Encrypts secrets that earlier versions stored as text."""
        for job_id, record in self._records.all().items():
            if changed_secrets(record, self._secrets.seal) != record:
                self._records.change(job_id, lambda stored: changed_secrets(stored, self._secrets.seal))

    def _sealed(self, job: J) -> Record:
        sealed: Record = changed_secrets(job.to_record(), self._secrets.seal)
        return sealed

    def _opened(self, record: Record) -> J:
        return self._job_type.from_record(changed_secrets(record, self._secrets.opened))

    def _on_record(self, change: Callable[[J], J]) -> Callable[[Record], Record | None]:
        def changed(record: Record) -> Record | None:
            before = self._opened(record)
            after = change(before)
            return None if after == before else self._sealed(after)

        return changed
