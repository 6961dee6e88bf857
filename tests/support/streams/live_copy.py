"""A database of PostgreSQL that changes, its change stream in Kafka, and a copy of it in a store.

PostgreSQL -> Debezium's engine, or Kafka Connect -> Kafka -> one routine load of `seqstore serve`.
"""

from __future__ import annotations

import base64
import json
import random
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.kafka.broker import KafkaBroker
from tests.support.kafka import Server, wait_until
from tests.support.streams.connect import KafkaConnect
from tests.support.streams.debezium import PAGE, Debezium, page_connector
from tests.support.streams.messages import ends_of, messages_of
from tests.support.streams.postgres import Postgres

PARTITIONS: Final = 2
JOB: Final = "shop.copy"
TABLES: Final = """
CREATE TABLE orders (
    id BIGINT PRIMARY KEY, state VARCHAR(20), price NUMERIC(9, 2), exact NUMERIC, placed TIMESTAMPTZ,
    at TIMESTAMP, day DATE, token UUID, info JSONB, octets BYTEA, numbers INT[], ratio FLOAT8, ok BOOLEAN
);
CREATE TABLE lines (
    order_id INT, line SMALLINT, item TEXT, amount INT NOT NULL DEFAULT 1, PRIMARY KEY (order_id, line)
);
CREATE TABLE notes (id INT PRIMARY KEY, n INT, body TEXT);
ALTER TABLE notes ALTER COLUMN body SET STORAGE EXTERNAL;
INSERT INTO orders (id, state, price, placed) SELECT i, 'old', i / 3.0, now() FROM generate_series(1, 150) i;
INSERT INTO lines (order_id, line, item) SELECT i, 1, 'thing ' || i FROM generate_series(1, 150) i;
INSERT INTO notes SELECT i, 0, repeat(md5(i::text), 200) FROM generate_series(1, 20) i;
"""
_WORK: Final = r"""
\set id random(1, 300)
\set own 3 * random(0, 99) + 1 + :client_id
\set n random(1, 1000000)
\set act random(1, 9)
\if :act <= 3
INSERT INTO orders (id, state, price, exact, placed, at, day, token, info, octets, numbers, ratio, ok {names})
VALUES (:id, 'new', :n / 100.0 % 9999, :n / 7.0, now(), now() AT TIME ZONE 'UTC', current_date - :id,
    gen_random_uuid(), jsonb_build_object('n', :n), decode(md5(:n::text), 'hex'), ARRAY[:id, :n],
    :n / 3.0, :n % 2 = 0 {values})
ON CONFLICT (id) DO UPDATE SET state = 'again', price = excluded.price, exact = NULL, at = excluded.at {sets};
\elif :act = 4
DELETE FROM orders WHERE id = :id;
\elif :act = 5
BEGIN;
DELETE FROM orders WHERE id = :id;
INSERT INTO orders (id, state) VALUES (:id, 'anew') ON CONFLICT (id) DO UPDATE SET state = 'anew';
UPDATE orders SET state = 'changed' WHERE id = :id;
COMMIT;
\elif :act = 6
INSERT INTO lines (order_id, line, item) VALUES (:id, :n % 5, 'thing ' || :n) ON CONFLICT DO NOTHING;
\elif :act = 7
UPDATE lines SET line = line + 5 WHERE order_id = :own AND line < 5
    AND NOT EXISTS (SELECT FROM lines l WHERE l.order_id = lines.order_id AND l.line = lines.line + 5);
\elif :act = 8
DELETE FROM lines WHERE order_id = :id AND line > 7;
\else
UPDATE notes SET n = :n WHERE id = 1 + :id % 20;
\endif
"""
# What becomes of a value of each type on both sides.
_TEXT: Final[Callable[[Any], Any]] = str
_FORMS: Final[Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "bigint": (int, int),
    "integer": (int, int),
    "smallint": (int, int),
    "numeric": (lambda v: Decimal(str(v)), lambda v: Decimal(str(v))),
    "double precision": (float, float),
    "boolean": (bool, lambda v: bool(int(v))),
    "timestamp with time zone": (lambda v: _moment(v), lambda v: _moment(str(v))),
    "timestamp without time zone": (lambda v: _moment(v), lambda v: _moment(str(v))),
    "date": (str, str),
    "uuid": (str, str),
    "text": (str, str),
    "character varying": (str, str),
    "jsonb": (lambda v: v, lambda v: json.loads(str(v))),
    "bytea": (lambda v: bytes.fromhex(v[2:]), base64.b64decode),
    "ARRAY": (lambda v: v, lambda v: json.loads(str(v))),
}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)


