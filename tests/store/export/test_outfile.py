"""SELECT .. INTO OUTFILE: every form and type, read back by a stream load, equals the source."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from seqstore import AccessDeniedError, InvalidInputError, Session, Store, Table
from seqstore.loaders.stream_load import stream_load
from tests.seeds import new_seed
from tests.support.object_store import WEED, object_store
from tests.support.rows import rows_of
from tests.support.statements import last_result, run
from tests.weight import by_form

COLUMNS = (
    "k BIGINT NOT NULL, b BOOLEAN, i TINYINT, j INT, l LARGEINT, f FLOAT, d DOUBLE, n DECIMAL(20, 4), "
    "w DECIMAL(60, 10), day DATE, at DATETIME(6), s VARCHAR(200), t STRING, js JSON, a ARRAY<INT>, "
    "m MAP<STRING, INT>, st STRUCT<x: INT, y: STRING>, ts ARRAY<STRING>, ds ARRAY<DECIMAL(9, 2)>"
)
pytestmark = [
    pytest.mark.sql(f"CREATE TABLE {name} ({COLUMNS}) UNIQUE KEY(k)") for name in ("source", "copy")
]
# Texts that a reader may take for something else.
PLAIN = ["", "a", " a ", "NULL", "null", "ä€𐍈", "{}", "'", "\\", "\\n", '"', '"x"', "#", "x\\", "1"]
HARD = [*PLAIN, "\t", ",", "a\tb", "\n", "a\r\nb", "\\N", '"\t"', "\\\\N", "\r", '"\n"']
FORMS: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("csv", {}, {"column_separator": "\t"}),
    ("csv", {"column_separator": "\\x01"}, {"column_separator": "\\x01"}),
    ("csv", {"column_separator": "||", "line_delimiter": ";;"},
     {"column_separator": "||", "line_delimiter": ";;"}),
    ("csv_with_names", {"column_separator": ";"}, {"column_separator": ";", "format": "csv_with_names"}),
    ("csv_with_names_and_types", {}, {"format": "csv_with_names_and_types"}),
    ("csv", {"column_separator": ",", "enclose": '"'},
     {"column_separator": ",", "enclose": '"', "trim_double_quotes": "true"}),
    ("csv", {"enclose": "'"}, {"enclose": "'"}),
    ("json", {}, {"format": "json", "read_json_by_line": "true"}),
    ("parquet", {}, {"format": "parquet"}),
    ("parquet", {"compression": "zstd"}, {"format": "parquet"}),
]  # fmt: skip


def values(chosen: random.Random, texts: list[str]) -> dict[str, Any]:
    """One row with a value or NULL for each column."""
    text = chosen.choice(texts)
    row = {
        "b": chosen.random() < 0.5,
        "i": chosen.choice([-128, 0, 127]),
        "j": chosen.randrange(-(2**31), 2**31),
        "l": Decimal(chosen.choice([-(2**127), 0, 2**127 - 1])),
        "f": chosen.choice([0.0, 1.5, -3.25, 1e30, 0.1]),
        "d": chosen.choice([0.0, 0.1, 1e300, -1e-300, 123456789.125]),
        "n": Decimal(chosen.randrange(-(10**19), 10**19)).scaleb(-4),
        "w": Decimal(chosen.randrange(10**25)).scaleb(-10),
        "day": date(chosen.randrange(1, 9999), 2, 3),
        "at": datetime(chosen.randrange(1, 9999), 2, 3, 4, 5, 6, chosen.choice([0, 1, 120000])),
        "s": text,
        "t": chosen.choice(texts),
        "js": chosen.choice(['{"a":1}', "[1,2]", "null", '"x"']),
        "a": chosen.choice([[], [1, None, 3]]),
        "m": chosen.choice([[], [("a", 1), ("b", None)]]),
        "st": {"x": chosen.choice([1, None]), "y": chosen.choice(["", "y", None])},
        "ts": chosen.choice([[], [text, None], ["a,b", '"']]),
        "ds": [Decimal("1.50"), None],
    }
    return {name: None if chosen.random() < 0.15 else value for name, value in row.items()}


def fill(table: Table, chosen: random.Random, texts: list[str], count: int) -> None:
    lines = [{"k": k, **values(chosen, texts)} for k in range(count)]
    types = pa.schema([(column.name, column.type.arrow) for column in table.schema.columns])
    table.upsert(pa.Table.from_pylist(lines, types))


def read_back(store: Store, folder: Path, headers: dict[str, str]) -> None:
    for path in sorted(folder.iterdir()):
        reply = stream_load(
            store, "db", "copy", BytesIO(path.read_bytes()), {"strict_mode": "true", **headers}
        )
        assert reply["Status"] == "Success", reply


def out(folder: Path, form: str, properties: dict[str, str], query: str = "SELECT * FROM source") -> str:
    pairs = ", ".join(
        f"'{name}' = '{value.replace(chr(92), chr(92) * 2).replace(chr(39), chr(39) * 2)}'"
        for name, value in properties.items()
    )
    ending = f" PROPERTIES ({pairs})" if pairs else ""
    return f"{query} INTO OUTFILE 'file://{folder}/part_' FORMAT AS {form}{ending}"


@pytest.mark.parametrize(("form", "properties", "headers"), FORMS)
def test_what_is_written_is_read_back(
    store: Store,
    session: Session,
    tmp_path: Path,
    form: str,
    properties: dict[str, str],
    headers: dict[str, str],
) -> None:
    seed = new_seed()
    print(f"seed {seed}")
    is_free = "enclose" in properties or form in ("json", "parquet")
    source = store.table("db.source")
    fill(source, random.Random(seed), HARD if is_free else PLAIN, by_form(300, 5000))
    folder = tmp_path / "out"
    rows = last_result(session, out(folder, form, properties)).rows
    assert rows is not None
    written = rows.to_pylist()[0]
    assert list(written) == ["FileNumber", "TotalRows", "FileSize", "URL"]
    assert written["TotalRows"] == source.count()
    assert written["FileSize"] == sum(path.stat().st_size for path in folder.iterdir())
    assert written["URL"].startswith(f"file://{folder}/part_")
    read_back(store, folder, headers)
    assert rows_of(store.table("db.copy")) == rows_of(source)


@pytest.mark.parametrize("text", ["a\tb", "\n", "\\N", "\r"])
def test_a_text_that_would_be_read_as_another_is_refused(
    store: Store, session: Session, tmp_path: Path, text: str
) -> None:
    """Without `enclose`; no file is left."""
    store.table("db.source").upsert(pa.table({"k": [1], "s": [text]}))
    with pytest.raises(InvalidInputError, match="enclose"):
        run(session, out(tmp_path / "out", "csv", {}))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_number_that_is_not_finite_is_refused_in_json(
    store: Store, session: Session, tmp_path: Path
) -> None:
    store.table("db.source").upsert(pa.table({"k": [1], "d": [float("inf")]}))
    with pytest.raises(InvalidInputError, match="not finite"):
        run(session, out(tmp_path / "out", "json", {}))


def test_files_end_at_their_size(store: Store, session: Session, tmp_path: Path) -> None:
    """`max_file_size` divides the rows; all files together have each row once."""
    keys = range(400_000)
    texts = [f"{key:030}" for key in keys]
    store.table("db.source").upsert(pa.table({"k": list(keys), "t": texts}))
    folder = tmp_path / "out"
    rows = last_result(session, out(folder, "csv", {"max_file_size": "5MB"}, "SELECT k, t FROM source")).rows
    assert rows is not None
    assert rows.to_pylist()[0]["FileNumber"] == len(list(folder.iterdir())) > 2
    found = [line.split("\t")[0] for path in folder.iterdir() for line in path.read_text().splitlines()]
    assert sorted(map(int, found)) == list(keys)


def test_no_rows_make_one_file(session: Session, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    rows = last_result(session, out(folder, "csv_with_names", {}, "SELECT k, s FROM source")).rows
    assert rows is not None
    assert [rows.to_pylist()[0][name] for name in ("FileNumber", "TotalRows")] == [1, 0]
    assert next(folder.iterdir()).read_text() == "k\ts\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1 INTO OUTFILE '/x'", "expected file:///directory"),
        ("SELECT 1 INTO OUTFILE 'file:///x/y' FORMAT AS ORC", "'orc' cannot be written"),
        ("SELECT 1 INTO OUTFILE 'file:///x/y' PROPERTIES ('speed' = '1')", "'speed' is not known"),
        ("SELECT 1 INTO OUTFILE 'file:///x/y' PROPERTIES ('max_file_size' = '1KB')", "5MB to 2GB"),
        ("SELECT 1 INTO OUTFILE 'file:///x/y' PROPERTIES ('enclose' = 'ab')", "one character"),
        ("SELECT 1 INTO OUTFILE 'file:///x/y' PROPERTIES ('column_separator' = '')", "is empty"),
        ("SELECT 1 INTO OUTFILE 'file:///x/y' PROPERTIES ('s3.region' = 'x')", "belong to a URI s3"),
        ("SELECT 1 INTO OUTFILE file", "in quotes"),
        ("INTO OUTFILE 'file:///x/y'", "SELECT"),
    ],
)
def test_what_is_refused(session: Session, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        run(session, text)


def test_the_data_directory_is_refused(store: Store, session: Session) -> None:
    with pytest.raises(InvalidInputError, match="data directory"):
        run(session, f"SELECT 1 INTO OUTFILE 'file://{store.path}/tables/x'")


def test_a_file_of_the_server_needs_admin(store: Store, tmp_path: Path) -> None:
    store.accounts.create("ann")
    store.accounts.grant("ann", ["ALL"], "db")
    with Session(store, "db", user="ann") as ann, pytest.raises(AccessDeniedError):
        run(ann, out(tmp_path / "out", "csv", {}))


@pytest.mark.skipif(not WEED.exists(), reason="needs the object store of the extra test")
def test_objects_are_written_with_keys_of_the_properties(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """The URL has no keys."""
    weed = tmp_path / "weed"
    weed.mkdir()
    store.table("db.source").upsert(pa.table({"k": [1, 2]}))
    with object_store(weed) as uri:
        endpoint = uri.partition("endpoint_override=")[2].partition("&")[0]
        properties = {
            "s3.endpoint": f"http://{endpoint}",
            "s3.region": "us-east-1",
            "s3.access_key": "any",
            "s3.secret_key": "any",
        }
        pairs = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        query = "SELECT k FROM source ORDER BY k INTO OUTFILE 's3://tests/out/part_' FORMAT AS PARQUET"
        text = f"{query} PROPERTIES ({pairs})"
        rows = last_result(session, text).rows
        assert rows is not None
        url = rows.to_pylist()[0]["URL"]
        assert "any" not in url
        filesystem, path = pafs.FileSystem.from_uri(uri.format("out"))
        (info,) = filesystem.get_file_info(pafs.FileSelector(path))
        assert pq.read_table(info.path, filesystem=filesystem).to_pydict() == {"k": [1, 2]}


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_small_decimal_is_written_without_an_exponent(store: Store, tmp_path: Path, form: str) -> None:
    """Zero was written as 0E-9."""
    (tmp_path / "out").mkdir()
    with Session(store, "db") as session:
        text = (
            f"SELECT CAST(0 AS DECIMAL(27, 9)) AS c INTO OUTFILE 'file://{tmp_path}/out/x_' FORMAT AS {form}"
        )
        list(session.execute(text))
    [written] = [path.read_text() for path in (tmp_path / "out").iterdir()]
    assert written in ("0.000000000\n", '{"c":"0.000000000"}\n')
