"""The comment below a pull request: the step of the workflow, and a server with GitHub's three requests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.children import MODULES, ROOT
from tests.support.streams.served import served

WORKFLOW = (ROOT / ".github" / "workflows" / "bench.yml").read_text()
TABLE = "| workload | before |\n| --- | --- |\n| scan | 1 ms |\n"


class Comments(ThreadingHTTPServer):
    """Comments of one pull request, in pages, for clients with the token `secret`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.comments: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Comments

    def _answer(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _handle(self) -> None:
        address = urlsplit(self.path)
        sent = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null")
        if self.headers["Authorization"] != "Bearer secret":
            self._answer(401, {"message": "Bad credentials"})
        elif self.command == "GET" and address.path == "/repos/us/store/issues/7/comments":
            asked = parse_qs(address.query)
            size, page = int(asked["per_page"][0]), int(asked["page"][0])
            self._answer(200, self.server.comments[(page - 1) * size : page * size])
        elif self.command == "POST" and address.path == "/repos/us/store/issues/7/comments":
            made = {"id": 1000 + len(self.server.comments), "body": sent["body"], "html_url": "address"}
            self.server.comments.append(made)
            self._answer(201, made)
        elif self.command == "PATCH" and (
            of := re.fullmatch(r"/repos/us/store/issues/comments/(\d+)", address.path)
        ):
            [found] = [each for each in self.server.comments if each["id"] == int(of[1])]
            found["body"] = sent["body"]
            self._answer(200, found)
        else:
            self._answer(404, {"message": "Not Found"})

    do_GET = do_POST = do_PATCH = _handle

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.fixture
def comments() -> Iterator[Comments]:
    with served(Comments()) as server:
        yield server


def step() -> str:
    """The command of the workflow's last step."""
    return WORKFLOW.rsplit("run: ", 1)[1].strip()


def run_step(place: Path, comments: Comments, **environment: str) -> subprocess.CompletedProcess[str]:
    program = place / ".venv" / "bin" / "python"
    if not program.exists():
        program.parent.mkdir(parents=True)
        program.symlink_to(sys.executable)
    (place / "compare.md").write_text(TABLE)
    given = {
        "GITHUB_API_URL": comments.url,
        "GITHUB_REPOSITORY": "us/store",
        "GITHUB_TOKEN": "secret",
        "NUMBER": "7",
        "PYTHONPATH": MODULES,
        "PATH": os.environ["PATH"],
        **environment,
    }
    return subprocess.run(
        ["bash", "-ec", step()], cwd=place, env=given, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_step_adds_a_comment_with_the_table(tmp_path: Path, comments: Comments) -> None:
    ended = run_step(tmp_path, comments)
    assert (ended.returncode, ended.stdout) == (0, "address\n"), ended.stderr
    [comment] = comments.comments
    assert comment["body"].endswith(f"\n\n{TABLE}")


def test_a_later_comparison_changes_its_comment(tmp_path: Path, comments: Comments) -> None:
    """Also where it stands behind a page of others."""
    comments.comments = [{"id": number, "body": "of others", "html_url": ""} for number in range(150)]
    for _ in range(2):
        assert run_step(tmp_path, comments).returncode == 0
    assert len(comments.comments) == 151
    assert [each["body"] for each in comments.comments[:150]] == ["of others"] * 150


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"GITHUB_TOKEN": "other"}, "answered 401 Unauthorized"),
        ({"GITHUB_TOKEN": ""}, "needs GITHUB_REPOSITORY and GITHUB_TOKEN"),
        ({"GITHUB_API_URL": "http://127.0.0.1:1"}, "cannot be reached"),
    ],
)
def test_a_comment_that_fails_says_why(
    tmp_path: Path, comments: Comments, environment: dict[str, str], told: str
) -> None:
    ended = run_step(tmp_path, comments, **environment)
    assert ended.returncode != 0
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
