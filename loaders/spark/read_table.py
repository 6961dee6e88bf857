"""A table as a frame of the requested columns, by the fastest correct route.

Spark does not pass the columns of a query to a Python data source, so `format("seqstore")` reads the columns
of its options. `read_table` names them. For a table with `storage_format = parquet`, Spark reads the files of
the version itself where the requested columns allow it. Spark then prunes columns and row groups, and leaves
out hidden rows.

1. Inline segments are small; their live rows travel with the plan.
2. Every file is read under the frame's schema. Files of nothing but tombstones are left out; in others that
   have some, the column of the delete sign marks them.
3. The hidden rows of all files are bits of one array, which each task has as a constant: 64 rows in a word,
   125 kB for a million rows. A file is known by its size: the words in front of the bits tell where the bits
   of a file begin (`_bits_of`). Of several files with one size each is in a frame of its own.

The files are those of the version at the time of the call; they stay as long as the version can be read, or
as long as `held_table` holds it.
Checksums are not verified on this way, and an object store is not read by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.loaders.spark.frame_types import frame_schema, is_kept
from seqstore.loaders.spark.place import Place, StoreAt, options_of
from seqstore.loaders.spark.registration import register
from seqstore.store import InvalidInputError
from seqstore.store.read.live_segment import LiveSegment, Projection
from seqstore.store.read.scan import scan_batches
from seqstore.store.read.table_state import TableState
from seqstore.store.remote.remote_table import RemoteTable
from seqstore.store.schema.column import DELETE_SIGN, hidden_name
from seqstore.store.schema.field_ids import file_column
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.object_disk import ObjectDisk
from seqstore.store.segment.segment import INLINE, data_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROUTES: Final = ("auto", "native", "source")
_FILE, _ROW, _WORDS = "__file", "__row", "__words"
_MODULUS_GROWTH: Final = 1.05
_BITS_MAX: Final = 1 << 29  # of one array, 64 MiB: Spark sends it with the tasks
# Beside the table's columns in a frame with hidden rows; the first is Spark's.
_TAKEN: Final = frozenset(["_metadata", _FILE, _ROW, _WORDS])


def read_table(
    spark: SparkSession,
    path: str | Path | StoreAt,
    table: str,
    columns: Sequence[str] | None = None,
    *,
    version: int | None = None,
    route: str = "auto",
) -> DataFrame:
    """Returns the live rows of a table at a version, the newest when None.

    Args:
        columns: to read, in this order; None means all visible ones.
        route: `native` has Spark read Parquet files itself, `source` uses `format("seqstore")`,
            `auto` means the first where it is right.

    Raises:
        InvalidInputError: an unknown column or route, or an impossible `native`; the message has the reason.
        VersionExpiredError: no such version.
    """
    if route not in ROUTES:
        raise InvalidInputError(
            f"route {route!r} is not known; expected {', '.join(ROUTES)}", kind="bad_option"
        )
    register(spark)
    with Place.of(path).open() as store:
        opened = store.table(table)
        if isinstance(opened, RemoteTable):
            if route == "native":
                raise _not_native(table, "its files are behind a server")
            with opened.snapshot(version) as seen:
                projection = Projection.of(seen.schema, columns, hidden=False)
                return _by_source(spark, path, table, seen.version, projection)
        state = opened.state(version)
        projection = Projection.of(state.schema, columns, hidden=False)
        disk, directory = opened.loader.disk, opened.loader.directory
        reason = "" if route == "source" else _why_not_native(state, projection, disk)
        if route == "source" or (route == "auto" and reason):
            return _by_source(spark, path, table, state.version, projection)
        if reason:
            raise _not_native(table, reason)
        return _native(spark, state, projection, disk, directory)


def _not_native(table: str, reason: str) -> InvalidInputError:
    return InvalidInputError(f"{table} cannot be read natively: {reason}", kind="not_native")


def _by_source(
    spark: SparkSession, path: str | Path | StoreAt, table: str, version: int, projection: Projection
) -> DataFrame:
    reader = spark.read.format("seqstore").options(**options_of(path)).option("table", table)
    return reader.option("version", str(version)).option("columns", ",".join(projection.names)).load()


@contextmanager
def held_table(
    spark: SparkSession,
    path: str | Path | StoreAt,
    table: str,
    columns: Sequence[str] | None = None,
    *,
    version: int | None = None,
    route: str = "auto",
) -> Iterator[DataFrame]:
    """Yields the frame of `read_table`, whose version stays until the block ends, whatever the retention is.

    Queries of the frame, and of frames made of it, run within the block.

    Raises:
        InvalidInputError, VersionExpiredError: see `read_table`.
    """
    with Place.of(path).open() as store, store.table(table).snapshot(version) as held:
        yield read_table(spark, path, table, columns, version=held.version, route=route)


def read_tables(
    spark: SparkSession, path: str | Path | StoreAt, tables: Iterable[str], *, route: str = "auto"
) -> dict[str, DataFrame]:
    """Returns several tables as of one moment, by name; frames that are read one by one are not.

    Args:
        route: see `read_table`.

    Raises:
        NotFoundError: no such table.
        InvalidInputError: an unknown route, or an impossible `native`.
    """
    with Place.of(path).open() as store, store.snapshot() as moment:
        versions = {name: moment.table(name).version for name in tables}
        return {
            name: read_table(spark, path, name, version=version, route=route)
            for name, version in versions.items()
        }


def _why_not_native(state: TableState, projection: Projection, disk: Disk) -> str:
    """Returns the reason against Spark's own reader for a state, empty without one."""
    if isinstance(disk, ObjectDisk):
        return "its segments are on an object store"
    hidden = [name for name in projection.names if hidden_name(name) is not None]
    if hidden:
        return f"{hidden[0]} is a hidden column"
    taken = [name for name in projection.names if name.lower() in _TAKEN]
    if taken:
        return f"the name {taken[0]} is used for the column that identifies rows"
    foreign = [field.name for field in projection.arrow if not is_kept(field.type)]
    if foreign:
        return f"Spark has no type for {foreign[0]}"
    files = [live for live in state.segments.values() if live.segment.meta.home != INLINE]
    if len({live.segment.meta.file_id for live in files}) != len(files):
        return "segments share files"
    if len({bool(live.segment.file_columns) for live in files}) > 1:
        return "some files are from before the table was open, and name their columns differently"
    for live in files:
        if live.segment.meta.home != "parquet":
            return f"segment {live.segment.meta.id} is stored as {live.segment.meta.home}"
        written = {column.id: column for column in live.segment.schema.columns}
        for name in projection.names:
            column = state.schema.column(name)
            old = written.get(column.id)
            is_named = old is not None and (bool(live.segment.file_columns) or old.name == column.name)
            if old is None or not is_named or old.type.arrow != column.type.arrow:
                return f"column {name} was changed after segment {live.segment.meta.id} was written"
    return ""


