"""conf/operations: what it names exists, and systemd and Prometheus accept it where they are installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from seqstore import Store
from seqstore.cli.server.notify import READY, notify
from tests.cli.server.test_metrics import ALWAYS, OF_JOBS
from tests.support.children import MODULES
from tests.support.documents import ROOT
from tests.support.http_server import ServerProcess

FOLDER = ROOT / "conf" / "operations"
ENDINGS = ("_total", "_bucket", "_count", "_sum", "")
OF_AUDIT = {"seqstore_audit_events", "seqstore_audit_events_lost"}


@pytest.mark.parametrize("name", ["prometheus-alerts.yml", "grafana-dashboard.json"])
def test_every_metric_that_is_named_is_a_metric_of_the_server(name: str) -> None:
    named = set(re.findall(r"seqstore_[a-z_]+", (FOLDER / name).read_text()))
    known = {f"{metric}{ending}" for metric in (*ALWAYS, *OF_JOBS, *OF_AUDIT) for ending in ENDINGS}
    assert len(named) > 5
    assert named - known == set()


def test_every_alert_says_what_to_do() -> None:
    text = (FOLDER / "prometheus-alerts.yml").read_text()
    alerts = text.split("- alert: ")[1:]
    assert len(alerts) > 5
    for alert in alerts:
        assert all(f"{part}:" in alert for part in ("expr", "severity", "summary", "action")), alert


def test_prometheus_accepts_the_alerts() -> None:
    if (tool := shutil.which("promtool")) is None:
        pytest.skip("needs promtool")
    command = [tool, "check", "rules", str(FOLDER / "prometheus-alerts.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_commands_of_the_compose_file_make_a_store_that_may_be_served(tmp_path: Path) -> None:
    """The first command of the image's page failed in an empty volume: it lacked --create."""
    text = (FOLDER / "compose.yml").read_text()
    found = re.search(r"- >-\n((?: {8}.*\n)+)", text)
    assert found is not None
    line = " ".join(found[1].split()).replace("$$", "$").replace("/data", str(tmp_path / "data"))
    environment = {**os.environ, "SEQSTORE_ROOT_PASSWORD": "secret", "PYTHONPATH": MODULES}
    command = line.replace("seqstore ", f"{sys.executable} -m seqstore.cli.main ", 1)
    for _ in range(2):  # `up` runs it every time
        subprocess.run(["sh", "-c", command], env=environment, check=True)
    with Store.open(tmp_path / "data") as store:
        root = store.accounts.find("root")
        assert root is not None
        assert root.has_password


def test_the_image_runs_as_a_user_of_its_own_and_tells_its_health() -> None:
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    names = [line.split()[0] for line in lines if line and line[0].isupper()]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "HEALTHCHECK" in names
    assert "sql --create" in "".join(lines)


def test_no_service_of_the_compose_file_is_open_to_the_network() -> None:
    text = (FOLDER / "compose.yml").read_text()
    ports = [port for line in re.findall(r"ports: \[(.*)\]", text) for port in re.findall(r'"(.*?)"', line)]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert {"setup", "seqstore", "kafka", "objects"} <= set(re.findall(r"^  (\w+):", text, re.MULTILINE))
    assert all(":" in image for image in re.findall(r"image: (\S+/\S+)", text))  # of a version


def test_the_dashboard_has_no_two_panels_of_one_place() -> None:
    panels = json.loads((FOLDER / "grafana-dashboard.json").read_text())["panels"]
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_a_supervisor_is_told_when_the_server_is_ready_and_when_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(path))
        supervisor.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        Store.open(tmp_path / "data").close()
        server = ServerProcess(tmp_path / "data", is_measured=True, environment=None)
        assert supervisor.recv(100) == b"READY=1"
        assert server.client.request("GET", "/health/ready", user=None).status == 200
        server.stop()
        assert supervisor.recv(100) == b"STOPPING=1"


def test_a_supervisor_that_has_gone_stops_no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for address in ("", "relative", "@nobody", str(tmp_path / "absent")):
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        notify(READY)
