"""A broker load in a process of its own, so that it outlives whoever submitted it (B2).

`submit` starts `python -m loaders.broker.worker DATA_DIR`, hands it the job, and returns once it has taken
the label and recorded the job, or was refused.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from loaders.broker.run import BrokerLoad
from loaders.broker.spec import LoadSpec
from store.errors import StoreError, UnavailableError
from store.settings import Settings
from store.store import Store


def submit(store: Store, spec: LoadSpec, allowed: Sequence[str], user: str) -> int:
    """Starts a job; returns its number.

    Raises:
        LabelExistsError, InvalidInputError, NotFoundError: it was refused.
        UnavailableError: no process could be started.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-m", "loaders.broker.worker", str(store.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=environment,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            pickle.dump((spec, list(allowed), user, store.settings), worker.stdin)
            worker.stdin.close()
            answer: int | StoreError = pickle.load(worker.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            raise UnavailableError(
                f"load {spec.label!r}: the process that was to run it ended with {worker.wait()}; try again",
                kind="worker",
            ) from error
        # The job goes on without us: leaving the block must not wait for it.
        worker.returncode = 0
    if isinstance(answer, StoreError):
        raise answer
    return answer


def main(path: Path, given: BinaryIO, answers: BinaryIO) -> None:
    """The worker: runs one job and tells once whether it began."""
    spec: LoadSpec
    settings: Settings
    spec, allowed, user, settings = pickle.load(given)
    told: list[int] = []

    def tell(answer: int | StoreError) -> None:
        pickle.dump(answer, answers)
        answers.flush()
        answers.close()

    def submitted(job_id: int) -> None:
        told.append(job_id)
        tell(job_id)

    try:
        with Store.open(path, create=False, settings=settings) as store:
            BrokerLoad(store, spec, allowed, user).run(submitted)
    except StoreError as error:
        if not told:
            tell(error)
    except BaseException as error:
        if not told:
            tell(UnavailableError(f"load {spec.label!r}: {error}", kind="worker"))
        raise


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
