"""The MySQL server as a service: it starts, tells where, and refuses what is unsafe."""

from __future__ import annotations

import asyncio
import socket

import pymysql
import pytest

from seqstore import InvalidInputError, Store, UnavailableError
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.server.mysql_service import MysqlService
from seqstore.cli.server.settings import ServerSettings


def test_it_serves_between_start_and_stop(store: Store) -> None:
    async def visit() -> tuple[str, int]:
        service = MysqlService(ServerSessions(store), ServerSettings(), 0)
        await service.start()
        port = int(service.address.rpartition(":")[2])
        connection = await asyncio.to_thread(pymysql.connect, host="127.0.0.1", port=port, user="root")
        address = service.address
        await service.stop()
        connection.close()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port))
        return address, port

    address, port = asyncio.run(visit())
    assert address == f"mysql://127.0.0.1:{port}"


def test_a_taken_port_is_told(store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        service = MysqlService(ServerSessions(store), ServerSettings(), taken.getsockname()[1])
        with pytest.raises(UnavailableError, match="choose another --mysql-port"):
            asyncio.run(service.start())


def test_it_does_not_listen_to_the_world_while_root_has_no_password(store: Store) -> None:
    service = MysqlService(ServerSessions(store), ServerSettings(host="0.0.0.0"), 0)
    with pytest.raises(InvalidInputError, match="empty password"):
        asyncio.run(service.start())
