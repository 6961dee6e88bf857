"""The parts of a server that its sessions share."""

from __future__ import annotations

from dataclasses import dataclass, field

from seqstore.store.sql.parse.load_jobs import LoadJobs
from seqstore.store.sql.session.processes import Processes


@dataclass(frozen=True)
class ServerContext:
    """A server as one of its sessions knows it; without arguments, of a session that stands alone.

    Attributes:
        global_variables: the values of SET GLOBAL; all sessions of a server share one dict.
        processes: for SHOW PROCESSLIST and KILL.
        load_jobs: runs broker and routine loads; without it their statements are refused.
        connection_id: the session's number among the processes.
    """

    global_variables: dict[str, str] = field(default_factory=dict)
    processes: Processes = field(default_factory=Processes)
    load_jobs: LoadJobs | None = None
    connection_id: int = 0
