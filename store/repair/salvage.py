"""Records of a damaged data file: everything that its trees still hold, and what lies beside them.

1. Each head (meta page) is read as far as it goes; the newest whose trees can be entered is used. Free pages
   are kept under the number of the transaction that freed them, so the largest number dates a head whose own
   number is damaged.
2. The trees are walked as LMDB walks them. A page that is not the one that was referred to, or that is free,
   is left out: the keys that it should have are noted as lost. Only records that match their checksum count;
   one flipped bit of a page or of a record is corrected.
3. Pages that no tree has, and that are not free, are searched for nodes whose record matches its checksum.
   The checksum covers database and key, so a record of format 2 proves its own place. Those are used for lost
   keys.
4. If the newest head is unreadable, the head before it is used, and records of tables are searched in all
   pages: the newer of two counts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Final

import msgpack

from seqstore.store.catalog.catalog import DATABASES, FORMATS, verify
from seqstore.store.catalog.environment.page_check import (
    BIG_DATA,
    BRANCH,
    DEPTH_MAX,
    KEY_BYTES_MAX,
    LEAF,
    NO_ROOT,
    NODE,
    OVERFLOW,
    PAGE,
    SUB_TREE,
    Head,
    Tree,
    read_head,
)
from seqstore.store.errors import StoreError

_FREE: Final = ""  # name of the tree of free pages
_MAIN: Final = "."  # name of the tree of named databases
_FORMAT_AT: Final = 8  # byte of a record
_PAGE_BYTES: Final = 4096
_CORRECTED_BYTES_MAX: Final = 4096
_CORRECTED_PAGES_MAX: Final = 4
_NODES_MAX: Final = 256
# Databases whose records belong to tables or count upwards: a newer record can be told from an older one.
_OF_TABLES: Final = frozenset(
    (
        "heads",
        "versions",
        "segments",
        "inline",
        "bitmaps",
        "schemas",
        "txns",
        "labels",
        "counters",
        "meta",
        "apps",
    )
)
_AGES: Final[dict[str, Callable[[Any], Any]]] = {
    "meta": lambda value: value if isinstance(value, int) else 0,
    "heads": lambda value: value[0],
    "txns": lambda value: (value["finished_ms"], value["precommitted_ms"], value["begun_ms"]),
    "segments": lambda value: value["dropped"],
    "counters": lambda value: value,
    "apps": lambda value: value["version"],
    "labels": lambda value: value,
}


@dataclass
class Salvage:
    """The records of a data file.

    Attributes:
        records: packed, by database and key.
        lost: by database, ranges of keys (the end is None for the last key) that may have had more records.
        others: packed records of `bitmaps` that were found beside the trees, by key.
        entries: by database, how many records its root states.
        lacks_newest: the newest head is lost, so the last transaction may be as well.
    """

    records: dict[str, dict[bytes, bytes]] = field(default_factory=lambda: {name: {} for name in DATABASES})
    lost: dict[str, list[tuple[bytes, bytes | None]]] = field(default_factory=dict)
    others: dict[bytes, list[bytes]] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    lacks_newest: bool = False

    @property
    def is_whole(self) -> bool:
        return not self.lost and not self.lacks_newest

    @property
    def is_empty(self) -> bool:
        return not any(self.records.values())

    def may_lack(self, database: str, key: bytes) -> bool:
        """Returns whether the file may have had a record that is lost."""
        return _is_within(self.lost.get(database, ()), key)

    def may_lack_below(self, database: str, prefix: bytes) -> bool:
        """Returns whether records with some prefix of their key may be lost."""
        return any(
            low[: len(prefix)] <= prefix and (high is None or prefix < high or high.startswith(prefix))
            for low, high in self.lost.get(database, ())
        )

    def keep(self, database: str, key: bytes, data: bytes) -> bool:
        """Keeps a record from elsewhere, unless a newer one is known; returns whether it was kept."""
        if database == "bitmaps":
            self.others.setdefault(key, []).append(data)
        known, age = self.records[database].get(key), _AGES.get(database)
        if known is None or (age is not None and age(_value(data)) > age(_value(known))):
            self.records[database][key] = data
            return True
        return False

    def all_lost(self) -> Salvage:
        """Notes that any record may be missing."""
        self.lost = {name: [(b"", None)] for name in DATABASES}
        return self


def salvage(path: Path) -> Salvage:
    """Reads what is left of a data file; a missing file has lost all records.

    Raises:
        OSError: the medium cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    walks = [_Walk(data, head) for head in _heads(data)]
    entered = [walk for walk in walks if walk.is_entered]
    if not entered:
        walk = _Walk(data, None)
        found = walk.found.all_lost()
        found.lacks_newest = True
        _search(walk, found, everything=True)
        return found
    newest = max(entered, key=lambda walk: walk.transaction)
    found = newest.found
    found.lacks_newest = len(entered) < 2 and _is_behind(data, newest)
    if found.lacks_newest:
        for name in _OF_TABLES:
            found.lost[name] = [(b"", None)]
    if not found.is_whole:
        _search(newest, found, everything=found.lacks_newest)
    return found


