"""A flipped bit in a file of any kind: right rows or `CorruptionError`, never wrong rows.

`test_flipped_catalog` has the classes of bytes of the catalog.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import CorruptionError, Settings, Store
from tests.seeds import new_seed
from tests.support.children import MODULES, ROOT
from tests.support.faults import flipped_kinds
from tests.support.faults.file_works import COLUMNS, rows
from tests.support.format_page import FormatPage
from tests.support.rows import rows_of, schema_of
from tests.weight import by_form, torture_minutes

FLIPS = by_form(25, 100)
FORMATS = {
    "plain": {},
    "lz4": {"compression": "lz4"},
    "parquet": {"storage_format": "parquet"},
}
PAGE = FormatPage.read((ROOT / "docs" / "format.md").read_text())
FLIPS_OF_KIND = by_form(1, 5)
# These have a test of their own below.
ELSEWHERE = ("cache/tables/<table>/<name>", "locks/shipper", "tables/<table>/<name>.feed")
# A damaged queue or lease costs a wait or a version that is held, no rows.
MAY_BE_REFUSED = ("locks/queue", "readers/<pid>-<start>")
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
    seed = new_seed()
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


Flip = Callable[[str, int, int], str]


@pytest.fixture(scope="module")
def store_of_every_kind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    pytest.importorskip("pyiceberg")
    with flipped_kinds.open_store_of_every_kind(tmp_path_factory.mktemp("kinds")) as path:
        yield path


@pytest.fixture(scope="module")
def flip(store_of_every_kind: Path) -> Iterator[Flip]:
    """Flips a bit of a file, and gives what came of it."""
    with subprocess.Popen(
        [sys.executable, "-m", flipped_kinds.__name__, str(store_of_every_kind)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": MODULES},
        text=True,
    ) as program:

        def ask(name: str, offset: int, bit: int) -> str:
            assert program.stdin is not None
            assert program.stdout is not None
            program.stdin.write(f"{name} {offset} {bit}\n")
            program.stdin.flush()
            return program.stdout.readline().rstrip("\n").partition("\t")[2]

        yield ask
        program.communicate()


@pytest.fixture(scope="module")
def names(store_of_every_kind: Path) -> dict[str | None, list[str]]:
    """Files that are not empty, by the pattern of docs/format.md."""
    found: dict[str | None, list[str]] = {}
    for path in sorted(store_of_every_kind.rglob("*")):
        if path.is_file():
            name = path.relative_to(store_of_every_kind).as_posix()
            found.setdefault(PAGE.describes(name), []).append(name)
    return found


def test_every_kind_of_file_of_the_format_is_flipped(names: dict[str | None, list[str]]) -> None:
    """A new kind needs a file in the store of `every_kind`, or a test of its own."""
    assert set(names) == set(PAGE.files) - set(ELSEWHERE)


@pytest.mark.parametrize("kind", sorted(set(PAGE.files) - set(ELSEWHERE)))
def test_a_flipped_bit_of_a_kind_of_file_shows_no_wrong_row(
    store_of_every_kind: Path, names: dict[str | None, list[str]], flip: Flip, kind: str
) -> None:
    sizes = filled_of(store_of_every_kind, names[kind])
    seed = new_seed()
    chosen = random.Random(seed)
    for _ in range(FLIPS_OF_KIND if sizes else 0):
        assert not wrong_answer(flip, kind, sizes, chosen), f"seed {seed}"


@pytest.mark.torture
def test_flipped_bits_of_all_kinds_of_files_show_no_wrong_row(
    store_of_every_kind: Path, names: dict[str | None, list[str]], flip: Flip
) -> None:
    found = {kind: filled_of(store_of_every_kind, names[kind]) for kind in names if kind is not None}
    kinds = sorted(kind for kind, sizes in found.items() if sizes)
    seed = new_seed()
    chosen, flips, ends = random.Random(seed), 0, time.monotonic() + 60 * torture_minutes()
    while time.monotonic() < ends:
        kind = chosen.choice(kinds)
        assert not wrong_answer(flip, kind, found[kind], chosen), f"seed {seed}, flip {flips}"
        flips += 1
    print(f"{flips} flips in {len(kinds)} kinds of files, none with a wrong row")


def filled_of(store: Path, names: list[str]) -> dict[str, int]:
    """The files that are not empty, with their bytes."""
    sizes = {name: (store / name).stat().st_size for name in names}
    return {name: size for name, size in sizes.items() if size}


def wrong_answer(flip: Flip, kind: str, sizes: dict[str, int], chosen: random.Random) -> str:
    """Flips a bit of one of the files; returns what was wrong, or nothing."""
    name = chosen.choice(list(sizes))
    offset, bit = chosen.randrange(sizes[name]), chosen.randrange(8)
    outcome, _, reason = flip(name, offset, bit).partition(" ")
    allowed = ["right", "corruption", *(["refused"] if kind in MAY_BE_REFUSED else [])]
    return "" if outcome in allowed else f"{name} {offset}:{bit}: {outcome} {reason}"


def test_a_flipped_bit_of_a_local_copy_of_an_object_shows_no_wrong_row(tmp_path: Path) -> None:
    (tmp_path / "objects" / "tables" / "1").mkdir(parents=True)  # a directory in place of a bucket
    settings = Settings(inline_bytes_max=0, auto_compaction=0, catalog_bytes_max=2**24)
    path, objects = tmp_path / "data", (tmp_path / "objects").as_uri()
    with Store.open(path, segments=objects, settings=settings) as store:
        store.create_database("db")
        table = store.create_table("db.t", schema_of(*COLUMNS))
        table.upsert(rows(range(300), "first"))
        expected = rows_of(table)
        assert len(table.get({"k": [7]})) == 1
    seed = new_seed()
    chosen = random.Random(seed)
    copies = [each for each in (path / "cache").rglob("*") if each.is_file() and each.stat().st_size]
    assert copies
    for _ in range(by_form(8, 100)):
        file = chosen.choice(copies)
        data = file.read_bytes()
        place, bit = chosen.randrange(len(data)), chosen.randrange(8)
        file.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
        with Store.open(path, segments=objects, settings=settings) as store:
            table = store.table("db.t")
            try:
                assert rows_of(table) == expected, f"seed {seed}: {file.name} {place}:{bit}"
                assert table.get({"k": [7]}).to_pylist()[0]["v"] == "first"
            except CorruptionError:
                pass
        file.write_bytes(data)


@pytest.mark.long
def test_a_flipped_bit_of_planned_changes_reaches_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file had no checksum: a stream got other rows."""
    pytest.importorskip("pyspark")
    from seqstore.loaders.spark import change_share
    from seqstore.store.runtime.process_identity import this_process

    monkeypatch.setattr(change_share, "_PLAN_BYTES_MAX", 0)
    with Store.open(tmp_path / "data") as store:
        store.create_database("db")
        table = store.create_table("db.t", schema_of(*COLUMNS))
        shares = change_share.ChangeShares(table, this_process())
        (share,) = shares.of(rows(range(30), "fed").to_batches(), 2)
        assert pa.Table.from_batches(share.read()).num_rows == 30
        (file,) = (tmp_path / "data").rglob("*.feed")
        data = file.read_bytes()
        for place in range(0, len(data), by_form(577, 97)):
            file.write_bytes(data[:place] + bytes([data[place] ^ 8]) + data[place + 1 :])
            with pytest.raises(CorruptionError):
                list(share.read())
        shares.close()
