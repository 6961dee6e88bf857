"""The memory that values of a schema of Avro take, found before they are decoded.

A few bytes may be a value of any size: items that have no bytes, such as nulls, cost none in an array of any
length, records that hold others twice double with each level, and each byte of a list that refers to itself
is a level of recursion, which would end the process. fastavro decodes a value in one call: no limit stops it.

1. A schema has bounds: the memory of a value without its bytes, and the memory for each byte. A value whose
   bytes cannot take more than the limit is decoded at once. So are nearly all.
2. The others are walked first: their items are counted, nothing is made of them.

A schema whose smallest value is infinite or takes more than the limit is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from seqstore.store.errors import InvalidInputError

MEMORY_MAX: Final = 256 << 20  # of one decoded value
DEPTH_MAX: Final = 200  # of records, arrays and maps within each other
_TYPES_MAX: Final = 50_000
_PASSES_MAX: Final = 100
_OBJECT: Final = 64
_LOGICAL: Final = 160  # a decimal, a time or a UUID
_FIELD: Final = 100  # of a dictionary
_PER_BYTE: Final = 4  # of a text with one character of four bytes
# The time of a decimal grows with the square of its bytes: a value is walked if one may have 64 kB.
_PER_DECIMAL_BYTE: Final = MEMORY_MAX >> 16
_DECIMAL_BYTES_MAX: Final = 4096
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_VARINTS: Final = ("int", "long")
_VARINT_BYTES_MAX: Final = 10


class ValueBoundsError(InvalidInputError):
    """A value takes too much memory, or is nested too deep."""


class _Node:
    """A type of the schema.

    Attributes:
        kind: plain (of a fixed size), varint, bytes, record, union, array or map.
        own: the memory of a value beside its bytes and parts.
        size: of a plain value; of bytes the most that there may be, 0 without a limit.
        parts: the types of fields, branches or items.
        least: the bytes of its smallest value.
        memory: of a value without bytes.
        per_byte: the memory that each byte of a value may take, infinite where nothing bounds it.
        depth: of containers within it.
    """

    __slots__ = ("depth", "kind", "least", "memory", "own", "parts", "per_byte", "size")

    def __init__(self, kind: str, own: int, size: int = 0) -> None:
        self.kind, self.own, self.size = kind, own, size
        self.parts: list[_Node] = []
        self.least: float = math.inf
        self.memory: float = -1
        self.per_byte: float = 0
        self.depth = 0


class ValueBounds:
    """The bounds of one schema.

    Args:
        schema: as fastavro has parsed it.
        named: its types with a name.

    Raises:
        InvalidInputError: no value of it has an end, or fits into the memory of one value.
        RecursionError: its types are nested too deep.
    """

    def __init__(self, schema: Any, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known: dict[str, _Node] = {}
        self._nodes: list[_Node] = []  # parts before the types that have them
        self._root = self._node(schema)
        self._find_least()
        if not math.isfinite(self._root.least):
            raise _refused("a type contains itself, so none of its values has an end")
        self._measure(self._root, set())
        if self._root.depth > DEPTH_MAX:
            raise RecursionError
        if self._root.memory > MEMORY_MAX:
            raise _refused(f"its smallest value takes more than {MEMORY_MAX >> 20} MB")
        self._safe_bytes = (MEMORY_MAX - self._root.memory) / max(self._root.per_byte, 1)
        if math.isinf(self._root.per_byte):
            self._safe_bytes = -1

    @property
    def has_bytes(self) -> bool:
        """Whether each value has a byte at least."""
        return self._root.least > 0

    def is_safe(self, size: int) -> bool:
        """Returns whether no value of at most so many bytes takes too much memory."""
        return size <= self._safe_bytes

    def check(self, data: bytes, at: int) -> None:
        """Walks over the value that begins at a position, which takes a microsecond for each item.

        Raises:
            ValueBoundsError: it takes too much memory, or is nested too deep.
            EOFError: the bytes end before the value does, or they are none of the schema.
        """
        _Walk(data, at).over(self._root, 0)

    # ------------------------------------------------------------------------------------------ the schema

    def _node(self, schema: Any) -> _Node:
        if len(self._nodes) > _TYPES_MAX:
            raise _refused(f"it has more than {_TYPES_MAX} types")
        if isinstance(schema, list):
            made = _Node("union", 0)
            made.parts = [self._node(each) for each in schema]
        elif isinstance(schema, str):
            return self._primitive_or_named(schema, schema)
        elif not isinstance(schema["type"], str):
            return self._node(schema["type"])
        elif schema["type"] in ("record", "error"):
            return self._record(schema)
        elif schema["type"] == "array":
            made = _Node("array", _OBJECT)
            made.parts = [self._node(schema["items"])]
        elif schema["type"] == "map":
            made = _Node("map", _OBJECT)
            made.parts = [self._node(schema["values"])]
        else:
            return self._primitive_or_named(schema["type"], schema)
        self._nodes.append(made)
        return made

    def _record(self, schema: Mapping[str, Any]) -> _Node:
        name = str(schema["name"])
        known = self._known.get(name)
        if known is not None:
            return known
        names = sum(_FIELD + len(each["name"]) for each in schema["fields"])  # each row has them as JSON
        made = self._known[name] = _Node("record", _OBJECT + names)
        made.parts = [self._node(each["type"]) for each in schema["fields"]]
        self._nodes.append(made)
        return made

    def _primitive_or_named(self, kind: str, schema: Any) -> _Node:
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        own = _OBJECT if logical is None else _LOGICAL
        if kind in _SIZES:
            made = _Node("plain", own, _SIZES[kind])
        elif kind == "fixed":
            if logical == "decimal" and int(schema["size"]) > _DECIMAL_BYTES_MAX:
                raise _refused(f"a decimal has more than {_DECIMAL_BYTES_MAX} bytes")
            made = _Node("plain", own + _PER_BYTE * int(schema["size"]), int(schema["size"]))
        elif kind == "enum":
            made = _Node("varint", own + _PER_BYTE * max(map(len, schema["symbols"]), default=0))
        elif kind in _VARINTS:
            made = _Node("varint", own)
        elif kind in ("bytes", "string"):
            made = _Node("bytes", own, _DECIMAL_BYTES_MAX if logical == "decimal" else 0)
        elif kind in self._known:
            return self._known[kind]
        else:
            return self._node(self._named[kind])
        self._nodes.append(made)
        return made

    def _find_least(self) -> None:
        """Finds the smallest values; each pass finds those that the pass before has made possible."""
        for _ in range(_PASSES_MAX):
            is_changed = False
            for node in self._nodes:
                least = _least(node)
                is_changed = is_changed or least != node.least
                node.least = least
            if not is_changed:
                return
        raise RecursionError

    def _measure(self, node: _Node, within: set[int]) -> None:
        """Finds the memory of a type; it has no bound for each byte where the type contains itself."""
        if id(node) in within:
            node.per_byte = math.inf
            return
        if node.memory >= 0:
            return
        within.add(id(node))
        for part in node.parts:
            self._measure(part, within)
        within.discard(id(node))
        memories = [max(part.memory, 0) for part in node.parts]
        node.depth = max((part.depth for part in node.parts), default=0) + (node.kind != "union")
        per_byte = max([node.per_byte, *(part.per_byte for part in node.parts)])
        node.memory = node.own
        if node.kind == "record":
            node.memory += sum(memories)
        elif node.kind == "union":
            node.memory += max(memories, default=0)
        elif node.kind == "bytes":
            per_byte = _PER_DECIMAL_BYTE if node.size else _PER_BYTE
        elif node.kind in ("array", "map"):
            least = node.parts[0].least + (node.kind == "map")
            item = memories[0] + (_FIELD + _OBJECT if node.kind == "map" else 0)
            per_byte = max(per_byte, _PER_BYTE) + item / least if least else math.inf
        node.per_byte = per_byte


def _least(node: _Node) -> float:
    if node.kind == "plain":
        return node.size
    if node.kind == "record":
        return sum(part.least for part in node.parts)
    if node.kind == "union":
        return 1 + min((part.least for part in node.parts), default=math.inf)
    return 1


def _refused(reason: str) -> InvalidInputError:
    return InvalidInputError(reason, kind="schema")


class _Walk:
    """The walk over one value."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._left: float = MEMORY_MAX

    def over(self, node: _Node, depth: int) -> None:
        """Passes a value of a type.

        Raises:
            ValueBoundsError: it takes too much memory, or is nested too deep.
            EOFError: the bytes end before the value does, or they are none of the schema.
        """
        while node.kind == "union":
            node = self._branch(node)
        if not node.least:  # all of its values are alike
            self._take(node.memory)
            return
        self._take(node.own)
        kind = node.kind
        if kind == "varint":
            self._varint()
        elif kind == "plain":
            self._pass(node.size)
        elif kind == "bytes":
            self._text(node.size)
        elif depth >= DEPTH_MAX:
            raise ValueBoundsError("the value is nested too deep", kind="data_quality")
        elif kind == "record":
            for part in node.parts:
                self.over(part, depth + 1)
        else:
            self._items(node, depth + 1)

    def _items(self, node: _Node, depth: int) -> None:
        item, is_map = node.parts[0], node.kind == "map"
        while count := self._varint():
            if count < 0:
                count = -count
                self._varint()  # the bytes of the block
            if not item.least and not is_map:
                self._take(count * (item.memory + 8))
                continue
            for _ in range(count):
                if is_map:
                    self._take(_FIELD + _OBJECT)
                    self._text()
                self.over(item, depth)

    def _branch(self, node: _Node) -> _Node:
        number = self._varint()
        if not 0 <= number < len(node.parts):
            raise EOFError
        return node.parts[number]

    def _text(self, most: int = 0) -> None:
        size = self._varint()
        if most and size > most:
            raise ValueBoundsError(
                f"a decimal has {size} bytes, expected {most} at most", kind="data_quality"
            )
        begin = self._at
        self._pass(size)
        self._take(size if size < _OBJECT or self._data[begin : self._at].isascii() else size * _PER_BYTE)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            if self._at >= len(self._data) or shift >= 7 * _VARINT_BYTES_MAX:
                raise EOFError
            octet = self._data[self._at]
            self._at += 1
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                value &= (1 << 64) - 1
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def _pass(self, size: int) -> None:
        if size < 0 or size > len(self._data) - self._at:
            raise EOFError
        self._at += size

    def _take(self, memory: float) -> None:
        self._left -= memory
        if self._left < 0:
            raise ValueBoundsError(
                f"the value takes more than {MEMORY_MAX >> 20} MB of memory", kind="data_quality"
            )
