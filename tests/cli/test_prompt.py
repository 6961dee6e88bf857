"""The SQL prompt, typed at through prompt_toolkit's own pipe."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from cli.prompt import SqlCompleter
from store import Store
from store.sql import Session


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("HOME", str(tmp_path))
    with Store.open(tmp_path / "data") as store, Session(store) as session:
        list(
            session.execute(
                "CREATE DATABASE db; USE db; CREATE TABLE orders (order_id INT, note STRING NULL)"
                " UNIQUE KEY(order_id); INSERT INTO orders VALUES (1, 'first')"
            )
        )
        yield session


TYPIST = """
import sys
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from cli.output import Format
from cli.prompt import Prompt
from store import Store
from store.sql import Session
with Store.open(sys.argv[1]) as store, Session(store, "db") as session, create_pipe_input() as keys:
    keys.send_text(sys.argv[2])
    Prompt(session, Format(sys.argv[3]), input=keys, output=DummyOutput()).run()
"""


def typed(session: Session, text: str, form: str = "table") -> tuple[str, str]:
    """What the prompt prints when `text` is typed. In a process of its own: select, by which the terminal is
    read, takes no descriptor beyond 1023, and a long test run has more files open."""
    line = [sys.executable, "-c", TYPIST, str(session.store.path), text, form]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, done.stderr


def test_statements_may_take_several_lines(session: Session) -> None:
    out, _ = typed(session, "SELECT order_id,\nnote\nFROM orders;\nquit\n")
    assert "|        1 | first |" in out
    assert "1 row in set (" in out


def test_an_error_leaves_the_prompt_running(session: Session) -> None:
    out, err = typed(session, "SELEC 1;\nSELECT 40 + 2;\nexit\n")
    assert "expected a statement" in err
    assert "42" in out


def test_help_a_dropped_line_and_the_end_of_input(session: Session) -> None:
    out, _ = typed(session, "help\nSELECT 1\x03SELECT 2;\n\x04")
    assert out.count("Statements end with ';'") == 2
    assert "| 2 |" in out
    assert "| 1 |" not in out


def test_affected_rows_and_the_label_are_told(session: Session) -> None:
    out, _ = typed(session, "INSERT INTO orders WITH LABEL mine VALUES (2, 'x'), (3, 'y');\nquit\n")
    assert "Query OK, 2 rows affected (" in out
    assert "'label':'mine'" in out


def test_rows_too_wide_for_the_terminal_stand_on_lines(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out, _ = typed(session, "SELECT repeat('x', 60) AS wide;\nSELECT 1 AS small;\nSELECT 5 AS v\\G\nquit\n")
    assert "wide: " + "x" * 60 in out
    assert "| small |" in out
    assert "v: 5" in out


def test_other_formats_are_kept(session: Session) -> None:
    out, _ = typed(session, "SELECT * FROM orders;\nquit\n", "json")
    assert '[{"order_id": 1, "note": "first"}]' in out


def test_what_was_typed_is_remembered(session: Session, tmp_path: Path) -> None:
    typed(session, "SELECT 12345;\nquit\n")
    assert "SELECT 12345;" in (tmp_path / ".seqstore_history").read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM ord", "orders"),
        ("SELECT ord FROM orders", None),
        ("SELECT * FROM orders WHERE order_", "order_id"),
        ("SELECT * FROM db.o", "db.orders"),
        ("CREATE DATA", "DATABASE"),
        ("sel", "select"),
        ("SELECT date_form", "date_format("),
        ("USE d", "db"),
    ],
)
def test_names_and_words_complete(session: Session, text: str, expected: str | None) -> None:
    found = [c.text for c in SqlCompleter(session).get_completions(Document(text), CompleteEvent())]
    if expected is None:
        assert found == []
    else:
        assert expected in found
