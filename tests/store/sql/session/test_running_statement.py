"""The end of a statement on request, whenever the request comes."""

from __future__ import annotations

from threading import Event, Thread

import pytest

from seqstore import InvalidInputError, Session, UnavailableError
from tests.support.statements import run

pytestmark = pytest.mark.sql("CREATE TABLE t (k INT NOT NULL, v INT) UNIQUE KEY(k)")
STATEMENTS = ["SELECT 1", "INSERT INTO t VALUES (1, 2)", "SELECT k FROM t", "SHOW TABLES", "COMMIT"]
every_statement = pytest.mark.parametrize("text", STATEMENTS)


@every_statement
def test_a_statement_that_is_shown_ends_before_it_begins(session: Session, text: str) -> None:
    """KILL was lost between the line in SHOW PROCESSLIST and the begin of the statement."""
    with session.running(text):
        session.interrupt()
        with pytest.raises(UnavailableError, match="Query execution was interrupted"):
            run(session, text)
    assert run(session, "SELECT count(*) FROM t") == [(0,)]


@every_statement
def test_the_request_ends_one_statement(session: Session, text: str) -> None:
    with session.running(text):
        session.interrupt()
        with pytest.raises(UnavailableError):
            run(session, text)
        run(session, text)


@every_statement
def test_a_request_between_statements_ends_none(session: Session, text: str) -> None:
    session.interrupt()
    with session.running(text):
        run(session, text)
        session.interrupt()
    with session.running(text):
        run(session, text)


def test_a_long_text_ends_while_it_is_parsed(session: Session) -> None:
    """KILL was heard when a text of megabytes had been parsed, after seconds for each of them."""
    conditions = " OR ".join(f"v = {number}" for number in range(12_000))
    text = f"SELECT k FROM t WHERE {conditions} AND )"
    with pytest.raises(InvalidInputError, match="expected an expression"):
        session.execute(text)

    def interrupt() -> None:
        while not session._running.is_running and not ended.is_set():
            ended.wait(0.001)
        session.interrupt()

    ended = Event()
    other = Thread(target=interrupt)
    other.start()
    with pytest.raises(UnavailableError, match="Query execution was interrupted"):
        session.execute(text)
    ended.set()
    other.join()
    assert run(session, "SELECT count(*) FROM t") == [(0,)]
