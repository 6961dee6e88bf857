"""Fixtures of all tests: a store with a database `db`, a session, tables, one Spark session for the run.

The marker `settings` gives the store other settings, `sql` the statements that are run before the test. Both
may stand on a test or, as `pytestmark`, on a module; a folder's conftest builds on these fixtures.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer.testing
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from seqstore import Session, Settings, Store, Table
from seqstore.loaders.spark import missing_requirement
from seqstore.store.catalog import accounts
from seqstore.store.maintenance.scheduler import Maintainer
from tests.seeds import is_repeated
from tests.support.children import hide_pandas
from tests.support.rows import MakeTable, schema_of
from tests.support.spark.class_archive import jvm_options
from tests.support.spark.spark_cluster import CLUSTERS, spark_master
from tests.support.statements import last_result
from tests.weight import ALL, form

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["pytester", "tests.distribution", "tests.families", "tests.long_tests"]

gc.disable()  # while tests are collected: a quarter of that time, and hardly anything is garbage
# Most JVMs of the tests live for seconds: without this they spend their time compiling.
os.environ.setdefault("JDK_JAVA_OPTIONS", jvm_options())
# Clients of MySQL read all certificates of the machine for each connection: 30 ms, and no test needs them.
os.environ["SSL_CERT_FILE"] = os.devnull
os.environ.setdefault("SEQSTORE_QUIET", "1")  # a slow machine shows progress of what a test reads

# The runner of commands builds all of them again for each that it runs, 25 ms.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]

# A hash of a password takes 40 ms by design, and tests make users of the same few passwords again and again.
if form() != ALL:
    accounts._new_salt = partial(bytes, accounts._SALT_BYTES)
    accounts._slow_hash = cache(accounts._slow_hash)


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses", None):  # runs tests itself
        hide_pandas()


# How long an example takes says nothing on a machine that does other things too.
hypothesis_settings.register_profile(
    "seqstore",
    deadline=None,
    print_blob=True,
    derandomize=is_repeated(),
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis_settings.load_profile("seqstore")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unfit = [item for item in items if not _is_asked_for(item)]
    if unfit:
        config.hook.pytest_deselected(items=unfit)
        items[:] = [item for item in items if _is_asked_for(item)]
    starting = [item for item in items if _starts_spark(item)]
    missing = missing_requirement() if starting else None
    if missing is not None:
        for item in starting:
            item.add_marker(pytest.mark.skip(reason=missing))


def _is_asked_for(item: pytest.Item) -> bool:
    """Whether the form and the master of Spark have this test; neither is at fault for what it is not."""
    if item.get_closest_marker("long") and form() != ALL:
        return False
    marker = item.get_closest_marker("executors")
    return marker is None or spark_master() in (marker.args or CLUSTERS)


def _starts_spark(item: pytest.Item) -> bool:
    """Whether the test is marked `spark`, or uses the session without the marker."""
    return item.get_closest_marker("spark") is not None or "spark" in getattr(item, "fixturenames", ())


def pytest_collection_finish() -> None:
    """Collections of garbage leave out the collected tests, which are there until the end.

    The short form has a tenth as many: they took a twelfth of its processor time.
    """
    gc.freeze()
    gc.enable()
    if form() != ALL:
        gc.set_threshold(7_000)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # else nanobind takes what is left at the end of the process for leaks


@pytest.fixture(autouse=True)
def only_asked_for_compactions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are compacted after loads only in tests marked `maintenance`: the others count versions."""
    if not request.node.get_closest_marker("maintenance"):
        monkeypatch.setattr(Maintainer, "after_load", lambda self, table, state: None)


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> Settings:
    """The settings of the store, as the nearest marker `settings` names them."""
    marker = request.node.get_closest_marker("settings")
    if marker is None:
        return Settings()
    base: Settings = marker.args[0] if marker.args else Settings()
    return replace(base, **marker.kwargs)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path, settings: Settings) -> Iterator[Store]:
    """An open store in `tmp_path / "data"` with the database `db`, and all that the markers `sql` make."""
    with Store.open(tmp_path / "data", settings=settings) as opened:
        opened.create_database("db")
        with Session(opened, "db") as session:
            for marker in reversed(list(request.node.iter_markers("sql"))):
                last_result(session, marker.args[0])
        yield opened


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    """A session in the database `db`."""
    with Session(store, "db") as opened:
        yield opened


@pytest.fixture
def make_table(store: Store) -> MakeTable:
    """Makes a table of columns written as in `tests.support.rows.column`; keywords are properties."""

    def make(*columns: str, name: str = "db.t", key: Sequence[str] = ("k",), **properties: str) -> Table:
        return store.create_table(name, schema_of(*columns, key=key, **properties))

    return make


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A quiet session on the master of SEQSTORE_SPARK_MASTER; tests that use it are marked `spark`."""
    from tests.support.spark.spark_cluster import session_on

    with session_on(spark_master(), tmp_path_factory.mktemp("spark")) as session:
        yield session
