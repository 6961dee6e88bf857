"""The pages of an LMDB data file, checked before LMDB uses them.

LMDB has no checksums. A wrong bit in a page hides records, shows old ones, or ends the process (an assertion,
SIGSEGV, SIGBUS). So a file is read through when it is opened, with reads instead of a map:

1. Both heads (meta pages) must be whole, and their transactions must follow each other: LMDB writes them in
   turn. This is checked before LMDB opens the file.
2. A read transaction pins a version. Its head has the roots of two trees: of free pages, and of the named
   databases. Each leaf of the second holds the root of a further tree.
3. Every tree is walked. Each page must carry its own number and the kind of its depth; its nodes must fill
   its end without a gap; keys must ascend, within the bounds of the branch above. Counts of pages and entries
   must be those that the root states.
4. Every page of the file must be in exactly one place: a tree, or the list of free pages. A pointer to an old
   copy of a page is found by this.
5. Every record must match its checksum, which covers its key.

Pages that no tree refers to may be missing from the end of the file: LMDB had freed them before they were
ever written.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import lmdb

PAGE: Final = struct.Struct("<QHHHH")  # number, padding, flags, end of the node pointers, start of the nodes
NODE: Final = struct.Struct("<HHHH")  # two halves of a size or a page number, flags, bytes of the key
_TREE: Final = struct.Struct("<IHHQQQQQ")  # padding, flags, depth, three counts of pages, entries, root
_META: Final = struct.Struct("<IIQQ")  # magic, version, address, size of the map; then two trees
_LAST: Final = struct.Struct("<QQ")  # last page, transaction
_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
BRANCH, LEAF, OVERFLOW, _HEAD = 1, 2, 4, 8
BIG_DATA, SUB_TREE = 1, 2
_INTEGER_KEYS: Final = 8
_ONE_FILE: Final = 0x4000  # a persistent flag of environments that are a file, not a directory
NO_ROOT: Final = 2**64 - 1
KEY_BYTES_MAX: Final = 511
DEPTH_MAX: Final = 32
_TRIES: Final = 20
_PAUSE_SECONDS: Final = 0.005

# Verifies a record: name of the database, key, value. Raises an error that names the record.
VerifyRecord = Callable[[str, bytes, bytes], object]


@dataclass(frozen=True)
class Tree:
    """What a root states about its tree."""

    padding: int
    flags: int
    depth: int
    branches: int
    leaves: int
    overflows: int
    entries: int
    root: int

    @classmethod
    def read(cls, data: bytes) -> Tree:
        if len(data) != _TREE.size:
            raise ValueError(f"a tree has {len(data)} bytes, expected {_TREE.size}")
        return cls(*_TREE.unpack(data))


@dataclass(frozen=True)
class Head:
    """One meta page."""

    transaction: int
    last_page: int
    page_bytes: int
    free: Tree
    main: Tree


def check_heads(path: Path) -> None:
    """Checks both meta pages of a data file; no-op for one that LMDB has yet to fill.

    A writer may be changing one of them, so they are read again before they count as damaged.

    Raises:
        ValueError: a head is damaged; the message names it.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            _heads(path)
            return
        except ValueError:
            if not tries_left:
                raise
            time.sleep(_PAUSE_SECONDS)


def _heads(path: Path) -> list[Head]:
    try:
        with path.open("rb", buffering=0) as file:
            start = file.read(PAGE.size + _META.size + 4)
            if not start:
                return []
            if len(start) < PAGE.size + _META.size + 4:
                raise ValueError(f"it has {len(start)} bytes")
            page_bytes = int.from_bytes(start[-4:], "little")
            both = _sized(file.fileno(), page_bytes) if _is_page_size(page_bytes) else b""
            if not both:  # the first head is damaged, or this is no file of LMDB
                for guess in (4096, 8192, 16384, 32768, 65536):
                    second = os.pread(file.fileno(), 4, guess + PAGE.size)
                    if int.from_bytes(second, "little") == _MAGIC:
                        raise ValueError("the head in page 0 is damaged")
                return []
    except FileNotFoundError:
        return []
    pages = [both[:page_bytes], both[page_bytes:]]
    magics = [int.from_bytes(page[PAGE.size : PAGE.size + 4], "little") for page in pages]
    if _MAGIC not in magics:
        return []  # LMDB refuses it
    heads = [read_head(number, page) for number, page in enumerate(pages)]
    transactions = [head.transaction for head in heads]
    even, odd = transactions
    in_turn = abs(even - odd) == 1 and even % 2 == 0
    if transactions != [0, 0] and not in_turn:
        raise ValueError(f"its heads are of transactions {even} and {odd}, which do not follow each other")
    if heads[0].page_bytes != heads[1].page_bytes:
        raise ValueError("its heads state different sizes of pages")
    return heads


def _is_page_size(size: int) -> bool:
    return 512 <= size <= 65536 and size & (size - 1) == 0


