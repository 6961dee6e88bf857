"""Spark's daemon of Python processes, with the package imported: `spark.python.daemon.module`.

Spark forks a process for each plan, read, write and commit of a Python source, and each would import the
package.
"""

from __future__ import annotations

from pyspark.daemon import manager

from tests.support.forks.fork_server import preload

MODULES = (
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
    "seqstore.loaders.spark",
)

if __name__ == "__main__":
    preload(MODULES)
    manager()
