"""Folders of sockets: those of killed processes are removed, those of others stay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seqstore.cli.scan.socket_folder import SocketFolder
from tests.support.children import MODULES

HOLDER = """
import sys
from seqstore.cli.scan.socket_folder import SocketFolder
held = SocketFolder()
print(held.path, flush=True)
sys.stdin.read()
"""


def test_a_folder_stays_while_its_process_lives_and_is_removed_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed server left its folder in the temporary directory for ever."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": MODULES, "TMPDIR": str(tmp_path)},
    )
    assert child.stdout is not None
    theirs = Path(child.stdout.readline().strip())
    try:
        first = SocketFolder()
        assert theirs.is_dir()
        assert theirs.stat().st_mode & 0o777 == 0o700
        first.remove()
    finally:
        child.kill()
        child.communicate()
    second = SocketFolder()
    assert list(tmp_path.iterdir()) == [second.path]
    second.remove()
    second.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_folder_of_the_same_name_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    foreign = tmp_path / "seqstore-flight-x"
    foreign.mkdir()
    SocketFolder().remove()
    assert list(tmp_path.iterdir()) == [foreign]
