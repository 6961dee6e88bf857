"""The package that makes or opens golden stores: `seqstore`, or the top-level packages of before 0.2.0."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

_PREFIX = "seqstore." if find_spec("seqstore") is not None else ""

api: Any = import_module(f"{_PREFIX}store")
sql: Any = import_module(f"{_PREFIX}store.sql")


def loaders(module: str) -> Any:
    """A module of the loaders."""
    return import_module(f"{_PREFIX}loaders.{module}")


def job_session(store: Any, database: str | None = None) -> Any:
    """A session that knows broker and routine loads."""
    jobs = loaders("load_jobs").StoreLoadJobs(store)
    if hasattr(sql, "ServerContext"):
        return sql.Session(store, database, server=sql.ServerContext(load_jobs=jobs))
    return sql.Session(store, database, load_jobs=jobs)
