"""Blocks of whole lines, and their lines as Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.source import Place, shown
from seqstore.store.errors import InvalidInputError

BLOCK_BYTES: Final = 2 << 20
LINE_BYTES_MAX: Final = 100 << 20
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Whole lines of the body, or all of it; `line` is the number of its first line."""

    data: bytes
    line: int

    @cached_property
    def lines(self) -> list[bytes]:
        return self.data.split(b"\n")


def read_blocks(body: BinaryIO, delimiter: bytes, block_bytes: Callable[[], int]) -> Iterator[Block]:
    """Yields whole lines of a body, without a byte order mark.

    Args:
        block_bytes: returns the size of the next block, about.

    Raises:
        InvalidInputError: a line is too long.
    """
    rest, line, wanted = b"", 1, block_bytes()
    while True:
        piece = body.read(wanted)
        data = rest + piece
        if line == 1:
            data = data.removeprefix(b"\xef\xbb\xbf")
        last = data.rfind(delimiter)
        end = len(data) if not piece else last + len(delimiter) if last >= 0 else 0
        block, rest = data[:end], data[end:]
        longer = min(len(rest), LINE_BYTES_MAX - len(rest) + 1)
        wanted = block_bytes() if end else max(block_bytes(), longer)
        if len(rest) > LINE_BYTES_MAX:
            raise InvalidInputError(
                f"line {line} is longer than {LINE_BYTES_MAX >> 20} MB", kind="data_quality"
            )
        is_end = not piece
        del piece, data
        if block:
            yield Block(block, line)
            line += block.count(delimiter)
        if is_end:
            return


def with_newlines(block: bytes, delimiter: bytes) -> bytes | None:
    """Returns the block with line ends instead of delimiters; None if it has others."""
    if delimiter == b"\n":
        return block
    lines = block.replace(delimiter, b"\n")
    return lines if lines.count(b"\n") == block.count(delimiter) else None


def cut_lines(block: bytes, delimiter: bytes) -> tuple[pa.Array, Positions]:
    """Returns the lines that are not blank, each with its end, in place; and their numbers from 0."""
    if delimiter != b"\n":
        texts = block.split(delimiter)
        places = [number for number, text in enumerate(texts) if text.strip()]
        return pa.array([texts[number] for number in places], pa.binary()), np.array(places, np.int64)
    ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")) + 1
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    lines = pa.Array.from_buffers(
        pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(block)], null_count=0
    )
    numbers = np.flatnonzero(~pc.ascii_is_space(lines.view(pa.string())).to_numpy(zero_copy_only=False))
    return (lines if len(numbers) == len(lines) else lines.take(pa.array(numbers))), numbers


def place_of(documents: pa.Array, lines: Positions, number: int) -> Place:
    return Place(int(lines[number]), shown(documents[number].as_py().rstrip(b"\n")))
