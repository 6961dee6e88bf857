"""`schema_evolution` of stream, broker and routine loads: rules EV1 to EV9 on a real store."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from seqstore import AccessDeniedError, InvalidInputError, Settings, Store
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.routine.job import RoutineJob
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.loaders.stream_load import stream_load
from seqstore.store.ddl.evolution import evolve
from seqstore.store.load.load import Load
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.runtime import failpoint
from seqstore.store.schema.column import Column
from seqstore.store.sql import ServerContext, Session
from seqstore.store.types.column_types import parse_type
from tests.support.changes.messages import canal, envelope, heartbeats, with_schema
from tests.support.children import MODULES
from tests.support.statements import dicts

TABLE = """
CREATE TABLE t (k INT NOT NULL, a INT NULL, v VARCHAR(3) NULL, d DATE NULL, b BIGINT NULL)
UNIQUE KEY (k) DISTRIBUTED BY HASH (k)
"""
pytestmark = [pytest.mark.settings(auto_compaction=0), pytest.mark.sql(TABLE)]


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    (tmp_path / "in").mkdir()
    return replace(settings, load_paths=(str(tmp_path / "in"),))


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    with Session(store, "db", server=ServerContext(load_jobs=StoreLoadJobs(store))) as opened:
        yield opened


def load(store: Store, body: str | bytes, **headers: str) -> dict[str, Any]:
    data = body.encode() if isinstance(body, str) else body
    return stream_load(store, "db", "t", io.BytesIO(data), {"format": "json", **headers})


def lines(*rows: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def columns(store: Store) -> dict[str, str]:
    return {column.name: column.type.sql for column in store.table("db.t").schema.columns}


def rows(store: Store) -> list[dict[str, Any]]:
    return sorted(store.table("db.t").scan().read_all().to_pylist(), key=lambda row: row["k"])


def operations(store: Store) -> list[str]:
    return [info.operation for info in store.table("db.t").history()]


def test_a_field_that_is_no_column_becomes_one_with_the_rows_that_need_it(store: Store) -> None:
    """EV1, EV3."""
    assert load(store, lines({"k": 1, "a": 1}))["Status"] == "Success"
    body = lines({"k": 2, "x": 1.5, "none": None}, {"k": 3, "x": 2, "y": {"z": 1}, "T": "2024-01-01"})
    reply = load(store, body, schema_evolution="add")
    assert reply["Status"] == "Success"
    assert "column x (added)" in reply["Message"]
    assert dict(list(columns(store).items())[5:]) == {"x": "DOUBLE", "y": "JSON", "T": "DATE"}
    assert "none" not in columns(store)
    assert [(row["k"], row["x"], row["y"]) for row in rows(store)] == [
        (1, None, None),
        (2, 1.5, None),
        (3, 2.0, '{"z":1}'),
    ]
    assert operations(store)[-2:] == ["SCHEMA EVOLUTION", "STREAM LOAD"]


def test_without_the_header_other_fields_are_ignored(store: Store) -> None:
    assert load(store, lines({"k": 1, "x": 1}))["Status"] == "Success"
    assert load(store, lines({"k": 1, "x": 1}), schema_evolution="off")["Status"] == "Success"
    assert "x" not in columns(store)


def test_columns_become_wider_and_stored_rows_are_read_as_the_new_type(store: Store) -> None:
    """EV2."""
    assert load(store, lines({"k": 1, "a": 1, "v": "abc", "d": "2024-01-01", "b": 7}))["Status"] == "Success"
    wide = {"k": 2, "a": 3000000000, "v": "abcdef", "d": "2024-01-01 10:00:00", "b": "1.25"}
    assert load(store, lines(wide), schema_evolution="widen")["Status"] == "Success"
    kinds = ["INT", "BIGINT", "VARCHAR(8)", "DATETIME", "DECIMAL(21,2)"]
    assert list(columns(store).values()) == kinds
    shown = [[str(value) for value in row.values()] for row in rows(store)]
    assert shown == [
        ["1", "1", "abc", "2024-01-01 00:00:00", "7.00"],
        ["2", "3000000000", "abcdef", "2024-01-01 10:00:00", "1.25"],
    ]


def test_queries_and_compaction_read_rows_of_both_types(store: Store, session: Session) -> None:
    for number in range(3):
        assert load(store, lines({"k": number, "d": "2024-01-01", "b": number}))["Status"] == "Success"
    wide = lines({"k": 9, "d": "2024-01-01 10:00:00", "b": "1.5"})
    assert load(store, wide, schema_evolution="widen")["Status"] == "Success"
    question = "SELECT count(*) AS n, max(d) AS d, sum(b) AS b FROM t WHERE d >= '2024-01-01' AND b < 1.6"
    before = dicts(session, question)
    assert [str(value) for value in before[0].values()] == ["3", "2024-01-01 10:00:00", "2.5"]
    dicts(session, "OPTIMIZE TABLE t")
    assert dicts(session, question) == before


@pytest.mark.parametrize("mode", ["add", "widen"])
def test_a_value_that_does_not_fit_filters_its_row(store: Store, mode: str) -> None:
    """EV4."""
    body = lines({"k": 1, "a": "word"}, {"k": 2, "a": 1}, {"k": 2**40, "a": 2})
    reply = load(store, body, schema_evolution=mode, max_filter_ratio="1")
    assert (reply["NumberLoadedRows"], reply["NumberFilteredRows"]) == (1, 2)
    log = Path(reply["ErrorURL"]).read_text()
    assert "column a: 'word' cannot be converted to INT" in log
    assert "column k" in log
    assert load(store, body, schema_evolution=mode)["Status"] == "Fail"


def test_a_column_that_went_stays(store: Store) -> None:
    """EV4."""
    load(store, lines({"k": 1, "x": 1}), schema_evolution="add")
    load(store, lines({"k": 2, "y": 1}), schema_evolution="add")
    assert [(row["x"], row["y"]) for row in rows(store)] == [(1, None), (None, 1)]


def test_a_load_of_filtered_rows_changes_no_schema(store: Store) -> None:
    """EV3."""
    body = lines({"k": "word", "x": 1})
    assert load(store, body, schema_evolution="add")["Status"] == "Fail"
    reply = load(store, body, schema_evolution="add", max_filter_ratio="1")
    assert (reply["Status"], reply["Message"]) == ("Success", "OK")
    assert "x" not in columns(store)
    assert operations(store) == ["CREATE TABLE"]


def test_a_load_that_is_skipped_tells_no_column(store: Store) -> None:
    """EV3: the reply named columns that were not added."""
    given = {"txnAppId": "a", "txnVersion": "5", "schema_evolution": "add"}
    assert "column x (added)" in load(store, lines({"k": 1, "x": 1}), **given)["Message"]
    reply = load(store, lines({"k": 2, "y": 1}), **given)
    assert "skipped" in reply["Message"]
    assert "column y" not in reply["Message"]
    assert "y" not in columns(store)


def test_the_reply_and_the_table_agree_where_all_rows_are_late(store: Store, session: Session) -> None:
    """EV3."""
    dicts(session, "DROP TABLE t")
    sequence = "PROPERTIES('function_column.sequence_col' = 'at')"
    dicts(session, f"CREATE TABLE t (k INT, at INT) UNIQUE KEY(k) {sequence}")
    load(store, lines({"k": 1, "at": 9}))
    reply = load(store, lines({"k": 1, "at": 1, "x": 1}), schema_evolution="add")
    assert ("column x (added)" in reply["Message"]) == ("x" in columns(store))


def test_names_of_csv_are_in_its_first_line_and_empty_fields_are_null(store: Store) -> None:
    """EV6."""
    options = {"format": "csv_with_names", "column_separator": ",", "schema_evolution": "add"}
    assert load(store, "x,k,v\n2024-01-01,1,\n,2,a\n", **options)["Status"] == "Success"
    assert [(row["k"], str(row["x"]), row["v"]) for row in rows(store)] == [
        (1, "2024-01-01", None),
        (2, "None", "a"),
    ]


@pytest.mark.parametrize(
    ("separator", "header"),
    [(b"||", "||"), (b"\xff", "\udcff"), (b"\xc3\xa9", "\xe9"), (b"\n", "\\n"), (b'"', '"')],
    ids=["two bytes", "no UTF-8", "two bytes of UTF-8", "line feed", "quote"],
)
@pytest.mark.parametrize("table", ["t", "new"])
def test_names_of_csv_are_cut_by_any_separator(
    store: Store, table: str, separator: bytes, header: str
) -> None:
    """EV6: Python's CSV takes one character, and the server answered 500."""
    body = b"k,b,more|1,2,x|".replace(b"|", b"\x01").replace(b",", separator)
    given = {"format": "csv_with_names", "column_separator": header, "line_delimiter": "\\x01"}
    reply = stream_load(
        store, "db", table, io.BytesIO(body), {**given, "auto_create": "true", "schema_evolution": "add"}
    )
    assert reply["Status"] == "Success", reply["Message"]
    found = store.table(f"db.{table}").scan(["k", "b", "more"]).read_all().to_pylist()
    assert found == [{"k": 1, "b": 2, "more": "x"}]


