"""Routine loads from a real Kafka broker, run by `seqstore serve`; every test has a topic and a table."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from bench.kafka.broker import PASSWORD, STORE_PASSWORD, USER, KafkaBroker
from tests.support.children import MODULES
from tests.support.http_server import basic
from tests.support.kafka import ROOT, Server, Topic, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # Spark starts in the first test
NUMBERS = itertools.count()
EVERY_SECOND = '"max_batch_interval" = "1"'
JSON = f'{EVERY_SECOND}, "format" = "json"'


@pytest.fixture(scope="module")
def server(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("served") / "data")
    running.ask("CREATE DATABASE db")
    try:
        yield running
    finally:
        running.kill()


@dataclass
class Job:
    """A topic, a table and what loads the one into the other."""

    server: Server
    topic: Topic
    name: str
    table: str

    def make(
        self,
        properties: str = EVERY_SECOND,
        clauses: str = 'COLUMNS TERMINATED BY ","',
        source: str = '"property.kafka_default_offsets" = "OFFSET_BEGINNING"',
    ) -> None:
        source = f"{source}," if source else ""
        brokers = "" if "kafka_broker_list" in source else f'"kafka_broker_list" = "{self.topic.address}",'
        self.server.ask(
            f"""CREATE ROUTINE LOAD {self.name} ON {self.table.rpartition(".")[2]} {clauses}
            PROPERTIES ({properties})
            FROM KAFKA ({source} {brokers} "kafka_topic" = "{self.topic.name}")"""
        )

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.server.ask(f"SELECT * FROM {self.table} ORDER BY 1")]

    @property
    def statistic(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self.server.show(self.name)["Statistic"])
        return found


@pytest.fixture(autouse=True)
def no_job_is_left(server: Server) -> Iterator[None]:
    """A job that goes on would run a Spark task every second of the tests behind it."""
    yield
    for line in server.ask("SHOW ROUTINE LOAD", "db"):
        server.ask(f"STOP ROUTINE LOAD FOR db.{line['Name']}")


@pytest.fixture
def job(server: Server, broker: KafkaBroker) -> Job:
    return new_job(server, broker)


def new_job(
    server: Server,
    broker: KafkaBroker,
    columns: str = "k BIGINT, v BIGINT NULL",
    properties: str = "",
    partitions: int = 1,
) -> Job:
    number = next(NUMBERS)
    table = f"db.t{number}"
    properties = f"PROPERTIES ({properties})" if properties else ""
    server.ask(f"CREATE TABLE {table} ({columns}) UNIQUE KEY (k) DISTRIBUTED BY HASH (k) {properties}")
    return Job(server, Topic(broker.address, f"topic{number}", partitions), f"db.job{number}", table)


def test_messages_become_rows_and_offsets_progress(job: Job) -> None:
    """R11, R32, R36: an empty message is a bad row; the offset moves over it."""
    job.topic.put(["1,10", "2,20", "1,11", "", None])
    job.make(f'{EVERY_SECOND}, "max_error_number" = "10"')
    line = job.server.wait_for(job.name, p0=5)
    assert job.rows == [(1, 11), (2, 20)]
    assert json.loads(line["Progress"]) == {"0": "4"}
    assert json.loads(line["Lag"]) == {"0": 0}
    assert (job.statistic["loadedRows"], job.statistic["errorRows"]) == (3, 2)
    job.topic.put(["3,30"])
    job.server.wait_for(job.name, p0=6)
    assert job.rows == [(1, 11), (2, 20), (3, 30)]


def test_json_is_mapped_filtered_merged_and_ordered(server: Server, broker: KafkaBroker) -> None:
    """R1, R38: jsonpaths, columns, both filters, DELETE ON and ORDER BY, over line ends within a document."""
    job = new_job(server, broker, "k BIGINT, v BIGINT NULL", '"function_column.sequence_type" = "BIGINT"')
    job.topic.put(
        json.dumps({"id": k, "at": {"s": s}, "x": x, "op": op}, indent=1)
        for k, s, x, op in [
            (1, 5, 10, "u"),
            (1, 4, 99, "u"),
            (2, 1, 20, "u"),
            (2, 3, 0, "d"),
            (2, 2, 21, "u"),
            (3, 1, 30, "u"),
            (4, 1, 40, "skip"),
            (-5, 1, 50, "u"),
        ]
    )
    paths = r"[\"$.id\",\"$.at.s\",\"$.x\",\"$.op\"]"
    job.make(
        f'{JSON}, "jsonpaths" = "{paths}"',
        "WITH MERGE COLUMNS(k, s, x, op, v = x + 1), PRECEDING FILTER op != 'skip', WHERE k > 0, "
        "DELETE ON op = 'd', ORDER BY s",
    )
    server.wait_for(job.name, p0=8)
    assert job.rows == [(1, 11), (3, 31)]
    assert (job.statistic["unselectedRows"], job.statistic["errorRows"]) == (2, 0)


@pytest.mark.long
def test_partitions_that_come_later_are_found(server: Server, broker: KafkaBroker) -> None:
    """R9, R26"""
    job = new_job(server, broker, partitions=2)
    job.topic.put(["1,1"], 0)
    job.topic.put(["2,1"], 1)
    job.make(f'{EVERY_SECOND}, "desired_concurrent_number" = "2"')
    server.wait_for(job.name, p0=1, p1=1)
    assert server.show(job.name)["CurrentTaskNum"] == "2"
    job.topic.add_partitions(3)
    job.topic.put(["3,1"], 2)
    server.wait_for(job.name, p2=1)
    assert job.rows == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.long
def test_offsets_lost_to_retention_are_never_skipped_silently(job: Job) -> None:
    """R27, R29: the job pauses, ALTER moves it; with a reset policy it moves by itself and says so."""
    job.topic.put(f"{k},0" for k in range(4))
    job.make()
    job.server.wait_for(job.name, p0=4)
    job.server.ask(f"PAUSE ROUTINE LOAD FOR {job.name}")
    job.topic.put(f"{k},0" for k in range(4, 10))
    job.topic.drop_before(6)
    job.server.ask(f"RESUME ROUTINE LOAD FOR {job.name}")
    reason = job.server.wait_for_pause(job.name)
    assert "offset out of range: 4 to 5 are gone" in reason
    assert "ALTER ROUTINE LOAD" in reason
    job.server.ask(
        f'ALTER ROUTINE LOAD FOR {job.name} FROM KAFKA ("kafka_partitions" = "0", "kafka_offsets" = "6")'
    )
    job.server.ask(f"RESUME ROUTINE LOAD FOR {job.name}")
    job.server.wait_for(job.name, p0=10)
    assert [k for k, _ in job.rows] == [0, 1, 2, 3, 6, 7, 8, 9]
    job.server.ask(f"PAUSE ROUTINE LOAD FOR {job.name}")
    job.server.ask(
        f'ALTER ROUTINE LOAD FOR {job.name} FROM KAFKA ("property.auto.offset.reset" = "earliest")'
    )
    job.topic.put(f"{k},0" for k in range(10, 13))
    job.topic.drop_before(12)
    job.server.ask(f"RESUME ROUTINE LOAD FOR {job.name}")
    line = job.server.wait_for(job.name, p0=13)
    assert "10 to 11 are gone" in line["OtherMsg"]
    assert "moved to 12" in line["OtherMsg"]
    assert [k for k, _ in job.rows][-1] == 12


@pytest.mark.long
def test_a_topic_that_is_deleted_pauses_and_one_made_anew_is_not_read_on(job: Job) -> None:
    """R34: the pause ends when the topic is back, and then its offsets are another topic's."""
    job.topic.put(["1,1", "2,1"])
    job.make()
    job.server.wait_for(job.name, p0=2)
    job.topic.delete()
    # A busy broker may time out first; the job then tries again.
    wait_until(
        lambda: "UnknownTopicOrPartition" in job.server.show(job.name)["ReasonOfStateChanged"],
        "the missing topic to be seen",
    )
    job.topic.make_again()
    job.topic.put(["3,1", "4,1", "5,1"])
    wait_until(
        lambda: "created again" in job.server.show(job.name)["ReasonOfStateChanged"],
        "the new topic to be seen",
    )
    job.server.ask(
        f'ALTER ROUTINE LOAD FOR {job.name} FROM KAFKA ("kafka_partitions" = "0", '
        '"kafka_offsets" = "OFFSET_BEGINNING")'
    )
    job.server.ask(f"RESUME ROUTINE LOAD FOR {job.name}")
    job.server.wait_for(job.name, p0=3)
    assert [k for k, _ in job.rows] == [1, 2, 3, 4, 5]


