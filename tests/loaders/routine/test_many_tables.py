"""Routine loads without a table (R3): messages name the tables their rows are for."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pytest

from seqstore import InvalidInputError, NotFoundError, Store
from seqstore.loaders.changes.keyed_messages import keyed_messages
from seqstore.loaders.headers import StreamLoadOptions, parse_headers
from seqstore.loaders.routine.job import RoutineJob
from seqstore.loaders.routine.job_runner import JobRunner
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.messages import bodies_of, bodies_of_lines
from seqstore.loaders.routine.open_source import open_source
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.loaders.routine.toml_spec import read_spec
from seqstore.store.runtime import failpoint
from seqstore.store.sql import Session
from tests.support.changes.messages import canal, envelope, flattened, heartbeats
from tests.support.statements import dicts

TABLES = """
CREATE TABLE users (k BIGINT NOT NULL, name VARCHAR(10)) UNIQUE KEY (k) DISTRIBUTED BY HASH (k);
CREATE TABLE clicks (k BIGINT NOT NULL, page STRING, n INT) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)
"""
pytestmark = [pytest.mark.settings(auto_compaction=0), pytest.mark.sql(TABLES)]


def make(
    session: Session, folder: Path, clauses: str = "", properties: str = "", files: str = "*.txt"
) -> None:
    properties = f"PROPERTIES ({properties})" if properties else ""
    path = f'"path" = "{folder}/in/{files}"'
    dicts(session, f"CREATE ROUTINE LOAD job {clauses} {properties} FROM FILES ({path})")


def put(folder: Path, name: str, *lines: str) -> None:
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    (folder / name).rename(folder / "in" / name)


def drain(store: Store) -> RoutineJob:
    (job,) = RoutineRunner(store).drain().values()
    return job


def line(session: Session) -> dict[str, Any]:
    (found,) = dicts(session, "SHOW ALL ROUTINE LOAD FOR job")
    return found


def rows(session: Session, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in dicts(session, f"SELECT * FROM {table} ORDER BY k")]


def at(point: str, act: Callable[[], Any]) -> Callable[[str], None]:
    """Does something whenever a point is passed."""
    return lambda name: act() if name == point else None


def fails() -> None:
    raise OSError("no space left on device")


CSV = 'COLUMNS TERMINATED BY ","'


def test_each_message_goes_to_the_table_it_names(store: Store, session: Session, tmp_path: Path) -> None:
    """R3, R30: as CSV, later rows of a key win; what SHOW and SHOW CREATE tell"""
    make(session, tmp_path, CSV)
    put(tmp_path, "1.txt", "users|1,ann", "clicks|7,/a|b,1", "users|2,bob", "users|1,eve", "clicks|8,/,2")
    job = drain(store)
    assert rows(session, "users") == [(1, "eve"), (2, "bob")]
    assert rows(session, "clicks") == [(7, "/a|b", 1), (8, "/", 2)]
    assert (job.state, job.statistic.loaded_rows, dict(job.progress)) == ("NEED_SCHEDULE", 5, {"0": 1})
    shown = line(session)
    assert (shown["TableName"], shown["IsMultiTable"], shown["DbName"]) == ("", "true", "db")
    (made,) = dicts(session, "SHOW CREATE ROUTINE LOAD FOR job")
    assert made["CreateStmt"].startswith("CREATE ROUTINE LOAD job\nWITH APPEND\n")
    dicts(session, "STOP ROUTINE LOAD FOR job")
    dicts(session, made["CreateStmt"].rstrip(";"))


def test_json_documents_are_mapped_by_the_columns_of_their_table(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """R3, J2: one object or a list of them after the name; compressed files too"""
    make(session, tmp_path, properties="'format' = 'json', 'strip_outer_array' = 'true'", files="*.gz")
    lines = [
        f"users|{json.dumps([{'name': 'a|b', 'k': 1}, {'k': 2, 'name': 'x'}])}",
        f"clicks|{json.dumps([{'n': 3, 'page': '/', 'k': 5, 'other': 1}])}",
    ]
    (tmp_path / "hidden").write_bytes(gzip.compress("\n".join(lines).encode()))
    (tmp_path / "hidden").rename(tmp_path / "in" / "1.json.gz")
    assert drain(store).statistic.error_rows == 0
    assert rows(session, "users") == [(1, "a|b"), (2, "x")]
    assert rows(session, "clicks") == [(5, "/", 3)]


def test_all_tables_of_a_task_are_one_transaction(store: Store, session: Session, tmp_path: Path) -> None:
    """R3, R11: a failure before the commit point leaves no row and no offset; then all come at once"""
    make(session, tmp_path, CSV)
    put(tmp_path, "1.txt", "users|1,ann", "clicks|7,/,1")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(failpoint, "hit", at("publish.before_commit", fails))
        job = drain(store)
    assert (rows(session, "users"), rows(session, "clicks"), dict(job.progress)) == ([], [], {"0": 0})
    assert (job.statistic.aborted_tasks, job.statistic.loaded_rows) == (1, 0)
    job = drain(store)
    assert (len(rows(session, "users")), len(rows(session, "clicks")), dict(job.progress)) == (1, 1, {"0": 1})
    versions = [store.table(f"db.{name}").history()[-1].txn_id for name in ("users", "clicks")]
    assert versions[0] == versions[1]


def test_a_message_for_an_unknown_table_waits_for_the_table(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """R3, R13, R33: the task is aborted and tried again from the same offsets; nothing is lost"""
    make(session, tmp_path, CSV)
    put(tmp_path, "1.txt", "users|1,ann", "orders|1,2")
    job = drain(store)
    assert (job.state, dict(job.progress), rows(session, "users")) == ("NEED_SCHEDULE", {"0": 0}, [])
    assert "a message is for the table 'orders', which is not in database db" in line(session)["OtherMsg"]
    dicts(session, "CREATE TABLE orders (k BIGINT NOT NULL, v INT) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)")
    assert drain(store).statistic.loaded_rows == 2
    assert (rows(session, "users"), rows(session, "orders")) == ([(1, "ann")], [(1, 2)])


def test_messages_without_a_table_or_a_row_are_errors(store: Store, session: Session, tmp_path: Path) -> None:
    """R15, R16, R36: counted and logged with those that do not fit their table; offsets move on"""
    make(session, tmp_path, CSV, "'max_error_number' = '4', 'strict_mode' = 'true'")
    put(tmp_path, "1.txt", "1,ann", "|1,bob", "users|")
    job = drain(store)
    assert (job.state, dict(job.progress), job.statistic.error_rows) == ("NEED_SCHEDULE", {"0": 1}, 3)
    put(tmp_path, "2.txt", "users|x,cid", "users|3,dan", "clicks|1,/,y")
    job = drain(store)
    assert (job.state, job.statistic.error_rows) == ("PAUSED", 5)
    assert rows(session, "users") == [(3, "dan")]
    told = [Path(url).read_text() for url in line(session)["ErrorLogUrls"].split(", ")]
    assert told[0].count("names no table") == 2
    assert "1.txt, table users: the message is empty" in told[0]
    assert "2.txt, table clicks" in told[1]


@pytest.mark.parametrize(
    ("clauses", "properties", "message"),
    [
        ("COLUMNS(k, v)", "", "^Multi-table load does not support setting columns info$"),
        ("COLUMNS(k = 1)", "", "^Multi-table load does not support setting columns info$"),
        ("WHERE k > 1", "", "^Multi-table load does not support setting columns info$"),
        ("PRECEDING FILTER k > 1", "", "^Multi-table load does not support setting columns info$"),
        ("", "'partial_columns' = 'true'", r"^Partial update is not supported in multi-table load\.$"),
        (
            "",
            "'unique_key_update_mode' = 'UPDATE_FLEXIBLE_COLUMNS'",
            r"^Partial update is not supported in multi-table load\.$",
        ),
        ("", "'format' = 'parquet'", "expected csv, json or a change stream for many tables, found parquet"),
        ("WITH MERGE", "", r"Excepted DELETE ON clause when merge type is MERGE\.$"),
    ],
)
def test_what_belongs_to_one_table_is_refused(
    session: Session, tmp_path: Path, clauses: str, properties: str, message: str
) -> None:
    """R3, R23, F27"""
    with pytest.raises(InvalidInputError, match=message):
        make(session, tmp_path, clauses, properties)


def test_a_job_of_many_tables_is_not_altered_to_a_partial_update(session: Session, tmp_path: Path) -> None:
    """R3, R29"""
    make(session, tmp_path)
    dicts(session, "PAUSE ROUTINE LOAD FOR job")
    with pytest.raises(InvalidInputError, match="Partial update is not supported in multi-table load"):
        dicts(session, "ALTER ROUTINE LOAD FOR job PROPERTIES ('partial_columns' = 'true')")


def test_deletes_and_sequences_are_those_of_each_table(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """R1, R3, R38: DELETE ON, ORDER BY and the table's own sequence column"""
    for table in ("a", "b"):
        dicts(
            session,
            f"CREATE TABLE {table} (k BIGINT NOT NULL, gone INT, "
            f"s INT) UNIQUE KEY (k) DISTRIBUTED BY HASH (k) "
            "PROPERTIES ('function_column.sequence_type' = 'int')",
        )
    make(session, tmp_path, f"WITH MERGE {CSV}, DELETE ON gone = 1, ORDER BY s")
    put(tmp_path, "1.txt", "a|1,0,5", "a|1,0,4", "b|1,0,1", "b|2,0,9", "a|2,0,1", "b|2,1,8", "b|1,1,2")
    drain(store)
    assert rows(session, "a") == [(1, 0, 5), (2, 0, 1)]
    assert rows(session, "b") == [(2, 0, 9)]


