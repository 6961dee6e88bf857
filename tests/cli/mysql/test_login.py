"""The login over the MySQL protocol, packet by packet."""

from __future__ import annotations

import itertools

import pytest

from seqstore import Store
from seqstore.cli.mysql import MysqlServer
from tests.cli.mysql_client import dial, log_in, scramble


def password_with_zero(nonce: bytes, place: int) -> str:
    """A password whose scramble has a zero byte at a place."""
    found = (text for number in itertools.count() if not scramble(text := f"secret {number}", nonce)[place])
    return next(found)


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("end", [b"", b"\0"], ids=["bare", "with the zero byte of old clients"])
def test_a_scramble_with_a_zero_byte_at_its_end_is_the_right_one(
    store: Store, server: MysqlServer, end: bytes, place: int
) -> None:
    """Zero bytes at the end were cut off, so one right password in 256 was refused."""
    store.accounts.create("ann")
    client, nonce = dial(server.port)
    with client:
        password = password_with_zero(nonce, place)
        store.accounts.set_password("ann", password)
        answer = log_in(client, "ann", scramble(password, nonce) + end)
    assert answer[0] == 0, answer


def test_a_zero_byte_is_no_password(server: MysqlServer) -> None:
    """Some clients send one for the empty password."""
    client, _ = dial(server.port)
    with client:
        assert log_in(client, "root", b"\0")[0] == 0
