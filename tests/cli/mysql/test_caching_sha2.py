"""Logins by caching_sha2_password, the method of MySQL 8 and later: with and without TLS."""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymysql._auth import scramble_caching_sha2, sha2_rsa_encrypt

from seqstore import Store
from seqstore.cli.clients.login_guard import LoginGuard
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.mysql import MysqlServer
from seqstore.cli.server.certificates import Certificates
from seqstore.cli.server.settings import ServerSettings
from tests.cli.mysql_client import CAPABILITIES, dial, read_packet, send_packet
from tests.support.certificates import write_certificate

PASSWORD = "a long passphrase"
SSL = 0x800


@pytest.fixture
def server(store: Store, tmp_path: Path) -> Iterator[MysqlServer]:
    store.accounts.create("ann", PASSWORD)
    certificate, key = write_certificate(tmp_path, "localhost")
    settings = ServerSettings(tls_certificate_file=str(certificate), tls_key_file=str(key))
    sessions = ServerSessions(store, guard=LoginGuard(lambda: 0.0))
    with MysqlServer(store, tls=settings.tls_context(), sessions=sessions) as server:
        yield server


class Login:
    """A client of this method."""

    def __init__(self, server: MysqlServer, user: str, password: str, *, tls: bool) -> None:
        self.client: socket.socket
        self.client, self.nonce = dial(server.port)
        self.password = password.encode()
        self.sequence = 1
        head = (CAPABILITIES | (SSL if tls else 0)).to_bytes(4, "little") + bytes(28)
        if tls:
            send_packet(self.client, head, 1)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.client = context.wrap_socket(self.client)
            self.sequence = 2
        scramble = scramble_caching_sha2(self.password, self.nonce) if password else b""
        body = head + user.encode() + b"\0" + bytes([len(scramble)]) + scramble
        self.answer = self.send(body + b"caching_sha2_password\0")

    def send(self, payload: bytes) -> bytes:
        send_packet(self.client, payload, self.sequence)
        self.sequence += 2
        return read_packet(self.client)

    def rest(self) -> bytes:
        return read_packet(self.client)


def full(login: Login, *, tls: bool) -> bytes:
    """The answer to the password itself."""
    assert login.answer == b"\x01\x04", login.answer
    if tls:
        return login.send(login.password + b"\0")
    key = login.send(b"\x02")
    assert key.startswith(b"\x01-----BEGIN PUBLIC KEY-----")
    return login.send(sha2_rsa_encrypt(login.password, login.nonce, key[1:]))


@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "RSA"])
def test_the_first_login_sends_the_password_and_later_ones_its_hash(server: MysqlServer, tls: bool) -> None:
    """Clients of MySQL 9, which know no mysql_native_password, could not log in."""
    first = Login(server, "ann", PASSWORD, tls=tls)
    with first.client:
        assert full(first, tls=tls)[0] == 0
    second = Login(server, "ann", PASSWORD, tls=tls)
    with second.client:
        assert second.answer == b"\x01\x03"
        assert second.rest()[0] == 0
        send_packet(second.client, b"\x0e")
        assert read_packet(second.client)[0] == 0  # a ping
    wrong = Login(server, "ann", "another", tls=tls)
    with wrong.client:
        assert int.from_bytes(full(wrong, tls=tls)[1:3], "little") == 1045


def test_a_new_password_needs_the_whole_login_again(server: MysqlServer, store: Store) -> None:
    for password in (PASSWORD, "a new one"):
        store.accounts.set_password("ann", password)
        login = Login(server, "ann", password, tls=False)
        with login.client:
            assert full(login, tls=False)[0] == 0


def test_an_unknown_user_and_a_wrong_password_read_the_same(server: MysqlServer) -> None:
    answers = []
    for user in ("ann", "bob"):
        login = Login(server, user, "wrong", tls=True)
        with login.client:
            answers.append(full(login, tls=True).replace(user.encode(), b"?"))
    assert answers[0] == answers[1]


def test_an_empty_password_needs_no_further_packet(server: MysqlServer) -> None:
    login = Login(server, "root", "", tls=False)
    with login.client:
        assert login.answer[0] == 0


def test_wrong_passwords_are_counted(server: MysqlServer) -> None:
    answers = []
    for _ in range(12):
        login = Login(server, "ann", "wrong", tls=True)
        with login.client:
            answers.append(int.from_bytes(full(login, tls=True)[1:3], "little"))
    assert 1129 in answers
    assert answers[:5] == [1045] * 5


def test_a_client_that_leaves_before_it_is_counted_learns_no_password(server: MysqlServer) -> None:
    """The server asked for the password behind a wrong hash only: such guesses were not counted."""
    first = Login(server, "ann", PASSWORD, tls=True)
    with first.client:
        assert full(first, tls=True)[0] == 0
    answers = []
    for password in ("wrong", "another", PASSWORD):
        login = Login(server, "ann", password, tls=True)
        login.client.close()
        answers.append(login.answer)
    assert answers == [b"\x01\x04"] * 3


def test_the_key_of_a_certificate_that_is_renewed_is_served_without_a_restart(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "old")
    settings = ServerSettings(tls_certificate_file=str(certificate), tls_key_file=str(key))
    context = settings.tls_context()
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    watch = Certificates(settings, [context])
    before = served(context)
    watch.look()
    assert served(context) == before
    write_certificate(tmp_path, "new")
    watch.look()
    after = served(context)
    assert after != before
    key.write_text("broken")
    watch.look()  # a warning, and the certificate of before
    assert served(context) == after


def served(context: ssl.SSLContext) -> bytes:
    """The digest of the certificate that a handshake with a context shows."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    ends = [ssl.MemoryBIO() for _ in range(4)]
    ours = context.wrap_bio(ends[0], ends[1], server_side=True)
    theirs = client.wrap_bio(ends[2], ends[3])
    for _ in range(4):
        for side, sent, received in ((theirs, ends[3], ends[0]), (ours, ends[1], ends[2])):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            finally:
                received.write(sent.read())
    found = theirs.getpeercert(binary_form=True)
    assert found is not None
    return hashlib.sha256(found).digest()


def test_mysql_tls_required_without_a_certificate_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="mysql_tls_required needs"):
        ServerSettings(mysql_tls_required=True).tls_context()