def _native(
    spark: SparkSession, state: TableState, projection: Projection, disk: Disk, directory: str
) -> DataFrame:
    """Returns the frame of Spark's own reader; see the module."""
    schema = frame_schema(state.schema, projection.names)
    live = [
        each
        for each in state.segments.values()
        if each.deletes.live_count and each.segment.meta.tombstones < each.segment.meta.rows
    ]
    files = [each for each in live if each.segment.meta.home != INLINE]
    parts = []
    inline = _inline([each for each in live if each.segment.meta.home == INLINE], projection)
    if len(inline):
        parts.append(spark.createDataFrame(inline, schema))
    plain = [each for each in files if not each.deletes.hidden and not each.segment.meta.tombstones]
    masked = [each for each in files if each not in plain]
    stored = _stored(schema, state, files)
    if plain:
        parts.append(_files(spark, plain, stored, disk, directory).toDF(*schema.names))
    for has_tombstones in (False, True):
        some = [each for each in masked if bool(each.segment.meta.tombstones) == has_tombstones]
        parts += [
            _masked_files(spark, each, stored, disk, directory).toDF(*schema.names)
            for each in _by_size(some, disk, directory)
        ]
    if not parts:
        return spark.createDataFrame([], schema)
    frame = parts[-1]
    for part in parts[:-1]:
        frame = frame.unionAll(part)
    return frame


def _stored(schema: StructType, state: TableState, files: list[LiveSegment]) -> StructType:
    """Returns the schema with the names that the files have: those of open tables never change."""
    named = next((each.segment.schema for each in files if each.segment.file_columns), None)
    if named is None:
        return schema
    from pyspark.sql.types import StructField

    return type(schema)(
        [
            StructField(file_column(named, state.schema.column(each.name)), each.dataType, each.nullable)
            for each in schema.fields
        ]
    )


