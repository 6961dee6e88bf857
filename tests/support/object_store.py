"""An object store for tests: SeaweedFS, started for them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from bench.trials.free_ports import free_ports

WEED = Path(sys.executable).with_name("weed")


_TRIES = 5  # another process may take a port before the server does
_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port",
    "s3.port.grpc",
)


@contextmanager
def object_store(folder: Path) -> Iterator[str]:
    """URI of an empty bucket on a server of its own, with a place for a prefix."""
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": "any", "secretKey": "any"}],
        "actions": ["Admin"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    log = folder / "log"
    try:
        for attempt in range(1, _TRIES + 1):
            with started(folder, log) as (server, uri):
                if is_ready(uri.format("x"), server):
                    yield uri
                    break
                text = log.read_text()
                if attempt == _TRIES or "address already in use" not in text:
                    pytest.fail(f"the object store did not start:\n{text[-3000:]}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def started(folder: Path, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server on free ports, perhaps not ready yet, and the URI of its bucket."""
    ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
    command = [
        str(WEED),
        "server",
        "-dir",
        str(folder),
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-s3",
        "-volume.max=20",
        f"-s3.config={folder / 's3.json'}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder)
    try:
        endpoint = f"127.0.0.1:{ports['s3.port']}"
        yield server, f"s3://any:any@tests/{{}}?endpoint_override={endpoint}&scheme=http&region=us-east-1"
    finally:
        server.kill()  # it would take its time, and its files are not needed
        server.wait(120)


def is_ready(uri: str, server: subprocess.Popen[bytes]) -> bool:
    """Makes the bucket as soon as the server answers, which it does not announce; False if it ended."""
    address, _, query = uri.partition("?")
    filesystem, _ = pafs.FileSystem.from_uri(f"{address}?{query}&allow_bucket_creation=true")
    deadline = time.monotonic() + 200
    while True:
        try:
            filesystem.create_dir("tests")
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        else:
            return True
