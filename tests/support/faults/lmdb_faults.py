"""Faults in the system calls of LMDB: the library's own pointers to them lead to Python for a while.

LMDB calls `pwrite`, `writev` and `fdatasync` through slots of its shared library, which the dynamic linker
fills. A slot is overwritten with a function that may fail as a full or a broken disk does, and restored.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

_LIBRARY: Final = Path(str(import_module("lmdb.cpython").__file__))
_SIGNATURES: Final[dict[str, Any]] = {
    "pwrite": ctypes.CFUNCTYPE(
        ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, use_errno=True
    ),
    "writev": ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, use_errno=True),
    "fdatasync": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, use_errno=True),
}
_META_BYTES: Final = 2 * 4096

# Receives the name of a call and its arguments; returns the error to fail with, 0 to let the call through.
Fault = Callable[[str, tuple[int, ...]], int]


@contextmanager
def lmdb_fails(fault: Fault) -> Iterator[None]:
    """Lets a function decide for each system call of LMDB whether it fails."""
    restored = [_replaced(name, fault) for name in _SIGNATURES]
    try:
        yield
    finally:
        for address, before, _ in restored:
            _store(address, before)


def full_disk(name: str, arguments: tuple[int, ...]) -> int:
    """Fails as a full disk: every page that is written behind the meta pages."""
    is_meta = name == "pwrite" and arguments[3] < _META_BYTES
    return 0 if is_meta or name == "fdatasync" else errno.ENOSPC


def broken_meta_page(name: str, arguments: tuple[int, ...]) -> int:
    """Fails as a disk that cannot write the meta pages."""
    return errno.EIO if name == "pwrite" and arguments[3] < _META_BYTES else 0


def _replaced(name: str, fault: Fault) -> tuple[int, int, Any]:
    """Redirects a slot; returns its address, what it held, and the function that must stay alive."""
    address = _slot(name)
    kind = _SIGNATURES[name]
    before = ctypes.c_uint64.from_address(address).value
    original = kind(ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value)

    def call(*arguments: int) -> int:
        code = fault(name, arguments)
        if code:
            ctypes.set_errno(code)
            return -1
        result: int = original(*arguments)
        return result

    function = kind(call)
    pointer = ctypes.cast(function, ctypes.c_void_p).value
    assert pointer is not None
    _store(address, pointer)
    return address, before, function


def _store(address: int, value: int) -> None:
    page = address & -mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    ctypes.c_uint64.from_address(address).value = value


def _slot(wanted: str) -> int:
    """Returns the address of the slot of an imported function, from the relocations of the library."""
    data = _LIBRARY.read_bytes()
    headers_at, size, count = _sections(data)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, headers_at + i * size) for i in range(count)]
    for section in sections:
        if section[1] != 4:  # SHT_RELA
            continue
        symbols = sections[section[6]]
        if symbols[1] != 11:  # SHT_DYNSYM
            continue
        names = sections[symbols[6]]
        for at in range(section[4], section[4] + section[5], 24):
            offset, info, _ = struct.unpack_from("<QQq", data, at)
            (name_at,) = struct.unpack_from("<I", data, symbols[4] + (info >> 32) * 24)
            start = names[4] + name_at
            if data[start : data.index(b"\0", start)].decode() == wanted:
                return _base() + int(offset)
    raise LookupError(f"{_LIBRARY} does not import {wanted}")


def _sections(data: bytes) -> tuple[int, int, int]:
    (headers_at,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    return headers_at, size, count


def _base() -> int:
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(_LIBRARY.resolve())):
            return int(line.partition("-")[0], 16)
    raise LookupError(f"{_LIBRARY} is not loaded")
