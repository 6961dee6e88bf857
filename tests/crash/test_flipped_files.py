"""A flipped bit anywhere in a file beside the catalog: right rows or `CorruptionError`, never wrong rows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from seqstore import CorruptionError, Settings, Store
from tests.support.faults.file_works import COLUMNS, rows
from tests.support.rows import rows_of, schema_of
from tests.weight import by_form

FLIPS = by_form(25, 400)
FORMATS = {
    "plain": {},
    "lz4": {"compression": "lz4"},
    "parquet": {"storage_format": "parquet"},
}
pytestmark = pytest.mark.crash


@pytest.mark.parametrize("form", FORMATS)
def test_a_flipped_bit_of_a_file_shows_no_wrong_row(tmp_path: Path, form: str) -> None:
    path = tmp_path / "data"
    settings = Settings(inline_bytes_max=0, auto_compaction=0, catalog_bytes_max=2**24, mapped_reads=False)
    with Store.open(path, settings=settings) as store:
        store.create_database("db")
        table = store.create_table("db.t", schema_of(*COLUMNS, **FORMATS[form]))
        table.upsert(rows(range(300), "first"))
        table.upsert(rows(range(200, 400), "second"))
        expected = rows_of(table)
    seed = random.SystemRandom().randrange(2**32)
    chosen = random.Random(seed)
    files = sorted(each for each in path.rglob("*") if each.suffix in (".arrow", ".parquet", ".keys"))
    assert {each.suffix for each in files} == {".keys", ".parquet" if form == "parquet" else ".arrow"}
    for _ in range(FLIPS):
        file = chosen.choice(files)
        data = file.read_bytes()
        place, bit = chosen.randrange(len(data)), chosen.randrange(8)
        file.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
        said = f"seed {seed}: {file.name} {place}:{bit}"
        with Store.open(path, settings=settings) as store:
            table = store.table("db.t")
            try:
                assert rows_of(table) == expected, said
                keys = table.get({"k": [1, 250, 399, 1000]}).to_pylist()
                assert len(keys) == 3, said
            except CorruptionError:
                pass
            assert any(file.stem in finding for finding in table.check()), said
        file.write_bytes(data)