def _sized(file: int, page_bytes: int) -> bytes:
    both = os.pread(file, 2 * page_bytes, 0)
    return both if len(both) == 2 * page_bytes else b""


def read_head(number: int, page: bytes) -> Head:
    found, _, flags, _, _ = PAGE.unpack_from(page)
    magic, version, address, map_bytes = _META.unpack_from(page, PAGE.size)
    at = PAGE.size + _META.size
    free, main = (Tree(*_TREE.unpack_from(page, at + i * _TREE.size)) for i in (0, 1))
    last_page, transaction = _LAST.unpack_from(page, at + 2 * _TREE.size)
    sound = (
        (found, flags, magic, version, address) == (number, _HEAD, _MAGIC, _VERSION, 0)
        and free.flags & ~_ONE_FILE == _INTEGER_KEYS
        and (main.flags, main.padding) == (0, 0)
        and 1 <= last_page < map_bytes // max(free.padding, 1)
    )
    if not sound:
        raise ValueError(f"the head in page {number} is damaged")
    return Head(transaction, last_page, free.padding, free, main)


def check_pages(env: lmdb.Environment, path: Path, verify: VerifyRecord) -> int:
    """Reads every page and every record of the newest version of an environment.

    Args:
        path: of the data file.
        verify: called for the records of all named databases.

    Returns:
        The bytes that the file needs.

    Raises:
        ValueError: a page is missing or is not the one that was referred to; the message names it.
    """
    for _ in range(_TRIES):
        with env.begin() as txn:
            check_heads(path)
            heads = [head for head in _heads_if_sound(path) if head.transaction == txn.id()]
            if heads:
                return _check(path, heads[0], verify)
        time.sleep(_PAUSE_SECONDS)  # other processes have replaced the head by two later ones meanwhile
    raise ValueError("its heads are not those that LMDB has read")


def _heads_if_sound(path: Path) -> list[Head]:
    try:
        return _heads(path)
    except ValueError:  # a writer is changing one
        return []


def _check(path: Path, head: Head, verify: VerifyRecord) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        pages = _Pages(descriptor, head, verify)
        pages.walk_free_list(head.free)
        pages.walk(head.main, "")
        pages.check_all_found()
    finally:
        os.close(descriptor)
    return (head.last_page + 1) * head.page_bytes


