"""Says below a pull request what a comparison found.

    python -m bench.comment NUMBER FILE

The file holds the table of `bench.compare` as Markdown. The first comparison adds a comment, later ones
change it, so that a pull request has one. A GitHub workflow sets the environment: `GITHUB_API_URL`,
`GITHUB_REPOSITORY` and `GITHUB_TOKEN`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_MARK: Final = "<!-- bench.compare -->"  # in each comment of this module; readers do not see it
_HEAD: Final = "A workload lost a tenth or more:"
_A_PAGE: Final = 100
_SECONDS: Final = 30.0


def main() -> None:
    """Adds the comment, or changes the one of an earlier comparison."""
    parser = argparse.ArgumentParser(description="Says below a pull request what a comparison found.")
    parser.add_argument("number", type=int, help="of the pull request")
    parser.add_argument("file", type=Path, help="with the table of bench.compare")
    given = parser.parse_args()
    api = Api(
        os.environ.get("GITHUB_API_URL", "https://api.github.com"),
        os.environ.get("GITHUB_REPOSITORY", ""),
        os.environ.get("GITHUB_TOKEN", ""),
    )
    if not api.repository or not api.token:
        sys.exit("bench.comment needs GITHUB_REPOSITORY and GITHUB_TOKEN, which a GitHub workflow sets")
    try:
        print(say(api, given.number, given.file.read_text(encoding="utf-8")))
    except urllib.error.HTTPError as error:
        sys.exit(
            f"{error.url} answered {error.code} {error.reason}: {error.read(500).decode(errors='replace')}"
        )
    except OSError as error:
        sys.exit(f"{api.url} cannot be reached: {error}")


@dataclass(frozen=True)
class Api:
    """The part of GitHub's REST interface that comments need."""

    url: str
    repository: str
    token: str

    def call(self, method: str, path: str, body: dict[str, str] | None = None) -> Any:
        """Returns the answer to a request.

        Raises:
            urllib.error.HTTPError: it was refused.
        """
        request = urllib.request.Request(
            f"{self.url}/repos/{self.repository}/{path}",
            json.dumps(body).encode() if body is not None else None,
            {
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
            },
            method=method,
        )
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return json.load(answer)


def say(api: Api, number: int, table: str) -> str:
    """Adds or changes the comment; returns its address."""
    body = {"body": f"{_MARK}\n{_HEAD}\n\n{table}"}
    earlier = _earlier(api, number)
    if earlier is None:
        return str(api.call("POST", f"issues/{number}/comments", body)["html_url"])
    return str(api.call("PATCH", f"issues/comments/{earlier}", body)["html_url"])


def _earlier(api: Api, number: int) -> int | None:
    """Returns the number of the comment of an earlier comparison."""
    page = 1
    while True:
        found = api.call("GET", f"issues/{number}/comments?per_page={_A_PAGE}&page={page}")
        for comment in found:
            if comment["body"].startswith(_MARK):
                return int(comment["id"])
        if len(found) < _A_PAGE:
            return None
        page += 1


if __name__ == "__main__":
    main()
