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


@contextmanager
def object_store(folder: Path) -> Iterator[str]:
    """URI of an empty bucket on a server of its own, with a place for a prefix."""
    ports = free_ports(9)
    command = [
        str(WEED),
        "server",
        "-dir",
        str(folder),
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-s3",
        "-volume.max=20",
    ]
    names = (
        "master.port",
        "master.port.grpc",
        "volume.port",
        "volume.port.grpc",
        "filer.port",
        "filer.port.grpc",
    )
    command += [f"-{name}={port}" for name, port in zip(names, ports, strict=False)]
    command += [
        f"-s3.port={ports[6]}",
        f"-s3.port.grpc={ports[7]}",
        f"-s3.port.iceberg={ports[8]}",
        "-s3.port.lance=0",
    ]
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": "any", "secretKey": "any"}],
        "actions": ["Admin"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    command.append(f"-s3.config={folder / 's3.json'}")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        uri = f"s3://any:any@tests/{{}}?endpoint_override=127.0.0.1:{ports[6]}&scheme=http&region=us-east-1"
        wait_for_bucket(uri.format("x"), server, folder / "log")
        yield uri
    finally:
        server.kill()  # it would take its time, and nobody needs its files
        server.wait(120)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_bucket(uri: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """The server tells nobody when it is ready: ask until it answers."""
    address, _, query = uri.partition("?")
    filesystem, _ = pafs.FileSystem.from_uri(f"{address}?{query}&allow_bucket_creation=true")
    deadline = time.monotonic() + 200
    while True:
        try:
            filesystem.create_dir("tests")
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the object store did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)
