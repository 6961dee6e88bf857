"""The command's choice of NumPy's sorts: made on Zen 4 only, and never against the user's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seqstore.cli.numpy_sorts import VARIABLE, prefer_avx2_sorts
from tests.support.children import MODULES

AVX512 = "fpu sse2 avx2 avx512f avx512bw"


def described(path: Path, family: int, model: int, vendor: str = "AuthenticAMD", flags: str = AVX512) -> Path:
    """A /proc/cpuinfo of one processor."""
    path.write_text(
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: any\nflags\t\t: {flags}\n\nprocessor\t: 1\nvendor_id\t: {vendor}\n"
    )
    return path


@pytest.fixture(autouse=True)
def _no_numpy_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy")
    monkeypatch.setenv(VARIABLE, "")  # so that what a test sets is taken back
    monkeypatch.delenv(VARIABLE)


@pytest.mark.parametrize("model", [0x11, 0x61, 0x75, 0xA0])
def test_the_command_disables_a_feature_that_numpy_has(tmp_path: Path, model: int) -> None:
    """NumPy renamed its features; of one it does not know it would warn, and disable nothing."""
    prefer_avx2_sorts(described(tmp_path / "cpuinfo", 25, model))
    program = (
        "try: from numpy._core import _multiarray_umath as core\n"
        "except ImportError: from numpy.core import _multiarray_umath as core\n"
        "print(*core.__cpu_dispatch__)"
    )
    chosen = os.environ.pop(VARIABLE)
    names = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert chosen in names.split()


@pytest.mark.parametrize(
    ("family", "model", "vendor", "flags"),
    [
        (25, 0x01, "AuthenticAMD", AVX512),  # Zen 3
        (26, 0x11, "AuthenticAMD", AVX512),  # Zen 5
        (6, 0x11, "GenuineIntel", AVX512),
        (25, 0x11, "AuthenticAMD", "fpu sse2 avx2"),  # hidden by a hypervisor
    ],
)
def test_other_processors_keep_all_features(
    tmp_path: Path, family: int, model: int, vendor: str, flags: str
) -> None:
    prefer_avx2_sorts(described(tmp_path / "cpuinfo", family, model, vendor, flags))
    assert VARIABLE not in os.environ


@pytest.mark.parametrize("text", [None, "", "processor : 0\n", "vendor_id: AuthenticAMD\ncpu family: 25\n"])
def test_an_unusual_description_is_no_zen_4(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    prefer_avx2_sorts(tmp_path / "cpuinfo")
    assert VARIABLE not in os.environ


def test_the_users_own_choice_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    prefer_avx2_sorts(described(tmp_path / "cpuinfo", 25, 0x11))
    assert os.environ[VARIABLE] == ""


def test_a_process_that_has_numpy_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", pytest)
    prefer_avx2_sorts(described(tmp_path / "cpuinfo", 25, 0x11))
    assert VARIABLE not in os.environ


def test_every_command_chooses_before_numpy_is_imported() -> None:
    """The commands import the engine when they run; an import above would come too early."""
    program = "import sys, seqstore.cli.main; sys.exit('numpy' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": MODULES}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
