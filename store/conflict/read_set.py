"""The reads of a transaction on one table, as far as conflicts depend on them.

A `ReadLog` is one of three things, never confused: *nothing* (a blind write has no log at all), *predicates
plus explicit keys*, or *the whole table*. Conditions that cannot be looked at by row (a subquery, `rand()`,
a field of a struct) turn row-level checks off and say why.

The reads are stored in the version record as well, for the guard of later transactions: keys as codes,
predicates as Arrow wrote them, compressed. A predicate that only its own process can evaluate is kept as
"opaque".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.predicate import evaluated, named_in, pack, text_of, unpack
from seqstore.store.schema.column import (
    DELETE_SIGN,
    GROUPS_COL,
    HIDDEN_COLUMNS,
    ROW_ID_COL,
    ROW_ID_ID,
    SEQUENCE_COL,
    SEQUENCE_ID,
    VERSION_COL,
    VERSION_ID,
    hidden_name,
)
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.key_codes import Codes, encode_keys

Mask = npt.NDArray[np.bool_]
_KEYS_RECORDED_MAX: Final = 65_536
_PARTITIONS_MAX: Final = 100  # keys of more partitions count as a read of the table
NO_CODES: Final = np.empty(0, dtype=np.uint64)

# Why rows could not be looked at (ISO11); empty while they can.
ROW_LEVEL_CHANGES: Final = "ROW_LEVEL_CHANGES"
ROW_LEVEL_OFF: Final = "ROW_LEVEL_OFF"
WHOLE_TABLE_READ: Final = "WHOLE_TABLE_READ"
WHOLE_TABLE_REPLACE: Final = "WHOLE_TABLE_REPLACE"
ALLOTTED_TIME_EXCEEDED: Final = "ALLOTTED_TIME_EXCEEDED"
SUBQUERY: Final = "SUBQUERY"
NON_DETERMINISTIC: Final = "NON_DETERMINISTIC_EXPRESSION"
COMPLEX_TYPE: Final = "COMPLEX_TYPE_CONDITION"
METADATA_CHANGE: Final = "METADATA_CHANGE"
PROTOCOL_CHANGE: Final = "PROTOCOL_CHANGE"
APP_ID: Final = "APP_ID"
INPUT_REWRITTEN: Final = "INPUT_REWRITTEN"
HISTORY_EXPIRED: Final = "HISTORY_EXPIRED"


@dataclass(frozen=True)
class Predicate:
    """A condition by which a transaction read rows.

    Attributes:
        expression: over visible and hidden columns; None where only `evaluate` can test rows.
        evaluate: rows with the table's visible columns to a mask.
        partition: the part over partition columns alone, None when there is none.
    """

    expression: pc.Expression | None = None
    evaluate: Callable[[pa.Table], Mask] | None = None
    partition: pc.Expression | None = None

    @property
    def hidden(self) -> list[str]:
        """The hidden columns that it may look at, never too few."""
        return [] if self.expression is None else named_in(self.expression, HIDDEN_COLUMNS)

    def matches(self, rows: pa.Table) -> Mask:
        """Returns which rows satisfy it; NULL is no."""
        if not len(rows):
            return np.zeros(0, dtype=np.bool_)
        if self.expression is not None:
            return mask_of(self.expression, rows)
        assert self.evaluate is not None
        return self.evaluate(rows)

    def admits(self, rows: pa.Table) -> Mask:
        """Returns which rows lie in a partition that it reads."""
        if self.partition is None or not len(rows):
            return np.ones(len(rows), dtype=np.bool_)
        return mask_of(self.partition, rows)


def mask_of(expression: pc.Expression, rows: pa.Table) -> Mask:
    """Returns which rows satisfy an Arrow expression; NULL is no.

    Raises:
        InvalidInputError: it does not fit the columns.
    """
    try:
        found = evaluated(rows, {"found": expression}).column(0)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
        raise InvalidInputError(
            f"condition {text_of(expression) or ''} does not fit: {error}", kind="bad_filter"
        ) from error
    mask: Mask = np.asarray(pc.fill_null(found, False)).astype(np.bool_, copy=False)
    return mask


@dataclass
class ReadLog:
    """The reads of one transaction on one table so far.

    Attributes:
        schema: at the version it reads.
        columns: ids of the columns it looked at.
        fallback: why rows cannot be looked at, empty while they can.
    """

    schema: TableSchema
    predicates: list[Predicate] = field(default_factory=list)
    keys: list[Codes] = field(default_factory=list)
    whole_table: bool = False
    columns: set[int] = field(default_factory=set)
    fallback: str = ""

    def read_keys(self, arrays: Sequence[pa.Array], columns: Iterable[str]) -> None:
        """Records that rows of some keys were looked up, found or not.

        Without row-level checks the partitions of the keys count as read, or the table (ISO11).
        """
        if not self.schema.row_level:
            self.read_where(self._partitions_of(arrays), columns)
            return
        self.keys.append(np.unique(encode_keys(arrays, exact=self.schema.has_exact_key)))
        self.read_columns(columns)

    def read_where(self, predicate: Predicate | None, columns: Iterable[str]) -> None:
        """Records that rows that satisfy a predicate were read; None means all."""
        if predicate is None:
            self.whole_table = True
        else:
            self.predicates.append(predicate)
        self.read_columns(columns)

    def _partitions_of(self, arrays: Sequence[pa.Array]) -> Predicate | None:
        """Returns the condition of the partitions that hold some keys; None where keys do not tell them."""
        names, key = list(self.schema.partition_columns), list(self.schema.key)
        if not names or not {*names} <= {*key}:
            return None
        partitions = pa.table(list(arrays), names=key).group_by(names).aggregate([])
        if not 0 < len(partitions) <= _PARTITIONS_MAX:
            return None
        conditions = [
            reduce(and_, [_equals(name, value) for name, value in row.items()])
            for row in partitions.select(names).to_pylist()
        ]
        condition = reduce(or_, conditions)
        return Predicate(condition, partition=condition)

    def read_columns(self, columns: Iterable[str]) -> None:
        """Records that columns were looked at, hidden ones by their canonical names.

        Any write of a row gives it another `__VERSION_COL__`, and may change its groups. The sign is 0 in
        every row that a reader sees.
        """
        ids = {column.name.lower(): column.id for column in self.schema.columns}
        ids |= {VERSION_COL: VERSION_ID, GROUPS_COL: VERSION_ID, SEQUENCE_COL: SEQUENCE_ID}
        ids[ROW_ID_COL] = ROW_ID_ID
        named = (hidden_name(name) or name.lower() for name in columns)
        self.columns |= {ids[name] for name in named if name != DELETE_SIGN}

    def read_sequence(self) -> None:
        """Records that the sequence of the rows was looked at: it decides whether an update takes effect."""
        if self.schema.has_sequence:
            self.read_columns([self.schema.sequence_column or SEQUENCE_COL])

    def fall_back(self, reason: str) -> None:
        """Counts the whole table as read, because rows cannot be looked at."""
        self.fallback = self.fallback or reason

    @property
    def codes(self) -> Codes:
        """Codes of the explicit keys, ascending."""
        if not self.keys:
            return NO_CODES
        return self.keys[0] if len(self.keys) == 1 else np.unique(np.concatenate(self.keys))

    def to_record(self) -> dict[str, Any]:
        """Converts the reads for the version record."""
        codes = self.codes
        if self.whole_table or self.fallback or len(codes) > _KEYS_RECORDED_MAX:
            return {"whole": True}
        predicates = [packed(predicate.expression) for predicate in self.predicates]
        return {
            "keys": codes.astype("<u8").tobytes(),
            "predicates": [data for data in predicates if data is not None],
            "opaque": None in predicates,
        }


def _equals(name: str, value: Any) -> pc.Expression:
    return pc.field(name).is_null() if value is None else pc.field(name) == value


@dataclass(frozen=True)
class RecordedReads:
    """The reads of a committed transaction, as its version record holds them."""

    whole_table: bool = False
    keys: Codes = field(default_factory=lambda: NO_CODES)
    predicates: tuple[Predicate, ...] = ()

    @classmethod
    def of(cls, record: Mapping[str, Any] | None) -> RecordedReads | None:
        """Returns the stored reads, None where they are opaque."""
        if record is None or record.get("opaque"):
            return None
        if record.get("whole"):
            return cls(whole_table=True)
        keys = np.frombuffer(record["keys"], dtype="<u8").astype(np.uint64)
        predicates = tuple(Predicate(unpack(data)) for data in record["predicates"])
        if any(predicate.hidden for predicate in predicates):  # later transactions compare visible columns
            return None
        return cls(False, keys, predicates)


def packed(expression: pc.Expression | None) -> bytes | None:
    """Returns an expression as bytes, None where there is none or another process could not evaluate it."""
    try:
        return None if expression is None else pack(expression)
    except InvalidInputError:
        return None
