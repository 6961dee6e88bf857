"""The properties of FROM KAFKA: brokers, topics, partitions, first offsets, client properties (R24, R39)."""

from __future__ import annotations

import fnmatch
import ipaddress
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Final
from zoneinfo import ZoneInfo

from seqstore.loaders.routine.topics import PATTERN, matching
from seqstore.store.errors import AccessDeniedError, InvalidInputError
from seqstore.store.runtime.secrets.references import is_reference

BEGINNING: Final = "OFFSET_BEGINNING"
END: Final = "OFFSET_END"
_PREFIX: Final = "property."
_NAMES: Final = frozenset(["kafka_broker_list", "kafka_topic", PATTERN, "kafka_partitions", "kafka_offsets"])
_DEFAULT_OFFSETS: Final = "property.kafka_default_offsets"
_GROUP: Final = "property.group.id"
# What the job decides itself: offsets are the catalog's, and only committed messages are read.
_OURS: Final = frozenset(["kafka_default_offsets", "group.id", "auto.offset.reset", "enable.auto.commit"])
# Properties of Kafka's consumer that a job may set: none names a class, a program or another server.
_CLIENT: Final = frozenset(
    re.findall(
        r"\S+",
        """
        allow.auto.create.topics check.crcs client.dns.lookup client.id client.rack connections.max.idle.ms
        default.api.timeout.ms enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms
        fetch.min.bytes group.instance.id group.protocol heartbeat.interval.ms isolation.level
        max.partition.fetch.bytes max.poll.interval.ms max.poll.records metadata.max.age.ms
        metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metrics.num.samples
        metrics.recording.level metrics.sample.window.ms receive.buffer.bytes reconnect.backoff.max.ms
        reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms sasl.jaas.config
        sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
        sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism security.protocol
        send.buffer.bytes session.timeout.ms socket.connection.setup.timeout.max.ms
        socket.connection.setup.timeout.ms ssl.cipher.suites ssl.enabled.protocols
        ssl.endpoint.identification.algorithm ssl.key.password ssl.keymanager.algorithm
        ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
        ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
        ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
        ssl.truststore.password ssl.truststore.type
        """,
    )
)
# Login modules of Kafka itself, which read nothing but the login in their text.
_LOGIN_MODULE: Final = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(plain\.Plain|scram\.Scram)LoginModule\s+required"
    r"(\s+(username|password|tokenauth)\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s;\"']+))*\s*;\s*"
)
_PARTITION: Final = re.compile("()([0-9]{1,9})")
_NAMED_PARTITION: Final = re.compile("([-._a-zA-Z0-9]+-)([0-9]{1,9})")
_TIME: Final = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True)
class KafkaProperties:
    """`kafka_properties` makes it.

    Attributes:
        topic: empty where there is a pattern.
        pattern: a regular expression of topics, empty where there is one topic.
        partitions: names of those that are read; empty means all, new ones too (R26).
        offsets: where partitions begin: a number, OFFSET_BEGINNING, OFFSET_END or a time; by partition.
        default_offset: where the others begin.
        group_id: as the user set it, or empty.
        client: properties of the client, without `property.`.
    """

    brokers: str
    topic: str
    pattern: str = ""
    partitions: tuple[str, ...] = ()
    offsets: Mapping[str, str] = field(default_factory=dict)
    default_offset: str = END
    group_id: str = ""
    client: Mapping[str, str] = field(default_factory=dict)


def kafka_properties(given: Mapping[str, str], database_id: int = 0) -> KafkaProperties:
    """Reads and checks them.

    Args:
        database_id: of the job's database, for messages.

    Raises:
        InvalidInputError: names the property.
    """
    for name in given:
        if name not in _NAMES and not name.startswith(_PREFIX):
            raise _bad(f"{name} is invalid kafka property")
    topic, pattern = given.get("kafka_topic", "").strip(), given.get(PATTERN, "").strip()
    for name in ("kafka_broker_list", "kafka_topic"):
        if not given.get(name, "").strip() and not (pattern and name == "kafka_topic"):
            raise _bad(f"{name} is a required property of FROM KAFKA")
    if topic and pattern:
        raise _bad(f"expected kafka_topic or {PATTERN}, found both")
    matching(pattern, ["any"])  # refuses what is no pattern
    for broker in given["kafka_broker_list"].split(","):
        if not re.fullmatch(r"\s*(\[[0-9a-fA-F:]+\]|[^\s:]+):\d{1,5}\s*", broker):
            raise _bad(f"kafka_broker_list: expected host:port, found {broker.strip()!r}")
    client = {name.removeprefix(_PREFIX): value for name, value in given.items() if name.startswith(_PREFIX)}
    for name, value in client.items():
        if value.startswith("FILE:"):  # R25
            raise _bad(
                f"File {value.removeprefix('FILE:')} does not exist in db {database_id} with catalog: kafka; "
                f"CREATE FILE stores none here; set property.{name} the path of a file of this host"
            )
    policy = client.get("auto.offset.reset", "earliest").lower()
    if policy not in ("earliest", "latest", "error", "none"):
        raise _bad(f"property.auto.offset.reset: expected earliest, latest or none, found {policy}")
    partitions = _partitions(given.get("kafka_partitions", ""), is_named=bool(pattern))
    return KafkaProperties(
        brokers=given["kafka_broker_list"],
        topic=topic,
        pattern=pattern,
        partitions=partitions,
        offsets=_offsets(partitions, given.get("kafka_offsets", "")),
        default_offset=_offset(given.get(_DEFAULT_OFFSETS, BEGINNING if pattern else END)),
        group_id=client.get("group.id", ""),
        client={name: value for name, value in client.items() if name not in _OURS},
    )


