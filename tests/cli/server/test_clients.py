"""Clients we did not write load into the server, unmodified: curl, and what people install for Doris.

Each Python client runs in a process of its own: one of them makes every HTTP connection of its process speak
HTTP/1.0. Two of them are one module by its name, and name a driver that does not build any more; `make setup`
installs those without what they depend on, each into a folder of its own (CLIENTS in the Makefile).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqstore import Store
from seqstore.store.sql.session.session import Session
from tests.support.http_server import Client, ServerProcess, serving

ROWS = 50_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(tmp_path_factory.mktemp("clients") / "data") as opened, Session(opened) as session:
        list(
            session.execute(
                "CREATE DATABASE db; USE db;"
                "CREATE TABLE t (k INT NOT NULL, v VARCHAR(20) NULL, seq INT NULL) UNIQUE KEY(k) "
                "DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES('function_column.sequence_type'='int')"
            )
        )
        opened.accounts.create("loader", "a-word")
        opened.accounts.grant("loader", ["LOAD"], "db")
        yield opened


@pytest.fixture(scope="module")
def client(store: Store) -> Iterator[Client]:
    with serving(store) as running:
        yield running


def run_python(script: str, *arguments: object, folder: Path | None = None) -> str:
    """Runs a script in a process of its own, with the packages of a folder first, and with pandas."""
    environment = {**os.environ, "PYTHONPATH": str(folder or "")}
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def folder_of(package: str) -> Path:
    """Where `make setup` put a client."""
    folder = Path(sys.prefix) / "clients" / package
    if not folder.is_dir():
        pytest.skip(f"{package} is not installed: pip install --no-deps --target {folder} {package}")
    return folder


def need(module: str, package: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{package} is not installed: pip install {package}")


def row(store: Store, key: int) -> Any:
    found = store.get("db.t", {"k": [key]}).to_pylist()
    return (found[0]["v"], found[0]["seq"]) if found else None


# ---------------------------------------------------------------------------------------------- curl

needs_curl = pytest.mark.skipif(
    shutil.which("curl") is None, reason="curl is not installed: apt-get install curl"
)


def curl(*arguments: str, body: bytes | None = None) -> Any:
    done = subprocess.run(
        ["curl", "-sS", "-u", "loader:a-word", *arguments], input=body, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_curl
@pytest.mark.parametrize("version", ["--http1.1", "--http1.0"])
@pytest.mark.parametrize("wait", [("-H", "Expect: 100-continue"), ("-H", "Expect:")])
def test_curl_loads_a_file_as_the_manual_says(
    client: Client, store: Store, tmp_path: Path, version: str, wait: tuple[str, str]
) -> None:
    """LR1: with and without waiting for 100, over both versions of HTTP."""
    key = 10 + len(version + wait[1])
    file = tmp_path / "rows.csv"
    file.write_text("".join(f"{k},curl,{k}\n" for k in range(ROWS)) + f"{key},last,{ROWS}\n")
    reply = curl(
        *("--location-trusted", version, *wait, "-H", "column_separator:,", "-H", "columns: k,v,seq"),
        *(
            "-H",
            "function_column.sequence_col: seq",
            "-T",
            str(file),
            f"{client.address}/api/db/t/_stream_load",
        ),
    )
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", ROWS + 1)
    assert row(store, key) == ("last", ROWS)


@needs_curl
def test_curl_loads_what_is_piped_into_it_in_chunks(client: Client, store: Store) -> None:
    """LR3."""
    reply = curl(
        *("--location-trusted", "-H", "Expect: 100-continue", "-H", "Transfer-Encoding: chunked"),
        *("-H", "format: json", "-H", "read_json_by_line: true", "-H", "function_column.sequence_col: seq"),
        *("-T", "-", f"{client.address}/api/db/t/_stream_load"),
        body=b'{"k": -1, "v": "chunked", "seq": 1}\n',
    )
    assert reply["Status"] == "Success"
    assert row(store, -1) == ("chunked", 1)


@needs_curl
def test_curl_commits_a_load_in_two_phases(client: Client, store: Store, tmp_path: Path) -> None:
    """PC1, PC2, as the manual prints it."""
    file = tmp_path / "rows.csv"
    file.write_text("-2,two,1\n")
    reply = curl(
        *("--location-trusted", "-H", "two_phase_commit:true", "-H", "column_separator:,"),
        *(
            "-H",
            "function_column.sequence_col: seq",
            "-T",
            str(file),
            f"{client.address}/api/db/t/_stream_load",
        ),
    )
    assert (reply["TwoPhaseCommit"], row(store, -2)) == ("true", None)
    second = curl(
        *("-X", "PUT", "--location-trusted", "-H", f"txn_id:{reply['TxnId']}", "-H", "txn_operation:commit"),
        f"{client.address}/api/db/_stream_load_2pc",
    )
    assert second["status"] == "Success"
    assert row(store, -2) == ("two", 1)


# ---------------------------------------------------------------------------------------------- Python
# clients

PYDORIS = """
import json, sys
from pydoris.doris_client import DorisClient
host, port, rows = sys.argv[1:]
client = DorisClient(host, port, "loader", "a-word")
client.options.set_csv_format("|").set_auto_uuid_label()
client.options.set_option("function_column.sequence_col", "seq")
assert client.write("db", "t", "".join(f"{k}|csv|1\\n" for k in range(100_000, 100_000 + int(rows))))
client = DorisClient(host, port, "loader", "a-word")
client.options.set_json_format().set_label("pydoris-json").set_option("function_column.sequence_col", "seq")
body = "\\n".join(json.dumps({"k": k, "v": "json", "seq": 2}) for k in range(100_000, 100_010))
assert client.write("db", "t", body)
assert not client.write("db", "t", body), "the label was used"
"""


def test_pydoris_loads_csv_and_json(client: Client, store: Store) -> None:
    run_python(PYDORIS, client.host, client.port, ROWS, folder=folder_of("pydoris"))
    assert row(store, 100_009) == ("json", 2)
    assert row(store, 100_000 + ROWS - 1) == ("csv", 1)


PYDORIS_CLIENT = """
import json, sys
import pandas as pd
from pydoris.doris_client import DorisClient
from pydoris.selectdb.config import WriteOptions
host, mysql_port, http_port, rows = sys.argv[1:]
client = DorisClient(host, mysql_port, http_port, "root", "", "shop")
client.create_database("other")
client.execute("CREATE TABLE other.gone (k INT NOT NULL) UNIQUE KEY(k)")
assert client.list_tables("other") == ["gone"]
client.drop_table("other", "gone")
assert client.list_tables("other") == []
frame = pd.DataFrame({"id": range(100), "city": ["Berlin, or not"] * 100, "cost": [0.5] * 100})
frame["city"] = frame["city"].str.partition(",")[0]
client.write_from_df(frame, "shop.orders", "UNIQUE", ["id"], field_mapping=[("city", "VARCHAR(255)")])
fields = client.get_table_columns("shop", "orders").fields
assert [field.field_name for field in fields] == ["id", "city", "cost"], fields
assert "replication" in json.dumps(client.db_operator.get_table_properties("shop.orders"))
options = WriteOptions().set_csv_format("|").set_label("once")
body = "".join(f"{k}|csv|1.5\\n" for k in range(1_000, 1_000 + int(rows)))
assert client.write("shop.orders", body, options)
assert not client.write("shop.orders", body, options), "the label was used"
lines = "\\n".join(json.dumps({"id": k, "city": "json", "cost": 2.5}) for k in range(10))
assert client.write("shop.orders", lines, WriteOptions().set_json_format().set_auto_uuid_label())
found = client.query_to_dataframe(
    "SELECT city, COUNT(*), SUM(cost) FROM shop.orders GROUP BY city ORDER BY city", ["city", "rows", "cost"]
)
assert found["rows"].tolist() == [90, int(rows), 10], found
assert found["cost"].tolist() == [45.0, 1.5 * int(rows), 25.0], found
assert client.query("SELECT COUNT(*) FROM shop.orders") == [(100 + int(rows),)]
"""


def test_pydoris_client_creates_loads_and_reads(tmp_path: Path) -> None:
    """It speaks both protocols: tables and queries over MySQL's, rows over HTTP."""
    with Store.open(tmp_path / "data") as opened:
        opened.create_database("shop")
    server = ServerProcess(tmp_path / "data")
    try:
        ports = (server.mysql_port, server.client.port)
        run_python(PYDORIS_CLIENT, "127.0.0.1", *ports, ROWS, folder=folder_of("pydoris-client"))
    finally:
        assert server.stop() == 0
    with Store.open(tmp_path / "data") as opened:
        assert opened.table("shop.orders").count() == ROWS + 100