def test_only_committed_transactions_are_read(job: Job) -> None:
    """Aborted messages are passed over, open ones are waited for; their markers take offsets."""
    writer = Producer({"bootstrap.servers": job.topic.address, "transactional.id": job.topic.name})
    writer.init_transactions(60)
    for number, ends in enumerate(["commit", "abort", "commit", "abort"]):
        writer.begin_transaction()
        for k in range(3):
            writer.produce(job.topic.name, f"{number * 10 + k},0", partition=0)
        writer.flush(60)  # an abort would drop what was not sent yet
        writer.commit_transaction(60) if ends == "commit" else writer.abort_transaction(60)
    writer.begin_transaction()
    writer.produce(job.topic.name, "100,0", partition=0)
    writer.flush(60)
    job.make()
    line = job.server.wait_for(job.name, p0=16)  # 12 messages and 4 markers
    assert [k for k, _ in job.rows] == [0, 1, 2, 20, 21, 22]
    assert (job.statistic["loadedRows"], json.loads(line["Lag"])) == (6, {"0": 0})
    writer.commit_transaction(60)
    job.server.wait_for(job.name, p0=18)
    assert [k for k, _ in job.rows] == [0, 1, 2, 20, 21, 22, 100]


@pytest.mark.long
def test_properties_of_the_client_are_passed_on(job: Job, broker: KafkaBroker) -> None:
    """R24: SASL over TLS; the password is not shown."""
    job.topic.put(["1,1"])
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        rf"username=\"{USER}\" password=\"{PASSWORD}\";"
    )
    job.make(
        source=f""""kafka_broker_list" = "{broker.secure_address}",
        "property.kafka_default_offsets" = "OFFSET_BEGINNING",
        "property.security.protocol" = "SASL_SSL",
        "property.sasl.mechanism" = "PLAIN",
        "property.sasl.jaas.config" = "{jaas}",
        "property.ssl.truststore.location" = "{broker.keys}",
        "property.ssl.truststore.password" = "{STORE_PASSWORD}" """
    )
    line = job.server.wait_for(job.name, p0=1)
    assert job.rows == [(1, 1)]
    shown = str(line) + str(job.server.ask(f"SHOW CREATE ROUTINE LOAD FOR {job.name}"))
    assert PASSWORD not in shown
    assert "SASL_SSL" in shown


