"""Transactions over the MySQL protocol, as client libraries use them: without autocommit."""

from __future__ import annotations

import threading
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa
from pymysql.constants.SERVER_STATUS import SERVER_STATUS_AUTOCOMMIT, SERVER_STATUS_IN_TRANS

from seqstore import Store
from seqstore.cli.mysql import MysqlServer
from seqstore.store.catalog.update_lock import lock_directory, update_lock

READ_ONLY = 0x2000


def query(connection: Any, text: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(text)
        return cursor.fetchall()


def keys(connection: Any) -> list[int]:
    return [k for (k,) in query(connection, "SELECT k FROM t ORDER BY k")]


def status(connection: Any) -> tuple[bool, bool]:
    """What an OK packet says: autocommit, in a transaction."""
    connection.ping(reconnect=False)
    flags = connection.server_status
    return bool(flags & SERVER_STATUS_AUTOCOMMIT), bool(flags & SERVER_STATUS_IN_TRANS)


def test_pymysql_as_it_comes_rolls_back_and_commits(connect: Any) -> None:
    """Its autocommit is off: rows were visible at once, and `rollback` left them."""
    client, other = connect(), connect(autocommit=True)
    query(client, "INSERT INTO t (k) VALUES (3)")
    assert keys(client) == [1, 2, 3]
    assert keys(other) == [1, 2]
    client.rollback()
    assert keys(client) == keys(other) == [1, 2]
    query(client, "DELETE FROM t WHERE k = 1")
    client.commit()
    assert keys(client) == keys(other) == [2]


def test_status_flags_tell_the_truth(connect: Any) -> None:
    client = connect()
    assert status(client) == (False, False)
    steps = [
        ("SELECT 1", (False, False)),
        ("SELECT * FROM t", (False, True)),
        ("INSERT INTO t (k) VALUES (3)", (False, True)),
        ("COMMIT", (False, False)),
        ("UPDATE t SET d = 1", (False, True)),
        ("ROLLBACK", (False, False)),
        ("INSERT INTO t (k) VALUES (4)", (False, True)),
        ("SET autocommit = 1", (True, False)),
        ("INSERT INTO t (k) VALUES (5)", (True, False)),
        ("START TRANSACTION", (True, True)),
        ("DELETE FROM t WHERE k = 5", (True, True)),
        ("COMMIT", (True, False)),
    ]
    for text, expected in steps:
        query(client, text)
        assert status(client) == expected, text
    query(client, "START TRANSACTION READ ONLY")
    assert client.server_status & READ_ONLY
    with pytest.raises(pymysql.err.MySQLError) as caught:
        query(client, "DELETE FROM t WHERE k = 1")
    assert caught.value.args[0] == 1792
    client.rollback()
    assert not client.server_status & READ_ONLY


def test_a_lost_connection_rolls_back(connect: Any, store: Store) -> None:
    client, other = connect(), connect(autocommit=True)
    table = store.table("db.t")
    query(client, "UPDATE t SET d = 1")
    client._sock.close()  # without COM_QUIT, as when a client is killed
    client._rfile.close()
    with update_lock(lock_directory(table.catalog), table.id, 60):  # it goes with the transaction
        pass
    assert query(other, "SELECT count(*) FROM t WHERE d = 1 AND k = 2") == ((0,),)


def test_a_reset_connection_rolls_back_and_commits_by_itself_again(connect: Any) -> None:
    client = connect()
    query(client, "INSERT INTO t (k) VALUES (3)")
    client._execute_command(0x1F, "")
    client._read_ok_packet()
    assert keys(client) == [1, 2]
    query(client, "INSERT INTO t (k) VALUES (4)")
    client.rollback()
    assert keys(client) == [1, 2, 4]


def test_savepoints_are_refused_by_name(connect: Any) -> None:
    with pytest.raises(pymysql.err.MySQLError, match="SAVEPOINT is not supported"):
        query(connect(), "SAVEPOINT a")


def test_sqlalchemy_begins_commits_and_rolls_back(server: MysqlServer) -> None:
    engine = sa.create_engine(f"mysql+pymysql://root:@127.0.0.1:{server.port}/db")
    count = sa.text("SELECT count(*) FROM t")
    insert = sa.text("INSERT INTO t (k) VALUES (:k)")
    with engine.begin() as connection:
        connection.execute(insert, {"k": 10})
        assert connection.execute(count).scalar() == 3
        with engine.connect() as other:
            assert other.execute(count).scalar() == 2
    with pytest.raises(sa.exc.SQLAlchemyError), engine.begin() as connection:
        connection.execute(insert, [{"k": 11}, {"k": "no number"}])
    with engine.connect() as connection:
        assert connection.execute(count).scalar() == 3
        connection.execute(insert, {"k": 12})
        connection.rollback()
        assert connection.execute(count).scalar() == 3
    level = {"isolation_level": "SERIALIZABLE"}
    with engine.connect().execution_options(**level) as connection:
        assert connection.get_isolation_level() == "SERIALIZABLE"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(insert, {"k": 13})
        connection.rollback()
        assert connection.execute(count).scalar() == 4
    engine.dispose()


def test_counters_of_clients_without_autocommit_lose_nothing_and_meet_no_conflict(connect: Any) -> None:
    query(connect(autocommit=True), "UPDATE t SET d = 0 WHERE k = 1")

    def count(client: Any) -> None:
        for _ in range(5):
            query(client, "UPDATE t SET d = d + 1 WHERE k = 1")
            client.commit()

    clients = [connect() for _ in range(4)]
    threads = [threading.Thread(target=count, args=[client]) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert query(clients[0], "SELECT d FROM t WHERE k = 1") == ((20.0,),)


def test_a_deadlock_is_found_at_once_and_the_younger_one_gets_1213(connect: Any, store: Store) -> None:
    """Both waited for 300 seconds."""
    older, younger = connect(), connect()
    query(older, "CREATE TABLE u (k INT NOT NULL, d INT) UNIQUE KEY(k)")
    query(older, "INSERT INTO u VALUES (1, 1)")
    older.commit()
    query(older, "UPDATE t SET d = 1 WHERE k = 1")
    query(younger, "UPDATE u SET d = 2 WHERE k = 1")
    done = threading.Thread(target=query, args=[older, "UPDATE u SET d = 1 WHERE k = 1"])
    done.start()
    with pytest.raises(pymysql.err.OperationalError) as caught:
        query(younger, "UPDATE t SET d = 2 WHERE k = 1")
    done.join()
    number, message = caught.value.args
    assert number == 1213
    assert "Deadlock found when trying to get lock; try restarting transaction: " in message
    assert "waits for the update lock of db.t" in message
    assert "waits for the update lock of db.u" in message
    assert status(younger) == (False, False), "it was rolled back"
    query(younger, "INSERT INTO u VALUES (2, 2)")
    younger.commit()
    older.commit()
    assert query(older, "SELECT * FROM u ORDER BY k") == ((1, 1), (2, 2))
    assert query(older, "SELECT d FROM t WHERE k = 1") == ((1.0,),)
