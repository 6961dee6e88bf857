"""Load jobs for SQL sessions: what runs LOAD LABEL and its companions."""

from __future__ import annotations

from typing import NoReturn

from loaders.broker.statements import BrokerStatements
from store.errors import UnavailableError
from store.sql import load_jobs as sql
from store.sql.result import Result


class StoreLoadJobs(BrokerStatements):
    """Broker loads; routine loads are refused by name."""

    def create_routine(self, statement: sql.CreateRoutineLoad, database: str) -> Result:
        _refuse("CREATE ROUTINE LOAD")

    def alter_routine(self, statement: sql.AlterRoutineLoad, database: str) -> Result:
        _refuse("ALTER ROUTINE LOAD")

    def control_routine(self, statement: sql.ControlRoutineLoad, database: str) -> Result:
        _refuse(f"{statement.action} ROUTINE LOAD")

    def show_routine(self, statement: sql.ShowRoutineLoad, database: str) -> Result:
        _refuse("SHOW ROUTINE LOAD")


def _refuse(what: str) -> NoReturn:
    raise UnavailableError(
        f"{what} is understood, but routine loads cannot run yet; load files by LOAD LABEL or stream load",
        kind="no_routine_load",
    )