@pytest.mark.long
def test_too_many_bad_rows_pause_the_job_after_the_batch(job: Job) -> None:
    """R16, R17, R34: the batch that broke the budget is kept; the log tells of its rows."""
    job.topic.put(["1,1", "x,1", "y,1", "2,1"])
    job.make(f'{EVERY_SECOND}, "max_error_number" = "1", "strict_mode" = "true"')
    assert "current error rows is more than max_error_number" in job.server.wait_for_pause(job.name)
    line = job.server.show(job.name)
    assert (job.rows, json.loads(line["Progress"])) == ([(1, 1), (2, 1)], {"0": "3"})
    with open(line["ErrorLogUrls"]) as log:
        told = log.read()
    assert ("partition 0" in told, "x" in told, "y" in told) == (True, True, True)
    job.topic.put(["3,1", "z,1"])
    job.server.ask(f"RESUME ROUTINE LOAD FOR {job.name}")
    job.server.wait_for(job.name, p0=6)
    assert job.rows == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.long
def test_a_new_key_aborts_the_whole_batch_where_the_policy_is_error(
    server: Server, broker: KafkaBroker
) -> None:
    """R35: old keys of the batch are not updated, it is tried again; ALTER of the offsets gets past it."""
    job = new_job(server, broker, "k BIGINT, v BIGINT NULL, w BIGINT NULL")
    server.ask(f"INSERT INTO {job.table} VALUES (1, 0, 7), (2, 0, 7)")
    job.topic.put(["1,1", "9,1"])
    job.make(
        f'{EVERY_SECOND}, "partial_columns" = "true", "partial_update_new_key_behavior" = "ERROR"',
        'COLUMNS TERMINATED BY ",", COLUMNS(k, v)',
    )
    wait_until(lambda: job.statistic["abortedTaskNum"] >= 2, "two tries")
    assert job.rows == [(1, 0, 7), (2, 0, 7)]
    line = server.show(job.name)
    assert (line["State"], json.loads(line["Progress"])) == ("RUNNING", {"0": "OFFSET_ZERO"})
    assert line["OtherMsg"]
    job.topic.put(["2,2"])
    server.ask(f"PAUSE ROUTINE LOAD FOR {job.name}")
    server.ask(
        f'ALTER ROUTINE LOAD FOR {job.name} FROM KAFKA ("kafka_partitions" = "0", "kafka_offsets" = "2")'
    )
    server.ask(f"RESUME ROUTINE LOAD FOR {job.name}")
    server.wait_for(job.name, p0=3)
    assert job.rows == [(1, 0, 7), (2, 2, 7)]


