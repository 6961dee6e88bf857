"""Files of statements with their results (`logic/*.slt`), in the form of sqllogictest.

    statement ok                     the statement runs
    INSERT INTO t VALUES (1)

    statement error unknown column   it fails, and the message holds this
    SELECT nope FROM t

    query [rowsort]                  rows follow, columns separated by tabs, NULL as a word
    SELECT k FROM t
    ----
    1

A block ends with an empty line, `#` begins a comment, values are printed as the command line prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from seqstore import Store, StoreError
from seqstore.cli.output import text
from seqstore.store.sql import Session
from tests.support.copied import copied_at_once

FILES = sorted((Path(__file__).parent / "logic").glob("*.slt"))


@dataclass(frozen=True)
class Block:
    """One statement: `kind` is `ok`, `error` or `query`, `argument` what stands behind it."""

    line: int
    kind: str
    argument: str
    statement: str
    expected: list[str]


def blocks(path: Path) -> Iterator[Block]:
    lines = path.read_text(encoding="utf-8").split("\n")
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].startswith("#"):
            at += 1
            continue
        start = at
        first, _, rest = lines[at].partition(" ")
        kind, _, argument = (rest if first == "statement" else f"query {rest}").partition(" ")
        at += 1
        body: list[str] = []
        while at < len(lines) and lines[at].strip():
            body.append(lines[at])
            at += 1
        cut = body.index("----") if "----" in body else len(body)
        yield Block(start + 1, kind, argument.strip(), "\n".join(body[:cut]), body[cut + 1 :])


def answer(session: Session, statement: str) -> list[str]:
    [result] = session.execute(statement)
    if result.rows is None:
        return []
    columns = [column.to_pylist() for column in result.rows.columns]
    rows = ["\t".join("NULL" if v is None else text(v) for v in row) for row in zip(*columns, strict=True)]
    return [line for row in rows for line in row.split("\n")]


def problem(session: Session, block: Block) -> str:
    """What is wrong with the answer to a block, empty when nothing is. Queries run twice."""
    where = f"line {block.line}: {block.statement}\n  "
    try:
        found = answer(session, block.statement)
        if block.kind == "query":
            found = answer(session, block.statement)
    except StoreError as error:
        is_expected = block.kind == "error" and block.argument in str(error)
        return "" if is_expected else f"{where}{error}"
    if block.kind == "error":
        return f"{where}expected {block.argument!r}"
    if "rowsort" in block.argument:
        found.sort()
    return "" if block.kind == "ok" or found == block.expected else f"{where}{found} != {block.expected}"


@pytest.mark.family(3)
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_statement_answers_as_written(path: Path, tmp_path: Path) -> None:
    check(path, tmp_path)


@pytest.mark.family(3)
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_statement_answers_as_written_from_copies(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with copied_at_once(monkeypatch) as counts:
        check(path, tmp_path)
    assert counts[0] >= counts[1]


def check(path: Path, tmp_path: Path) -> None:
    clock = datetime(2024, 3, 5, 12, 30, 15, tzinfo=UTC)
    with Store.open(tmp_path / "s") as store, Session(store, clock=lambda: clock) as session:
        for statement in ("CREATE DATABASE db", "USE db", "SET time_zone = '+00:00'"):
            list(session.execute(statement))
        wrong = [told for block in blocks(path) if (told := problem(session, block))]
        assert not wrong, "\n".join(wrong)


def test_the_files_hold_at_least_three_hundred_statements() -> None:
    assert sum(1 for path in FILES for _ in blocks(path)) >= 300
