"""A server under load: good clients beside idle connections, and bad ones: slow, huge, wrong, vanishing.

Good clients load rows over HTTP and read them over the MySQL protocol, one request at a time, with pauses.
Each request has its time, and each acknowledged row is remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from tests.cli.mysql_client import CAPABILITIES
from tests.support.hostile.bad_packets import conversation, framed
from tests.support.hostile.bad_requests import bad_request
from tests.support.http_server import ServerProcess, basic

GOOD, BAD = "good:", "bad:"
_ANSWER_SECONDS: Final = 120.0
_PLUGIN: Final = b"mysql_native_password\0"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Figures:
    """What the good clients saw."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)

    @property
    def p50(self) -> float:
        """The time that half of the requests exceed."""
        return sorted(self.seconds)[len(self.seconds) // 2]

    @property
    def p99(self) -> float:
        """The time that one request in a hundred exceeds."""
        return sorted(self.seconds)[len(self.seconds) * 99 // 100]

    def __str__(self) -> str:
        return (
            f"{len(self.seconds)} requests, p50 {self.p50 * 1000:.0f} ms, p99 {self.p99 * 1000:.0f} ms, "
            f"{len(self.failures)} errors"
        )


class Overload:
    """Clients of one server, whose table is db.overload (k INT, v STRING).

    Args:
        pause: seconds between two requests of a good client, on average.
    """

    def __init__(self, server: ServerProcess, seed: int, *, good: int, pause: float) -> None:
        self._http = server.client.port
        self._mysql = server.mysql_port
        self._rng = random.Random(seed)
        self._good = good
        self._pause = pause
        self._next = 0
        self._known: list[int] = []  # keys of acknowledged rows
        self._over = asyncio.Event()
        self.figures = Figures()

    async def run(self, seconds: float, *, idle: int = 0, bad: int = 0) -> Figures:
        """Lets all clients work for some time; returns what the good ones saw in it."""
        self._over.clear()
        self.figures = Figures(acknowledged=self.figures.acknowledged)
        held = await self._hold(idle)
        work = [self._load if number % 2 else self._read for number in range(self._good)]
        trouble: list[Callable[[], Awaitable[None]]] = [self._slow, self._huge, self._wrong, self._vanishing]
        tasks = [asyncio.create_task(each()) for each in work]
        tasks += [asyncio.create_task(self._again(trouble[number % 4])) for number in range(bad)]
        try:
            await asyncio.sleep(seconds)
        finally:
            self._over.set()
            await asyncio.gather(*tasks)
            for writer in held:
                await _close(writer)
        return self.figures

    async def _hold(self, count: int) -> list[asyncio.StreamWriter]:
        """Opens connections that say nothing, one in ten of them to the MySQL port."""
        ports = [self._http if number % 10 else self._mysql for number in range(count)]
        return [(await asyncio.open_connection("127.0.0.1", port))[1] for port in ports]

    # ------------------------------------------------------------------------------------- good clients

    async def _timed(self, request: Awaitable[str]) -> None:
        """Waits for an answer, which is empty or names a failure; then pauses."""
        begun = time.monotonic()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                failure = await request
        except (OSError, EOFError, TimeoutError) as error:
            failure = repr(error)
        self.figures.seconds.append(time.monotonic() - begun)
        if failure:
            self.figures.failures.append(failure)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), self._rng.uniform(0, 2 * self._pause))

    async def _load(self) -> None:
        async with _connected(self._http) as stream:
            while not self._over.is_set():
                self._next += 1
                await self._timed(self._load_one(stream, self._next))

    async def _load_one(self, stream: Stream, key: int) -> str:
        body = f"{key},{key * 7}\n".encode()
        stream[1].write(_head("overload", GOOD, f"label: o{key}\r\nContent-Length: {len(body)}") + body)
        answer = await _http_answer(stream[0])
        if json.loads(answer)["Status"] != "Success":
            return answer
        self.figures.acknowledged.add(key)
        self._known.append(key)
        return ""

    async def _read(self) -> None:
        async with _connected(self._mysql) as stream:
            await self._timed(self._log_in(stream))
            while not self._over.is_set():
                await self._timed(self._read_one(stream, self._rng.choice(self._known or [0])))

    async def _log_in(self, stream: Stream) -> str:
        await _packet(stream[0])
        name = GOOD.rstrip(":").encode()
        body = CAPABILITIES.to_bytes(4, "little") + bytes(28) + name + b"\0\0" + _PLUGIN
        stream[1].write(framed(body, 1))
        answer = await _packet(stream[0])
        return "" if answer[:1] == b"\0" else repr(answer)

    async def _read_one(self, stream: Stream, key: int) -> str:
        stream[1].write(framed(b"\3" + f"SELECT v FROM db.overload WHERE k = {key}".encode()))
        answer, ends, rows = b"", 0, []
        while ends < 2:
            answer = await _packet(stream[0])
            if answer[:1] == b"\xff":
                return repr(answer)
            if ends and answer[:1] != b"\xfe":
                rows.append(answer[1:].decode())
            ends += answer[:1] == b"\xfe"
        return "" if rows == [str(key * 7)] or not key else f"key {key} has {rows}"

    # --------------------------------------------------------------------------------------- bad clients

    async def _again(self, misbehave: Callable[[], Awaitable[None]]) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                await misbehave()
            await asyncio.sleep(self._rng.uniform(0, 0.2))

    async def _slow(self) -> None:
        async with _connected(self._http) as (reader, writer):
            writer.write(_head("overload", BAD, "Content-Length: 1000000"))
            while not self._over.is_set() and not reader.at_eof():
                writer.write(b"1")
                await writer.drain()
                await asyncio.sleep(0.2)

    async def _huge(self) -> None:
        is_http = self._rng.random() < 0.5
        async with _connected(self._http if is_http else self._mysql) as (_, writer):
            writer.write(_head("t", BAD, "Content-Length: 2000000000") if is_http else b"\xff\xff\xff\1")
            for _ in range(200):
                if self._over.is_set():
                    break
                writer.write(b"x" * 65_536)
                await writer.drain()
                await asyncio.sleep(0.1)  # this process shares the processors with the server

    async def _wrong(self) -> None:
        is_http = self._rng.random() < 0.5
        talk = conversation(self._rng)
        data = bad_request(self._rng).data if is_http else talk.handshake or b"".join(talk.packets)
        async with _connected(self._http if is_http else self._mysql) as (reader, writer):
            writer.write(data[: 1 << 20])
            async with asyncio.timeout(1):
                await reader.read(65_536)

    async def _vanishing(self) -> None:
        async with _connected(self._http) as (_, writer):
            writer.write(_head("overload", BAD, "Content-Length: 1000") + b"1,1\n")
            await writer.drain()
            await asyncio.sleep(self._rng.uniform(0, 0.1))


@contextlib.asynccontextmanager
async def _connected(port: int) -> AsyncIterator[Stream]:
    """Opens a connection, which is reset at the end of the block."""
    stream = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield stream
    finally:
        await _close(stream[1])


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _head(table: str, user: str, more: str) -> bytes:
    lines = (
        f"PUT /api/db/{table}/_stream_load?redirected=1 HTTP/1.1",
        "Host: localhost",
        f"Authorization: {basic(user)}",
        "column_separator: ,",
        more,
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _http_answer(reader: asyncio.StreamReader) -> str:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    assert length is not None
    return (await reader.readexactly(int(length[1]))).decode()


async def _packet(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return await reader.readexactly(int.from_bytes(head[:3], "little"))
