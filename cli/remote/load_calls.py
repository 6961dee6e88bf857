"""Loads of files that a client has uploaded, dead letters loaded again, and what `top` shows.

They run as the same loads do at the server: a body as an HTTP request has it, files as LOAD LABEL reads them.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol

from seqstore.cli.clients.load_privileges import more_privileges, spec_privileges
from seqstore.cli.remote.client_sessions import ClientSession
from seqstore.cli.remote.uploads import Upload
from seqstore.cli.top import page
from seqstore.loaders.broker.job import LoadJob
from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.broker.spec import LoadSpec
from seqstore.loaders.broker.worker import submit
from seqstore.loaders.dead_letters.letters import SUFFIX
from seqstore.loaders.dead_letters.replay import replay
from seqstore.loaders.headers import by_plain_names
from seqstore.loaders.stream_load import stream_load
from seqstore.store import InvalidInputError, Store
from seqstore.store.ddl.named_tables import split_name
from seqstore.store.sql import Session

_UPLOADED: Final = "upload:"  # and number of an upload, and the name of its file, in the place of a path
_TABLES_MAX: Final = 1_000


class Calls(Protocol):
    """What a call needs of `cli.remote.calls.Calls`."""

    store: Store
    session: ClientSession
    open_session: Callable[[str], Session]


@dataclass(frozen=True)
class LoadCall:
    """A call of a store.

    Attributes:
        privileges: that it needs, each with what it is on, by its arguments.
    """

    run: Callable[[Calls, Mapping[str, Any]], Any]
    privileges: Callable[[Mapping[str, Any]], Iterable[tuple[str, ...]]]


def upload(_calls: Calls, given: Mapping[str, Any]) -> Upload:
    """Begins an upload."""
    return Upload(_text(given, "path"))


def load_job(calls: Calls, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the newest broker load of a label, of those that the user may see; None for none."""
    jobs = LoadJobs(calls.store.catalog).all(_text(given, "database"), _text(given, "label"))
    account = calls.store.accounts.find(calls.session.user)
    seen = [
        job
        for job in jobs.values()
        if account is not None
        and all(account.may("LOAD", job.database, each.table) for each in job.spec.descriptions)
    ]
    return _record(calls, seen[-1]) if seen else None


def overview(calls: Calls, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `top` shows."""
    wanted = given.get("tables_max")
    return asdict(page(calls.store, min(wanted, _TABLES_MAX) if isinstance(wanted, int) else _TABLES_MAX))


def _stream_load(calls: Calls, given: Mapping[str, Any]) -> dict[str, Any]:
    held = calls.session.held("Upload", given.get("upload"))
    database, table = split_name(_text(given, "table"))
    with held.value.opened() as body:
        reply = stream_load(calls.store, database, table, body, _headers(given))
    found = dict(reply)
    if found.get("ErrorURL"):
        found["ErrorURL"] = _error_log(calls, found["ErrorURL"])
    return found


def _stream_load_privileges(given: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    target = split_name(_text(given, "table"))
    return [("LOAD", *target), *more_privileges(_headers(given), target)]


def _broker_load(calls: Calls, given: Mapping[str, Any]) -> int:
    spec, allowed = _spec(given), list(calls.store.settings.load_paths)
    descriptions = []
    for each in spec.descriptions:
        paths = []
        for path in each.paths:
            if path.startswith(_UPLOADED):
                number = path.removeprefix(_UPLOADED).partition("/")[0]
                held = calls.session.held("Upload", int(number) if number.isdecimal() else None)
                allowed.append(str(held.value.directory))
                path = glob.escape(str(held.value.path)).replace("{", "[{]")
            elif "://" not in path:
                raise InvalidInputError(f"{path[:100]!r}: expected an upload or a URI", kind="bad_message")
            paths.append(path)
        descriptions.append(replace(each, paths=tuple(paths)))
    spec = replace(spec, descriptions=tuple(descriptions))
    return submit(calls.store, spec, allowed, calls.session.user)


def _broker_load_privileges(given: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    return spec_privileges(_spec(given))


def _replay(calls: Calls, given: Mapping[str, Any]) -> dict[str, Any]:
    done = replay(calls.store, _text(given, "table"), _text(given, "where"), user=calls.session.user)
    return {"loaded": done.loaded, "left": done.left}


def _replay_privileges(given: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    database, table = split_name(_text(given, "table"))
    letters = f"{table}{SUFFIX}"
    return [("LOAD", database, table), ("SELECT", database, letters), ("LOAD", database, letters)]


def _record(calls: Calls, job: LoadJob) -> dict[str, Any]:
    """Returns a job without what only the server needs."""
    record = replace(job, allowed=(), references=()).to_record()
    record["spec"]["descriptions"] = [{**each, "paths": ()} for each in record["spec"]["descriptions"]]
    return {**record, "url": _error_log(calls, job.url) if job.url else ""}


def _error_log(calls: Calls, path: str) -> list[Any]:
    """Returns the name of an error log, and the port of HTTP that serves it; 0 for none."""
    with calls.open_session("") as session:
        return [path.rpartition("/")[2], session.server.ports().http]


def _spec(given: Mapping[str, Any]) -> LoadSpec:
    try:
        spec = LoadSpec.from_record(given["spec"])
        spec.check()
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError("spec: expected that of a broker load", kind="bad_message") from error
    return spec


def _text(given: Mapping[str, Any], name: str) -> str:
    found = given.get(name)
    if not isinstance(found, str):
        raise InvalidInputError(f"{name}: expected a text", kind="bad_message")
    return found


def _headers(given: Mapping[str, Any]) -> dict[str, str]:
    found = given.get("headers")
    if not isinstance(found, dict) or not all(
        isinstance(each, str) for pair in found.items() for each in pair
    ):
        raise InvalidInputError("headers: expected texts by their names", kind="bad_message")
    return by_plain_names(found)


LOAD_CALLS: Final[Mapping[str, LoadCall]] = {
    "broker_load": LoadCall(_broker_load, _broker_load_privileges),
    "replay": LoadCall(_replay, _replay_privileges),
    "stream_load": LoadCall(_stream_load, _stream_load_privileges),
}
"""The loads by their names."""