def test_a_dropped_database_cancels_it_and_a_dropped_table_does_not(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """R8"""
    make(session, tmp_path, CSV)
    dicts(session, "DROP TABLE clicks")
    put(tmp_path, "1.txt", "users|1,ann")
    assert (drain(store).state, len(rows(session, "users"))) == ("NEED_SCHEDULE", 1)
    dicts(session, "DROP DATABASE db FORCE")
    dicts(session, "CREATE DATABASE db")
    job = drain(store)
    assert (job.state, job.reason) == ("CANCELLED", "database db does not exist")


def test_a_database_must_be_there(session: Session, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nothing"):
        dicts(session, f'CREATE ROUTINE LOAD nothing.job FROM FILES ("path" = "{tmp_path}/in/*.txt")')


def test_a_paused_task_of_many_tables_cannot_commit(store: Store, session: Session, tmp_path: Path) -> None:
    """R12"""
    make(session, tmp_path, CSV)
    put(tmp_path, "1.txt", "users|1,ann", "clicks|7,/,1")
    ((job_id, _),) = RoutineJobs(store.catalog).all().items()
    runner = JobRunner(store, job_id, open_source)
    with pytest.MonkeyPatch.context() as patched:
        pauses = iter(["PAUSE ROUTINE LOAD FOR job"])
        patched.setattr(failpoint, "hit", at("load.staged", lambda: [dicts(session, p) for p in pauses]))
        runner.round()
    assert (rows(session, "users"), rows(session, "clicks"), line(session)["State"]) == ([], [], "PAUSED")
    assert "has been aborted." in line(session)["OtherMsg"]
    runner.release()


def test_a_file_without_a_table_says_the_same(tmp_path: Path) -> None:
    """R3: TOML"""
    file = tmp_path / "job.toml"
    file.write_text('database = "d"\nname = "n"\n[files]\npath = "*.txt"\n')
    assert (read_spec(file).is_multi, read_spec(file).table) == (True, "")


def test_messages_are_taken_apart_whatever_is_in_them() -> None:
    """R3, R36: bytes that are no text, line ends within a message, NULL, many tables"""
    messages = pa.array([b"t|a\xff|b", None, b"u|1\n2", b"t|", b"|x", b"t|c", b"\xff|d"], pa.binary())
    found = {body.table: body for body in bodies_of(messages, StreamLoadOptions(), is_multi=True)}
    texts = {table: body.open().read() for table, body in found.items()}
    assert texts == {"t": b"c\n", "": b"", "u": b"1\n2\n", "\\xff": b"d\n"}
    assert {table: body.bad_count for table, body in found.items()} == {"t": 2, "": 2, "u": 0, "\\xff": 0}
    sliced = list(bodies_of(messages[2:3], StreamLoadOptions(format="json"), is_multi=True))
    assert [(body.table, body.open().read()) for body in sliced] == [("u", b"1 2\n")]
    assert list(bodies_of(messages[:0], StreamLoadOptions(format="json"), is_multi=True)) == []


def test_lines_of_a_file_end_as_the_job_says(tmp_path: Path) -> None:
    """R3: also where a block of the file ends within a line"""
    lines = [f"t{n % 3}|{n}" for n in range(1000)]
    file = tmp_path / "lines"
    file.write_bytes(b"\xef\xbb\xbf" + "##".join([*lines, "", ""]).encode())

    class Slow(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 7, 7)) or b""

    found: dict[str, bytes] = {}
    with Slow(file) as slow:
        for body in bodies_of_lines(cast(BinaryIO, slow), parse_headers({"line_delimiter": "##"})):
            found[body.table] = found.get(body.table, b"") + body.open().read()
    expected = {f"t{n}": "".join(f"{m}##" for m in range(n, 1000, 3)).encode() for n in range(3)}
    assert found == expected


def test_messages_of_a_database_go_to_the_tables_of_their_source(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """R3, CS6: rows, deletes and heartbeats; a message that names no table is a bad row"""
    make(session, tmp_path, properties="'format' = 'debezium_json', 'max_error_number' = '9'", files="*.json")
    nameless = flattened({"k": 9, "name": "lost"}, 9)
    messages: list[Any] = [
        envelope("c", 1, after={"k": 1, "name": "ann"}, table="users"),
        *heartbeats(),
        envelope("c", 2, after={"k": 7, "page": "/a", "n": 1}, table="clicks"),
        {
            "payload": envelope("d", 3, before={"k": 1}, table="users"),
            "schema": {"type": "struct", "fields": []},
        },
        nameless,
        {**nameless, "k": 2, "name": "bob", "__table": "users"},
    ]
    put(tmp_path, "1.json", *map(json.dumps, messages), "null", "{wrong", '{"k": 1}\tnull')
    found = drain(store).statistic
    assert rows(session, "users") == [(2, "bob")]
    assert rows(session, "clicks") == [(7, "/a", 1)]
    assert (found.loaded_rows, found.error_rows, found.unselected_rows) == (4, 2, 7)


def test_change_messages_of_one_table_are_selected_by_its_name(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """CS1: a job of one table over a feed of many, read line by line"""
    clauses = "ON users"
    make(session, tmp_path, clauses, "'format' = 'canal_json', 'change_table' = 'shop.users'", "*.json")
    put(
        tmp_path,
        "1.json",
        json.dumps(canal("INSERT", 1, [{"k": 1, "name": "ann"}, {"k": 2, "name": "bob"}], table="users")),
        json.dumps(canal("INSERT", 2, [{"k": 3, "page": "/"}], table="clicks")),
        json.dumps(canal("DELETE", 3, [{"k": 1, "name": "ann"}], table="users")),
    )
    found = drain(store).statistic
    assert rows(session, "users") == [(2, "bob")]
    assert (found.loaded_rows, found.error_rows, found.unselected_rows) == (3, 0, 1)


def test_kafka_messages_become_lines_of_key_and_value() -> None:
    """CS1: tombstones and line ends within documents"""
    keys = pa.array([b'{"k":\n1}', None, b'{"k":\t2}'], pa.binary())
    values = pa.array([None, b'{"a":\r\n1}', b'{"a":\t2}'], pa.binary())
    found = keyed_messages(keys, values).to_pylist()
    assert found == [b'{"k": 1}\tnull', b'\t{"a":  1}', b'{"k": 2}\t{"a": 2}']


@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_lines_of_many_tables_end_where_the_clause_says(
    store: Store, session: Session, tmp_path: Path, file_format: str
) -> None:
    """R3: JSON was cut at line feeds and then read with the other line end, so each task failed."""
    lines = {"csv": ["1,a", "2,b"], "json": ['{"k": 1, "name": "a"}', '{"k": 2, "name": "b"}']}[file_format]
    make(session, tmp_path, f'{CSV}, LINES TERMINATED BY "##"', f"'format' = '{file_format}'")
    put(tmp_path, "1.txt", "##".join(f"users|{each}" for each in lines) + "##")
    assert (drain(store).statistic.loaded_rows, rows(session, "users")) == (2, [(1, "a"), (2, "b")])


def test_messages_that_lack_values_keep_the_stored_ones_in_many_tables(
    store: Store, session: Session, tmp_path: Path
) -> None:
    """R3, F27"""
    for table in ("a", "b"):
        dicts(
            session,
            f"CREATE TABLE {table} (k BIGINT NOT NULL, n INT, body STRING) UNIQUE KEY (k) "
            "DISTRIBUTED BY HASH (k) PROPERTIES ('function_column.sequence_type' = 'bigint', "
            "'enable_unique_key_skip_bitmap_column' = 'true')",
        )
    mode = "'format' = 'debezium_json', 'unique_key_update_mode' = 'UPDATE_FLEXIBLE_COLUMNS'"
    make(session, tmp_path, "", mode)
    lines = []
    for table in ("a", "b"):
        kept = {"k": 1, "n": 2, "body": "__debezium_unavailable_value"}
        lines.append(json.dumps(envelope("c", 1, after={"k": 1, "n": 1, "body": table}, table=table)))
        lines.append(json.dumps(envelope("u", 2, after=kept, table=table)))
    put(tmp_path, "1.txt", *lines)
    drain(store)
    assert (rows(session, "a"), rows(session, "b")) == ([(1, 2, "a")], [(1, 2, "b")])
