"""Creation, control and change of routine loads (R2-R8, R29)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from seqstore.loaders.lake.places import Places
from seqstore.loaders.routine.delta.properties import complete_properties
from seqstore.loaders.routine.file_source import complete_path
from seqstore.loaders.routine.job import BY_USER, PAUSED, RoutineJob
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.kafka_change import with_kafka
from seqstore.loaders.routine.kafka_properties import (
    KafkaProperties,
    check_brokers,
    check_client,
    kafka_properties,
    with_group,
)
from seqstore.loaders.routine.properties import ALTERABLE
from seqstore.loaders.routine.spec import DELTA, FILES, KAFKA, RoutineSpec
from seqstore.loaders.routine.topics import PATTERN
from seqstore.loaders.row_source import Target
from seqstore.store.catalog.catalog import require_database
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime.secrets.references import check_reference
from seqstore.store.runtime.secrets.words import references_in
from seqstore.store.store import Store

PAUSED_BY_USER: Final = "User pauses routine load job"
_CONTROLS: Final[Mapping[str, Callable[[RoutineJob], RoutineJob]]] = {
    "PAUSE": lambda job: job.paused(BY_USER, PAUSED_BY_USER),
    "RESUME": lambda job: job.resumed(),
    "STOP": lambda job: job.stopped(),
}


def create(
    store: Store,
    spec: RoutineSpec,
    *,
    user: str = "root",
    allowed: Sequence[str] = (),
    references: Sequence[str] = (),
) -> int:
    """Stores a new job for the runners (R4) and returns its number.

    Args:
        allowed: directories and URIs below which files may be read, beside those of the settings.
        references: secrets that the job may name, beside those of the settings.

    Raises:
        NotFoundError: no such database or table.
        AlreadyExistsError: the name is in use (R2).
        InvalidInputError, AccessDeniedError: the specification is refused.
    """
    table = None if spec.is_multi else store.table(f"{spec.database}.{spec.table}")
    with store.catalog.read() as tx:
        database_id = require_database(tx, spec.database)
    spec.check(None if table is None else Target(table.schema, table.name))
    secrets = [*store.settings.secret_references, *references]
    if spec.source == FILES:
        path = complete_path(spec.source_properties, [*store.settings.load_paths, *allowed], secrets)
        spec = replace(spec, source_properties={"path": path})
    elif spec.source == DELTA:
        assert table is not None  # by the check
        places = Places([*store.settings.load_paths, *allowed])
        properties = complete_properties(spec.source_properties, places, store.catalog, table.id)
        spec = replace(spec, source_properties=properties)
    else:
        found = _check_kafka(store, spec.source_properties, user, database_id)
        if found.pattern and found.partitions:
            raise InvalidInputError(
                f"kafka_partitions belongs to kafka_topic, found {PATTERN}, which reads all partitions",
                kind="bad_property",
            )
        _check_secrets(spec.source_properties, secrets)
        spec = replace(spec, source_properties=with_group(spec.name, spec.source_properties))
    table_id = table.id if table is not None else 0
    job = RoutineJob(spec, table_id, now_ms(), database_id=database_id, allowed=tuple(allowed), user=user)
    job = replace(job, references=tuple(references))
    return RoutineJobs(store.catalog).add(job)


def _check_kafka(store: Store, given: Mapping[str, str], user: str, database_id: int = 0) -> KafkaProperties:
    """Checks the properties of a Kafka job against the settings (R24); raises as `create`."""
    found, settings = kafka_properties(given, database_id), store.settings
    account = store.accounts.find(user)
    is_administrator = account is not None and account.may("ADMIN")
    check_brokers(found.brokers, settings.kafka_brokers, is_administrator=is_administrator)
    check_client(found.client, settings.kafka_properties)
    return found


def _check_secrets(given: Mapping[str, str], allowed: Sequence[str]) -> None:
    for name, reference in references_in(given).items():
        check_reference(name, reference, allowed)


def control(jobs: RoutineJobs, database: str, name: str, action: str) -> None:
    """Pauses, resumes or stops a job (R6, R7); rows that its tasks have not committed are dropped (R12).

    Args:
        action: PAUSE, RESUME or STOP.

    Raises:
        NotFoundError: there is no such job.
        InvalidInputError: the job's state excludes the action (R5).
    """
    job_id, _ = jobs.find(database, name)
    jobs.change(job_id, _CONTROLS[action])


def alter(
    store: Store,
    database: str,
    name: str,
    properties: Mapping[str, str],
    source: str,
    source_properties: Mapping[str, str],
    *,
    user: str = "root",
) -> None:
    """Changes a paused job (R29).

    Args:
        user: changes it, and must be allowed to name the brokers.

    Raises:
        NotFoundError: there is no such job, or its table was dropped.
        InvalidInputError: it is not paused, or one of the arguments cannot be changed.
    """
    jobs = RoutineJobs(store.catalog)
    job_id, found = jobs.find(database, name)
    _check_alterable(found, properties, source, source_properties)
    table = None if found.spec.is_multi else store.table_of_id(found.table_id)
    target = None if table is None else Target(table.schema, table.name)

    def altered(job: RoutineJob) -> RoutineJob:
        if job.state != PAUSED:
            raise InvalidInputError("Only supports modification of PAUSED jobs", kind="bad_state")
        spec = replace(job.spec, properties={**job.spec.properties, **properties})
        spec.check(target)
        job = replace(job, spec=spec)
        if source != KAFKA:
            return job
        changed = with_kafka(job, source_properties)
        _check_kafka(store, changed.spec.source_properties, user)
        # Other brokers would get the secrets that the maker of the job was allowed.
        _check_secrets(changed.spec.source_properties, store.settings.secret_references)
        return replace(changed, references=())

    jobs.change(job_id, altered)


def _check_alterable(
    found: RoutineJob, properties: Mapping[str, str], source: str, source_properties: Mapping[str, str]
) -> None:
    """Refuses properties that cannot be changed, and those of another source; raises as `alter`."""
    for each in properties:
        if each not in ALTERABLE:
            raise InvalidInputError(
                f"{each} is invalid property; ALTER ROUTINE LOAD changes {', '.join(sorted(ALTERABLE))}",
                kind="bad_property",
            )
    if source and source != found.spec.source:
        raise InvalidInputError(
            f"The specified job type {source} is not the type of job {found.spec.name}, {found.spec.source}",
            kind="bad_property",
        )
    if source in (FILES, DELTA) and source_properties:
        raise InvalidInputError(
            f"ALTER ROUTINE LOAD ... FROM {source}: nothing of it can be changed; make a new job",
            kind="not_supported",
        )
