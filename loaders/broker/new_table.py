"""A table for files, and the broker load that fills it: one commit, all files or none."""

from __future__ import annotations

import glob
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from seqstore.loaders.avro.registry import with_registry
from seqstore.loaders.broker.files import InputFile
from seqstore.loaders.broker.spec import DataDescription, LoadSpec, format_of
from seqstore.loaders.headers import CHANGE_FORMATS, StreamLoadOptions, text_format
from seqstore.loaders.inference.declared_table import declared_table
from seqstore.loaders.inference.file_columns import columns_of, csv_names, joined_columns
from seqstore.store.errors import InvalidInputError, NotFoundError
from seqstore.store.schema.table_schema import TableSchema

_SUFFIXES: Final = ("csv", "json", "jsonl", "ndjson", "parquet", "orc", "arrow", "avro")
_COMPRESSIONS: Final = ("", "gz", "bz2", "lz4", "zst", "zstd", "deflate")
_CSV: Final = "csv_with_names"


@dataclass(frozen=True)
class FilesLoad:
    """Files and the table that they are for.

    Attributes:
        table: `db.table`.
        paths: files, and directories whose files with known suffixes are read.
        file_format: of all files; empty: by their suffixes, and CSV has names in its first line.
        separator: of CSV.
        time_zone: of values with a zone; empty: the default of loads.
        registries: the setting `schema_registries`.
    """

    table: str
    paths: Sequence[str]
    file_format: str = ""
    separator: str = ","
    time_zone: str = ""
    registries: Sequence[str] = ()

    @cached_property
    def files(self) -> list[str]:
        """The files, absolute.

        Raises:
            NotFoundError: a path does not exist, or a directory has no file of a known suffix.
        """
        found: list[str] = []
        for path in map(os.path.abspath, self.paths):
            own = _below(Path(path)) if os.path.isdir(path) else [path] * os.path.isfile(path)
            if not own:
                raise NotFoundError(
                    f"{path}: expected a file, or a directory of files that end in {', '.join(_SUFFIXES)}",
                    kind="no_files",
                )
            found += own
        return list(dict.fromkeys(found))

    def declared(
        self, key: Sequence[str], sequence: str | None, properties: Mapping[str, str] | None = None
    ) -> TableSchema:
        """Returns the declaration of a table for the files, from their schemas or all of their values.

        Args:
            key: the columns of the unique key; none for a duplicate table.
            sequence: the mapped column; change streams have a hidden sequence instead.
            properties: of the table.

        Raises:
            InvalidInputError: the files have no such columns, the sequence has no fitting type, or a property
                is bad.
        """
        types = joined_columns([columns_of(self._input(path), self._options(path)) for path in self.files])
        if not types:
            raise InvalidInputError(f"no file names a column: {', '.join(self.files[:5])}", kind="no_schema")
        is_changes = text_format(self.file_format) in CHANGE_FORMATS
        return declared_table(types, key, sequence, properties or {}, is_changes=is_changes)

    def spec(self) -> LoadSpec:
        """Returns the load of all files in one commit."""
        groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for path in self.files:
            names = csv_names(self._input(path), self._options(path)) if self._format(path) == _CSV else []
            pattern = glob.escape(path).replace("{", "[{]")
            groups.setdefault((self._format(path), tuple(names)), []).append(pattern)
        found = [self._description(kind, names, tuple(paths)) for (kind, names), paths in groups.items()]
        return self._spec(tuple(found))

    def _description(self, kind: str, names: Sequence[str], paths: tuple[str, ...]) -> DataDescription:
        return DataDescription(
            self.table.partition(".")[2],
            paths,
            format=kind,
            columns=tuple(names),
            column_separator=self.separator if kind == _CSV else "",
            properties={"enclose": '"', "trim_double_quotes": "true"} if kind == _CSV else {},
        )

    def _spec(self, descriptions: tuple[DataDescription, ...]) -> LoadSpec:
        zone = {"timezone": self.time_zone} if self.time_zone else {}
        return LoadSpec(self.table.partition(".")[0], f"load-{uuid.uuid4()}", descriptions, zone)

    def _options(self, path: str) -> StreamLoadOptions:
        description = self._description(self._format(path), (), (path,))
        return with_registry(self._spec((description,)).options(description, path), self.registries)

    def _format(self, path: str) -> str:
        kind = self.file_format or format_of(path)[0]
        return _CSV if kind == "csv" else kind

    def _input(self, path: str) -> InputFile:
        return InputFile(path, os.path.getsize(path))


def _below(directory: Path) -> list[str]:
    """Returns the files below a directory with known suffixes, without hidden ones and `_names`."""
    found = []
    for path in sorted(directory.rglob("*")):
        inner = path.relative_to(directory).parts
        parts = path.name.lower().split(".")[1:]
        known = bool(parts) and (parts[-1] in _SUFFIXES or (parts[-1] in _COMPRESSIONS and len(parts) > 1))
        if known and path.is_file() and not any(part.startswith((".", "_")) for part in inner):
            found.append(str(path))
    return found