def _heads(data: bytes) -> Iterator[Head]:
    """Yields the heads whose trees are where a head has them, whatever else is wrong with it."""
    for number, page_bytes in ((0, 0), (1, _page_bytes(data))):
        page = data[number * page_bytes : number * page_bytes + _PAGE_BYTES]
        try:
            yield read_head(number, page)
        except (ValueError, struct.error):
            repaired = _likely_head(number, page)
            if repaired is not None:
                yield repaired


def _page_bytes(data: bytes) -> int:
    stated = int.from_bytes(data[40:44], "little")
    return stated if stated in (4096, 8192, 16384, 32768, 65536) else _PAGE_BYTES


def _likely_head(number: int, page: bytes) -> Head | None:
    """Reads a damaged head by its place."""
    start = PAGE.size + 24
    if len(page) < start + 2 * 48 + 16:
        return None
    free, main = (Tree.read(page[start + i * 48 : start + (i + 1) * 48]) for i in (0, 1))
    last_page, transaction = struct.unpack_from("<QQ", page, start + 96)
    return Head(transaction, last_page, _PAGE_BYTES, free, main)


def _is_behind(data: bytes, walk: _Walk) -> bool:
    """Returns whether the other head, which cannot be read, was that of a later transaction."""
    other = 1 - walk.transaction % 2
    at = other * walk.page_bytes + PAGE.size + 24 + 96 + 8
    stated = int.from_bytes(data[at : at + 8], "little") if len(data) >= at + 8 else 0
    return stated == walk.transaction + 1 or stated not in (walk.transaction - 1, 0)


@dataclass(frozen=True)
class _Place:
    """Where a page stands in a tree: its number, its height, and the bounds of its keys."""

    number: int
    depth: int
    name: str
    low: bytes
    high: bytes | None