def test_quotes_around_names_of_csv_are_removed(store: Store) -> None:
    """EV6: as `csv.reader` of Python reads them, with every separator."""
    given = {"format": "csv_with_names", "column_separator": "||", "schema_evolution": "add", "enclose": '"'}
    assert load(store, '"k"|| "b" ||"mo""re"\n1||2||x\n', **given)["Status"] == "Fail"
    assert load(store, '"k"|| b ||"more"\n1||2||x\n', **given)["Status"] == "Success"
    assert list(columns(store))[-1] == "more"


@pytest.mark.parametrize("size", [200_000, 2_000_000])
def test_a_first_line_that_is_too_long_for_names_is_refused(store: Store, size: int) -> None:
    """EV6: Python's CSV has a limit of its own, and the server answered 500."""
    given = {"format": "csv_with_names", "column_separator": ",", "schema_evolution": "add"}
    reply = load(store, f"k,{'x' * size}\n1,2\n", **given)
    expected = "column name" if size < 1 << 20 else "the first line"
    assert (reply["Status"], expected in reply["Message"]) == ("Fail", True)
    assert len(reply["Message"]) < 500


def test_parquet_declares_types_and_an_array_of_objects_is_read(store: Store) -> None:
    body = io.BytesIO()
    pyarrow.parquet.write_table(pa.table({"k": [1], "p": pa.array([None], pa.int16())}), body)
    assert load(store, body.getvalue(), format="parquet", schema_evolution="add")["Status"] == "Success"
    array = json.dumps([{"k": 2, "q": True}, {"k": 3}])
    assert load(store, array, strip_outer_array="true", schema_evolution="add")["Status"] == "Success"
    assert (columns(store)["p"], columns(store)["q"]) == ("SMALLINT", "BOOLEAN")
    assert len(rows(store)) == 3


