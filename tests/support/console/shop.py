"""A store with what an operator meets, for the tests and the pictures of the console.

`shop.orders` has loads, late rows, rejected rows, a delete and a failed load; `shop.clicks` a routine load
that runs, and `shop.refunds` one that is paused. `secret.salaries` belongs to others: `ann` sees `shop` only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from seqstore import Session, Settings, Store
from seqstore.cli.clients.audit_log import AuditLog
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.loaders.routine.runner import RoutineRunner
from tests.support.http_server import Client, serving
from tests.support.statements import run

PASSWORD = "correct horse"
LOADS = 24
STATEMENTS = """
CREATE DATABASE shop;
CREATE DATABASE secret;
CREATE TABLE shop.orders (id BIGINT NOT NULL, item VARCHAR(40), amount DECIMAL(10, 2), updated DATETIME)
    UNIQUE KEY(id) PROPERTIES ('function_column.sequence_col' = 'updated');
CREATE TABLE shop.clicks (id BIGINT, page VARCHAR(40)) UNIQUE KEY(id);
CREATE TABLE shop.refunds (id BIGINT, amount INT) UNIQUE KEY(id);
CREATE TABLE secret.salaries (person VARCHAR(40), amount INT) UNIQUE KEY(person);
CREATE USER 'ann' IDENTIFIED BY 'correct horse';
GRANT SELECT_PRIV, LOAD_PRIV ON shop.* TO 'ann';
CREATE USER 'eve' IDENTIFIED BY 'correct horse';
SET PASSWORD FOR root = PASSWORD('correct horse');
"""


@contextmanager
def console_server(folder: Path, **settings: Any) -> Iterator[tuple[Client, Store]]:
    """Serves the store; its routine loads run."""
    incoming = folder / "incoming"
    incoming.mkdir()
    (incoming / "clicks.csv").write_text("".join(f"{number},page {number % 7}\n" for number in range(500)))
    engine = Settings(load_paths=(str(incoming),), auto_compaction=0)
    with Store.open(folder / "data", settings=engine) as store:
        with Session(store) as session:
            run(session, STATEMENTS)
        audit = AuditLog(folder / "data" / "audit")
        audit.start()
        runner = RoutineRunner(store)
        sessions = ServerSessions(store, audit=audit)
        with serving(store, sessions=sessions, **settings) as client:
            fill(client)
            _make_jobs(store, incoming)
            runner.start()
            try:
                yield client, store
            finally:
                runner.stop()
                audit.stop()


def fill(client: Client) -> None:
    """Loads orders in batches: each has new rows, changed ones, and some that are late."""
    user, now = f"root:{PASSWORD}", datetime.now(UTC).replace(microsecond=0, tzinfo=None)
    for load in range(LOADS):
        lines = [
            f"{load * 20 + row},item {row % 9},{row + 0.5},{now - timedelta(minutes=load + 30 * (row % 11))}"
            for row in range(60)
        ]
        if load % 5 == 4:  # hours behind what is stored
            lines += [f"{row},late item,1.00,{now - timedelta(days=2)}" for row in range(25)]
        if load % 7 == 3:
            lines += [f"{row},x,not a number,{now}" for row in range(8)]
        body = "\n".join(lines) + "\n"
        reply = client.load(
            "shop.orders", body, user, label=f"orders-{load:02}", max_filter_ratio="0.5", strict_mode="true"
        )
        assert reply["Status"] == "Success", reply
    deleted = client.load("shop.orders", "7,,,2099-01-01 00:00:00\n", user, label="gone", merge_type="DELETE")
    assert deleted["Status"] == "Success", deleted
    failed = client.load("shop.orders", "1,x,?,?\n", user, label="broken", strict_mode="true")
    assert failed["Status"] == "Fail", failed
    client.load("secret.salaries", "somebody,1\n", user, label="secret-load")


def _make_jobs(store: Store, incoming: Path) -> None:
    with ServerSessions(store).open("root", 0, lambda _: True, "shop") as session:
        for table in ("clicks", "refunds"):
            run(
                session,
                f"CREATE ROUTINE LOAD shop.load_{table} ON {table} COLUMNS TERMINATED BY ',' "
                f"FROM FILES ('path' = '{incoming}/{table}*')",
            )
        run(session, "PAUSE ROUTINE LOAD FOR shop.load_refunds")
