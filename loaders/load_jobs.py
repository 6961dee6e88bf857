"""Runs LOAD LABEL, CREATE ROUTINE LOAD and their related statements for SQL sessions."""

from __future__ import annotations

from seqstore.loaders.broker.statements import BrokerStatements
from seqstore.loaders.routine.statements import RoutineStatements


class StoreLoadJobs(BrokerStatements, RoutineStatements):
    """Broker loads and routine loads of one store."""
