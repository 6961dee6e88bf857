"""The values of the store that travel between client and server, by the names of their classes.

A field that the receiver does not know is left out, and one that the sender did not know has its default: so
both sides may be of different versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from seqstore.store.catalog.kept_versions import KeptVersions
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus
from seqstore.store.catalog.version_record import VersionMetrics
from seqstore.store.check.row_checker import RejectedRow
from seqstore.store.conflict.conflict import Conflict, ConflictKind
from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.condition import Condition
from seqstore.store.history.key_history import KeyEvent, KeyHistory
from seqstore.store.load.load import LoadResult, WriteResult
from seqstore.store.load.write_options import WriteOptions
from seqstore.store.maintenance.compaction import CompactionResult
from seqstore.store.maintenance.retention import VacuumResult
from seqstore.store.read.scan import ScanMetrics
from seqstore.store.read.versioned_table import History, VersionInfo
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.result import Result
from seqstore.store.transaction.transaction import TransactionResult
from seqstore.store.transaction.transaction_options import DmlResult, TransactionOptions

_PLAIN: Final = {
    each.__name__: each
    for each in (
        CompactionResult,
        Condition,
        DmlResult,
        KeptVersions,
        KeyEvent,
        LoadResult,
        RejectedRow,
        Result,
        ScanMetrics,
        TransactionOptions,
        TransactionResult,
        VacuumResult,
        VersionInfo,
        VersionMetrics,
        WriteOptions,
        WriteResult,
    )
}
_LISTS: Final = {each.__name__: each for each in (History, KeyHistory)}


_FIELDS: Final = {
    each.__name__: frozenset(field.name for field in fields(each) if field.init)
    for each in (*_PLAIN.values(), Conflict, TransactionRecord)
}


def to_fields(value: object) -> tuple[str, Any]:
    """Returns the name of a value's class, and its fields.

    Raises:
        InvalidInputError: values of the class do not travel.
    """
    name = type(value).__name__
    if _PLAIN.get(name) is type(value):
        return name, {field: getattr(value, field) for field in sorted(_FIELDS[name])}
    if _LISTS.get(name) is type(value):
        return name, list(value)
    if isinstance(value, Conflict):
        return "Conflict", {**value.__dict__, "kind": value.kind.value}
    if isinstance(value, TableSchema):
        return "TableSchema", value.to_record()
    if isinstance(value, TransactionRecord):
        return "TransactionRecord", {**value.to_record(), "owner": list(value.owner)}
    raise InvalidInputError(
        f"a value of type {type(value).__module__}.{name} cannot be sent to a store elsewhere; "
        "call it where the store is",
        kind="not_remote",
    )


def from_fields(name: str, given: Any) -> Any:
    """Restores a value of `to_fields`.

    Raises:
        InvalidInputError: no such class, or a field is missing.
    """
    if name in _LISTS:
        return _LISTS[name](given)
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"a {name} without fields", kind="bad_message")
    if name == "TableSchema":
        return TableSchema.from_record(given)
    if name == "TransactionRecord":
        known = {key: value for key, value in given.items() if key in _FIELDS[name]}
        status = TransactionStatus(known["status"])
        return TransactionRecord(**{**known, "status": status, "owner": tuple(known["owner"])})
    if name == "Conflict":
        known = {key: value for key, value in given.items() if key in _FIELDS[name]}
        return Conflict(**{**known, "kind": ConflictKind(known["kind"])})
    cls = _PLAIN.get(name)
    if cls is None:
        raise InvalidInputError(f"values of type {name} do not travel", kind="bad_message")
    return cls(**{key: value for key, value in given.items() if key in _FIELDS[name]})
