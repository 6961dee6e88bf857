"""The pages of an LMDB data file, checked without LMDB, which ends the process at a page that is not there.

1. A read transaction pins a snapshot. The meta page of that snapshot has the roots of two trees: of free
   pages, and of the named databases. Each leaf of the second may hold the root of a further tree.
2. Every tree is walked from its root with reads of the file, not of a map. Each page must lie within the file
   and carry its own number and the kind that its depth requires; its nodes must lie within it.

Pages that no tree refers to may be missing: LMDB had freed them before they were ever written.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Final

import lmdb

_PAGE: Final = struct.Struct("<QHHHH")  # number, padding, flags, end of the node pointers, start of the nodes
_NODE: Final = struct.Struct("<HHHH")  # two halves of a size or a page number, flags, bytes of the key
_TREE: Final = struct.Struct("<IHHQQQQQ")  # padding, flags, depth, three counts of pages, entries, root
_META: Final = struct.Struct("<IIQQ")  # magic, version, address, size of the map; then two trees
_LAST: Final = struct.Struct("<QQ")  # last page, transaction
_MAGIC: Final = 0xBEEFC0DE
_BRANCH, _LEAF, _OVERFLOW = 1, 2, 4
_KINDS: Final = _BRANCH | _LEAF | _OVERFLOW
_BIG_DATA, _SUB_TREE = 1, 2
_NO_ROOT: Final = 2**64 - 1


def check_pages(env: lmdb.Environment, file: int) -> None:
    """Reads every page that the newest version of an environment refers to.

    Args:
        file: descriptor of the data file.

    Raises:
        ValueError: a page is missing or is not the one that was referred to; the message names it.
    """
    page_bytes = env.stat()["psize"]
    with env.begin() as txn:
        pages = _Pages(file, page_bytes)
        for tree in pages.roots(txn.id()):
            pages.walk(tree)


class _Pages:
    """The pages of one data file."""

    def __init__(self, file: int, page_bytes: int) -> None:
        self._file = file
        self._page_bytes = page_bytes
        self._unread = os.fstat(file).st_size // page_bytes

    def roots(self, transaction: int) -> list[bytes]:
        """Returns the records of the two trees of a version."""
        for number in (0, 1):
            page = os.pread(self._file, self._page_bytes, number * self._page_bytes)
            start = _PAGE.size + _META.size
            end = start + 2 * _TREE.size
            if len(page) < end + _LAST.size or _META.unpack_from(page, _PAGE.size)[0] != _MAGIC:
                continue
            if _LAST.unpack_from(page, end)[1] == transaction:
                return [page[start : start + _TREE.size], page[start + _TREE.size : end]]
        raise ValueError(f"no meta page has transaction {transaction}")

    def walk(self, tree: bytes) -> None:
        """Reads a tree and the trees whose roots its leaves hold."""
        if len(tree) < _TREE.size:
            raise ValueError(f"a tree has {len(tree)} bytes, expected {_TREE.size}")
        _, _, depth, _, _, _, _, root = _TREE.unpack(tree)
        level = [] if root == _NO_ROOT else [root]
        for height in range(depth, 0, -1):
            below: list[int] = []
            for number in level:
                page = self._page(number, _LEAF if height == 1 else _BRANCH)
                for size, flags, value in self._nodes(number, page):
                    if height > 1:
                        below.append(size | flags << 32)
                    elif flags & _SUB_TREE:
                        self.walk(value)
                    elif flags & _BIG_DATA:
                        self._large_value(int.from_bytes(value[:8], "little"))
            level = below

    def _page(self, number: int, kind: int) -> bytes:
        page = os.pread(self._file, self._page_bytes, number * self._page_bytes)
        if len(page) < self._page_bytes:
            raise ValueError(f"page {number} is missing")
        self._unread -= 1
        if self._unread < 0:
            raise ValueError(f"page {number} is referred to by several pages")
        found, _, flags, _, _ = _PAGE.unpack_from(page)
        if found != number or flags & _KINDS != kind:
            raise ValueError(f"page {number} is page {found} with flags {flags:#x}, expected kind {kind}")
        return page

    def _nodes(self, number: int, page: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yields size and flags of each node (in a branch: its page number), and the start of its value."""
        end = _PAGE.unpack_from(page)[3]
        if not _PAGE.size <= end <= len(page):
            raise ValueError(f"page {number} has {end} bytes of header and pointers")
        for (place,) in struct.iter_unpack("<H", page[_PAGE.size : end]):
            if not end <= place <= len(page) - _NODE.size:
                raise ValueError(f"page {number} has a node at {place}")
            low, high, flags, key_bytes = _NODE.unpack_from(page, place)
            value = place + _NODE.size + key_bytes
            yield low | high << 16, flags, page[value : value + _TREE.size]

    def _large_value(self, number: int) -> None:
        page = self._page(number, _OVERFLOW)
        pages = int.from_bytes(page[12:16], "little")
        last = (number + pages) * self._page_bytes
        if pages == 0 or os.fstat(self._file).st_size < last:
            raise ValueError(f"pages {number} to {number + pages - 1} are missing")
