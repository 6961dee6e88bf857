"""Clients in JavaScript, Go and Rust: programs in `tests/support/clients` that print what they found."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from bench.kafka.jars import cache_directory
from seqstore.cli.mysql import MysqlServer

CLIENTS: Final = Path(__file__).parents[2] / "support" / "clients"
UNREACHABLE: Final = ("network", "ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "dial tcp", "Could not resolve")


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on this machine")
    return found


def built(language: str, *command: str) -> Path:
    """Copies a program into the cache of the user and builds it there, once for all processes."""
    directory = cache_directory() / f"client-{language}"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.copytree(CLIENTS / language, directory, dirs_exist_ok=True)
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode and any(word in done.stderr for word in UNREACHABLE):
        pytest.skip(f"what the {language} client needs cannot be fetched: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return directory


def printed(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


ROW: Final = {"k": 1, "v": "it's \\ ünï", "d": 1.5, "dd": "2024-01-02", "ts": "2024-01-02 03:04:05",
              "n": "12.30", "b": 1}  # fmt: skip


@pytest.fixture
def javascript(server: MysqlServer) -> Any:
    node, npm = tool("node"), tool("npm")
    is_there = (cache_directory() / "client-node" / "node_modules").exists()
    install = ["ls"] if is_there else ["ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    directory = built("node", npm, *install)
    return json.loads(printed(node, str(directory / "client.js"), str(server.port), str(directory)))


@pytest.mark.long
def test_mysql2_and_sequelize(javascript: Any) -> None:
    """Sequelize's sync was refused for PRIMARY KEY, its transactions for READ COMMITTED."""
    assert javascript["text"] == [ROW, {**dict.fromkeys(ROW), "k": 2}]
    assert javascript["binary"] == [ROW]
    written = {"k": 10, "v": ROW["v"], "d": 1.25, "dd": "2024-02-03", "ts": "2024-02-03 04:05:06",
               "n": "1.50", "b": 1}  # fmt: skip
    assert javascript["insert"] == [1, written]
    assert javascript["bulk"] == 2
    assert javascript["insertId"] == [1, 2, 70, 0, 2]
    assert javascript["rollback"] == 5
    assert (javascript["unknown"]["errno"], javascript["unknown"]["state"]) == (1146, "42S02")
    assert javascript["pool"] == [1, 2, 3, 4]
    assert javascript["sync"] is True
    assert javascript["create"] == [
        {"id": 1, "name": "a", "born": "2024-01-02", "score": 1.5, "ok": 1, "note": "x", "amount": "1.20"}
    ]
    assert javascript["change"] == [[1, "a", 1.5], [2, "z", 2.5], [4, "new", None]]
    assert javascript["transaction"] == 4
    assert javascript["tables"] == ["t", "users"]
    assert javascript["index"] == [["users", True, "id"]]
    assert [kind for _, kind, _ in javascript["types"]] == [
        "BIGINT", "VARCHAR(50)", "DATE", "DOUBLE", "TINYINT", "STRING", "DECIMAL(10,2)"]  # fmt: skip
    assert javascript["drop"] is True
    ids, stored = javascript["ids"]
    assert (ids[0], ids[-1]) == (1, 90)
    assert stored == [[1, "changed"], [2, "b"], [3, "c"], [90, "d"]]


@pytest.mark.torture
def test_go_sql_driver(server: MysqlServer) -> None:
    directory = built("go", tool("go"), "build", "-o", "client", ".")
    found = json.loads(printed(str(directory / "client"), str(server.port)))
    for mode in ("prepared", "interpolated"):
        assert found[mode] == {
            "affected": 2,
            "row": [ROW["v"], 1.25, "2024-02-03", False, False, True],
            "rollback": [0, 4],
            "ids": [1, 2],
            "types": ["BIGINT", "VARCHAR", "DOUBLE", "DATE", "DATETIME", "DECIMAL", "TINYINT"],
            "unknown": 1146,
        }


@pytest.mark.torture
def test_the_rust_crate_mysql(server: MysqlServer) -> None:
    """It asks for `@@socket` when it connects."""
    directory = built("rust", tool("cargo"), "build", "--quiet")
    text = printed(str(directory / "target" / "debug" / "client"), str(server.port))
    found = dict(line.split("=", 1) for line in text.splitlines())
    assert found == {
        "rows": '[(1, Some("it\'s \\\\ ünï"), Some(1.5)), (2, None, None)]',
        "affected": "1",
        "found": 'Some(("it\'s \\\\ ünï", 1.25, true))',
        "columns": '["k", "v", "ts"]',
        "ids": "1,2",
        "rollback": "Some(2),Some(5)",
        "values": "'2024-01-02','2024-01-02 03:04:05','12.30'",
        "unknown": "1146,42S02",
    }
