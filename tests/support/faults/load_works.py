"""Works of `file_works` by the loaders: stream loads that change tables, dead letters, imports, exports."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from seqstore import NotFoundError, Session, Store, Table, UnavailableError
from seqstore.loaders.dead_letters.letters import SUFFIX
from seqstore.loaders.dead_letters.replay import replay
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.stream_load import stream_load
from seqstore.store.catalog.environment import Catalog
from seqstore.store.export.job import FINISHED, ExportJobs
from seqstore.store.sql import ServerContext
from tests.support.rows import rows_of, schema_of

Step = Callable[[Any], object]
# One step of these has several commits.
COMMITS: Final = (
    *("auto_create", "evolution", "dead_letters", "export", "as_select"),
    *("import_delta", "import_iceberg"),
)
_SECONDS: Final = 4
_LETTERS: Final = ("label", "position", "source", "reason", "raw")  # ids and times are others in each run


def make_lake(inbox: Path) -> None:
    """Makes a table that imports read, as Delta and as Iceberg."""
    with Store.open(inbox / "lake") as store:
        store.create_database("db")
        properties = {"delta.universalFormat.enabledFormats": "delta,iceberg", "open_every_seconds": "0"}
        made = store.create_table(
            "db.t", schema_of("k BIGINT NOT NULL", "v STRING", "w BIGINT", **properties)
        )
        made.upsert(pa.table({"k": list(range(90)), "v": ["lake"] * 90, "w": [1] * 90}))
        made.delete(pa.table({"k": list(range(7))}))
        store.opener.wait()
        directory = store.path / made.loader.directory
    (inbox / "lake" / "table").symlink_to(directory, target_is_directory=True)


def session_of(store: Store) -> Session:
    return Session(store, "db", server=ServerContext(load_jobs=StoreLoadJobs(store)))


def _run(store: Store, text: str) -> None:
    with session_of(store) as session:
        list(session.execute(text))


def _lines(*rows: dict[str, Any]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def _load(table: str, label: str, body: bytes, **headers: str) -> Step:
    """A stream load in JSON; one that a fault has refused is tried again under its label."""

    def run(store: Store) -> None:
        given = {"format": "json", "label": label, "max_filter_ratio": "1", **headers}
        reply = stream_load(store, "db", table, io.BytesIO(body), given)
        is_done = reply["Status"] == "Label Already Exists" and reply["ExistingJobStatus"] == "FINISHED"
        if not (reply.is_success or is_done):
            raise UnavailableError(f"the load has failed: {dict(reply)}", kind="disk")

    return run


def _import(kind: str) -> Step:
    def run(store: Store) -> None:
        place = store.path.with_name("inbox") / "lake" / "table"
        _run(store, f"CREATE TABLE IF NOT EXISTS taken FROM {kind} '{place.resolve()}' KEY(k)")

    return run


def _create_as(store: Store) -> None:
    _run(store, "CREATE TABLE IF NOT EXISTS copied UNIQUE KEY(k) AS SELECT k, v FROM t WHERE k < 100")


def _narrow(store: Store) -> None:
    _run(store, "CREATE TABLE IF NOT EXISTS narrow (k BIGINT NOT NULL, v VARCHAR(3)) UNIQUE KEY(k)")


def _widen(store: Store) -> None:
    _run(store, "ALTER TABLE narrow MODIFY COLUMN v VARCHAR(20)")


def _replay(store: Store) -> None:
    replay(store, "db.narrow")


def _export(store: Store) -> None:
    """Exports a table; an export that a fault has cancelled is asked for again."""
    _end_of_exports(store)
    if not _finished(store.catalog):
        _run(
            store, f"EXPORT TABLE t TO 'file://{store.path}/exports/part_' PROPERTIES ('format' = 'parquet')"
        )
        _end_of_exports(store)
    if not _finished(store.catalog):
        raise UnavailableError("the export was cancelled", kind="disk")


def _end_of_exports(store: Store) -> None:
    deadline = time.monotonic() + _SECONDS
    while any(not job.has_ended for job in ExportJobs(store.catalog).all("db").values()):
        if time.monotonic() > deadline:
            raise UnavailableError("the export goes on", kind="disk")
        time.sleep(0.005)


def _finished(catalog: Catalog) -> list[str]:
    """The URLs of the exports that have finished."""
    return [job.url for job in ExportJobs(catalog).all("db").values() if job.state == FINISHED]


def load_works() -> dict[str, list[Step]]:
    """Returns the steps of each kind of work."""
    rows = [{"k": number, "v": "new", "w": number} for number in range(60)]
    wide = [{**row, "x": 1.5, "y": "z"} for row in rows]
    letters = [{"k": number, "v": "abc" if number % 4 else "too long"} for number in range(60)]
    return {
        "auto_create": [_load("made", "one", _lines(*rows), auto_create="true", auto_create_key="k")],
        "evolution": [_load("t", "one", _lines(*wide), schema_evolution="add")],
        "dead_letters": [
            _narrow,
            _load("narrow", "one", _lines(*letters), dead_letters="true", strict_mode="true"),
            _widen,
            _replay,
        ],
        "export": [_export],
        "as_select": [_create_as],
        "import_delta": [_import("DELTA")],
        "import_iceberg": [_import("ICEBERG")],
    }


def is_empty_store_of_letters(table: Table) -> bool:
    """Whether a load has failed that made the table of dead letters: it stays."""
    return table.name.endswith(SUFFIX) and table.version == 1


def rows_to_compare(store: Store, name: str) -> Iterator[list[Any]]:
    """Yields the rows of a table, of dead letters without what each run makes anew."""
    table = store.table(f"db.{name}")
    if name.endswith(SUFFIX):
        found = table.scan([each for each in _LETTERS if each in table.schema.names]).read_all().to_pylist()
        yield from sorted([list(row.values()) for row in found], key=repr)
        return
    yield from (list(row) for row in rows_of(table))


def exported(store: Store) -> list[Any]:
    """Returns the rows of each export that has finished; its files are whole."""
    found = []
    for url in _finished(store.catalog):
        written = Path(url.removeprefix("file://"))
        paths = sorted(written.parent.glob(f"{written.name.rstrip('*')}*"))
        if not paths:
            raise NotFoundError(f"{url} has no file")
        found.append(sorted(pa.concat_tables(map(pq.read_table, paths)).to_pylist(), key=repr))
    return found
