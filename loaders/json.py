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
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.headers import JsonOptions
from seqstore.loaders.json_paths import duckdb_path, key_path
from seqstore.loaders.source import BAD_ROWS_DESCRIBED, BadRow, Place, SourceBatch, shown
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import hidden_name
from seqstore.store.types.cast import evaluate, text_literal, try_cast
from seqstore.store.types.column_types import ColumnType

BLOCK_BYTES: Final = 2 << 20
LINE_BYTES_MAX: Final = 100 << 20
DOCUMENT_BYTES_MAX: Final = 100 << 20
_STRING: Final = ColumnType("STRING")
_TOKENS: Final = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"?|([\[{])|([\]}])|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)', re.DOTALL
)
_DOUBLE_DIGITS: Final = 15  # more than these may change when a number with a point becomes a double
_LONG_NUMBER: Final = r"[0-9.]{16}|[0-9][eE][+-]?[0-9]"  # for Arrow, which searches many times faster
_FRACTION: Final = r"[0-9](\.[0-9]|[eE][+-]?[0-9])"

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


class JsonReader:
    """Reads JSON; fields are text columns with the names of the caller.

    Args:
        body: plain bytes.
        names: of the fields; keys to look for when `options.paths` is empty, else names of the paths in
            order.
        options: of the headers.
        watched: fields that `SourceBatch.absent` covers.
        json_names: fields that are stored as JSON, where true and false stay.
    """

    def __init__(
        self,
        body: BinaryIO,
        names: Sequence[str],
        options: JsonOptions,
        *,
        watched: Sequence[str] = (),
        json_names: Sequence[str] = (),
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
        self._block_bytes = block_bytes

    def batches(self) -> Iterator[SourceBatch]:
        """Reads to the end.

        Raises:
            InvalidInputError: the document is no JSON, has another shape than the headers declare (J2, J3),
                or is too large.
        """
        before = 0
        for documents, lines in self._documents():
            batch, rows = self._parse(documents, lines, before)
            before += rows
            del documents, lines
            parsed = [batch]
            del batch
            if len(parsed[0].rows) or parsed[0].bad_count:
                yield parsed.pop()  # a local name would hold the batch until the next block

    def close(self) -> None:
        """Holds nothing but memory."""

    # ------------------------------------------------------------------------------------------ documents

    def _documents(self) -> Iterator[tuple[pa.Array, Positions]]:
        """Yields texts of one JSON document each, and the line each starts at."""
        if not self._options.by_line:
            yield pa.array(self._whole(), pa.binary()), np.array([1])
            return
        rest, line, wanted = b"", 1, self._block_bytes
        while True:
            piece = self._body.read(wanted)
            data = rest + piece
            if line == 1:
                data = data.removeprefix(b"\xef\xbb\xbf")
            delimiter = self._options.delimiter
            last = data.rfind(delimiter)
            end = len(data) if not piece else last + len(delimiter) if last >= 0 else 0
            block, rest = data[:end], data[end:]
            longer = min(len(rest), LINE_BYTES_MAX - len(rest) + 1)
            wanted = self._block_bytes if end else max(self._block_bytes, longer)
            if len(rest) > LINE_BYTES_MAX:
                raise InvalidInputError(
                    f"line {line} is longer than {LINE_BYTES_MAX >> 20} MB", kind="data_quality"
                )
            is_end = not piece
            del piece, data
            if block:
                texts, numbers = _lines(block, delimiter)
                if len(texts):
                    yield texts, numbers + line
                line += block.count(delimiter)
            if is_end:
                return

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

    def _parse(self, documents: pa.Array, lines: Positions, before: int) -> tuple[SourceBatch, int]:
        exact = self._with_exact_numbers(documents)
        decoded = try_cast(exact, _STRING).values
        valid = pc.fill_null(evaluate(decoded, "json_valid(c)").cast(pa.bool_()), False)
        invalid = np.flatnonzero(~_mask(valid))
        bad = self._unreadable(documents, lines, invalid[:BAD_ROWS_DESCRIBED])
        texts, origins = self._rows(pc.if_else(valid, decoded, pa.scalar(None, pa.string())))
        is_object = _mask(pc.equal(evaluate(texts, "json_type(c)"), "OBJECT"))
        self._check_shape(texts, is_object)
        one_document = None if self._options.by_line else texts  # else its lines tell more, and cost less

        def place(row: int) -> Place:
            if one_document is not None:
                return Place(before + row + 1, shown((one_document[row].as_py() or "").encode()))
            return _place(documents, lines, int(origins[row]))

        table, absent, has_any = self._fields(texts)
        usable = has_any if self._paths else has_any & is_object
        unusable = np.flatnonzero(~usable)
        for row in unusable[:BAD_ROWS_DESCRIBED].tolist():
            has_object = is_object[row] or bool(self._paths)
            reason = "the row has none of the columns" if has_object else "the row is no JSON object"
            bad.append(BadRow(place(row), reason))
        kept = np.flatnonzero(usable)
        if len(unusable):
            positions = pa.array(kept)
            table = table.take(positions)
            absent = {name: mask.take(positions) for name, mask in absent.items()}

        def places(rows: Sequence[int]) -> list[Place]:
            return [place(int(kept[row])) for row in rows]

        bad_count = len(invalid) + len(unusable)
        return SourceBatch(table, places, bad_count, bad, absent, documents.nbytes), len(texts)

    def _with_exact_numbers(self, texts: pa.Array) -> pa.Array:
        """Returns the documents, with the numbers in quotes that would change otherwise; few have any."""
        risky = _FRACTION if self._options.num_as_string else _LONG_NUMBER
        is_risky = pc.match_substring_regex(texts, risky)
        if not pc.any(is_risky).as_py():
            return texts
        exact = [self._quote_numbers(text) for text in texts.filter(is_risky).to_pylist()]
        return pc.replace_with_mask(texts, is_risky, pa.array(exact, pa.binary()))

    def _quote_numbers(self, text: bytes) -> bytes:
        """Numbers that a double would change, as strings; inside of a nested value they stay numbers."""
        depth = 0

        def replaced(match: re.Match[bytes]) -> bytes:
            nonlocal depth
            opened, closed, number = match.groups()
            depth += bool(opened) - bool(closed)
            if number is None or (self._field_depth and depth != self._field_depth):
                return match[0]
            has_exponent = b"e" in number.lower()
            if not has_exponent and b"." not in number:
                return match[0]
            is_exact = not has_exponent and len(number) <= _DOUBLE_DIGITS + 1
            return match[0] if is_exact and not self._options.num_as_string else b'"' + number + b'"'

        return _TOKENS.sub(replaced, text)

    def _unreadable(self, documents: pa.Array, lines: Positions, invalid: Positions) -> list[BadRow]:
        bad: list[BadRow] = []
        for i in invalid.tolist():
            reason = _reason(documents[i].as_py())
            if reason == _SEVERAL:
                raise InvalidInputError(_SEVERAL, kind="data_quality", line=int(lines[i]))
            if not self._options.by_line:
                raise InvalidInputError(f"the body is no JSON document: {reason}", kind="data_quality")
            bad.append(BadRow(_place(documents, lines, i), reason))
        return bad

    def _rows(self, documents: pa.Array) -> tuple[pa.Array, Positions]:
        """Returns the JSON text of each row, and its document."""
        texts = documents
        is_array = self._options.strip_outer_array and _are_arrays(documents)
        if self._root and not is_array:
            texts = self._root_of(documents)
        origins = np.flatnonzero(_mask(texts.is_valid()))
        texts = texts.drop_null()
        if not self._options.strip_outer_array:
            return texts, origins
        kinds = evaluate(texts, "json_type(c)")
        if not pc.all(pc.equal(kinds, "ARRAY")).as_py() and len(texts):
            raise InvalidInputError(
                "JSON data is not an array-object, `strip_outer_array` must be FALSE.", kind="data_quality"
            )
        elements = evaluate(texts, "json_extract(c, '$[*]')::VARCHAR[]")
        parents = pc.list_parent_indices(elements).to_numpy(zero_copy_only=False)
        rows = pc.list_flatten(elements)
        if self._root and is_array:
            rows = pc.fill_null(self._root_of(rows), "null")  # filtered as a row that is no object
        return rows, origins[parents]

    def _root_of(self, documents: pa.Array) -> pa.Array:
        """Returns the part of each document that `json_root` names, NULL where there is none."""
        texts = evaluate(documents, f"json_extract(c, {text_literal(self._root)})::VARCHAR")
        if len(documents) and texts.null_count == len(texts) and documents.null_count < len(documents):
            raise InvalidInputError(
                f"json_root {self._options.root!r} names no part of the document", kind="data_quality"
            )
        return texts

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
            name: _missing(texts, paths)
            for name, paths in zip(self._names, spellings, strict=True)
            if name.lower() in self._watched
        }
        columns = _extract(texts, spellings)
        for place, (name, paths) in enumerate(zip(self._names, spellings, strict=True)):
            if name.lower() not in self._json_names:
                columns[place] = _truth_as_digit(texts, columns[place], paths)
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


