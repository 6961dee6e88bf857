"""Where Spark tests run: in this process, on local-cluster, or on a standalone cluster of processes.

`SEQSTORE_SPARK_MASTER` is `local[2]` (the default), `local-cluster[2,1,1024]`, `standalone`, which starts a
master and two workers, or the URL of a master that runs already.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

VARIABLE: Final = "SEQSTORE_SPARK_MASTER"
LOCAL: Final = "local[2]"
LOCAL_CLUSTER: Final = "local-cluster[2,1,1024]"
STANDALONE: Final = "standalone"
CLUSTERS: Final = (LOCAL_CLUSTER, STANDALONE)
# Two tasks at once, as on the other masters, so that two applications fit on a cluster.
_CLUSTER: Final = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    # A task may run twice at once: it starts again where it takes longer than the others of its stage.
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
}
# Short-lived JVMs spend most of their time compiling, verifying classes and starting collectors.
QUICK_JVM: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
_HOSTS: Final = ("127.0.0.1", "127.0.0.2")  # Spark speculates on other hosts only; both are this one

_STARTS_MAX: Final = 20


def spark_master() -> str:
    """The master that was asked for."""
    return os.environ.get(VARIABLE, LOCAL)


@contextmanager
def session_on(master: str, directory: Path) -> Iterator[SparkSession]:
    """A session on a master; what it starts for that ends with it."""
    from pyspark.find_spark_home import _find_spark_home

    from seqstore.cli.demo.spark_run import spark_session

    with ExitStack() as started:
        if master == STANDALONE:
            url = started.enter_context(standalone_cluster(directory / "cluster"))
        else:
            url = master
        more = {
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.sql.shuffle.partitions": "2",
            "spark.python.daemon.module": "tests.support.spark.spark_daemon",
        }
        if master != LOCAL:
            more |= _CLUSTER
            more["spark.executor.extraJavaOptions"] = QUICK_JVM
        if master == LOCAL_CLUSTER:
            more["spark.executor.memory"] = "1024m"
        session = started.enter_context(spark_session(directory, url, more))
        application = session.sparkContext.applicationId
        yield session
    if master == LOCAL_CLUSTER:  # its workers keep their files within the installed package
        shutil.rmtree(Path(_find_spark_home()) / "work" / application, ignore_errors=True)


def run_stream(
    start: Callable[[], StreamingQuery], wait: Callable[[StreamingQuery], object]
) -> StreamingQuery:
    """Starts a query that reads a Python source, and waits for its first batches or its end.

    Spark starts a process for the source, and ends the query where that does not answer within ten seconds.
    No setting changes that, and a busy machine needs longer: the query starts again.
    """
    from pyspark.errors import StreamingQueryException

    for _ in range(_STARTS_MAX):
        query = start()
        try:
            wait(query)
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
        else:
            return query
    raise TimeoutError(f"Spark started the source {_STARTS_MAX} times in vain")


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """A master and two workers as processes of their own; the master's URL."""
    directory.mkdir()
    with ExitStack() as stack:
        master = ["master.Master", "--host", _HOSTS[0], "--port", "0", "--webui-port", "0"]
        url = stack.enter_context(_daemon(directory, master, r"Starting Spark master at (spark://\S+)"))
        for number, host in enumerate(_HOSTS):
            worker = ["worker.Worker", "--host", host, "--webui-port", "0", "--cores", "2", "--memory", "2g"]
            worker += ["--work-dir", str(directory / f"worker-{number}"), url]
            stack.enter_context(_daemon(directory, worker, r"Successfully registered with (\S+)"))
        yield url


@contextmanager
def _daemon(directory: Path, arguments: list[str], ready: str) -> Iterator[str]:
    """One of Spark's daemons, once its log says what `ready` looks for; the match's group."""
    from pyspark.find_spark_home import _find_spark_home

    environment = os.environ | {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    environment.pop("SPARK_CONF_DIR", None)
    command = [str(Path(_find_spark_home()) / "bin" / "spark-class")]
    command += [f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield _wait_for(process.stdout, ready)
        finally:
            process.kill()


def _wait_for(log: IO[str], ready: str) -> str:
    """Reads a log until a line matches, and the rest of it in the background."""
    seen = []
    for line in log:
        seen.append(line)
        found = re.search(ready, line)
        if found is not None:
            threading.Thread(target=_drain, args=(log,), daemon=True).start()
            return found.group(1)
    raise RuntimeError("the daemon ended:\n" + "".join(seen))


def _drain(log: IO[str]) -> None:
    try:
        for _ in log:
            pass
    except ValueError:  # closed with its process
        return
