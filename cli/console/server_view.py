"""The server: its processes, memory, disk and queues, and its settings with their reasons."""

from __future__ import annotations

import os
import shutil
import time
import tomllib
from dataclasses import asdict
from functools import cache
from importlib import resources
from typing import Any, Final

from seqstore.cli.clients.sessions import ServerSessions
from seqstore.store.catalog.access.user_hosts import plain_user
from seqstore.store.catalog.accounts import Account
from seqstore.store.catalog.workload_groups import CONCURRENCY_MAX
from seqstore.store.runtime.memory_limit import limit_bytes, resident_bytes
from seqstore.store.runtime.secrets.words import masked_uri

_PROCESSES_MAX: Final = 500
_SECRET_WORDS: Final = ("password", "secret")


def server(sessions: ServerSessions, account: Account, started: float) -> dict[str, Any]:
    """Returns the processes that a user may see, and what its server takes.

    Args:
        started: `time.monotonic()` of its start.
    """
    is_administrator = account.may("ADMIN")
    shown = [each for each in sessions.processes.all() if is_administrator or each.user == account.name]
    found: dict[str, Any] = {
        "processes": [
            {
                "number": each.number,
                "user": plain_user(each.user),
                "database": each.database,
                "seconds": each.seconds,
                "statement": each.shown_text[:4096],
            }
            for each in shown[:_PROCESSES_MAX]
        ],
        "connections": len(shown),
        "is_administrator": is_administrator,
        "uptime_seconds": int(time.monotonic() - started),
    }
    if is_administrator:
        found |= _resources(sessions)
    return found


def _resources(sessions: ServerSessions) -> dict[str, Any]:
    disk = shutil.disk_usage(sessions.store.path)
    groups = []
    for group in sessions.store.workload_groups.all():
        running, waiting = sessions.shared.queues.counts(group.name)
        unlimited = group.max_concurrency >= CONCURRENCY_MAX
        most = None if unlimited else group.max_concurrency
        groups.append({"name": group.name, "running": running, "waiting": waiting, "most": most})
    return {
        "memory_bytes": resident_bytes(),
        "memory_limit_bytes": limit_bytes(),
        "disk_free_bytes": disk.free,
        "disk_bytes": disk.total,
        "cpus": os.cpu_count(),
        "groups": groups,
        "audit_lost": sessions.audit.lost if sessions.audit is not None else None,
    }


def settings(sections: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns every setting, its value and default, and the reason for the default.

    Args:
        sections: the settings of the running server, by the names of their tables.
    """
    text = (resources.files("seqstore") / "conf" / "default.toml").read_text()
    defaults = tomllib.loads(text)
    found = []
    for section, values in sections.items():
        for name, value in asdict(values).items():
            default = defaults.get(section, {}).get(name)
            given = [_shown(each) for each in value] if isinstance(value, tuple) else _shown(value)
            is_secret = any(word in name for word in _SECRET_WORDS) and isinstance(given, str)
            found.append(
                {
                    "section": section,
                    "name": name,
                    "value": "***" if is_secret and given else given,
                    "default": default,
                    "is_changed": given != default,
                    "reason": _reasons(text).get((section, name), ""),
                }
            )
    return found


def _shown(value: Any) -> Any:
    """Returns a setting without the keys of URIs."""
    return masked_uri(value) if isinstance(value, str) else value


@cache
def _reasons(text: str) -> dict[tuple[str, str], str]:
    """Returns the comment above each setting, by section and name."""
    found: dict[tuple[str, str], str] = {}
    section, comment = "", []
    for line in text.splitlines():
        if line.startswith("#"):
            comment.append(line.lstrip("# "))
            continue
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line and not line.startswith(" "):
            found[section, line.partition("=")[0].strip()] = " ".join(comment)
        comment = []
    return found