def check_client(client: Mapping[str, str], more: Collection[str] = ()) -> None:
    """Refuses properties of the client that could load classes, read files or reach other servers.

    Args:
        more: names that the setting `kafka_properties` allows.

    Raises:
        AccessDeniedError: names the property.
    """
    for name, value in client.items():
        if name not in _CLIENT | _OURS and name not in more:
            raise AccessDeniedError(
                f"property.{name} cannot be set: it is not among the properties of the Kafka client that "
                "every job may set; the setting kafka_properties allows more",
                kind="not_allowed",
            )
        is_login = name == "sasl.jaas.config" and not is_reference(value)  # its text is checked at its use
        if is_login and name not in more and not _LOGIN_MODULE.fullmatch(value):
            raise AccessDeniedError(
                "property.sasl.jaas.config: expected one login module of Kafka, PlainLoginModule or "
                "ScramLoginModule, 'required', with username and password; found another text",
                kind="not_allowed",
            )


def check_brokers(brokers: str, allowed: Sequence[str], *, is_administrator: bool) -> None:
    """Refuses brokers that the setting `kafka_brokers` does not allow; without it, only to other users.

    Raises:
        AccessDeniedError: names the broker.
    """
    for broker in map(str.strip, brokers.lower().split(",")):
        host = broker.rpartition(":")[0].strip("[]")
        if any(fnmatch.fnmatchcase(broker, each) or host == each for each in map(str.lower, allowed)):
            continue
        if allowed or not is_administrator or _is_link_local(host):
            raise AccessDeniedError(
                f"kafka_broker_list: {broker!r} is not among the brokers that jobs may reach; an "
                "administrator adds it to the setting kafka_brokers",
                kind="not_allowed",
            )


def _is_link_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_link_local
    except ValueError:
        return False


def with_group(job: str, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties with a group of the job's own where the user set none (R24).

    A group that was made here before is made anew: the connector keeps consumers by group and partition, with
    the settings they began with.
    """
    group = given.get(_GROUP)
    if group is not None and not re.fullmatch(rf"{re.escape(job)}_[0-9a-f-]{{36}}", group):
        return dict(given)
    return {**given, _GROUP: f"{job}_{uuid.uuid4()}"}


def time_ms(offset: str, zone: str = "+00:00") -> int | None:
    """Converts an offset that is a time to Unix time; returns None for any other offset.

    Args:
        zone: the job's, by name or as `+08:00`.
    """
    try:
        told = datetime.strptime(offset, _TIME)
    except ValueError:
        return None
    if zone[0] in "+-":
        away = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
        return round(told.replace(tzinfo=timezone(-away if zone[0] == "-" else away)).timestamp() * 1000)
    return round(told.replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def _partitions(text: str, *, is_named: bool) -> tuple[str, ...]:
    if not text.strip():
        return ()
    parts = [part.strip() for part in text.split(",")]
    kind = _NAMED_PARTITION if is_named else _PARTITION
    found = [kind.fullmatch(part) for part in parts]
    names = [f"{each[1]}{int(each[2])}" for each in found if each is not None]
    if len(names) < len(parts) or len(set(names)) < len(names):
        expected = "names such as topic-0,topic-1" if is_named else "numbers such as 0,1,2"
        raise _bad(f"Invalid kafka partition: expected different {expected}, found {text!r}")
    return tuple(names)


def _offsets(partitions: tuple[str, ...], text: str) -> dict[str, str]:
    if not text.strip():
        return {}
    offsets = [_offset(part) for part in text.split(",")]
    if len(offsets) != len(partitions):
        raise _bad("Partitions number should be equals to offsets number")
    is_time = [time_ms(offset) is not None for offset in offsets]
    if any(is_time) and not all(is_time):
        raise _bad("The offset of the partition cannot be specified by the timestamp and the offset at once")
    return dict(zip(partitions, offsets, strict=True))


def _offset(text: str) -> str:
    offset = text.strip()
    if offset.upper() in (BEGINNING, END):
        return offset.upper()
    if offset.isdigit() or time_ms(offset) is not None:
        return offset
    raise _bad(
        f"Invalid kafka offset {offset!r}: expected a number, {BEGINNING}, {END} or yyyy-mm-dd hh:mm:ss"
    )


def _bad(message: str) -> InvalidInputError:
    return InvalidInputError(message, kind="bad_property")
