"""CREATE, ALTER, PAUSE, RESUME, STOP and SHOW ROUTINE LOAD, run (R1-R7, R29-R37)."""

from __future__ import annotations

from seqstore.loaders.jobs.rows_spec import lower_names
from seqstore.loaders.jobs.statements import JobStatements, spec_fields
from seqstore.loaders.routine import manage
from seqstore.loaders.routine.job import PAUSED, RoutineJob
from seqstore.loaders.routine.jobs import RoutineJobs, unknown_job
from seqstore.loaders.routine.show import (
    CREATE_COLUMNS,
    JOB_COLUMNS,
    TASK_COLUMNS,
    create_text,
    job_line,
    task_lines,
)
from seqstore.loaders.routine.spec import RoutineSpec
from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.like_pattern import LikePattern
from seqstore.store.sql.parse import load_jobs as sql
from seqstore.store.sql.result import Result, text_rows


class RoutineStatements(JobStatements):
    """Runs the statements of routine loads."""

    @property
    def _routine(self) -> RoutineJobs:
        return RoutineJobs(self._store.catalog)

    def create_routine(self, statement: sql.CreateRoutineLoad, database: str) -> Result:
        """Stores the job; `seqstore serve` or `seqstore routine-load start` runs it."""
        manage.create(self._store, spec_of(statement, database), user=self._user)
        return Result()

    def alter_routine(self, statement: sql.AlterRoutineLoad, database: str) -> Result:
        """Runs ALTER ROUTINE LOAD (R29)."""
        if statement.clauses != sql.LoadClauses():
            raise InvalidInputError(
                "ALTER ROUTINE LOAD changes PROPERTIES and source properties; columns and conditions cannot "
                "be changed, make a new job",
                kind="not_supported",
            )
        self._require_routine(database, statement.job.name)
        manage.alter(
            self._store,
            database,
            statement.job.name,
            lower_names(statement.properties),
            statement.source,
            _source_names(statement.source_properties),
        )
        return Result()

    def control_routine(self, statement: sql.ControlRoutineLoad, database: str) -> Result:
        """Runs PAUSE, RESUME and STOP ROUTINE LOAD (R5-R7).

        ALL means every job of the database that can be paused, or resumed.
        """
        if statement.job is not None:
            self._require_routine(database, statement.job.name)
            manage.control(self._routine, database, statement.job.name, statement.action)
            return Result(affected_rows=1)
        if statement.action == "STOP":
            raise InvalidInputError("STOP ROUTINE LOAD needs FOR job; it cannot be undone", kind="bad_load")
        wants_paused = statement.action == "RESUME"
        names = [
            job.spec.name
            for job in self._routine.all(database).values()
            if not job.has_ended and (job.state == PAUSED) == wants_paused and self._sees_routine(job)
        ]
        for name in names:
            manage.control(self._routine, database, name, statement.action)
        return Result(affected_rows=len(names))

    def show_routine(self, statement: sql.ShowRoutineLoad, database: str) -> Result:
        """Runs SHOW ROUTINE LOAD, SHOW ROUTINE LOAD TASK and SHOW CREATE ROUTINE LOAD (R30, R37)."""
        name = statement.job.name if statement.job is not None else None
        if name is not None:
            self._require_routine(database, name)
        pattern = LikePattern(statement.like if statement.like is not None else "%")
        found = {
            job_id: job
            for job_id, job in self._routine.all(database, name).items()
            if (statement.is_all or not job.has_ended)
            and pattern.matches(job.name)
            and self._sees_routine(job)
        }
        if statement.what == "TASKS":
            return text_rows(TASK_COLUMNS, [line for i, job in found.items() for line in task_lines(i, job)])
        if statement.what == "CREATE":
            return text_rows(CREATE_COLUMNS, [_create_line(i, job) for i, job in found.items()])
        return text_rows(JOB_COLUMNS, [job_line(i, job) for i, job in found.items()])

    def _require_routine(self, database: str, name: str) -> None:
        """Checks that a job exists, and that the user may load into its table."""
        if not self._sees_routine(self._routine.find(database, name)[1]):
            raise unknown_job(database, name)

    def _sees_routine(self, job: RoutineJob) -> bool:
        return self._may_load(job.database, [job.spec.table])


def spec_of(statement: sql.CreateRoutineLoad, database: str) -> RoutineSpec:
    """Returns the specification of a CREATE ROUTINE LOAD.

    Raises:
        InvalidInputError: it has a clause that routine loads do not have.
    """
    said = statement.clauses
    for value, clause in (
        (said.columns_from_path, "COLUMNS FROM PATH AS"),
        (said.set_columns, "SET"),
        (said.format, "FORMAT AS"),
        (said.compress_type, "COMPRESS_TYPE AS"),
    ):
        if value:
            raise InvalidInputError(f"CREATE ROUTINE LOAD has no clause {clause}", kind="bad_load")
    return RoutineSpec(
        database=database,
        name=statement.job.name,
        table=statement.table or "",
        properties=lower_names(statement.properties),
        source=statement.source,
        source_properties=_source_names(statement.source_properties),
        comment=statement.comment,
        **spec_fields(said),
    )


def _source_names(given: dict[str, str]) -> dict[str, str]:
    """Lowers the names of the source's own properties; those of the client keep their case."""
    return {
        name if name.lower().startswith("property.") else name.lower(): value for name, value in given.items()
    }


def _create_line(job_id: int, job: RoutineJob) -> tuple[str, str, str]:
    return str(job_id), job.spec.name, create_text(job)
