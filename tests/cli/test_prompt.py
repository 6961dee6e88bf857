"""The SQL prompt, typed at through prompt_toolkit's own pipe."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from seqstore.cli.prompt import SqlCompleter
from seqstore.store.sql import Session

TABLE = """
CREATE TABLE orders (order_id INT, note STRING NULL) UNIQUE KEY(order_id);
INSERT INTO orders VALUES (1, 'first')
"""
pytestmark = pytest.mark.sql(TABLE)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the prompt keeps its history."""
    monkeypatch.setenv("HOME", str(tmp_path))


TYPIST = """
import sys
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from seqstore.cli.output import Format
from seqstore.cli.prompt import Prompt
from seqstore import Store
from seqstore.store.sql import Session
with Store.open(sys.argv[1]) as store, Session(store, "db") as session, create_pipe_input() as keys:
    keys.send_text(sys.argv[2])
    Prompt(session, Format(sys.argv[3]), input=keys, output=DummyOutput()).run()
"""


def typed(session: Session, text: str, form: str = "table") -> tuple[str, str]:
    """What the prompt prints when `text` is typed. In a process of its own: select, by which the terminal is
    read, takes no descriptor beyond 1023, and a long test run has more files open."""
    line = [sys.executable, "-c", TYPIST, str(session.store.path), text, form]
    done = subprocess.run(line, capture_output=True, text=True, timeout=200, check=True)
    return done.stdout, done.stderr


def test_a_session_at_the_prompt(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several lines, an error, affected rows, a row too wide for the terminal, \\G, what is remembered."""
    monkeypatch.setenv("COLUMNS", "60")
    out, err = typed(
        session,
        "help\nSELECT order_id,\nnote\nFROM orders;\nSELEC 1;\n"
        "INSERT INTO orders WITH LABEL mine VALUES (2, 'x'), (3, 'y');\n"
        "SELECT repeat('x', 70) AS wide;\nSELECT 5 AS v\\G\nSELECT 777\x03SELECT 1 AS small;\nquit\n",
    )
    assert out.count("Statements end with ';'") == 2
    assert "|        1 | first |" in out
    assert "1 row in set (" in out
    assert "expected a statement" in err
    assert "Query OK, 2 rows affected (" in out
    assert "'label':'mine'" in out
    assert "wide: " + "x" * 70 in out
    assert "v: 5" in out
    assert "| small |" in out
    assert "777" not in out
    assert "SELECT 1 AS small;" in (tmp_path / ".seqstore_history").read_text()


def test_other_formats_are_kept_and_ctrl_d_leaves(session: Session) -> None:
    out, _ = typed(session, "SELECT * FROM orders;\n\x04", "json")
    assert '[{"order_id": 1, "note": "first"}]' in out


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
