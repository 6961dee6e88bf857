"""FROM KAFKA: what it may say, and messages as bodies. Brokers are another test's business."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from seqstore import AccessDeniedError, InvalidInputError
from seqstore.loaders.routine.kafka_properties import (
    check_brokers,
    check_client,
    kafka_properties,
    time_ms,
    with_group,
)
from seqstore.loaders.routine.messages import lines_of
from seqstore.store.runtime.secrets.words import without_secrets

PLAIN = {"kafka_broker_list": "a:9092,b:9093", "kafka_topic": "t"}


def test_partitions_and_offsets_belong_together() -> None:
    """R24"""
    given = {**PLAIN, "kafka_partitions": "0, 2,1", "kafka_offsets": "5,OFFSET_END, offset_beginning"}
    found = kafka_properties(given)
    assert found.partitions == ("0", "2", "1")
    assert found.offsets == {"0": "5", "2": "OFFSET_END", "1": "OFFSET_BEGINNING"}
    assert (kafka_properties(PLAIN).partitions, kafka_properties(PLAIN).default_offset) == ((), "OFFSET_END")
    begin = {**PLAIN, "property.kafka_default_offsets": "OFFSET_BEGINNING"}
    assert kafka_properties(begin).default_offset == "OFFSET_BEGINNING"


def test_what_is_for_the_client_is_passed_on() -> None:
    """R24: all but what the job decides itself."""
    given = {
        **PLAIN,
        "property.security.protocol": "SASL_SSL",
        "property.sasl.jaas.config": "secret words",
        "property.group.id": "g",
        "property.auto.offset.reset": "latest",
    }
    found = kafka_properties(given)
    assert found.client == {"security.protocol": "SASL_SSL", "sasl.jaas.config": "secret words"}
    assert found.group_id == "g"
    assert "secret words" not in str(without_secrets(given))


def test_a_group_of_the_jobs_own_is_made_anew_and_a_given_one_stays() -> None:
    """R24: consumers of a group keep the settings they began with"""
    made = with_group("job", PLAIN)
    assert re.fullmatch(r"job_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made["property.group.id"])
    assert with_group("job", made)["property.group.id"] != made["property.group.id"]
    given = {**PLAIN, "property.group.id": "job_group"}
    assert with_group("job", given) == given


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kafka_topic": ""}, "kafka_topic is a required property"),
        ({"kafka_broker_list": "nothing"}, "expected host:port, found 'nothing'"),
        ({"kafka_brokers": "a:1"}, "kafka_brokers is invalid kafka property"),
        ({"kafka_partitions": "0,x"}, "Invalid kafka partition"),
        ({"kafka_partitions": "0,1", "kafka_offsets": "5"}, "Partitions number should be equals to offsets"),
        ({"kafka_partitions": "0", "kafka_offsets": "soon"}, "Invalid kafka offset 'soon'"),
        ({"kafka_partitions": "0,1", "kafka_offsets": "2024-05-01 10:00:00,5"}, "by the timestamp and the"),
        ({"property.ssl.ca": "FILE:ca.pem"}, "File ca.pem does not exist in db 0 with catalog: kafka"),
        ({"property.auto.offset.reset": "sometimes"}, "expected earliest, latest or none"),
    ],
)
def test_wrong_properties_are_refused(changed: dict[str, str], message: str) -> None:
    """R24"""
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        kafka_properties({**PLAIN, **changed})


def test_times_are_offsets() -> None:
    """R24: in the job's time zone"""
    assert time_ms("OFFSET_END") is None
    first, second = time_ms("2024-05-01 10:00:00"), time_ms("2024-05-01 10:00:01")
    assert first is not None
    assert second is not None
    assert second - first == 1000
    assert time_ms("1970-01-01 08:00:01", "Asia/Shanghai") == 1000
    assert time_ms("1969-12-31 22:30:01", "-01:30") == 1000


def test_a_message_is_a_line_and_empty_ones_are_counted() -> None:
    """R36: a document may have line ends between its tokens; CSV is left as it is."""
    messages = pa.array([b'{"a":\r\n1}', b"", None, b'{"b": "x\\n"}'])
    assert lines_of(messages, is_json=True) == (b'{"a":  1}\n{"b": "x\\n"}\n', 2)
    assert lines_of(pa.array([b"1,2", b"3,4"]), is_json=False) == (b"1,2\n3,4\n", 0)
    assert lines_of(pa.array([b"", None], pa.binary()), is_json=True) == (b"", 2)
    assert lines_of(pa.array([], pa.binary()), is_json=True) == (b"", 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("interceptor.classes", "com.example.Spy"),
        ("value.deserializer", "com.example.Gadget"),
        ("metric.reporters", "com.example.Spy"),
        ("partition.assignment.strategy", "com.example.Spy"),
        ("sasl.login.callback.handler.class", "com.example.Spy"),
        ("ssl.engine.factory.class", "com.example.Spy"),
        ("security.providers", "com.example.Spy"),
        ("config.providers", "file"),
        ("sasl.oauthbearer.token.endpoint.url", "http://169.254.169.254/"),
        ("bootstrap.servers", "h:1"),
        (
            "sasl.jaas.config",
            "com.sun.security.auth.module.JndiLoginModule required user.provider.url='ldap://h';",
        ),
        ("sasl.jaas.config", "com.sun.security.auth.module.Krb5LoginModule required keyTab='/etc/k';"),
        (
            "sasl.jaas.config",
            "org.apache.kafka.common.security.plain.PlainLoginModule required password='a';"
            " com.example.Spy required;",
        ),
    ],
)
def test_a_property_that_names_a_class_a_file_or_a_server_is_refused(name: str, value: str) -> None:
    with pytest.raises(AccessDeniedError, match=name):
        check_client({name: value})
    check_client({name: value}, [name])  # an administrator allows it


def test_logins_by_kafkas_own_modules_and_sizes_are_allowed() -> None:
    for module in ("plain.Plain", "scram.Scram"):
        text = (
            f"org.apache.kafka.common.security.{module}LoginModule required username=\"a\" password='b;c' ;"
        )
        check_client({"sasl.jaas.config": text, "fetch.max.bytes": "5", "client.id": "x", "group.id": "g"})


@pytest.mark.parametrize(
    ("brokers", "allowed", "is_administrator", "expected"),
    [
        ("h:9092", [], True, True),
        ("h:9092", [], False, False),
        ("169.254.169.254:80", [], True, False),
        ("[fe80::1]:9092", [], True, False),
        ("169.254.169.254:80", ["169.254.169.254:80"], True, True),
        ("h:9092", ["h:9092"], False, True),
        ("H:9092", ["h"], False, True),
        ("h:9093", ["h:9092"], True, False),
        ("a.kafka.internal:9092, b.kafka.internal:9092", ["*.kafka.internal:9092"], False, True),
        ("a.kafka.internal:9092,evil:9092", ["*.kafka.internal:9092"], False, False),
    ],
)
def test_brokers_are_those_of_the_setting(
    brokers: str, allowed: list[str], is_administrator: bool, expected: bool
) -> None:
    """A user with LOAD made the server connect to any address."""
    if expected:
        check_brokers(brokers, allowed, is_administrator=is_administrator)
        return
    with pytest.raises(AccessDeniedError, match="kafka_brokers"):
        check_brokers(brokers, allowed, is_administrator=is_administrator)