def test_messages_declare_types_by_their_schema(store: Store) -> None:
    fields = [
        {"field": "k", "type": "int32"},
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "n", "type": "int32"},
    ]
    message = {
        "schema": {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]},
        "payload": {
            "op": "c",
            "before": None,
            "after": {"k": 1, "at": 1717228800000000, "n": None},
            "source": {"connector": "postgresql", "lsn": 5},
        },
    }
    assert load(store, json.dumps(message), format="debezium_json", schema_evolution="widen")["Status"] == (
        "Success"
    )
    assert (columns(store)["at"], columns(store)["n"]) == ("DATETIME(6)", "INT")
    assert str(rows(store)[0]["at"]) == "2024-06-01 08:00:00"


def test_an_integer_that_became_a_decimal_at_the_source_is_wider_though_its_fractions_are_zero(
    store: Store,
) -> None:
    """EV2: 7.000 of a NUMERIC(12,3) is no INT for a load, so it needs a wider type."""
    fields: list[dict[str, Any]] = [
        {"field": "k", "type": "int32"},
        {
            "field": "a",
            "type": "bytes",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "3", "connect.decimal.precision": "12"},
        },
    ]
    assert load(store, '{"k": 1, "a": 7}', format="json")["Status"] == "Success"
    payload = envelope("c", 9, after={"k": 9, "a": "G1g="}, table="t")  # 7.000
    text = json.dumps(with_schema(payload, fields))
    assert load(store, text, format="debezium_json", schema_evolution="widen")["Status"] == "Success"
    assert columns(store)["a"] == "DOUBLE"
    assert [row["a"] for row in rows(store)] == [7.0, 7.0]


def defaulted(name: str, default: object, kind: str = "int32", logical: str = "") -> str:
    """Returns a message whose schema has a field with a default, and whose row has it as NULL."""
    field: dict[str, Any] = {"field": name, "type": kind, "optional": True, "default": default}
    fields = [{"field": "k", "type": "int32"}, field | ({"name": logical} if logical else {})]
    payload = envelope("c", 9, after={"k": 9, name: None}, table="t")
    return json.dumps(with_schema(payload, fields))


@pytest.mark.parametrize(
    ("default", "kind", "logical", "stored"),
    [
        (7, "int32", "", 7),
        (True, "boolean", "", True),
        ("none", "string", "", "none"),
        (1.5, "double", "", 1.5),
        (19723, "int32", "io.debezium.time.Date", date(2024, 1, 1)),
        (0, "int64", "io.debezium.time.MicroTimestamp", None),
        ("1970-01-01T00:00:00.000000Z", "string", "io.debezium.time.ZonedTimestamp", None),
        ("76019d1a-ad2e-4b22-96e9-1a6d6543c818", "string", "io.debezium.data.Uuid", None),
        ([1], "array", "", None),
    ],
)
def test_rows_of_before_a_column_have_the_default_of_the_source(
    store: Store, default: object, kind: str, logical: str, stored: object
) -> None:
    """EV11: defaults that the source computes are not known, so they are NULL."""
    load(store, '{"k": 1}', format="json")
    text = defaulted("x", default, kind, logical)
    assert load(store, text, format="debezium_json", schema_evolution="widen")["Status"] == "Success"
    assert [row["x"] for row in rows(store)] == [stored, None]


