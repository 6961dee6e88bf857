"""Messages as bodies (R36): no message decides about another one, whatever is in it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa
import pytest

from seqstore import InvalidInputError, Store
from seqstore.loaders.csv.open_field import left_open
from seqstore.loaders.csv.reader import CsvReader
from seqstore.loaders.dead_letters.replay import replay
from seqstore.loaders.headers import StreamLoadOptions, parse_headers
from seqstore.loaders.routine.job import RoutineJob
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.messages import bodies_of
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.loaders.routine.source import Bounds, Piece, Span
from seqstore.store.sql import Session
from tests.seeds import new_seed
from tests.support.statements import dicts
from tests.weight import by_form

TABLE = "CREATE TABLE t (k INT NOT NULL, v VARCHAR(30)) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)"
pytestmark = [pytest.mark.settings(auto_compaction=0), pytest.mark.sql(TABLE)]


class Topic:
    """A source of one partition, which makes pieces as the one of Kafka does."""

    def __init__(self, options: StreamLoadOptions, messages: Sequence[bytes | None]) -> None:
        self._options, self._messages = options, messages

    def identity(self) -> str:
        return ""

    def bounds(self) -> dict[str, Bounds]:
        return {"0": Bounds(0, len(self._messages))}

    def first_offsets(self, partitions: Sequence[str], bounds: Any) -> dict[str, int]:
        return dict.fromkeys(partitions, 0)

    def pieces(self, spans: Sequence[Span]) -> Iterator[Piece]:
        for span in spans:
            messages = pa.array(self._messages[span.start : span.end], pa.binary())
            yield Piece(span, partial(list, list(bodies_of(messages, self._options, is_multi=False))), 1)

    def close(self) -> None:
        pass


def make(session: Session, properties: str = "", ends: str = "") -> None:
    dicts(
        session,
        f"""CREATE ROUTINE LOAD job ON t COLUMNS TERMINATED BY "," {ends}
        PROPERTIES ('max_error_number' = '9' {properties})
        FROM KAFKA ('kafka_broker_list' = 'h:1', 'kafka_topic' = 'x')""",
    )


def drain(store: Store, *messages: bytes | None) -> RoutineJob:
    runner = RoutineRunner(store, open_source=lambda _, __, job: Topic(job.spec.options(""), messages))
    (job,) = runner.drain().values()
    return job


def rows(session: Session) -> dict[int, str]:
    return {row["k"]: row["v"] for row in dicts(session, "SELECT * FROM t ORDER BY k")}


def test_a_quote_that_a_later_message_closes_takes_in_no_message(store: Store, session: Session) -> None:
    """R11, R36: the first message took in the two behind it, whose offsets were committed."""
    make(session, """, 'enclose' = '"'""")
    job = drain(store, b'1,"a', b"2,b", b'3,"c"', b"4,d")
    assert rows(session) == {2: "b", 3: '"c"', 4: "d"}
    assert (job.statistic.loaded_rows, job.statistic.error_rows, dict(job.progress)) == (3, 1, {"0": 4})


def test_a_quote_that_is_never_closed_stops_no_job(store: Store, session: Session) -> None:
    """R17: each task of the job failed."""
    make(session, """, 'enclose' = '"'""")
    job = drain(store, b"1,a", b'2,"b', b"3,c")
    assert rows(session) == {1: "a", 3: "c"}
    assert (job.statistic.error_rows, job.statistic.aborted_tasks) == (1, 0)


def test_a_message_of_an_open_field_is_a_dead_letter(store: Store, session: Session) -> None:
    """DL1, DL5: with its reason and its whole text; a replay does not let it take in other letters."""
    make(session, """, 'enclose' = '"', 'dead_letters' = 'true', 'strict_mode' = 'true'""")
    text = b'1,"' + b"a" * 5_000
    drain(store, text, b"x,b", b'3,"c', b"4,d")
    letters = dicts(session, "SELECT raw, reason FROM t__dead_letters ORDER BY raw")
    assert [row["raw"] for row in letters] == [text.decode(), '3,"c', "x,b"]
    assert letters[0]["reason"].endswith('starts with the enclosing character " is never closed')
    dicts(session, "UPDATE t__dead_letters SET raw = '2,b' WHERE raw = 'x,b'")
    dicts(session, "UPDATE t__dead_letters SET raw = '1,\"a\"' WHERE length(raw) > 1000")
    done = replay(store, "db.t")
    assert (done.loaded, [reason for _, reason in done.left]) == (
        2,
        [letters[0]["reason"]],
    )
    assert rows(session) == {1: '"a"', 2: "b", 4: "d"}


def test_binary_messages_are_bad_rows_and_stop_no_job(store: Store, session: Session) -> None:
    """R17, V10: messages that use all byte values left none for line ends that are part of a value."""
    make(session)
    job = drain(store, b"1,a", bytes(range(256)) + b"\r,", b"2,b\rc")
    assert (rows(session), job.statistic.error_rows) == ({1: "a", 2: "b\rc"}, 1)


@pytest.mark.parametrize(
    ("properties", "blank"),
    [("", (b"", None, b"\n", b"\r", b"\n\r\n")), (", 'format' = 'json'", (b"", b" ", b"\n\t"))],
    ids=["csv", "json"],
)
def test_a_message_of_blank_lines_is_a_bad_row(
    store: Store, session: Session, properties: str, blank: tuple[bytes | None, ...]
) -> None:
    """R36: it was skipped in silence."""
    make(session, properties)
    job = drain(store, *blank, b'{"k": 1, "v": "a"}' if properties else b"1,a\r\n")
    assert (rows(session), job.statistic.error_rows) == ({1: "a"}, len(blank))


def test_messages_end_as_the_clause_says(store: Store, session: Session) -> None:
    """R36: they were joined by line feeds, so all of them were one bad row."""
    make(session, ends=r', LINES TERMINATED BY "\\r\\n"')
    job = drain(store, b"1,a", b"2,b\nc", b"3,d\r\n4,e", b"")
    assert (rows(session), job.statistic.error_rows) == ({1: "a", 2: "b\nc", 3: "d", 4: "e"}, 1)


def test_documents_have_no_line_end(session: Session) -> None:
    """R36: each task of such a job failed."""
    with pytest.raises(InvalidInputError, match="LINES TERMINATED BY: a message of format json is one doc"):
        make(session, ", 'format' = 'json'", ', LINES TERMINATED BY ";"')


def test_a_job_of_documents_that_has_a_line_end_reads_them(store: Store, session: Session) -> None:
    """R36: one that was made before the clause was refused."""
    make(session, ", 'format' = 'json'")
    jobs = RoutineJobs(store.catalog)
    ((number, _),) = jobs.all().items()
    jobs.change(number, lambda job: replace(job, spec=replace(job.spec, line_delimiter=";")))
    assert drain(store, b'{"k": 1, "v": "a;b"}', b'{"k": 2, "v": "c"}').statistic.loaded_rows == 2
    assert rows(session) == {1: "a;b", 2: "c"}


def test_a_line_end_that_overlaps_itself_is_refused(session: Session) -> None:
    """The message `1,a#` would end in `a`, and the next one begin with `#`."""
    with pytest.raises(InvalidInputError, match="LINES TERMINATED BY '##' FROM KAFKA: expected a text that"):
        make(session, ends=', LINES TERMINATED BY "##"')


OPTIONS = {
    "plain": {"enclose": '"'},
    "doubled": {"enclose": '"', "escape": '"'},
    "long": {"enclose": "'", "column_separator": "||", "line_delimiter": "\r\n"},
    "hexadecimal": {"enclose": "'", "column_separator": "\\x01", "line_delimiter": "\\x02"},
}


@pytest.mark.parametrize("headers", OPTIONS.values(), ids=OPTIONS)
def test_messages_have_the_rows_that_each_has_alone(headers: dict[str, str]) -> None:
    """R36: random messages of quotes, escapes, separators and line ends."""
    options = parse_headers({"column_separator": ",", **headers})
    draw = random.Random(new_seed())
    mark, separator, end = options.csv.enclose, options.csv.separator, options.csv.delimiter
    parts = [mark, mark, mark, options.csv.escape, separator, end, b"a", b"\r", b"\n", b"\xc3\xa9", b"1"]
    for _ in range(by_form(25, 300)):
        messages = [
            b"".join(draw.choices(parts, k=draw.randrange(9))) + draw.choice([b"x", mark + separator + b"y"])
            for _ in range(draw.randrange(1, 12))
        ]
        alone = [_rows_of(each, options) for each in messages]
        opened = [number for number, each in enumerate(alone) if each is None]
        assert left_open(pa.array(messages, pa.large_binary()), options.csv) == opened, messages
        (body,) = bodies_of(pa.array(messages, pa.binary()), options, is_multi=False)
        assert body.bad_count == len(opened)
        assert _rows_of(body.open(), options) == [row for each in alone for row in each or ()], messages


def _rows_of(message: bytes | BinaryIO, options: StreamLoadOptions) -> list[tuple[Any, ...]] | None:
    """Returns rows, and the texts of bad rows, of a body; None where a field of it is open."""
    if isinstance(message, bytes):
        (body,) = bodies_of(
            pa.array([message]), replace(options, csv=replace(options.csv, enclose=b"")), is_multi=False
        )
        message = body.open()
    found: list[tuple[Any, ...]] = []
    try:
        for batch in CsvReader(message, ["a", "b"], options.csv).batches():
            found += [tuple(row.values()) for row in batch.rows.to_pylist()]
    except InvalidInputError as error:
        if "never closed" not in error.message:
            raise
        return None
    return found
