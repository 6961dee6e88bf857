"""Rows gathered over a mapped file are those that Arrow takes batch by batch."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pytest

from seqstore import Settings, Table
from seqstore.store.segment import mapped_columns
from seqstore.store.segment import segment as segments
from seqstore.store.segment.mapped_columns import MappedColumns, can_gather
from tests.seeds import new_seed
from tests.support.rows import MakeTable
from tests.weight import by_form

TYPES: dict[pa.DataType, Callable[[random.Random], Any]] = {
    pa.bool_(): lambda rng: rng.random() < 0.5,
    pa.int8(): lambda rng: rng.randint(-128, 127),
    pa.int16(): lambda rng: rng.randint(-(2**15), 2**15 - 1),
    pa.int32(): lambda rng: rng.randint(-(2**31), 2**31 - 1),
    pa.int64(): lambda rng: rng.randint(-(2**63), 2**63 - 1),
    pa.float32(): lambda rng: float(np.float32(rng.uniform(-9, 9))),
    pa.float64(): lambda rng: rng.choice([float("inf"), -0.0, rng.random()]),
    pa.date32(): lambda rng: date(1, 1, 1) + timedelta(days=rng.randint(0, 3_000_000)),
    pa.timestamp("us"): lambda rng: datetime(2024, 1, 1) + timedelta(microseconds=rng.randint(0, 10**15)),
    pa.decimal128(38, 4): lambda rng: Decimal(rng.randint(-(10**37), 10**37)).scaleb(-4),
    pa.decimal256(76, 0): lambda rng: Decimal(rng.randint(-(10**75), 10**75)),
    pa.string(): lambda rng: "".join(rng.choices("aé😀" + string.digits, k=rng.choice([0, 1, 30, 500]))),
    pa.binary(): lambda rng: rng.randbytes(rng.choice([0, 1, 40])),
}


def batches_of(rng: random.Random) -> list[pa.RecordBatch]:
    """Batches of as many rows each but the last, with and without NULLs."""
    rows, made = rng.choice([1, 7, 64, 1000]), []
    for number in range(rng.randint(2, 5)):
        count = rows if number == 0 else rng.randint(1, rows)
        shares = [rng.choice([0, 0, 0.3, 1]) for _ in TYPES]
        columns = [
            pa.array([None if rng.random() < share else value(rng) for _ in range(count)], kind)
            for (kind, value), share in zip(TYPES.items(), shares, strict=True)
        ]
        made.append(pa.record_batch(columns, names=[str(i) for i in range(len(TYPES))]))
    return made


def written(batches: list[pa.RecordBatch]) -> tuple[pa.Buffer, MappedColumns]:
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    file = sink.getvalue()
    reader = ipc.open_file(pa.BufferReader(file))
    mapped = MappedColumns(file, len(TYPES), len(batches))
    for number in mapped.unknown(np.arange(len(batches))):
        mapped.note(number, reader.get_batch(number))
    return file, mapped


@pytest.mark.parametrize(("few", "window"), [(2**17, 2**26), (0, 2**26), (0, 200)])
def test_any_rows_of_any_types_are_those_of_arrow(
    few: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts by their places, or by Arrow, in one window of the file or in many."""
    monkeypatch.setattr(mapped_columns, "_FEW_BYTES", few)
    monkeypatch.setattr(mapped_columns, "_WINDOW_BYTES", window)
    for _ in range(by_form(8, 80)):
        seed = new_seed()
        rng = random.Random(seed)
        batches = batches_of(rng)
        _file, mapped = written(batches)
        assert mapped.is_in_place
        count = rng.choice([1, 5, 300])
        batch_of = np.array([rng.randrange(len(batches)) for _ in range(count)])
        places = np.array([rng.randrange(batches[number].num_rows) for number in batch_of])
        for i, kind in enumerate(TYPES):
            assert can_gather(kind)
            found = mapped.take(i, kind, batch_of, places)
            assert found is not None
            found.validate(full=True)
            expected = [
                batches[number].column(i)[int(place)].as_py()
                for number, place in zip(batch_of.tolist(), places.tolist(), strict=True)
            ]
            assert found.type == kind
            assert found.to_pylist() == expected, f"seed {seed}, {kind}"


def test_only_batches_that_are_met_are_noted() -> None:
    batches = batches_of(random.Random(1))
    file, _ = written(batches)
    mapped = MappedColumns(file, len(TYPES), len(batches))
    assert mapped.unknown(np.array([1, 1])) == [1]
    mapped.note(1, ipc.open_file(pa.BufferReader(file)).get_batch(1))
    assert mapped.unknown(np.array([1, 0, 1])) == [0]


def test_a_batch_that_is_elsewhere_is_noticed() -> None:
    """Such as one that a reader had to decode."""
    batches = batches_of(random.Random(2))
    file, _ = written(batches)
    mapped = MappedColumns(file, len(TYPES), len(batches))
    mapped.note(0, batches[0])
    assert not mapped.is_in_place


