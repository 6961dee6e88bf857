"""Loads of files at a store elsewhere: they are uploaded, and read there as files of the server are."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

from seqstore.cli import progress
from seqstore.loaders.broker.files import find_files
from seqstore.loaders.broker.job import LoadJob
from seqstore.loaders.broker.spec import LoadSpec
from seqstore.loaders.headers import by_plain_names
from seqstore.loaders.reply import SUCCESS, Progress, make_reply
from seqstore.store import StoreError
from seqstore.store.remote.connection import LostReplyError
from seqstore.store.remote.outcomes import met_by_label, new_label, run_once
from seqstore.store.remote.remote_store import RemoteStore
from seqstore.store.remote.remote_upload import RemoteUpload

_POLL_SECONDS: Final = (0.1, 0.2, 0.5)
_UPLOADED: Final = "upload:"  # before the number of an upload, see `cli.remote.load_calls`
_ON: Final = ("true", "1", "yes")


def stream_load_elsewhere(
    store: RemoteStore, database: str, table: str, body: BinaryIO, headers: Mapping[str, str]
) -> dict[str, Any]:
    """Runs a stream load at a server, and returns its reply.

    Args:
        headers: a load that may have a label is given one, by which a lost reply is met.

    Raises:
        UnavailableError: the reply is lost, and the load was not applied.
        CommitUnknownError: the reply is lost, and so is the outcome for now.
    """
    headers = by_plain_names(headers)
    is_grouped = headers.get("group_commit", "off_mode").strip().lower() != "off_mode"
    if not headers.get("label", "").strip() and not is_grouped:
        headers["label"] = new_label()
    with _uploaded(store, database, "body", body) as upload:
        given = {"table": f"{database}.{table}", "headers": headers, "upload": upload.address}
        request = store.request("stream_load", given)
        if is_grouped or headers.get("two_phase_commit", "").strip().lower() in _ON:
            reply: dict[str, Any] = store.connection.run(request)
        else:
            label = headers["label"].strip()

            def met(error: LostReplyError) -> dict[str, Any]:
                done = met_by_label(store.table(f"{database}.{table}"), label, error)
                seen = Progress(done.label, done.txn_id, loaded=done.rows_loaded, filtered=done.rows_filtered)
                return make_reply(seen, SUCCESS, "OK")

            reply = run_once(store.connection, request, label, met)
    if reply.get("ErrorURL"):
        reply["ErrorURL"] = _error_url(store, reply["ErrorURL"])
    return reply


def broker_load_elsewhere(
    store: RemoteStore, spec: LoadSpec, allowed: Sequence[str], on_progress: Callable[[LoadJob], None]
) -> LoadJob:
    """Runs a broker load at a server: its local files are uploaded, those of URIs are read by the server.

    Args:
        allowed: below which files of this host are read.

    Raises:
        StoreError: the load was refused before it became a job.
    """
    uploads: dict[str, RemoteUpload] = {}
    try:
        descriptions = []
        for each in spec.descriptions:
            paths = [path for path in each.paths if _is_uri(path)]
            local = tuple(path for path in each.paths if not _is_uri(path))
            for file in find_files(replace(each, paths=local), allowed, ()) if local else []:
                if file.uri not in uploads:
                    uploads[file.uri] = _sent(store, spec.database, file.uri)
                paths.append(f"{_UPLOADED}{uploads[file.uri].address}{_suffix(file.uri)}")
            descriptions.append(replace(each, paths=tuple(paths)))
        record = replace(spec, descriptions=tuple(descriptions)).to_record()

        def met(error: LostReplyError) -> None:
            if _job(store, spec) is None:
                raise error

        run_once(store.connection, store.request("broker_load", {"spec": record}), spec.label, met)
        return _ended(store, spec, on_progress)
    finally:
        for upload in uploads.values():
            upload.release()


def _suffix(path: str) -> str:
    """Returns what a path says of the file's format, behind the number of its upload."""
    return "/" + os.path.basename(path)


def _is_uri(path: str) -> bool:
    return "://" in path and not path.lower().startswith("file:")


def _sent(store: RemoteStore, database: str, path: str) -> RemoteUpload:
    progress.doing(f"{path} to {store.url}")
    upload = RemoteUpload(store, database, os.path.abspath(path))
    with open(path, "rb") as body:
        upload.send(body)
    return upload


@contextmanager
def _uploaded(store: RemoteStore, database: str, name: str, body: Any) -> Iterator[RemoteUpload]:
    """Uploads a body, which its server removes afterwards."""
    upload = RemoteUpload(store, database, name)
    try:
        upload.send(body)
        yield upload
    finally:
        upload.release()


def _job(store: RemoteStore, spec: LoadSpec) -> LoadJob | None:
    """Returns the newest job of the label."""
    found = store.call("load_job", {"database": spec.database, "label": spec.label})
    if found is None:
        return None
    return LoadJob.from_record({**found, "url": _error_url(store, found["url"]) if found["url"] else ""})


def _ended(store: RemoteStore, spec: LoadSpec, on_progress: Callable[[LoadJob], None]) -> LoadJob:
    """Waits for a job."""
    looks = 0
    while True:
        job = _job(store, spec)
        if job is None:
            raise StoreError(f"{spec.database}.{spec.label}: the job is gone", kind="unknown_job")
        on_progress(job)
        if job.has_ended:
            return job
        time.sleep(_POLL_SECONDS[min(looks, len(_POLL_SECONDS) - 1)])
        looks += 1


def _error_url(store: RemoteStore, log: Sequence[Any]) -> str:
    """Returns where the error log is read.

    Args:
        log: its name, and the server's port of HTTP; 0 for none.
    """
    name, port = log
    if not port:
        return f"error_log/{name} in the data directory of {store.url}"
    parts = urlsplit(store.url)
    scheme = "https" if parts.scheme.endswith("+tls") else "http"
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    return f"{scheme}://{host}:{port}/api/_load_error_log?file={name}"
