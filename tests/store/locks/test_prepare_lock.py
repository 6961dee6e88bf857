"""The prepare lock before the write lock: one process prepares beside the commit of another."""

from __future__ import annotations

import os
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from seqstore import Store
from seqstore.store.locks.file_lock import FileLock, Patience
from tests.support.forks.pools import forked_context


def stay_inside(path: Path, told: Connection) -> None:
    with FileLock(path).inside(Patience(60)):
        told.send("inside")
        told.recv()


def hold_the_write_lock(directory: Path, told: Connection) -> None:
    with Store.open(directory) as store, store.catalog.write() as tx:
        tx.put("meta", b"first", 1)
        told.send("writing")
        told.recv()


def entering(path: Path, entered: threading.Event) -> threading.Thread:
    def enter() -> None:
        with FileLock(path).inside(Patience(60)):
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    return thread


@pytest.mark.parametrize("ends_by", ["leaving", "a kill"])
def test_who_is_inside_keeps_other_processes_out_until_it_is_gone(tmp_path: Path, ends_by: str) -> None:
    path, entered = tmp_path / "locks" / "next", threading.Event()
    here, there = forked_context().Pipe()
    child = forked_context().Process(target=stay_inside, args=(path, there))
    child.start()
    assert here.recv() == "inside"
    thread = entering(path, entered)
    assert not entered.wait(0.2)
    if ends_by == "leaving":
        here.send("leave")
    else:
        child.kill()
    assert entered.wait(120)
    thread.join()
    child.join()


def test_a_child_forked_by_who_is_inside_holds_nothing(tmp_path: Path) -> None:
    path, entered = tmp_path / "next", threading.Event()
    stay, leave = os.pipe()
    prepare_lock = FileLock(path)
    with prepare_lock.inside(Patience(60)):
        pid = os.fork()
        if pid == 0:
            os.close(leave)
            os.read(stay, 1)
            os._exit(0)
        prepare_lock.forget()  # as if the parent died: its file is closed, and nothing unlocked
    thread = entering(path, entered)
    assert entered.wait(120)
    thread.join()
    os.close(leave)
    os.waitpid(pid, 0)
    os.close(stay)


def test_without_a_lock_file_writers_go_on(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("not a directory")
    with FileLock(tmp_path / "locks" / "next").inside(Patience(60)):
        pass


def test_a_writer_gets_ready_while_another_process_holds_the_write_lock(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        here, there = forked_context().Pipe()
        child = forked_context().Process(target=hold_the_write_lock, args=(tmp_path, there))
        child.start()
        assert here.recv() == "writing"
        is_ready, found = threading.Event(), []

        def write() -> None:
            with store.catalog.write(is_ready.set) as tx:
                found.append(tx.get("meta", b"first"))

        thread = threading.Thread(target=write)
        thread.start()
        assert is_ready.wait(120)
        assert found == []
        here.send("commit")
        thread.join()
        child.join()
        assert found == [1]


def test_who_cannot_get_ready_leaves_no_lock_behind(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("not ready")

    with Store.open(tmp_path) as store:
        with pytest.raises(ValueError, match="not ready"), store.catalog.write(fail):
            pass
        with Store.open(tmp_path).catalog.write() as tx:
            tx.put("meta", b"next", 1)
        entered = threading.Event()
        entering(tmp_path / "locks" / "next-writer", entered).join()
        assert entered.is_set()