class _Walk:
    """A tolerant walk through the trees of one head."""

    def __init__(self, data: bytes, head: Head | None) -> None:
        self.found = Salvage()
        self.is_entered = False
        self.page_bytes = head.page_bytes if head is not None else _page_bytes(data)
        self.free: set[int] = set()
        self.seen: set[int] = set()
        self.near: dict[str, list[tuple[bytes, bytes | None]]] = {}  # ranges in which lost pages are searched
        self.transaction = head.transaction if head is not None else 0
        self._data = data
        self._corrections = _CORRECTED_PAGES_MAX
        if head is not None:
            self._run(head)

    @property
    def pages(self) -> int:
        return len(self._data) // self.page_bytes

    def page(self, number: int) -> bytes:
        return self._data[number * self.page_bytes : (number + 1) * self.page_bytes]

    def _run(self, head: Head) -> None:
        freed = []
        for key, value, _ in self._entries(head.free, _FREE):
            freed.append(int.from_bytes(key, "little"))
            self.free.update(number for (number,) in struct.iter_unpack("<Q", value[8 : len(value) // 8 * 8]))
        is_sound = not self.found.lost.pop(_FREE, None)
        if freed and is_sound and max(freed) <= head.transaction + 1:
            self.transaction = max(self.transaction if self.transaction == max(freed) else 0, max(freed))
        roots = {}
        for key, value, flags in self._entries(head.main, _MAIN):
            if flags == SUB_TREE and len(value) == 48:
                roots[key] = Tree.read(value)
        is_lost = self.found.lost.pop(_MAIN, None) is not None
        for name in DATABASES:
            root = roots.get(name.encode())
            if root is None:
                if is_lost:
                    self._lose(name, b"", None)
                continue
            self.is_entered = True
            self._read(name, root)

    def _read(self, name: str, root: Tree) -> None:
        kept, count, before = self.found.records[name], 0, b""
        self.found.entries[name] = root.entries
        unsure: bytes | None = None
        for key, value, _ in self._entries(root, name):
            count += 1
            if unsure is not None:
                self._lose(name, unsure, key)
                unsure = None
            sound = (key, value) if _is_sound(name, key, value) else _corrected(name, key, value)
            if sound is not None:
                kept[sound[0]] = sound[1]
                before = sound[0]
            else:
                unsure = before
        if unsure is not None:
            self._lose(name, unsure, None)
        if count != root.entries and name not in self.found.lost:
            self._lose(name, b"", None)

    def _lose(self, name: str, low: bytes, high: bytes | None) -> None:
        self.found.lost.setdefault(name, []).append((low, high))

    def _entries(self, tree: Tree, name: str) -> Iterator[tuple[bytes, bytes, int]]:
        if tree.root == NO_ROOT:
            if tree.entries or tree.depth:
                self._lose(name, b"", None)
            return
        if not 1 <= tree.depth <= DEPTH_MAX:
            self._lose(name, b"", None)
            return
        yield from self._leaves(tree.root, tree.depth, name, b"", None)

    def _leaves(
        self, number: int, depth: int, name: str, low: bytes, high: bytes | None
    ) -> Iterator[tuple[bytes, bytes, int]]:
        """Yields the nodes below a page in order; notes the range of a page that is not the right one."""
        place = _Place(number, depth, name, low, high)
        nodes = None
        if number not in self.free and number not in self.seen:
            nodes = self._nodes(self.page(number), place)
            if nodes is None or not self._is_plausible(nodes, place):
                nodes = self._corrected_nodes(place) or nodes
        if nodes is None:
            self._lose(name, low, high)
            return
        self.seen.add(number)
        if depth > 1:
            keys = [low, *(key for key, _, _ in nodes[1:])]
            ends: list[bytes | None] = [*keys[1:], high]
            before = len(self.found.lost.get(name, ()))
            for key, end, (_, child, _) in zip(keys, ends, nodes, strict=True):
                yield from self._leaves(int.from_bytes(child, "little"), depth - 1, name, key, end)
            if len(self.found.lost.get(name, ())) > before:  # a key between two children may be wrong
                self.near.setdefault(name, []).append((low, high))
            return
        for key, value, flags in nodes:
            yield key, self._large(value) if flags == BIG_DATA else value, flags

    def _nodes(self, page: bytes, at: _Place) -> list[tuple[bytes, bytes, int]] | None:
        """Returns the nodes of a page, None unless it is the right page and whole."""
        places = self._places(at.number, page, LEAF if at.depth == 1 else BRANCH)
        if not places:
            return None
        nodes = [self._node(page, place, is_branch=at.depth > 1) for place in places]
        keys = [key[::-1] if at.name == _FREE else key for key, _, _ in nodes]
        if at.depth > 1:
            keys[0] = at.low
        ordered = all(a < b for a, b in pairwise(keys))
        within = all(at.low <= key and (at.high is None or key < at.high) for key in keys)
        return nodes if ordered and within else None

    def _corrected_nodes(self, at: _Place) -> list[tuple[bytes, bytes, int]] | None:
        """Returns the nodes of a page with the one flipped bit corrected without which it is whole, None if
        there is no such bit, or if it has no records that tell."""
        page = bytearray(self.page(at.number))
        if not self._corrections or len(page) < self.page_bytes or at.number < 2 or at.name == _FREE:
            return None
        self._corrections -= 1
        seen = set(self.seen)
        for place, bit in product(_structure(page), range(8)):
            page[place] ^= 1 << bit
            nodes = self._nodes(bytes(page), at)
            page[place] ^= 1 << bit
            if nodes is not None and self._is_proved(nodes, at):
                return nodes
            self.seen = set(seen)  # large values of a wrong guess
        return None

    def _is_plausible(self, nodes: list[tuple[bytes, bytes, int]], at: _Place) -> bool:
        """Returns whether nodes need no other bit than one of a record, which its checksum tells."""
        if at.depth > 1 or at.name == _MAIN:
            return self._is_proved(nodes, at)
        if at.name == _FREE:
            return True
        seen = set(self.seen)
        records = [(key, self._large(value) if flags == BIG_DATA else value) for key, value, flags in nodes]
        self.seen = seen
        return all(
            _is_sound(at.name, key, value) or _corrected(at.name, key, value) is not None
            for key, value in records
        )

    def _is_proved(self, nodes: list[tuple[bytes, bytes, int]], at: _Place) -> bool:
        if at.depth > 1 and at.name == _FREE:
            return True
        if at.depth > 1:
            children = [int.from_bytes(child, "little") for _, child, _ in nodes]
            return all(1 < child < self.pages and child not in self.free for child in children)
        if at.name == _MAIN:
            return all(key.decode(errors="replace") in DATABASES for key, _, _ in nodes)
        return all(
            _is_sound(at.name, key, self._large(value) if flags == BIG_DATA else value)
            for key, value, flags in nodes
        )

    def _places(self, number: int, page: bytes, kind: int) -> list[int] | None:
        """Returns the places of the nodes of a page, None unless the page is whole."""
        if number < 2 or len(page) < self.page_bytes:
            return None
        found, _, flags, lower, upper = PAGE.unpack_from(page)
        if found != number or flags != kind or lower % 2 or not PAGE.size < lower <= upper <= len(page):
            return None
        places = list(struct.unpack_from(f"<{(lower - PAGE.size) // 2}H", page, PAGE.size))
        end = upper
        for place in sorted(places):
            if place != end or place + NODE.size > len(page):
                return None
            least, most, node_flags, key_bytes = NODE.unpack_from(page, place)
            size = 0 if kind == BRANCH else 8 if node_flags & BIG_DATA else least | most << 16
            if key_bytes > KEY_BYTES_MAX or (kind == LEAF and node_flags > SUB_TREE):
                return None
            end = place + NODE.size + key_bytes + size
            end += end % 2
        return places if end == len(page) else None

    def _node(self, page: bytes, place: int, *, is_branch: bool) -> tuple[bytes, bytes, int]:
        """Returns key, value and flags; as value a branch has a child, a large value its size and number."""
        least, most, flags, key_bytes = NODE.unpack_from(page, place)
        start = place + NODE.size
        key = page[start : start + key_bytes]
        if is_branch:
            return key, (least | most << 16 | flags << 32).to_bytes(8, "little"), 0
        length = least | most << 16
        if flags == BIG_DATA:
            return key, length.to_bytes(8, "little") + page[start + key_bytes : start + key_bytes + 8], flags
        return key, page[start + key_bytes : start + key_bytes + length], flags

    def _large(self, value: bytes) -> bytes:
        """Returns a value that has pages of its own, as far as they are there."""
        length, number = struct.unpack("<QQ", value)
        start = number * self.page_bytes
        pages = (PAGE.size - 1 + length) // self.page_bytes + 1
        self.seen.update(range(number, number + min(pages, self.pages)))
        if PAGE.unpack_from(self._data[start : start + PAGE.size].ljust(PAGE.size, b"\0"))[2] != OVERFLOW:
            return b""
        return self._data[start + PAGE.size : start + PAGE.size + length]

    def loose_nodes(self, *, everything: bool) -> Iterator[tuple[bytes, bytes]]:
        """Yields what may be keys and values in pages that no tree has."""
        for number in range(2, self.pages):
            if number in self.seen or (number in self.free and not everything):
                continue
            page = self.page(number)
            for place in range(PAGE.size, len(page) - NODE.size - 10, 2):
                least, most, flags, key_bytes = NODE.unpack_from(page, place)
                if flags > BIG_DATA or not 1 <= key_bytes <= KEY_BYTES_MAX:
                    continue
                start = place + NODE.size + key_bytes
                length = least | most << 16
                if flags == BIG_DATA and start + 8 <= len(page):
                    at = int.from_bytes(page[start : start + 8], "little") * self.page_bytes + PAGE.size
                    value = self._data[at : at + length]
                elif not flags and start + length <= len(page):
                    value = page[start : start + length]
                else:
                    continue
                if len(value) > _FORMAT_AT:
                    yield page[place + NODE.size : start], value


def _structure(page: bytes | bytearray) -> list[int]:
    """Returns the places in a page of everything but values: head, pointers, heads of nodes and keys."""
    pointers = [
        place
        for (place,) in struct.iter_unpack("<H", page[PAGE.size : len(page) // 2])
        if PAGE.size < place <= len(page) - NODE.size
    ]
    found = set(range(PAGE.size + 2 * len(pointers)))
    for place in pointers[:_NODES_MAX]:
        key_bytes = NODE.unpack_from(page, place)[3]
        found.update(range(place, min(place + NODE.size + min(key_bytes, KEY_BYTES_MAX), len(page))))
    return sorted(found)


def _is_within(ranges: Iterable[tuple[bytes, bytes | None]], key: bytes) -> bool:
    return any(low <= key and (high is None or key < high) for low, high in ranges)


def _is_sound(name: str, key: bytes, value: bytes) -> bool:
    try:
        verify(name, key, value)
    except StoreError:
        return False
    return True


def _corrected(name: str, key: bytes, value: bytes) -> tuple[bytes, bytes] | None:
    """Returns a record in which one bit was flipped as it was: the checksum tells which bit."""
    both = bytearray(key + value)
    if len(both) > _CORRECTED_BYTES_MAX or len(value) <= _FORMAT_AT:
        return None
    for bit in range(8 * len(both)):
        both[bit // 8] ^= 1 << bit % 8
        found = bytes(both[: len(key)]), bytes(both[len(key) :])
        if found[1][_FORMAT_AT] in FORMATS and _is_sound(name, *found):
            return found
        both[bit // 8] ^= 1 << bit % 8
    return None


def _search(walk: _Walk, found: Salvage, *, everything: bool) -> None:
    """Runs steps 3 and 4."""
    names = list(found.lost)
    for key, value in walk.loose_nodes(everything=everything):
        if value[_FORMAT_AT] == 1 and (everything or len(names) > 1):
            continue  # such a record does not prove its place
        for name in names:
            is_near = not everything and _is_within(walk.near.get(name, ()), key)
            if (is_near or found.may_lack(name, key)) and _is_sound(name, key, value):
                found.keep(name, key, value)


def _value(record: bytes) -> Any:
    return msgpack.unpackb(record[_FORMAT_AT + 1 :], strict_map_key=False)
