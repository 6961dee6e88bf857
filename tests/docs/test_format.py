"""docs/format.md describes every database, key, field and file of a store that holds every kind of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pyarrow as pa
import pyarrow.ipc as ipc
import pytest
import xxhash

from seqstore import Settings, Store
from seqstore.store.catalog.catalog import pack
from seqstore.store.sql.session.session import Session
from tests.support.every_kind import EveryKind, every_kind, rows
from tests.support.format_page import FormatPage

PAGE = Path(__file__).parents[2] / "docs" / "format.md"
# Optional packages, or an object store, make these: they have tests of their own.
ELSEWHERE = (
    "cache/",
    "iceberg/",
    "locks/iceberg-",
    "locks/open-",
    "locks/shipper",
    "tables/<table>/<name>.feed",
    "tables/<table>/_delta_log/",
    "tables/<table>/metadata/",
    "tables/<table>/deletion_vector_",
    "trash/",
)
WORD = 2**64 - 1


@pytest.fixture(scope="module")
def page() -> FormatPage:
    return FormatPage.read(PAGE.read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EveryKind]:
    with every_kind(tmp_path_factory.mktemp("every-kind")) as everything:
        yield everything


def databases(store: Store) -> list[str]:
    """Names of the databases that LMDB has."""
    # Under another name, for LMDB opens a path once in a process.
    copy = store.path.parent / "catalog-copy.mdb"
    copy.write_bytes((store.path / "catalog" / "data.mdb").read_bytes())
    with (
        lmdb.open(str(copy), max_dbs=1, subdir=False, readonly=True, lock=False) as environment,
        environment.begin() as txn,
    ):
        return [bytes(key).decode() for key, _ in txn.cursor()]


def files(store: Store) -> list[str]:
    found = sorted(path for path in store.path.rglob("*") if path.is_file())
    return [path.relative_to(store.path).as_posix() for path in found]


def test_every_database_is_on_the_page(made: EveryKind, page: FormatPage) -> None:
    found = databases(made.store)
    assert len(found) > 20
    assert set(found) == {name for name, described in page.types.items() if described.key}


def test_every_key_and_every_field_is_on_the_page(made: EveryKind, page: FormatPage) -> None:
    faults, empty = set(), []
    with made.store.catalog.read() as tx:
        for name in databases(made.store):
            records = list(tx.records(name))
            empty += [] if records else [name]
            if name == "meta":
                records = [(b"all", {key.decode(): value for key, value in records})]
            for key, record in records:
                faults |= {*page.key_faults(name, key), *page.faults(name, record)}
    assert sorted(faults) == []
    assert empty == ["outbox"]
    # This store keeps its segments beside the catalog, and cannot ship it.
    assert {(name, path.partition(".")[0]) for name, path in page.unused()} == {
        *(("meta", name) for name in ("following", "segments", "ship", "shipped")),
        ("outbox", "(value)"),
    }


def test_records_of_a_shipped_catalog_are_on_the_page(tmp_path: Path, page: FormatPage) -> None:
    settings = Settings(ship_seconds=3600)
    with Store.open(tmp_path / "data", segments=f"file://{tmp_path}/segments", settings=settings) as store:
        store.shipping.begin(str(tmp_path / "shipped"))
        store.create_database("db")
        faults: set[str] = set()
        found: set[str] = set()
        for opened in (store, Store.open(str(tmp_path / "shipped"), mode="r")):
            with opened.catalog.read() as tx:
                record = {key.decode(): value for key, value in tx.records("meta")}
                faults |= {each for each in page.faults("meta", record) if not each.endswith("is missing")}
                found |= record.keys()
                for key, value in tx.records("outbox"):
                    faults |= {*page.key_faults("outbox", key), *page.faults("outbox", value)}
            opened.close()
    assert faults == set()
    assert {"ship", "shipped", "following"} <= found
    assert {page.describes(name) for name in files(store)} >= {"locks/shipper"}


def test_every_file_is_on_the_page(made: EveryKind, page: FormatPage) -> None:
    found = {name: page.describes(name) for name in files(made.store)}
    assert [name for name, pattern in found.items() if pattern is None] == []
    missing = set(page.files) - set(found.values())
    assert [pattern for pattern in sorted(missing) if not pattern.startswith(ELSEWHERE)] == []


def test_segments_on_an_object_store_have_copies(tmp_path: Path, page: FormatPage) -> None:
    objects = tmp_path / "objects"  # a directory in place of a bucket
    (objects / "tables" / "1").mkdir(parents=True)
    with Store.open(tmp_path / "data", segments=objects.as_uri()) as store, Session(store) as session:
        list(
            session.execute(
                "CREATE DATABASE db; CREATE TABLE db.t (k INT, v VARCHAR(9), n INT) UNIQUE KEY (k)"
            )
        )
        store.table("db.t").upsert(rows(count=20_000))
        with store.catalog.read() as tx:
            assert tx.get("meta", b"segments") == objects.as_uri()
        assert {page.describes(name) for name in files(store)} >= {"cache/tables/<table>/<name>"}
        assert None not in {page.describes(name) for name in files(store)}
    assert {path.suffix for path in objects.rglob("*") if path.is_file()} == {".arrow", ".keys"}


def test_an_iceberg_copy_is_on_the_page(tmp_path: Path, page: FormatPage) -> None:
    pytest.importorskip("pyiceberg")
    with Store.open(tmp_path / "data") as store, Session(store) as session:
        statements = (
            "CREATE DATABASE db; CREATE TABLE db.t (k INT) UNIQUE KEY (k); INSERT INTO db.t VALUES (1)"
        )
        list(session.execute(statements))
        list(session.execute("REORG TABLE db.t APPLY (UPGRADE UNIFORM(ICEBERG_COMPAT_VERSION=2))"))
        found = {page.describes(name) for name in files(store)}
    assert None not in found
    assert {pattern for pattern in page.files if "iceberg" in pattern} <= found


def test_an_open_table_is_on_the_page(tmp_path: Path, page: FormatPage) -> None:
    with Store.open(tmp_path / "data") as store, Session(store) as session:
        opened = "'delta.universalFormat.enabledFormats' = 'delta,iceberg', 'open_every_seconds' = '0'"
        list(
            session.execute(
                f"CREATE DATABASE db; CREATE TABLE db.t (k INT) UNIQUE KEY (k) PROPERTIES ({opened})"
            )
        )
        list(session.execute("INSERT INTO db.t VALUES (1), (2)"))
        log = next(store.path.glob("tables/*/_delta_log"))
        (log / f"{2:020}.json").write_text("{}")
        (log.parent / "metadata" / "v3.metadata.json").write_text("{}")
        list(session.execute("DELETE FROM db.t WHERE k = 1"))
        found = {page.describes(name) for name in files(store)}
    assert None not in found
    assert {
        pattern
        for pattern in page.files
        if pattern.startswith("tables/<table>/") and ("_" in pattern or "metadata" in pattern)
    } <= found


def test_planned_changes_are_on_the_page(
    tmp_path: Path, page: FormatPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    from seqstore.loaders.spark import change_share
    from seqstore.store.runtime.process_identity import this_process

    monkeypatch.setattr(change_share, "_PLAN_BYTES_MAX", 0)
    with Store.open(tmp_path / "data") as store, Session(store) as session:
        list(session.execute("CREATE DATABASE db; CREATE TABLE db.t (k INT) UNIQUE KEY (k)"))
        shares = change_share.ChangeShares(store.table("db.t"), this_process())
        shares.of([pa.record_batch({"k": [1]})], 2)
        (name,) = [name for name in files(store) if name.endswith(".feed")]
        assert page.describes(name) == "tables/<table>/<name>.feed"
        assert ipc.open_stream(store.path / name).read_all().to_pylist() == [{"k": 1}]
        shares.close()


# ------------------------------------------------------------------------------------------ bytes


def test_a_record_is_a_checksum_a_format_number_and_msgpack() -> None:
    raw = pack("databases", b"db", {"id": 7})
    seed = xxhash.xxh3_64_intdigest(b"db", xxhash.xxh3_64_intdigest(b"databases"))
    assert raw[:8] == xxhash.xxh3_64_intdigest(raw[8:], seed).to_bytes(8, "big")
    assert raw[8:] == b"\x02\x81\xa2id\x07"


def test_lease_files_are_slots_of_table_and_version(made: EveryKind) -> None:
    (file,) = (made.store.path / "readers").iterdir()
    data = file.read_bytes()
    assert len(data) == 4096 * 16
    slots = set(struct.iter_unpack("<QQ", data))
    assert (made.store.table("db.plain").id, 2) in slots


def test_a_load_marker_holds_the_digits_of_its_load(made: EveryKind) -> None:
    markers = sorted((made.store.path / "tables").rglob("*.load"), key=lambda path: len(path.name))
    assert [len(path.stem.rpartition("-")[2]) for path in markers] == [16, 32]
    for path in markers:
        digits = path.stem.rpartition("-")[2][:16]
        assert path.read_bytes() == digits.encode()
        assert [other.suffix for other in path.parent.glob(f"*-{digits}*") if other.suffix != ".load"]


def test_an_error_log_has_a_line_for_each_row(made: EveryKind) -> None:
    texts = [path.read_text() for path in (made.store.path / "error_log").iterdir()]
    assert "line 1: Reason: expected 5 fields, found 3. src line [x,a,1];\n" in texts


def mix(x: int) -> int:
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD & WORD
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 & WORD
    return x ^ x >> 33


def fold(h: int, x: int) -> int:
    h = (h ^ x) * 0xBF58476D1CE4E5B9 & WORD
    return h ^ h >> 29


def text_hash(text: bytes) -> int:
    h = len(text) * 0xFF51AFD7ED558CCD & WORD
    for at in range(0, min(len(text), 128), 8):
        h = fold(h, int.from_bytes(text[at : at + 8], "little"))
    return h ^ (xxhash.xxh3_64_intdigest(text) if len(text) > 128 else 0)


def codes(store: Store, table: str) -> list[int]:
    (live,) = store.table(table).state(2).segments.values()
    return [int(code) for code in live.segment.index.codes]


def test_exact_key_codes_follow_the_page(made: EveryKind) -> None:
    assert codes(made.store, "db.plain") == sorted(mix(k) for k in range(200))


def test_hashed_key_codes_follow_the_page(tmp_path: Path) -> None:
    texts = [None, "", "a", "12345678", "é" * 60, "x" * 128, "y" * 129]
    with Store.open(tmp_path / "data") as store, Session(store) as session:
        list(
            session.execute(
                "CREATE DATABASE db; "
                "CREATE TABLE db.t (a VARCHAR(500) NULL, b DECIMAL(9, 2)) UNIQUE KEY (a, b)"
            )
        )
        b = pa.array([-1] * len(texts), pa.decimal128(9, 2))
        store.table("db.t").upsert(pa.table({"a": texts, "b": b}))
        found = codes(store, "db.t")
    price = fold(fold(0, -100 & WORD), WORD)
    hashes = [0x9E3779B97F4A7C15 if text is None else text_hash(text.encode()) for text in texts]
    assert found == sorted(mix(fold(fold(2, h), price)) for h in hashes)


def test_the_page_names_the_constants_of_key_codes() -> None:
    text = PAGE.read_text()
    for constant in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 0xBF58476D1CE4E5B9, 0x9E3779B97F4A7C15):
        assert f"0x{constant:016X}" in text


# ------------------------------------------------------------------------------------------ the page itself

SMALL = """
### `things`

