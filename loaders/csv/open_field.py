"""Texts that leave an enclosed field open: joined with others, such a text would swallow those behind it."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.csv.sentinel_bytes import SentinelBytes
from seqstore.loaders.headers import CsvOptions

LEFT_OPEN: Final = "a field that starts with the enclosing character {} is never closed"


def left_open(texts: pa.Array, options: CsvOptions) -> list[int]:
    """Returns the positions of texts that each, read alone, leave an enclosed field open; ascending.

    All texts are looked at together. Behind each one stands a line with one enclosed letter. The first
    enclosing character of that line closes a field that the text leaves open, and the second one is within a
    field then. Otherwise they are a pair. So the next text begins outside of a field in either case, and only
    an open field has the line end before the letter in it.

    Args:
        texts: `large_binary`, in UTF-8, none of them NULL.
        options: the separators and the enclosing character of the texts.

    Returns:
        None of them without an enclosing character in the options.

    Raises:
        InvalidInputError: the texts use every control character, and the separator needs one.
    """
    if not options.enclose:
        return []
    marked = _positions(pc.match_substring(texts, options.enclose))
    # A field begins behind a separator as it does behind a line end, so only the ends of texts are line ends.
    chosen = pc.replace_substring(texts.take(pa.array(marked)), options.delimiter, options.separator)
    is_odd = pc.match_substring(chosen, options.delimiter)  # the separator has completed another one
    together = marked[_positions(pc.invert(is_odd))]
    found = together[_are_open(chosen.filter(pc.invert(is_odd)), options)].tolist()
    odd = marked[_positions(is_odd)].tolist()
    return sorted([*found, *(row for row in odd if _is_open(texts[row].as_py(), options))])


def _are_open(texts: pa.Array, options: CsvOptions) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Returns the positions of open ones among texts without a line end."""
    if not len(texts):
        return np.array([], dtype=np.int64)
    special = options.enclose + options.escape + options.separator + options.delimiter
    letter = next(each for each in map(chr, range(ord("a"), ord("z") + 1)) if each.encode() not in special)
    letter_line = options.enclose + letter.encode() + options.enclose
    between = pa.scalar(options.delimiter + letter_line + options.delimiter, texts.type)
    lists = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], pa.int64()), texts)
    sentinel_bytes = SentinelBytes(options)
    plain = sentinel_bytes.apply(pc.binary_join(lists, between)[0].as_py() + between.as_py())
    octets = np.frombuffer(plain, dtype=np.uint8)
    is_end = octets == ord("\n")
    is_end[sentinel_bytes.newlines(octets)] = True
    return np.flatnonzero(octets[np.flatnonzero(is_end)[0::2]] != ord("\n"))


def _is_open(text: bytes, options: CsvOptions) -> bool:
    sentinel_bytes = SentinelBytes(options)
    sentinel_bytes.apply(text)
    return sentinel_bytes.open_at is not None


def _positions(mask: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.flatnonzero(np.asarray(mask.to_numpy(zero_copy_only=False)))
