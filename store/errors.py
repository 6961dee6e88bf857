"""Every error the store raises, as one tree.

    StoreError                        message, kind (append-only words), fields
    ├── InvalidInputError (ValueError)  fix the call, the statement or the data
    │   └── LoadRejectedError             too many rows were filtered; .rejected has them
    ├── NotFoundError (LookupError)     database, table, label, transaction
    │   └── VersionExpiredError           the version is behind the retention horizon
    ├── AlreadyExistsError              database, table
    │   └── LabelExistsError              the label names an earlier load; .txn_id, .status
    ├── ConflictError                   read data has changed; run again on a new snapshot; .conflicts
    │   ├── ConcurrentAppendException       a row was added that the transaction's conditions cover
    │   ├── ConcurrentDeleteReadException   a row it read was changed or removed
    │   ├── ConcurrentDeleteDeleteException a row it writes, unread, was changed
    │   ├── MetadataChangedException        schema or properties changed
    │   ├── ProtocolChangedException        features changed, or the table was created twice
    │   └── ConcurrentTransactionException  another run with its application id committed
    ├── AccessDeniedError               wrong password, or a privilege is missing
    ├── UnavailableError                lock held, disk or map full; try later or make room
    ├── FormatError                     the directory is no store, or a newer program wrote it
    ├── ClosedError                     the handle is closed; open it again
    ├── CommitUnknownError              the outcome is not known; reopen and look up the label
    └── CorruptionError                 stored bytes are wrong; .path

A class exists where a caller would react differently. Errors that differ only in their message differ by
`kind`. All classes pickle (Spark sends them between processes): the constructor accepts the message and
keyword fields only.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final


class StoreError(Exception):
    """Base of all errors of the store.

    Args:
        message: the failed operation, its object, expected and found, next step.
        kind: a stable word that programs may test, such as `"unknown_column"`.
        fields: values of the message, by name; also readable as attributes.
    """

    def __init__(self, message: str, *, kind: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.kind, self.fields)


def _rebuild(cls: type[StoreError], message: str, kind: str, fields: dict[str, Any]) -> StoreError:
    return cls(message, kind=kind, **fields)


class InvalidInputError(StoreError, ValueError):
    """The call, the statement or the data cannot be accepted as given."""


def bad_property(message: str) -> InvalidInputError:
    """Returns the error of a property that a table or a job cannot have as given."""
    return InvalidInputError(message, kind="bad_property")


class LoadRejectedError(InvalidInputError):
    """More rows were filtered than `max_filter_ratio` allows; nothing was applied. `.rejected` lists them."""


class NotFoundError(StoreError, LookupError):
    """A database, table, label or transaction does not exist."""


class VersionExpiredError(NotFoundError):
    """The version was never made or is behind the retention horizon. `.oldest` and `.latest` can be read."""


class AlreadyExistsError(StoreError):
    """A database or table of that name exists."""


class LabelExistsError(AlreadyExistsError):
    """The label names an earlier load. `.txn_id`, `.status` (PREPARE, PRECOMMITTED, COMMITTED, VISIBLE),
    `.version`."""


_CONFLICT_FIELDS: Final = {
    "table": "",
    "operation": "",
    "read_version": 0,
    "winner_version": 0,
    "winner_operation": "",
    "winner_label": "",
    "isolation": "",
    "reason": "",
    "keys": (),
    "conflicts": (),
}


class ConflictError(StoreError):
    """Data that the operation read has changed, or a deadlock ended it; run it again on a new snapshot.

    Fields: `table`, `operation`, `read_version` of the current transaction; `winner_version`,
    `winner_operation`, `winner_label` of the committed one; `isolation`, `reason`, `keys`; `conflicts` lists
    all of them, not only the first. Every conflict has every field: 0, an empty text or an empty tuple where
    no value is known or applies.
    """

    error_class: ClassVar[str] = ""
    sqlstate: ClassVar[str] = "2D521"

    def __init__(self, message: str, *, kind: str = "", **fields: Any) -> None:
        super().__init__(message, kind=kind, **{**_CONFLICT_FIELDS, **fields})


class AccessDeniedError(StoreError):
    """The password is wrong, or the user does not hold the privilege."""


# The six conflict classes have Delta's names, so that code written for Delta can catch them.


class ConcurrentAppendException(ConflictError):
    """Another transaction added a row that this one's conditions cover and that it did not see."""

    error_class = "DELTA_CONCURRENT_APPEND"


class ConcurrentDeleteReadException(ConflictError):
    """Another transaction removed or changed a row that this one read."""

    error_class = "DELTA_CONCURRENT_DELETE_READ"


class ConcurrentDeleteDeleteException(ConflictError):
    """Another transaction changed a row that this one writes without having read it."""

    error_class = "DELTA_CONCURRENT_DELETE_DELETE"


class MetadataChangedException(ConflictError):
    """Schema or properties of the table changed. `.changes` and `.features` list the changes of all committed
    transactions.
    """

    error_class = "DELTA_METADATA_CHANGED"


class ProtocolChangedException(ConflictError):
    """Table features changed, or another transaction created the table first; `.changes` and `.features` as
    in MetadataChangedException.
    """

    error_class = "DELTA_PROTOCOL_CHANGED"


class ConcurrentTransactionException(ConflictError):
    """Another run with the same application id committed.

    Fields: `.app_id`; `.app_version` of the committed run; `.own_app_version` of the current one.
    """

    error_class = "DELTA_CONCURRENT_TRANSACTION"


class UnavailableError(StoreError):
    """A lock is held, or disk or catalog space is used up."""


class FormatError(StoreError):
    """The directory is not a store, or a newer program wrote it."""


class ClosedError(StoreError):
    """The store handle was closed."""


class CommitUnknownError(StoreError):
    """The commit may or may not have happened. Look up `.label` after reopening the store."""


class CorruptionError(StoreError):
    """Stored bytes differ from the written ones. `.path` names the file or record."""
