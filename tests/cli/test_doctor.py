"""`seqstore doctor`: what it finds, what it says to do, and its exit code."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from seqstore import Store
from seqstore.cli.doctor import checks
from seqstore.cli.main import app
from seqstore.store.catalog.load_history import newest_transactions
from seqstore.store.catalog.transaction_record import put_transaction
from tests.support.rows import schema_of

Invoke = Callable[..., Any]
PORTS = ("--http-port", "0", "--mysql-port", "0")


@pytest.fixture
def run(tmp_path: Path) -> Invoke:
    def invoke(*options: str) -> Any:
        command = ["--data-dir", str(tmp_path / "data"), "doctor", *PORTS, *options]
        return CliRunner().invoke(app, command)

    return invoke


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "data") as store:
        store.create_database("db")
        store.create_table("db.t", schema_of("k INT NOT NULL")).upsert(pa.table({"k": [1]}))
        store.accounts.set_password("root", "x")
    return tmp_path / "data"


def line(result: Any, name: str) -> str:
    """The state of a check, and what was found."""
    lines: list[str] = result.output.splitlines()
    return next(each for each in lines if each[9:].startswith(f"{name} "))


def test_a_machine_without_a_fault(run: Invoke, stored: Path) -> None:
    result = run()
    assert result.exit_code == 0, result.output
    assert "0 errors" in result.output
    assert line(result, "catalog") == "ok       catalog      1 databases, 1 tables"
    names = ("disk", "filesystem", "fsync", "clock", "descriptors", "memory", "http port", "python", "java")
    assert all(line(result, name) for name in names)
    assert [path.name for path in stored.parent.iterdir()] == ["data"], "its files are gone"
    assert not list(stored.glob(".doctor-*"))


def test_a_directory_without_a_store_is_no_error(run: Invoke, tmp_path: Path) -> None:
    result = run()
    assert result.exit_code == 0
    assert "no store" in line(result, "catalog")
    assert not (tmp_path / "data").exists()


def test_too_little_disk_is_an_error(run: Invoke, stored: Path, tmp_path: Path) -> None:
    settings = tmp_path / "server.toml"
    settings.write_text(f"[server]\ndisk_free_bytes_min = {2**62}\n")
    result = run("--config", str(settings))
    assert result.exit_code == 1
    assert line(result, "disk").startswith("error")
    assert "-> free some" in result.output


def test_a_damaged_catalog_is_an_error(run: Invoke, stored: Path) -> None:
    (stored / "catalog" / "data.mdb").write_bytes(b"no catalog" * 1000)
    result = run()
    assert result.exit_code == 1
    assert line(result, "catalog").startswith("error")


def test_a_port_that_is_taken_is_named(run: Invoke) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("--http-port", str(port))
    assert f"127.0.0.1:{port} cannot be listened on" in line(result, "http port")
    assert result.exit_code == 0


def test_root_without_a_password_is_a_warning(run: Invoke, stored: Path) -> None:
    with Store.open(stored) as store:
        store.accounts.set_password("root", "")
    assert line(run(), "root").startswith("warning")


def test_a_clock_that_was_set_back_is_found(run: Invoke, stored: Path) -> None:
    with Store.open(stored) as store, store.catalog.write() as tx:
        record = next(newest_transactions(tx))
        put_transaction(tx, replace(record, begun_ms=record.begun_ms + 3_600_000))
    assert "the clock was set back" in line(run(), "load times")


@pytest.mark.parametrize(("kind", "state"), [("nfs4", "error"), ("tmpfs", "warning"), ("ext4", "ok")])
def test_a_disk_of_the_network_or_memory_is_named(
    run: Invoke, monkeypatch: pytest.MonkeyPatch, kind: str, state: str
) -> None:
    monkeypatch.setattr(checks, "_file_system", lambda place: kind)
    result = run()
    assert line(result, "filesystem").startswith(state)
    assert result.exit_code == (state == "error")


def test_a_slow_disk_is_a_warning(run: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_SLOW_FSYNC_MS", -1.0)
    assert line(run(), "fsync").startswith("warning")


def test_a_package_that_is_missing_is_an_error(run: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_PACKAGES", ("a-package-that-nobody-made",))
    result = run()
    assert result.exit_code == 1
    assert "pip install 'seqstore'" in result.output
