"""The source a routine load names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from seqstore.loaders.broker.files import identity, is_remote
from seqstore.loaders.lake.places import Places
from seqstore.loaders.routine.delta.source import PARTITION, DeltaSource
from seqstore.loaders.routine.file_source import PARTITION as FILES_PARTITION
from seqstore.loaders.routine.file_source import FileSource, file_bodies
from seqstore.loaders.routine.job import RoutineJob
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.kafka_properties import check_client, kafka_properties
from seqstore.loaders.routine.kafka_source import KafkaSource
from seqstore.loaders.routine.source import Source
from seqstore.loaders.routine.spec import DELTA, FILES
from seqstore.store.errors import InvalidInputError, StoreError
from seqstore.store.runtime.secrets.box import KEY_FILE, is_sealed
from seqstore.store.runtime.secrets.words import resolved
from seqstore.store.store import Store


def open_source(store: Store, job_id: int, job: RoutineJob) -> Source:
    """Opens the source of a job.

    Raises:
        StoreError: the source lacks a requirement.
    """
    references = [*store.settings.secret_references, *job.references]
    if job.spec.source == FILES:
        return _file_source(store, job_id, job, references)
    if job.spec.source == DELTA:
        return _delta_source(store, job_id, job)
    sealed = sorted(name for name, value in job.spec.source_properties.items() if is_sealed(value))
    if sealed:
        raise InvalidInputError(
            f"{', '.join(sealed)}: cannot be decrypted: the file {KEY_FILE} of the data directory is not the "
            "one they were stored with; restore it, or set them by ALTER ROUTINE LOAD",
            kind="secret_key",
        )
    spec = replace(job.spec, source_properties=resolved(job.spec.source_properties, references))
    check_client(kafka_properties(spec.source_properties).client, store.settings.kafka_properties)
    return KafkaSource(spec, job.wanted_offsets, store.settings.schema_registries)


def _file_source(store: Store, job_id: int, job: RoutineJob, references: Sequence[str]) -> FileSource:
    jobs = RoutineJobs(store.catalog)
    path = job.spec.source_properties["path"]
    older: set[str] = set()  # earlier versions kept names with the login
    if is_remote(path):
        older = {identity(name) for name in jobs.marks(job_id) if identity(name) != name}

    def were_read(names: Collection[str]) -> set[str]:
        return jobs.marked(job_id, names) | older.intersection(names)

    return FileSource(
        path,
        [*store.settings.load_paths, *job.allowed],
        lambda: jobs.get(job_id).progress.get(FILES_PARTITION, 0),
        were_read,
        partial(file_bodies, job.spec, store.settings.schema_registries),
        references,
    )


def _delta_source(store: Store, job_id: int, job: RoutineJob) -> DeltaSource:
    jobs = RoutineJobs(store.catalog)
    return DeltaSource(
        job.spec.source_properties,
        Places([*store.settings.load_paths, *job.allowed]),
        job.spec.options("").time_zone,
        lambda: jobs.get(job_id).progress.get(PARTITION),
        None if job.spec.columns else lambda: store.table_of_id(job.table_id).schema.names,
    )


def secrets_of(store: Store, job: RoutineJob) -> dict[str, str]:
    """Returns the source's properties with the secrets that they name, which no message may repeat."""
    references = [*store.settings.secret_references, *job.references]
    try:
        return resolved(job.spec.source_properties, references)
    except StoreError:  # so its source cannot be opened
        return {}
