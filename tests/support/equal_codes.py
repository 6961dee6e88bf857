"""Key codes of which many are equal, as hashes of keys hardly ever are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from seqstore.store.segment import key_codes

_finish_hash = key_codes.finish_hash
_WORD = 2**64


def _unshifted(value: int) -> int:
    """Undoes `value ^= value >> 33`."""
    return value ^ (value >> 33)


def _unmixed(value: int) -> int:
    """Undoes the finaliser of codes, step by step from the last one."""
    value = _unshifted(value)
    value = _unshifted(value * pow(int(key_codes._MIX_2), -1, _WORD) % _WORD)
    return _unshifted(value * pow(int(key_codes._MIX_1), -1, _WORD) % _WORD)


def _signed(value: int) -> int:
    return value - _WORD if value >= _WORD // 2 else value


AS_NULL = _signed(_unmixed(int(key_codes._NULL_HASH)))  # the BIGINT that is hashed as NULL is


def _cut(bits: int) -> Callable[[key_codes.Codes], key_codes.Codes]:
    high = np.uint64(((1 << bits) - 1) << (64 - bits))
    return lambda folded: _finish_hash(folded) & high


def keep_bits(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    """Leaves so many leading bits of each hashed code, fewer than 64; exact codes stay as they are."""
    monkeypatch.setattr(key_codes, "finish_hash", _cut(bits))
    monkeypatch.setattr(key_codes, "_PROVEN_TYPES", ())  # nullable BIGINT keys share codes, too


@contextmanager
def hash_bits(bits: int) -> Iterator[None]:
    """Does so for a block; 64 bits are all of them."""
    with pytest.MonkeyPatch.context() as patches:
        if bits < 64:
            keep_bits(patches, bits)
        yield
