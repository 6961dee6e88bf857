"""The server's log as JSON: lines that programs read, with the ids that the audit log has."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pymysql
import pytest

from seqstore import InvalidInputError
from seqstore.cli.clients.audit_log import AuditLog, Client, Event
from seqstore.cli.logs.current_ids import AddIds
from seqstore.cli.logs.json_lines import log_formatter
from seqstore.cli.server.settings import ServerSettings
from tests.support.http_server import ServerProcess


def handler_to(stream: io.StringIO) -> logging.Handler:
    handler = logging.StreamHandler(stream)
    handler.addFilter(AddIds())
    handler.setFormatter(log_formatter("json"))
    return handler


def test_a_line_has_the_ids_of_its_statement_and_only_then(tmp_path: Path) -> None:
    stream, logger = io.StringIO(), logging.getLogger("seqstore.test_log_lines")
    handler = handler_to(stream)
    logger.addHandler(handler)
    try:
        event = Event("load", Client("http", "10.0.0.1", "ann", 7), label="a-label")
        with AuditLog(tmp_path).timed(event):
            logger.warning("within %d", 1)
        logger.warning("outside")
    finally:
        logger.removeHandler(handler)
    within, outside = map(json.loads, stream.getvalue().splitlines())
    ids = {name: within[name] for name in ("query_id", "label", "user", "address", "protocol", "connection")}
    assert ids == {
        "query_id": event.query_id,
        "label": "a-label",
        "user": "ann",
        "address": "10.0.0.1",
        "protocol": "http",
        "connection": "7",
    }
    assert (within["message"], within["level"]) == ("within 1", "WARNING")
    assert "query_id" not in outside


def test_an_exception_is_one_line_with_its_trace() -> None:
    stream, logger = io.StringIO(), logging.getLogger("seqstore.test_log_lines")
    handler = handler_to(stream)
    logger.addHandler(handler)
    try:
        raise ValueError("a\nb")
    except ValueError:
        logger.exception("failed")
    finally:
        logger.removeHandler(handler)
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: a" in json.loads(line)["exception"]


def test_a_server_writes_json_and_names_who_was_refused(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text('[server]\nlog_format = "json"\n')
    server = ServerProcess(tmp_path / "data", "--config", str(config))
    try:
        while True:  # ten guesses are heard at once, and one more a second
            with pytest.raises(pymysql.MySQLError) as refused:
                pymysql.connect(host="127.0.0.1", port=server.mysql_port, user="root", password="no")
            if "is blocked because of many failed logins" in str(refused.value):
                break
        assert server.process.stdout is not None
        lines = (json.loads(line) for line in server.process.stdout)
        line = next(line for line in lines if line["message"].startswith("too many failed logins"))
    finally:
        server.kill()
    assert (line["level"], line["logger"], line["protocol"]) == ("WARNING", "seqstore.login", "mysql")
    assert line["user"] == "root"
    assert line["query_id"]


def test_another_form_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="log_format expects text or json, found 'xml'"):
        ServerSettings(log_format="xml")