class _Pages:
    """The pages of one version of a data file."""

    def __init__(self, file: int, head: Head, verify: VerifyRecord) -> None:
        self._file = file
        self._page_bytes = head.page_bytes
        self._last = head.last_page
        self._verify = verify
        self._seen = bytearray(head.last_page + 1)  # 1: in a tree, 2: free
        self._seen[0:2] = b"\1\1"
        self._counts = [0, 0, 0]

    def walk(self, tree: Tree, name: str) -> None:
        """Reads a tree and the trees whose roots its leaves hold.

        Args:
            name: of the database, empty for the tree of the named databases.
        """
        if (tree.flags, tree.padding) != (0, 0):
            raise ValueError(f"the root of {name!r} has flags {tree.flags:#x}")
        roots = []
        for key, value, flags in self._entries(tree, name):
            if name:
                if flags == SUB_TREE:
                    raise ValueError(f"a record of {name!r} is a tree")
                self._verify(name, key, value)
            elif flags != SUB_TREE:
                raise ValueError(f"the root of database {key!r} is no tree")
            else:
                roots.append((key.decode(), Tree.read(value)))
        for below, root in roots:
            self.walk(root, below)

    def walk_free_list(self, tree: Tree) -> None:
        """Reads the tree of free pages and notes the pages."""
        for key, value, flags in self._entries(tree, "free pages", is_integer=True):
            count = int.from_bytes(value[:8], "little")
            if flags == SUB_TREE or len(key) != 8 or len(value) != 8 * (count + 1):
                raise ValueError("the list of free pages is damaged")
            for (number,) in struct.iter_unpack("<Q", value[8:]):
                self._note(number, 2)

    def check_all_found(self) -> None:
        """Checks that every page is in a tree or free."""
        lost = self._seen.find(0)
        if lost >= 0:
            raise ValueError(f"page {lost} is neither in a tree nor free")

    def _entries(
        self, tree: Tree, name: str, *, is_integer: bool = False
    ) -> Iterator[tuple[bytes, bytes, int]]:
        """Yields key, value and flags of each entry, and checks what the root states."""
        self._counts = counts = [0, 0, 0]
        entries = 0
        if tree.root == NO_ROOT:
            if (tree.depth, tree.entries) != (0, 0):
                raise ValueError(f"{name!r} has no root and {tree.entries} entries")
        elif not 1 <= tree.depth <= DEPTH_MAX:
            raise ValueError(f"{name!r} has a tree of depth {tree.depth}")
        else:
            before: bytes | None = None
            for key, value, flags in self._leaves(tree.root, tree.depth, is_integer=is_integer):
                ordered = key[::-1] if is_integer else key  # integers are little-endian
                if before is not None and before >= ordered:
                    raise ValueError(f"keys of {name!r} do not ascend")
                before = ordered
                entries += 1
                yield key, value, flags
        stated = (tree.branches, tree.leaves, tree.overflows, tree.entries)
        if stated != (*counts, entries):
            raise ValueError(f"{name!r} has {(*counts, entries)} pages and entries, and states {stated}")

    def _leaves(
        self, number: int, height: int, *, is_integer: bool, low: bytes = b"", high: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes, int]]:
        """Yields the entries below a page; keys must be from `low` and before `high`."""
        counts = self._counts
        page = self._page(number, LEAF if height == 1 else BRANCH)
        counts[0 if height > 1 else 1] += 1
        places = self._nodes(number, page, is_branch=height > 1)
        if height == 1:
            for place in places:
                least, most, flags, size = NODE.unpack_from(page, place)
                start = place + NODE.size
                key, length = page[start : start + size], least | most << 16
                bound = key[::-1] if is_integer else key
                if bound < low or (high is not None and bound >= high) or flags not in (0, 1, 2):
                    raise ValueError(
                        f"page {number} has a key that does not belong there, or flags {flags:#x}"
                    )
                start += size
                value = page[start : start + (8 if flags == BIG_DATA else length)]
                if flags == BIG_DATA:
                    value = self._large_value(int.from_bytes(value, "little"), length)
                yield key, value, flags
            return
        if len(places) < 2 and not is_integer:
            raise ValueError(f"branch page {number} has {len(places)} children")
        children = []
        for i, place in enumerate(places):
            least, most, top, size = NODE.unpack_from(page, place)
            key = page[place + NODE.size : place + NODE.size + size]
            bound = low if i == 0 else (key[::-1] if is_integer else key)
            children.append((bound, least | most << 16 | top << 32))
        bounds = [bound for bound, _ in children]
        if any(a >= b for a, b in pairwise(bounds[1:])) or any(b < low for b in bounds):
            raise ValueError(f"keys of branch page {number} do not ascend")
        ends = [*bounds[1:], high]
        for (bound, child), end in zip(children, ends, strict=True):
            yield from self._leaves(child, height - 1, is_integer=is_integer, low=bound, high=end)

    def _note(self, number: int, use: int) -> None:
        if not 2 <= number <= self._last:
            raise ValueError(f"page {number} is referred to, and the last page is {self._last}")
        if self._seen[number]:
            raise ValueError(f"page {number} is referred to twice")
        self._seen[number] = use

    def _page(self, number: int, kind: int) -> bytes:
        self._note(number, 1)
        page = os.pread(self._file, self._page_bytes, number * self._page_bytes)
        if len(page) < self._page_bytes:
            raise ValueError(f"page {number} is missing")
        found, _, flags, _, _ = PAGE.unpack_from(page)
        if found != number or flags != kind:
            raise ValueError(f"page {number} is page {found} with flags {flags:#x}, expected kind {kind}")
        return page

    def _nodes(self, number: int, page: bytes, *, is_branch: bool) -> list[int]:
        """Returns the places of the nodes; they fill the end of the page without a gap."""
        _, _, _, lower, upper = PAGE.unpack_from(page)
        if lower % 2 or not PAGE.size < lower <= upper <= len(page):
            raise ValueError(
                f"page {number} has {lower} bytes of header and pointers, and nodes from {upper}"
            )
        places = list(struct.unpack_from(f"<{(lower - PAGE.size) // 2}H", page, PAGE.size))
        end = upper
        for place in sorted(places):
            if place != end or place + NODE.size > len(page):
                raise ValueError(f"page {number} has a node at {place}, expected one at {end}")
            least, most, flags, key_bytes = NODE.unpack_from(page, place)
            size = 0 if is_branch else 8 if flags & BIG_DATA else least | most << 16
            if key_bytes > KEY_BYTES_MAX:
                raise ValueError(f"page {number} has a key of {key_bytes} bytes")
            end = place + NODE.size + key_bytes + size
            end += end % 2
        if end != len(page):
            raise ValueError(f"page {number} has nodes up to {end}, expected {len(page)}")
        return places

    def _large_value(self, number: int, length: int) -> bytes:
        page = self._page(number, OVERFLOW)
        pages = int.from_bytes(page[12:16], "little")
        expected = (PAGE.size - 1 + length) // self._page_bytes + 1
        if pages != expected:
            raise ValueError(f"page {number} begins {pages} pages, expected {expected}")
        for other in range(number + 1, number + pages):
            self._note(other, 1)
        self._counts[2] += pages
        value = os.pread(self._file, length, number * self._page_bytes + PAGE.size)
        if len(value) < length:
            raise ValueError(f"pages {number} to {number + pages - 1} are missing")
        return value
