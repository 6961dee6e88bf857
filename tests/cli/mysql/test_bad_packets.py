"""Made-up packets to a real server: an answer or a closed connection, never a defect, a hang or a leak."""

from __future__ import annotations

import itertools
import logging
import random
import socket
import time

import pymysql
import pytest

from seqstore import Store
from seqstore.cli.clients.login_guard import LoginGuard
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.mysql import MysqlServer
from tests.cli.mysql_client import ask, dial, log_in
from tests.seeds import new_seed
from tests.support.hostile.bad_packets import Conversation, conversation, framed
from tests.support.hostile.usage import descriptors, resident_bytes
from tests.weight import by_form, torture_minutes

SECONDS_MAX = 60.0
_QUIT = framed(b"\1")


def patient_guard() -> LoginGuard:
    """A guard whose time goes so fast that no address is ever blocked."""
    return LoginGuard(itertools.count(step=1000).__next__)


def hold(port: int, talk: Conversation) -> bytes:
    """Has a conversation; gives all that the server sent until it closed the connection."""
    client, _ = dial(port)
    with client:
        client.settimeout(SECONDS_MAX)
        if talk.handshake is not None:
            data = talk.handshake
        else:
            assert log_in(client, "root")[:1] == b"\0"
            data = framed(b"\2db") + b"".join(talk.packets)
        received = b""
        try:
            client.sendall(data + _QUIT)
            if not talk.is_framed:
                client.shutdown(socket.SHUT_WR)
            while piece := client.recv(1 << 16):
                received += piece
        except TimeoutError:
            raise
        except OSError:  # the server closed while bytes of ours were unread
            pass
        return received


def talk_for(store: Store, seed: int, count: int, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(seed)
    with (
        MysqlServer(store, sessions=ServerSessions(store, guard=patient_guard())) as server,
        caplog.at_level(logging.ERROR),
    ):
        hold(server.port, Conversation("nothing"))
        before = descriptors()
        for number in range(count):
            talk = conversation(rng)
            told = f"seed {seed}, conversation {number}: {talk}"
            received = hold(server.port, talk)
            assert b"internal error" not in received, told
            assert b"Traceback" not in received, told
            assert caplog.text == "", told
        with pymysql.connect(host="127.0.0.1", port=server.port, user="root") as root:
            assert ask(root, "SELECT 1") == [(1,)]
            assert len(ask(root, "SHOW PROCESSLIST")) <= 2, "connections were left"
        assert descriptors() < before + 20
    assert store.databases() == ["db"]
    assert store.table("db.t").check() == []


def test_the_same_bad_packets_every_time_are_answered(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Dates of one byte and times of two were internal errors."""
    talk_for(store, 20261122, by_form(300, 1500), caplog)


def test_fresh_bad_packets_every_time_are_answered(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    talk_for(store, new_seed(), by_form(100, 500), caplog)


@pytest.mark.torture
def test_bad_packets_for_an_hour(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    until, used = time.monotonic() + 60 * torture_minutes(60), 0
    while time.monotonic() < until:
        talk_for(store, new_seed(), 2_000, caplog)
        used = used or resident_bytes()
        assert resident_bytes() < used + (512 << 20)
