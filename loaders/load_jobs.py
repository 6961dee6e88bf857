"""Runs LOAD LABEL, CREATE ROUTINE LOAD, their related statements, CREATE TABLE .. FROM and OPTIMIZE on Spark
for SQL sessions.

The modules of the jobs are imported by the first such statement: `seqstore sql` starts without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqstore.store.runtime.lazy import cached_property

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from seqstore.loaders.broker.statements import BrokerStatements
    from seqstore.loaders.routine.statements import RoutineStatements
    from seqstore.store.maintenance.compaction import CompactionResult
    from seqstore.store.sql.parse import load_jobs as sql
    from seqstore.store.sql.result import Result
    from seqstore.store.store import Store
    from seqstore.store.table import Table


class StoreLoadJobs:
    """Broker loads and routine loads of one store.

    Args:
        user: the owner of new jobs; `root` for sessions without privileges.
    """

    def __init__(self, store: Store, user: str = "root") -> None:
        self._store = store
        self._user = user

    @cached_property
    def _broker(self) -> BrokerStatements:
        from seqstore.loaders.broker.statements import BrokerStatements

        return BrokerStatements(self._store, self._user)

    @cached_property
    def _routine(self) -> RoutineStatements:
        from seqstore.loaders.routine.statements import RoutineStatements

        return RoutineStatements(self._store, self._user)

    def optimize(
        self, table: Table, where: pc.Expression | None, *, zorder_by: Sequence[str], full: bool
    ) -> CompactionResult:
        """Runs OPTIMIZE with the engine `spark`."""
        from seqstore.loaders.spark.optimize import optimize_here

        master = self._store.settings.load_spark_master
        return optimize_here(table, where, zorder_by=zorder_by, full=full, master=master)

    def submit(self, statement: sql.LoadLabel, database: str) -> Result:
        """Runs LOAD LABEL."""
        return self._broker.submit(statement, database)

    def show(self, statement: sql.ShowLoad, database: str) -> Result:
        """Runs SHOW LOAD."""
        return self._broker.show(statement, database)

    def cancel(self, statement: sql.CancelLoad, database: str) -> Result:
        """Runs CANCEL LOAD."""
        return self._broker.cancel(statement, database)

    def create_routine(self, statement: sql.CreateRoutineLoad, database: str) -> Result:
        """Runs CREATE ROUTINE LOAD."""
        return self._routine.create_routine(statement, database)

    def alter_routine(self, statement: sql.AlterRoutineLoad, database: str) -> Result:
        """Runs ALTER ROUTINE LOAD."""
        return self._routine.alter_routine(statement, database)

    def control_routine(self, statement: sql.ControlRoutineLoad, database: str) -> Result:
        """Runs PAUSE, RESUME and STOP ROUTINE LOAD."""
        return self._routine.control_routine(statement, database)

    def show_routine(self, statement: sql.ShowRoutineLoad, database: str) -> Result:
        """Runs SHOW ROUTINE LOAD."""
        return self._routine.show_routine(statement, database)

    def create_table_from(self, statement: sql.CreateTableFrom, name: str, zone: str) -> Result:
        """Runs CREATE TABLE .. FROM DELTA or ICEBERG."""
        from seqstore.loaders.lake.new_table import create_from

        return create_from(self._store, name, statement, zone)
