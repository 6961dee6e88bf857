"""Conversations of the MySQL protocol that no client should have, made up from a seed.

A conversation begins with a true handshake and true commands. Some bytes, lengths, numbers or flags of them
are then other ones.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_CAPABILITIES: Final = 0x0008_A200
_FLAGS: Final = (_CAPABILITIES, _CAPABILITIES | 8, _CAPABILITIES | 0x20_0000, 0x800, 0, 0xFFFF_FFFF)
_PLUGIN: Final = b"mysql_native_password\0"
_NUMBERS: Final = (0, 1, 2, 5, 16, 127, 128, 250, 251, 252, 254, 255, 256, 65_535, 0x7FFF_FFFF, 0xFFFF_FFFF)
_KNOWN: Final = (
    0x02,
    0x03,
    0x03,
    0x04,
    0x09,
    0x0C,
    0x0E,
    0x11,
    0x16,
    0x16,
    0x19,
    0x1A,
    0x1B,
    0x1F,
)  # commands
_FIRST: Final = b"\1\0\0\0"  # prepared statement of a connection
_STATEMENTS: Final = (
    "SELECT k, v FROM t WHERE k = ?",
    "SELECT ?, ?, ? + 1",
    "INSERT INTO t (k, v) VALUES (?, ?)",
    "UPDATE t SET v = ? WHERE k = ?",
    "SHOW TABLES LIKE ?",
    "SELECT * FROM t; SELECT 1; SHOW WARNINGS",
    "SELECT '\u00e9' AS `\u00e9`, x'ff', NULL",
    "SET @a = ?",
    "SET NAMES utf8mb4",
    "BEGIN",
    "COMMIT",
    "KILL QUERY ?",
    "USE absent",
    "SELECT @@version_comment LIMIT 1",
    "",
    ";",
    "\0",
)
_TYPES: Final = (*range(0x12), *range(0xF5, 0x100))  # of parameters, known ones and others


@dataclass
class Conversation:
    """The packets that a client sends.

    Attributes:
        greets: the first packet is the answer to the server's greeting, sent as it is.
        packets: payloads with sequence numbers, behind a login.
        is_framed: all packets are whole; else the client closes its side after them.
    """

    name: str
    handshake: bytes | None = None
    packets: list[bytes] = field(default_factory=list)
    is_framed: bool = True


def framed(payload: bytes, sequence: int = 0) -> bytes:
    """Returns a payload of less than 16 MiB behind its header."""
    return len(payload).to_bytes(3, "little") + bytes([sequence & 0xFF]) + payload


def conversation(rng: random.Random) -> Conversation:
    """Returns the next one."""
    return rng.choice(_KINDS)(rng)


def _mutated(rng: random.Random, data: bytes) -> bytes:
    """Returns bytes with one to four changes."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(6):
            case 0 if at < len(found):
                found[at] ^= 1 << rng.randrange(8)
            case 1:
                found[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 2:
                del found[at : at + rng.randrange(1, 9)]
            case 3:
                del found[at:]
            case 4 if at < len(found):
                found[at] = rng.choice((0, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF))
            case _:
                found += bytes(found[at : at + rng.randrange(64)])
    return bytes(found)


def _number(rng: random.Random, size: int) -> bytes:
    return (rng.choice(_NUMBERS) & (1 << 8 * size) - 1).to_bytes(size, "little")


def _answer(rng: random.Random) -> bytes:
    head = rng.choice(_FLAGS).to_bytes(4, "little") + rng.randbytes(28)
    name = rng.choice((b"root", b"eve", b"", b"\xff\xfe", b"r" * 300, b"ann:10.%", b"a\0b"))
    scramble = rng.choice((b"\0", b"\x14" + rng.randbytes(20), b"\xfc\xff\xff", b"\xfe" + rng.randbytes(8)))
    database = rng.choice((b"", b"db\0", b"absent\0", b"\xff\0", b"d" * 500 + b"\0"))
    plugin = rng.choice((_PLUGIN, b"caching_sha2_password\0", b"\xff\0", b"", b"p" * 1000))
    return head + name + b"\0" + scramble + database + plugin


def _greeting(rng: random.Random) -> Conversation:
    data = framed(_answer(rng), 1)
    whole = rng.random() < 0.5
    return Conversation("handshake", data if whole else _mutated(rng, data), is_framed=False)


def _command(rng: random.Random) -> bytes:
    kind = rng.choice((*_KNOWN, rng.randrange(2, 256)))
    statement = rng.choice(_STATEMENTS).encode()
    body = {
        0x02: rng.choice((b"db", b"absent", b"", b"\xff", b"db\0")),
        0x03: statement,
        0x04: rng.choice((b"t\0%", b"t", b"", b"absent\0", b"\xff\0", b"db.t\0")),
        0x0C: _number(rng, 4),
        0x11: _answer(rng)[32:],
        0x16: statement,
        0x19: _number(rng, 4),
        0x1A: _number(rng, 4),
    }.get(kind, rng.randbytes(rng.randrange(12)))
    return bytes([kind]) + body


def _commands(rng: random.Random) -> Conversation:
    commands = [_command(rng) for _ in range(rng.randrange(1, 6))]
    if rng.random() < 0.6:
        at = rng.randrange(len(commands))
        commands[at] = _mutated(rng, commands[at])
    return Conversation("commands", packets=[framed(each) for each in commands])


def _value(rng: random.Random, kind: int) -> bytes:
    """Returns a value of a parameter, as its type has it or not."""
    if rng.random() < 0.2:
        return rng.randbytes(rng.randrange(20))
    if kind in (0x01, 0x02, 0x03, 0x08, 0x09, 0x0D):
        return _number(rng, {0x01: 1, 0x02: 2, 0x0D: 2, 0x08: 8}.get(kind, 4))
    if kind == 0x04:
        return struct.pack("<f", rng.choice((1.5, float("nan"), float("inf"), -0.0)))
    if kind == 0x05:
        return struct.pack("<d", rng.choice((1e308, float("nan"), float("-inf"), 5e-324)))
    if kind in (0x07, 0x0A, 0x0B, 0x0C):
        length = rng.choice((0, 1, 3, 4, 5, 7, 8, 11, 12, 13))
        return bytes([length]) + rng.randbytes(length)
    text = rng.choice((b"1", b"1.50", b"", b"1; SELECT 2", b"\xff", b"'", b"\\", b"1e5", b"nan", b"\0"))
    return bytes([len(text)]) + text


def _execution(rng: random.Random) -> Conversation:
    statement = rng.choice(_STATEMENTS)
    count = statement.count("?")
    packets = [framed(b"\x16" + statement.encode())]
    for _ in range(rng.randrange(1, 4)):
        if rng.random() < 0.3:
            long_data = _FIRST + _number(rng, 2) + rng.randbytes(rng.randrange(40))
            packets.append(framed(b"\x18" + long_data))
        kinds = [rng.choice(_TYPES) for _ in range(count)]
        types = b"".join(bytes([kind, rng.choice((0, 0x80))]) for kind in kinds)
        values = b"".join(_value(rng, kind) for kind in kinds)
        nulls = rng.choice((bytes((count + 7) // 8), rng.randbytes((count + 7) // 8)))
        bound = rng.choice((b"\1" + types, b"\0"))
        body = (
            b"\x17"
            + (1).to_bytes(4, "little")
            + bytes([rng.randrange(4)])
            + b"\1\0\0\0"
            + nulls
            + bound
            + values
        )
        packets.append(framed(_mutated(rng, body) if rng.random() < 0.3 else body))
    return Conversation("execution", packets=packets)


def _frames(rng: random.Random) -> Conversation:
    data = b"".join(framed(_command(rng), rng.randrange(256)) for _ in range(rng.randrange(1, 4)))
    head = rng.choice((b"", b"\xff\xff\xff\0", b"\0\0\0\0", framed(b""), rng.randbytes(rng.randrange(1, 8))))
    return Conversation("frames", packets=[_mutated(rng, head + data)], is_framed=False)


_KINDS: Final[tuple[Callable[[random.Random], Conversation], ...]] = (
    _greeting,
    _commands,
    _commands,
    _execution,
    _execution,
    _frames,
)