Key: `u64` id, `text` name.

| field | type | meaning |
| --- | --- | --- |
| `a` | int | number |
| `b` | text or nil | optional: text |
| `c` | map | by name |
| `c.*.d` | list | list |
| `e` | list | maps |
| `e[].f` | Shared | shared |

### `Shared`

| field | type | meaning |
| --- | --- | --- |
| `g` | bytes | bytes |

## Files

| file | content |
| --- | --- |
| `x/<id>.y` | rows |
"""


@pytest.mark.parametrize(
    ("record", "faults"),
    [
        ({"a": 1, "c": {"any": {"d": []}}, "e": [{"f": {"g": b""}}]}, []),
        ({"a": 1, "b": None, "c": {}, "e": []}, []),
        ({"c": {}, "e": []}, ["things: a is missing"]),
        ({"a": "1", "c": {}, "e": []}, ["things: a is text, expected int"]),
        ({"a": 1, "c": {}, "e": [], "z": 1}, ["things: no field z"]),
        ({"a": 1, "c": {"any": {"z": 1, "d": []}}, "e": []}, ["things: no field c.*.z"]),
        ({"a": 1, "c": {}, "e": [{"f": {"g": b"", "h": 1}}]}, ["Shared: no field h"]),
    ],
)
def test_faults_of_a_record_are_found(record: dict[str, object], faults: list[str]) -> None:
    assert list(FormatPage.read(SMALL).faults("things", record)) == faults


def test_keys_and_files_that_the_page_does_not_describe_are_found() -> None:
    page = FormatPage.read(SMALL)
    assert list(page.key_faults("things", bytes(8) + b"name")) == []
    assert list(page.key_faults("things", bytes(7))) != []
    assert page.describes("x/1.y") == "x/<id>.y"
    assert page.describes("x/1.z") is None
    assert ("things", "a") in page.unused()
