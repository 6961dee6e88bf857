"""Filters whose text Arrow cannot write, for the tests of what the store does without it."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest


def _is_cut() -> bool:
    try:
        str(pc.field("txt").isin(["日" * 33]))
    except UnicodeDecodeError:
        return True
    return False


needs_cut_text = pytest.mark.skipif(
    not _is_cut(), reason="Arrow before 21 writes the whole text of every filter"
)
