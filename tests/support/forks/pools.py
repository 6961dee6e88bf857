"""Processes of `multiprocessing` as forks of a program that has imported the package.

A process that is spawned imports it anew, which takes longer than the work of most tests.
"""

from __future__ import annotations

import multiprocessing
import os
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

from tests.support.children import MODULES
from tests.support.forks.fork_server import ENGINE

_VARIABLE = "PYTHONPATH"


@cache
def forked_context() -> ForkServerContext:
    """Returns the context of pools and processes. They have the environment of the first call."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*ENGINE, "pytest"])
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = MODULES  # the server imports before it knows this process's path
    try:
        forkserver.ensure_running()
    finally:
        del os.environ[_VARIABLE]
        if before is not None:
            os.environ[_VARIABLE] = before
    return context
