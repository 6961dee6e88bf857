"""Load jobs for SQL sessions: what runs LOAD LABEL, CREATE ROUTINE LOAD and their companions."""

from __future__ import annotations

from seqstore.loaders.broker.statements import BrokerStatements
from seqstore.loaders.routine.statements import RoutineStatements
from seqstore.store.store import Store


class StoreLoadJobs(BrokerStatements, RoutineStatements):
    """Broker loads and routine loads of one store.

    Args:
        user: who is said to have made a job.
    """

    def __init__(self, store: Store, user: str = "root") -> None:
        BrokerStatements.__init__(self, store, user)
        RoutineStatements.__init__(self, store, user)
