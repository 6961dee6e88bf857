"""Workload groups, and the properties of users that choose one: records of `config` in the catalog.

`normal` always exists, without limits. Names and defaults are those of Doris.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from seqstore.store.runtime.internal import internal

NORMAL: Final = "normal"
CONCURRENCY_MAX: Final = 2**31 - 1
USER_GROUP: Final = "default_workload_group"
USER_MEMORY: Final = "exec_mem_limit"
USER_PROPERTIES: Final = (USER_GROUP, USER_MEMORY)
_GROUP_PREFIX: Final = b"workload_group."
USER_PREFIX: Final = b"user_property."
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?)%")
_WITHOUT_EFFECT: Final = (
    "cpu_share", "cpu_hard_limit", "enable_memory_overcommit", "max_cpu_percent", "min_cpu_percent",
    "max_memory_percent", "min_memory_percent", "scan_thread_num", "max_remote_scan_thread_num",
    "min_remote_scan_thread_num", "memory_low_watermark", "memory_high_watermark", "slot_memory_policy",
    "spill_threshold_low_watermark", "spill_threshold_high_watermark", "read_bytes_per_second",
    "remote_read_bytes_per_second", "tag", "compute_group",
)  # fmt: skip


@dataclass(frozen=True)
class WorkloadGroup:
    """One group.

    Attributes:
        memory_limit: percent of the server's memory that the queries of the group share; 0 for no limit.
        max_concurrency: statements that run at a time.
        max_queue_size: further statements that wait; more fail.
        queue_timeout: milliseconds that a statement waits at the most.
    """

    name: str
    memory_limit: float = 0
    max_concurrency: int = CONCURRENCY_MAX
    max_queue_size: int = 0
    queue_timeout: int = 0

    @property
    def memory_text(self) -> str:
        """The memory limit as SHOW prints it."""
        return f"{self.memory_limit:g}%" if self.memory_limit else "0%"


class WorkloadGroups:
    """The groups of one store. Threads may share it; every result reflects the current catalog."""

    @internal
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def all(self) -> list[WorkloadGroup]:
        """Returns every group, by name."""
        with self._catalog.read() as tx:
            return _all(tx)

    def find(self, name: str) -> WorkloadGroup | None:
        """Returns one group, None when there is none of that name."""
        with self._catalog.read() as tx:
            return _find(tx, name)

    def create(self, name: str, properties: Mapping[str, str], *, if_not_exists: bool = False) -> None:
        """Creates a group.

        Raises:
            AlreadyExistsError: the group exists, and `if_not_exists` is False.
            InvalidInputError: a bad name or property, or the groups would have more than all memory.
        """
        if not _NAME.fullmatch(name):
            raise InvalidInputError(
                f"workload group {name[:80]!r}: expected up to 64 letters, digits and '_'", kind="bad_group"
            )
        group = _changed(WorkloadGroup(name), properties)
        with self._catalog.write() as tx:
            if _find(tx, name) is None:
                _put(tx, group)
            elif not if_not_exists:
                raise AlreadyExistsError(f"workload group '{name}' already exists", kind="group_exists")

    def alter(self, name: str, properties: Mapping[str, str]) -> None:
        """Changes properties; statements that wait or begin follow the new ones.

        Raises:
            NotFoundError: no such group.
            InvalidInputError: as `create`.
        """
        with self._catalog.write() as tx:
            _put(tx, _changed(_require(tx, name), properties))

    def drop(self, name: str, *, if_exists: bool = False) -> None:
        """Removes a group; users that had it are in `normal` from then on.

        Raises:
            NotFoundError: no such group, and `if_exists` is False.
            InvalidInputError: it is `normal`, or users have it as their default.
        """
        if name == NORMAL:
            raise InvalidInputError("workload group 'normal' cannot be dropped", kind="bad_group")
        with self._catalog.write() as tx:
            if if_exists and _find(tx, name) is None:
                return
            _require(tx, name)
            users = [
                key.removeprefix(USER_PREFIX).decode()
                for key, text in tx.records("config", USER_PREFIX)
                if json.loads(text).get(USER_GROUP) == name
            ]
            if users:
                raise InvalidInputError(
                    f"workload group '{name}' is the default of {', '.join(users[:5])}; SET PROPERTY FOR "
                    f"'{users[0]}' '{USER_GROUP}' = '{NORMAL}' first",
                    kind="bad_group",
                )
            tx.delete("config", _GROUP_PREFIX + name.encode())

    def properties_of(self, user: str) -> dict[str, str]:
        """Returns the properties that SET PROPERTY set for a user."""
        with self._catalog.read() as tx:
            return _properties(tx, user)

    def of_user(self, user: str) -> tuple[WorkloadGroup, dict[str, str]]:
        """Returns the default group of a user, and its properties."""

        def read(tx: CatalogTransaction) -> tuple[WorkloadGroup, dict[str, str]]:
            properties = _properties(tx, user)
            return _find(tx, properties.get(USER_GROUP, NORMAL)) or WorkloadGroup(NORMAL), properties

        return self._catalog.recall((WorkloadGroup, user), read)

    def set_properties(self, user: str, properties: Mapping[str, str]) -> None:
        """Sets properties of a user; its next statements follow them.

        Raises:
            NotFoundError: no such group.
            InvalidInputError: an unknown property or a bad value.
        """
        with self._catalog.write() as tx:
            for name, value in properties.items():
                if name not in USER_PROPERTIES:
                    raise InvalidInputError(
                        f"user property {name!r} is not supported; expected {' or '.join(USER_PROPERTIES)}",
                        kind="not_supported",
                    )
                if name == USER_GROUP:
                    _require(tx, value)
                elif not value.isdigit():
                    raise InvalidInputError(
                        f"user property {name!r}: expected a number of bytes, found {value!r}",
                        kind="bad_property",
                    )
            changed = json.dumps({**_properties(tx, user), **properties})
            tx.put("config", USER_PREFIX + user.encode(), changed)


def _properties(tx: CatalogTransaction, user: str) -> dict[str, str]:
    text = tx.get("config", USER_PREFIX + user.encode())
    found: dict[str, str] = json.loads(text) if text is not None else {}
    return found


def _all(tx: CatalogTransaction) -> list[WorkloadGroup]:
    found = [WorkloadGroup(**json.loads(text)) for _, text in tx.records("config", _GROUP_PREFIX)]
    normal = [] if any(group.name == NORMAL for group in found) else [WorkloadGroup(NORMAL)]
    return sorted([*normal, *found], key=lambda group: group.name)


def _find(tx: CatalogTransaction, name: str) -> WorkloadGroup | None:
    text = tx.get("config", _GROUP_PREFIX + name.encode()[:100])
    if text is not None:
        return WorkloadGroup(**json.loads(text))
    return WorkloadGroup(NORMAL) if name == NORMAL else None


def _require(tx: CatalogTransaction, name: str) -> WorkloadGroup:
    group = _find(tx, name)
    if group is None:
        raise NotFoundError(f"workload group '{name}' does not exist", kind="unknown_group", group=name)
    return group


def _put(tx: CatalogTransaction, group: WorkloadGroup) -> None:
    others = sum(each.memory_limit for each in _all(tx) if each.name != group.name)
    if others + group.memory_limit > 100:
        raise InvalidInputError(
            "The sum of all workload group memory_limit cannot be greater than 100.0%, found "
            f"{others + group.memory_limit:g}%",
            kind="bad_property",
        )
    tx.put("config", _GROUP_PREFIX + group.name.encode(), json.dumps(asdict(group)))


def _changed(group: WorkloadGroup, properties: Mapping[str, str]) -> WorkloadGroup:
    for given, value in properties.items():
        name = given.lower()
        if name == "memory_limit":
            percent = _PERCENT.fullmatch(value)
            if percent is None or not 0 < float(percent[1]) <= 100:
                raise _bad(name, "a percentage such as 30%", value)
            group = replace(group, memory_limit=float(percent[1]))
        elif name in ("max_concurrency", "max_queue_size", "queue_timeout"):
            least = 1 if name == "max_concurrency" else 0
            if not value.isdigit() or not least <= int(value) <= CONCURRENCY_MAX:
                raise _bad(name, f"a whole number from {least}", value)
            changes: dict[str, Any] = {name: int(value)}
            group = replace(group, **changes)
        else:
            known = "without effect here" if name in _WITHOUT_EFFECT else "unknown"
            raise InvalidInputError(
                f"workload group property {given!r} is {known}; expected memory_limit, max_concurrency, "
                "max_queue_size or queue_timeout",
                kind="not_supported",
            )
    return group


def _bad(name: str, expected: str, found: str) -> InvalidInputError:
    return InvalidInputError(f"{name}: expected {expected}, found {found!r}", kind="bad_property")