def _inline(live: list[LiveSegment], projection: Projection) -> pa.Table:
    batches = [(each, number) for each in live for number in range(each.segment.batches)]
    return scan_batches(batches, projection, None, deleted=False).read_all()


def _files(
    spark: SparkSession, live: list[LiveSegment], schema: StructType, disk: Disk, directory: str
) -> DataFrame:
    # Hadoop decodes nothing, so no as_uri; and brackets are patterns to it unless they are escaped.
    paths = [str(disk.path(data_name(directory, each.segment.meta)).absolute()) for each in live]
    return spark.read.schema(schema).parquet(*[re.sub(r"([\\{}\[\]*?])", r"\\\1", path) for path in paths])


def _by_size(live: list[LiveSegment], disk: Disk, directory: str) -> list[list[tuple[int, LiveSegment]]]:
    """Returns files by their sizes in bytes, in groups of different sizes and few bits: mostly one."""
    groups: list[dict[int, LiveSegment]] = []
    bits: list[int] = []
    for each in live:
        size, rows = disk.path(data_name(directory, each.segment.meta)).stat().st_size, each.segment.rows
        place = 0
        while place < len(groups) and (size in groups[place] or bits[place] + rows > _BITS_MAX):
            place += 1
        if place == len(groups):
            groups.append({})
            bits.append(0)
        groups[place][size] = each
        bits[place] += rows
    return [list(group.items()) for group in groups]


def _masked_files(
    spark: SparkSession,
    sized: list[tuple[int, LiveSegment]],
    schema: StructType,
    disk: Disk,
    directory: str,
) -> DataFrame:
    """Returns files with rows to leave out, which differ in size; all have tombstones, or none."""
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, ByteType, LongType

    stored = type(schema)(list(schema.fields)).add(DELETE_SIGN, ByteType(), True)
    live = [each for _, each in sized]
    has_tombstones = any(each.segment.meta.tombstones for each in live)
    frame = _files(spark, live, stored if has_tombstones else schema, disk, directory)
    metadata = functions.col("_metadata")
    frame = frame.select("*", metadata["file_size"].alias(_FILE), metadata["row_index"].alias(_ROW))
    if has_tombstones:
        frame = frame.where(f"coalesce({DELETE_SIGN}, 0) = 0")
    if any(each.deletes.hidden for each in live):
        modulus, words = _bits_of(sized)
        of_words = type(schema)().add(_WORDS, ArrayType(LongType(), False), False)
        bits = spark.createDataFrame(pa.table({_WORDS: pa.array([words], pa.list_(pa.int64()))}), of_words)
        frame = frame.where(~_hidden(bits.scalar(), modulus))
    return frame.select(*[functions.col(f"`{name.replace('`', '``')}`") for name in schema.names])


def _hidden(words: Column, modulus: int) -> Column:
    """Returns whether the bit of a row is set; see `_bits_of`."""
    from pyspark.sql import functions

    row, first = functions.col(_ROW), words[functions.col(_FILE) % modulus]
    word = words[first + functions.call_function("shiftright", row, functions.lit(6))]
    within = row.bitwiseAND(63).cast("int")
    return functions.call_function("shiftright", word, within).bitwiseAND(1) != 0


def _bits_of(sized: list[tuple[int, LiveSegment]]) -> tuple[int, npt.NDArray[np.int64]]:
    """Returns a modulus, and the array of words for files of these sizes.

    Word `size % modulus` has the place of the first of the file's words in the array; the modulus is one for
    which all sizes differ.
    """
    sizes = np.array([size for size, _ in sized], dtype=np.int64)
    modulus = len(sizes)
    while len(np.unique(sizes % modulus)) < len(sizes):
        modulus = int(modulus * _MODULUS_GROWTH) + 1
    words = [_words(live) for _, live in sized]
    places = np.zeros(modulus, dtype=np.int64)
    places[sizes % modulus] = modulus + np.cumsum([0, *map(len, words[:-1])])
    return modulus, np.concatenate([places, *words])


def _words(live: LiveSegment) -> npt.NDArray[np.int64]:
    """Returns the hidden rows of a segment, a bit each."""
    bits = np.zeros(-(-live.segment.meta.rows // 64) * 64, dtype=np.uint8)
    bits[live.deletes.hidden_positions()] = 1
    words: npt.NDArray[np.int64] = np.packbits(bits, bitorder="little").view(np.int64)
    return words
