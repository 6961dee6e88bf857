"""Every statement that takes a LIKE pattern, with one that a backtracking matcher never finishes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from seqstore.store.sql.session.statement_kind import all_kinds, parse
from tests.cli.mysql_client import ask
from tests.support.http_server import ServerProcess

NAME = "a" * 60
EVIL = "%a" * 30 + "%b"
STATEMENTS = [
    f"SHOW DATABASES LIKE '{EVIL}'",
    f"SHOW TABLES FROM {NAME} LIKE '{EVIL}'",
    f"SHOW VIEWS FROM {NAME} LIKE '{EVIL}'",
    f"SHOW TABLE STATUS FROM {NAME} LIKE '{EVIL}'",
    f"SHOW FULL COLUMNS FROM {NAME}.{NAME} LIKE '{EVIL}'",
    f"SHOW VARIABLES LIKE '{EVIL}'",
    f"SHOW VARIABLES WHERE variable_name LIKE '{EVIL}'",
    f"SHOW FRONTEND CONFIG LIKE '{EVIL}'",
    f"SHOW ENGINES LIKE '{EVIL}'",
    f"SHOW LOAD FROM {NAME} WHERE LABEL LIKE '{EVIL}'",
    f"CANCEL LOAD FROM {NAME} WHERE LABEL LIKE '{EVIL}'",
    f"CANCEL EXPORT FROM {NAME} WHERE LABEL LIKE '{EVIL}'",
    f"SHOW STREAM LOAD FROM {NAME} WHERE LABEL LIKE '{EVIL}'",
    f"SHOW ROUTINE LOAD LIKE '{EVIL}'",
    f"SHOW WORKLOAD GROUPS LIKE '{EVIL}'",
    f"SHOW PROPERTY LIKE '{EVIL}'",
]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Of a server in a process of its own, so that a test ends even if the server does not answer."""
    folder = tmp_path_factory.mktemp("patterns")
    config = folder / "config.toml"
    config.write_text(f'[store]\nload_paths = ["{folder}"]\noutput_paths = ["{folder}"]\n')
    server = ServerProcess(folder / "data", "--config", str(config))
    try:
        prepare(server, folder)
        yield server.mysql_port
    finally:
        server.kill()


def prepare(server: ServerProcess, folder: Path) -> None:
    """A name of many equal letters for everything that a pattern may select."""
    connection = connect(server.mysql_port)
    for text in (
        f"CREATE DATABASE {NAME}",
        f"USE {NAME}",
        f"CREATE TABLE {NAME} ({NAME} INT) UNIQUE KEY({NAME})",
        f'LOAD LABEL {NAME} (DATA INFILE("{folder}/nothing.csv") INTO TABLE {NAME})',
        f"EXPORT TABLE {NAME} TO 'file://{folder}/rows_' PROPERTIES ('label' = '{NAME}')",
        f'CREATE ROUTINE LOAD {NAME} ON {NAME} FROM FILES ("path" = "{folder}/*.csv")',
    ):
        ask(connection, text)
    server.client.load(f"{NAME}.{NAME}", "1\n", label=NAME + "1")


def connect(port: int) -> Any:
    return pymysql.connect(host="127.0.0.1", port=port, user="root", read_timeout=200)


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_hostile_pattern_is_answered(port: int, text: str) -> None:
    """`LIKE '%a%a%a..%b'` froze the whole server: a regular expression tried every split of a name."""
    connection = connect(port)
    ask(connection, f"USE {NAME}")
    if text.startswith("CANCEL"):
        with pytest.raises(pymysql.MySQLError, match="does not exist"):
            ask(connection, text)
    else:
        assert not ask(connection, text)
    assert ask(connection, "SELECT 1") == [(1,)]


def test_every_statement_with_a_pattern_is_tried() -> None:
    names = {"like", "filter"}
    taking = {
        kind.statement.__name__
        for kind in all_kinds()
        if is_dataclass(kind.statement) and names & {field.name for field in fields(kind.statement)}
    }
    assert taking | {"FilteredShow"} == {type(parse(text)[0]).__name__ for text in STATEMENTS}