@pytest.mark.long
def test_two_topics_update_columns_of_one_table(server: Server, broker: KafkaBroker) -> None:
    """R22, R29: fixed columns as CSV and flexible ones as JSON, by two jobs at once."""
    fixed = new_job(server, broker, "k BIGINT, v BIGINT NULL, w BIGINT NULL, x BIGINT NULL")
    columns = Topic(broker.address, f"{fixed.topic.name}-flexible")
    flexible = Job(server, columns, f"{fixed.name}b", fixed.table)
    fixed.topic.put(f"{k},{k}" for k in range(50))
    flexible.topic.put(json.dumps({"k": k, ("w" if k % 2 else "x"): k}) for k in range(100))
    fixed.make(f'{EVERY_SECOND}, "partial_columns" = "true"', 'COLUMNS TERMINATED BY ",", COLUMNS(k, v)')
    server.ask(
        f'ALTER TABLE {fixed.table} ENABLE FEATURE "UPDATE_FLEXIBLE_COLUMNS"',
    )
    flexible.make(f'{JSON}, "unique_key_update_mode" = "UPDATE_FLEXIBLE_COLUMNS"', "")
    server.wait_for(fixed.name, p0=50)
    server.wait_for(flexible.name, p0=100)
    assert fixed.rows == [
        (k, k if k < 50 else None, k if k % 2 else None, None if k % 2 else k) for k in range(100)
    ]