def test_texts_that_lie_far_apart_are_taken_by_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow reserves half of the bytes between the first and the last text of a call."""
    monkeypatch.setattr(mapped_columns, "_FEW_BYTES", 0)
    monkeypatch.setattr(mapped_columns, "_WINDOW_BYTES", 10_000)
    taken: list[int] = []
    window = MappedColumns._window

    def noted(self: MappedColumns, starts: Any, lengths: Any) -> pa.Array:
        taken.append(int(starts[-1] - starts[0]))
        return window(self, starts, lengths)

    monkeypatch.setattr(MappedColumns, "_window", noted)
    texts = [f"{number:04}" * 25 for number in range(1_000)]
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, pa.schema({"t": pa.string()})) as writer:
        writer.write_batch(pa.record_batch([pa.array(texts)], names=["t"]))
    file = sink.getvalue()
    mapped = MappedColumns(file, 1, 1)
    mapped.note(0, ipc.open_file(pa.BufferReader(file)).get_batch(0))
    places = np.random.default_rng(1).choice(1_000, 500)
    found = mapped.take(0, pa.string(), np.zeros(500, dtype=np.int64), places)
    assert found is not None
    assert found.to_pylist() == [texts[place] for place in places.tolist()]
    assert len(taken) >= 10
    assert max(taken) < 10_000


def test_too_many_texts_are_left_to_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_columns, "_TEXT_BYTES_MAX", 100)
    batch = pa.record_batch([pa.array(["x" * 60] * 9)], names=["t"])
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    file = sink.getvalue()
    mapped = MappedColumns(file, 1, 1)
    mapped.note(0, ipc.open_file(pa.BufferReader(file)).get_batch(0))
    zeros = np.zeros(2, dtype=np.int64)
    found = mapped.take(0, pa.string(), zeros[:1], zeros[:1])
    assert found is not None
    assert found.to_pylist() == ["x" * 60]
    assert mapped.take(0, pa.string(), zeros, zeros) is None


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int8()), pa.struct({"x": pa.int8()}), pa.map_(pa.int8(), pa.int8())]
)
def test_nested_values_are_left_to_arrow(kind: pa.DataType) -> None:
    assert not can_gather(kind)


COLUMNS = ("k BIGINT NOT NULL", "v INT", "t STRING", "b BOOLEAN", "p DECIMAL(9, 2)", "l ARRAY<INT>")


@pytest.mark.settings(Settings(inline_bytes_max=0, batch_rows_max=20, auto_compaction=0))
@pytest.mark.parametrize("mapped_reads", [True, False])
@pytest.mark.parametrize("layout", [{}, {"compression": "zstd"}, {"storage_format": "parquet"}])
def test_look_ups_answer_the_same_with_and_without_a_gather(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch, layout: dict[str, str], mapped_reads: bool
) -> None:
    table = make_table(*COLUMNS, **layout)
    table.loader.disk.mapped_reads = mapped_reads
    keys = list(range(1_000))
    rows: dict[str, list[Any]] = {
        "k": keys,
        "v": [None if key % 7 == 0 else key for key in keys],
        "t": ["t" * (key % 40) for key in keys],
        "b": [key % 3 == 0 for key in keys],
        "p": [None if key % 5 == 0 else Decimal(key).scaleb(-2) for key in keys],
        "l": [[key] * (key % 3) for key in keys],
    }
    table.upsert(pa.table(rows))
    table.optimize(full=True)
    wanted = pa.table({"k": random.Random(new_seed()).sample(range(1_200), 400)})
    gathered: list[object] = []
    take = MappedColumns.take

    def noted(self: MappedColumns, *arguments: Any) -> pa.Array | None:
        gathered.append(arguments)
        return take(self, *arguments)

    monkeypatch.setattr(MappedColumns, "take", noted)
    for columns in (["k", "v", "t", "b", "p"], ["t"], ["k", "l"]):
        monkeypatch.setattr(segments, "_SCATTERED_ROWS", 64)
        gathered.clear()
        found = table.get(wanted, columns)
        assert bool(gathered) == (not layout and "l" not in columns)
        monkeypatch.setattr(segments, "_SCATTERED_ROWS", 0)
        assert table.get(wanted, columns).equals(found)
        assert [row[columns[0]] for row in found.to_pylist()] == [
            rows[columns[0]][key] for key in wanted["k"].to_pylist() if key < 1_000
        ]


def test_a_damaged_batch_is_found_by_a_gather_too(make_table: MakeTable) -> None:
    """Each batch that it meets is compared with its checksum first."""
    from seqstore import CorruptionError, Store

    table = make_table("k BIGINT NOT NULL", "v INT")
    with Store.open(
        table.catalog.path.parent, settings=Settings(inline_bytes_max=0, batch_rows_max=20, auto_compaction=0)
    ) as store:
        other: Table = store.table("db.t")
        other.upsert(pa.table({"k": list(range(1_000)), "v": [7] * 1_000}))
        [live] = other.state().segments.values()
        path = other.loader.disk.path(f"{other.loader.directory}/{live.segment.meta.id}.arrow")
        data = bytearray(path.read_bytes())
        start, length, _ = live.segment.meta.ranges[10]
        data[start + length // 2] ^= 1
        fresh = path.with_suffix(".fresh")
        fresh.write_bytes(data)
        fresh.replace(path)
    with (
        Store.open(table.catalog.path.parent) as store,
        pytest.raises(CorruptionError, match="batch 9 does not match its checksum"),
    ):
        store.table("db.t").get(pa.table({"k": list(range(0, 1_000, 3))}))
