"""Commands that run as statements of SQL at a server: backups, restorations, routine loads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import typer

from seqstore.cli import output, progress
from seqstore.store import NotFoundError, StoreError
from seqstore.store.remote.remote_store import RemoteStore
from seqstore.store.sql import Session
from seqstore.store.sql.session.show_output import literal, quoted

_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True)
class Backup:
    """Backups of a database at a server.

    Attributes:
        target: a directory of the server's host, or a URI.
    """

    store: RemoteStore
    database: str
    label: str
    target: str

    def __post_init__(self) -> None:
        if "://" not in self.target and not self.target.startswith("/"):
            raise typer.BadParameter(
                f"{self.target!r}: expected a URI, or the absolute path of a directory of the server's host"
            )

    def make(self, tables: Sequence[str], *, verify: bool) -> None:
        """Makes a backup and waits for it."""
        objects = f" ON ({', '.join(map(quoted, tables))})" if tables else ""
        properties = " PROPERTIES ('verify' = 'true')" if verify else ""
        job = self._run(
            f"BACKUP SNAPSHOT {self._name} TO {literal(self.target)}{objects}{properties}", "BACKUP"
        )
        output.say(f"{self.database}.{self.label}: {job['Progress']}")

    def restore(self, tables: Sequence[str], timestamp: str, *, is_replacing: bool) -> None:
        """Restores a backup and waits for that."""
        if self.database not in self.store.databases():
            self.store.create_database(self.database, if_not_exists=True)
        pairs = [name.partition("=") for name in tables]
        names = [f"{quoted(name)} AS {quoted(new)}" if new else quoted(name) for name, _, new in pairs]
        objects = f" ON ({', '.join(names)})" if names else ""
        given = {"backup_timestamp": timestamp, "atomic_restore": "true" if is_replacing else ""}
        properties = ", ".join(f"'{name}' = {literal(value)}" for name, value in given.items() if value)
        job = self._run(
            f"RESTORE SNAPSHOT {self._name} FROM {literal(self.target)}{objects}"
            + (f" PROPERTIES ({properties})" if properties else ""),
            "RESTORE",
        )
        output.say(f"{self.database}.{self.label} {job['Timestamp']}: restored, {job['Progress']}")

    @property
    def _name(self) -> str:
        return f"{quoted(self.database)}.{quoted(self.label)}"

    def _run(self, statement: str, kind: str) -> Mapping[str, Any]:
        """Runs a statement, and waits for its job, whose row of SHOW it returns."""
        shown = f"SHOW {kind} FROM {quoted(self.database)}"
        with Session(self.store) as session:
            before = {row["JobId"] for row in _rows(session, shown)}
            list(session.execute(statement))
            said = ""
            while True:
                found = [row for row in _rows(session, shown) if row["JobId"] not in before]
                job: Mapping[str, Any] = found[-1]
                progress.doing(job["State"])
                if job["State"] != said:
                    said = job["State"]
                    output.say(f"{said} {job['Progress']}")
                if said == "FINISHED":
                    return job
                if said == "CANCELLED":
                    raise StoreError(f"{self.database}.{self.label}: {job['TaskErrMsg']}", kind="cancelled")
                time.sleep(_POLL_SECONDS)


def control_job(store: RemoteStore, action: str, database: str, name: str) -> None:
    """Runs PAUSE, RESUME or STOP ROUTINE LOAD."""
    with Session(store) as session:
        list(session.execute(f"{action} ROUTINE LOAD FOR {quoted(database)}.{quoted(name)}"))


def jobs_shown(
    store: RemoteStore, database: str | None, name: str | None, every: str, *, is_of_tasks: bool
) -> Iterator[pa.Table]:
    """Yields the rows of SHOW ROUTINE LOAD, or of SHOW ROUTINE LOAD TASK, of one database or of all.

    Args:
        every: `ALL ` shows jobs that have ended, too.

    Raises:
        NotFoundError: there is no such job.
    """
    with Session(store) as session:
        for each in [database] if database is not None else store.databases():
            list(session.execute(f"USE {quoted(each)}"))
            which = f" FOR {quoted(name)}" if name is not None and not is_of_tasks else ""
            if is_of_tasks:
                where = f" WHERE JobName = {literal(name)}" if name is not None else ""
                text = f"SHOW ROUTINE LOAD TASK{where}"
            else:
                text = f"SHOW {every}ROUTINE LOAD{which}"
            found = [result.rows for result in session.execute(text) if result.rows is not None]
            if name is not None and not is_of_tasks and not any(rows.num_rows for rows in found) and every:
                raise NotFoundError(f"{each}.{name}: no such routine load", kind="unknown_job")
            yield from (rows for rows in found if rows.num_rows or database is not None)


def _rows(session: Session, text: str) -> list[dict[str, Any]]:
    (result,) = session.execute(text)
    assert result.rows is not None
    found: list[dict[str, Any]] = result.rows.to_pylist()
    return found
