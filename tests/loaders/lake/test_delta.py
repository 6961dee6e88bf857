"""CREATE TABLE .. FROM DELTA: tables of delta-rs, of this store, and logs made by hand."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import AccessDeniedError, InvalidInputError, NotFoundError, Session, Store
from seqstore.store.errors import LoadRejectedError, VersionExpiredError
from tests.loaders.lake.delta_writer import HandMade, field
from tests.seeds import new_seed
from tests.support.statements import dicts, last_result, run

K = field("k", "long", nullable=False)
V = field("v", "string")


def create(session: Session, root: Path, more: str = "", key: str = "k") -> Any:
    return last_result(session, f"CREATE TABLE t FROM DELTA '{root}' KEY({key}) {more}")


def pairs(start: int, end: int, text: str = "v") -> pa.Table:
    keys = list(range(start, end))
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [f"{text}{key}" for key in keys]})


def stored(session: Session) -> dict[int, str]:
    return dict(run(session, "SELECT k, v FROM t"))


def expected(*tables: pa.Table) -> dict[int, str]:
    return {row["k"]: row["v"] for table in tables for row in table.to_pylist()}


@pytest.fixture
def made(files: Path) -> HandMade:
    """A table of three commits with a file each; the first row of the second file is deleted."""
    table = HandMade(files / "d", [K, V], features=["deletionVectors", "v2Checkpoint"])
    table.commit([table.add("a.parquet", pairs(0, 10))])
    table.commit([table.add("b%20b.parquet", pairs(10, 20), deletionVector=table.vector([0]))])
    (table.root / "b%20b.parquet").rename(table.root / "b b.parquet")
    table.commit([table.add("c.parquet", pairs(20, 30))])
    return table


LIVE = expected(pairs(0, 10), pairs(11, 30))


def test_rows_and_schema_are_those_of_the_table(session: Session, store: Store, made: HandMade) -> None:
    done = create(session, made.root)
    assert stored(session) == LIVE
    assert done.affected_rows == len(LIVE)
    assert "'source':'DELTA', 'sourceVersion':'3'" in done.info
    columns = {column.name: column for column in store.table("db.t").schema.columns}
    assert (columns["k"].type.sql, columns["k"].nullable) == ("BIGINT", False)
    assert (columns["v"].type.sql, columns["v"].nullable) == ("STRING", True)
    history = store.table("db.t").history()
    assert [each.operation for each in history if each.operation != "CREATE TABLE"] == [
        "CREATE TABLE FROM DELTA"
    ]


def test_a_version_is_read_as_it_was(session: Session, made: HandMade) -> None:
    create(session, made.root, "VERSION AS OF 1")
    assert stored(session) == expected(pairs(0, 10))


@pytest.mark.parametrize("version", [4, 10**12])
def test_an_unknown_version_is_refused(session: Session, made: HandMade, version: int) -> None:
    with pytest.raises(VersionExpiredError, match=r"no version .*; its log has 0 to 3"):
        create(session, made.root, f"VERSION AS OF {version}")


def test_a_removed_file_is_not_read_and_a_vector_replaces_another(session: Session, made: HandMade) -> None:
    first = made.actions[2]["add"]
    second = made.actions[3]["add"]
    made.commit(
        [
            {"remove": {"path": first["path"]}},
            {"add": {**second, "deletionVector": made.vector([0, 1, 9])}},
            {"remove": {"path": second["path"], "deletionVector": second["deletionVector"]}},
        ]
    )
    create(session, made.root)
    assert stored(session) == expected(pairs(12, 19), pairs(20, 30))


CHECKPOINTS = {
    "classic": lambda made: made.classic(),
    "parts": lambda made: made.in_parts(3),
    "v2 json": lambda made: made.second_form("json"),
    "v2 parquet": lambda made: made.second_form("parquet"),
    "v2 with the classic name": lambda made: made.second_form("parquet", named=False),
}


@pytest.mark.parametrize("form", CHECKPOINTS)
def test_every_form_of_checkpoint_is_read(session: Session, made: HandMade, form: str) -> None:
    CHECKPOINTS[form](made)
    made.forget_commits()
    made.commit([made.add("d.parquet", pairs(30, 40))])
    create(session, made.root)
    assert stored(session) == LIVE | expected(pairs(30, 40))


def test_an_incomplete_checkpoint_is_none(session: Session, made: HandMade) -> None:
    made.in_parts(3)[1].unlink()
    create(session, made.root)
    assert stored(session) == LIVE


def test_a_missing_commit_is_named(session: Session, made: HandMade) -> None:
    (made.log / f"{2:020}.json").unlink()
    with pytest.raises(InvalidInputError, match="version 3 needs commit 2"):
        create(session, made.root)


@pytest.mark.parametrize("kind", ["u", "i", "p"])
def test_every_form_of_deletion_vector_is_applied(session: Session, files: Path, kind: str) -> None:
    made = HandMade(files / "d", [K, V], features=["deletionVectors"])
    rows = pairs(0, 200_000)
    seed = new_seed(10**6)
    hidden = sorted(random.Random(seed).sample(range(200_000), 500))
    prefix = "ab" if kind == "u" else ""
    made.commit([made.add("x/a.parquet", rows, deletionVector=made.vector(hidden, kind, prefix))])
    create(session, made.root)
    live = set(range(200_000)) - set(hidden)
    assert {key for (key,) in run(session, "SELECT k FROM t")} == live, seed


def test_a_damaged_deletion_vector_is_refused_and_leaves_no_table(session: Session, made: HandMade) -> None:
    (path,) = made.root.glob("deletion_vector_*.bin")
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    with pytest.raises(InvalidInputError, match="a wrong checksum"):
        create(session, made.root)
    assert run(session, "SHOW TABLES") == []


def test_a_vector_with_another_number_of_rows_is_refused(session: Session, files: Path) -> None:
    made = HandMade(files / "d", [K, V], features=["deletionVectors"])
    vector = {**made.vector([1, 2]), "cardinality": 3}
    made.commit([made.add("a.parquet", pairs(0, 9), deletionVector=vector)])
    with pytest.raises(InvalidInputError, match="2 rows, expected 3"):
        create(session, made.root)


def test_a_vector_beyond_its_file_is_refused(session: Session, files: Path) -> None:
    made = HandMade(files / "d", [K, V], features=["deletionVectors"])
    made.commit([made.add("a.parquet", pairs(0, 9), deletionVector=made.vector([9]))])
    with pytest.raises(InvalidInputError, match="names row 9 of 9"):
        create(session, made.root)


def nested_fields() -> list[dict[str, Any]]:
    struct = {
        "type": "struct",
        "fields": [field("a", "integer", stored="s1", number=5), field("n", "string", stored="s2", number=6)],
    }
    return [
        field("key", "long", stored="c1", number=1),
        field("list", {"type": "array", "elementType": struct, "containsNull": True}, stored="c2", number=2),
        field(
            "map",
            {"type": "map", "keyType": "string", "valueType": struct, "valueContainsNull": True},
            stored="c3",
            number=3,
        ),
        field("part", "date", stored="c4", number=4),
    ]


def with_ids(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_are_found_as_their_mapping_says(session: Session, files: Path, mode: str) -> None:
    """In mode id the names of a file do not count, in mode name its ids do not."""
    configuration = {"delta.columnMapping.mode": mode}
    made = HandMade(
        files / "d",
        nested_fields(),
        partitions=["part"],
        features=["columnMapping"],
        configuration=configuration,
    )
    is_id = mode == "id"
    inner = pa.struct(
        [with_ids("other" if is_id else "s1", pa.int32(), 5 if is_id else 99), with_ids("x", pa.int32(), 77)]
    )
    schema = pa.schema(
        [
            with_ids("c2" if is_id else "c1", pa.int64(), 1 if is_id else 2),
            with_ids("c1" if is_id else "c2", pa.list_(inner), 2 if is_id else 1),
            with_ids("c3", pa.map_(pa.string(), inner), 3),
        ]
    )
    one = {schema.field(1).type.value_type.field(0).name: 7, "x": 1}
    rows = pa.Table.from_arrays(
        [
            pa.array([1, 2, 3], schema.field(0).type),
            pa.array([[one, None], None, []], schema.field(1).type),
            pa.array([[("m", one)], [("m", None)], None], schema.field(2).type),
        ],
        schema=schema,
    )
    made.commit([made.add("p/a.parquet", rows, partitionValues={"c4": "2024-02-29"})])
    create(session, made.root, key="key")
    wanted = {"a": 7, "n": None}
    day = dt.date(2024, 2, 29)
    assert dicts(session, "SELECT * FROM t ORDER BY `key`") == [
        {"key": 1, "list": [wanted, None], "map": [("m", wanted)], "part": day},
        {"key": 2, "list": None, "map": [("m", None)], "part": day},
        {"key": 3, "list": [], "map": None, "part": day},
    ]


def test_a_file_without_ids_is_refused_in_mode_id(session: Session, files: Path) -> None:
    made = HandMade(
        files / "d",
        [field("k", "long", stored="k", number=1)],
        features=["columnMapping"],
        configuration={"delta.columnMapping.mode": "id"},
    )
    made.commit([made.add("a.parquet", pa.table({"k": [1]}))])
    with pytest.raises(InvalidInputError, match="have no field ids"):
        create(session, made.root)


PARTITIONS = {
    "boolean": ("true", True),
    "byte": ("-7", -7),
    "short": ("300", 300),
    "integer": ("-70000", -70000),
    "long": ("9000000000", 9000000000),
    "float": ("1.5", 1.5),
    "double": ("-0.1", -0.1),
    "decimal(9,2)": ("12.30", Decimal("12.30")),
    "date": ("2024-02-29", dt.date(2024, 2, 29)),
    "timestamp_ntz": ("2024-02-29 12:34:56.789", dt.datetime(2024, 2, 29, 12, 34, 56, 789000)),
    "timestamp": ("2024-02-29 12:34:56", dt.datetime(2024, 2, 29, 12, 34, 56)),
    "timestamp ": ("2024-02-29T12:34:56.5Z", dt.datetime(2024, 2, 29, 14, 34, 56, 500000)),
    "string": ("a/b %", "a/b %"),
}


@pytest.mark.parametrize("kind", PARTITIONS)
def test_values_of_partitions_have_their_types(session: Session, files: Path, kind: str) -> None:
    text, value = PARTITIONS[kind]
    made = HandMade(files / "d", [K, field("p", kind.strip())], partitions=["p"], features=["timestampNtz"])
    for number, part in enumerate((text, None, "")):
        rows = pa.table({"k": [number]})
        made.commit([made.add(f"{number}.parquet", rows, partitionValues={"p": part})])
    last_result(session, "SET time_zone = '+02:00'")
    create(session, made.root)
    assert run(session, "SELECT p FROM t WHERE k = 0") == [(value,)]
    assert run(session, "SELECT p FROM t WHERE k > 0") == [(None,), (None,)]


def test_a_value_of_a_partition_that_is_none_of_its_type_is_refused(session: Session, files: Path) -> None:
    made = HandMade(files / "d", [K, field("p", "integer")], partitions=["p"])
    made.commit([made.add("a.parquet", pa.table({"k": [1]}), partitionValues={"p": "x"})])
    with pytest.raises(InvalidInputError, match="partition value 'x' of column p: expected INT"):
        create(session, made.root)


def test_older_files_with_narrower_types_are_read(session: Session, files: Path) -> None:
    wide = [
        K,
        field("n", "long"),
        field("x", "double"),
        field("d", "decimal(12,3)"),
        field("t", "timestamp_ntz"),
    ]
    made = HandMade(files / "d", wide, features=["typeWidening", "timestampNtz"])
    old = pa.table(
        {
            "k": [1],
            "n": pa.array([5], pa.int8()),
            "x": pa.array([1.5], pa.float32()),
            "d": pa.array([Decimal("1.25")], pa.decimal128(5, 2)),
            "t": pa.array([dt.date(2024, 1, 2)]),
        }
    )
    made.commit([made.add("a.parquet", old), made.add("b.parquet", pa.table({"k": [2]}))])
    create(session, made.root)
    assert run(session, "SELECT * FROM t") == [
        (1, 5, 1.5, Decimal("1.250"), dt.datetime(2024, 1, 2)),
        (2, None, None, None, None),
    ]


def test_times_with_a_zone_are_those_of_the_session(session: Session, files: Path) -> None:
    made = HandMade(files / "d", [K, field("t", "timestamp")])
    moment = dt.datetime(2024, 7, 1, 10, 0, tzinfo=dt.UTC)
    rows = pa.table({"k": [1], "t": pa.array([moment], pa.timestamp("us", "UTC"))})
    made.commit([made.add("a.parquet", rows)])
    last_result(session, "SET time_zone = 'Europe/Berlin'")
    create(session, made.root)
    assert run(session, "SELECT t FROM t") == [(dt.datetime(2024, 7, 1, 12, 0),)]


def test_the_largest_sequence_wins_and_lost_rows_are_told(session: Session, files: Path) -> None:
    made = HandMade(files / "d", [K, field("s", "long")])
    made.commit([made.add("a.parquet", pa.table({"k": [1, 2], "s": [9, 1]}))])
    made.commit([made.add("b.parquet", pa.table({"k": [1, 3], "s": [5, 1]}))])
    done = create(session, made.root, "SEQUENCE(s)")
    assert run(session, "SELECT k, s FROM t") == [(1, 9), (2, 1), (3, 1)]
    assert done.affected_rows == 3
    assert "1 rows of the DELTA table have the key of another one" in done.warnings[0]


def test_a_row_that_cannot_be_stored_fails_the_import(session: Session, files: Path) -> None:
    made = HandMade(files / "d", [field("k", "string", nullable=False), V])
    made.commit([made.add("a.parquet", pa.table({"k": ["a", None], "v": ["1", "2"]}))])
    with pytest.raises(LoadRejectedError):
        create(session, made.root)
    assert run(session, "SHOW TABLES") == []


@pytest.mark.parametrize("kind", ["binary", "variant", "void", "interval year"])
def test_a_type_without_a_column_type_is_refused_by_name(session: Session, files: Path, kind: str) -> None:
    made = HandMade(
        files / "d", [K, field("b", {"type": "array", "elementType": kind, "containsNull": True})]
    )
    with pytest.raises(InvalidInputError, match=rf"column b\.element has the type {kind} of Delta"):
        create(session, made.root)


@pytest.mark.parametrize("feature", ["variantType", "catalogManaged", "someday"])
def test_an_unknown_feature_of_readers_is_refused_by_name(
    session: Session, files: Path, feature: str
) -> None:
    made = HandMade(files / "d", [K], features=["deletionVectors", feature])
    with pytest.raises(InvalidInputError, match=f"needs the reader feature {feature}"):
        create(session, made.root)


class TestPlaces:
    """No file of another directory is read, whatever the log names."""

    @pytest.fixture
    def secret(self, tmp_path: Path) -> Path:
        (tmp_path / "other").mkdir()
        made = HandMade(tmp_path / "other" / "d", [K, V])
        made.commit([made.add("a.parquet", pairs(0, 3))])
        return made.root

    def test_a_table_elsewhere(self, session: Session, secret: Path) -> None:
        with pytest.raises(AccessDeniedError, match="not below a directory"):
            create(session, secret)

    def test_a_link_to_a_table(self, session: Session, secret: Path, files: Path) -> None:
        (files / "link").symlink_to(secret)
        with pytest.raises(AccessDeniedError):
            create(session, files / "link")

    @pytest.mark.parametrize("form", ["absolute", "uri", "relative", "escaped", "link"])
    def test_a_data_file(self, session: Session, secret: Path, files: Path, form: str) -> None:
        made = HandMade(files / "d", [K, V])
        target = secret / "a.parquet"
        (made.root / "l.parquet").symlink_to(target)
        path = {
            "absolute": str(target),
            "uri": target.as_uri(),
            "relative": "../../other/d/a.parquet",
            "escaped": "%2e%2e/%2e%2e/other/d/a.parquet",
            "link": "l.parquet",
        }[form]
        made.commit([{"add": {"path": path, "partitionValues": {}, "size": 1, "dataChange": True}}])
        with pytest.raises(AccessDeniedError):
            create(session, made.root)

    def test_a_deletion_vector(self, session: Session, secret: Path, files: Path) -> None:
        elsewhere = HandMade(secret.parent / "e", [K])
        made = HandMade(files / "d", [K, V], features=["deletionVectors"])
        made.commit([made.add("a.parquet", pairs(0, 3), deletionVector=elsewhere.vector([1], "p"))])
        with pytest.raises(AccessDeniedError):
            create(session, made.root)

    def test_a_checkpoint(self, session: Session, secret: Path, files: Path) -> None:
        made = HandMade(files / "d", [K, V])
        (made.log / f"{9:020}.checkpoint.parquet").symlink_to(secret / "a.parquet")
        with pytest.raises(AccessDeniedError):
            create(session, made.root)

    def test_an_object_store_is_refused_by_name(self, session: Session) -> None:
        with pytest.raises(InvalidInputError, match="imported from local directories"):
            last_result(session, "CREATE TABLE t FROM DELTA 's3://bucket/table' KEY(k)")

    def test_a_user_needs_load_beside_create(self, session: Session, store: Store, made: HandMade) -> None:
        last_result(session, "CREATE USER ann IDENTIFIED BY 'x'; GRANT CREATE_PRIV ON db.* TO ann")
        with Session(store, "db", user="ann", server=session.server) as other:
            with pytest.raises(AccessDeniedError, match="LOAD"):
                create(other, made.root)
            last_result(session, "GRANT LOAD_PRIV ON db.* TO ann")
            create(other, made.root)
        assert stored(session) == LIVE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE t FROM DELTA 'x'", r"KEY \(columns\)"),
        ("CREATE TABLE t FROM HUDI 'x' KEY(k)", "DELTA or ICEBERG"),
        ("CREATE TABLE t FROM DELTA x KEY(k)", "the path of the table in quotes"),
        ("CREATE TABLE t FROM DELTA 'x' KEY(k) SEQUENCE(a, b)", r"'\)'|expected \)"),
        ("CREATE TABLE t FROM DELTA 'x' KEY(k) KEY(k)", "SEQUENCE"),
    ],
)
def test_a_statement_that_cannot_be_parsed_says_what_is_missing(
    session: Session, text: str, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        last_result(session, text)


def test_a_directory_without_a_log_is_no_table(session: Session, files: Path) -> None:
    with pytest.raises(NotFoundError, match="no Delta table"):
        create(session, files)


def test_an_unknown_key_is_refused(session: Session, made: HandMade) -> None:
    with pytest.raises(InvalidInputError, match="column 'x' is not among the columns"):
        create(session, made.root, key="x")


def test_if_not_exists_reads_nothing(session: Session, files: Path) -> None:
    last_result(session, "CREATE TABLE t (k INT) UNIQUE KEY(k)")
    last_result(session, f"CREATE TABLE IF NOT EXISTS t FROM DELTA '{files / 'none'}' KEY(k)")


@pytest.mark.parametrize("text", ["[]", "{", '{"add": 1}', '{"add": {}}'])
def test_a_damaged_commit_is_refused(session: Session, made: HandMade, text: str) -> None:
    (made.log / f"{4:020}.json").write_text(text)
    with pytest.raises(InvalidInputError, match="the Delta log cannot be read"):
        create(session, made.root)


def test_a_session_without_a_server_says_so(store: Store) -> None:
    with Session(store, "db") as plain, pytest.raises(Exception, match="nothing here runs load jobs"):
        create(plain, Path("x"))


def test_an_open_table_of_a_store_is_imported(tmp_path: Path, files: Path, session: Session) -> None:
    with Store.open(files / "source") as source:
        source.create_database("db")
        with Session(source, "db") as other:
            last_result(
                other,
                "CREATE TABLE s (k BIGINT, v STRING, a ARRAY<STRUCT<x:INT,y:DATE>> NULL) UNIQUE KEY(k)"
                " PROPERTIES ('delta.universalFormat.enabledFormats' = 'delta', 'open_every_seconds' = '0')",
            )
            last_result(
                other, "INSERT INTO s VALUES (1, 'a', [{1, '2024-01-01'}]), (2, 'b', NULL), (3, 'c', [])"
            )
            last_result(other, "ALTER TABLE s RENAME COLUMN v text")
            last_result(other, "DELETE FROM s WHERE k = 2")
            last_result(other, "UPDATE s SET text = 'new' WHERE k = 3")
            wanted = dicts(other, "SELECT * FROM s ORDER BY k")
        root = files / "source" / "tables" / str(source.table("db.s").id)
    create(session, root)
    assert dicts(session, "SELECT * FROM t ORDER BY k") == wanted


def test_tables_of_delta_rs_are_imported(session: Session, files: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")
    root = str(files / "d")
    for part in range(12):
        rows = pairs(part * 10, part * 10 + 10).append_column("p", pa.array([f"p {part % 3}"] * 10))
        deltalake.write_deltalake(root, rows, mode="append", partition_by=["p"])
    opened = deltalake.DeltaTable(root)
    opened.delete("k % 7 = 0")
    opened.create_checkpoint()
    opened.update({"v": "'new'"}, predicate="k > 100")
    opened.optimize.compact()
    done = create(session, Path(root))
    assert f"'sourceVersion':'{opened.version()}'" in done.info
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(root))
    rows = pa.table(query.execute("SELECT k, v, p FROM t").read_all())
    assert run(session, "SELECT k, v, p FROM t") == sorted(tuple(row.values()) for row in rows.to_pylist())


def test_explain_of_an_import_is_refused_by_name(session: Session, made: HandMade) -> None:
    with pytest.raises(InvalidInputError, match="EXPLAIN takes SELECT, INSERT, UPDATE, DELETE or MERGE INTO"):
        run(session, f"EXPLAIN CREATE TABLE t FROM DELTA '{made.root}' KEY(k)")
