"""The three load patterns of Onehouse's lake-loader, at any size, with its ratios.

    fact        365 days. A round has 1 % of the first rows: a quarter updates, over the last 90 days by Zipf
                (shape 2.93, the newest day first); inserts go to the last two days in equal parts.
    dimension   no partitions. A round has 0.5 % of the first rows: half updates, uniform over all.
    events      1,095 days. A round has 0.5 % of the first rows, all new, of the newest day. Ours besides:
                10 % of a round belong to earlier days, that is, they come late.

As there, a row has a key of random text, its day, the round it came with and columns of texts and numbers.
The sequence is the round. A round updates a key once.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.inputs.script import Script, Step, TableSpec

Pattern = Literal["fact", "dimension", "events"]
PATTERNS: Final[tuple[Pattern, ...]] = ("fact", "dimension", "events")

ZIPF_SHAPE: Final = 2.93
UPDATED_DAYS: Final = 90
LATE_EVENTS_SHARE: Final = 0.10
_DAYS: Final = {"fact": 365, "dimension": 1, "events": 1_095}
_ROUND_SHARE: Final = {"fact": 0.01, "dimension": 0.005, "events": 0.005}
_UPDATE_RATIO: Final = {"fact": 0.25, "dimension": 0.5, "events": 0.0}
_FIRST_DAY: Final = 19_000  # days since 1970
_TEXT_BYTES: Final = 24
_SPREAD: Final = 0x9E3779B97F4A7C15

_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.string(), False),
        pa.field("day", pa.date32(), False),
        pa.field("round", pa.int32(), False),
        pa.field("text1", pa.string(), False),
        pa.field("text2", pa.string(), False),
        pa.field("long1", pa.int64(), False),
        pa.field("long2", pa.int64(), False),
        pa.field("float1", pa.float32(), False),
        pa.field("int1", pa.int32(), False),
    ]
)
SPEC: Final = TableSpec(_SCHEMA, ("key",), "round")
Numbers = npt.NDArray[np.int64]


def lake_loader(pattern: Pattern, rows: int, rounds: int, seed: int) -> Script:
    """A pattern at a size.

    Args:
        rows: of round 0, which is loaded at once.
    """
    rng = np.random.default_rng((seed, PATTERNS.index(pattern)))
    days = rng.integers(0, _DAYS[pattern], rows)
    base = _rows(np.arange(rows), days, 0, rng)
    steps = []
    for number in range(1, rounds + 1):
        size = max(4, round(rows * _ROUND_SHARE[pattern]))
        updates = _updated(pattern, days, round(size * _UPDATE_RATIO[pattern]), rng)
        fresh = np.arange(len(days), len(days) + size - len(updates))
        days = np.concatenate((days, _new_days(pattern, len(fresh), rng)))
        keys = rng.permutation(np.concatenate((updates, fresh)))
        kind: Literal["insert", "upsert"] = "insert" if pattern == "events" else "upsert"
        steps.append(Step(kind, _rows(keys, days[keys], number, rng)))
    return Script(SPEC, base, steps)


def zipf_counts(updates: int, days: int) -> Numbers:
    """How many updates each of so many days gets, the newest first; every day gets at least one."""
    weights = 1.0 / np.arange(1, days + 1) ** ZIPF_SHAPE
    counts: Numbers = np.maximum(1, (weights / weights.sum() * updates).astype(np.int64))
    return counts


def _updated(pattern: Pattern, days: Numbers, many: int, rng: np.random.Generator) -> Numbers:
    """Which rows a round updates, each once."""
    if not many:
        return np.array([], dtype=np.int64)
    if pattern == "dimension":
        return np.asarray(rng.choice(len(days), many, replace=False), dtype=np.int64)
    chosen: list[Numbers] = []
    for back, count in enumerate(zipf_counts(many, UPDATED_DAYS)):
        if sum(map(len, chosen)) >= many:
            break
        of_day = np.flatnonzero(days == _DAYS[pattern] - 1 - back)
        chosen.append(rng.choice(of_day, min(int(count), len(of_day)), replace=False))
    return np.concatenate(chosen)[:many]


def _new_days(pattern: Pattern, many: int, rng: np.random.Generator) -> Numbers:
    newest = _DAYS[pattern] - 1
    if pattern == "dimension":
        return np.zeros(many, dtype=np.int64)
    if pattern == "fact":
        return newest - rng.integers(0, 2, many)
    late = rng.random(many) < LATE_EVENTS_SHARE
    return np.where(late, rng.integers(0, newest, many), newest)


def _rows(keys: Numbers, days: Numbers, number: int, rng: np.random.Generator) -> pa.Table:
    many = len(keys)
    columns = [
        _key_texts(keys),
        pa.array((days + _FIRST_DAY).astype(np.int32)).cast(pa.date32()),
        pa.array(np.full(many, number, dtype=np.int32)),
        _texts(rng.integers(97, 123, (many, _TEXT_BYTES), dtype=np.uint8)),
        _texts(rng.integers(97, 123, (many, _TEXT_BYTES), dtype=np.uint8)),
        pa.array(rng.integers(0, 1 << 62, many)),
        pa.array(rng.integers(0, 1 << 62, many)),
        pa.array(rng.random(many, dtype=np.float32)),
        pa.array(rng.integers(0, 1 << 31, many, dtype=np.int32)),
    ]
    return pa.table(columns, schema=_SCHEMA)


def _key_texts(numbers: Numbers) -> pa.Array:
    """Texts in no order, one for each number: 13 digits of a mixed number, then 9 of the number itself."""
    mixed = (numbers.astype(np.uint64) * np.uint64(_SPREAD)) >> np.uint64(21)
    places = np.uint64(10) ** np.arange(12, -1, -1, dtype=np.uint64)
    front = mixed[:, None] // places % np.uint64(10)
    back = numbers.astype(np.uint64)[:, None] // (np.uint64(10) ** np.arange(8, -1, -1, dtype=np.uint64))
    digits = np.concatenate((front, back % np.uint64(10)), axis=1)
    return _texts((digits + np.uint64(ord("0"))).astype(np.uint8))


def _texts(letters: npt.NDArray[np.uint8]) -> pa.Array:
    """A string column from a matrix of letters, a row each."""
    rows, width = letters.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(letters)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data))
