"""Hosts of tests: network namespaces of this machine, joined by a bridge; each has an address of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Final

_NETWORK: Final = "10.211.77"


@dataclass(frozen=True)
class Host:
    """A namespace.

    Attributes:
        name: of the namespace.
        address: in the network of the hosts.
    """

    name: str
    address: str

    def command(self, *arguments: str) -> list[str]:
        """A command as it runs on the host."""
        return [str(shutil.which("ip")), "netns", "exec", self.name, *arguments]

    def unplug(self) -> None:
        """Cuts the host off: what is sent to it, or by it, is lost without a word."""
        _run("ip", "-n", self.name, "link", "set", "out", "down")

    def plug_in(self) -> None:
        """Ends `unplug`."""
        _run("ip", "-n", self.name, "link", "set", "out", "up")


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Some hosts that reach each other; the first has the bridge."""
    prefix = f"sq{os.getpid()}"
    with ExitStack() as stack:
        made = [Host(f"{prefix}-{number}", f"{_NETWORK}.{number + 1}") for number in range(count)]
        for host in made:
            _run("ip", "netns", "add", host.name)
            stack.callback(_run, "ip", "netns", "del", host.name)
            _run("ip", "-n", host.name, "link", "set", "lo", "up")
        first = made[0].name
        _run("ip", "-n", first, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", first, "addr", "add", f"{made[0].address}/24", "dev", "bridge")
        _run("ip", "-n", first, "link", "set", "bridge", "up")
        for number, host in enumerate(made[1:]):
            ends = "type", "veth", "peer", "name", "out", "netns", host.name
            _run("ip", "-n", first, "link", "add", f"to{number}", *ends)
            _run("ip", "-n", first, "link", "set", f"to{number}", "master", "bridge", "up")
            _run("ip", "-n", host.name, "addr", "add", f"{host.address}/24", "dev", "out")
            _run("ip", "-n", host.name, "link", "set", "out", "up")
        yield made


@cache
def why_no_hosts() -> str:
    """The reason why this machine has no namespaces, empty where it has."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return "needs root and ip (iproute2) for network namespaces"
    try:
        with hosts(2):
            return ""
    except subprocess.CalledProcessError as error:
        return f"network namespaces: {error.stderr}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
