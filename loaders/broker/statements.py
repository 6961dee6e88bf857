"""LOAD LABEL, SHOW LOAD and CANCEL LOAD, run (B1-B20)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from seqstore.loaders.broker.job import LoadJob
from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.broker.show import SHOW_COLUMNS, job_line
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.broker.worker import submit
from seqstore.loaders.jobs.rows_spec import lower_names
from seqstore.loaders.jobs.statements import JobStatements, Line, spec_fields
from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse import load_jobs as sql
from seqstore.store.sql.result import Result, text_rows

# Parameters of a pyarrow.fs URI by Doris's names of S3 properties.
_S3_QUERY: Final = {"endpoint": "endpoint_override", "region": "region"}
_S3_LOGIN: Final = ("access_key", "secret_key")
# Before each of them: today's, an older and the oldest way.
_S3_PREFIX: Final = re.compile(r"(s3\.|aws\.|aws_)?(.*)", re.DOTALL)
# Of the same protocol; Doris treats them all as S3.
_S3_SCHEMES: Final = ("s3", "s3a", "s3n")


class BrokerStatements(JobStatements):
    """Runs the statements of broker loads."""

    def submit(self, statement: sql.LoadLabel, database: str) -> Result:
        """Starts a job and returns (B2)."""
        spec = spec_of(statement, database)
        job_id = submit(self._store, spec, self._store.settings.load_paths, self._user)
        return Result(info=f"{{'label':'{spec.label}', 'status':'PENDING', 'jobId':'{job_id}'}}")

    def show(self, statement: sql.ShowLoad, database: str) -> Result:
        """Runs SHOW LOAD (B12)."""
        wanted, matches = statement.filter, statement.filter.label_matcher()
        lines = [
            job_line(job_id, job)
            for job_id, job in LoadJobs(self._store.catalog).all(database).items()
            if matches(job.name)
            and (wanted.state is None or job.state == wanted.state.upper())
            and self._sees_load(job)
        ]
        for column, largest_first in reversed(statement.order):
            lines.sort(key=_order_key(column), reverse=largest_first)
        end = None if statement.limit is None else statement.offset + statement.limit
        return text_rows(SHOW_COLUMNS, lines[statement.offset : end])

    def cancel(self, statement: sql.CancelLoad, database: str) -> Result:
        """Runs CANCEL LOAD (B17).

        Raises:
            NotFoundError, InvalidInputError: there is nothing to cancel.
        """
        wanted = statement.filter
        if wanted.label is None:
            raise InvalidInputError("CANCEL LOAD needs WHERE LABEL = '...'", kind="bad_load")

        matches = wanted.label_matcher()

        def is_meant(job: LoadJob) -> bool:
            return matches(job.name) and wanted.state in (None, job.state) and self._sees_load(job)

        jobs = LoadJobs(self._store.catalog)
        return Result(affected_rows=jobs.cancel(database, wanted.label, is_meant))

    def _sees_load(self, job: LoadJob) -> bool:
        return self._may_load(job.database, {each.table for each in job.spec.descriptions})


def _order_key(column: str) -> Callable[[Line], tuple[bool, int, str]]:
    """Returns the sort key of a column: NULL first, numbers by their value.

    Raises:
        InvalidInputError: SHOW LOAD has no such column.
    """
    known = {name.lower(): number for number, name in enumerate(SHOW_COLUMNS)}
    if column.lower() not in known:
        raise InvalidInputError(
            f"ORDER BY {column}: SHOW LOAD has no such column; it has {', '.join(SHOW_COLUMNS)}",
            kind="unknown_column",
        )
    number = known[column.lower()]

    def key(line: Line) -> tuple[bool, int, str]:
        value = line[number]
        if value is None:
            return False, 0, ""
        return True, int(value) if value.isdigit() else 0, value

    return key


def spec_of(statement: sql.LoadLabel, database: str) -> LoadSpec:
    """Returns the specification of a LOAD LABEL.

    Raises:
        InvalidInputError: NEGATIVE, HDFS, or properties that cannot be.
    """
    if statement.source == "HDFS":
        raise InvalidInputError(
            "LOAD ... WITH HDFS is not supported; mount the files or copy them to S3", kind="not_supported"
        )
    descriptions = tuple(_description(each, statement) for each in statement.descriptions)
    properties = lower_names(statement.properties)
    return LoadSpec(database, statement.label, descriptions, properties, statement.comment)


def _description(given: sql.DataDescription, statement: sql.LoadLabel) -> DataDescription:
    if given.is_negative:
        raise InvalidInputError(
            f"NEGATIVE is for aggregate tables; {given.table} is a unique-key table", kind="not_supported"
        )
    return DataDescription(
        table=given.table,
        paths=tuple(_uri(path, statement.source_properties) for path in given.paths),
        format=(given.clauses.format or "").lower(),
        compression=given.clauses.compress_type or "",
        columns_from_path=given.clauses.columns_from_path,
        properties=lower_names(given.properties),
        **spec_fields(given.clauses),
    )


def _uri(path: str, properties: Mapping[str, str]) -> str:
    """Returns a path of the statement as a local path, or as a URI with the properties of WITH S3. A URI of
    another storage stays as it is: the job reports that it cannot be reached.

    Raises:
        InvalidInputError: an unknown property.
    """
    if path.startswith("file://"):
        return path.removeprefix("file://")
    if "://" not in path:
        return path
    scheme, _, rest = path.partition("://")
    if scheme.lower() not in _S3_SCHEMES:
        return path
    given = _s3_properties(properties)
    query = {_S3_QUERY[name]: given[name] for name in _S3_QUERY if name in given}
    if "endpoint_override" in query:
        parts = urlsplit(query["endpoint_override"])
        if parts.netloc:
            query = {**query, "scheme": parts.scheme, "endpoint_override": parts.netloc}
    key, secret = (given.get(name, "") for name in _S3_LOGIN)
    login = f"{quote(key, safe='')}:{quote(secret, safe='')}@" if key else ""
    return f"s3://{login}{rest}" + (f"?{urlencode(query)}" if query else "")


def _s3_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of WITH S3 by names without prefix.

    Raises:
        InvalidInputError: an unknown name. Without its endpoint or key, a load would read another server.
    """
    given = {}
    for name, value in properties.items():
        found = _S3_PREFIX.fullmatch(name.lower())
        assert found is not None
        plain = found[2]
        if plain not in _S3_QUERY and plain not in _S3_LOGIN:
            known = ", ".join(f"s3.{each}" for each in (*_S3_QUERY, *_S3_LOGIN))
            raise InvalidInputError(
                f"WITH S3: Unknown property: {name}; expected some of {known}", kind="unknown_property"
            )
        given[plain] = value
    return given
