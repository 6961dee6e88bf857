"""The environment of processes that tests start: the modules of this checkout, and no pandas."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
WITHOUT_PANDAS: Final = str(Path(__file__).with_name("without_pandas"))
# PYTHONPATH of a process.
MODULES: Final = os.pathsep.join([WITHOUT_PANDAS, str(ROOT / ".package"), str(ROOT)])


def hide_pandas() -> None:
    """Lets processes that inherit the environment or `sys.path` find no pandas; this one has it already."""
    try:
        importlib.import_module("pandas")
    except ImportError:
        return
    if WITHOUT_PANDAS not in sys.path:
        sys.path.insert(0, WITHOUT_PANDAS)
        given = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([WITHOUT_PANDAS, *([given] if given else [])])
