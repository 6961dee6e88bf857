"""The changes of a table as lines of JSON, for other programs and other stores.

| form | a line |
| --- | --- |
| `ndjson` | a row of the change feed: its columns, `_change_type`, `_commit_version`, `_commit_timestamp` |
| `debezium_json` | an envelope of Debezium, whose position is the version |

Without a first version, the rows of now come first, as inserts of their version. Decimals, large integers and
times are text, so no digit is lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.history.change_feed import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from seqstore.store.table import Table
from seqstore.store.types.cast import decimal_texts, evaluate

_FILE: Final = re.compile(r"changes-(?P<first>[0-9]{12})-(?P<last>[0-9]{12})\.json")
_ROWS: Final = 10_000
_FEED: Final = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)


class OutForm(StrEnum):
    """The form of the lines."""

    NDJSON = "ndjson"
    DEBEZIUM_JSON = "debezium_json"


@dataclass(frozen=True)
class OutgoingChanges:
    """The changes of one table in one form.

    Attributes:
        has_keys: each line has the key of its row before it, and a tab.
    """

    table: Table
    form: OutForm
    has_keys: bool = False

    def rows(self, version: int) -> Iterator[str]:
        """Yields the rows of a version as inserts."""
        for batch in self.table.scan(version=version):
            moment = pa.scalar(self._moment(version), pa.timestamp("us"))
            feed = [
                pa.repeat("+I", len(batch)),
                pa.repeat(version, len(batch)),
                pa.repeat(moment, len(batch)),
            ]
            yield from self._lines(pa.table([*batch.columns, *feed], names=[*batch.schema.names, *_FEED]))

    def changes(self, first: int, last: int) -> Iterator[str]:
        """Yields the changes of versions.

        Raises:
            VersionExpiredError: the versions are not kept any more.
        """
        for batch in self.table.changes(first, last):
            yield from self._lines(pa.Table.from_batches([batch]))

    def _moment(self, version: int) -> object:
        found = [info.timestamp for info in self.table.history() if info.version == version]
        return found[0].replace(tzinfo=None)

    def _lines(self, rows: pa.Table) -> Iterator[str]:
        if self.form is OutForm.DEBEZIUM_JSON:
            rows = rows.filter(pc.not_equal(rows[CHANGE_TYPE], "-U"))
        for start in range(0, len(rows), _ROWS):
            part = rows.slice(start, _ROWS).combine_chunks()
            lines = self._envelopes(part) if self.form is OutForm.DEBEZIUM_JSON else json_objects(part)
            yield from (self._with_keys(part, lines) if self.has_keys else lines).to_pylist()

    def _with_keys(self, rows: pa.Table, lines: pa.Array) -> pa.Array:
        names = [column.name for column in self.table.schema.key_columns]
        keys = json_objects(rows.select(names)) if names and not self.table.schema.is_duplicate else ""
        return pc.binary_join_element_wise(keys, lines, "\t")

    def _envelopes(self, rows: pa.Table) -> pa.Array:
        """Returns envelopes; a deleted row is the old image, and other rows are new ones."""
        images = json_objects(rows.drop_columns(list(_FEED)))
        kinds = _one(rows[CHANGE_TYPE])
        deleted = pc.equal(kinds, "-D")
        operations = pc.if_else(deleted, "d", pc.if_else(pc.equal(kinds, "+I"), "c", "u"))
        milliseconds = (
            _one(rows[COMMIT_TIMESTAMP])
            .cast(pa.timestamp("ms"), safe=False)
            .cast(pa.int64())
            .cast(pa.string())
        )
        database, _, name = self.table.name.partition(".")
        source = json_objects(
            pa.table({"connector": ["seqstore"], "snapshot": ["false"], "db": [database], "table": [name]})
        )
        head = source[0].as_py()[:-1]
        return pc.binary_join_element_wise(
            '{"op":"', operations,
            '","before":', pc.if_else(deleted, images, "null"),
            ',"after":', pc.if_else(deleted, "null", images),
            f',"source":{head},"ts_ms":', milliseconds,
            ',"commit_version":', _one(rows[COMMIT_VERSION]).cast(pa.string()),
            '},"ts_ms":', milliseconds,
            "}", "",
        )  # fmt: skip


@dataclass(frozen=True)
class OutDirectory:
    """A directory of files, each with the changes of some versions; their names are the progress."""

    path: Path

    @property
    def last(self) -> int | None:
        """Returns the last version that is there, None without one."""
        found = [_FILE.fullmatch(each.name) for each in self.path.glob("changes-*.json")]
        return max((int(match["last"]) for match in found if match), default=None)

    def write(self, first: int, last: int, lines: Iterator[str]) -> None:
        """Writes a file, which appears whole or not at all."""
        target = self.path / f"changes-{first:012}-{last:012}.json"
        partial = self.path / f".{target.name}.part"
        with partial.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(target)


def json_objects(rows: pa.Table) -> pa.Array:
    """Returns each row as a JSON object; decimals and times are text.

    Raises:
        InvalidInputError: a number is not finite.
    """
    columns = [_portable(_one(column)) for column in rows.columns]
    struct = pa.StructArray.from_arrays(columns, names=rows.schema.names)
    return evaluate(struct, "to_json(c)").cast(pa.string())


def _portable(column: pa.Array) -> pa.Array:
    """Returns a column whose JSON keeps every digit."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return decimal_texts(column)
    if pa.types.is_temporal(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        values = np.asarray(column.drop_null())
        if not np.isfinite(values).all():
            raise InvalidInputError("a number is not finite, and JSON has no form for it", kind="not_finite")
    return column


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