@pytest.mark.parametrize(
    "headers",
    [
        {"schema_evolution": "grow"},
        {"schema_evolution": "add", "columns": "k, x"},
        {"schema_evolution": "add", "jsonpaths": '["$.k"]'},
        {"schema_evolution": "add", "json_root": "$.a"},
        {"schema_evolution": "add", "hidden_columns": "__DORIS_DELETE_SIGN__"},
        {"schema_evolution": "add", "two_phase_commit": "true"},
        {"schema_evolution": "add", "format": "csv"},
        {"schema_evolution": "add", "strip_outer_array": "true", "read_json_by_line": "true"},
    ],
    ids=str,
)
def test_headers_that_contradict_it_are_refused_by_name(store: Store, headers: dict[str, str]) -> None:
    """EV7."""
    reply = load(store, lines({"k": 1}), **headers)
    assert reply["Status"] == "Fail"
    assert "schema_evolution" in reply["Message"]
    assert rows(store) == []


def test_loads_that_add_columns_at_once_all_succeed(store: Store) -> None:
    """EV5."""
    replies: list[dict[str, Any]] = []

    def one(number: int) -> None:
        body = lines({"k": number, f"c{number % 3}": number, "same": number})
        replies.append(load(store, body, schema_evolution="add", label=f"load-{number}"))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [reply["Message"] for reply in replies if reply["Status"] != "Success"] == []
    assert sorted(columns(store))[2:6] == ["c0", "c1", "c2", "d"]
    assert [(row["same"], row[f"c{row['k'] % 3}"]) for row in rows(store)] == [(n, n) for n in range(9)]


@pytest.mark.parametrize("is_large", [False, True])
def test_a_load_that_changes_the_schema_replaces_rows_that_came_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    """Its rows were tested against the version before. A large load is tested again without the lock."""
    if is_large:
        for name in ("can_wait", "is_small"):
            monkeypatch.setattr(TableWriter, name, lambda _: False)
    assert load(store, lines({"k": 1, "a": 1}, {"k": 2, "a": 1}))["Status"] == "Success"
    meanwhile: list[str] = []

    def hit(name: str) -> None:
        if name == "load.staged" and not meanwhile:
            meanwhile.append(name)
            assert load(store, lines({"k": 2, "a": 5}, {"k": 3, "a": 5}))["Status"] == "Success"

    monkeypatch.setattr(failpoint, "hit", hit)
    assert load(store, lines({"k": 2, "a": 9, "x": 1}), schema_evolution="add")["Status"] == "Success"
    assert meanwhile
    assert [(row["k"], row["a"], row["x"]) for row in rows(store)] == [(1, 1, None), (2, 9, 1), (3, 5, None)]
    assert store.table("db.t").check() == []


