"""Key codes of which many are equal, as hashes of keys hardly ever are."""

from __future__ import annotations

import numpy as np
import pytest

from seqstore.store.segment import key_codes

_finish_hash = key_codes.finish_hash


def keep_bits(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    """Leaves so many leading bits of each hashed code; exact codes stay as they are."""
    high = np.uint64(((1 << bits) - 1) << (64 - bits))
    monkeypatch.setattr(key_codes, "finish_hash", lambda folded: _finish_hash(folded) & high)
