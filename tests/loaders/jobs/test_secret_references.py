"""Secrets by reference, stored and shown as `env:NAME` and `file:/path`, and read where that is allowed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.fs as pafs
import pytest

from seqstore import AccessDeniedError, InvalidInputError, Settings, Store
from seqstore.loaders.broker.files import find_files
from seqstore.loaders.broker.job import LoadJob
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.routine import open_source as opening
from seqstore.loaders.routine.job import RoutineJob
from seqstore.loaders.routine.job_runner import JobRunner
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.kafka_properties import _CLIENT
from seqstore.loaders.routine.source import SourceUnavailable
from seqstore.loaders.routine.spec import RoutineSpec
from seqstore.store.runtime.secrets.box import KEY_FILE
from seqstore.store.runtime.secrets.references import check_reference, is_reference, read_secret
from seqstore.store.runtime.secrets.words import is_secret, masked_uri, resolved_uri
from seqstore.store.sql import ServerContext, Session

SECRET = "T0p/Secret=&Value"
JAAS = f"org.apache.kafka.common.security.plain.PlainLoginModule required username='u' password='{SECRET}';"
BUCKET = "s3://bucket/in?endpoint_override=127.0.0.1:9"
NAMES = sorted(filter(is_secret, _CLIENT))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "secrets"
    made.mkdir()
    (made / "kafka").write_text(f"{SECRET}\n")
    return made


@pytest.fixture
def store(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("KAFKA_SECRET", SECRET)
    monkeypatch.setenv("KAFKA_JAAS", JAAS)
    monkeypatch.setenv("OTHER_SECRET", SECRET)
    settings = Settings(
        load_paths=(BUCKET,),
        kafka_brokers=("h:9092",),
        secret_references=("env:KAFKA_*", f"file:{folder}/*"),
    )
    with Store.open(tmp_path / "data", settings=settings) as opened:
        run(opened, "CREATE DATABASE db; CREATE TABLE db.t (k INT, v STRING) UNIQUE KEY(k)")
        for user in ("ann", "admin"):
            opened.accounts.create(user)
        opened.accounts.grant("ann", ["LOAD", "SELECT"], "db")
        opened.accounts.grant("admin", ["ADMIN"])
        yield opened


def run(store: Store, text: str, user: str = "root") -> str:
    """Runs statements; every cell of the last one's rows."""
    server = ServerContext(load_jobs=StoreLoadJobs(store, user))
    with Session(store, user=user, server=server) as session:
        rows = list(session.execute(text))[-1].rows
        return str(rows.to_pylist()) if rows is not None else ""


def kafka(*given: tuple[str, str]) -> str:
    properties = "".join(f", 'property.{name}' = '{value}'" for name, value in given)
    return (
        "CREATE ROUTINE LOAD db.j ON t FROM KAFKA ('kafka_broker_list' = 'h:9092', 'kafka_topic' = 'x'"
        f"{properties})"
    )


class Broker:
    """Stands for the client of Kafka: keeps the properties that it is made with."""

    made: Mapping[str, str]

    def __init__(self, spec: RoutineSpec, _offsets: object, _registries: object) -> None:
        Broker.made = spec.source_properties

    def bounds(self) -> Any:
        raise SourceUnavailable(f"Invalid login {list(self.made.values())}", kind="source")

    def close(self) -> None: ...


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["env", "file"])
def test_a_secret_of_kafka_is_stored_and_shown_as_its_reference(
    store: Store, folder: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "jaas").write_text(JAAS)
    value = JAAS if name == "sasl.jaas.config" else SECRET
    places = {"env": "env:KAFKA_SECRET", "file": f"file:{folder}/kafka"}
    if name == "sasl.jaas.config":
        places = {"env": "env:KAFKA_JAAS", "file": f"file:{folder}/jaas"}
    run(store, kafka((name, places[kind])), "ann")
    assert places[kind] in run(store, "SHOW CREATE ROUTINE LOAD FOR db.j", "ann")
    assert places[kind] in run(store, "SHOW ROUTINE LOAD FOR db.j", "ann")
    monkeypatch.setattr(opening, "KafkaSource", Broker)
    opening.open_source(store, *RoutineJobs(store.catalog).find("db", "j"))
    assert Broker.made[f"property.{name}"] == value
    data = [file.read_bytes() for file in store.path.rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in each for each in data)
    assert any(places[kind].encode() in each for each in data)
    assert not (store.path / KEY_FILE).exists(), "a reference needs no encryption"


