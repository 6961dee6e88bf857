"""The SQL prompt, typed at through prompt_toolkit's own pipe."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from cli.output import Format
from cli.prompt import Prompt, SqlCompleter
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


def typed(session: Session, text: str, form: Format = Format.TABLE) -> None:
    with create_pipe_input() as keys:
        keys.send_text(text)
        Prompt(session, form, input=keys, output=DummyOutput()).run()


def test_statements_may_take_several_lines(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    typed(session, "SELECT order_id,\nnote\nFROM orders;\nquit\n")
    out = capsys.readouterr().out
    assert "|        1 | first |" in out
    assert "1 row in set (" in out


def test_an_error_leaves_the_prompt_running(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    typed(session, "SELEC 1;\nSELECT 40 + 2;\nexit\n")
    told = capsys.readouterr()
    assert "expected a statement" in told.err
    assert "42" in told.out


def test_help_a_dropped_line_and_the_end_of_input(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(session, "help\nSELECT 1\x03SELECT 2;\n\x04")
    out = capsys.readouterr().out
    assert out.count("Statements end with ';'") == 2
    assert "| 2 |" in out
    assert "| 1 |" not in out


def test_affected_rows_and_the_label_are_told(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    typed(session, "INSERT INTO orders WITH LABEL mine VALUES (2, 'x'), (3, 'y');\nquit\n")
    out = capsys.readouterr().out
    assert "Query OK, 2 rows affected (" in out
    assert "'label':'mine'" in out


def test_rows_too_wide_for_the_terminal_stand_on_lines(
    session: Session, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    typed(session, "SELECT repeat('x', 60) AS wide;\nSELECT 1 AS small;\nSELECT 5 AS v\\G\nquit\n")
    out = capsys.readouterr().out
    assert "wide: " + "x" * 60 in out
    assert "| small |" in out
    assert "v: 5" in out


def test_other_formats_are_kept(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    typed(session, "SELECT * FROM orders;\nquit\n", Format.JSON)
    assert '[{"order_id": 1, "note": "first"}]' in capsys.readouterr().out


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