def page_statements() -> str:
    """The second of the two commands of the page `live-copy.md`."""
    found = re.search(r"seqstore sql -e '(?P<text>[^']*)'", PAGE.read_text())
    assert found is not None
    return re.sub(r"(?m)^> ", "", found["text"])


Rows = dict[tuple[Any, ...], dict[str, Any]]


class LiveCopy:
    """See the module.

    Args:
        directory: of the store, and of Debezium's position.
        by_connect: Debezium's connector runs in Kafka Connect, not in an engine of its own.
    """

    def __init__(
        self,
        postgres: Postgres,
        broker: KafkaBroker,
        directory: Path,
        topics: str = "shop",
        *,
        by_connect: bool = False,
    ) -> None:
        self.postgres, self.broker = postgres, broker
        self.topics = topics
        self.directory = directory
        self.debezium: Debezium | KafkaConnect
        if by_connect:
            self.debezium = KafkaConnect(directory / "connect", broker.address, postgres.port, topics)
        else:
            properties = page_connector(postgres.port, topics)["config"]
            self.debezium = Debezium(directory / "debezium", broker.address, PARTITIONS, properties)
        self.server = Server(directory / "data")

    def begin(self) -> None:
        """Makes the tables, the stream and the job; returns when rows arrive that were written after them."""
        self.postgres.run(TABLES)
        self.debezium.start()
        self.create("shop", f"{self.topics}[.]public[.].*")
        wait_until(self._streams, "the slot of Debezium", lambda: self.debezium.log)
        self.postgres.run("INSERT INTO orders (id, state) VALUES (-1, 'first')")
        wait_until(self._has_first, "the first streamed row", self.told)

    def create(self, database: str, pattern: str, mode: str = "UPDATE_FLEXIBLE_COLUMNS") -> None:
        """Makes a database and the job that fills it, by the statements of the manual's page."""
        changed = {
            "localhost:9092": self.broker.address,
            "shop[.]public[.].*": pattern,
            "DATABASE shop": f"DATABASE {database}",
            "LOAD shop.copy": f"LOAD {database}.copy",
            "UPDATE_FLEXIBLE_COLUMNS": mode,
        }
        for statement in page_statements().split(";"):
            for old, new in changed.items():
                statement = statement.replace(old, new)
            self.server.ask(statement)

    def close(self) -> None:
        self.debezium.kill()
        self.server.kill()

    def told(self) -> str:
        return f"{self.server.show(JOB)}\n{self.debezium.log}"

    def _streams(self) -> bool:
        self.debezium.require_alive()
        return "t" in self.postgres.run("SELECT active FROM pg_replication_slots")

    def _has_first(self) -> bool:
        try:
            found = self.server.ask("SELECT id FROM shop.orders WHERE id = -1")
        except Exception:  # the table is not there yet
            found = []
        return bool(found)

    # ------------------------------------------------------------------------------------------ changes

    def work(self, seconds: float, names: Mapping[str, str], seed: int) -> subprocess.Popen[str]:
        """Starts pgbench.

        Args:
            names: further columns of `orders`, and an expression for each.
        """
        text = _WORK.format(
            names="".join(f", {name}" for name in names),
            values="".join(f", {value}" for value in names.values()),
            sets="".join(f", {name} = excluded.{name}" for name in names),
        )
        script = self.directory / f"work{seed}.sql"
        script.write_text(text)
        return self.postgres.bench(
            script, "-c", "3", "-R", "60", "-T", str(round(seconds)), f"--random-seed={seed}"
        )

    # ------------------------------------------------------------------------------------------ the end

    def ends(self, topics: str) -> dict[str, int]:
        """The next offset of each partition of topics that begin so, by the job's names."""
        return ends_of(self.broker.address, topics)

    def settle(self) -> None:
        """Waits until the last change is in Kafka, and everything in Kafka in the store."""
        for table in self._tables():  # a new column comes with the first row that has it
            self.postgres.run(
                f"UPDATE {table} t SET {self._key(table)[0]} = {self._key(table)[0]} "
                f"WHERE ctid IN (SELECT ctid FROM {table} LIMIT 3)"
            )
        mark = random.randrange(10**9)
        self.postgres.run(f"UPDATE orders SET state = '{mark}' WHERE id = -1")

        def is_there() -> bool:
            self.debezium.require_alive()
            line = self.server.show(JOB)
            assert line["State"] != "PAUSED" or "source" in str(line), line
            found = self.server.ask("SELECT state FROM shop.orders WHERE id = -1")
            return [row["state"] for row in found] == [str(mark)]

        wait_until(is_there, "the last change", self.told)
        self.settled("shop", f"{self.topics}.public.")

    def settled(self, database: str, topics: str) -> None:
        job = f"{database}.copy"

        def is_read() -> bool:
            line = self.server.show(job)
            assert line["State"] != "PAUSED", line
            return self.server.progress(job) == self.ends(topics)

        wait_until(is_read, "every message", lambda: str(self.server.show(job)))

    def compare(self, database: str = "shop", without: Sequence[str] = ()) -> int:
        """Checks that every table of PostgreSQL is in the store, row for row; returns the rows."""
        count = 0
        for table in self._tables():
            if table in without:
                continue
            wanted, found = self._source_rows(table), self._stored_rows(database, table)
            missing = {key: row for key, row in wanted.items() if key not in found}
            more = {key: row for key, row in found.items() if key not in wanted}
            other = {
                key: {name: (row[name], found[key][name]) for name in row if row[name] != found[key][name]}
                for key, row in wanted.items()
                if key in found and row != found[key]
            }
            wrong = [each for each in (missing, more, other) if each]
            told = f"missing {_some(missing)}, too many {_some(more)}, other {_some(other)}"
            assert not wrong, f"{database}.{table}: {told}"
            count += len(wanted)
        return count

    def _tables(self) -> list[str]:
        return self.postgres.run("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").split()

    def _columns(self, table: str) -> dict[str, str]:
        told = self.postgres.run(
            f"SELECT column_name, data_type FROM information_schema.columns WHERE table_name = '{table}'"
        )
        return dict(line.split("\t") for line in told.splitlines())

    def _key(self, table: str) -> list[str]:
        return self.postgres.run(
            "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey) "
            f"WHERE indisprimary AND indrelid = '{table}'::regclass"
        ).split()

    def _source_rows(self, table: str) -> Rows:
        columns, key = self._columns(table), self._key(table)
        told = self.postgres.run(f"SELECT row_to_json(t) FROM {table} t").splitlines()
        rows = [json.loads(line, parse_float=Decimal) for line in told]
        return _by_key([{name: _form(columns[name], 0, row[name]) for name in columns} for row in rows], key)

    def _stored_rows(self, database: str, table: str) -> Rows:
        columns, key = self._columns(table), self._key(table)
        rows = self.server.ask(f"SELECT * FROM {database}.{table}")
        return _by_key([{name: _form(columns[name], 1, row[name]) for name in columns} for row in rows], key)

    def freshness(self, samples: int) -> str:
        """Commits rows one after the other; the times until a reader of the store sees each."""
        times: list[float] = []
        for number in range(samples):
            time.sleep(random.random() / 2)  # so that no row is in step with the job's intervals
            key = -1000 - number
            self.postgres.run(f"INSERT INTO orders (id, state) VALUES ({key}, 'fresh')")
            begun = time.monotonic()
            while not self.server.ask(f"SELECT id FROM shop.orders WHERE id = {key}"):
                assert time.monotonic() - begun < 300, self.told()
                time.sleep(0.02)
            times.append(time.monotonic() - begun)
        ordered = sorted(times)
        last = ordered[len(ordered) * 99 // 100]
        return f"p50 {ordered[len(ordered) // 2]:.2f} s, p99 {last:.2f} s of {samples} rows"

    # ------------------------------------------------------------------------------------------ again

    def shuffle(self, topics: str, to: str, seed: int, without: Sequence[str]) -> None:
        """Writes all messages of topics once more, in no order, to one topic."""
        left_out = tuple(f"{topics}{table}-" for table in without)
        messages = messages_of(self.broker.address, topics, left_out)
        random.Random(seed).shuffle(messages)
        admin = AdminClient({"bootstrap.servers": self.broker.address, "log_level": 0})
        admin.create_topics([NewTopic(to, PARTITIONS, 1)])[to].result(60)
        producer = Producer({"bootstrap.servers": self.broker.address, "log_level": 0})
        for number, (key, value) in enumerate(messages):
            producer.produce(to, value, key, partition=number % PARTITIONS)
            producer.poll(0)
        assert producer.flush(120) == 0


def _form(kind: str, side: int, value: Any) -> Any:
    return None if value is None else _FORMS[kind][side](value)


def _by_key(rows: list[dict[str, Any]], key: list[str]) -> Rows:
    found = {tuple(row[name] for name in key): row for row in rows}
    assert len(found) == len(rows), "a key twice"
    return found


def _some(rows: Mapping[Any, Any]) -> str:
    return f"{len(rows)}: {dict(list(rows.items())[:3])}"
