"""The end of a statement on request, whenever the request comes."""

from __future__ import annotations

import pytest

from seqstore import Session, UnavailableError
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
