"""A broker load in a process of its own, which outlives the process that submitted it (B2).

`submit` starts `python -m seqstore.loaders.broker.worker DATA_DIR` and sends it the job. It returns once the
worker has reserved the label and recorded the job, or was refused. `resume` restarts abandoned jobs.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import IO, BinaryIO, cast

from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.spec import LoadSpec
from seqstore.store.errors import StoreError, UnavailableError
from seqstore.store.runtime import memory_limit
from seqstore.store.runtime.process_identity import identity_of
from seqstore.store.settings import Settings
from seqstore.store.store import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Order:
    """The work of a worker: a new job, or one that is recorded already."""

    spec: LoadSpec
    allowed: tuple[str, ...]
    user: str
    settings: Settings
    job_id: int | None = None
    references: tuple[str, ...] = ()


def submit(store: Store, spec: LoadSpec, allowed: Sequence[str], user: str) -> int:
    """Starts a job; returns its number.

    Raises:
        LabelExistsError, InvalidInputError, NotFoundError: it was refused.
        UnavailableError: no process could be started.
    """
    order = Order(spec, tuple(allowed), user, store.settings)
    answer = _start(store.path, lambda pid: order, spec.label)
    if isinstance(answer, StoreError):
        raise answer
    assert answer is not None
    return answer


def resume(store: Store) -> list[int]:
    """Starts the jobs again whose process ended before them; returns their numbers."""
    jobs = LoadJobs(store.catalog)
    resumed = []
    for job_id in jobs.abandoned():
        job = jobs.get(job_id)
        order = Order(job.spec, job.allowed, job.user, store.settings, job_id, job.references)

        def handed_over(pid: int, order: Order = order, job_id: int = job_id) -> Order | None:
            owner = identity_of(pid)
            return order if jobs.take_over(job_id, owner).owner == owner else None

        try:
            if _start(store.path, handed_over, job.spec.label) is not None:
                resumed.append(job_id)
        except UnavailableError as error:  # the others may fare better
            _log.error("%s", error.message)
    return resumed


def _start(path: Path, order_for: Callable[[int], Order | None], label: str) -> int | StoreError | None:
    """Starts a worker and sends it the order that `order_for` has for its process id; None ends it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    worker = subprocess.Popen(
        [sys.executable, "-m", "seqstore.loaders.broker.worker", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=environment,
    )
    try:
        return _answer(worker, order_for(worker.pid), label)
    finally:
        for pipe in (worker.stdin, worker.stdout):
            with suppress(OSError):
                cast(IO[bytes], pipe).close()  # without an order the worker ends
        _reap(worker)


def _answer(worker: subprocess.Popen[bytes], order: Order | None, label: str) -> int | StoreError | None:
    """Sends a worker its order; returns what it reports, None without an order."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        pickle.dump(order, worker.stdin)
        worker.stdin.close()
        if order is None:
            worker.wait()
            return None
        answer: int | StoreError = pickle.load(worker.stdout)
    except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
        raise UnavailableError(
            f"load {label!r}: the process that was to run it ended with {worker.wait()}; try again",
            kind="worker",
        ) from error
    return answer


def _reap(worker: subprocess.Popen[bytes]) -> None:
    """Reads the status of a worker once it ends: else it stays a zombie as long as this process lives.

    The job outlives the statement that began it, so a thread waits. Where none can be started, `subprocess`
    looks at the worker before it starts the next process.
    """
    with suppress(RuntimeError):
        Thread(target=worker.wait, name=f"end of process {worker.pid}", daemon=True).start()


def main(path: Path, given: BinaryIO, answers: BinaryIO) -> None:
    """Runs one job as the worker and reports once whether it began."""
    memory_limit.lift()  # that of a server ends with it
    order: Order | None = pickle.load(given)
    if order is None:
        return
    told: list[int] = []

    def tell(answer: int | StoreError) -> None:
        pickle.dump(answer, answers)
        answers.close()

    def submitted(job_id: int) -> None:
        told.append(job_id)
        tell(job_id)

    try:
        with Store.open(path, create=False, settings=order.settings) as store:
            master = order.settings.load_spark_master
            load = BrokerLoad(
                store, order.spec, order.allowed, order.user, spark_master=master, references=order.references
            )
            if order.job_id is None:
                load.run(submitted)
            else:
                submitted(order.job_id)
                load.resume(order.job_id)
    except StoreError as error:
        if not told:
            tell(error)
    except BaseException as error:
        if not told:
            tell(UnavailableError(f"load {order.spec.label!r}: {error}", kind="worker"))
        raise


def _answers() -> BinaryIO:
    """Returns the pipe to the parent and redirects standard output to the null device, where Spark and child
    processes may write. A closed descriptor 1 would be the next opened file."""
    pipe = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return pipe


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.stdin.buffer, _answers())