DORIS_CLIENT = """
import sys, time
time.sleep = lambda seconds: None  # the client waits three seconds before each request, the first one too
from DorisClient import DorisSession
session = DorisSession([f"{sys.argv[1]}:{sys.argv[2]}"], "db", "loader", "a-word")
rows = [{"k": k, "v": "dict", "seq": 5} for k in range(200_000, 200_100)]
assert session.streamload("t", rows, sequence_col="seq")
late = [{"k": 200_000, "v": "late", "seq": 4}]
assert session.streamload("t", late, sequence_col="seq")
gone = [{"k": 200_001, "v": "gone", "seq": 6}, {"k": 200_002, "v": "kept", "seq": 6}]
assert session.streamload("t", gone, sequence_col="seq", merge_type="MERGE", delete="v='gone'")
"""


def test_doris_client_loads_upserts_and_deletes(client: Client, store: Store) -> None:
    """LR1: it looks for a 307 to an empty body first; LH13, SL1."""
    need("DorisClient", "DorisClient")
    run_python(DORIS_CLIENT, client.host, client.port)
    assert row(store, 200_000) == ("dict", 5)
    assert row(store, 200_001) is None
    assert row(store, 200_002) == ("kept", 6)


DORIS_STREAM_LOAD = """
import json, sys
from doris_stream_load import stream_load
client = stream_load(sys.argv[1], "loader", "a-word", sys.argv[2], "db", "h", "|")
print(json.dumps(client.sendData([f"{k}|line" for k in range(int(sys.argv[3]))])))
"""


def test_doris_stream_load_speaks_http_1_0(client: Client, store: Store) -> None:
    """Its requests end with a slash, have no Host and ask for 100 that HTTP/1.0 does not know."""
    need("doris_stream_load", "doris_stream_load")
    with Session(store) as session:
        list(session.execute("CREATE TABLE IF NOT EXISTS db.h (k INT NOT NULL, v TEXT NULL) UNIQUE KEY(k)"))
    reply = json.loads(run_python(DORIS_STREAM_LOAD, client.host, client.port, ROWS))
    assert (reply["Status"], reply["NumberLoadedRows"]) == ("Success", ROWS)
    assert store.table("db.h").count() == ROWS