def test_no_message_of_the_source_shows_a_secret_that_was_read(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run(store, kafka(("ssl.key.password", "env:KAFKA_SECRET"), ("sasl.jaas.config", "env:KAFKA_JAAS")))
    monkeypatch.setattr(opening, "KafkaSource", Broker)
    jobs = RoutineJobs(store.catalog)
    job_id, _ = jobs.find("db", "j")
    JobRunner(store, job_id, opening.open_source).round()
    assert "Invalid login" in jobs.get(job_id).reason
    for text in (jobs.get(job_id).reason, caplog.text, run(store, "SHOW ROUTINE LOAD FOR db.j")):
        assert SECRET not in text
        assert "******" in text


@pytest.mark.parametrize("user", ["ann", "admin", "root"])
@pytest.mark.parametrize(
    "reference",
    [
        "env:OTHER_SECRET",
        "env:PATH",
        "env:KAFKA",
        "file:/etc/passwd",
        "file:/proc/self/environ",
        "file:{folder}/../data/secret.key",
        "file:{folder}/deeper/kafka",
        "file:{folder}",
    ],
)
def test_a_statement_names_only_secrets_that_the_setting_allows(
    store: Store, folder: Path, user: str, reference: str
) -> None:
    """A user that points a job at a broker of its own gets what the server may read."""
    text = reference.format(folder=folder)
    for statement in (
        kafka(("ssl.key.password", text)),
        f"CREATE ROUTINE LOAD db.j ON t FROM FILES ('path' = 's3://{quote(text, safe='')}:x@{BUCKET[5:]}')",
    ):
        with pytest.raises(AccessDeniedError, match="secret_references"):
            run(store, statement, user)
    job = BrokerLoad(store, load(text), store.settings.load_paths, user)
    with pytest.raises(AccessDeniedError, match="secret_references"):
        job.run()
    assert RoutineJobs(store.catalog).all() == {}


def load(reference: str) -> LoadSpec:
    path = f"s3://key:{quote(reference, safe='')}@{BUCKET[5:].replace('?', '/x.csv?')}"
    return LoadSpec("db", "l", (DataDescription("t", (path,)),))


def test_without_the_setting_no_statement_names_a_secret(tmp_path: Path) -> None:
    with Store.open(tmp_path / "plain") as store:
        run(store, "CREATE DATABASE db; CREATE TABLE db.t (k INT, v STRING) UNIQUE KEY(k)")
        with pytest.raises(AccessDeniedError, match="secret_references"):
            run(store, kafka(("ssl.key.password", "env:KAFKA_SECRET")))


def test_a_change_of_a_job_names_only_secrets_that_the_setting_allows(store: Store) -> None:
    """Secrets that a job file named would go to the brokers of another user."""
    run(store, kafka())
    jobs = RoutineJobs(store.catalog)
    job_id, _ = jobs.find("db", "j")
    run(store, "PAUSE ROUTINE LOAD FOR db.j")
    alter = "ALTER ROUTINE LOAD FOR db.j FROM KAFKA ('property.ssl.key.password' = '{}')"
    with pytest.raises(AccessDeniedError, match="secret_references"):
        run(store, alter.format("env:OTHER_SECRET"), "ann")
    run(store, alter.format("env:KAFKA_SECRET"), "ann")

    def of_a_file(job: RoutineJob) -> RoutineJob:
        given = {**job.spec.source_properties, "property.ssl.key.password": "env:OTHER_SECRET"}
        spec = replace(job.spec, source_properties=given)
        return replace(job, spec=spec, references=("env:OTHER_SECRET",))

    jobs.change(job_id, of_a_file)
    with pytest.raises(AccessDeniedError, match="secret_references"):
        run(store, "ALTER ROUTINE LOAD FOR db.j FROM KAFKA ('kafka_topic' = 'mine')", "ann")


def test_a_setting_that_was_tightened_counts_for_stored_jobs(store: Store, tmp_path: Path) -> None:
    run(store, kafka(("ssl.key.password", "env:KAFKA_SECRET")))
    with Store.open(tmp_path / "data") as tight, pytest.raises(AccessDeniedError, match="secret_references"):
        opening.open_source(tight, *RoutineJobs(tight.catalog).find("db", "j"))


@pytest.mark.parametrize("kind", ["variable", "empty", "file", "folder", "large", "bytes", "pipe"])
def test_a_missing_secret_is_named(store: Store, folder: Path, kind: str) -> None:
    name = "env:KAFKA_ABSENT" if kind == "variable" else f"file:{folder}/{kind}"
    if kind == "file":
        name += "-absent"
    (folder / "empty").write_text("")
    (folder / "folder").mkdir()
    (folder / "large").write_text("x" * 70_000)
    (folder / "bytes").write_bytes(b"\xff")
    os.mkfifo(folder / "pipe")
    run(store, kafka(("ssl.key.password", name)))
    with pytest.raises(InvalidInputError, match=f"ssl.key.password: the secret '{name}' was not found"):
        opening.open_source(store, *RoutineJobs(store.catalog).find("db", "j"))


def test_properties_that_are_no_secrets_are_texts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the name of a client would tell the environment of the server."""
    run(store, kafka(("client.id", "env:OTHER_SECRET")))
    monkeypatch.setattr(opening, "KafkaSource", Broker)
    opening.open_source(store, *RoutineJobs(store.catalog).find("db", "j"))
    assert Broker.made["property.client.id"] == "env:OTHER_SECRET"


def test_the_text_of_a_login_module_is_checked_when_it_is_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_JAAS", "com.sun.security.auth.module.JndiLoginModule required;")
    run(store, kafka(("sasl.jaas.config", "env:KAFKA_JAAS")))
    with pytest.raises(AccessDeniedError, match="one login module of Kafka"):
        opening.open_source(store, *RoutineJobs(store.catalog).find("db", "j"))


def test_keys_of_a_bucket_are_read_when_its_files_are_listed(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def from_uri(uri: str) -> Any:
        opened.append(uri)
        raise ValueError(f"no server for {uri}")

    monkeypatch.setattr(pafs, "FileSystem", type("FileSystem", (), {"from_uri": staticmethod(from_uri)}))
    login = f"{quote('env:KAFKA_SECRET', safe='')}:{quote(f'file:{folder}/kafka', safe='')}"
    uri = f"s3://{login}@bucket/in/*.csv?endpoint_override=127.0.0.1:9&session_token=env%3AKAFKA_SECRET"
    with pytest.raises(InvalidInputError, match="cannot be listed") as caught:
        find_files(DataDescription("t", (uri,)), [BUCKET], store.settings.secret_references)
    secret = quote(SECRET, safe="")
    assert f"s3://{secret}:{secret}@bucket" in opened[0]
    assert f"session_token={secret}" in opened[0]
    assert secret not in str(caught.value)
    assert masked_uri(uri) == uri
    assert masked_uri(uri.replace("env%3AKAFKA_SECRET:", "key:")).startswith("s3://******@bucket/in/*.csv")


def test_load_takes_references_as_keys_of_a_bucket(store: Store) -> None:
    with pytest.raises(AccessDeniedError, match="secret key: 'env:OTHER_SECRET' is not among the secrets"):
        run(
            store,
            "USE db; LOAD LABEL l (DATA INFILE('s3://bucket/in/x.csv') INTO TABLE t) WITH S3 ("
            "'s3.endpoint' = '127.0.0.1:9', 's3.access_key' = 'env:KAFKA_SECRET', "
            "'s3.secret_key' = 'env:OTHER_SECRET')",
        )


@pytest.mark.long
def test_a_job_keeps_the_references_of_its_file(store: Store) -> None:
    spec = load("env:OTHER_SECRET")
    _, job = BrokerLoad(store, spec, store.settings.load_paths, references=["env:OTHER_SECRET"]).run()
    assert job.references == ("env:OTHER_SECRET",)
    assert "not allowed" not in job.error
    assert LoadJob.from_record(job.to_record()) == job


@pytest.mark.parametrize(
    "text", ["env:", "env:1A", "env:A B", "file:relative", "ENV:A", "env:A\n", "file:/a\0", "x"]
)
def test_other_texts_are_no_references(text: str) -> None:
    assert not is_reference(text)


@pytest.mark.parametrize(
    ("reference", "pattern", "expected"),
    [
        ("env:A", "env:A", True),
        ("env:AB", "env:A", False),
        ("env:KAFKA_A", "env:KAFKA_*", True),
        ("env:A", "file:/*", False),
        ("file:/run/a", "file:/run/*", True),
        ("file:/run/a/b", "file:/run/*", False),
        ("file:/run/../etc/a", "file:/run/*/*/*", False),
        ("file:/etc/a", "*", False),
        ("env:A", "*", True),
    ],
)
def test_a_pattern_stands_for_a_part_of_one_name(reference: str, pattern: str, expected: bool) -> None:
    if expected:
        check_reference("p", reference, [pattern])
        return
    with pytest.raises(AccessDeniedError, match="p: "):
        check_reference("p", reference, [pattern])


def test_a_secret_keeps_its_blanks_and_loses_the_line_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(" x y \r\n")
    assert read_secret("p", f"file:{tmp_path}/a", [f"file:{tmp_path}/a"]) == " x y "
    assert resolved_uri("s3://b/p?region=env%3AHOME", ["*"]) == "s3://b/p?region=env%3AHOME"
