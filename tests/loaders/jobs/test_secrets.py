"""Secrets of jobs: encrypted in the data directory, masked wherever properties are shown."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqstore import InvalidInputError, Store, UnavailableError
from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.routine.kafka_properties import _CLIENT
from seqstore.loaders.routine.open_source import open_source
from seqstore.store.catalog.jobs import Jobs
from seqstore.store.runtime.secrets.box import KEY_FILE, SecretBox, is_sealed
from seqstore.store.runtime.secrets.words import is_secret, masked_uri, without_values
from seqstore.store.settings import Settings
from seqstore.store.sql import ServerContext, Session

SECRET = "T0p-Secret/Value"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required username='u' password='" + SECRET + "';"
)
# Of the allowed names, and of others that the setting allows.
NAMES = sorted(
    {*filter(is_secret, _CLIENT), "basic.auth.user.info", "sasl.oauthbearer.client.credentials.client.secret"}
)
KAFKA = ", ".join(
    f"'property.{name}' = \"{JAAS if name == 'sasl.jaas.config' else SECRET}\"" for name in NAMES
)
CREATE = (
    f"CREATE ROUTINE LOAD db.j ON t FROM KAFKA ('kafka_broker_list' = 'h:9092', 'kafka_topic' = 'x', {KAFKA})"
)
S3 = f"s3://key:{SECRET.replace('/', '%2F')}@bucket/in"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    settings = Settings(
        kafka_properties=tuple(name for name in NAMES if name not in _CLIENT), load_paths=(S3,)
    )
    with Store.open(tmp_path / "data", settings=settings) as store:
        run(store, "CREATE DATABASE db; CREATE TABLE db.t (k INT, v STRING) UNIQUE KEY(k)")
        yield store


def run(store: Store, text: str) -> str:
    """Runs statements; every cell of the last one's rows."""
    with Session(store, server=ServerContext(load_jobs=StoreLoadJobs(store))) as session:
        rows = list(session.execute(text))[-1].rows
        return str(rows.to_pylist()) if rows is not None else ""


def stored_bytes(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != KEY_FILE)


def test_no_file_of_the_data_directory_has_a_secret(store: Store) -> None:
    """They were stored as text in the catalog, and in its copies."""
    run(store, CREATE)
    run(store, f"CREATE ROUTINE LOAD db.f ON t FROM FILES ('path' = '{S3}/*.csv')")
    key = store.path / KEY_FILE
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(key.read_bytes()) == 32
    found = stored_bytes(store.path)
    for each in (SECRET, SECRET.replace("/", "%2F")):
        assert each.encode() not in found
    with Store.open(store.path) as again:
        jobs = {job.name: job for job in RoutineJobs(again.catalog).all().values()}
    assert jobs["j"].spec.source_properties["property.ssl.key.password"] == SECRET
    assert jobs["j"].spec.source_properties["property.sasl.jaas.config"] == JAAS
    assert jobs["f"].spec.source_properties["path"] == f"{S3}/*.csv"


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_that_shows_properties_masks_a_secret(store: Store, name: str) -> None:
    value = JAAS if name == "sasl.jaas.config" else SECRET
    run(
        store,
        "CREATE ROUTINE LOAD db.j ON t FROM KAFKA ('kafka_broker_list' = 'h:9092', 'kafka_topic' = 'x', "
        f"'property.{name}' = \"{value}\")",
    )
    for text in (
        "SHOW CREATE ROUTINE LOAD FOR db.j",
        "SHOW ALL ROUTINE LOAD FOR db.j",
        "USE db; SHOW ROUTINE LOAD TASK WHERE JobName = 'j'",
        "SHOW LOAD FROM db",
        "SHOW STREAM LOAD FROM db",
        "SHOW FULL PROCESSLIST",
        "SELECT * FROM information_schema.processlist",
    ):
        assert SECRET not in run(store, text), text
    assert "******" in run(store, "SHOW CREATE ROUTINE LOAD FOR db.j")


def test_a_message_of_kafka_is_shown_without_the_secrets_that_it_repeats(store: Store) -> None:
    run(store, CREATE)
    jobs = RoutineJobs(store.catalog)
    job_id, _ = jobs.find("db", "j")
    jobs.change(job_id, lambda job: job.paused("kind", f"Invalid login: {SECRET} for configuration {JAAS}"))
    shown = run(store, "SHOW ROUTINE LOAD FOR db.j")
    assert "Invalid login: ******" in shown
    assert SECRET not in shown
    assert without_values("a b", {"password": "b"}) == "a b"  # too short to be found


def test_secrets_that_an_earlier_version_stored_as_text_are_encrypted_when_the_server_starts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = RoutineJobs(store.catalog)
    with monkeypatch.context() as before:
        before.setattr(RoutineJobs, "_sealed", lambda _self, job: job.to_record())
        run(store, CREATE)
        job_id, _ = jobs.find("db", "j")
        assert jobs._records.get(job_id)["spec"]["source_properties"]["property.ssl.key.password"] == SECRET
    jobs.seal_stored()
    LoadJobs(store.catalog).seal_stored()
    assert is_sealed(jobs._records.get(job_id)["spec"]["source_properties"]["property.ssl.key.password"])
    assert jobs.get(job_id).spec.source_properties["property.ssl.key.password"] == SECRET


def test_a_job_whose_key_is_lost_is_listed_and_says_so_when_it_runs(store: Store) -> None:
    run(store, CREATE)
    (store.path / KEY_FILE).unlink()
    jobs = RoutineJobs(store.catalog)
    assert "h:9092" in run(store, "SHOW CREATE ROUTINE LOAD FOR db.j")
    with pytest.raises(InvalidInputError, match=r"cannot be decrypted.*secret\.key"):
        open_source(store, *jobs.find("db", "j"))


def test_a_job_that_is_paused_needs_its_key_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """PAUSE failed with the job paused when the key could not be read after the commit."""
    run(store, CREATE)
    key, change = store.path / KEY_FILE, Jobs.change

    def change_and_lose_the_key(*given: Any) -> Any:
        record = change(*given)
        key.unlink()
        key.mkdir()
        return record

    monkeypatch.setattr(Jobs, "change", change_and_lose_the_key)
    run(store, "PAUSE ROUTINE LOAD FOR db.j")
    with pytest.raises(UnavailableError, match=KEY_FILE):
        run(store, "RESUME ROUTINE LOAD FOR db.j")
    key.rmdir()  # the job is listed without its key
    assert "PAUSED" in run(store, "SHOW ROUTINE LOAD FOR db.j")


def test_a_uri_is_shown_without_its_keys() -> None:
    assert (
        masked_uri("s3://k:s@b/p?region=x&session_token=abc")
        == "s3://******@b/p?region=x&session_token=******"
    )
    assert masked_uri("/a@b?token=1") == "/a@b?token=1"


def test_a_key_that_the_disk_does_not_give_is_an_error_of_the_store(tmp_path: Path) -> None:
    """It was OSError."""
    box = SecretBox(tmp_path / KEY_FILE)
    sealed = box.seal(SECRET)
    (tmp_path / KEY_FILE).unlink()
    (tmp_path / KEY_FILE).mkdir()  # no user, not even root, can read its bytes
    with pytest.raises(UnavailableError, match=KEY_FILE):
        box.seal(SECRET)
    with pytest.raises(UnavailableError, match=KEY_FILE):
        box.opened(sealed)
