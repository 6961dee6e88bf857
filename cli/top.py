"""`seqstore top`: tables and jobs of a data directory while they work, the tables that changed last first.

It reads the catalog as any other process does, so it runs beside a server, a Spark job or a script; of a
store elsewhere the server reads it. On a terminal the page is drawn again until Ctrl-C; otherwise, and with
--once, it is printed once.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from seqstore.cli import output
from seqstore.cli.context import open_store, server

if TYPE_CHECKING:
    from seqstore.cli.figures import TableFigures
    from seqstore.store import Store

_FRAME_LINES: Final = 9
_TABLES_WITHOUT_TERMINAL: Final = 50
_KIB: Final = 1024


@dataclass(frozen=True)
class JobLine:
    """A routine or broker load that has not ended: its kind, name and state, and what it has done."""

    kind: str
    name: str
    state: str
    progress: str


@dataclass(frozen=True)
class Page:
    """What `top` shows at one moment.

    Attributes:
        heading: the data directory, its tables and the disk.
        tables: names and figures, the newest change first.
        left_out: tables that changed earlier than those.
        jobs: loads that run or wait.
    """

    heading: str
    tables: list[tuple[str, TableFigures]]
    left_out: int
    jobs: list[JobLine]


def top(
    ctx: typer.Context,
    interval: Annotated[
        float, typer.Option("--interval", "-n", min=0.2, metavar="SECONDS", help="Between two looks.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one page and end.")] = False,
) -> None:
    """Watch tables and loads: rows, size, loads of the last minute, late rows, lag of jobs."""
    named = server(ctx)
    with open_store(ctx) if named is None else named.connect() as store:
        read = partial(page, store) if named is None else partial(_page_elsewhere, store)
        if once or not sys.stdout.isatty():
            output.say(page_text(read(_TABLES_WITHOUT_TERMINAL)))
        else:
            _watch(read, interval)


def _page_elsewhere(store: Any, tables_max: int) -> Page:
    from seqstore.cli.figures import RecentLoads, TableFigures

    found = store.call("overview", {"tables_max": tables_max})
    tables = [
        (name, TableFigures(**{**figures, "recent": RecentLoads(**figures["recent"])}))
        for name, figures in found["tables"]
    ]
    return Page(found["heading"], tables, found["left_out"], [JobLine(**job) for job in found["jobs"]])


def _watch(read: Callable[[int], Page], interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    def drawn() -> Text:
        height = max(1, shutil.get_terminal_size().lines - _FRAME_LINES)
        return Text(page_text(read(height)), no_wrap=True, overflow="crop")

    with Live(drawn(), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            live.update(drawn(), refresh=True)


def page(store: Store, tables_max: int) -> Page:
    """Reads what `top` shows.

    Args:
        tables_max: only the figures of this many tables are read, those that changed last.
    """
    names = [(d, t) for d in store.databases() for t in store.tables(d)]
    changed = sorted(((_changed_ms(store, *name), name) for name in names), reverse=True)
    shown = list(_figures(store, [name for _, name in changed[:tables_max]]))
    disk = shutil.disk_usage(store.path)
    heading = (
        f"{time.strftime('%H:%M:%S')}  {len(names)} {'table' if len(names) == 1 else 'tables'}, "
        f"{sum(figures.recent.loads for _, figures in shown)} loads in the last minute, "
        f"disk {size_text(disk.free)} free of {size_text(disk.total)}, {store.path}"
    )
    return Page(heading, shown, len(names) - len(shown), list(_jobs(store)))


def _changed_ms(store: Store, database: str, name: str) -> int:
    from seqstore.store.catalog import catalog
    from seqstore.store.catalog.version_record import newest_version_records

    with store.catalog.read() as tx:
        found = catalog.find_database(tx, database)
        table = None if found is None else catalog.find_table(tx, found, name)
        newest = None if table is None else next(newest_version_records(tx, table), None)
    return newest[1].time_ms if newest is not None else 0


def _figures(store: Store, names: list[tuple[str, str]]) -> Iterator[tuple[str, TableFigures]]:
    from seqstore.cli.figures import table_figures
    from seqstore.store.errors import NotFoundError

    for database, name in names:
        try:
            yield f"{database}.{name}", table_figures(store.table(f"{database}.{name}"))
        except NotFoundError:  # dropped meanwhile
            continue


def _jobs(store: Store) -> Iterator[JobLine]:
    from seqstore.loaders.broker.jobs import LoadJobs
    from seqstore.loaders.routine.jobs import RoutineJobs
    from seqstore.loaders.routine.show import lag

    for job in RoutineJobs(store.catalog).living().values():
        behind = sum(lag(job).values())
        done = f"{job.statistic.loaded_rows:,} rows loaded, {behind:,} behind"
        yield JobLine("routine", f"{job.database}.{job.name}", job.state, done)
    for load in LoadJobs(store.catalog).living().values():
        done = f"{load.files_done} of {load.files} files, {load.loaded:,} rows"
        yield JobLine("broker", f"{load.database}.{load.name}", load.state, done)


def page_text(page: Page) -> str:
    """Returns the page as lines of text."""
    lines = [page.heading, "", output.box(_table_rows(page))]
    if page.left_out:
        lines.append(f"and {page.left_out} tables that changed earlier")
    if page.jobs:
        lines += ["", output.box(_job_rows(page))]
    return "\n".join(lines)


def _table_rows(page: Page) -> Any:
    import pyarrow as pa

    now = time.time()
    found = [figures for _, figures in page.tables]
    return pa.table(
        {
            "table": pa.array([name for name, _ in page.tables], pa.string()),
            "rows": pa.array([each.rows for each in found], pa.int64()),
            "size": pa.array([size_text(each.data_bytes) for each in found], pa.string()),
            "segments": pa.array([each.segments for each in found], pa.int64()),
            "version": pa.array([each.version for each in found], pa.int64()),
            "loads/min": pa.array([each.recent.loads for each in found], pa.int64()),
            "rows/min": pa.array([each.recent.rows for each in found], pa.int64()),
            "late/min": pa.array([each.recent.late for each in found], pa.int64()),
            "filtered/min": pa.array([each.recent.filtered for each in found], pa.int64()),
            "changed": pa.array([_age(now - each.recent.changed_ms / 1000) for each in found], pa.string()),
        }
    )


def _job_rows(page: Page) -> Any:
    import pyarrow as pa

    return pa.table(
        {
            "load": pa.array([job.kind for job in page.jobs], pa.string()),
            "name": pa.array([job.name for job in page.jobs], pa.string()),
            "state": pa.array([job.state for job in page.jobs], pa.string()),
            "progress": pa.array([job.progress for job in page.jobs], pa.string()),
        }
    )


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return f"{max(0, int(seconds))} s ago"


def size_text(number: float) -> str:
    """Returns a number of bytes with its unit, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < _KIB:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= _KIB
    return f"{number:.1f} TiB"
