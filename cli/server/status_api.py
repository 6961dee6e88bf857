"""The read-only endpoints of Doris: labels, error logs, health, metrics, versions."""

from __future__ import annotations

import asyncio
import re
import shutil
from importlib import metadata
from typing import Final

from aiohttp import web

from seqstore.cli.server.metrics import Metrics
from seqstore.cli.server.replies import failure, json_reply, manager_reply
from seqstore.cli.server.stream_load_api import may_load
from seqstore.loaders.error_log import log_path
from seqstore.store import Store, StoreError
from seqstore.store.catalog.transaction_record import TransactionRecord

DORIS_VERSION: Final = (4, 0, 0)  # whose behaviour clients may expect
_LOG_NAME: Final = re.compile(r"(?:__shard_\d+/)?(error_log_\w{1,80})")
_STATES: Final = {
    "VISIBLE": "FINISHED",
    "COMMITTED": "FINISHED",
    "ABORTED": "CANCELLED",
    "PRECOMMITTED": "ETL",
}


class StatusApi:
    """Answers that change nothing.

    Args:
        disk_free_bytes_min: see `ServerSettings`.

    Attributes:
        is_stopping: the server refuses new work.
    """

    def __init__(self, store: Store, metrics: Metrics, disk_free_bytes_min: int) -> None:
        self._store = store
        self._metrics = metrics
        self._disk_free_bytes_min = disk_free_bytes_min
        self.is_stopping = False

    # ------------------------------------------------------------------------------------------ loads

    async def load_info(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/{db}/_load_info?label=...: the state of a load and the reason of its failure."""
        record = await asyncio.to_thread(self._labelled, user, names[0], request.query.get("label", ""))
        if isinstance(record, web.Response):
            return record
        info = {
            "dbName": names[0],
            "tblNames": [record.table.partition(".")[2]] if record.table else [],
            "label": record.label,
            "clusterName": "default_cluster",
            "state": _STATES.get(record.status, "LOADING"),
            "failMsg": record.reason,
            "trackingUrl": "",
        }
        return json_reply({"status": "OK", "msg": "Success", "jobInfo": info})

    async def load_state(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/{db}/get_load_state?label=...: the state of its transaction.

        The state of a free label is UNKNOWN.
        """
        record = await asyncio.to_thread(self._labelled, user, names[0], request.query.get("label", ""))
        if isinstance(record, web.Response):
            return manager_reply("UNKNOWN") if record.status == 404 else record
        return manager_reply(record.status)

    def _labelled(self, user: str, database: str, label: str) -> TransactionRecord | web.Response:
        self._store.accounts.require(user, "LOAD", database, within=True)
        record = self._store.find_transaction(database, label)
        if record is None or not may_load(self._store, user, database, record):
            return failure(f"[NOT_FOUND]label [{label}] is not known in database {database}", status=404)
        return record

    async def error_log(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/_load_error_log?file=...

        The name of a log cannot be guessed, so the request needs no login (LS11).
        """
        given = request.query.get("file", "")
        match = _LOG_NAME.fullmatch(given)
        path = log_path(self._store.path, match[1]) if match else None
        if path is None or not path.is_file():
            return failure(
                f"[NOT_FOUND]no error log {given[:100]!r}; old ones make room for new ones", status=404
            )
        body = await asyncio.to_thread(path.read_bytes)
        return web.Response(body=body, content_type="text/plain", charset="utf-8")

    # ------------------------------------------------------------------------------------------ probes

    async def health(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /health: checks that the catalog can be read."""
        await asyncio.to_thread(self._store.databases)
        return json_reply({"status": "OK", "msg": "To Be Added"})

    async def live(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /health/live: the process answers; a supervisor restarts one that does not."""
        return json_reply({"status": "OK"})

    async def ready(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /health/ready: whether clients may be sent here; 503 with the reason when not."""
        reason = await asyncio.to_thread(self._unready)
        if reason:
            return json_reply({"status": "UNREADY", "reason": reason}, status=503)
        return json_reply({"status": "OK"})

    def _unready(self) -> str:
        if self.is_stopping:
            return "the server is stopping"
        try:
            self._store.databases()
            free = shutil.disk_usage(self._store.path).free
        except (StoreError, OSError):  # its text may name paths, and the request has no login
            return "the catalog cannot be read; see the server's log"
        if free < self._disk_free_bytes_min:
            return f"less than {self._disk_free_bytes_min} bytes are free (setting disk_free_bytes_min)"
        return ""

    async def health_of_backends(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/health."""
        return manager_reply({"online_backend_num": 1, "total_backend_num": 1})

    async def metrics(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /metrics; a job is shown to users that see its table."""
        accept = request.headers.get("Accept", "")
        account = self._store.accounts.find(user) if user else None
        sees = account.sees_table if account is not None else lambda _database, _table: False
        body, content_type = await asyncio.to_thread(self._metrics.scrape, accept, sees)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def bootstrap(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/bootstrap: whether the service is up."""
        data = {"replayedJournalId": 0, "queryPort": 0, "rpcPort": 0, "version": _version()}
        return manager_reply(data)

    async def version(self, request: web.BaseRequest, names: list[str], user: str) -> web.Response:
        """Serves GET /api/fe_version_info."""
        major, minor, patch = DORIS_VERSION
        info = {
            "dorisBuildVersionPrefix": "doris",
            "dorisBuildVersionMajor": major,
            "dorisBuildVersionMinor": minor,
            "dorisBuildVersionPatch": patch,
            "dorisBuildVersionRcVersion": "",
            "dorisBuildVersion": f"doris-{major}.{minor}.{patch}",
            "dorisBuildShortHash": _version(),
        }
        return manager_reply({"feVersionInfo": info})


def _version() -> str:
    try:
        return f"seqstore-{metadata.version('seqstore')}"
    except metadata.PackageNotFoundError:  # run from a source tree
        return "seqstore"