def test_a_load_that_meets_the_column_of_another_one_fits_its_rows_to_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EV5: the other load comes between the reading of the rows and the commit."""
    others = [lines({"k": 1, "x": "text"})]

    original = Load.prepare_early

    def prepare(begun: Load) -> None:
        if others:
            assert load(store, others.pop(), schema_evolution="add")["Status"] == "Success"
        original(begun)

    monkeypatch.setattr(Load, "prepare_early", prepare)
    reply = load(store, lines({"k": 2, "x": 5, "y": 1}), schema_evolution="add")
    assert reply["Status"] == "Success"
    assert (columns(store)["x"], columns(store)["y"]) == ("STRING", "BIGINT")
    assert [(row["k"], row["x"], row["y"]) for row in rows(store)] == [(1, "text", None), (2, "5", 1)]


def test_an_evolution_of_an_older_schema_is_a_conflict_and_leaves_nothing(store: Store) -> None:
    table = store.table("db.t")
    first, second = (
        evolve(table, table.schema, [Column(name, parse_type("INT"))], {}) for name in ("x", "y")
    )
    data = pa.table({"k": [1], "a": [1], "v": ["a"], "d": pa.nulls(1), "b": [1]})
    table.upsert(data.append_column("x", pa.array([1])), evolution=first)
    with pytest.raises(Exception, match="SCHEMA EVOLUTION committed version 2 and changed column x"):
        table.upsert(data.append_column("y", pa.array([1])), evolution=second)
    assert "y" not in columns(store)
    third = evolve(table, table.schema, [Column("z", parse_type("INT"))], {})
    with (
        table.begin_load(evolution=third) as begun,
        pytest.raises(InvalidInputError, match="cannot be pre-committed"),
    ):
        begun.precommit()


def test_a_write_that_only_clears_rows_brings_its_schema(store: Store) -> None:
    """As an overwrite by an empty DataFrame with new columns; it hides rows and stages none."""
    load(store, lines({"k": 1}))
    table = store.table("db.t")
    with table.begin_load(
        evolution=evolve(table, table.schema, [Column("x", parse_type("INT"))], {})
    ) as begun:
        begun.clear()
        assert begun.commit().rows_deleted == 1
    assert (rows(store), "x" in columns(store)) == ([], True)


@pytest.mark.parametrize(
    ("declared", "name", "kind"),
    [
        ("k INT, v INT) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)", "k", "BIGINT"),
        (
            'k INT, s INT) UNIQUE KEY (k) PROPERTIES ("function_column.sequence_col" = "s")',
            "s",
            "BIGINT",
        ),
        (
            "k INT, v BIGINT) UNIQUE KEY (k); ALTER TABLE fixed ADD CONSTRAINT c CHECK (v > 0)",
            "v",
            "DECIMAL(20,1)",
        ),
        ("k INT, v DOUBLE) UNIQUE KEY (k)", "v", "STRING"),
    ],
    ids=["key", "sequence", "constraint", "text"],
)
def test_columns_on_which_more_depends_stay_as_they_are(
    store: Store, session: Session, declared: str, name: str, kind: str
) -> None:
    """EV2."""
    dicts(session, f"CREATE TABLE fixed ({declared}")
    table = store.table("db.fixed")
    with pytest.raises(InvalidInputError):
        evolve(table, table.schema, [], {name: parse_type(kind)})


def test_files_of_a_broker_load_bring_columns(store: Store, tmp_path: Path) -> None:
    """EV6, EV9."""
    (tmp_path / "in/a.csv").write_text("k,a,n\n1,2,3\n2,3000000000,\n")
    (tmp_path / "in/b.json").write_text(lines({"k": 5, "z": "x"}))
    descriptions = (
        DataDescription("t", (f"{tmp_path}/in/*.csv",), column_separator=","),
        DataDescription("t", (f"{tmp_path}/in/*.json",)),
    )
    spec = LoadSpec("db", "one", descriptions, {"schema_evolution": "widen"})
    _, job = BrokerLoad(store, spec, [str(tmp_path)]).run()
    assert (job.state, job.loaded) == ("FINISHED", 3)
    assert {name: columns(store)[name] for name in "anz"} == {"a": "BIGINT", "n": "BIGINT", "z": "STRING"}
    assert [(row["k"], row["n"], row["z"]) for row in rows(store)] == [
        (1, 3, None),
        (2, None, None),
        (5, None, "x"),
    ]
    assert operations(store)[-2:] == ["SCHEMA EVOLUTION", "BROKER LOAD"]


def test_a_routine_load_goes_on_with_the_columns_of_later_files(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """EV9."""
    found: list[dict[str, Any]] = [{"k": 1, "a": 1}, {"k": 2, "x": 1}, {"k": 3, "x": "word"}]
    for number, row in enumerate(found):
        (tmp_path / f"in/{number}.json").write_text(lines(row))
    dicts(
        session,
        f"CREATE ROUTINE LOAD job ON t PROPERTIES ('schema_evolution' = 'widen', 'max_error_number' = '9') "
        f"FROM FILES ('path' = '{tmp_path}/in/*.json')",
    )
    (job,) = RoutineRunner(store).drain().values()
    assert (job.statistic.loaded_rows, job.statistic.error_rows) == (2, 1)
    assert columns(store)["x"] == "BIGINT"
    assert [(row["k"], row["x"]) for row in rows(store)] == [(1, None), (2, 1)]


def test_tables_of_one_change_stream_get_their_columns(
    store: Store, session: Session, tmp_path: Path
) -> None:
    dicts(session, "CREATE TABLE other (k INT NOT NULL, a INT NULL) UNIQUE KEY (k)")
    messages = [
        envelope("c", 1, after={"k": 1, "a": 1}, table="t"),
        envelope("c", 2, after={"k": 1, "new": "x"}, table="other"),
        envelope("c", 3, after={"k": 2, "a": 3000000000}, table="t"),
    ]
    (tmp_path / "in/a.json").write_text("".join(f"{json.dumps(each)}\n" for each in messages))
    dicts(
        session,
        "CREATE ROUTINE LOAD job PROPERTIES ('schema_evolution' = 'widen', 'format' = 'debezium_json') "
        f"FROM FILES ('path' = '{tmp_path}/in/*.json')",
    )
    (job,) = RoutineRunner(store).drain().values()
    assert (job.statistic.loaded_rows, job.statistic.error_rows) == (3, 0)
    assert columns(store)["a"] == "BIGINT"
    assert store.table("db.other").scan(["k", "new"]).read_all().to_pylist() == [{"k": 1, "new": "x"}]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE ROUTINE LOAD job ON t PROPERTIES ('format' = 'json', 'schema_evolution' = 'add') "
        "FROM FILES ('path' = '{path}/in/*.json')",
        "LOAD LABEL db.one (DATA INFILE ('{path}/in/*.json') INTO TABLE t FORMAT AS 'json') WITH LOCAL "
        "PROPERTIES ('schema_evolution' = 'add')",
    ],
    ids=["routine", "broker"],
)
def test_a_job_that_may_change_the_schema_needs_alter(store: Store, statement: str, tmp_path: Path) -> None:
    """EV8."""
    store.accounts.create("ann", "one")
    store.accounts.grant("ann", ["LOAD", "SELECT"], "db")
    server = ServerContext(load_jobs=StoreLoadJobs(store))
    with (
        Session(store, "db", user="ann", server=server) as session,
        pytest.raises(AccessDeniedError, match="ALTER"),
    ):
        dicts(session, statement.format(path=tmp_path))


CHILD = """
import io, sys
from seqstore import Store
from seqstore.loaders.stream_load import stream_load
with Store.open(sys.argv[1]) as store:
    body = io.BytesIO(b'{"k": 1, "x": 1}')
    stream_load(store, "db", "t", body, {"format": "json", "schema_evolution": "add", "label": "one"})