def _lines(block: bytes, delimiter: bytes) -> tuple[pa.Array, Positions]:
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
    numbers = np.flatnonzero(~_mask(pc.ascii_is_space(lines.view(pa.string()))))
    return (lines if len(numbers) == len(lines) else lines.take(pa.array(numbers))), numbers


def _place(documents: pa.Array, lines: Positions, number: int) -> Place:
    return Place(int(lines[number]), shown(documents[number].as_py().rstrip(b"\n")))


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


def _mask(flags: pa.BooleanArray) -> Mask:
    """Converts to NumPy; NULL is false."""
    return np.asarray(pc.fill_null(flags, False).to_numpy(zero_copy_only=False))


def _extract(texts: pa.Array, spellings: list[list[str]]) -> list[pa.Array]:
    """Extracts each field as text, from the first of its paths that is present; one pass for all fields."""
    plain = [path for paths in spellings for path in paths if "[*]" not in path]
    found: dict[str, pa.Array] = {}
    if plain:
        wanted = ", ".join(text_literal(path) for path in plain)
        values = evaluate(texts, f"json_extract_string(c, [{wanted}])")
        found = {path: pc.list_element(values, i) for i, path in enumerate(plain)}
    columns = []
    for paths in spellings:
        parts = [found[path] if path in found else _extract_many(texts, path) for path in paths]
        columns.append(pc.coalesce(*parts) if parts else pa.nulls(len(texts), pa.string()))
    return columns