@pytest.mark.long
def test_one_topic_fills_many_tables(server: Server, broker: KafkaBroker) -> None:
    """R3, R33, R36: each document goes to the table it names; one for a table yet to be made waits for it."""
    made = [new_job(server, broker, partitions=2) for _ in range(2)]
    tables = [job.table.rpartition(".")[2] for job in made]
    topic, name = made[0].topic, f"{made[0].name}many"
    for partition in range(2):
        documents = ((k, json.dumps({"v": k * 10, "k": k}, indent=1)) for k in range(partition, 100, 2))
        topic.put((f"{tables[k // 2 % 2]}|{document}" for k, document in documents), partition)
    topic.put(["no table", ""])
    server.ask(
        f"""CREATE ROUTINE LOAD {name} PROPERTIES ({JSON}, "max_error_number" = "2")
        FROM KAFKA ("kafka_broker_list" = "{broker.address}", "kafka_topic" = "{topic.name}",
                    "property.kafka_default_offsets" = "OFFSET_BEGINNING")"""
    )
    line = server.wait_for(name, p0=52, p1=50)
    assert (line["TableName"], line["IsMultiTable"]) == ("", "true")
    for number, job in enumerate(made):
        assert job.rows == [(k, k * 10) for k in range(100) if k // 2 % 2 == number]
    statistic = json.loads(line["Statistic"])
    assert (statistic["loadedRows"], statistic["errorRows"]) == (100, 2)
    topic.put([f'{tables[0]}|{{"k": 1, "v": 1}}', f'{tables[0]}later|{{"k": 1, "v": 1}}'])
    wait_until(lambda: f"'{tables[0]}later'" in server.show(name)["OtherMsg"], "the table to be missed")
    assert (server.progress(name)["0"], made[0].rows[1]) == (52, (1, 10))
    server.ask(
        f"CREATE TABLE {made[0].table}later (k BIGINT NOT NULL, v INT) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)"
    )
    server.wait_for(name, p0=54)
    assert server.ask(f"SELECT k, v FROM {made[0].table}later") == [{"k": 1, "v": 1}]
    assert made[0].rows[1] == (1, 1)
    server.ask(f"STOP ROUTINE LOAD FOR {name}")


@pytest.mark.long
def test_one_job_reads_all_topics_of_a_pattern(server: Server, broker: KafkaBroker) -> None:
    """R39: topics that are made while it runs too; one that is made anew pauses the job, the others stay"""
    made = [new_job(server, broker) for _ in range(3)]
    tables = [job.table.rpartition(".")[2] for job in made]
    topics = [Topic(broker.address, f"all.{name}", 2) for name in tables[:2]]
    Topic(broker.address, f"not.all.{tables[0]}").put([f"{tables[0]}|9,9"])
    for number, topic in enumerate(topics):
        topic.put([f"{tables[number]}|1,{number}"], 1)
    name = f"{made[0].name}all"
    server.ask(
        f"""CREATE ROUTINE LOAD {name} COLUMNS TERMINATED BY "," PROPERTIES ({EVERY_SECOND})
        FROM KAFKA ("kafka_broker_list" = "{broker.address}", "kafka_topic_pattern" = "all[.].*")"""
    )
    ends = {f"{topic.name}-1": 1 for topic in topics}
    wait_until(lambda: ends.items() <= server.progress(name).items(), "both", lambda: str(server.show(name)))
    late = Topic(broker.address, f"all.{tables[2]}")
    late.put([f"{tables[2]}|1,2"])
    wait_until(lambda: server.progress(name).get(f"{late.name}-0") == 1, "the topic that came later")
    assert [job.rows for job in made] == [[(1, 0)], [(1, 1)], [(1, 2)]]
    late.delete()
    late.make_again()
    late.put([f"{tables[2]}|2,2"])
    reason = server.wait_for_pause(name)
    # A look may fall between the deletion and the new topic, or before its first message.
    behind = (
        f"{{'{late.name}-0': 1}}: offsets",
        f"{late.name}-0: offset 1 is greater than kafka latest offset",
    )
    assert any(text in reason for text in ("UnknownTopicOrPartition", *behind)), reason
    server.ask(
        f'ALTER ROUTINE LOAD FOR {name} FROM KAFKA ("kafka_partitions" = "{late.name}-0", '
        '"kafka_offsets" = "OFFSET_BEGINNING")'
    )
    server.ask(f"RESUME ROUTINE LOAD FOR {name}")
    wait_until(lambda: made[2].rows == [(1, 2), (2, 2)], "the new one", lambda: str(server.show(name)))
    assert made[0].rows == [(1, 0)]
    server.ask(f"STOP ROUTINE LOAD FOR {name}")


@pytest.mark.long
def test_where_partitions_begin(server: Server, broker: KafkaBroker) -> None:
    """R24, R25: numbers, words, times; a partition list leaves others alone and must fit the topic."""
    job = new_job(server, broker, partitions=4)
    for partition in range(4):
        job.topic.put((f"{partition * 10 + k},0" for k in range(3)), partition)
    job.make(source='"kafka_partitions" = "0,1,2", "kafka_offsets" = "1,OFFSET_BEGINNING,OFFSET_END"')
    server.wait_for(job.name, p0=3, p1=3, p2=3)
    assert [k for k, _ in job.rows] == [1, 2, 10, 11, 12]
    assert set(server.progress(job.name)) == {"0", "1", "2"}
    server.ask(f"PAUSE ROUTINE LOAD FOR {job.name}")
    server.ask(
        f'ALTER ROUTINE LOAD FOR {job.name} FROM KAFKA ("kafka_partitions" = "0,2", '
        '"kafka_offsets" = "2001-01-01 00:00:00,2001-01-01 00:00:00")'
    )
    server.ask(f"RESUME ROUTINE LOAD FOR {job.name}")
    wait_until(lambda: len(job.rows) == 9, "partitions to be read from a time on", lambda: str(job.rows))
    other = Job(server, job.topic, f"{job.name}b", job.table)
    other.make(source='"kafka_partitions" = "4", "kafka_offsets" = "0"')
    reason = server.wait_for_pause(other.name)
    assert "there is a custom kafka partition 4 which is invalid for topic" in reason


@pytest.mark.long
def test_a_job_from_a_file_is_run_by_the_server(server: Server, broker: KafkaBroker, tmp_path: Path) -> None:
    """R1, R4: the example of conf/routine, made by the CLI beside the server."""
    topic = Topic(broker.address, "clicks", 2)
    server.ask("CREATE DATABASE shop")
    server.ask(
        "CREATE TABLE shop.clicks (click_id BIGINT NOT NULL, page VARCHAR(100), "
        "at DATETIME) UNIQUE KEY (click_id) "
        'DISTRIBUTED BY HASH (click_id) PROPERTIES ("function_column.sequence_col" = "at")'
    )
    example = (ROOT / "conf" / "routine" / "clicks_from_kafka.toml").read_text()
    file = tmp_path / "job.toml"
    file.write_text(example.replace("127.0.0.1:9092", broker.address))
    clicks = [(1, "/", "10:00"), (1, "/old", "09:00"), (2, "/health", "10:00"), (3, "/pay", "10:00")]
    for number, (click, page, at) in enumerate(clicks):
        document = {"click_id": click, "page": page, "at_text": f"2026-01-01 {at}:00"}
        topic.put([json.dumps(document)], number % 2)
    command = [sys.executable, "-m", "seqstore.cli.main", "--data-dir", str(server.data), "routine-load"]
    environment = {**os.environ, "PYTHONPATH": MODULES}
    subprocess.run([*command, "create", str(file)], check=True, timeout=120, env=environment)
    job = "shop.clicks_from_kafka"
    server.wait_for(job, p0=2, p1=2)
    found = server.ask("SELECT click_id, page FROM shop.clicks ORDER BY click_id")
    assert [tuple(row.values()) for row in found] == [(1, "/"), (3, "/pay")]
    subprocess.run([*command, "stop", job], check=True, timeout=120, env=environment)
    assert server.show(job)["State"] == "STOPPED"


def test_lag_and_throughput_are_told(job: Job) -> None:
    """R30, R31, R37"""
    job.topic.put(f"{k},0" for k in range(1000))
    job.make()
    job.server.wait_for(job.name, p0=1000)
    found = job.statistic
    assert found["receivedBytes"] == len("".join(f"{k},0\n" for k in range(1000)))
    assert min(found["loadRowsRate"], found["receivedBytesRate"], found["taskExecuteTimeMs"]) > 0
    (task,) = job.server.ask(
        f"SHOW ROUTINE LOAD TASK WHERE JobName = '{job.name.partition('.')[2]}'", database="db"
    )
    assert (task["TxnId"], json.loads(task["DataSourceProperties"])) == ("-1", {"0": 1000})
    request = urllib.request.Request(f"{job.server.http}/metrics", headers={"Authorization": basic("root:")})
    with urllib.request.urlopen(request, timeout=60) as answer:
        metrics = answer.read().decode()
    name = f'database="db",job="{job.name.partition(".")[2]}"'
    assert f'routine_load_rows_total{{{name},outcome="loaded"}} 1000' in metrics
    assert f"routine_load_lag{{{name}" in metrics
