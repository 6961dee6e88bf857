"""NumPy's AVX-512 off on Zen 4 processors, where its AVX2 sorts of integers are two to five times as fast.

A bulk load sorts the codes of all its keys; with the other sorts it needs two thirds of the processor time.
NumPy reads the choice once, when it is imported, and it holds for the whole process: exponentials and
logarithms are slower then. So only the command makes it, whose process runs nothing but the engine; a program
that uses the package may set the variable itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

VARIABLE: Final = "NPY_DISABLE_CPU_FEATURES"
_CPUINFO: Final = Path("/proc/cpuinfo")
_FIRST_PROCESSOR_BYTES: Final = 4096
_ZEN_4_MODELS: Final = (range(0x10, 0x20), range(0x60, 0x80), range(0xA0, 0xB0))  # of family 25
_NEW_NAMES: Final = (2, 4)  # the NumPy that names features by levels of x86-64


def prefer_avx2_sorts(cpuinfo: Path = _CPUINFO) -> None:
    """Sets NumPy's variable on a Zen 4 processor, unless it is set or NumPy is imported already.

    Args:
        cpuinfo: Linux's description of the processors; without it nothing is set.
    """
    if VARIABLE in os.environ or "numpy" in sys.modules or not _is_zen_4(cpuinfo):
        return
    from importlib.metadata import version  # takes ten times as long to import as this module

    major, minor = version("numpy").split(".")[:2]
    os.environ[VARIABLE] = "X86_V4" if (int(major), int(minor)) >= _NEW_NAMES else "AVX512_SKX"


def _is_zen_4(cpuinfo: Path) -> bool:
    """Returns whether the first processor is one, with AVX-512 that the system lets programs use."""
    try:
        with cpuinfo.open("rb") as file:  # all of it takes milliseconds where there are many processors
            text = file.read(_FIRST_PROCESSOR_BYTES).decode(errors="replace")
    except OSError:
        return False
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    facts = {name.strip(): value.strip() for name, _, value in lines}
    if facts.get("vendor_id") != "AuthenticAMD" or facts.get("cpu family") != "25":
        return False
    has_avx512 = "avx512f" in facts.get("flags", "").split()
    return has_avx512 and any(int(facts.get("model", "0")) in models for models in _ZEN_4_MODELS)