def _truth_as_digit(texts: pa.Array, column: pa.Array, paths: list[str]) -> pa.Array:
    """Converts the values true and false to 1 and 0; the texts "true" and "false" stay."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    rows = np.flatnonzero(_mask(pc.is_in(column, pa.array(["true", "false"]))))
    plain = [path for path in paths if "[*]" not in path]
    if not len(rows) or not plain:
        return column
    kinds = ", ".join(f"json_type(c, {text_literal(path)})" for path in plain)
    found = evaluate(texts.take(pa.array(rows)), f"coalesce({kinds}) = 'BOOLEAN'")
    is_truth = np.zeros(len(column), dtype=np.bool_)
    is_truth[rows] = _mask(found.cast(pa.bool_()))
    digits = pc.if_else(pc.equal(column, "true"), "1", "0")
    return pc.if_else(pa.array(is_truth), digits, column)


def _extract_many(texts: pa.Array, path: str) -> pa.Array:
    """Returns everything a path with a wildcard finds, as the text of a JSON array."""
    return evaluate(texts, f"json_extract(c, {text_literal(path)})::VARCHAR").cast(pa.string())


def _missing(texts: pa.Array, paths: list[str]) -> pa.BooleanArray:
    if not paths:
        return pa.array(np.ones(len(texts), dtype=np.bool_))
    found = " OR ".join(f"json_exists(c, {text_literal(path)})" for path in paths)
    return evaluate(texts, f"NOT ({found})").cast(pa.bool_())


def _has_any(texts: pa.Array, table: pa.Table, spellings: list[list[str]]) -> Mask:
    """Marks the rows with at least one of the fields (J8).

    A second pass checks rows whose fields are all NULL.
    """
    has_value = np.zeros(len(texts), dtype=np.bool_)
    for column in table.columns:
        has_value |= _mask(pc.is_valid(column.combine_chunks()))
    if has_value.all():
        return has_value
    empty = np.flatnonzero(~has_value)
    paths = sorted({path for group in spellings for path in group if "[*]" not in path})
    if paths:
        there = pc.invert(_missing(texts.take(pa.array(empty)), paths))
        has_value[empty] = _mask(there)
    return has_value
