"""The calls of distributed jobs: shares of a version that tasks read, and loads that tasks stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import xxhash

from seqstore.cli.remote.client_sessions import Held
from seqstore.cli.remote.stagings import Stagings
from seqstore.store import InvalidInputError, Load, NotFoundError, Table
from seqstore.store.load.write_options import WriteOptions
from seqstore.store.read.scan_task import ScanTask


def _scan_shares(table: Table, given: Mapping[str, Any]) -> list[str]:
    """Returns what the shares of a scan are made of, a digest for each."""
    return [_digest(task) for task in table.scan_tasks(**given)]


def _digest(task: ScanTask) -> str:
    parts = [(piece.meta.id, piece.batches) for piece in task.slices]
    return xxhash.xxh3_64_hexdigest(repr(parts).encode())


def _scan_share(table: Table, given: Mapping[str, Any]) -> pa.RecordBatchReader:
    """Returns the rows of one share.

    Raises:
        InvalidInputError: the version is not named.
        NotFoundError: the scan has no such share, or one of other batches than its digest says.
    """
    plan = {name: value for name, value in given.items() if name not in ("number", "digest")}
    number, version, wanted = given.get("number"), given.get("version"), given.get("digest")
    if not isinstance(number, int) or not isinstance(version, int):
        raise InvalidInputError("a share has a number and a version", kind="bad_message")
    _, lease = table.hold(version)
    try:
        tasks = table.scan_tasks(**plan)
        if not 0 <= number < len(tasks) or wanted not in (None, _digest(tasks[number])):
            raise NotFoundError(
                f"{table.name}: this scan has {len(tasks)} shares, there is no such share {number}; plan the "
                "read again",
                kind="unknown_share",
            )
        reader = tasks[number].read()
    except BaseException:
        lease.release()
        raise

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        finally:
            lease.release()

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


STAGING_CALLS: Final = ("begin_staging", "begun_stagings", "end_stagings", "staging")
SCAN_CALLS: Final[Mapping[str, Callable[[Table, Mapping[str, Any]], Any]]] = {
    "scan_share": _scan_share,
    "scan_shares": _scan_shares,
}


def _begin(stagings: Stagings, user: str, table: Table, given: Mapping[str, Any]) -> str:
    """Begins a load that tasks stage; returns its token."""
    options = given.get("options")
    if not isinstance(options, WriteOptions):
        raise InvalidInputError("a load without its options", kind="bad_message")
    supplied, purpose = given.get("supplied"), given.get("purpose", "")
    return stagings.begin(user, table, options, supplied=supplied, purpose=str(purpose))


def staging_call(stagings: Stagings, user: str, table: Table, name: str, given: Mapping[str, Any]) -> Any:
    """Runs a call of a table on the loads that tasks stage.

    Returns:
        The token of a new one; the tokens of those of one purpose; the names of removed files; or, of
        `staging`, the load to be kept for the client.
    """
    if name == "begin_staging":
        return _begin(stagings, user, table, given)
    if name == "begun_stagings":
        return stagings.begun(given.get("staging"), user, table.id)
    if name == "end_stagings":
        return stagings.end(given.get("stagings", ()), user, table)
    return Held("Staging", stagings.find(given.get("staging"), user, table.id).join(), table.name)


def adopt(stagings: Stagings, user: str, load: Load, given: Mapping[str, Any]) -> None:
    """Has a load take over what one task staged; see `Load.adopt`.

    Raises:
        ClosedError: the staged load has ended.
    """
    parts = given.get("parts")
    if not isinstance(parts, (list, tuple)) or not all(isinstance(each, int) for each in parts):
        raise InvalidInputError("a share without its parts", kind="bad_message")
    load.adopt(stagings.find(given.get("staging"), user).rows(parts))
