"""The open table demo: delta-rs, pyiceberg and Spark read the flights from the files of this store.

Each reader's rows are compared with a scan of the store, before and after rows were deleted and came back.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from seqstore.cli.demo.screen import Screen
from seqstore.loaders.spark.read_table import read_table
from seqstore.store import Store, StoreError, Table
from seqstore.store.sql import Session

_OPEN: Final = """ALTER TABLE flights.flights SET (
    "delta.universalFormat.enabledFormats" = "delta,iceberg", "open_every_seconds" = "0")"""
_DELETE: Final = "DELETE FROM flights.flights WHERE carrier = 'UA'"
_RESTORE: Final = "RESTORE TABLE flights.flights TO VERSION AS OF {}"
Reader = Callable[[], pa.Table]


def run_open(store: Store, screen: Screen, *, with_spark: bool) -> None:
    """Opens the table of the flights, deletes rows, restores them; all readers see each version.

    Raises:
        StoreError: a reader sees other rows than a scan.
    """
    screen.title("8. The same files as a Delta table and as an Iceberg table")
    table = store.table("flights.flights")
    directory = store.path / table.loader.directory
    readers = _readers(directory, screen)
    if not readers:
        return
    with tempfile.TemporaryDirectory(prefix="seqstore-demo-") as scratch, Session(store) as session:
        if with_spark:
            from seqstore.cli.demo.spark_run import spark_session  # pyspark is an extra

            with spark_session(Path(scratch)) as spark:
                readers["Spark, native"] = lambda: _by_spark(spark, store, table)
                _run(table, readers, session, screen)
        else:
            _run(table, readers, session, screen)
    files = sorted(path.name for path in directory.glob("*.parquet"))
    screen.say(
        f"All of them read the same {len(files)} Parquet files, the table's own, in {directory.name}; what a "
        "version hides are deletion vectors. Nothing was copied."
    )


def _run(table: Table, readers: dict[str, Reader], session: Session, screen: Screen) -> None:
    lines: list[tuple[int, str, int, int]] = []
    for statement in (_OPEN, _DELETE, _RESTORE):
        statement = statement.format(lines[0][0] if lines else 0)  # the first version that appeared
        screen.prompt("sql>", f"{statement};")
        for _ in session.execute(statement):
            pass
        ours = table.scan().read_all()
        for name, read in readers.items():
            started = time.perf_counter()
            theirs = read()
            lines.append(
                (table.version, name, theirs.num_rows, round((time.perf_counter() - started) * 1000))
            )
            _compare(name, ours, theirs)
    screen.table(["version", "reader", "rows, all equal to a scan", "ms"], lines)


def _readers(directory: Path, screen: Screen) -> dict[str, Reader]:
    """Returns the readers that are installed, and says which are not."""
    known: dict[str, tuple[str, Callable[[Path], pa.Table]]] = {
        "deltalake": ("delta-rs", _by_delta_rs),
        "pyiceberg": ("pyiceberg", _by_pyiceberg),
    }
    found: dict[str, Reader] = {}
    for package, (name, read) in known.items():
        if importlib.util.find_spec(package) is None:
            screen.say(f"skipped: {name}, for the package {package} is not installed")
        else:
            found[f"{name} {version(package)}"] = lambda read=read: read(directory)  # type: ignore[misc]
    return found


def _by_delta_rs(directory: Path) -> pa.Table:
    from deltalake import DeltaTable, QueryBuilder

    query = QueryBuilder().register("flights", DeltaTable(str(directory)))
    return pa.table(query.execute("SELECT * FROM flights").read_all())


def _by_pyiceberg(directory: Path) -> pa.Table:
    from pyiceberg.table import StaticTable

    metadata = directory / "metadata"
    newest = (metadata / "version-hint.text").read_text(encoding="utf-8")
    return StaticTable.from_metadata(str(metadata / f"v{newest}.metadata.json")).scan().to_arrow()


def _by_spark(spark: Any, store: Store, table: Table) -> pa.Table:
    return read_table(spark, store.path, table.name, route="native").toArrow()


def _compare(name: str, ours: pa.Table, theirs: pa.Table) -> None:
    """Compares rows as bags, by DuckDB.

    Raises:
        StoreError: they differ.
    """
    columns = ", ".join(f'"{column}"' for column in ours.column_names)
    with duckdb.connect() as connection:
        connection.register("ours", ours)
        connection.register("theirs", theirs)
        counted = connection.execute(
            f"""SELECT (SELECT count(*) FROM (FROM ours EXCEPT ALL SELECT {columns} FROM theirs))
            + (SELECT count(*) FROM (SELECT {columns} FROM theirs EXCEPT ALL FROM ours))"""
        ).fetchall()
    if counted[0][0]:
        raise StoreError(f"{name} reads {counted[0][0]:,} rows otherwise than a scan", kind="demo_differs")
