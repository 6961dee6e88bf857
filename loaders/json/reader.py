"""JSON bodies: one object a line, an array of objects, or one object, cut into text fields by DuckDB.

1. The body is read in blocks of whole lines (J1), or as one document of at most 100 MB (LR5).
2. `json_root` picks a part of each document, `strip_outer_array` makes its elements the rows (J2, J6). Of a
   document that is an array itself the elements come first, and `json_root` picks a part of each.
3. Fields are found by `jsonpaths` in order (J5), or by key without regard to case (J4). A key that is missing
   differs from one that is null (J7).

Scalars become their text, true and false become 1 and 0, objects and arrays their JSON text (J11). DuckDB
reads a number with a point as a double, so numbers it would change are put in quotes first; `num_as_string`
does that for all with a point or an exponent (J9).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.headers import JsonOptions
from seqstore.loaders.json.array_lines import lines_of
from seqstore.loaders.json.exact_numbers import with_exact_numbers
from seqstore.loaders.json.fields import Mask, extract, mask_of, missing, truth_as_digit
from seqstore.loaders.json.line_blocks import (
    BLOCK_BYTES,
    Block,
    cut_lines,
    place_of,
    read_blocks,
    with_newlines,
)
from seqstore.loaders.json.lines import FlatLines, Wanted, read_lines
from seqstore.loaders.json.paths import duckdb_path, key_of, key_path
from seqstore.loaders.json.typed_lines import read_typed
from seqstore.loaders.source import BadRow, Place, SourceBatch, described_max, shown, why_unreadable
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import hidden_name
from seqstore.store.types.cast import evaluate, text_literal, try_cast
from seqstore.store.types.column_types import ColumnType

_CUT_BYTES: Final = 1 << 20  # the positions of a block that is cut by NumPy use ten times its memory
_TYPED_FAILURES_MAX: Final = 3
DOCUMENT_BYTES_MAX: Final = 100 << 20
_STRING: Final = ColumnType("STRING")
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Rows:
    """Rows of a block with their fields, and the rows that were left out.

    Attributes:
        lines: the number of each row's line.
        place: returns the place of a row.
    """

    table: pa.Table
    absent: dict[str, pa.BooleanArray]
    lines: Positions
    place: Callable[[int], Place]
    bad: list[BadRow] = field(default_factory=list)
    bad_count: int = 0

    def without(self, unusable: Positions, reason: Callable[[int], str]) -> _Rows:
        """Leaves out some rows."""
        if not len(unusable):
            return self
        described = unusable[: described_max()].tolist()
        bad = [*self.bad, *(BadRow(self.place(row), reason(row)) for row in described)]
        kept = np.delete(np.arange(len(self.lines)), unusable)
        return replace(self._taken(kept), bad=bad, bad_count=self.bad_count + len(unusable))

    def behind(self, count: int) -> _Rows:
        """Returns the rows behind the first ones, none of which was left out."""
        place = self.place
        return replace(
            self,
            table=self.table.slice(count),
            absent={name: mask.slice(count) for name, mask in self.absent.items()},
            lines=self.lines[count:],
            place=lambda row: place(row + count),
        )

    def merged(self, other: _Rows) -> _Rows:
        """Returns the rows of both in the order of their lines."""
        count = len(self.lines)

        def place(row: int) -> Place:
            return self.place(row) if row < count else other.place(row - count)

        absent = {name: pa.concat_arrays([mask, other.absent[name]]) for name, mask in self.absent.items()}
        lines = np.concatenate([self.lines, other.lines])
        table = pa.concat_tables([self.table, other.table])
        bad, bad_count = [*self.bad, *other.bad], self.bad_count + other.bad_count
        both = _Rows(table, absent, lines, place, bad, bad_count)
        return both._taken(np.argsort(lines, kind="stable")) if len(other.lines) else both

    def _taken(self, rows: Positions) -> _Rows:
        indices = pa.array(rows)
        absent = {name: mask.take(indices) for name, mask in self.absent.items()}
        place = self.place
        table = self.table.take(indices)
        return replace(
            self, table=table, absent=absent, lines=self.lines[rows], place=lambda row: place(int(rows[row]))
        )


@dataclass(frozen=True)
class _Cut:
    """The rows of some documents.

    Attributes:
        texts: the JSON text of each row.
        origins: the document of each row.
        told: the text to tell of each row: that of an element that lacks `json_root` is the element.
    """

    texts: pa.Array
    origins: Positions
    told: pa.Array


class JsonReader:
    """Reads JSON; fields are text columns with the names of the caller.

    Args:
        body: plain bytes.
        names: of the fields; keys to look for when `options.paths` is empty, else names of the paths in
            order.
        options: of the headers.
        watched: fields that `SourceBatch.absent` covers.
        json_names: fields that are stored as JSON, where true and false stay.
        types: the types in which a batch may have fields instead of as text; other fields are then NULL.
    """

    def __init__(
        self,
        body: BinaryIO,
        names: Sequence[str],
        options: JsonOptions,
        *,
        watched: Sequence[str] = (),
        json_names: Sequence[str] = (),
        types: Mapping[str, pa.DataType] | None = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        if options.paths and len(options.paths) != len(names):
            raise InvalidInputError(
                f"jsonpaths has {len(options.paths)} paths for {len(names)} columns ({', '.join(names)}); "
                "both must be equally many",
                kind="bad_header",
            )
        self._body = body
        self._names = list(names)
        self._options = options
        self._paths = [duckdb_path(path) for path in options.paths]
        self._root = duckdb_path(options.root) if options.root else ""
        # how deep the fields are; with paths they can be anywhere
        steps = self._root.count('."') + self._root.count("[")
        self._field_depth = 0 if self._paths else 1 + steps + options.strip_outer_array
        self._watched = {name.lower() for name in watched}
        self._json_names = {name.lower() for name in json_names}
        self._types = {name.lower(): kind for name, kind in (types or {}).items()}
        self._block_bytes = block_bytes
        self._fold: Callable[[str], str] = _folded
        self._typed: dict[str, pa.DataType] = {}
        self._typed_left = _TYPED_FAILURES_MAX
        self._wanted = self._flat()
        self._size_blocks()

    def batches(self) -> Iterator[SourceBatch]:
        """Reads to the end.

        Raises:
            InvalidInputError: the document is no JSON, has another shape than the headers declare (J2, J3),
                or is too large.
        """
        of_array = None if self._options.by_line else self._wanted
        for block in self._blocks():
            if of_array is not None:
                yield from self._array_batches(block, of_array)
                continue
            parsed = [self._parse(block)]
            del block
            if len(parsed[0].rows) or parsed[0].bad_count:
                yield parsed.pop()  # a local name would hold the batch until the next block

    def close(self) -> None:
        """Holds nothing but memory."""

    def _flat(self) -> Wanted | None:
        """Returns the values to find in lines of objects, or in an array of objects; None where documents
        must be parsed."""
        options = self._options
        if self._root or options.by_line == options.strip_outer_array:
            return None
        keys = [key_of(path) for path in self._paths] if self._paths else [_folded(n) for n in self._names]
        places: dict[str, int] = {}
        for key in keys:
            if key is None or "*" in key:
                return None
            places.setdefault(key, len(places))
        self._places = [places[key] for key in keys if key is not None]
        pairs = [(name.lower(), place) for name, place in zip(self._names, self._places, strict=True)]
        json_places = {place for name, place in pairs if name in self._json_names}
        if json_places & {place for name, place in pairs if name not in self._json_names}:
            return None
        types: dict[int, pa.DataType | None] = {}
        for name, place in pairs:
            kind = self._types.get(name)
            types[place] = kind if types.get(place, kind) == kind else None
        self._fold = (lambda key: key) if self._paths else _folded
        self._typed = {key: types[place] or pa.null() for key, place in places.items()}
        if not self._types:
            self._typed_left = 0
        doubles = [place for place, kind in types.items() if kind == pa.float64()]
        return Wanted(
            len(places),
            lambda key: -1 if '"' in key else places.get(self._fold(key), -1),
            frozenset(json_places),
            frozenset(doubles),
            keeps_digits=options.num_as_string,
            any_depth=bool(self._paths),
        )

    # ------------------------------------------------------------------------------------------ documents

    def _blocks(self) -> Iterator[Block]:
        """Yields whole lines, or the whole body."""
        if not self._options.by_line:
            yield from (Block(text, 1) for text in self._whole())
            return
        yield from read_blocks(self._body, self._options.delimiter, lambda: self._block_bytes)

    def _whole(self) -> list[bytes]:
        pieces: list[bytes] = []
        size = 0
        while piece := self._body.read(self._block_bytes):
            pieces.append(piece)
            size += len(piece)
            if size > DOCUMENT_BYTES_MAX:
                raise InvalidInputError(
                    f"json body size exceeds the limit of {DOCUMENT_BYTES_MAX} bytes of a body read as one "
                    "document; send one object a line with read_json_by_line",
                    kind="data_quality",
                )
        text = b"".join(pieces).removeprefix(b"\xef\xbb\xbf")
        return [text] if text.strip() else []

    # ------------------------------------------------------------------------------------------ one block

    def _parse(self, block: Block) -> SourceBatch:
        if not self._options.by_line:
            return self._batch(self._read(pa.array([block.data], pa.binary()), np.array([1])), block)
        lines = with_newlines(block.data, self._options.delimiter) if self._wanted is not None else None
        if self._wanted is None or lines is None:
            texts, numbers = cut_lines(block.data, self._options.delimiter)
            return self._batch(self._read(texts, numbers + block.line), block)
        return self._read_lines(Block(lines, block.line), self._wanted)

    def _array_batches(self, block: Block, wanted: Wanted) -> Iterator[SourceBatch]:
        """Reads an array of objects as lines, as far as that is possible, and the rest by DuckDB."""
        lines, at, done = lines_of(block.data), 0, 0
        while lines is not None and at < len(lines):
            end = lines.rfind(b"\n", at, at + self._block_bytes) + 1 or lines.find(b"\n", at) + 1
            piece = Block(lines[at:end], 1 + done)
            rows = self._array_rows(piece, wanted)
            if rows is None:
                break
            yield SourceBatch(
                rows.table, self._array_places(piece), absent=rows.absent, held_bytes=len(piece.data)
            )
            at, done = end, done + len(rows.lines)
        else:
            if lines is not None:
                return
        del lines
        rows = self._read(pa.array([block.data], pa.binary()), np.array([1])).behind(done)
        if len(rows.lines) or rows.bad_count:
            yield self._batch(rows, block)

    def _array_rows(self, block: Block, wanted: Wanted) -> _Rows | None:
        """Returns the objects of an array that were cut into lines; None if one of them needs more care."""
        typed = self._read_typed(block)
        if typed is not None:
            return typed
        flat = read_lines(block.data, wanted)
        rows = self._rows_of(flat, block)
        return None if len(flat.left) or rows.bad_count else rows

    def _array_places(self, block: Block) -> Callable[[Sequence[int]], list[Place]]:
        """Returns the places of objects in their array, whose text is that of DuckDB."""

        def places(chosen: Sequence[int]) -> list[Place]:
            if not len(chosen):
                return []
            document = b"[" + b",".join(block.lines[row] for row in chosen) + b"]"
            exact = self._exact(pa.array([document], pa.binary()))
            texts = self._rows(try_cast(exact, _STRING).values).told.to_pylist()
            return [
                Place(block.line + row, shown((text or "").encode()))
                for row, text in zip(chosen, texts, strict=True)
            ]

        return places

    def _read_lines(self, block: Block, wanted: Wanted) -> SourceBatch:
        """Reads lines of objects; the lines that are something else are parsed as documents."""
        if not block.data.endswith(b"\n"):
            block = Block(block.data + b"\n", block.line)
        typed = self._read_typed(block)
        if typed is not None:
            return self._batch(typed, block)
        flat = read_lines(block.data, wanted)
        rows = self._rows_of(flat, block)
        if not len(flat.left):
            return self._batch(rows, block)
        texts, numbers = cut_lines(block.data, b"\n")
        left = np.isin(numbers, flat.left)
        rows = rows.merged(self._read(texts.filter(pa.array(left)), numbers[left] + block.line))
        return self._batch(rows, block)

    def _read_typed(self, block: Block) -> _Rows | None:
        """Reads lines with Arrow; None if that is not possible, which is not tried for ever."""
        if not self._typed_left:
            return None
        found = read_typed(block.data, self._typed, self._fold)
        table = (
            pa.table([found.column(place) for place in self._places], names=self._names) if found else None
        )
        watched = [name for name in self._names if name.lower() in self._watched]
        if table is None or any(table.column(name).null_count for name in watched):  # J7: NULL, or not there
            self._typed_left -= 1
            self._size_blocks()
            return None
        self._typed_left = _TYPED_FAILURES_MAX
        count = len(table)
        absent = {name: pa.array(np.zeros(count, dtype=np.bool_)) for name in watched}

        def place(row: int) -> Place:
            return Place(block.line + row, shown(block.lines[row]))

        return _Rows(table, absent, np.arange(block.line, block.line + count), place)

    def _size_blocks(self) -> None:
        if self._wanted is not None and not self._typed_left:
            self._block_bytes = min(self._block_bytes, _CUT_BYTES)

    def _rows_of(self, flat: FlatLines, block: Block) -> _Rows:
        lines = flat.rows + block.line
        present = [flat.present[place] for place in self._places]
        table = pa.table([flat.columns[place] for place in self._places], names=self._names)
        absent = {
            name: pa.array(~mask)
            for name, mask in zip(self._names, present, strict=True)
            if name.lower() in self._watched
        }
        has_any = np.logical_or.reduce(present)

        def place(row: int) -> Place:
            return Place(int(lines[row]), shown(flat.line(block.data, int(flat.rows[row]))))

        return _Rows(table, absent, lines, place).without(
            np.flatnonzero(~has_any), lambda _row: "the row has none of the columns"
        )

    def _batch(self, rows: _Rows, block: Block) -> SourceBatch:
        def places(chosen: Sequence[int]) -> list[Place]:
            return [rows.place(row) for row in chosen]

        return SourceBatch(rows.table, places, rows.bad_count, rows.bad, rows.absent, len(block.data))

    def _exact(self, documents: pa.Array) -> pa.Array:
        return with_exact_numbers(documents, self._field_depth, every_fraction=self._options.num_as_string)

    def _read(self, documents: pa.Array, lines: Positions) -> _Rows:
        """Parses documents, and the lines that they start at."""
        decoded = try_cast(self._exact(documents), _STRING).values
        valid = pc.fill_null(evaluate(decoded, "json_valid(c)").cast(pa.bool_()), False)
        invalid = np.flatnonzero(~mask_of(valid))
        bad = self._unreadable(documents, lines, invalid[: described_max()])
        cut = self._rows(pc.if_else(valid, decoded, pa.scalar(None, pa.string())))
        texts, origins = cut.texts, cut.origins
        is_object = mask_of(pc.equal(evaluate(texts, "json_type(c)"), "OBJECT"))
        self._check_shape(texts, is_object)
        by_line = self._options.by_line
        # The text of a line costs less than that of its row, which is the line unless it is a part of it.
        parts = cut.told if not by_line or self._root or self._options.strip_outer_array else None

        def place(row: int) -> Place:
            if parts is None:
                return place_of(documents, lines, int(origins[row]))
            number = int(lines[origins[row]]) if by_line else row + 1
            return Place(number, shown((parts[row].as_py() or "").encode()))

        def reason(row: int) -> str:
            has_object = is_object[row] or bool(self._paths)
            return "the row has none of the columns" if has_object else "the row is no JSON object"

        table, absent, has_any = self._fields(texts)
        usable = has_any if self._paths else has_any & is_object
        rows = _Rows(table, absent, lines[origins], place, bad, len(invalid))
        return rows.without(np.flatnonzero(~usable), reason)

    def _unreadable(self, documents: pa.Array, lines: Positions, invalid: Positions) -> list[BadRow]:
        bad: list[BadRow] = []
        for i in invalid.tolist():
            text = documents[i].as_py()
            reason = why_unreadable(text[:2_100].decode("utf-8", "replace"), _reason(text))
            if reason == _SEVERAL:
                raise InvalidInputError(_SEVERAL, kind="data_quality", line=int(lines[i]))
            if not self._options.by_line:
                raise InvalidInputError(f"the body is no JSON document: {reason}", kind="data_quality")
            bad.append(BadRow(place_of(documents, lines, i), reason))
        return bad

    def _rows(self, documents: pa.Array) -> _Cut:
        """Cuts documents into rows."""
        texts = told = documents
        is_array = self._options.strip_outer_array and _are_arrays(documents)
        if self._root and not is_array:
            roots = self._root_of(documents)
            lacking = "[null]" if self._options.strip_outer_array else "null"  # a row that is no object
            texts = pc.if_else(documents.is_valid(), pc.fill_null(roots, lacking), roots)
            told = pc.coalesce(roots, documents)
        origins = np.flatnonzero(mask_of(texts.is_valid()))
        texts = texts.drop_null()
        if not self._options.strip_outer_array:
            return _Cut(texts, origins, told.take(pa.array(origins)))
        kinds = evaluate(texts, "json_type(c)")
        if not pc.all(pc.equal(kinds, "ARRAY")).as_py() and len(texts):
            raise InvalidInputError(
                "JSON data is not an array-object, `strip_outer_array` must be FALSE.", kind="data_quality"
            )
        elements = evaluate(texts, "json_extract(c, '$[*]')::VARCHAR[]")
        parents = pc.list_parent_indices(elements).to_numpy(zero_copy_only=False)
        rows = pc.list_flatten(elements)
        if self._root and is_array:
            roots = self._root_of(rows)
            filled = pc.fill_null(roots, "null")  # filtered as a row that is no object
            return _Cut(filled, origins[parents], pc.coalesce(roots, rows))
        return _Cut(rows, origins[parents], rows)

    def _root_of(self, documents: pa.Array) -> pa.Array:
        """Returns the part of each document that `json_root` names, NULL where there is none."""
        return evaluate(documents, f"json_extract(c, {text_literal(self._root)})::VARCHAR")

    def _check_shape(self, texts: pa.Array, is_object: Mask) -> None:
        if self._options.strip_outer_array or self._paths or is_object.all():
            return
        first = texts[int(np.flatnonzero(~is_object)[0])].as_py()
        if first.lstrip().startswith("["):
            raise InvalidInputError(
                "JSON data is array-object, `strip_outer_array` must be TRUE.", kind="data_quality"
            )

    # ------------------------------------------------------------------------------------------ fields

    def _fields(self, texts: pa.Array) -> tuple[pa.Table, dict[str, pa.BooleanArray], Mask]:
        """Returns the text columns, the rows without each watched field, and the rows with any field."""
        if self._paths:
            spellings = [[path] for path in self._paths]
        else:
            keys = self._keys(texts)
            spellings = [[key_path(key) for key in keys.get(_folded(name), [])] for name in self._names]
        absent = {
            name: missing(texts, paths)
            for name, paths in zip(self._names, spellings, strict=True)
            if name.lower() in self._watched
        }
        columns = extract(texts, spellings)
        for place, (name, paths) in enumerate(zip(self._names, spellings, strict=True)):
            if name.lower() not in self._json_names:
                columns[place] = truth_as_digit(texts, columns[place], paths)
        table = pa.table(columns, names=self._names)
        return table, absent, _has_any(texts, table, spellings)

    def _keys(self, texts: pa.Array) -> dict[str, list[str]]:
        """Returns the spellings of the requested keys that occur, by folded name (J4)."""
        found: dict[str, list[str]] = {}
        wanted = {_folded(name) for name in self._names}
        lists = evaluate(texts, "CASE json_type(c) WHEN 'OBJECT' THEN json_keys(c) END")
        for key in pc.unique(pc.list_flatten(lists)).to_pylist():
            if _folded(key) in wanted and '"' not in key and "\\" not in key:
                found.setdefault(_folded(key), []).append(key)
        return found


def _are_arrays(documents: pa.Array) -> bool:
    """Returns whether every document is an array."""
    texts = documents.drop_null()
    return len(texts) > 0 and bool(pc.all(pc.equal(evaluate(texts, "json_type(c)"), "ARRAY")).as_py())


def _folded(key: str) -> str:
    """Returns the column of a key, whatever its case; hidden columns have two spellings."""
    return (hidden_name(key) or key).lower()


_SEVERAL: Final = "Multiple JSON objects in a single line"


def _reason(text: bytes) -> str:
    """Returns the reason that a text is no JSON document; several objects in a row have their own (J3)."""
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        return "the row is not encoded in UTF-8"
    try:
        stripped = decoded.strip()
        _, end = json.JSONDecoder().raw_decode(stripped)
    except (ValueError, RecursionError) as error:
        return f"the row is no JSON: {error}"
    return _SEVERAL if stripped[end:].lstrip()[:1] == "{" else "the row is no JSON: text follows the value"


def _has_any(texts: pa.Array, table: pa.Table, spellings: list[list[str]]) -> Mask:
    """Marks the rows with at least one of the fields (J8).

    A second pass checks rows whose fields are all NULL.
    """
    has_value = np.zeros(len(texts), dtype=np.bool_)
    for column in table.columns:
        has_value |= mask_of(pc.is_valid(column.combine_chunks()))
    if has_value.all():
        return has_value
    empty = np.flatnonzero(~has_value)
    paths = sorted({path for group in spellings for path in group if "[*]" not in path})
    if paths:
        there = pc.invert(missing(texts.take(pa.array(empty)), paths))
        has_value[empty] = mask_of(there)
    return has_value
