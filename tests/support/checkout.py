"""The commit that the tests run on."""

from __future__ import annotations

import subprocess

from tests.support.children import ROOT


def commit_of_checkout() -> str:
    """Returns the commit that is checked out, with `-dirty` after changes; `unknown` without git."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