"""


@pytest.mark.crash
@pytest.mark.parametrize(
    ("failpoint", "is_published"), [("publish.before_commit", False), ("publish.after_commit", True)]
)
def test_killed_around_the_commit_rows_and_columns_are_there_together(
    store: Store, failpoint: str, is_published: bool
) -> None:
    """EV3."""
    environment = {**os.environ, "PYTHONPATH": MODULES, "SEQSTORE_FAILPOINT": failpoint}
    child = subprocess.run([sys.executable, "-c", CHILD, str(store.path)], env=environment, check=False)
    assert child.returncode == -signal.SIGKILL
    assert ("x" in columns(store)) == is_published
    assert len(rows(store)) == is_published
    reply = load(store, lines({"k": 1, "x": 1}), schema_evolution="add", label="one")
    assert reply["Status"] == ("Label Already Exists" if is_published else "Success")
    assert rows(store)[0]["x"] == 1


def message(table: str, key: dict[str, Any], **fields: Any) -> str:
    return f"{json.dumps(key)}\t{json.dumps(envelope('c', 1, after={**key, **fields}, table=table))}"


def made(store: Store, body: str, **headers: str) -> dict[str, Any]:
    return stream_load(store, "db", "new", io.BytesIO(body.encode()), {"auto_create": "true", **headers})


def test_a_table_is_made_with_the_key_that_is_named(store: Store) -> None:
    """EV10."""
    given = {"format": "csv_with_names", "column_separator": ","}
    reply = made(store, "n,k,at\n1,a,5\n,b,6\n", **given, auto_create_key="k", auto_create_sequence="at")
    assert reply["Status"] == "Success"
    assert "CREATE TABLE `new`" in reply["Message"]
    schema = store.table("db.new").schema
    assert (schema.names, list(schema.key), schema.sequence_column) == (["k", "n", "at"], ["k"], "at")
    assert made(store, "k,at\nc,7\n", **given)["Message"] == "OK"
    assert store.table("db.new").count() == 3


def test_a_table_of_a_change_stream_has_the_key_of_its_messages(store: Store) -> None:
    """EV10."""
    assert made(store, message("new", {"k": 1}, v="a"), format="debezium_json")["Status"] == "Success"
    schema = store.table("db.new").schema
    assert list(schema.key) == ["k"]
    assert schema.sequence_type is not None
    reply = stream_load(
        store,
        "db",
        "keyless",
        io.BytesIO(json.dumps(envelope("c", 1, after={"k": 1})).encode()),
        {"auto_create": "true", "format": "debezium_json"},
    )
    assert "auto_create_key" in reply["Message"]
    assert store.tables("db") == ["new", "t"]


@pytest.mark.parametrize("file_format", ["debezium_json", "canal_json"])
def test_the_key_of_a_new_table_is_that_of_its_own_messages(store: Store, file_format: str) -> None:
    """EV10: the key was that of the first message, of whatever table; orders of one customer were one row."""
    if file_format == "canal_json":
        customers = {**canal("INSERT", 1, [{"c": 7}], table="customers"), "pkNames": ["c"]}
        orders = canal("INSERT", 2, [{"id": 1, "c": 7}, {"id": 2, "c": 7}], table="new")
        body = lines(customers, orders)
    else:
        others = [message("customers", {"c": 7}, name="x"), '{"id": "571"}\t' + json.dumps(heartbeats()[1])]
        body = "\n".join([*others, *(message("new", {"id": number}, c=7) for number in (1, 2))])
    reply = made(store, body, format=file_format, change_table="new")
    assert reply["NumberLoadedRows"] == 2
    assert (store.table("db.new").schema.key, store.table("db.new").count()) == (("id",), 2)


@pytest.mark.parametrize("names", ["id", 5, {"id": 1}, [5]])
def test_names_of_a_key_that_are_no_list_of_texts_are_no_key(store: Store, names: Any) -> None:
    """EV10: the load ended with a Python exception."""
    body = lines({**canal("INSERT", 1, [{"id": 1}]), "pkNames": names})
    assert "the messages have no keys" in made(store, body, format="canal_json")["Message"]


@pytest.mark.parametrize("key", ["[" * 3000 + "]" * 3000, '{"id": ' + "9" * 5000 + "}"], ids=["deep", "long"])
def test_a_key_that_python_cannot_hold_is_no_key(store: Store, key: str) -> None:
    """EV10: the load ended with a Python exception."""
    reply = made(store, f"{key}\t{json.dumps(envelope('c', 1, after={'id': 1}))}", format="debezium_json")
    assert "the messages have no keys" in reply["Message"]


def test_a_load_that_fails_leaves_no_table(store: Store) -> None:
    """EV10."""
    assert made(store, '{"k": null}\n{"k": 1}', format="json", auto_create_key="k")["Status"] == "Fail"
    assert made(store, "", format="json")["Status"] == "Fail"
    assert "auto_create: true" in load(store, "{}", auto_create_key="k")["Message"]
    assert store.tables("db") == ["t"]


def test_a_routine_load_makes_the_tables_that_messages_name(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """EV10."""
    lines = [message("one", {"k": 1}, v="a"), message("two", {"id": 1}, n=2), message("one", {"k": 2}, v="b")]
    (tmp_path / "in/a.json").write_text("\n".join(lines))
    (tmp_path / "in/b.json").write_text(message("three", {"id": 1}, n=2))
    statement = (
        "CREATE ROUTINE LOAD {} PROPERTIES ('auto_create' = 'true', 'format' = 'debezium_json') "
        f"FROM FILES ('path' = '{tmp_path}/in/*.json')"
    )
    with pytest.raises(InvalidInputError, match="auto_create"):
        dicts(session, statement.format("job ON t"))
    dicts(session, statement.format("job"))
    (job,) = RoutineRunner(store).drain().values()
    assert (job.statistic.loaded_rows, job.statistic.error_rows) == (4, 0)
    assert store.tables("db") == ["one", "t", "three", "two"]
    assert [list(store.table(f"db.{name}").schema.key) for name in ("one", "two")] == [["k"], ["id"]]


def test_messages_without_a_key_do_not_hold_up_those_of_other_tables(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """EV10."""
    keyless = json.dumps(envelope("c", 1, after={"v": 1}, table="keyless"))
    lines = [keyless, message("one", {"k": 1}, v="a"), keyless, message("two", {"id": 1}, n=2)]
    (tmp_path / "in/a.json").write_text("\n".join(lines))
    dicts(
        session,
        "CREATE ROUTINE LOAD job PROPERTIES ('auto_create' = 'true', 'format' = 'debezium_json', "
        f"'schema_evolution' = 'add', 'max_error_number' = '2') FROM FILES ('path' = '{tmp_path}/in/*.json')",
    )
    (job,) = RoutineRunner(store).drain().values()
    assert (job.reason, job.statistic.loaded_rows, job.statistic.error_rows) == ("", 2, 2)
    assert store.tables("db") == ["one", "t", "two"]
    assert "auto_create_key" in Path(job.error_urls[0]).read_text()


def copied(store: Store, session: Session, folder: Path, *files: list[str], **properties: str) -> RoutineJob:
    """Runs a routine load of many tables over files of messages; returns its job."""
    for number, each in enumerate(files):
        (folder / f"in/{number}.json").write_text("\n".join(each))
    given = {"auto_create": "true", "format": "debezium_json", "max_error_number": "9", **properties}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    path = f"FROM FILES ('path' = '{folder}/in/*.json')"
    dicts(session, f"CREATE ROUTINE LOAD job PROPERTIES ({listed}) {path}")
    (job,) = RoutineRunner(store).drain().values()
    return job


def deleted(table: str) -> str:
    return '{"id": 1}\t' + json.dumps(envelope("d", 1, before={"id": 1}, table=table))


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (message("order items", {"id": 1}, v="a"), "table name 'order items'"),
        (message("a.b", {"id": 1}, v="a"), "expected database.table"),
        (message("seen", {"id": 1}, v="a"), "it is a view"),
        (message("f", {"id": 1.5}, v="a"), "DOUBLE cannot be a key"),
        (message("c", {"unit price": 1}, v="a"), "'unit price' is not among the columns"),
        (deleted("gone"), "no row of the body has a field with a value"),
        (
            '{"id": 1}\t{"schema": "public", "payload": '
            + json.dumps(envelope("c", 1, after={"id": 1}))
            + "}",
            "no schema of Kafka Connect",
        ),
    ],
    ids=["blank", "dot", "view", "key type", "key name", "only deletes", "schema"],
)
def test_one_table_that_cannot_be_made_holds_up_no_other_one(
    store: Store, session: Session, tmp_path: Path, odd: str, reason: str
) -> None:
    """R17, EV10: each task of the job was aborted for ever."""
    dicts(session, "CREATE VIEW seen AS SELECT * FROM t")
    job = copied(store, session, tmp_path, [odd, message("good", {"id": 1}, v="a")])
    assert (job.statistic.aborted_tasks, job.statistic.loaded_rows, job.statistic.error_rows) == (0, 1, 1)
    assert store.tables("db") == ["good", "t"]
    assert reason in Path(job.error_urls[0]).read_text()


@pytest.mark.parametrize("name", ["order items", "a.b"])
def test_a_name_that_no_table_can_have_is_not_waited_for(
    store: Store, session: Session, tmp_path: Path, name: str
) -> None:
    """R17: each task was aborted until such a table is made, which is not possible."""
    lines = [message(name, {"k": 1}), message("t", {"k": 1})]
    job = copied(store, session, tmp_path, lines, auto_create="false")
    assert (job.statistic.aborted_tasks, job.statistic.loaded_rows, job.statistic.error_rows) == (0, 1, 1)
    assert f"table name '{name}'" in Path(job.error_urls[0]).read_text().replace("db.", "")


@pytest.mark.parametrize("files", [1, 2])
def test_rows_behind_a_delete_declare_the_table(
    store: Store, session: Session, tmp_path: Path, files: int
) -> None:
    """EV10: messages of the file before cannot tell the columns; they cost no row of the files behind."""
    before = [message("good", {"id": 1}, v="a"), deleted("late")]
    behind = [message("late", {"id": 2}, v="a")]
    parts = [before, behind] if files == 2 else [before + behind]
    job = copied(store, session, tmp_path, *parts)
    assert (job.statistic.aborted_tasks, job.statistic.error_rows) == (0, files - 1)
    assert store.table("db.late").scan(["id", "v"]).read_all().to_pylist() == [{"id": 2, "v": "a"}]


def test_fields_that_can_be_no_column_are_left_out_and_told(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """EV9, EV10: each task of the job was aborted for ever."""
    rows = [
        message("new", {"id": 1}, **{"unit price": 3, "n": 1}),
        message("t", {"k": 1}, **{"a-": 2, "b c": 3}),
    ]
    job = copied(store, session, tmp_path, rows, schema_evolution="add")
    assert (job.statistic.aborted_tasks, job.statistic.loaded_rows, job.statistic.error_rows) == (0, 2, 0)
    assert "new: 'unit price', t: 'b c'" in job.other_message
    assert store.table("db.new").schema.names == ["id", "n"]
    assert store.table("db.t").schema.names[-1] == "a-"


def test_a_message_that_names_a_table_of_dead_letters_costs_only_itself(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """R17: each task of the job was aborted for ever."""
    rows = [message("t", {"k": "x"}), message("t", {"k": 1}, a=1, v="a")]
    copied(store, session, tmp_path, rows, dead_letters="true")
    rows = [message("t__dead_letters", {"id": "x"}), message("t", {"k": 2}, a=1, v="a")]
    (tmp_path / "in/9.json").write_text("\n".join(rows))
    (job,) = RoutineRunner(store).drain().values()
    assert (job.statistic.aborted_tasks, job.statistic.loaded_rows, job.statistic.error_rows) == (0, 2, 2)
    assert store.table("db.t__dead_letters").count() == 1


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE ROUTINE LOAD job PROPERTIES ('auto_create' = 'true', 'format' = 'debezium_json') "
        "FROM FILES ('path' = '{path}/in/*.json')",
        "LOAD LABEL db.one (DATA INFILE ('{path}/in/*.json') INTO TABLE new FORMAT AS 'json') WITH LOCAL "
        "PROPERTIES ('auto_create' = 'true')",
        "LOAD LABEL db.one (DATA INFILE ('{path}/in/*.json') INTO TABLE new FORMAT AS 'json' "
        "PROPERTIES ('auto_create' = 'true')) WITH LOCAL",
    ],
    ids=["routine", "broker", "description"],
)
def test_making_tables_needs_the_create_privilege(store: Store, statement: str, tmp_path: Path) -> None:
    """EV10."""
    store.accounts.create("ann", "one")
    store.accounts.grant("ann", ["LOAD", "SELECT"], "db")
    server = ServerContext(load_jobs=StoreLoadJobs(store))
    with (
        Session(store, "db", user="ann", server=server) as session,
        pytest.raises(AccessDeniedError, match="CREATE"),
    ):
        dicts(session, statement.format(path=tmp_path))
