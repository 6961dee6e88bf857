"""Fields of JSON documents, extracted by DuckDB: one pass for all fields, no step by row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.types.cast import evaluate, text_literal

Mask = npt.NDArray[np.bool_]


def mask_of(flags: pa.BooleanArray) -> Mask:
    """Converts to NumPy; NULL is false."""
    return np.asarray(pc.fill_null(flags, False).to_numpy(zero_copy_only=False))


def one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns the values without chunks."""
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def extract(texts: pa.Array, spellings: list[list[str]]) -> list[pa.Array]:
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


def truth_as_digit(texts: pa.Array, column: pa.Array, paths: list[str]) -> pa.Array:
    """Converts the values true and false to 1 and 0; the texts "true" and "false" stay."""
    column = one_array(column)
    rows = np.flatnonzero(mask_of(pc.is_in(column, pa.array(["true", "false"]))))
    plain = [path for path in paths if "[*]" not in path]
    if not len(rows) or not plain:
        return column
    kinds = ", ".join(f"json_type(c, {text_literal(path)})" for path in plain)
    found = evaluate(texts.take(pa.array(rows)), f"coalesce({kinds}) = 'BOOLEAN'")
    is_truth = np.zeros(len(column), dtype=np.bool_)
    is_truth[rows] = mask_of(found.cast(pa.bool_()))
    digits = pc.if_else(pc.equal(column, "true"), "1", "0")
    return pc.if_else(pa.array(is_truth), digits, column)


def _extract_many(texts: pa.Array, path: str) -> pa.Array:
    """Returns everything a path with a wildcard finds, as the text of a JSON array."""
    return evaluate(texts, f"json_extract(c, {text_literal(path)})::VARCHAR").cast(pa.string())


def missing(texts: pa.Array, paths: list[str]) -> pa.BooleanArray:
    if not paths:
        return pa.array(np.ones(len(texts), dtype=np.bool_))
    found = " OR ".join(f"json_exists(c, {text_literal(path)})" for path in paths)
    return evaluate(texts, f"NOT ({found})").cast(pa.bool_())
